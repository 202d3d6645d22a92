// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon looks for messages before it sleeps (`poll_max_us`): a driver need not kick then,
//! nothing is lost when it sleeps, and all else is served.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ccc_proto::wire::{self, VQ_DOORBELL};
use support::{
    daemon::{Daemon, PATIENCE, until},
    driver::{Driver, Extent, report},
    frontend::{Mode, QUEUE, guest_of},
    operator::{Operator, TWO, start_in},
};

/// As long as can be, so that a busy machine does not come between two messages.
const POLLS: &str = "poll_max_us = 1000\n";
/// Messages one after the other, within which the time has grown to the longest.
const MANY: usize = 64;
/// So many without a kick are no chance; of more, a machine decides on which others are busy.
const SOME: usize = 8;
/// More than come while a turn takes others.
const FEW: usize = 4;
/// As many as can be: hundreds of turns' work to look at, and memory that holds them.
const SLOTS: u32 = 65_536;
const SCANNED_BYTES: usize = 16 << 20;

fn start(more: &str) -> (Daemon, Operator) {
    start_in(tempfile::tempdir().unwrap(), &TWO, more)
}

/// A VM with one flow.
fn vm(daemon: &Daemon, name: &str) -> (Driver, Extent) {
    let mut driver = Driver::connect(&daemon.socket(name), Mode::Eventfd);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    (driver, extent)
}

/// Sends a message as drivers do, and waits until it is taken; whether that took a kick.
fn send(driver: &mut Driver) -> bool {
    driver.reuse_bell(wire::OP_UPDATE, 0, 1);
    let wanted = driver.kick_wanted_at(VQ_DOORBELL).wrapping_add(1) == driver.offered(VQ_DOORBELL);
    if wanted {
        driver.front.kick(VQ_DOORBELL);
    }
    let began = Instant::now();
    while driver.used(VQ_DOORBELL) != driver.offered(VQ_DOORBELL) {
        assert!(began.elapsed() < PATIENCE, "a message is lost; kicked: {wanted}");
        thread::yield_now();
    }
    wanted
}

