// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a guest puts into its queues.
use std::time::{Duration, Instant};

use ccc_proto::wire;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EFD_SEMAPHORE, EventFd};

use super::{Attempt, FLOWS, SLOTS, Target};
use crate::{
    processors,
    support::{
        driver::{Driver, Extent, Piece},
        frontend::{Mode, QUEUE},
    },
};

const INDIRECT: u16 = 4;
/// Chunks of one slot, of which a device has to look up many.
const EXTENTS: u32 = 20_000;
/// What the daemon is to do while it is attacked takes no longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits as short as possible.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

fn await_read(driver: &Driver) {
    let queue = wire::VQ_DOORBELL;
    until("messages read", || driver.used(queue) == driver.offered(queue));
}

/// Counts messages.
pub fn calls_not_acknowledged(target: &Target, attempt: &Attempt) {
    let mut driver = target.driver(Mode::InBand);
    let kick = EventFd::new(0).unwrap();
    driver.front.set_kick(wire::VQ_DOORBELL, &kick);
    while attempt.goes_on() {
        driver.want_call(wire::VQ_DOORBELL);
        driver.reuse_bell(wire::OP_UPDATE, 0, 1);
        kick.write(1).unwrap();
        await_read(&driver);
        attempt.did(1);
    }
}

/// A chain whose indirect table has a descriptor that is followed by itself.
fn loop_in_memory(driver: &mut Driver) -> Piece {
    let entries = u32::from(u16::MAX);
    let table = driver.alloc(16 * entries as usize);
    driver.write(table, &[table as u32, (table >> 32) as u32, 16, 1]);
    (table, 16 * entries, INDIRECT)
}

/// Counts chains.
pub fn tables_that_loop(target: &Target, attempt: &Attempt) {
    let mut driver = target.large();
    let chain = loop_in_memory(&mut driver);
    while attempt.goes_on() {
        for _ in 0..QUEUE {
            driver.offer(wire::VQ_DOORBELL, &[chain]);
        }
        driver.front.kick(wire::VQ_DOORBELL);
        await_read(&driver);
        attempt.did(QUEUE.into());
    }
}

/// Counts messages that ask for all slots to be looked at.
pub fn rescans(target: &Target, attempt: &Attempt) {
    let (mut driver, _) = target.with_flows(SLOTS);
    while attempt.goes_on() {
        driver.reuse_bell(wire::OP_RESCAN, 0, 0);
        driver.front.kick(wire::VQ_DOORBELL);
        await_read(&driver);
        attempt.did(1);
    }
}

/// Counts times that all slots there are were offered, with more flows than are taken.
pub fn released_and_offered(target: &Target, attempt: &Attempt) {
    let (mut driver, extent) = target.with_flows(SLOTS);
    release_and_offer(&mut driver, &extent, attempt);
}

/// Counts times that as many flows came as a VM may have.
pub fn flows_come_and_go(target: &Target, attempt: &Attempt) {
    let (mut driver, extent) = target.with_flows(FLOWS);
    release_and_offer(&mut driver, &extent, attempt);
    assert!(driver.accepted(&extent, FLOWS - 1, 1), "the VM has not all flows that it may have");
}

fn release_and_offer(driver: &mut Driver, extent: &Extent, attempt: &Attempt) {
    while attempt.goes_on() {
        let used = driver.used(wire::VQ_TABLE);
        driver.reuse_bell(wire::OP_RELEASE, 0, 0);
        driver.front.kick(wire::VQ_DOORBELL);
        until("extent given back", || driver.used(wire::VQ_TABLE) != used);
        driver.write(extent.head, &[0u8; 64]);
        driver.offer(wire::VQ_TABLE, &Driver::pieces(extent));
        driver.front.kick(wire::VQ_TABLE);
        until("extent accepted", || driver.status(extent).0 == wire::EXTENT_ACCEPTED);
        attempt.did(1);
    }
}

/// Counts chains, each as long as a chain can be.
pub fn table_queue_refilled(target: &Target, attempt: &Attempt) {
    let mut driver = target.large();
    let chain = loop_in_memory(&mut driver);
    for _ in 0..QUEUE {
        driver.offer(wire::VQ_TABLE, &[chain]);
    }
    keep_full(&mut driver, wire::VQ_TABLE, attempt);
}

