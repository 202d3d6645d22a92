// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM's reports say it has done, to be held against what the host has seen.
//!
//! Nothing here changes what the VM is granted.
use crate::flow::Delta;

/// What a VM's reports have claimed in a group so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Bytes delivered, of all its flows.
    pub delivered_bytes: u64,
    /// Reports that told of a congestion event or of a timeout.
    pub events: u64,
    /// Times that flows of it went on alone: its device was reset, or its slots released.
    pub exits: u64,
    /// It has flows that take all they are given.
    pub backlogged: bool,
    /// What its flows are granted, bytes a second.
    pub granted: u64,
}

impl Claims {
    /// Takes what a flow's report tells.
    pub(crate) fn take(&mut self, told: &Delta) {
        self.delivered_bytes = self.delivered_bytes.wrapping_add(told.delivered_bytes);
        self.events += u64::from(told.congestion || told.timeout);
    }
}