/// What a metric without labels tells.
fn metric(operator: &Operator, name: &str) -> f64 {
    let text = operator.get("/metrics");
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn no_kick_is_needed_while_the_daemon_polls() {
    let (daemon, operator) = start(POLLS);
    let (mut driver, _) = vm(&daemon, "a");
    let mut without = 0;
    until("messages are taken without a kick", || {
        without += (0..MANY).filter(|_| !send(&mut driver)).count();
        without >= SOME
    });
    assert!(metric(&operator, "ccc_poll_found_total ") >= SOME as f64);
    assert!(metric(&operator, "ccc_poll_seconds_total ") > 0.0);
    assert_eq!(metric(&operator, "ccc_poll_max_seconds "), 0.001);
    let told = &operator.get("/v1/status")["polling"];
    assert!(told["max_us"] == 1000 && told["load"].as_f64() > Some(0.0), "{told}");
}

#[test]
fn each_message_takes_a_kick_where_the_daemon_does_not_poll() {
    let (daemon, operator) = start("");
    let (mut driver, _) = vm(&daemon, "a");
    for _ in 0..MANY {
        let offered = driver.offered(VQ_DOORBELL);
        until("it wants to be kicked", || driver.kick_wanted_at(VQ_DOORBELL) == offered);
        assert!(send(&mut driver));
    }
    assert_eq!(metric(&operator, "ccc_poll_seconds_total "), 0.0);
    assert_eq!(metric(&operator, "ccc_poll_max_seconds "), 0.0);
    assert!(operator.get("/v1/status")["polling"].is_null());
}

#[test]
fn the_log_says_that_the_daemon_polls() {
    let (mut polling, _) = start(POLLS);
    polling.says("polling: up to 1000 us for a VM's next message, as [daemon] poll_max_us says");
    let (mut sleeping, _) = start("");
    sleeping.says("serving 2 VMs");
    assert_eq!(sleeping.lines("polling"), 0);
}

#[test]
fn no_message_is_lost_when_the_daemon_goes_to_sleep() {
    let (daemon, operator) = start(POLLS);
    let (mut driver, extent) = vm(&daemon, "a");
    let mut kicks = 0;
    until("it polled and slept", || {
        for round in 0..400 {
            kicks += u32::from(send(&mut driver));
            // Around the end of its time, whatever that is, and without any rhythm.
            let pause = Duration::from_micros(round * 7919 % 1300);
            let began = Instant::now();
            while began.elapsed() < pause {
                std::hint::spin_loop();
            }
        }
        kicks > 0 && metric(&operator, "ccc_poll_seconds_total ") > 0.0
    });
    driver.tell(&extent, wire::OP_REGISTER, 1, &report(1));
    assert!(driver.accepted(&extent, 1, 1));
}

#[test]
fn who_says_nothing_costs_nothing() {
    let (daemon, operator) = start(POLLS);
    let (mut driver, _) = vm(&daemon, "a");
    (0..MANY).for_each(|_| _ = send(&mut driver));
    let offered = driver.offered(VQ_DOORBELL);
    until("it is to be kicked", || driver.kick_wanted_at(VQ_DOORBELL) == offered);
    let before = metric(&operator, "ccc_poll_seconds_total ");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(metric(&operator, "ccc_poll_seconds_total "), before);
}

#[test]
fn t4_others_are_served_while_the_daemon_polls_a_guest_that_floods() {
    let (daemon, operator) = start(POLLS);
    let (mut flooding, _) = vm(&daemon, "a");
    (0..QUEUE).for_each(|_| _ = send(&mut flooding));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                flooding.refill(VQ_DOORBELL);
                flooding.front.kick(VQ_DOORBELL);
            }
        });
        for round in 1..20 {
            let weight = f64::from(round);
            operator.patch("/v1/vms/b", &serde_json::json!({ "weight": weight }));
            assert_eq!(operator.get("/v1/vms/b")["weight"], weight);
        }
        // Another front end comes, and its queues are served.
        let (mut other, extent) = vm(&daemon, "b");
        (0..MANY).for_each(|_| _ = send(&mut other));
        assert!(other.accepted(&extent, 0, 1));
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn t4_who_is_polled_is_heard_while_another_has_more_than_a_turn_s_work() {
    // On a busy machine most scans are over before enough were sent.
    until("they are heard between turns of one scan", || {
        let (daemon, _) = start(POLLS);
        let guest = guest_of(SCANNED_BYTES);
        let mut scanned = Driver::connect_with(&daemon.socket("a"), Mode::Eventfd, guest);
        let (mut polled, _) = vm(&daemon, "b");
        (0..MANY).for_each(|_| _ = send(&mut polled));
        let extent = scanned.extent(0, SLOTS, 1);
        scanned.offer(wire::VQ_TABLE, &Driver::pieces(&extent));
        scanned.front.kick(wire::VQ_TABLE);
        let is_scanned = || scanned.status(&extent).0 != wire::EXTENT_PENDING;
        let (mut sent, mut begun, mut without) = (0, false, 0);
        while !is_scanned() {
            let kicked = send(&mut polled);
            without += usize::from(begun && !kicked && !is_scanned());
            sent += 1;
            // More than one slice finds, or heard with the offer's kick.
            begun |= kicked || sent > MANY;
        }
        without >= FEW
    });
}

#[test]
fn a_front_end_may_go_and_come_while_its_queue_is_polled() {
    let (daemon, _) = start(POLLS);
    let (mut driver, extent) = vm(&daemon, "a");
    for round in 2..6 {
        (0..MANY).for_each(|_| _ = send(&mut driver));
        driver = driver.reconnect(&daemon.socket("a"));
        driver.register(&extent, 1, round);
        assert!(driver.accepted(&extent, 1, round));
    }
}
