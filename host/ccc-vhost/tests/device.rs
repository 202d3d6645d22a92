// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a driver sees of the device.
#![allow(clippy::unwrap_used)]
mod support;

use std::time::Instant;

use ccc_proto::wire::{self, Report};
use support::{
    daemon::{Daemon, until},
    driver::{Driver, Piece, WRITE, report, while_flows_count, while_they_count},
    frontend::{FEATURES, Mode, QUEUE},
};
use vhost::{
    VhostBackend,
    vhost_user::{VhostUserFrontend, message::VhostUserConfigFlags},
};
use zerocopy::FromBytes;

/// What is done to the descriptors of an extent.
type Change = fn(&mut Vec<Piece>);

const ONE: [(&str, f64, &str); 1] = [("a", 1.0, "default")];

fn driver(daemon: &Daemon, vm: &str, mode: Mode) -> Driver {
    Driver::connect(&daemon.socket(vm), mode)
}

#[test]
fn the_configuration_space_can_be_read() {
    let daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::Eventfd);
    let flags = VhostUserConfigFlags::empty();
    let (_, bytes) = driver.front.vhost.get_config(0, 16, flags, &[0; 16]).unwrap();
    let config = wire::Config::read_from_bytes(&bytes[..]).unwrap();
    assert_eq!(config.revision.get(), wire::REVISION);
    assert_eq!((config.max_slots.get(), config.max_grant_lines.get()), (65_536, 16));
    assert_eq!(config.stale_us.get(), 1_000_000);
    // Beyond its end there is nothing: an answer without payload.
    let empty = [0u32; 8];
    driver.front.send(24, 1, &[[0, 32, 0].as_slice(), &empty].concat());
    let mut answer = [0; 24];
    std::io::Read::read_exact(&mut driver.front.stream, &mut answer).unwrap();
    assert_eq!(answer[16..20], [0; 4]);
    assert_eq!(driver.front.vhost.get_queue_num().unwrap(), 3);
}

#[test]
fn a_driver_of_no_feature_bits_is_served_as_far_as_it_can_read() {
    let vms = [("a", 1.0, "windows"), ("b", 1.0, "rates")];
    let groups = "[group.windows]\nshare = \"window\"\n[group.rates]\nshare = \"rate\"\n";
    let mut daemon = Daemon::start_with(&vms, groups, &[]);
    for (vm, coupled) in [("a", true), ("b", false)] {
        let mut driver = driver(&daemon, vm, Mode::Eventfd);
        let without = FEATURES & !(1 << wire::F_RATE_SHARE);
        driver.front.vhost.set_features(without).unwrap();
        let extent = driver.offer_extent(0, 4, 1);
        driver.register(&extent, 0, 7);
        assert_eq!(driver.accepted(&extent, 0, 7), coupled, "{vm}");
    }
    daemon.says("VIRTIO_CCC_F_RATE_SHARE");
}

#[test]
fn features_that_are_not_offered_are_refused() {
    let mut daemon = Daemon::start(&ONE);
    let driver = driver(&daemon, "a", Mode::Eventfd);
    assert!(driver.front.vhost.set_features(FEATURES | 1 << wire::F_SLOT_CAP).is_err());
    daemon.says("sets features 0x2, which are not offered");
}

