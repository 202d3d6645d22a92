// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon as a client of a time travel controller.
#![allow(clippy::unwrap_used)]
mod support;

use std::{os::unix::net::UnixListener, thread};

use ccc_proto::wire;
use support::{
    controller::{Controller, OTHER_ID},
    daemon::{Daemon, until},
    driver::{Driver, report},
    frontend::Mode,
};

const MS: u64 = 1_000_000;

fn start() -> (Daemon, Controller) {
    start_with("")
}

fn start_with(settings: &str) -> (Daemon, Controller) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("time");
    let listener = UnixListener::bind(&path).unwrap();
    let controller = thread::spawn(move || {
        let mut controller = Controller::accept(&listener, 2);
        controller.begin();
        controller
    });
    let argument = path.to_str().unwrap().to_owned();
    let vms = [("a", 1.0, "default")];
    let daemon = Daemon::start_in(dir, &vms, settings, &["--time-travel", &argument]);
    (daemon, controller.join().unwrap())
}

#[test]
fn kicks_happen_at_the_calendars_time_and_turns_are_asked_for_there() {
    let (daemon, mut controller) = start();
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    assert_eq!(driver.status(&extent), (wire::EXTENT_ACCEPTED, 1), "the same in every run");
    assert_eq!(controller.requested(), None);
    controller.set_time(50 * MS);
    driver.register(&extent, 0, 1);
    let first = controller.requested().unwrap();
    assert!(first > 50 * MS && first % 1000 == 0, "{first}");
    assert_eq!(controller.get64(8), first, "free_until is lowered");

    // A later report: a later turn.
    controller.set_time(70 * MS);
    driver.tell(&extent, wire::OP_UPDATE, 0, &report(1));
    assert_eq!(controller.requested(), Some(first + 20 * MS));

    // Its turn: the silent flow no longer counts, and nothing is left to do.
    assert!(driver.coupled(&extent));
    let before = driver.line(&extent, 0).seq.get();
    controller.run(first + 20 * MS);
    assert_eq!(controller.requested(), None);
    assert_ne!(driver.line(&extent, 0).seq.get(), before, "line written in its own turn");
}

#[test]
fn t4_a_kick_is_answered_when_all_it_asks_for_is_done() {
    let (daemon, _controller) = start();
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    // Many times what is done in one turn of real time.
    let extent = driver.extent(0, 4096, 1);
    for slot in 0..4096 {
        driver.write_slot(&extent, slot, &report(1));
    }
    driver.offer(wire::VQ_TABLE, &Driver::pieces(&extent));
    driver.front.kick(wire::VQ_TABLE);
    assert_eq!(driver.status(&extent).0, wire::EXTENT_ACCEPTED);
    assert!((0..4096).all(|slot| driver.accepted(&extent, slot, 1)));
    for slot in 0..4096 {
        driver.write_slot(&extent, slot, &report(2));
    }
    driver.offer_bell(wire::OP_RESCAN, 0, 0);
    driver.front.kick(wire::VQ_DOORBELL);
    assert!((0..4096).all(|slot| driver.accepted(&extent, slot, 2)));
    driver.offer_bell(wire::OP_RELEASE, 0, 0);
    driver.front.kick(wire::VQ_DOORBELL);
    assert!(driver.used(wire::VQ_TABLE) == 1 && driver.used(wire::VQ_DOORBELL) == 2);
}

#[test]
fn nothing_is_polled_in_virtual_time() {
    let (daemon, _controller) = start_with("[daemon]\npoll_max_us = 1000\n");
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    for _ in 0..64 {
        driver.reuse_bell(wire::OP_UPDATE, 0, 1);
        driver.front.kick(wire::VQ_DOORBELL);
        let queue = wire::VQ_DOORBELL;
        assert_eq!(driver.kick_wanted_at(queue), driver.offered(queue), "it wants each kick");
    }
}

#[test]
fn a_client_that_shares_no_time_makes_requests_messages() {
    let (daemon, mut controller) = start();
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    controller.let_run(OTHER_ID, false);
    driver.write_slot(&extent, 0, &report(1));
    driver.offer_bell(wire::OP_REGISTER, 0, 1);
    let answering = thread::spawn(move || {
        let (op, seq, time) = controller.receive();
        controller.send(0, seq, 0);
        (op, time)
    });
    driver.front.kick(wire::VQ_DOORBELL);
    let (op, time) = answering.join().unwrap();
    assert!(op == 2 && time > 0, "REQUEST {op} at {time}");
    drop(daemon);
}

#[test]
fn signals_end_it_before_the_simulation_begins_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("time");
    let _listener = UnixListener::bind(&path).unwrap();
    let argument = format!("9:{}", path.display());
    let vms = [("a", 1.0, "default")];
    let mut daemon = Daemon::start_in(dir, &vms, "", &["--time-travel", &argument]);
    let (status, took) = daemon.terminate("-TERM");
    assert!(status.success(), "{status} after {took:?}");
}

#[test]
fn a_controller_that_goes_away_or_speaks_otherwise_ends_it_with_a_reason() {
    let (mut daemon, controller) = start();
    drop(controller);
    daemon.says("closed");
    until("ended", || !daemon.running());

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("time");
    let listener = UnixListener::bind(&path).unwrap();
    let argument = path.to_str().unwrap().to_owned();
    let vms = [("a", 1.0, "default")];
    let mut daemon = Daemon::start_in(dir, &vms, "", &["--time-travel", &argument]);
    let mut controller = Controller::accept(&listener, 1);
    let (_, seq, _) = controller.receive();
    controller.send(0, seq, 0);
    daemon.says("it needs a calendar");
    until("ended", || !daemon.running());
}
