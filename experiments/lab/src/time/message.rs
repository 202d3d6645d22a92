// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages of the kernel's `um_timetravel.h`, by which a client tells when it
//! wants to run and is told when it may.

use crate::ipc::inbox::Inbox;

/// What a message is.
#[allow(missing_docs)]
pub mod op {
    pub const ACK: u32 = 0;
    pub const START: u32 = 1;
    pub const REQUEST: u32 = 2;
    pub const WAIT: u32 = 3;
    pub const GET: u32 = 4;
    pub const UPDATE: u32 = 5;
    pub const RUN: u32 = 6;
    pub const GET_TOD: u32 = 8;
    pub const BROADCAST: u32 = 9;
}

/// Bytes of a message.
const LENGTH: usize = 16;

/// A message.
pub struct TimeMessage {
    /// One of [`op`].
    pub op: u32,
    /// That of the message an ACK answers.
    pub seq: u32,
    /// Nanoseconds, or what else the operation carries.
    pub time: u64,
}

impl TimeMessage {
    /// As it is sent.
    pub fn bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&self.op.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.seq.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.time.to_ne_bytes());
        bytes
    }

    /// The next one that has come whole.
    pub fn next(inbox: &mut Inbox) -> Option<TimeMessage> {
        let bytes = inbox.take(LENGTH)?;
        let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_ne_bytes);
        Some(TimeMessage {
            op: word(0).ok()?,
            seq: word(4).ok()?,
            time: bytes[8..].try_into().map(u64::from_ne_bytes).ok()?,
        })
    }
}