#[test]
fn a_flow_lives_through_its_slot() {
    for mode in [Mode::Eventfd, Mode::InBand] {
        let daemon = Daemon::start(&ONE);
        let mut driver = driver(&daemon, "a", mode);
        let extent = driver.offer_extent(0, 8, 2);
        assert_eq!(driver.used(wire::VQ_TABLE), 0, "the chain is held");
        driver.register(&extent, 3, 77);
        assert!(driver.accepted(&extent, 3, 77));
        assert_eq!(driver.grant(&extent, 3).cap_bytes.get(), wire::CAP_NONE);
        let (mut line, mut before) = (driver.line(&extent, 0), 0);
        until("coupled", || {
            driver.alive();
            (line, before) = (driver.line(&extent, 0), driver.window(&extent));
            driver.coupled(&extent) && before > 0
        });
        assert_eq!(line.seq.get() % 2, 0);
        assert_eq!(line.ssthresh_level.get(), wire::LEVEL_UNSET);
        let mut bytes = 0;
        until("window grown", || {
            // Ten segments acknowledged in slow start.
            bytes += 14480;
            let grown = Report {
                acked_limited_bytes: bytes.into(),
                delivered_bytes: bytes.into(),
                ..report(77)
            };
            driver.tell(&extent, wire::OP_UPDATE, 3, &grown);
            driver.window(&extent) > before
        });
        assert_ne!(driver.line(&extent, 0).seq, line.seq);
        driver.ring_bell(wire::OP_LEAVE, 3, 77);
        assert!(!driver.accepted(&extent, 3, 77));
    }
}

#[test]
fn a_kick_in_band_is_done_and_called_before_it_is_answered() {
    let daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let extent = driver.extent(0, 8, 1);
    driver.offer(wire::VQ_TABLE, &Driver::pieces(&extent));
    driver.front.kick(wire::VQ_TABLE);
    assert_eq!(driver.status(&extent).0, wire::EXTENT_ACCEPTED);
    driver.write_slot(&extent, 0, &report(1));
    driver.offer_bell(wire::OP_REGISTER, 0, 1);
    driver.front.kick(wire::VQ_DOORBELL);
    assert!(driver.accepted(&extent, 0, 1) && driver.coupled(&extent));
    assert_eq!(driver.used(wire::VQ_DOORBELL), 1);
    assert!(driver.front.called(wire::VQ_DOORBELL), "the call came before the answer");
}

#[test]
fn weights_split_the_window_between_vms() {
    let groups = "[group.g]\n";
    // With another daemon where a flow has not counted all the time.
    until("weights split the window", || {
        let mut daemon = Daemon::start_with(&[("a", 3.0, "g"), ("b", 1.0, "g")], groups, &[]);
        let mut a = driver(&daemon, "a", Mode::InBand);
        let mut b = driver(&daemon, "b", Mode::Eventfd);
        let (in_a, in_b) = (a.offer_extent(0, 4, 1), b.offer_extent(0, 4, 1));
        let since = Instant::now();
        a.register(&in_a, 0, 1);
        b.register(&in_b, 0, 1);
        b.register(&in_b, 1, 1);
        let split = while_they_count(since, "3 : 1", || {
            let (of_a, of_b) = (a.window(&in_a), b.window(&in_b) * 2);
            of_b > 0 && of_a.abs_diff(of_b * 3) < 100
        });
        // One that leaves leaves its part to the other.
        let part = b.window(&in_b);
        a.ring_bell(wire::OP_LEAVE, 0, 1);
        let left = while_they_count(since, "all for the other", || {
            b.window(&in_b).abs_diff(part * 4) < 100
        });
        // One whose device is gone goes on alone, and keeps its part.
        a.register(&in_a, 0, 2);
        let again = while_they_count(since, "shared again", || {
            a.window(&in_a).abs_diff(b.window(&in_b) * 2 * 3) < 100
        });
        let part = b.window(&in_b);
        drop(a);
        daemon.says("VM a: disconnected with 1 flows");
        b.tell(&in_b, wire::OP_UPDATE, 0, &report(1));
        let kept = while_they_count(since, "no more for the other", || {
            b.window(&in_b).abs_diff(part) < part / 10
        });
        split && left && again && kept
    });
}

#[test]
fn groups_are_apart() {
    let groups = "[group.g]\n[group.h]\n";
    let daemon = Daemon::start_with(&[("a", 1.0, "g"), ("b", 1.0, "h")], groups, &[]);
    let mut a = driver(&daemon, "a", Mode::InBand);
    let mut b = driver(&daemon, "b", Mode::InBand);
    let (in_a, in_b) = (a.offer_extent(0, 4, 1), b.offer_extent(0, 4, 1));
    a.register(&in_a, 0, 1);
    b.register(&in_b, 0, 1);
    until("each has all of its group", || {
        a.alive();
        b.alive();
        a.window(&in_a) > 0 && a.window(&in_a) == b.window(&in_b)
    });
    assert_ne!(a.line(&in_a, 0).group, b.line(&in_b, 0).group);
}

