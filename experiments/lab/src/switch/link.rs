// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A link of a limited rate from a VM to the router, with a FIFO before it.

use std::collections::VecDeque;

use serde::Serialize;

use super::rings::{Frame, ethernet};
use crate::scenario::vm;
use crate::units::{SECOND_NS, bit_of_mbit};

/// The FIFO of a shaper, in time at its rate and in frames at the least: as the daemon
/// makes it on a host (`ccc-vhost`, `tap/kernel.rs`).
const HELD_NS: u64 = SECOND_NS / 10;
const HELD_FRAMES: usize = 20;
/// A full frame.
const FRAME_BYTES: u128 = 1514;

/// A link and the frames that wait for it.
pub struct Link {
    rate_bit: u64,
    limit_packets: usize,
    /// Frames, each with the time at which its last bit has left.
    queue: VecDeque<(u64, Frame)>,
    counters: Counters,
}

/// What a link has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Frames that have left.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that found the FIFO full.
    pub dropped_packets: u64,
}

impl Link {
    /// An idle link.
    pub fn new(link: &vm::Link) -> Self {
        Self {
            rate_bit: bit_of_mbit(link.rate_mbit),
            limit_packets: link.limit_packets as usize,
            queue: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// What holds a tap to a rate: a shaper with a FIFO of `HELD_NS` at it.
    pub fn shaper(now: u64, bytes_s: u64) -> Self {
        let link = vm::Link { rate_mbit: 1.0, limit_packets: 0, past_bottleneck: false };
        let mut shaper = Self::new(&link);
        shaper.set_rate(now, bytes_s);
        shaper
    }

    /// Changes the rate of a shaper. What is leaving now leaves at the rate before.
    pub fn set_rate(&mut self, now: u64, bytes_s: u64) {
        self.rate_bit = bytes_s.max(1) * 8;
        let frames = self.rate_bit as u128 * HELD_NS as u128 / SECOND_NS as u128 / 8 / FRAME_BYTES;
        self.limit_packets = usize::try_from(frames).unwrap_or(usize::MAX).max(HELD_FRAMES);
        let mut leaves = self.queue.front().map_or(now, |(leaves, _)| *leaves);
        for (at, frame) in self.queue.iter_mut().skip(1) {
            leaves += (ethernet(frame).len() as u64 * 8 * SECOND_NS).div_ceil(self.rate_bit);
            *at = leaves;
        }
    }

    /// Takes all frames that wait.
    pub fn empty(&mut self) -> Vec<Frame> {
        self.queue.drain(..).map(|(_, frame)| frame).collect()
    }

    /// Takes a frame that comes at `now`, unless the FIFO is full.
    pub fn push(&mut self, now: u64, frame: Frame) {
        if self.queue.len() >= self.limit_packets {
            self.counters.dropped_packets += 1;
            return;
        }
        let begins = self.queue.back().map_or(now, |(leaves, _)| *leaves).max(now);
        let bits = ethernet(&frame).len() as u64 * 8;
        let leaves = begins + (bits * SECOND_NS).div_ceil(self.rate_bit);
        self.queue.push_back((leaves, frame));
    }

    /// When the next frame leaves.
    pub fn due(&self) -> Option<u64> {
        self.queue.front().map(|(leaves, _)| *leaves)
    }

    /// The frames that have left at `now`.
    pub fn leaving(&mut self, now: u64) -> Vec<Frame> {
        let count = self.queue.partition_point(|(leaves, _)| *leaves <= now);
        let frames: Vec<_> = self.queue.drain(..count).map(|(_, frame)| frame).collect();
        self.counters.sent_packets += frames.len() as u64;
        let bytes = frames.iter().map(|frame| ethernet(frame).len() as u64);
        self.counters.sent_bytes += bytes.sum::<u64>();
        frames
    }

    /// What it has done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet frame of 1,000 bytes behind its header.
    fn frame() -> Frame {
        vec![0; 1012]
    }

    #[test]
    fn frames_leave_at_the_rate_one_after_another() {
        let mut link =
            Link::new(&vm::Link { rate_mbit: 8.0, limit_packets: 2, past_bottleneck: false });
        assert_eq!(link.due(), None);
        for _ in 0..3 {
            link.push(500, frame());
        }
        assert_eq!(link.due(), Some(1_000_500));
        assert!(link.leaving(1_000_499).is_empty());
        assert_eq!((link.leaving(1_000_500).len(), link.due()), (1, Some(2_000_500)));
        assert_eq!(link.leaving(9_000_000).len(), 1);
        link.push(9_000_000, frame());
        assert_eq!(link.due(), Some(10_000_000));
        let counters = Counters { sent_packets: 2, sent_bytes: 2000, dropped_packets: 1 };
        assert_eq!(*link.counters(), counters);
    }

    #[test]
    fn a_shaper_changes_its_rate_for_what_waits() {
        let mut shaper = Link::shaper(0, 1_000_000);
        for _ in 0..3 {
            shaper.push(0, frame());
        }
        shaper.set_rate(500_000, 100_000);
        assert_eq!(shaper.leaving(1_000_000).len(), 1, "as it was begun");
        assert_eq!(shaper.due(), Some(11_000_000));
        assert_eq!(shaper.empty().len(), 2);
        for _ in 0..50 {
            shaper.push(12_000_000, frame());
        }
        assert_eq!(shaper.counters().dropped_packets, 50 - HELD_FRAMES as u64);
    }
}
