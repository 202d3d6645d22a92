// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guests' init: sets the machine up, runs its traffic, writes what was
//! measured and powers off.
//!
//! Nothing here may poll: a program that looks again and again makes virtual
//! time crawl. Threads sleep to a given time or block in a system call.

mod clock;
mod guest_actions;
pub mod init;
mod network;
mod output;
mod system;
mod threads;
mod traffic;