#[test]
fn what_is_shared_is_told_in_the_line() {
    for (share, flag) in [("rate", wire::L_RATE), ("window", 0)] {
        let groups = format!("[group.g]\nshare = \"{share}\"\n");
        let daemon = Daemon::start_with(&[("a", 1.0, "g")], &groups, &[]);
        let mut driver = driver(&daemon, "a", Mode::InBand);
        let extent = driver.offer_extent(0, 4, 1);
        driver.register(&extent, 0, 1);
        assert_eq!(driver.line(&extent, 0).flags.get() & wire::L_RATE, flag);
    }
}

#[test]
fn extents_are_offered_released_and_offered_again() {
    let daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let first = driver.offer_extent(0, 4, 1);
    let second = driver.offer_extent(4, 4, 0);
    driver.register(&second, 6, 9);
    assert!(driver.accepted(&second, 6, 9));
    until("coupled", || {
        driver.alive();
        driver.coupled(&first)
    });
    driver.ring_bell(wire::OP_RELEASE, 4, 0);
    assert_eq!(driver.used(wire::VQ_TABLE), 1);
    let again = driver.offer_extent(4, 4, 0);
    driver.register(&again, 6, 10);
    assert!(driver.accepted(&again, 6, 10));
}

#[test]
fn what_was_registered_is_found_after_a_reconnect() {
    for mode in [Mode::Eventfd, Mode::InBand] {
        let mut daemon = Daemon::start(&ONE);
        let mut driver = driver(&daemon, "a", mode);
        let extent = driver.offer_extent(0, 8, 1);
        driver.register(&extent, 2, 5);
        let before = driver.status(&extent).1;
        driver.write(extent.grants, &[0u8; 128]);
        let driver = driver.reconnect(&daemon.socket("a"));
        until("found again", || driver.accepted(&extent, 2, 5));
        until("adopted anew", || driver.status(&extent).1 != before);
        assert_eq!(driver.status(&extent).0, wire::EXTENT_ACCEPTED);
        daemon.says("disconnected with 1 flows");
    }
}

#[test]
fn a_killed_daemon_finds_every_extent_again() {
    let daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::Eventfd);
    let first = driver.offer_extent(0, 4, 1);
    let second = driver.offer_extent(4, 4, 0);
    let third = driver.offer_extent(8, 4, 0);
    driver.register(&first, 1, 5);
    driver.register(&third, 9, 6);
    // The used index now passes over the first extent's chain.
    driver.ring_bell(wire::OP_RELEASE, second.first, 0);
    until("released", || driver.used(wire::VQ_TABLE) == 1);
    driver.write(first.grants, &[0u8; 64]);
    driver.write(third.grants, &[0u8; 64]);
    driver.write(second.head, &[0u8; 64]);
    let daemon = daemon.restart();
    let driver = driver.reconnect(&daemon.socket("a"));
    until("first", || driver.accepted(&first, 1, 5));
    until("third", || driver.accepted(&third, 9, 6));
    assert_eq!(driver.status(&second), (0, 0), "what was given back is the driver's");
}

#[test]
fn all_extents_are_released_with_the_first_in_the_order_they_were_offered() {
    let mut daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let first = driver.offer_extent(0, 4, 1);
    let third = driver.offer_extent(8, 4, 0);
    let second = driver.offer_extent(4, 4, 0);
    driver.register(&first, 1, 1);
    driver.register(&third, 9, 2);
    driver.ring_bell(wire::OP_RELEASE, 0, 0);
    let heads: Vec<u16> = (0..3).map(|entry| driver.used_head(wire::VQ_TABLE, entry)).collect();
    assert_eq!(heads, [first.chain, third.chain, second.chain]);
    let again = driver.offer_extent(0, 4, 1);
    driver.register(&again, 1, 3);
    assert!(driver.accepted(&again, 1, 3));
    until("coupled again", || {
        driver.tell(&again, wire::OP_UPDATE, 1, &report(3));
        driver.coupled(&again)
    });
    drop(driver);
    daemon.says("disconnected with 1 flows");
}

