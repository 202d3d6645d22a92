// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a front end needs that migrates its VM.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    os::unix::fs::FileExt,
};

use ccc_proto::wire;
use support::{
    daemon::{Daemon, until},
    driver::Driver,
    frontend::{Mode, ring},
};
use vhost::{
    VhostBackend,
    vhost_user::{
        VhostUserFrontend,
        message::{VhostTransferStateDirection as Direction, VhostTransferStatePhase as Phase},
    },
};

const ONE: [(&str, f64, &str); 1] = [("a", 1.0, "default")];

fn driver(daemon: &Daemon) -> Driver {
    Driver::connect(&daemon.socket("a"), Mode::InBand)
}

/// Numbers of the pages noted, which are noted no more.
fn take(log: &File) -> BTreeSet<u64> {
    let mut bytes = vec![0; log.metadata().unwrap().len() as usize];
    log.read_exact_at(&mut bytes, 0).unwrap();
    log.write_all_at(&vec![0; bytes.len()], 0).unwrap();
    let bits = (0u64..).zip(bytes).flat_map(|(index, byte)| {
        (0..8).filter(move |bit| byte & 1 << bit != 0).map(move |bit| index * 8 + bit)
    });
    bits.collect()
}

fn pages(places: &[u64]) -> BTreeSet<u64> {
    places.iter().map(|place| place / 4096).collect()
}

#[test]
fn what_is_written_while_a_vm_migrates_is_noted_and_nothing_else() {
    let daemon = Daemon::start(&ONE);
    let mut driver = driver(&daemon);
    // Each in pages of its own.
    let apart = |driver: &mut Driver| driver.alloc(8192);
    apart(&mut driver);
    let first = driver.offer_extent(0, 4, 1);
    apart(&mut driver);
    driver.register(&first, 1, 5);
    let log = driver.front.log();
    assert_eq!(take(&log), BTreeSet::new());

    driver.register(&first, 2, 6);
    let used = ring(wire::VQ_DOORBELL) + 0x2000;
    assert_eq!(take(&log), pages(&[used, first.lines, first.grants]));
    driver.ring_bell(wire::OP_UPDATE, 2, 6);
    assert!(take(&log).is_subset(&pages(&[used, first.lines])));
    let second = driver.offer_extent(4, 4, 0);
    assert!(take(&log).contains(&(second.head / 4096)));

    driver.front.end_log();
    driver.register(&first, 3, 7);
    assert_eq!(take(&log), BTreeSet::new());
}

/// A pipe that no daemon of another test inherits: its end would not be seen.
fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

fn saved(driver: &Driver) -> Vec<u8> {
    let (read, write) = pipe();
    driver.front.vhost.set_device_state_fd(Direction::SAVE, Phase::STOPPED, write).unwrap();
    let mut bytes = Vec::new();
    File::from(read).read_to_end(&mut bytes).unwrap();
    driver.front.vhost.check_device_state().unwrap();
    bytes
}

fn loaded(driver: &Driver, bytes: &[u8]) -> bool {
    let (read, write) = pipe();
    let begun = driver.front.vhost.set_device_state_fd(Direction::LOAD, Phase::STOPPED, read);
    assert!(begun.unwrap().is_none());
    write_and_close(write, bytes);
    driver.front.vhost.check_device_state().is_ok()
}

fn write_and_close(pipe: OwnedFd, bytes: &[u8]) {
    File::from(pipe).write_all(bytes).unwrap();
}

#[test]
fn the_state_of_a_vm_is_taken_by_another_daemon_and_its_flows_go_on() {
    let here = Daemon::start(&ONE);
    let there = Daemon::start(&ONE);
    let mut source = driver(&here);
    let extent = source.offer_extent(0, 4, 1);
    source.register(&extent, 1, 5);
    for queue in 0..3 {
        source.front.vhost.get_vring_base(queue).unwrap();
    }
    let state = saved(&source);
    // As if nothing had been granted yet.
    source.write(extent.grants, &[0u8; 64]);
    let target = source.reconnect(&there.socket("a"));
    assert!(loaded(&target, &state));
    until("adopted", || target.accepted(&extent, 1, 5));
}

#[test]
fn a_state_of_another_kind_is_refused_and_told() {
    let mut daemon = Daemon::start(&ONE);
    let driver = driver(&daemon);
    let mut state = saved(&driver);
    state[8] += 1;
    assert!(!loaded(&driver, &state));
    daemon.says("run the same release on both hosts");
    assert!(!loaded(&driver, b"something else"));
    assert!(driver.front.vhost.check_device_state().is_err(), "nothing was begun");
    state[8] -= 1;
    assert!(loaded(&driver, &state), "the device is as it was");
}
