// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Connections, and messages through them.
use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use rustix::process::{Pid, Resource, Rlimit};
use vhost::VhostBackend;

use super::{Attempt, Target};
use crate::support::frontend::{FrontEnd, Mode, QUEUE};

/// Fewer open files than the daemon has; fewer than one cannot be waited for.
const FEW: u64 = 3;
const GET_FEATURES: [u32; 3] = [1, 1, 0];
/// Bytes of an answer with one number.
const ANSWER: usize = 20;

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Counts connections.
pub fn half_messages(target: &Target, attempt: &Attempt) {
    while attempt.goes_on() {
        let mut stream = UnixStream::connect(&target.attacker).unwrap();
        // It may have been one too many, and be closed by now.
        let sent = stream.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 8]);
        // Until it is given up, or for a moment.
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let _ = stream.read(&mut [0; 1]);
        attempt.did(sent.is_ok().into());
    }
}

/// Counts requests.
pub fn answers_not_read(target: &Target, attempt: &Attempt) {
    while attempt.goes_on() {
        let mut stream = UnixStream::connect(&target.attacker).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        while attempt.goes_on() && stream.write_all(&bytes(&GET_FEATURES)).is_ok() {
            attempt.did(1);
        }
    }
}

/// Counts connections.
pub fn connections(target: &Target, attempt: &Attempt) {
    while attempt.goes_on() {
        drop(UnixStream::connect(&target.attacker).unwrap());
        attempt.did(1);
    }
}

/// Counts connections.
pub fn second_front_ends(target: &Target, attempt: &Attempt) {
    let _first = target.driver(Mode::Eventfd);
    connections(target, attempt);
}

/// Counts refusals.
pub fn refused_requests(target: &Target, attempt: &Attempt) {
    let front = FrontEnd::open(&target.attacker, Mode::Eventfd);
    while attempt.goes_on() {
        assert!(front.vhost.set_vring_num(9, QUEUE).is_err());
        front.vhost.get_features().unwrap();
        attempt.did(1);
    }
}

/// Counts front ends that waited until there were descriptors again.
pub fn out_of_descriptors(target: &Target, attempt: &Attempt) {
    while attempt.goes_on() {
        let before = limit_files(target.pid, Some(FEW));
        let mut waiting = UnixStream::connect(&target.attacker).unwrap();
        waiting.write_all(&bytes(&GET_FEATURES)).unwrap();
        waiting.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let early = waiting.read(&mut [0; ANSWER]);
        limit_files(target.pid, before);
        let waits = early.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(waits, "a front end was taken without a descriptor");
        waiting.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        waiting.read_exact(&mut [0; ANSWER]).expect("served once there are descriptors");
        attempt.did(1);
    }
}

/// Sets how many files the daemon may have open; how many it could before.
fn limit_files(pid: u32, most: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(pid as i32);
    // The daemon has raised its own to this.
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let to = Rlimit { current: most, maximum };
    rustix::process::prlimit(pid, Resource::Nofile, to).unwrap().current
}
