// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A driver of the device, as plain as can be.
use std::{
    path::Path,
    sync::atomic::{Ordering, fence},
    time::{Duration, Instant},
};

use ccc_core::IDLE_AFTER_US;
use ccc_proto::wire::{self, ExtentStatus, GrantLine, Report, SlotGrant};
use vm_memory::{Bytes, GuestAddress};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    daemon::{is_within, until, until_tried},
    frontend::{BASE, FrontEnd, Guest, Mode, QUEUE, ring},
};

/// Address, length and flags of a descriptor.
pub type Piece = (u64, u32, u16);

pub const WRITE: u16 = 2;
const NEXT: u16 = 1;
/// Free guest memory begins here.
const HEAP: u64 = BASE + 0x2_0000;

/// An extent in guest memory.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub first: u32,
    pub slots: u32,
    pub head: u64,
    pub reports: u64,
    pub lines: u64,
    pub grants: u64,
    /// First descriptor of its chain.
    pub chain: u16,
}

pub struct Driver {
    pub guest: Guest,
    pub front: FrontEnd,
    heap: u64,
    avail: [u16; 3],
    next: [u16; 3],
    /// Extent, slot and last report of each flow that the device was told of.
    told: Vec<(Extent, u32, Report)>,
}

/// A report as a guest writes it that sends.
pub fn report(generation: u32) -> Report {
    Report {
        state: wire::STATE_SS,
        flags: wire::R_ACTIVE | wire::R_CWND_LIMITED,
        priority: wire::PRIORITY_ONE.into(),
        cwnd_bytes: 14480.into(),
        ssthresh_bytes: wire::SSTHRESH_UNSET.into(),
        beta: 32768.into(),
        srtt_us: 100_000.into(),
        min_rtt_us: 100_000.into(),
        inflight_bytes: 14480.into(),
        mss_bytes: 1448.into(),
        generation: generation.into(),
        family: 4,
        ..Report::FREE
    }
}

/// What a flow tells counts for so long.
const COUNTS: Duration = Duration::from_micros(IDLE_AFTER_US);

/// Waits until something is so, at most while flows count that told something then.
pub fn while_they_count(since: Instant, what: &str, so: impl FnMut() -> bool) -> bool {
    is_within(since, COUNTS, what, so)
}

/// Tries something until it is so while all flows count; it says since when they do.
pub fn while_flows_count(what: &str, attempt: impl FnMut() -> (Instant, bool)) {
    until_tried(what, COUNTS, attempt);
}

impl Driver {
    pub fn connect(socket: &Path, mode: Mode) -> Driver {
        Driver::connect_with(socket, mode, super::frontend::guest())
    }

    /// One in this memory.
    pub fn connect_with(socket: &Path, mode: Mode, guest: Guest) -> Driver {
        let front = FrontEnd::connect(socket, &guest, mode, [0; 3]);
        Driver { guest, front, heap: HEAP, avail: [0; 3], next: [0; 3], told: Vec::new() }
    }

    /// The front end connects again, each queue at its used index, and what
    /// the guest has in memory stays.
    pub fn reconnect(self, socket: &Path) -> Driver {
        let mode = self.front.mode;
        let Driver { guest, front, heap, avail, next, told } = self;
        front.close();
        let bases = std::array::from_fn(|queue| used_index(&guest, queue));
        let front = FrontEnd::connect(socket, &guest, mode, bases);
        Driver { guest, front, heap, avail, next, told }
    }

    pub fn alloc(&mut self, bytes: usize) -> u64 {
        let place = self.heap;
        self.heap += (bytes as u64).next_multiple_of(64);
        place
    }

    pub fn write<T: IntoBytes + Immutable + ?Sized>(&self, address: u64, value: &T) {
        self.guest.write_slice(value.as_bytes(), GuestAddress(address)).unwrap();
    }

    pub fn read<T: FromBytes + IntoBytes + KnownLayout>(&self, address: u64) -> T {
        let mut value = T::new_zeroed();
        self.guest.read_slice(value.as_mut_bytes(), GuestAddress(address)).unwrap();
        value
    }

