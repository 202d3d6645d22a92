// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A tenant's way to the daemon.
use std::os::fd::BorrowedFd;

use anyhow::Result;
use ccc_proto::wire::Doorbell;

use crate::lent::Lent;

/// Passes a table's messages on, and has grants put into it.
pub trait Front: std::fmt::Debug {
    /// Passes a message on; it is lost if there is no room.
    fn send(&mut self, now_us: u64, table: &Lent, message: &Doorbell);

    /// Has the daemon look at every slot, for messages were lost on the way here.
    fn rescan(&mut self, now_us: u64, table: &Lent);

    /// Tells the daemon of what was sent.
    fn flush(&mut self);

    /// Until when grants hold.
    fn lease(&mut self, now_us: u64) -> u64;

    /// Takes what has come; fails when the daemon has gone.
    fn receive(&mut self, now_us: u64, table: &Lent) -> Result<()>;

    /// What is readable when something comes, if it does not come into the table by itself.
    fn wakes(&self) -> Option<BorrowedFd<'_>>;
}
