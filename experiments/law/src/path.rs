// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The bottleneck: a FIFO that drops at its tail, before a link.
use std::collections::VecDeque;

/// Nanoseconds of simulated time.
pub type Nanos = u64;

/// Payload of a full segment, with TCP's timestamps.
pub const MSS_BYTES: u32 = 1448;
/// The same on the link: Ethernet, IP and TCP headers with it.
pub const FRAME_BYTES: u64 = 1514;
/// A segment without payload on the link.
const EMPTY_FRAME_BYTES: u64 = 74;

/// What is sent at a time: a burst of segments, or none for the opening of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Number of the flow.
    pub flow: usize,
    /// Number of the transmission, counted by the flow.
    pub transmission: u64,
    /// The burst of the flow's data that this is.
    pub burst: u64,
    /// Segments in it.
    pub segments: u32,
}

/// The FIFO and its link.
#[derive(Debug)]
pub struct Bottleneck {
    rate_bit: u64,
    limit_segments: u64,
    held_segments: u64,
    queue: VecDeque<Packet>,
    departs_at: Option<Nanos>,
    /// Bytes that came so far, dropped or not, by flow.
    offered_bytes: Vec<u64>,
    /// Segments dropped so far.
    pub dropped_segments: u64,
    /// Segments sent so far.
    pub sent_segments: u64,
}

impl Bottleneck {
    /// An empty one.
    pub fn new(rate_bit: u64, limit_segments: u64) -> Bottleneck {
        Bottleneck {
            rate_bit,
            limit_segments,
            held_segments: 0,
            queue: VecDeque::new(),
            departs_at: None,
            offered_bytes: Vec::new(),
            dropped_segments: 0,
            sent_segments: 0,
        }
    }

    /// When the first packet has been sent.
    pub fn departs_at(&self) -> Option<Nanos> {
        self.departs_at
    }

    /// Segments that wait or are being sent.
    pub fn held_segments(&self) -> u64 {
        self.held_segments
    }

    /// From the next packet on.
    pub fn set_rate(&mut self, rate_bit: u64) {
        self.rate_bit = rate_bit;
    }

    /// Whether a packet found room.  A burst that does not fit is lost as a whole.
    pub fn offer(&mut self, now: Nanos, packet: Packet) -> bool {
        if packet.flow >= self.offered_bytes.len() {
            self.offered_bytes.resize(packet.flow + 1, 0);
        }
        self.offered_bytes[packet.flow] += bytes_of(&packet);
        let segments = u64::from(packet.segments.max(1));
        if self.held_segments + segments > self.limit_segments {
            self.dropped_segments += segments;
            return false;
        }
        self.held_segments += segments;
        self.queue.push_back(packet);
        if self.departs_at.is_none() {
            self.departs_at = Some(now + self.time_of(&packet));
        }
        true
    }

    /// The packet that has been sent now.
    pub fn depart(&mut self, now: Nanos) -> Option<Packet> {
        let packet = self.queue.pop_front()?;
        let segments = u64::from(packet.segments.max(1));
        self.held_segments -= segments;
        self.sent_segments += segments;
        self.departs_at = self.queue.front().map(|next| now + self.time_of(next));
        Some(packet)
    }

    /// Bytes of a flow that came so far, dropped or not.
    pub fn offered_bytes(&self, flow: usize) -> u64 {
        self.offered_bytes.get(flow).copied().unwrap_or(0)
    }

    fn time_of(&self, packet: &Packet) -> Nanos {
        (bytes_of(packet) * 8 * 1_000_000_000).div_ceil(self.rate_bit)
    }
}

fn bytes_of(packet: &Packet) -> u64 {
    match packet.segments {
        0 => EMPTY_FRAME_BYTES,
        segments => FRAME_BYTES * u64::from(segments),
    }
}