#[test]
fn a_device_writes_only_where_it_may() {
    let daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let extent = driver.offer_extent(0, 8, 2);
    for slot in 0..4 {
        driver.register(&extent, slot, 1);
    }
    driver.write_slot(&extent, 4, &Report { mss_bytes: 0.into(), ..report(2) });
    let readable: [u8; 16 + 8 * 128] = driver.read(extent.reports - 16);
    let behind: [u8; 64] = driver.read(extent.grants + 8 * 16);
    driver.ring_bell(wire::OP_RESCAN, 0, 0);
    driver.ring_bell(wire::OP_UPDATE, 1, 1);
    driver.ring_bell(wire::OP_REGISTER, 4, 2);
    driver.ring_bell(wire::OP_LEAVE, 2, 1);
    driver.ring_bell(wire::OP_RELEASE, 0, 0);
    assert_eq!(driver.read::<[u8; 16 + 8 * 128]>(extent.reports - 16), readable);
    assert_eq!(driver.read::<[u8; 64]>(extent.grants + 8 * 16), behind);
}

#[test]
fn kicks_are_wanted_only_when_a_queue_is_empty() {
    let daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let extent = driver.offer_extent(0, 8, 1);
    driver.write_slot(&extent, 0, &report(1));
    for round in 1..=3 {
        for _ in 0..10 {
            driver.offer_bell(wire::OP_REGISTER, 0, 1);
        }
        assert_eq!(driver.kick_wanted_at(wire::VQ_DOORBELL), (round - 1) * 10);
        driver.front.kick(wire::VQ_DOORBELL);
        driver.settle();
        assert_eq!(driver.kick_wanted_at(wire::VQ_DOORBELL), round * 10, "not in between");
    }
}

#[test]
fn wrong_extents_are_refused() {
    let mut daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let mut refused = 0;
    let mut bad = |driver: &mut Driver, first, slots, lines, change: Change| {
        let real = driver.extent(0, 8, 2);
        let header = [first, slots, lines, 0];
        driver.write(real.reports - 16, &header);
        let mut pieces = Driver::pieces(&real);
        change(&mut pieces);
        driver.offer(wire::VQ_TABLE, &pieces);
        driver.front.kick(wire::VQ_TABLE);
        refused += 1;
        assert_eq!(driver.used(wire::VQ_TABLE), refused, "given back");
        driver.status(&real).0
    };
    let same: Change = |_| {};
    for (first, slots, lines) in
        [(0, 0, 2), (65_530, 8, 2), (u32::MAX, 8, 2), (0, 8, 17), (0, 8, 0), (0, 9, 2), (0, 7, 2)]
    {
        assert_eq!(bad(&mut driver, first, slots, lines, same), wire::EXTENT_REFUSED);
    }
    let bads: [Change; 7] = [
        |pieces| pieces[0].1 -= 1,
        |pieces| pieces[0].0 += 4,
        |pieces| pieces[0].0 = 0xffff_ffff_ffff_0000,
        |pieces| pieces[0].1 = 8,
        |pieces| pieces[1].1 += 16,
        |pieces| {
            let (at, length, flags) = pieces[1];
            pieces[1].1 = 72;
            pieces.push((at + 72, length - 72, flags));
        },
        |pieces| *pieces = pieces.split_off(1),
    ];
    for change in bads {
        assert_eq!(bad(&mut driver, 0, 8, 2, change), wire::EXTENT_REFUSED);
    }
    // Nothing to write a status to.
    let silent: [Change; 4] = [
        |pieces| pieces.truncate(1),
        |pieces| pieces.swap(0, 1),
        |pieces| pieces[1].0 = 0x10,
        |pieces| pieces[1].1 = 63,
    ];
    for change in silent {
        assert_eq!(bad(&mut driver, 0, 8, 2, change), wire::EXTENT_PENDING);
    }
    let mut ends = driver.extent(0, 8, 2);
    ends.chain = driver.offer(wire::VQ_TABLE, &Driver::pieces(&ends));
    driver.front.kick(wire::VQ_TABLE);
    driver.await_status(&ends, wire::EXTENT_ACCEPTED);
    assert_eq!(bad(&mut driver, 4, 8, 0, |pieces| pieces[1].1 -= 128), wire::EXTENT_REFUSED);
    assert_eq!(bad(&mut driver, 8, 8, 2, same), wire::EXTENT_REFUSED);
    // Bytes behind the last structure, in either part.
    assert_eq!(bad(&mut driver, 8, 8, 0, |pieces| pieces[0].1 += 8), wire::EXTENT_REFUSED);
    assert_eq!(bad(&mut driver, 8, 8, 0, |pieces| pieces[1].1 += 8), wire::EXTENT_REFUSED);
    drop(driver);
    daemon.says("refused: extents 22 ");
}

