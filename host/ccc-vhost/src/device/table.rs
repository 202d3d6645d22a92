// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Chunks of tables a driver has lent.
//!
//! A chain lends one chunk and is held until the driver asks for it back, so
//! that after a crash of this process the front end offers it again and all
//! state can be read out of it.
use std::{collections::BTreeMap, mem::size_of, net::IpAddr};

use ccc_core::FlowId;
use ccc_proto::wire::{self, Extent, ExtentStatus, GrantLine, Report, SlotGrant};
use thiserror::Error;
use vm_memory::{Bytes, GuestAddress};
use zerocopy::FromBytes;

use crate::{
    virtio::chain::{Array, Chain, ChainError, Parts},
    virtio::memory::Mapping,
};

/// Slots a VM may lend in all.
pub const MAX_SLOTS: u32 = 65_536;
/// Group lines a VM may lend.
pub const MAX_LINES: u32 = 16;
/// Chunks a VM may lend at a time.
pub const MAX_CHUNKS: usize = wire::EXTENTS_MAX as usize;

/// Why a chunk is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TableError {
    /// The chain does not hold it.
    #[error("lent chunk: {0}")]
    Chain(#[from] ChainError),
    /// A chunk without slots.
    #[error("lent chunk has no slots")]
    Empty,
    /// Slots beyond the last one there may be.
    #[error("lent slots {first} to {first} + {slots} end behind slot {MAX_SLOTS}")]
    Slots {
        /// First slot.
        first: u32,
        /// Slots.
        slots: u32,
    },
    /// More lines than the device can use.
    #[error("{0} lines lent; there may be {MAX_LINES}")]
    Lines(u32),
    /// The first chunk has to bring the lines.
    #[error("the first chunk lent has no lines")]
    NoLines,
    /// Later chunks may not bring lines.
    #[error("{0} lines lent in a chunk that is not the first")]
    MoreLines(u32),
    /// As many chunks are lent as there may be.
    #[error("{MAX_CHUNKS} chunks are lent already, as many as there may be")]
    Chunks,
    /// Two chunks have a slot in common.
    #[error("lent slots {first} to {first} + {slots} overlap another chunk's")]
    Overlap {
        /// First slot.
        first: u32,
        /// Slots.
        slots: u32,
    },
}

/// Why a chunk is not given back.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ReleaseError {
    /// No chunk begins there.
    #[error("release of a chunk at slot {0}, where none begins")]
    NoChunk(u32),
}

/// A refused chunk.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// Where to say so, if that much of the chunk was right.
    pub status: Option<GuestAddress>,
    /// What is wrong.
    pub error: TableError,
}

/// The flow in a slot.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Use of the slot.
    pub generation: u32,
    /// Where the flow sends to, as it said when it was found.
    pub destination: IpAddr,
    /// What was made of it.
    pub place: Place,
    /// How it counts within its VM, by its latest report.
    pub units: Units,
}

/// What was made of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Coupled in a group.
    Coupled {
        /// The engine's number for it.
        flow: FlowId,
        /// Index of the group.
        group: usize,
        /// The group's line.
        line: u16,
    },
    /// Left alone, because the operator says so or because it has to be.
    Apart,
    /// To be coupled as soon as that can be done.
    Waiting,
}

/// What a flow's grant is counted in.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// Has data outstanding or to send.
    pub active: bool,
    priority: u16,
    srtt_us: u32,
}

impl Units {
    /// Those of a report.
    pub fn of(report: &ccc_core::Report) -> Units {
        Units { active: report.active, priority: report.priority, srtt_us: report.srtt_us }
    }

    /// Their number, in a group shared by rate or by window.
    pub fn count(&self, rate: bool) -> u64 {
        let srtt = match self.srtt_us {
            0 => wire::UNIT_RTT_UNKNOWN_US,
            us => us.min(wire::UNIT_RTT_MAX_US),
        };
        u64::from(self.priority) * if rate { u64::from(srtt) } else { 1 }
    }
}

impl Held {
    /// The group in which it is coupled.
    pub fn group(&self) -> Option<usize> {
        match self.place {
            Place::Coupled { group, .. } => Some(group),
            Place::Apart | Place::Waiting => None,
        }
    }

