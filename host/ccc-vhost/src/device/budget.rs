// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How much of the daemon's one thread a VM has in a turn.
//!
//! Whatever a guest puts into its queues and tables, and however fast it puts
//! more there, one turn of a queue does no more than this; the rest is done in
//! further turns, between which all other VMs have theirs.
//!
//! Flows that go on alone are the exception: they leave the engine all at once, for
//! what they have of the path is theirs together and the others' never.  How many
//! they can be is up to the operator (`max_flows_per_vm`).
use std::ops::Range;

/// What one turn may cost, each a small part of a millisecond: a message or a slot
/// is 0.1 to 0.5 microseconds, a chain 50 if it is as long as a chain can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Messages taken from the doorbell queue.
    pub messages: usize,
    /// Slots scanned because an extent was offered or messages were lost.
    pub slots: u32,
    /// Chains taken from the table queue.
    pub chains: usize,
}

impl Budget {
    /// While others wait.
    pub const TURN: Budget = Budget { messages: 256, slots: 256, chains: 4 };
    /// In virtual time, which stands still until all is done.
    pub const ALL: Budget = Budget { messages: usize::MAX, slots: u32::MAX, chains: usize::MAX };
}

/// The first of these slots, at most `left` of them, which are paid for.
pub fn pay(slots: Range<u32>, left: &mut u32) -> Range<u32> {
    let count = (slots.end - slots.start).min(*left);
    *left -= count;
    slots.start..slots.start + count
}