    /// Makes a chain of descriptors available: address, length, flags.  Its
    /// first descriptor.
    pub fn offer(&mut self, queue: usize, pieces: &[Piece]) -> u16 {
        let head = self.next[queue];
        for (number, (address, length, flags)) in pieces.iter().enumerate() {
            let index = self.next[queue];
            self.next[queue] = (index + 1) % QUEUE;
            let more = if number + 1 < pieces.len() { NEXT } else { 0 };
            let at = GuestAddress(ring(queue) + 16 * u64::from(index));
            let mut bytes = Vec::new();
            bytes.extend(address.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.extend((flags | more).to_le_bytes());
            bytes.extend(self.next[queue].to_le_bytes());
            self.guest.write_slice(&bytes, at).unwrap();
        }
        self.publish(queue, head);
        head
    }

    /// Puts a head into the available ring.
    pub fn publish(&mut self, queue: usize, head: u16) {
        let avail = ring(queue) + 0x1000;
        let place = avail + 4 + 2 * u64::from(self.avail[queue] % QUEUE);
        self.guest.write_obj(head, GuestAddress(place)).unwrap();
        self.avail[queue] = self.avail[queue].wrapping_add(1);
        self.guest.write_obj(self.avail[queue], GuestAddress(avail + 2)).unwrap();
    }

    /// Makes what the device has used of a full ring available again, as it lies
    /// there; how many chains that are.
    pub fn refill(&mut self, queue: usize) -> u16 {
        let full = self.used(queue).wrapping_add(QUEUE);
        let taken = full.wrapping_sub(self.avail[queue]);
        self.avail[queue] = full;
        self.guest.write_obj(full, GuestAddress(ring(queue) + 0x1002)).unwrap();
        taken
    }

    pub fn used(&self, queue: usize) -> u16 {
        used_index(&self.guest, queue)
    }

    /// Wants to be called when the device uses the next chain.
    pub fn want_call(&self, queue: usize) {
        let event = ring(queue) + 0x1004 + 2 * u64::from(QUEUE);
        self.guest.write_obj(self.used(queue), GuestAddress(event)).unwrap();
    }

    /// The available index at which the device wants to be kicked next.
    pub fn kick_wanted_at(&self, queue: usize) -> u16 {
        // The device looks at the ring once more after it has written this, so the ring has to
        // be written before this is read (2.7.13.4.1).
        fence(Ordering::SeqCst);
        let event = ring(queue) + 0x2004 + 8 * u64::from(QUEUE);
        self.guest.read_obj(GuestAddress(event)).unwrap()
    }

    /// First descriptor of the chain in an entry of the used ring.
    pub fn used_head(&self, queue: usize, entry: u64) -> u16 {
        self.guest.read_obj(GuestAddress(ring(queue) + 0x2004 + 8 * entry)).unwrap()
    }

    pub fn offered(&self, queue: usize) -> u16 {
        self.avail[queue]
    }

    /// Lays out an extent in memory.
    pub fn extent(&mut self, first: u32, slots: u32, lines: u32) -> Extent {
        let reports = self.alloc(16 + 128 * slots as usize + 64) + 48;
        let head = self.alloc(64 + 64 * lines as usize + 16 * slots as usize);
        let header = wire::Extent {
            first_slot: first.into(),
            slots: slots.into(),
            grant_lines: lines.into(),
            reserved: 0.into(),
        };
        self.write(reports, &header);
        let lines_at = head + 64;
        let grants = lines_at + 64 * u64::from(lines);
        Extent { first, slots, head, reports: reports + 16, lines: lines_at, grants, chain: 0 }
    }

    /// The descriptors of an extent.
    pub fn pieces(extent: &Extent) -> Vec<Piece> {
        let written = extent.grants - extent.head + 16 * u64::from(extent.slots);
        vec![
            (extent.reports - 16, 16 + 128 * extent.slots, 0),
            (extent.head, written as u32, WRITE),
        ]
    }

    /// Offers an extent, and waits until it is accepted.
    pub fn offer_extent(&mut self, first: u32, slots: u32, lines: u32) -> Extent {
        let mut extent = self.extent(first, slots, lines);
        extent.chain = self.offer_and_wait(&extent);
        extent
    }

    /// The same with one that is laid out; first descriptor of its chain.
    pub fn offer_and_wait(&mut self, extent: &Extent) -> u16 {
        let head = self.offer(wire::VQ_TABLE, &Driver::pieces(extent));
        self.front.kick(wire::VQ_TABLE);
        self.await_status(extent, wire::EXTENT_ACCEPTED);
        head
    }

    pub fn status(&self, extent: &Extent) -> (u32, u32) {
        let head: ExtentStatus = self.read(extent.head);
        (head.status.get(), head.instance.get())
    }

    pub fn await_status(&self, extent: &Extent, status: u32) {
        until("status of the extent", || self.status(extent).0 == status);
    }

    /// Writes a slot as a driver does.
    pub fn write_slot(&self, extent: &Extent, slot: u32, report: &Report) {
        let at = extent.reports + 128 * u64::from(slot - extent.first);
        let seq = self.read::<Report>(at).seq.get();
        self.write(at, &Report { seq: (seq.wrapping_add(2) & !1).into(), ..*report });
    }

    pub fn ring_bell(&mut self, op: u16, slot: u32, generation: u32) {
        if op == wire::OP_LEAVE {
            self.told.retain(|(_, other, _)| *other != slot);
        }
        self.offer_bell(op, slot, generation);
        self.front.kick(wire::VQ_DOORBELL);
        self.settle();
    }

    pub fn offer_bell(&mut self, op: u16, slot: u32, generation: u32) {
        let at = self.alloc(16);
        self.write(at, &[u32::from(op), slot, generation, 0]);
        self.offer(wire::VQ_DOORBELL, &[(at, 16, 0)]);
    }

    /// The same without new memory: the message lies where the one did that had
    /// this descriptor before.
    pub fn reuse_bell(&mut self, op: u16, slot: u32, generation: u32) {
        let queue = wire::VQ_DOORBELL;
        let at = ring(queue) + 0x3000 + 16 * u64::from(self.next[queue]);
        self.write(at, &[u32::from(op), slot, generation, 0]);
        self.offer(queue, &[(at, 16, 0)]);
    }

    /// Waits until all messages were read.
    pub fn settle(&self) {
        let queue = wire::VQ_DOORBELL;
        until("messages read", || self.used(queue) == self.offered(queue));
    }

    /// Writes a slot and tells the device.
    pub fn tell(&mut self, extent: &Extent, op: u16, slot: u32, report: &Report) {
        self.write_slot(extent, slot, report);
        self.told.retain(|(_, other, _)| *other != slot);
        self.ring_bell(op, slot, report.generation.get());
        if op != wire::OP_LEAVE {
            self.told.push((*extent, slot, *report));
        }
    }

    /// Tells the device of all its flows again, which count from now on.  One that says
    /// nothing for a second no longer does: on a busy machine that may be between any two
    /// lines of a test.
    pub fn alive(&mut self) -> Instant {
        let now = Instant::now();
        for (extent, slot, report) in self.told.clone() {
            self.write_slot(&extent, slot, &report);
            self.reuse_bell(wire::OP_UPDATE, slot, report.generation.get());
            self.front.kick(wire::VQ_DOORBELL);
            self.settle();
        }
        now
    }

    pub fn register(&mut self, extent: &Extent, slot: u32, generation: u32) {
        self.tell(extent, wire::OP_REGISTER, slot, &report(generation));
    }

    pub fn grant(&self, extent: &Extent, slot: u32) -> SlotGrant {
        self.read(extent.grants + 16 * u64::from(slot - extent.first))
    }

    pub fn accepted(&self, extent: &Extent, slot: u32, generation: u32) -> bool {
        let grant = self.grant(extent, slot);
        grant.generation.get() == generation && grant.flags.get() & wire::G_ACCEPTED != 0
    }

    pub fn line(&self, extent: &Extent, index: u64) -> GrantLine {
        self.read(extent.lines + 64 * index)
    }

    /// Window of a flow of priority 1 and 100 ms through the first line.
    pub fn window(&self, extent: &Extent) -> u64 {
        let line = self.line(extent, 0);
        let by_rate = line.flags.get() & wire::L_RATE != 0;
        let units = if by_rate { 256 * 100_000 } else { 256 };
        ((u128::from(line.level.get()) * units) >> wire::LEVEL_SHIFT) as u64
    }

    /// The group a slot's flow is coupled in, by the number in its line.
    pub fn group_of(&self, extent: &Extent, slot: u32) -> Option<u32> {
        let grant = self.grant(extent, slot);
        let accepted = grant.flags.get() & wire::G_ACCEPTED != 0;
        let line = self.line(extent, u64::from(grant.line.get()));
        accepted.then_some(line.group.get())
    }

    pub fn coupled(&self, extent: &Extent) -> bool {
        self.line(extent, 0).flags.get() & wire::L_COUPLED != 0
    }
}

fn used_index(guest: &Guest, queue: usize) -> u16 {
    guest.read_obj(GuestAddress(ring(queue) + 0x2002)).unwrap()
}