    /// The engine's number for it, if it is coupled.
    pub fn flow(&self) -> Option<FlowId> {
        match self.place {
            Place::Coupled { flow, .. } => Some(flow),
            Place::Apart | Place::Waiting => None,
        }
    }
}

/// What was in chunks that were given back.
#[derive(Debug, Default)]
pub struct Released {
    /// Heads of the chains, the one lent first in front.
    pub heads: Vec<u16>,
    /// The flows.
    pub flows: Vec<Held>,
}

/// A lent chunk.
#[derive(Debug)]
pub struct Chunk {
    /// Head of the held chain.
    pub head: u16,
    /// Where its status is.
    pub status: GuestAddress,
    first: u32,
    slots: u32,
    /// Larger than that of every chunk lent before it.
    order: u64,
    /// What is known of flows, by slot: as much memory as there are flows.
    flows: BTreeMap<u32, Held>,
    reports: Array,
    grants: Array,
    lines: Array,
}

/// One slot of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The flow in it.
    pub held: Option<Held>,
    /// Where the guest reports.
    pub report: GuestAddress,
    /// Where the device answers.
    pub grant: GuestAddress,
}

impl Chunk {
    /// Finds the parts of a chunk in a chain.
    pub fn parse(mapping: &Mapping, chain: Chain<'_>) -> Result<Chunk, Refused> {
        let head = chain.head_index();
        let early = |error| Refused { status: None, error: TableError::Chain(error) };
        let parts = Parts::of(chain).map_err(early)?;
        let (mut readable, mut writable) = (parts.readable(mapping), parts.writable(mapping));
        let status = writable.take(size_of::<ExtentStatus>(), 1).map_err(early)?.address(0);
        let status = status.ok_or(Refused { status: None, error: TableError::Empty })?;
        let mut rest = || -> Result<Chunk, TableError> {
            let lend = read_lend(mapping, &readable.take(size_of::<Extent>(), 1)?)?;
            let (first, slots, lines) =
                (lend.first_slot.get(), lend.slots.get(), lend.grant_lines.get());
            check_counts(first, slots, lines)?;
            let count = slots as usize;
            let reports = readable.take(size_of::<Report>(), count)?;
            let lines = writable.take(size_of::<GrantLine>(), lines as usize)?;
            let grants = writable.take(size_of::<SlotGrant>(), count)?;
            readable.end()?;
            writable.end()?;
            let (order, flows) = (0, BTreeMap::new());
            Ok(Chunk { head, status, first, slots, order, flows, reports, grants, lines })
        };
        rest().map_err(|error| Refused { status: Some(status), error })
    }

    /// Its first slot.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// One more than its last slot.
    pub fn end(&self) -> u32 {
        self.first + self.slots
    }

    fn slot(&self, slot: u32) -> Option<Slot> {
        let index = slot.checked_sub(self.first)? as usize;
        Some(Slot {
            report: self.reports.address(index)?,
            grant: self.grants.address(index)?,
            held: self.flows.get(&slot).copied(),
        })
    }
}

fn read_lend(mapping: &Mapping, array: &Array) -> Result<Extent, TableError> {
    let mut bytes = [0u8; size_of::<Extent>()];
    let address = array.address(0).ok_or(TableError::Empty)?;
    let outside = ChainError::Outside { address: address.0, length: bytes.len() };
    mapping.read_slice(&mut bytes, address).map_err(|_| outside)?;
    Extent::read_from_bytes(&bytes).map_err(|_| outside.into())
}

fn check_counts(first: u32, slots: u32, lines: u32) -> Result<(), TableError> {
    if slots == 0 {
        return Err(TableError::Empty);
    }
    if first.checked_add(slots).is_none_or(|end| end > MAX_SLOTS) {
        return Err(TableError::Slots { first, slots });
    }
    if lines > MAX_LINES {
        return Err(TableError::Lines(lines));
    }
    Ok(())
}

/// All chunks a VM has lent.
#[derive(Debug, Default)]
pub struct Tables {
    /// In the order of their slots.
    chunks: Vec<Chunk>,
    /// Chunks lent so far.
    lent: u64,
}

