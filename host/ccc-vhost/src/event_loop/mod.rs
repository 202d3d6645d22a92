// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the daemon's one thread waits with: descriptors, timers, real or virtual time.
//!
//! Nothing here knows of VMs but by number, and nothing here makes the thread wait
//! for a front end ([`foreign`]).  What is done when an event has come is the
//! server's ([`crate::daemon`]).
pub mod busy_poll;
pub mod clock;
pub mod foreign;
pub mod load;
pub mod open_files;
pub mod poll;
pub mod threads;
pub mod timers;
pub mod timetravel;
pub mod wake;
