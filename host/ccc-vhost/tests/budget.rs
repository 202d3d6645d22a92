// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! No guest has more of the daemon's one thread in a turn than its budget: what
//! it asks for beyond that is done in slices, between which others are served.
//!
//! None of this is measured with a clock.  The daemon is stopped while two guests
//! ask for something, and its log then shows in which order it was done.
#![allow(clippy::unwrap_used)]
mod support;

use std::time::Instant;

use ccc_proto::wire::{self, Report};
use serde_json::Value;
use support::{
    daemon::{Daemon, until},
    driver::{Driver, Extent, Piece, WRITE, report, while_flows_count},
    frontend::Mode,
    operator::{TWO, start_in},
};
use vhost::VhostBackend;

const BOTH: [(&str, f64, &str); 2] = [("a", 1.0, "default"), ("b", 1.0, "default")];
/// Many times what is looked at in one turn.
const SLOTS: u32 = 4096;
const INDIRECT: u16 = 4;
const NEXT: u16 = 1;

fn driver(daemon: &Daemon, vm: &str) -> Driver {
    Driver::connect(&daemon.socket(vm), Mode::Eventfd)
}

/// An extent whose slots are all in use, and not offered yet.
fn full(driver: &mut Driver, lines: u32) -> Extent {
    let extent = driver.extent(0, SLOTS, lines);
    for slot in 0..SLOTS {
        driver.write_slot(&extent, slot, &report(1));
    }
    extent
}

/// `a` asks for much while the daemon stands still, `b` then for little.  Says
/// whether `b` was served before `a` had all, which `last` in the log shows.
fn b_before_a(daemon: &mut Daemon, ask: impl FnOnce(), b: &mut Driver, last: &str) -> bool {
    daemon.pause();
    ask();
    let little = b.extent(0, 8, 1);
    b.offer(wire::VQ_TABLE, &Driver::pieces(&little));
    b.front.kick(wire::VQ_TABLE);
    daemon.resume();
    daemon.says("VM b: accepted 8 slots from slot 0 on");
    daemon.says(last);
    let log = daemon.log();
    log.find("VM b: accepted 8 slots from slot 0 on") < log.find(last)
}

#[test]
fn t4_others_are_served_while_a_large_extent_is_scanned() {
    let mut daemon = Daemon::start(&BOTH);
    let (mut a, mut b) = (driver(&daemon, "a"), driver(&daemon, "b"));
    let extent = full(&mut a, 1);
    a.offer(wire::VQ_TABLE, &Driver::pieces(&extent));
    let ask = || a.front.kick(wire::VQ_TABLE);
    let in_time = b_before_a(&mut daemon, ask, &mut b, "VM a: accepted 4096 slots from slot 0 on");
    assert!(in_time, "b waited until all slots of a's extent had been looked at");
    a.await_status(&extent, wire::EXTENT_ACCEPTED);
    assert!((0..SLOTS).all(|slot| a.accepted(&extent, slot, 1)), "all are looked at before");
}

#[test]
fn t4_others_are_served_while_every_slot_is_looked_at_again() {
    let mut daemon = Daemon::start(&BOTH);
    let (mut a, mut b) = (driver(&daemon, "a"), driver(&daemon, "b"));
    let extent = a.offer_extent(0, SLOTS, 1);
    for slot in 0..SLOTS - 1 {
        a.write_slot(&extent, slot, &report(1));
    }
    // What is wrong with the last slot is told when it is looked at.
    a.write_slot(&extent, SLOTS - 1, &Report { state: 9, ..report(1) });
    a.offer_bell(wire::OP_RESCAN, 0, 0);
    let ask = || a.front.kick(wire::VQ_DOORBELL);
    let in_time =
        b_before_a(&mut daemon, ask, &mut b, "slot 4095: invalid state: expected 1 to 4, got 9");
    assert!(in_time, "b waited until all of a's slots had been looked at");
    assert!((0..SLOTS - 1).all(|slot| a.accepted(&extent, slot, 1)));
}

