// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Extents of the tables, which a driver offers and the device holds.
//!
//! A chain offers one extent and is held until the driver asks for it back, so
//! that after a crash of this process the front end offers it again and all
//! state can be read out of it.
use std::{mem::size_of, ops::Range};

use ccc_proto::{
    MAX_GRANT_LINES,
    wire::{self, EXTENTS_MAX, ExtentStatus, GrantLine, Report, SlotGrant},
};
use thiserror::Error;
use vm_memory::{Bytes, GuestAddress};
use zerocopy::FromBytes;

use crate::{
    device::budget::pay,
    virtio::chain::{Array, Chain, ChainError, Parts},
    virtio::mapping::Mapping,
};

/// Slots of all extents of a VM together.
pub const MAX_SLOTS: u32 = 65_536;

/// Why an extent is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ExtentError {
    #[error("extent: {0}")]
    Chain(#[from] ChainError),
    #[error("extent of 0 slots; expected 1 to {MAX_SLOTS}")]
    Empty,
    #[error("extent of {slots} slots from slot {first} on; the last one may be {MAX_SLOTS} - 1")]
    Slots { first: u32, slots: u32 },
    #[error("extent with {0} grant lines; there may be {MAX_GRANT_LINES}")]
    GrantLines(u32),
    #[error("first extent with 0 grant lines; expected 1 to {MAX_GRANT_LINES}")]
    NoGrantLines,
    #[error("extent with {0} grant lines; expected 0 in every extent but the first")]
    MoreGrantLines(u32),
    #[error("one extent more than the {EXTENTS_MAX} that may be held; release one before")]
    TooMany,
    #[error("extent of {slots} slots from slot {first} on overlaps another")]
    Overlap { first: u32, slots: u32 },
}

/// Why an extent is not released.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("release of an extent at slot {0}; none that is held begins there")]
pub struct NoExtent(pub u32);

/// A refused extent.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// Where to say so, if that much of the extent was right.
    pub status: Option<GuestAddress>,
    /// What is wrong.
    pub error: ExtentError,
}

/// What was released.
#[derive(Debug, Default)]
pub struct Released {
    /// Heads of the chains, the one offered first in front.
    pub heads: Vec<u16>,
    /// Their slots, in the same order.
    pub slots: Vec<Range<u32>>,
}

/// An extent.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Head of the held chain.
    head: u16,
    /// Where its status is.
    status: GuestAddress,
    slots: Range<u32>,
    /// Larger than that of every extent offered before it.
    order: u64,
    reports: Array,
    slot_grants: Array,
    grant_lines: Array,
}

/// Where one slot is.
#[derive(Clone, Copy, Debug)]
pub struct SlotAddresses {
    /// Where the guest reports.
    pub report: GuestAddress,
    /// Where the device answers.
    pub grant: GuestAddress,
}

impl Extent {
    /// Finds the parts of an extent in a chain.
    pub fn parse(mapping: &Mapping, chain: Chain<'_>) -> Result<Extent, Refused> {
        let head = chain.head_index();
        let early = |error| Refused { status: None, error: ExtentError::Chain(error) };
        let parts = Parts::of(chain).map_err(early)?;
        let (mut readable, mut writable) = (parts.readable(mapping), parts.writable(mapping));
        let status = writable.take(size_of::<ExtentStatus>(), 1).map_err(early)?.address(0);
        let status = status.ok_or(Refused { status: None, error: ExtentError::Empty })?;
        let mut rest = || -> Result<Extent, ExtentError> {
            let header = read_header(mapping, &readable.take(size_of::<wire::Extent>(), 1)?)?;
            let lines = header.grant_lines.get();
            let slots = check_counts(header.first_slot.get(), header.slots.get(), lines)?;
            let reports = readable.take(size_of::<Report>(), slots.len())?;
            let grant_lines = writable.take(size_of::<GrantLine>(), lines as usize)?;
            let slot_grants = writable.take(size_of::<SlotGrant>(), slots.len())?;
            readable.end()?;
            writable.end()?;
            Ok(Extent { head, status, slots, order: 0, reports, slot_grants, grant_lines })
        };
        rest().map_err(|error| Refused { status: Some(status), error })
    }

    /// One with these parts.
    #[cfg(test)]
    pub fn of_test(slots: Range<u32>, reports: Array, slot_grants: Array, lines: Array) -> Extent {
        let (head, status, order) = (0, GuestAddress(0), 0);
        Extent { head, status, slots, order, reports, slot_grants, grant_lines: lines }
    }

    fn slot(&self, slot: u32) -> Option<SlotAddresses> {
        let index = slot.checked_sub(self.slots.start)? as usize;
        Some(SlotAddresses {
            report: self.reports.address(index)?,
            grant: self.slot_grants.address(index)?,
        })
    }
}

fn read_header(mapping: &Mapping, array: &Array) -> Result<wire::Extent, ExtentError> {
    let mut bytes = [0u8; size_of::<wire::Extent>()];
    let address = array.address(0).ok_or(ExtentError::Empty)?;
    let outside = ChainError::Outside { address: address.0, length: bytes.len() };
    mapping.read_slice(&mut bytes, address).map_err(|_| outside)?;
    wire::Extent::read_from_bytes(&bytes).map_err(|_| outside.into())
}

