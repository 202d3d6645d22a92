// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The front ends: one connection each, by the vhost-user protocol.
pub mod connection;
pub mod dirty;
pub mod foreign;
pub mod handler;
pub mod listener;
pub mod message;
pub mod migration;
pub mod timetravel;
