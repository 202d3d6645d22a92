// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The receiving end of a flow: what of its data is there in order, and when it
//! acknowledges.
use std::collections::VecDeque;

use crate::path::{Nanos, Packet};

/// A segment that arrives alone is acknowledged after that (Linux' TCP_DELACK_MIN).
pub const DELAYED_ACK_NS: Nanos = 40_000_000;
/// So many segments at the beginning are acknowledged one by one (quick ACKs).
const QUICK_SEGMENTS: u64 = 16;

/// An acknowledgement: of up to two transmissions that arrived one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The latest of them.
    pub transmission: u64,
    /// The one before, if it is acknowledged too.
    pub before: Option<u64>,
}

/// What a packet has led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Segments that can be read now.
    pub readable_segments: u64,
    /// What is acknowledged at once.
    pub ack: Option<Ack>,
}

/// State of the receiver.
#[derive(Debug, Default)]
pub struct Receiver {
    next_burst: u64,
    /// Segments of the bursts from the next one on that have arrived; 0: missing.
    beyond: VecDeque<u32>,
    received_segments: u64,
    waiting: Option<u64>,
}

impl Receiver {
    /// A packet has come.
    pub fn arrive(&mut self, packet: &Packet) -> Arrival {
        let had_hole = !self.beyond.is_empty();
        let readable_segments = self.store(packet);
        self.received_segments += u64::from(packet.segments);
        let before = self.waiting.take();
        let in_order = !had_hole && self.beyond.is_empty();
        let lone = packet.segments < 2 && before.is_none();
        if in_order && lone && self.received_segments > QUICK_SEGMENTS {
            self.waiting = Some(packet.transmission);
            return Arrival { readable_segments, ack: None };
        }
        let ack = Some(Ack { transmission: packet.transmission, before });
        Arrival { readable_segments, ack }
    }

    /// The transmission whose delayed acknowledgement is due, if it still waits.
    pub fn delayed(&mut self, transmission: u64) -> Option<Ack> {
        let due = self.waiting.take_if(|waiting| *waiting == transmission)?;
        Some(Ack { transmission: due, before: None })
    }

    /// What waits for its acknowledgement.
    pub fn waiting(&self) -> Option<u64> {
        self.waiting
    }

    /// Segments that became readable.
    fn store(&mut self, packet: &Packet) -> u64 {
        let Some(ahead) = packet.burst.checked_sub(self.next_burst) else { return 0 };
        let ahead = ahead as usize;
        if self.beyond.len() <= ahead {
            self.beyond.resize(ahead + 1, 0);
        }
        self.beyond[ahead] = packet.segments;
        let mut readable = 0;
        while self.beyond.front().is_some_and(|segments| *segments > 0) {
            readable += u64::from(self.beyond.pop_front().unwrap_or(0));
            self.next_burst += 1;
        }
        readable
    }
}