fn check_counts(first: u32, slots: u32, lines: u32) -> Result<Range<u32>, ExtentError> {
    if slots == 0 {
        return Err(ExtentError::Empty);
    }
    let end = first.checked_add(slots).filter(|end| *end <= MAX_SLOTS);
    let end = end.ok_or(ExtentError::Slots { first, slots })?;
    if lines > MAX_GRANT_LINES {
        return Err(ExtentError::GrantLines(lines));
    }
    Ok(first..end)
}

/// An offered extent whose slots are being scanned before its driver may use it.
#[derive(Clone, Debug)]
struct Offer {
    slots: Range<u32>,
    /// The next slot to scan.
    next: u32,
    status: GuestAddress,
}

/// All extents of a VM: in the order of their slots, none of which is in two, and
/// the first that was offered has the grant lines.
#[derive(Debug, Default)]
pub struct Extents {
    extents: Vec<Extent>,
    /// The latest of them, until it is accepted.
    offer: Option<Offer>,
    /// Extents offered so far.
    offered: u64,
}

impl Extents {
    /// Holds an extent, whose slots are scanned next, unless it does not go with
    /// the others.  Where its status is.
    pub fn hold(&mut self, extent: Extent) -> Result<GuestAddress, Refused> {
        let status = extent.status;
        let place = self.extents.partition_point(|other| other.slots.start < extent.slots.start);
        let fits = self.check_fits(&extent, place);
        fits.map_err(|error| Refused { status: Some(status), error })?;
        self.offered += 1;
        let slots = extent.slots.clone();
        self.offer = Some(Offer { next: slots.start, slots, status });
        self.extents.insert(place, Extent { order: self.offered, ..extent });
        Ok(status)
    }

    fn check_fits(&self, extent: &Extent, place: usize) -> Result<(), ExtentError> {
        let (slots, lines) = (&extent.slots, extent.grant_lines.len());
        if self.extents.is_empty() {
            return if lines == 0 { Err(ExtentError::NoGrantLines) } else { Ok(()) };
        }
        if lines > 0 {
            return Err(ExtentError::MoreGrantLines(lines as u32));
        }
        if self.extents.len() >= EXTENTS_MAX as usize {
            return Err(ExtentError::TooMany);
        }
        let before = self.extents[..place].last();
        let behind = self.extents.get(place);
        if before.is_some_and(|other| slots.start < other.slots.end)
            || behind.is_some_and(|other| other.slots.start < slots.end)
        {
            let (first, slots) = (slots.start, slots.len() as u32);
            return Err(ExtentError::Overlap { first, slots });
        }
        Ok(())
    }

    /// Slots of the offered extent that are to be scanned now, at most `left` of
    /// them: what changes in them later is news.
    pub fn take_unscanned(&mut self, left: &mut u32) -> Range<u32> {
        let Some(offer) = &mut self.offer else { return 0..0 };
        let slots = pay(offer.next..offer.slots.end, left);
        offer.next = slots.end;
        slots
    }

    /// The slot was offered, and has not been scanned since.
    pub fn is_unscanned(&self, slot: u32) -> bool {
        self.offer.as_ref().is_some_and(|offer| (offer.next..offer.slots.end).contains(&slot))
    }

    /// An extent is being scanned.
    pub fn is_scanning(&self) -> bool {
        self.offer.is_some()
    }

    /// The extent that was offered, if all its slots were scanned: its slots, and
    /// where its driver is told.
    pub fn take_scanned(&mut self) -> Option<(Range<u32>, GuestAddress)> {
        let scanned = self.offer.take_if(|offer| offer.next >= offer.slots.end)?;
        Some((scanned.slots, scanned.status))
    }

    /// Index of the first extent that ends behind a slot.
    fn index(&self, slot: u32) -> usize {
        self.extents.partition_point(|extent| extent.slots.end <= slot)
    }

    /// Where the slot with this number is, if an extent has it.
    pub fn slot(&self, slot: u32) -> Option<SlotAddresses> {
        self.extents.get(self.index(slot))?.slot(slot)
    }

    /// No extent is held.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// The slots from `slot` on, up to the end of their extent.
    pub fn slots_from(&self, slot: u32) -> Option<Range<u32>> {
        let extent = self.extents.get(self.index(slot))?;
        Some(extent.slots.start.max(slot)..extent.slots.end)
    }

    /// The grant lines.
    pub fn grant_lines(&self) -> Option<&Array> {
        self.extents.iter().map(|extent| &extent.grant_lines).find(|lines| !lines.is_empty())
    }