#[test]
fn wrong_messages_and_slots_harm_nobody() {
    while_flows_count("the neighbour has what it had", neighbour_of_wrong_messages_and_slots);
}

fn neighbour_of_wrong_messages_and_slots() -> (Instant, bool) {
    let mut daemon = Daemon::start(&[("a", 1.0, "default"), ("b", 1.0, "default")]);
    let mut other = driver(&daemon, "b", Mode::InBand);
    let in_other = other.offer_extent(0, 4, 1);
    let since = Instant::now();
    other.register(&in_other, 0, 1);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let extent = driver.offer_extent(0, 8, 1);
    driver.register(&extent, 0, 1);
    let window = other.window(&in_other);

    // Wrong operation, slot, generation, extent: 4 messages, 3 stale.
    driver.ring_bell(0, 0, 1);
    driver.ring_bell(9, 0, 1);
    driver.ring_bell(wire::OP_UPDATE, 8, 1);
    driver.ring_bell(wire::OP_RELEASE, 1, 0);
    driver.ring_bell(wire::OP_UPDATE, 0, 2);
    driver.ring_bell(wire::OP_LEAVE, 0, 2);
    driver.ring_bell(wire::OP_LEAVE, 1, 1);
    // Wrong forms: 6 messages.
    let at = driver.alloc(64);
    for pieces in [
        &[(at, 15, 0)][..],
        &[(at, 17, 0)],
        &[(at, 16, WRITE)],
        &[(at, 8, 0), (at + 8, 8, 0)],
        &[(0x10, 16, 0)],
        &[(at, 16, 0), (at, 16, 0), (at, 16, 0), (at, 16, WRITE)],
    ] {
        driver.offer(wire::VQ_DOORBELL, pieces);
        driver.front.kick(wire::VQ_DOORBELL);
        driver.settle();
    }
    // Wrong reports: 6, and one of a slot that is nobody's, which may come late and is the fourth
    // that is stale.  Each is answered with a refusal.
    let wrong = [
        Report { state: 9, ..report(3) },
        Report { state: 0, ..report(3) },
        Report { priority: 0.into(), ..report(3) },
        Report { priority: 2561.into(), ..report(3) },
        Report { mss_bytes: 0.into(), ..report(3) },
        Report { generation: 0.into(), ..report(0) },
        Report { family: 0, ..report(3) },
    ];
    for report in wrong {
        driver.tell(&extent, wire::OP_REGISTER, 2, &report);
        assert!(!driver.accepted(&extent, 2, report.generation.get()));
        assert_eq!(driver.grant(&extent, 2).generation, report.generation);
    }
    // Torn: 1.
    driver.write(extent.reports + 128 * 3, &Report { seq: 5.into(), ..report(3) });
    driver.ring_bell(wire::OP_REGISTER, 3, 3);
    assert!(!driver.accepted(&extent, 3, 3));

    let unharmed = other.window(&in_other) == window;
    assert!(driver.accepted(&extent, 0, 1));
    driver.register(&extent, 5, 8);
    assert!(driver.accepted(&extent, 5, 8), "the VM is still served");
    drop(driver);
    daemon.says("refused: extents 0 messages 10 stale 4 torn 1 reports 6 ");
    assert!(daemon.running());
    (since, unharmed)
}

