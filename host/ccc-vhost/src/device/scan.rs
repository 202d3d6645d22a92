// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Looks at many slots, a slice in each turn: those of a chunk that is lent, and
//! all of them when messages were lost.
//!
//! A slice sees slots as they are when it comes to them.  One that changes behind
//! it has a message of its own, or a request to look at all again, which then is
//! done once more from the beginning.
use std::ops::Range;

use vm_memory::GuestAddress;

use crate::{coupling::Turn, device::Device, device::flows::Look, virtio::memory::Mapping};

/// A chunk whose slots are being looked at before its driver may use it.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// All its slots.
    pub chunk: Range<u32>,
    /// The next one to look at.
    pub next: u32,
    /// Where the driver is told.
    pub status: GuestAddress,
}

/// A look at every slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rescan {
    next: u32,
    /// It was asked for again, when slots had been passed already.
    again: bool,
}

impl Device {
    /// Every slot is to be looked at.  Asking for it again before it has begun
    /// asks for nothing more.
    pub(crate) fn ask_for_rescan(&mut self) {
        match &mut self.rescan {
            Some(rescan) => rescan.again |= rescan.next > 0,
            None => self.begin_rescan(),
        }
    }

    fn begin_rescan(&mut self) {
        self.counters.rescans += 1;
        self.rescan = Some(Rescan::default());
    }

    /// Looks at slots of the chunk that is being adopted, at most `left` of them;
    /// the adoption, if that was the last of them.
    pub(crate) fn go_on_adopting(
        &mut self,
        mapping: &Mapping,
        left: &mut u32,
        turn: &mut Turn<'_>,
    ) -> Option<Adoption> {
        let adoption = self.adopting.as_mut()?;
        let slots = slice(adoption.next..adoption.chunk.end, left);
        // Those looked at are adopted: what comes later is news.
        adoption.next = slots.start;
        for slot in slots {
            self.look_at(mapping, slot, Look::Adoption, turn);
            if let Some(adoption) = &mut self.adopting {
                adoption.next = slot + 1;
            }
        }
        self.adopting.take_if(|adoption| adoption.next >= adoption.chunk.end)
    }

    /// Looks at slots if that was asked for, at most `left` of them; whether
    /// nothing is left of it.
    pub(crate) fn go_on_rescanning(
        &mut self,
        mapping: &Mapping,
        left: &mut u32,
        turn: &mut Turn<'_>,
    ) -> bool {
        while let Some(rescan) = self.rescan {
            // Slots not adopted yet are looked at for that, which says more.
            if self.adopting.is_some() || *left == 0 {
                return false;
            }
            let Some((first, end)) = self.tables.lent_from(rescan.next) else {
                self.rescan = None;
                if rescan.again {
                    self.begin_rescan();
                }
                continue;
            };
            let slots = slice(first..end, left);
            self.rescan = Some(Rescan { next: slots.end, ..rescan });
            for slot in slots {
                self.look_at(mapping, slot, Look::Rescan, turn);
            }
        }
        true
    }

    /// The slot was lent, and has not been looked at since.
    pub(crate) fn is_new(&self, slot: u32) -> bool {
        self.adopting.as_ref().is_some_and(|a| (a.next..a.chunk.end).contains(&slot))
    }

    /// What was lent is no longer.
    pub(crate) fn stop_adopting_gone(&mut self) {
        self.adopting.take_if(|adoption| self.tables.slot(adoption.chunk.start).is_none());
    }

    fn look_at(&mut self, mapping: &Mapping, slot: u32, why: Look, turn: &mut Turn<'_>) {
        if let Err(error) = self.look(mapping, slot, why, turn) {
            self.counters.refuse(&self.name, turn.now, error.kind(), &error);
        }
    }
}

/// The first of these slots, at most `left` of them, which are paid for.
fn slice(slots: Range<u32>, left: &mut u32) -> Range<u32> {
    let count = (slots.end - slots.start).min(*left);
    *left -= count;
    slots.start..slots.start + count
}
