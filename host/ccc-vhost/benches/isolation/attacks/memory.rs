// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest memory that goes away.
use std::{io::Read, os::unix::net::UnixStream};

use ccc_proto::wire;
use rustix::fs::FallocateFlags;

use super::{Attempt, Target};
use crate::support::{
    driver::Driver,
    frontend::{Mode, file_of, guest_of},
};

const GIB: usize = 1 << 30;

/// Counts disconnections, each after a fault in the daemon.
pub fn truncated(target: &Target, attempt: &Attempt) {
    while attempt.goes_on() {
        let mut driver = target.driver(Mode::Eventfd);
        driver.offer_extent(0, 4, 1);
        driver.offer_bell(wire::OP_RESCAN, 0, 0);
        file_of(&driver.guest).set_len(0).unwrap();
        driver.front.kick(wire::VQ_DOORBELL);
        await_end(&driver.front.stream);
        attempt.did(1);
    }
}

/// Waits until the daemon closes a connection.
fn await_end(mut stream: &UnixStream) {
    let ended = stream.read(&mut [0; 1]).expect("disconnected in time");
    assert_eq!(ended, 0, "the daemon answers what was not asked");
}

/// Counts guests, of whose memory the daemon is the last to have a descriptor.
pub fn ended(target: &Target, attempt: &Attempt) {
    while attempt.goes_on() {
        let guest = guest_of(GIB);
        let all = GIB as u64;
        rustix::fs::fallocate(file_of(&guest), FallocateFlags::empty(), 0, all).unwrap();
        let mut driver = Driver::connect_with(&target.attacker, Mode::Eventfd, guest);
        driver.offer_extent(0, 4, 1);
        let Driver { guest, front, .. } = driver;
        drop(guest);
        front.close();
        attempt.did(1);
    }
}
