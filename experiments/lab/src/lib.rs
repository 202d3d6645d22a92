// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The virtual-time laboratory: several real kernels (User Mode Linux) with
//! real TCP and real queues, joined by simulated cables, on one simulated
//! clock.

pub mod actions;
pub mod calendar;
pub mod controller;
pub mod cross;
pub mod error;
pub mod faults;
pub mod fdmsg;
pub mod guest;
pub mod launch;
pub mod plan;
pub mod relay;
mod relay_setup;
pub mod results;
pub mod run;
pub mod scenario;
mod standstill;
mod time_travel;
pub mod vhost_user;
pub mod watch;
pub mod wire;
pub mod workdir;
