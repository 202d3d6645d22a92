// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The front ends: one connection each, by the vhost-user protocol.
pub mod backend;
pub mod connection;
pub mod inbox;
pub mod listener;
pub mod message;
pub mod migration;
pub mod vring;