    /// Releases the extent that begins at `slot`.  With the one that has the grant
    /// lines go all others, which cannot be used without.
    pub fn release(&mut self, slot: u32) -> Result<Released, NoExtent> {
        let index = self.index(slot);
        let found = self.extents.get(index).filter(|extent| extent.slots.start == slot);
        let all = !found.ok_or(NoExtent(slot))?.grant_lines.is_empty();
        let gone = if all { 0..self.extents.len() } else { index..index + 1 };
        let mut gone: Vec<Extent> = self.extents.drain(gone).collect();
        gone.sort_unstable_by_key(|extent| extent.order);
        if self.offer.as_ref().is_some_and(|offer| self.slot(offer.slots.start).is_none()) {
            self.offer = None;
        }
        let (heads, slots) = gone.into_iter().map(|extent| (extent.head, extent.slots)).unzip();
        Ok(Released { heads, slots })
    }

    /// Forgets all extents.
    pub fn clear(&mut self) {
        (self.extents, self.offer) = (Vec::new(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(first: u32, slots: u32, lines: usize) -> Extent {
        let lines = Array::of_test(64, lines, 0);
        Extent::of_test(first..first + slots, Array::default(), Array::default(), lines)
    }

    fn hold(extents: &mut Extents, extent: Extent) -> Result<(), ExtentError> {
        extents.hold(extent).map(drop).map_err(|refused| refused.error)
    }

    fn ranges(extents: &Extents) -> Vec<(u32, u32)> {
        extents.extents.iter().map(|extent| (extent.slots.start, extent.slots.end)).collect()
    }

    #[test]
    fn counts_out_of_range_are_refused() {
        assert_eq!(check_counts(0, 0, 1), Err(ExtentError::Empty));
        assert_eq!(check_counts(0, MAX_SLOTS, MAX_GRANT_LINES), Ok(0..MAX_SLOTS));
        let behind = ExtentError::Slots { first: 1, slots: MAX_SLOTS };
        assert_eq!(check_counts(1, MAX_SLOTS, 0), Err(behind));
        let overflow = ExtentError::Slots { first: u32::MAX, slots: 2 };
        assert_eq!(check_counts(u32::MAX, 2, 0), Err(overflow));
        let most = MAX_GRANT_LINES;
        assert_eq!(check_counts(0, 1, most + 1), Err(ExtentError::GrantLines(most + 1)));
    }

    #[test]
    fn extents_have_to_go_together() {
        let mut extents = Extents::default();
        assert_eq!(hold(&mut extents, extent(0, 4, 0)), Err(ExtentError::NoGrantLines));
        assert_eq!(hold(&mut extents, extent(0, 4, 2)), Ok(()));
        assert_eq!(hold(&mut extents, extent(4, 4, 2)), Err(ExtentError::MoreGrantLines(2)));
        let overlap = ExtentError::Overlap { first: 3, slots: 4 };
        assert_eq!(hold(&mut extents, extent(3, 4, 0)), Err(overlap));
        assert_eq!(hold(&mut extents, extent(4, 4, 0)), Ok(()));
        assert_eq!(ranges(&extents), [(0, 4), (4, 8)]);
    }

    #[test]
    fn t6_slots_are_found_whatever_the_order_of_their_extents() {
        let mut extents = Extents::default();
        for (number, first) in [40, 8, 24, 0, 16].into_iter().enumerate() {
            hold(&mut extents, extent(first, 4, usize::from(number == 0))).expect("fits");
        }
        for first in [0, 1, 3, 7, 11, 14, 19, 23, 38] {
            let overlap = ExtentError::Overlap { first, slots: 4 };
            assert_eq!(hold(&mut extents, extent(first, 4, 0)), Err(overlap));
        }
        assert_eq!(ranges(&extents), [(0, 4), (8, 12), (16, 20), (24, 28), (40, 44)]);
        assert_eq!(extents.slots_from(2), Some(2..4));
        assert_eq!(extents.slots_from(4), Some(8..12));
        assert_eq!(extents.slots_from(44), None);
    }

    #[test]
    fn all_extents_go_with_the_grant_lines() {
        let mut extents = Extents::default();
        for (head, lines) in [(5, 1), (3, 0), (9, 0)] {
            let first = ranges(&extents).last().map_or(0, |(_, end)| *end);
            hold(&mut extents, Extent { head, ..extent(first, 4, lines) }).expect("fits");
        }
        assert_eq!(extents.release(1).map(drop), Err(NoExtent(1)));
        assert_eq!(extents.release(4).map(|gone| gone.heads), Ok(vec![3]));
        assert_eq!(extents.release(0).map(|gone| gone.heads), Ok(vec![5, 9]), "oldest first");
        assert!(extents.grant_lines().is_none());
    }

    #[test]
    fn an_offer_is_scanned_in_slices_and_gone_when_it_is_released() {
        let mut extents = Extents::default();
        hold(&mut extents, extent(4, 8, 1)).expect("fits");
        assert_eq!(extents.take_unscanned(&mut 3), 4..7);
        assert!(!extents.is_unscanned(6) && extents.is_unscanned(7) && extents.is_scanning());
        assert!(extents.take_scanned().is_none());
        let mut left = 9;
        assert_eq!((extents.take_unscanned(&mut left), left), (7..12, 4));
        assert_eq!(extents.take_scanned(), Some((4..12, GuestAddress(0))));
        hold(&mut extents, extent(12, 4, 0)).expect("fits");
        extents.release(4).expect("there");
        assert!(!extents.is_scanning() && extents.is_empty());
    }
}