#[test]
fn t4_a_rescan_asked_for_during_one_sees_what_changed_behind_it() {
    let mut daemon = Daemon::start(&BOTH);
    let mut a = driver(&daemon, "a");
    let extent = full(&mut a, 1);
    a.offer(wire::VQ_TABLE, &Driver::pieces(&extent));
    a.front.kick(wire::VQ_TABLE);
    a.await_status(&extent, wire::EXTENT_ACCEPTED);
    // Over and over: whatever part the device is at, the latest use is found.
    for round in 2..40 {
        a.write_slot(&extent, round, &report(round));
        a.write_slot(&extent, SLOTS - round, &report(round));
        a.ring_bell(wire::OP_RESCAN, 0, 0);
    }
    support::daemon::until("the latest use of every slot is known", || {
        (2..40).all(|round| {
            a.accepted(&extent, round, round) && a.accepted(&extent, SLOTS - round, round)
        })
    });
    drop(a);
    daemon.says("disconnected with 4096 flows");
}

#[test]
fn t4_an_extent_released_during_a_scan_is_left_alone() {
    let mut daemon = Daemon::start(&BOTH);
    let mut a = driver(&daemon, "a");
    let first = a.offer_extent(SLOTS, 4, 1);
    let second = full(&mut a, 0);
    a.offer(wire::VQ_TABLE, &Driver::pieces(&second));
    a.front.kick(wire::VQ_TABLE);
    a.await_status(&second, wire::EXTENT_ACCEPTED);
    daemon.pause();
    a.write_slot(&first, SLOTS + 1, &report(7));
    a.offer_bell(wire::OP_RESCAN, 0, 0);
    a.offer_bell(wire::OP_RELEASE, 0, 0);
    a.front.kick(wire::VQ_DOORBELL);
    daemon.resume();
    a.settle();
    support::daemon::until("given back", || a.used(wire::VQ_TABLE) == 1);
    // From now on its memory is the driver's.
    a.write(second.grants, &[0xaau8; 1024]);
    a.tell(&first, wire::OP_UPDATE, SLOTS + 1, &report(7));
    a.ring_bell(wire::OP_RESCAN, 0, 0);
    support::daemon::until("looked at", || a.accepted(&first, SLOTS + 1, 7));
    assert_eq!(a.read::<[u8; 1024]>(second.grants), [0xaa; 1024], "written after it was used");
    drop(a);
    daemon.says("VM a: disconnected with 1 flows");
}

#[test]
fn t4_a_front_end_that_goes_during_a_scan_leaves_nothing() {
    let mut daemon = Daemon::start(&BOTH);
    let mut a = driver(&daemon, "a");
    let extent = full(&mut a, 1);
    a.offer(wire::VQ_TABLE, &Driver::pieces(&extent));
    a.front.kick(wire::VQ_TABLE);
    let a = a.reconnect(&daemon.socket("a"));
    a.await_status(&extent, wire::EXTENT_ACCEPTED);
    support::daemon::until("found again", || (0..SLOTS).all(|slot| a.accepted(&extent, slot, 1)));
    a.front.vhost.get_vring_base(wire::VQ_TABLE).unwrap();
    let mut b = driver(&daemon, "b");
    let little = b.offer_extent(0, 8, 1);
    b.register(&little, 0, 1);
    support::daemon::until("b has all there is", || {
        b.alive();
        b.window(&little) > 0
    });
    assert!(daemon.running());
}

#[test]
fn t4_many_flows_that_go_on_alone_take_their_part_along() {
    while_flows_count("b has as much as before", many_flows_that_go_on_alone);
}

