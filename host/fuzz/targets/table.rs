// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Descriptor chains of a driver, as extents of tables: whatever they hold, what
//! is taken for a table lies in guest memory.
#![no_main]
use ccc_vhost::fuzzing::{Extent, Extents, Mapping, words};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress};

const MEMORY: usize = 0x1_0000;
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const DATA: u64 = 0x3000;

#[derive(Arbitrary, Debug)]
struct Descriptor {
    address: Address,
    length: u32,
    flags: u8,
    next: u8,
}

/// Most addresses should be such that there is something to look at.
#[derive(Arbitrary, Debug)]
enum Address {
    Anywhere(u64),
    InData(u16),
    Aligned(u16),
}

#[derive(Arbitrary, Debug)]
struct Input {
    descriptors: Vec<Descriptor>,
    heads: Vec<u8>,
    headers: Vec<(u16, [u32; 4])>,
}

thread_local! {
    /// Mapped once; each input finds nothing but zeroes in it.
    static GUEST: Mapping =
        Mapping::from_ranges(&[(GuestAddress(0), MEMORY)]).expect("memory");
}

fuzz_target!(|input: Input| GUEST.with(|mapping| look(mapping, &input)));

fn look(mapping: &Mapping, input: &Input) {
    mapping.write_slice(&[0; MEMORY], GuestAddress(0)).expect("all of it");
    for (at, header) in input.headers.iter().take(16) {
        for (word, at) in header.iter().zip((DATA + u64::from(*at) / 8 * 8..).step_by(4)) {
            let _ = mapping.write_obj(*word, GuestAddress(at));
        }
    }
    for (number, descriptor) in (0..64).zip(&input.descriptors) {
        let address = match descriptor.address {
            Address::Anywhere(address) => address,
            Address::InData(offset) => DATA + u64::from(offset),
            Address::Aligned(offset) => DATA + u64::from(offset) / 64 * 64,
        };
        let at = DESCRIPTORS + 16 * number;
        let _ = mapping.write_obj(address, GuestAddress(at));
        let _ = mapping.write_obj(descriptor.length, GuestAddress(at + 8));
        let _ = mapping.write_obj(u16::from(descriptor.flags), GuestAddress(at + 12));
        let _ = mapping.write_obj(u16::from(descriptor.next), GuestAddress(at + 14));
    }
    let heads = &input.heads[..input.heads.len().min(64)];
    for (number, head) in (0..).zip(heads) {
        let _ = mapping.write_obj(u16::from(*head), GuestAddress(AVAILABLE + 4 + 2 * number));
    }
    let _ = mapping.write_obj(heads.len() as u16, GuestAddress(AVAILABLE + 2));

    let mut queue = Queue::new(64).expect("a size");
    queue.try_set_desc_table_address(GuestAddress(DESCRIPTORS)).expect("aligned");
    queue.try_set_avail_ring_address(GuestAddress(AVAILABLE)).expect("aligned");
    queue.try_set_used_ring_address(GuestAddress(USED)).expect("aligned");
    queue.set_ready(true);
    let mut extents = Extents::default();
    while let Some(chain) = queue.pop_descriptor_chain(mapping) {
        if let Ok(extent) = Extent::parse(mapping, chain) {
            let _ = extents.hold(extent);
        }
    }
    let mut end = 0;
    while let Some(slots) = extents.slots_from(end) {
        assert!(end <= slots.start && slots.start < slots.end);
        for slot in [slots.start, slots.end - 1, (slots.start + slots.end) / 2] {
            let at = extents.slot(slot).expect("held");
            words::<16>(mapping, at.report).expect("in memory");
            words::<2>(mapping, at.grant).expect("in memory");
        }
        end = slots.end;
    }
    assert!(extents.slot(end).is_none());
}