/// Many messages are there at once, of which one in their middle releases the extent that those
/// behind it are about.
#[test]
fn what_messages_ask_is_done_in_their_order_however_many_are_there() {
    const EACH: u32 = 100;
    let mut daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::Eventfd);
    driver.offer_extent(0, 1, 1);
    let extent = driver.offer_extent(1, 2 * EACH, 0);
    for slot in 1..=2 * EACH {
        driver.write_slot(&extent, slot, &report(1));
    }
    let tell = |driver: &mut Driver, slots: std::ops::RangeInclusive<u32>| {
        slots.for_each(|slot| driver.offer_bell(wire::OP_REGISTER, slot, 1));
    };
    tell(&mut driver, 1..=EACH);
    driver.offer_bell(9, 0, 0);
    driver.offer_bell(wire::OP_RELEASE, 1, 0);
    tell(&mut driver, EACH + 1..=2 * EACH);
    driver.front.kick(wire::VQ_DOORBELL);
    driver.settle();
    assert!((1..=EACH).all(|slot| driver.grant(&extent, slot).generation.get() == 1), "taken");
    let behind = EACH + 1..=2 * EACH;
    assert!(behind.into_iter().all(|slot| driver.grant(&extent, slot).generation.get() == 0));
    drop(driver);
    daemon.says("disconnected with 0 flows");
    daemon.says("refused: extents 0 messages 101 ");
}

#[test]
fn f8_the_last_report_of_a_flow_counts() {
    for lost in [false, true] {
        while_flows_count("the last report counts once", || last_report_counts(lost));
    }
}

/// Whether the message comes, or is lost and made up for.
fn last_report_counts(lost: bool) -> (Instant, bool) {
    let daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let extent = driver.offer_extent(0, 8, 1);
    let since = Instant::now();
    driver.register(&extent, 0, 1);
    driver.register(&extent, 1, 1);
    let before = driver.window(&extent);
    // Ten segments were acknowledged since its last message, in slow start.
    let last = Report {
        state: wire::STATE_FREE,
        flags: 0,
        acked_limited_bytes: 14480.into(),
        delivered_bytes: 14480.into(),
        ..report(1)
    };
    driver.write_slot(&extent, 1, &last);
    let op = if lost { wire::OP_RESCAN } else { wire::OP_LEAVE };
    driver.ring_bell(op, 1, 1);
    let window = driver.window(&extent);
    driver.ring_bell(op, 1, 1);
    let after = driver.window(&extent);
    eprintln!("{before} became {window}, and then {after}");
    // What both had is now the other's, and what was acknowledged.
    (since, window.abs_diff(2 * before + 14480) < 10 && after == window)
}

#[test]
fn f8_a_leave_is_taken_whatever_the_last_report_says() {
    let mut daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let extent = driver.offer_extent(0, 8, 1);
    let wrong: [Report; 4] = [
        Report { state: 9, ..report(1) },
        Report { mss_bytes: 0.into(), state: wire::STATE_FREE, ..report(1) },
        // The slot is in use again, and the message of its first use late.
        report(2),
        report(1),
    ];
    for (slot, last) in (0..).zip(wrong) {
        driver.register(&extent, slot, 1);
        driver.write_slot(&extent, slot, &last);
        driver.ring_bell(wire::OP_LEAVE, slot, 1);
        assert!(!driver.accepted(&extent, slot, 1));
    }
    drop(driver);
    daemon.says("disconnected with 0 flows");
}