fn many_flows_that_go_on_alone() -> (Instant, bool) {
    let mut daemon = Daemon::start(&[("a", 3.0, "default"), ("b", 1.0, "default")]);
    let mut a = driver(&daemon, "a");
    // What it is told is in force when its kick is answered.
    let mut b = Driver::connect(&daemon.socket("b"), Mode::InBand);
    let in_b = b.offer_extent(0, 8, 1);
    b.register(&in_b, 0, 1);
    let in_a = full(&mut a, 1);
    a.offer(wire::VQ_TABLE, &Driver::pieces(&in_a));
    let since = b.alive();
    a.front.kick(wire::VQ_TABLE);
    a.await_status(&in_a, wire::EXTENT_ACCEPTED);
    b.alive();
    let part = b.window(&in_b);
    drop(a);
    daemon.says("VM a: disconnected with 4096 flows");
    b.alive();
    let left = b.window(&in_b);
    eprintln!("b had {part} bytes and has {left} after {:?}", since.elapsed());
    let mut again = driver(&daemon, "a");
    let little = again.offer_extent(0, 8, 1);
    again.register(&little, 0, 1);
    assert!(again.accepted(&little, 0, 1), "they are gone, and others may come");
    (since, part > 0 && left.abs_diff(part) <= part / 10)
}

#[test]
fn t5_a_table_queue_full_of_wrong_extents_is_served_in_turns() {
    let mut daemon = Daemon::start(&BOTH);
    let (mut a, mut b) = (driver(&daemon, "a"), driver(&daemon, "b"));
    let wrong = a.alloc(64);
    let bad = a.offer(wire::VQ_TABLE, &[(wrong, 15, 0)]);
    for _ in 0..60 {
        a.publish(wire::VQ_TABLE, bad);
    }
    let extent = a.extent(0, 4, 1);
    a.offer(wire::VQ_TABLE, &Driver::pieces(&extent));
    let ask = || a.front.kick(wire::VQ_TABLE);
    let in_time = b_before_a(&mut daemon, ask, &mut b, "VM a: accepted 4 slots from slot 0 on");
    assert!(in_time, "b waited until a's table queue was empty");
}

#[test]
fn t3_a_message_that_loops_is_not_walked() {
    let mut daemon = Daemon::start(&BOTH);
    let mut a = driver(&daemon, "a");
    // An indirect table in which every descriptor leads to the first.
    let table = a.alloc(16 * 1024);
    let mut looped = Vec::new();
    for _ in 0..1024 {
        looped.extend(descriptor((table, 16, NEXT), 0));
    }
    a.write(table, looped.as_slice());
    a.offer(wire::VQ_DOORBELL, &[(table, 16 * 1024, INDIRECT)]);
    a.front.kick(wire::VQ_DOORBELL);
    a.settle();
    daemon.says("message of more than one descriptor; expected 1");
}

#[test]
fn t3_an_extent_of_more_descriptors_than_a_queue_has_is_refused() {
    let mut daemon = Daemon::start(&BOTH);
    let mut a = driver(&daemon, "a");
    let extent = a.extent(0, 8, 1);
    let table = a.alloc(16 * 2000);
    let mut long = Vec::new();
    // Empty descriptors in front of what is right.
    for index in 1..=1100u16 {
        long.extend(descriptor((extent.reports, 0, NEXT), index));
    }
    let [read, written] = Driver::pieces(&extent)[..] else { panic!("two pieces") };
    long.extend(descriptor((read.0, read.1, NEXT), 1101));
    long.extend(descriptor((written.0, written.1, WRITE), 0));
    a.write(table, long.as_slice());
    a.offer(wire::VQ_TABLE, &[(table, long.len() as u32, INDIRECT)]);
    a.front.kick(wire::VQ_TABLE);
    daemon.says("chain of more than 1024 descriptors");
    assert_eq!(a.status(&extent).0, wire::EXTENT_PENDING);
}

#[test]
fn t6_a_guest_offers_64_extents_and_no_more() {
    let mut daemon = Daemon::start(&BOTH);
    let mut a = driver(&daemon, "a");
    // Not in the order of their slots.
    let firsts = (0..64).map(|number| number * 29 % 64 * 7);
    let extents: Vec<Extent> =
        firsts.enumerate().map(|(n, first)| a.offer_extent(first, 7, u32::from(n == 0))).collect();
    let over = a.extent(7 * 64, 7, 0);
    a.offer(wire::VQ_TABLE, &Driver::pieces(&over));
    a.front.kick(wire::VQ_TABLE);
    a.await_status(&over, wire::EXTENT_REFUSED);
    daemon.says("one extent more than the 64 that may be held");
    for (generation, extent) in (1..).zip(&extents) {
        a.register(extent, extent.first + generation % 7, generation);
    }
    for (generation, extent) in (1..).zip(&extents) {
        let slot = extent.first + generation % 7;
        assert!(a.accepted(extent, slot, generation), "slot {slot}");
    }
    // One that is given back makes room.
    a.ring_bell(wire::OP_RELEASE, extents[9].first, 0);
    a.offer_extent(7 * 64, 7, 0);
}

