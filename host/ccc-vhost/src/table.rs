// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Chunks of tables a driver has lent.
//!
//! A chain lends one chunk and is held until the driver asks for it back, so
//! that after a crash of this process the front end offers it again and all
//! state can be read out of it.
use std::mem::size_of;

use ccc_core::FlowId;
use ccc_proto::wire::{Grant, GrantHead, Lend, Line, Report};
use thiserror::Error;
use vm_memory::{Bytes, GuestAddress};
use zerocopy::FromBytes;

use crate::{
    chain::{Array, Chain, ChainError, Parts},
    memory::Mapping,
};

/// Slots a VM may lend in all.
pub const MAX_SLOTS: u32 = 65_536;
/// Group lines a VM may lend.
pub const MAX_LINES: u32 = 16;

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
    /// The lines are needed while there are other chunks.
    #[error("release of the chunk at slot {0}, whose lines other chunks use")]
    LinesInUse(u32),
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
    /// The engine's number for the flow.
    pub flow: FlowId,
}

/// A lent chunk.
#[derive(Debug)]
pub struct Chunk {
    /// Head of the held chain.
    pub head: u16,
    /// Where its status is.
    pub status: GuestAddress,
    first: u32,
    flows: Vec<Option<Held>>,
    reports: Array,
    grants: Array,
    lines: Array,
}

/// One slot of a chunk.
#[derive(Debug)]
pub struct Slot<'a> {
    /// The flow in it.
    pub held: &'a mut Option<Held>,
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
        let status = writable.take(size_of::<GrantHead>(), 1).map_err(early)?.address(0);
        let status = status.ok_or(Refused { status: None, error: TableError::Empty })?;
        let mut rest = || -> Result<Chunk, TableError> {
            let lend = read_lend(mapping, &readable.take(size_of::<Lend>(), 1)?)?;
            let (first, slots, lines) = (lend.first_slot.get(), lend.slots.get(), lend.lines.get());
            check_counts(first, slots, lines)?;
            let count = slots as usize;
            let reports = readable.take(size_of::<Report>(), count)?;
            let lines = writable.take(size_of::<Line>(), lines as usize)?;
            let grants = writable.take(size_of::<Grant>(), count)?;
            readable.end()?;
            writable.end()?;
            Ok(Chunk { head, status, first, flows: vec![None; count], reports, grants, lines })
        };
        rest().map_err(|error| Refused { status: Some(status), error })
    }

    /// Its first slot.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// One more than its last slot.
    pub fn end(&self) -> u32 {
        self.first + self.flows.len() as u32
    }

    fn slot(&mut self, slot: u32) -> Option<Slot<'_>> {
        let index = slot.checked_sub(self.first)? as usize;
        Some(Slot {
            report: self.reports.address(index)?,
            grant: self.grants.address(index)?,
            held: self.flows.get_mut(index)?,
        })
    }
}

fn read_lend(mapping: &Mapping, array: &Array) -> Result<Lend, TableError> {
    let mut bytes = [0u8; size_of::<Lend>()];
    let address = array.address(0).ok_or(TableError::Empty)?;
    let outside = ChainError::Outside { address: address.0, length: bytes.len() };
    mapping.read_slice(&mut bytes, address).map_err(|_| outside)?;
    Lend::read_from_bytes(&bytes).map_err(|_| outside.into())
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
    chunks: Vec<Chunk>,
}

impl Tables {
    /// Takes a chunk, unless it does not go with the others.
    pub fn adopt(&mut self, chunk: Chunk) -> Result<(), Refused> {
        match self.fits(&chunk) {
            Ok(()) => {
                self.chunks.push(chunk);
                Ok(())
            }
            Err(error) => Err(Refused { status: Some(chunk.status), error }),
        }
    }

    fn fits(&self, chunk: &Chunk) -> Result<(), TableError> {
        let (first, slots) = (chunk.first, chunk.flows.len() as u32);
        if self.chunks.is_empty() {
            return if chunk.lines.is_empty() { Err(TableError::NoLines) } else { Ok(()) };
        }
        if !chunk.lines.is_empty() {
            return Err(TableError::MoreLines(chunk.lines.len() as u32));
        }
        if self.chunks.iter().any(|other| first < other.end() && other.first < chunk.end()) {
            return Err(TableError::Overlap { first, slots });
        }
        Ok(())
    }

    /// The slot with this number, if it was lent.
    pub fn slot(&mut self, slot: u32) -> Option<Slot<'_>> {
        self.chunks.iter_mut().find(|chunk| slot < chunk.end() && slot >= chunk.first)?.slot(slot)
    }

    /// The first and one more than the last slot of each chunk.
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        self.chunks.iter().map(|chunk| (chunk.first, chunk.end())).collect()
    }

    /// The group lines.
    pub fn lines(&self) -> Option<&Array> {
        self.chunks.iter().map(|chunk| &chunk.lines).find(|lines| !lines.is_empty())
    }

    /// Takes out the chunk that begins at `slot`: the head of its chain, and
    /// the flows that were in it.
    pub fn release(&mut self, slot: u32) -> Result<(u16, Vec<FlowId>), ReleaseError> {
        let index = self.chunks.iter().position(|chunk| chunk.first == slot);
        let index = index.ok_or(ReleaseError::NoChunk(slot))?;
        if !self.chunks[index].lines.is_empty() && self.chunks.len() > 1 {
            return Err(ReleaseError::LinesInUse(slot));
        }
        let chunk = self.chunks.remove(index);
        let flows = chunk.flows.iter().flatten().map(|held| held.flow).collect();
        Ok((chunk.head, flows))
    }

    /// Forgets all chunks; the flows that were in them.
    pub fn clear(&mut self) -> Vec<FlowId> {
        let chunks = std::mem::take(&mut self.chunks);
        chunks.iter().flat_map(|chunk| &chunk.flows).flatten().map(|held| held.flow).collect()
    }

    /// Flows registered.
    pub fn flows(&self) -> usize {
        self.chunks.iter().flat_map(|chunk| &chunk.flows).flatten().count()
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
            flows: vec![None; slots as usize],
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
    fn the_lines_are_given_back_last() {
        let mut tables = Tables::default();
        tables.adopt(chunk(0, 4, 1)).expect("first");
        tables.adopt(chunk(4, 4, 0)).expect("second");
        assert_eq!(tables.release(1), Err(ReleaseError::NoChunk(1)));
        assert_eq!(tables.release(0), Err(ReleaseError::LinesInUse(0)));
        assert!(tables.release(4).is_ok() && tables.release(0).is_ok());
        assert!(tables.lines().is_none());
    }
}