impl Tables {
    /// Takes a chunk, unless it does not go with the others.
    pub fn adopt(&mut self, chunk: Chunk) -> Result<(), Refused> {
        let place = self.chunks.partition_point(|other| other.first < chunk.first);
        match self.fits(&chunk, place) {
            Ok(()) => {
                self.lent += 1;
                self.chunks.insert(place, Chunk { order: self.lent, ..chunk });
                Ok(())
            }
            Err(error) => Err(Refused { status: Some(chunk.status), error }),
        }
    }

    fn fits(&self, chunk: &Chunk, place: usize) -> Result<(), TableError> {
        let (first, slots) = (chunk.first, chunk.slots);
        if self.chunks.is_empty() {
            return if chunk.lines.is_empty() { Err(TableError::NoLines) } else { Ok(()) };
        }
        if !chunk.lines.is_empty() {
            return Err(TableError::MoreLines(chunk.lines.len() as u32));
        }
        if self.chunks.len() >= MAX_CHUNKS {
            return Err(TableError::Chunks);
        }
        let before = self.chunks[..place].last().is_some_and(|other| first < other.end());
        let behind = self.chunks.get(place).is_some_and(|other| other.first < chunk.end());
        if before || behind { Err(TableError::Overlap { first, slots }) } else { Ok(()) }
    }

    /// Index of the first chunk that ends behind a slot.
    fn index(&self, slot: u32) -> usize {
        self.chunks.partition_point(|chunk| chunk.end() <= slot)
    }

    /// The slot with this number, if it was lent.
    pub fn slot(&self, slot: u32) -> Option<Slot> {
        self.chunks.get(self.index(slot))?.slot(slot)
    }

    /// Notes what is in a slot.
    pub fn hold(&mut self, slot: u32, held: Held) {
        let index = self.index(slot);
        if let Some(chunk) = self.chunks.get_mut(index).filter(|chunk| chunk.first <= slot) {
            chunk.flows.insert(slot, held);
        }
    }

    /// Forgets what is in a slot.
    pub fn forget(&mut self, slot: u32) {
        let index = self.index(slot);
        if let Some(chunk) = self.chunks.get_mut(index) {
            chunk.flows.remove(&slot);
        }
    }

    /// Nothing was lent.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The slots lent from `slot` on, up to the end of their chunk.
    pub fn lent_from(&self, slot: u32) -> Option<(u32, u32)> {
        self.chunks.get(self.index(slot)).map(|chunk| (chunk.first.max(slot), chunk.end()))
    }

