// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The one thread that serves all VMs: what it waits for, and what it does then.
pub mod budget;
pub mod clock;
pub mod poll;
pub mod server;
pub mod timers;
