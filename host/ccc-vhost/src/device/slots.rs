// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is known of each slot of a VM, by its number.
use std::ops::Range;

use crate::device::slot::SlotState;

/// Slots of a page: many, so that a full one takes little beside them; few, so that one with
/// a single flow does not take much more.
const PAGE_SLOTS: usize = 8;

type Page = [SlotState; PAGE_SLOTS];

/// Slots that are not free, in pages, each of which is there while it has a flow.  So there is
/// as much memory as there are flows, whichever slots a guest chooses: at the most a page for
/// each, and a pointer for each page up to the last one.
#[derive(Debug, Default)]
pub struct Slots {
    pages: Vec<Option<Box<Page>>>,
    used: usize,
    /// Flows that have left since the end of the list was looked for.
    left: usize,
}

/// The number of a slot's page, and its index there.
fn page_of(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    (slot / PAGE_SLOTS, slot % PAGE_SLOTS)
}

impl Slots {
    /// Slots that are not free.
    pub fn len(&self) -> usize {
        self.used
    }

    /// What is known of a slot.
    pub fn get(&self, slot: u32) -> SlotState {
        let (number, index) = page_of(slot);
        let page = self.pages.get(number).and_then(Option::as_ref);
        page.map_or(SlotState::Free, |page| page[index])
    }

    /// That is known of a slot from now on.
    pub fn set(&mut self, slot: u32, state: SlotState) {
        let (number, index) = page_of(slot);
        if number >= self.pages.len() {
            self.pages.resize_with(number + 1, || None);
        }
        let page = self.pages[number].get_or_insert_default();
        self.used -= usize::from(!page[index].is_free());
        self.used += usize::from(!state.is_free());
        page[index] = state;
        if state.is_free() {
            self.give_back(number);
        }
    }

    /// Frees slots that are not free; what was known of them, in their order.
    pub fn take(&mut self, slots: Range<u32>) -> Vec<SlotState> {
        let taken: Vec<(u32, SlotState)> =
            self.range(slots).map(|(slot, state)| (slot, *state)).collect();
        for (slot, _) in &taken {
            self.set(*slot, SlotState::Free);
        }
        taken.into_iter().map(|(_, state)| state).collect()
    }

    /// Gives a page back if nothing is in it.  What is behind the last page is looked for when
    /// as many flows have left as the list is long: then it costs each of them no more where a
    /// guest uses the last slots than where it uses the first.
    fn give_back(&mut self, number: usize) {
        let page = &mut self.pages[number];
        page.take_if(|page| page.iter().all(SlotState::is_free));
        self.left += 1;
        if self.left >= self.pages.len() {
            self.left = 0;
            self.shorten();
        }
    }

    /// Gives back what is behind the last page.
    fn shorten(&mut self) {
        let end = self.pages.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.pages.truncate(end);
        if end < self.pages.capacity() / 4 {
            self.pages.shrink_to(2 * end);
        }
    }

    /// Those of these slots that are not free, in their order.
    pub fn range(&self, slots: Range<u32>) -> impl Iterator<Item = (u32, &SlotState)> {
        let (first, _) = page_of(slots.start);
        let pages = self.pages.iter().enumerate().skip(first);
        let there = pages.filter_map(|(number, page)| Some((number, page.as_ref()?)));
        let all = there
            .flat_map(|(number, page)| (((number * PAGE_SLOTS) as u32)..).zip(page.iter()))
            .skip_while(move |(slot, _)| *slot < slots.start)
            .take_while(move |(slot, _)| *slot < slots.end);
        all.filter(|(_, state)| !state.is_free())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ccc_proto::wire::Report;

    use super::*;
    use crate::device::{extents::MAX_SLOTS, slot::Alone};

    fn flow(generation: u32) -> SlotState {
        let sound = Report {
            state: 1,
            priority: 256.into(),
            mss_bytes: 1448.into(),
            generation: generation.into(),
            family: 4,
            ..Report::FREE
        };
        SlotState::Alone(Alone::new(&sound.check().expect("sound"), false))
    }

    fn generations(slots: &Slots, range: Range<u32>) -> Vec<(u32, Option<u32>)> {
        slots.range(range).map(|(slot, state)| (slot, state.generation())).collect()
    }

    #[test]
    fn slots_are_known_by_their_numbers_as_in_a_map() {
        let (mut slots, mut map) = (Slots::default(), BTreeMap::new());
        let mut random = 1u32;
        for step in 0..4_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let slot = (random >> 16) % 200 * if step % 2 == 0 { 1 } else { 327 };
            if step % 3 == 0 {
                slots.set(slot, SlotState::Free);
                map.remove(&slot);
            } else {
                slots.set(slot, flow(step + 1));
                map.insert(slot, Some(step + 1));
            }
            let range = slot.saturating_sub(300)..slot + step % 600;
            let expected: Vec<_> = map.range(range.clone()).map(|(s, g)| (*s, *g)).collect();
            assert_eq!(generations(&slots, range), expected);
            assert_eq!(slots.get(slot).generation(), map.get(&slot).copied().flatten());
            assert_eq!(slots.len(), map.len());
        }
    }

    #[test]
    fn a_range_is_taken_in_order_and_what_lies_around_it_stays() {
        let mut slots = Slots::default();
        for slot in [70, 3, 15, 16, 17, 40, 69] {
            slots.set(slot, flow(slot));
        }
        let taken = slots.take(15..70).into_iter().filter_map(|state| state.generation());
        assert_eq!(taken.collect::<Vec<_>>(), [15, 16, 17, 40, 69]);
        assert_eq!(generations(&slots, 0..u32::MAX), [(3, Some(3)), (70, Some(70))]);
        assert_eq!(slots.len(), 2);
    }

    #[test]
    fn memory_is_bounded_by_flows_and_given_back_as_they_leave() {
        let mut slots = Slots::default();
        let pages = |slots: &Slots| slots.pages.iter().flatten().count();
        for slot in (0..MAX_SLOTS).step_by(1_000) {
            slots.set(slot, flow(1));
        }
        assert_eq!(pages(&slots), slots.len(), "at most a page for each flow");
        slots.set(MAX_SLOTS - 1, flow(1));
        assert!(slots.pages.capacity() < 2 * MAX_SLOTS as usize / PAGE_SLOTS);
        for slot in (0..MAX_SLOTS).rev().filter(|slot| *slot != 1_000) {
            slots.set(slot, SlotState::Free);
        }
        assert_eq!((slots.len(), pages(&slots)), (1, 1));
        assert!(slots.pages.capacity() < 4 * (1_000 / PAGE_SLOTS + 1));
        slots.set(1_000, SlotState::Free);
        assert_eq!(pages(&slots), 0);
    }

    #[test]
    fn a_flow_that_comes_and_goes_in_the_last_slot_has_the_list_made_once_in_its_length() {
        let mut slots = Slots::default();
        let (last, length) = (MAX_SLOTS - 1, MAX_SLOTS as usize / PAGE_SLOTS);
        slots.set(last, flow(1));
        let list = (slots.pages.as_ptr(), slots.pages.len());
        for _ in 1..length {
            slots.set(last, SlotState::Free);
            slots.set(last, flow(1));
            assert_eq!((slots.pages.as_ptr(), slots.pages.len()), list);
        }
        slots.set(last, SlotState::Free);
        assert_eq!(slots.pages.capacity(), 0);
    }
}