#[test]
fn t9_a_guest_over_its_limit_of_flows_is_refused_and_the_others_are_not() {
    let limits = "max_flows_per_vm = 3\nmax_flows = 5\n";
    let (mut daemon, operator) = start_in(tempfile::tempdir().unwrap(), &TWO, limits);
    let is_over = |vm: &str, limit: Value| {
        let counters = || operator.get(&format!("/v1/vms/{vm}"))["counters"].clone();
        until("the limit is told", || counters()["limit"] == limit);
        assert_eq!(counters()["limit_ms"].is_null(), limit.is_null(), "{vm}");
    };
    let (mut a, mut b) = (driver(&daemon, "a"), driver(&daemon, "b"));
    let (in_a, in_b) = (a.offer_extent(0, 8, 1), b.offer_extent(0, 8, 1));
    for slot in 0..4 {
        a.register(&in_a, slot, 1);
    }
    assert_eq!(
        (0..4).map(|slot| a.accepted(&in_a, slot, 1)).collect::<Vec<_>>(),
        [true, true, true, false]
    );
    assert_eq!(a.grant(&in_a, 3).generation.get(), 1, "it is told");
    daemon.says("slot 3: the VM has 3 flows, as many as it may have (max_flows_per_vm)");
    is_over("a", "max_flows_per_vm".into());
    assert_eq!(operator.get("/v1/vms/a")["flows"], 3, "of which it says nothing");
    for slot in 0..2 {
        b.register(&in_b, slot, 1);
    }
    is_over("b", Value::Null);
    b.register(&in_b, 2, 1);
    assert!(b.accepted(&in_b, 1, 1) && !b.accepted(&in_b, 2, 1));
    daemon.says("slot 2: all VMs have 5 flows, as many as they may have (max_flows)");
    is_over("b", "max_flows".into());
    b.register(&in_b, 3, 1);
    is_over("b", "max_flows_per_vm".into());
    // One that waits is over it with each of its messages.
    b.tell(&in_b, wire::OP_UPDATE, 2, &report(1));
    is_over("b", "max_flows".into());
    // One that leaves makes room for one that waits, at its next message.
    a.tell(&in_a, wire::OP_LEAVE, 0, &Report { state: wire::STATE_FREE, ..report(1) });
    a.tell(&in_a, wire::OP_UPDATE, 3, &report(1));
    assert!(a.accepted(&in_a, 3, 1));
    drop((a, b));
    daemon.says("limits 1");
}

#[test]
fn reports_are_asked_for_as_rarely_as_the_operator_wants() {
    let daemon = Daemon::start_with(&BOTH, "[daemon]\nmax_reports_per_s = 1000\n", &[]);
    let (mut a, mut b) = (driver(&daemon, "a"), driver(&daemon, "b"));
    let (in_a, in_b) = (a.offer_extent(0, 8, 1), b.offer_extent(0, 8, 1));
    let interval_us = |of: &Driver, extent| of.line(extent, 0).report_interval_us.get();
    a.register(&in_a, 0, 1);
    support::daemon::until("one has all of it", || {
        a.alive();
        interval_us(&a, &in_a) == 1_000
    });
    for slot in 0..4 {
        b.register(&in_b, slot, 1);
    }
    // Half of that is for four flows, and half for one: who has few does not wait for them.
    support::daemon::until("each has half of it", || {
        a.alive();
        b.alive();
        (interval_us(&a, &in_a), interval_us(&b, &in_b)) == (2_000, 8_000)
    });
}

/// A descriptor as it is in memory.
fn descriptor((address, length, flags): Piece, next: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(address.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(next.to_le_bytes());
    bytes
}
