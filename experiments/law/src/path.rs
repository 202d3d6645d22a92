// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A link with a FIFO before it that drops at its tail: the bottleneck, and what a VM has of its own.
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
struct Link {
    rate_bit: u64,
    limit_segments: u64,
    held_segments: u64,
    queue: VecDeque<Packet>,
    departs_at: Option<Nanos>,
    /// Bytes that came so far, dropped or not, by VM.
    offered_bytes: Vec<u64>,
    /// Segments dropped so far.
    dropped_segments: u64,
}

impl Link {
    fn new(rate_bit: u64, limit_segments: u64) -> Link {
        Link {
            rate_bit,
            limit_segments,
            held_segments: 0,
            queue: VecDeque::new(),
            departs_at: None,
            offered_bytes: Vec::new(),
            dropped_segments: 0,
        }
    }

    /// Whether a packet found room.  A burst that does not fit is lost as a whole.
    fn offer(&mut self, now: Nanos, vm: usize, packet: Packet) -> bool {
        if vm >= self.offered_bytes.len() {
            self.offered_bytes.resize(vm + 1, 0);
        }
        self.offered_bytes[vm] += bytes_of(&packet);
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
    fn depart(&mut self, now: Nanos) -> Option<Packet> {
        let packet = self.queue.pop_front()?;
        let segments = u64::from(packet.segments.max(1));
        self.held_segments -= segments;
        self.departs_at = self.queue.front().map(|next| now + self.time_of(next));
        Some(packet)
    }

    fn time_of(&self, packet: &Packet) -> Nanos {
        (bytes_of(packet) * 8 * 1_000_000_000).div_ceil(self.rate_bit)
    }
}

/// A link of one VM.
#[derive(Clone, Copy, Debug)]
pub struct LinkSetup {
    /// Its rate.
    pub rate_bit: u64,
    /// Its queue.
    pub limit_segments: u64,
    /// It leads right to the receivers.
    pub past_bottleneck: bool,
}

/// Where packets of all VMs go: through the bottleneck, and a VM's own link before or past it.
#[derive(Debug)]
pub struct Path {
    bottleneck: Link,
    /// By VM.
    own: Vec<Option<OwnLink>>,
}

#[derive(Debug)]
struct OwnLink {
    link: Link,
    past_bottleneck: bool,
}

/// What became of a packet at the end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It is at the receiver.
    Arrived(Packet),
    /// It waits at the bottleneck.
    WentOn,
    /// It found no room there.
    Lost(Packet),
}

impl Path {
    /// An empty one.
    pub fn new(
        rate_bit: u64,
        limit_segments: u64,
        own: impl Iterator<Item = Option<LinkSetup>>,
    ) -> Path {
        let own_link = |link: LinkSetup| OwnLink {
            link: Link::new(link.rate_bit, link.limit_segments),
            past_bottleneck: link.past_bottleneck,
        };
        Path {
            bottleneck: Link::new(rate_bit, limit_segments),
            own: own.map(|link| link.map(own_link)).collect(),
        }
    }

    /// When the next packet is at the end of a link.
    pub fn departs_at(&self) -> Option<Nanos> {
        self.links().filter_map(|link| link.departs_at).min()
    }

    /// Whether a packet of a VM found room at the first link.
    pub fn offer(&mut self, now: Nanos, vm: usize, packet: Packet) -> bool {
        match &mut self.own[vm] {
            Some(own) => own.link.offer(now, vm, packet),
            None => self.bottleneck.offer(now, vm, packet),
        }
    }

    /// The packet that is at the end of a link now.
    pub fn depart(&mut self, now: Nanos) -> Option<Departure> {
        if self.bottleneck.departs_at == Some(now) {
            return self.bottleneck.depart(now).map(Departure::Arrived);
        }
        let due = |own: &OwnLink| own.link.departs_at == Some(now);
        let vm = self.own.iter().position(|own| own.as_ref().is_some_and(due))?;
        let own = self.own[vm].as_mut()?;
        let packet = own.link.depart(now)?;
        Some(if own.past_bottleneck {
            Departure::Arrived(packet)
        } else if self.bottleneck.offer(now, vm, packet) {
            Departure::WentOn
        } else {
            Departure::Lost(packet)
        })
    }

    /// The bottleneck's rate, from the next packet on.
    pub fn set_rate(&mut self, rate_bit: u64) {
        self.bottleneck.rate_bit = rate_bit;
    }

    /// Segments that wait at the bottleneck or are being sent there.
    pub fn held_segments(&self) -> u64 {
        self.bottleneck.held_segments
    }

    /// Segments dropped so far, at all links.
    pub fn dropped_segments(&self) -> u64 {
        self.links().map(|link| link.dropped_segments).sum()
    }

    /// Bytes of a VM that came so far, dropped or not.
    pub fn offered_bytes(&self, vm: usize) -> u64 {
        let first = self.own[vm].as_ref().map_or(&self.bottleneck, |own| &own.link);
        first.offered_bytes.get(vm).copied().unwrap_or(0)
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        let own = self.own.iter().flatten().map(|own| &own.link);
        std::iter::once(&self.bottleneck).chain(own)
    }
}

fn bytes_of(packet: &Packet) -> u64 {
    match packet.segments {
        0 => EMPTY_FRAME_BYTES,
        segments => FRAME_BYTES * u64::from(segments),
    }
}
