// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The virtual-time laboratory: several real kernels (User Mode Linux) with
//! real TCP and real queues, joined by simulated cables, on one simulated
//! clock. A [`scenario`] goes in, results come out.
//!
//! On the host, in the order of a run: [`plan`] works out what each guest has
//! to do; [`run`] starts the programs and gathers the results; [`controller`]
//! is the run's main loop, made of the scheduler in [`time`], the [`switch`]
//! between the guests' NICs, the [`relay`] between guests and daemon, and the
//! script of what is done to them. [`guest`] is the guests' init.
//!
//! Every module uses only those that stand before it in that order or below:
//! [`vhost_user`], [`ipc`], [`workdir`], [`random`], [`units`], [`error`].

pub mod controller;
pub mod error;
pub mod guest;
pub mod ipc;
pub mod plan;
pub mod random;
pub mod relay;
pub mod run;
pub mod scenario;
pub mod switch;
pub mod time;
pub mod units;
pub mod vhost_user;
pub mod workdir;