#[test]
fn a_slot_used_anew_leaves_first() {
    let mut daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let extent = driver.offer_extent(0, 8, 1);
    driver.register(&extent, 0, 1);
    driver.register(&extent, 0, 2);
    assert!(driver.accepted(&extent, 0, 2));
    // The leave of the first use comes late.
    driver.ring_bell(wire::OP_LEAVE, 0, 1);
    assert!(driver.accepted(&extent, 0, 2));
    drop(driver);
    daemon.says("registered 2, updated 0, left 2");
    daemon.says("stale 1");
}

#[test]
fn lost_messages_are_made_up_for_by_a_rescan() {
    let mut daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let extent = driver.offer_extent(0, 8, 1);
    driver.register(&extent, 0, 1);
    driver.register(&extent, 1, 1);
    driver.write_slot(&extent, 0, &Report::FREE);
    driver.write_slot(&extent, 1, &report(2));
    driver.write_slot(&extent, 2, &report(3));
    for _ in 0..5 {
        driver.offer_bell(wire::OP_RESCAN, 0, 0);
    }
    driver.front.kick(wire::VQ_DOORBELL);
    driver.settle();
    assert!(driver.accepted(&extent, 1, 2) && driver.accepted(&extent, 2, 3));
    drop(driver);
    daemon.says("disconnected with 2 flows");
    daemon.says("rescans 1,");
}

#[test]
fn more_messages_than_the_queue_is_long_are_all_read() {
    for mode in [Mode::Eventfd, Mode::InBand] {
        let daemon = Daemon::start(&ONE);
        let mut driver = driver(&daemon, "a", mode);
        let slots = u32::from(QUEUE);
        let extent = driver.offer_extent(0, slots, 1);
        for round in 1..=20 {
            for slot in 0..slots {
                driver.write_slot(&extent, slot, &report(round));
                driver.offer_bell(wire::OP_REGISTER, slot, round);
            }
            driver.front.kick(wire::VQ_DOORBELL);
            driver.settle();
            assert!((0..slots).all(|slot| driver.accepted(&extent, slot, round)));
        }
    }
}

#[test]
fn a_ring_in_disorder_ends_the_queue_and_not_the_vm() {
    let mut daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    let extent = driver.offer_extent(0, 8, 1);
    driver.register(&extent, 0, 1);
    for _ in 0..=QUEUE {
        driver.publish(wire::VQ_DOORBELL, 0);
    }
    driver.front.kick(wire::VQ_DOORBELL);
    daemon.says("ring contradicts itself");
    driver.front.kick(wire::VQ_DOORBELL);
    let config = driver.front.vhost.get_config(0, 16, VhostUserConfigFlags::empty(), &[0; 16]);
    assert!(config.is_ok() && daemon.running());
}

#[test]
fn front_ends_that_break_the_protocol_are_dropped() {
    let mut daemon = Daemon::start(&ONE);
    let messages: [(u32, u32, &[u32]); 6] = [
        (35, 1, &[1]),
        (35, 0, &[1, 0]),
        (1, 1 | 4, &[]),
        (999, 1, &[]),
        (21, 1, &[]),
        (2, 1, &[0]),
    ];
    for (request, flags, payload) in messages {
        let mut driver = driver(&daemon, "a", Mode::InBand);
        driver.front.send(request, flags, payload);
        let end = std::io::Read::read(&mut driver.front.stream, &mut [0; 1]);
        let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(matches!(&end, Ok(0)) || end.as_ref().is_err_and(reset), "{request}: {end:?}");
    }
    // A message that never ends holds nobody up for long.
    let mut driver = driver(&daemon, "a", Mode::InBand);
    std::io::Write::write_all(&mut driver.front.stream, &[35, 0, 0, 0, 1, 0, 0, 0, 8]).unwrap();
    daemon.says("stopped after 9");
    assert!(daemon.running());
}

#[test]
fn kicks_of_queues_that_are_not_there_are_answered() {
    let daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon, "a", Mode::InBand);
    driver.front.send(35, 1 | 8, &[7, 0]);
    let mut answer = [0; 20];
    std::io::Read::read_exact(&mut driver.front.stream, &mut answer).unwrap();
    assert_eq!(answer[0], 35);
}