/// Counts messages.
pub fn messages_without_end(target: &Target, attempt: &Attempt) {
    let mut driver = target.driver(Mode::Eventfd);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    // The ring goes on where it began.
    while driver.offered(wire::VQ_DOORBELL) % QUEUE != 0 {
        driver.reuse_bell(wire::OP_UPDATE, 0, 1);
    }
    driver.front.kick(wire::VQ_DOORBELL);
    await_read(&driver);
    for _ in 0..QUEUE {
        driver.reuse_bell(wire::OP_UPDATE, 0, 1);
    }
    keep_full(&mut driver, wire::VQ_DOORBELL, attempt);
}

/// Makes the chains of a full ring available again as soon as they are used, which
/// takes less time than to use them.
fn keep_full(driver: &mut Driver, queue: usize, attempt: &Attempt) {
    processors::attack_first();
    driver.front.kick(queue);
    while attempt.goes_on() {
        let taken = driver.refill(queue);
        if taken > 0 {
            driver.front.kick(queue);
            attempt.did(taken.into());
        }
    }
}

/// Counts messages, and before them extents.
pub fn extents_of_one_slot(target: &Target, attempt: &Attempt) {
    let mut driver = target.large();
    driver.offer_extent(0, 1, 1);
    // The same memory again and again: the device holds each extent in it.
    let some: Vec<Extent> = (0..QUEUE / 4).map(|_| driver.extent(0, 1, 0)).collect();
    let mut first = 1;
    while attempt.goes_on() && first < EXTENTS && offer_some(&mut driver, &some, &mut first) {}
    assert!(first > 1, "no extent was taken");
    while attempt.goes_on() {
        driver.reuse_bell(wire::OP_UPDATE, first - 1, 1);
        driver.reuse_bell(wire::OP_RESCAN, 0, 0);
        driver.front.kick(wire::VQ_DOORBELL);
        await_read(&driver);
        attempt.did(2);
    }
}

/// Lends these extents as the slots from `first` on; whether all were taken.
fn offer_some(driver: &mut Driver, extents: &[Extent], first: &mut u32) -> bool {
    for (extent, slot) in extents.iter().zip(*first..) {
        let header = wire::Extent {
            first_slot: slot.into(),
            slots: 1.into(),
            grant_lines: 0.into(),
            reserved: 0.into(),
        };
        driver.write(extent.reports - 16, &header);
        driver.write(extent.head, &[0u8; 64]);
        driver.offer(wire::VQ_TABLE, &Driver::pieces(extent));
    }
    driver.front.kick(wire::VQ_TABLE);
    let looked_at = |extent| driver.status(extent).0 != wire::EXTENT_PENDING;
    until("extents looked at", || extents.iter().all(looked_at));
    *first += extents.len() as u32;
    extents.iter().all(|extent| driver.status(extent).0 == wire::EXTENT_ACCEPTED)
}

/// Counts kicks taken of those that never run dry.
pub fn kicks_without_end(target: &Target, attempt: &Attempt) {
    let driver = &mut target.driver(Mode::Eventfd);
    let kicks = [wire::VQ_TABLE, wire::VQ_DOORBELL, wire::VQ_EVENT].map(|queue| {
        let kick = EventFd::new(EFD_SEMAPHORE | EFD_NONBLOCK).unwrap();
        // As many as it holds: there is room for another when one was taken.
        kick.write(u64::MAX - 1).unwrap();
        driver.front.set_kick(queue, &kick);
        kick
    });
    while attempt.goes_on() {
        for kick in &kicks {
            attempt.did(kick.write(1).is_ok().into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Counts refusals.
pub fn refused_messages(target: &Target, attempt: &Attempt) {
    let mut driver = target.driver(Mode::Eventfd);
    while attempt.goes_on() {
        for _ in 0..QUEUE {
            driver.reuse_bell(77, 0, 0);
        }
        driver.front.kick(wire::VQ_DOORBELL);
        await_read(&driver);
        attempt.did(QUEUE.into());
    }
}
