// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM's reports may do to a group, in the host's clock.
//!
//! A report is what a guest says.  Whatever it says, its VM has had acknowledged no more
//! than it was granted, is no farther than anybody can be, and reduces what others have
//! no more often than others lose.  Beyond that it reduces only what it has itself: it
//! goes on in a pool of its own, which grows until it is the VM's part again.
mod bucket;
mod budget;
mod events;
mod held;
mod limits;
mod segments;

pub(crate) use bucket::Part;
pub(crate) use events::{Events, Reduces, Told};
pub(crate) use limits::{Distance, Has, Limits, farthest_us};

/// What a VM was found to do, and what its reports were kept from doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// It loses where nobody else does, or says so: its events reduce only its own part.
    pub alone: bool,
    /// Its window, while that is less than its part.
    pub own_cwnd_bytes: Option<u64>,
    /// Its events that reduced what all have.
    pub shared_events: u64,
    /// Its events that reduced only what it has.
    pub lone_events: u64,
    /// Its part of what was delivered of late, of 1000.
    pub delivered_permille: u32,
    /// Bytes it said were acknowledged, brought, or a floor beyond what it was granted.
    pub beyond_bytes: u64,
    /// Reductions of others that it wanted undone.
    pub refused_undos: u64,
    /// Times it wanted to take its part out of the aggregate again.
    pub refused_exits: u64,
    /// Reports of a round-trip time beyond what is believed.
    pub far_reports: u64,
}
