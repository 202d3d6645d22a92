// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How fast the unmodified daemon is, behind real vhost-user front ends.
//!
//! `speed MEASUREMENT NAME=NUMBER...` prints one JSON document; `make bench` runs them all
//! and scores them.  What is counted is processor time of the daemon, so that a busy machine
//! counts less; what somebody waits is told beside what a bare eventfd takes in the same run.
//! With `CALLGRIND_OUT=FILE` the daemon runs under callgrind, with `CCC_VHOST=PROGRAM` it is
//! another build.
#![allow(clippy::unwrap_used, missing_docs)]
#[path = "../../tests/support/mod.rs"]
mod support;

mod fleet;
mod memory;
mod options;
mod publish;
mod updates;

use std::os::fd::{AsRawFd, BorrowedFd};

use options::Options;
use serde_json::Value;

type Measurement = fn(&Options) -> Value;

const ALL: [(&str, Measurement); 8] = [
    ("batches", updates::batches),
    ("stream", updates::stream),
    ("publish", publish::publish),
    ("latency", publish::latency),
    ("polled", publish::polled),
    ("flows", memory::flows),
    ("descriptors", memory::descriptors),
    ("idle", memory::idle),
];

/// A descriptor for as long as it is borrowed.
fn borrowed(fd: &impl AsRawFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open for as long as the borrow of its owner.
    unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) }
}

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    // `cargo bench` and `cargo test --all-targets` start it with nothing to measure.
    let Some(name) = words.next() else { return };
    let names = ALL.map(|(name, _)| name);
    let Some((_, measure)) = ALL.iter().find(|(known, _)| *known == name) else {
        eprintln!("speed: invalid measurement {name}: expected one of {names:?}");
        std::process::exit(2);
    };
    println!("{}", measure(&Options::new(words)));
}
