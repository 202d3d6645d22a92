// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process: how it starts, what it gets from the service manager, what it serves.
pub mod activation;
pub mod capabilities;
pub mod check;
pub mod server;
pub mod setup;
pub mod signals;
pub mod watchdog;