    /// The first and one more than the last slot of each chunk.
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        self.chunks.iter().map(|chunk| (chunk.first, chunk.end())).collect()
    }

    /// The group lines.
    pub fn lines(&self) -> Option<&Array> {
        self.chunks.iter().map(|chunk| &chunk.lines).find(|lines| !lines.is_empty())
    }

    /// Takes out the chunk that begins at `slot`.  With the one that has the
    /// lines go all others, which cannot be used without.
    pub fn release(&mut self, slot: u32) -> Result<Released, ReleaseError> {
        let index = self.index(slot);
        let found = self.chunks.get(index).filter(|chunk| chunk.first == slot);
        let all = !found.ok_or(ReleaseError::NoChunk(slot))?.lines.is_empty();
        let gone = if all { 0..self.chunks.len() } else { index..index + 1 };
        let mut gone: Vec<Chunk> = self.chunks.drain(gone).collect();
        gone.sort_unstable_by_key(|chunk| chunk.order);
        let heads = gone.iter().map(|chunk| chunk.head).collect();
        let flows = gone.into_iter().flat_map(|chunk| chunk.flows.into_values()).collect();
        Ok(Released { heads, flows })
    }

    /// Forgets all chunks; the engine's flows that were in them.
    pub fn clear(&mut self) -> Vec<FlowId> {
        let chunks = std::mem::take(&mut self.chunks);
        let held = chunks.into_iter().flat_map(|chunk| chunk.flows.into_values());
        held.filter_map(|held| held.flow()).collect()
    }

    /// Flows there are.
    pub fn flows(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.flows.len()).sum()
    }

    /// All flows, in the order of their slots.
    pub fn held(&self) -> impl Iterator<Item = (u32, &Held)> {
        self.chunks.iter().flat_map(|chunk| &chunk.flows).map(|(slot, held)| (*slot, held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(first: u32, slots: u32, lines: usize) -> Chunk {
        let mapping = Mapping::from_ranges(&[(GuestAddress(0x1000), 0x1000)]).expect("memory");
        let pieces = Parts::default();
        let none = || pieces.readable(&mapping).take(8, 0).expect("nothing");
        let lines = Array::of_test(lines);
        Chunk {
            head: 0,
            status: GuestAddress(0),
            first,
            slots,
            order: 0,
            flows: BTreeMap::new(),
            reports: none(),
            grants: none(),
            lines,
        }
    }

    #[test]
    fn counts_out_of_range_are_refused() {
        assert_eq!(check_counts(0, 0, 1), Err(TableError::Empty));
        assert_eq!(check_counts(0, MAX_SLOTS, MAX_LINES), Ok(()));
        let behind = TableError::Slots { first: 1, slots: MAX_SLOTS };
        assert_eq!(check_counts(1, MAX_SLOTS, 0), Err(behind));
        let overflow = TableError::Slots { first: u32::MAX, slots: 2 };
        assert_eq!(check_counts(u32::MAX, 2, 0), Err(overflow));
        assert_eq!(check_counts(0, 1, MAX_LINES + 1), Err(TableError::Lines(MAX_LINES + 1)));
    }

    #[test]
    fn chunks_have_to_go_together() {
        let mut tables = Tables::default();
        let refused = |tables: &mut Tables, chunk| tables.adopt(chunk).map_err(|r| r.error);
        assert_eq!(refused(&mut tables, chunk(0, 4, 0)), Err(TableError::NoLines));
        assert_eq!(refused(&mut tables, chunk(0, 4, 2)), Ok(()));
        assert_eq!(refused(&mut tables, chunk(4, 4, 2)), Err(TableError::MoreLines(2)));
        let overlap = TableError::Overlap { first: 3, slots: 4 };
        assert_eq!(refused(&mut tables, chunk(3, 4, 0)), Err(overlap));
        assert_eq!(refused(&mut tables, chunk(4, 4, 0)), Ok(()));
        assert_eq!(tables.ranges(), [(0, 4), (4, 8)]);
    }

    #[test]
    fn t6_slots_are_found_whatever_the_order_of_their_chunks() {
        let mut tables = Tables::default();
        for (number, first) in [40, 8, 24, 0, 16].into_iter().enumerate() {
            let lines = usize::from(number == 0);
            tables.adopt(chunk(first, 4, lines)).expect("fits");
        }
        let overlaps = [0, 1, 3, 7, 11, 14, 19, 23, 38];
        for first in overlaps {
            let refused = tables.adopt(chunk(first, 4, 0)).map_err(|refused| refused.error);
            assert_eq!(refused, Err(TableError::Overlap { first, slots: 4 }));
        }
        assert_eq!(tables.ranges(), [(0, 4), (8, 12), (16, 20), (24, 28), (40, 44)]);
        assert_eq!(tables.lent_from(2), Some((2, 4)));
        assert_eq!(tables.lent_from(4), Some((8, 12)));
        assert_eq!(tables.lent_from(44), None);
    }

    #[test]
    fn all_chunks_go_with_the_lines() {
        let mut tables = Tables::default();
        for (head, slots) in [(5, 1), (3, 0), (9, 0)] {
            let first = tables.ranges().last().map_or(0, |(_, end)| *end);
            tables.adopt(Chunk { head, ..chunk(first, 4, slots) }).expect("fits");
        }
        assert_eq!(tables.release(1).map(|_| ()), Err(ReleaseError::NoChunk(1)));
        assert_eq!(tables.release(4).map(|gone| gone.heads), Ok(vec![3]));
        assert_eq!(tables.release(0).map(|gone| gone.heads), Ok(vec![5, 9]), "oldest first");
        assert!(tables.lines().is_none());
    }

    #[test]
    fn units_are_those_of_the_guest() {
        let units = |srtt_us| Units { active: true, priority: 512, srtt_us };
        assert_eq!((units(9).count(false), units(9).count(true)), (512, 512 * 9));
        assert_eq!(units(0).count(true), 512 * 100_000);
        assert_eq!(units(u32::MAX).count(true), 512 << 20);
    }
}
