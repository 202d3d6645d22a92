// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Honest VMs in conditions drawn at random, at taps that judge: none may be judged.
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::{fuzz::case_of, setup::Setup, taps::Judged, world};

/// A case in which an honest VM was judged.
#[derive(Debug)]
pub struct False {
    /// Its number.
    pub run: u64,
    /// Those that were.
    pub judged: Vec<Judged>,
}

/// Watches so many conditions; those in which anybody was judged.
pub fn watched(runs: u64, seed: u64) -> Vec<False> {
    let (next, found) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let worker = || loop {
        let run = next.fetch_add(1, Ordering::Relaxed);
        if run >= runs {
            return;
        }
        let setup = Setup::of(&case_of(seed, run).scenario).expect("drawn of what is modelled");
        let judged = world::watch(&setup).judged;
        if !judged.is_empty() {
            found.lock().expect("no thread has panicked").push(False { run, judged });
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    let mut found = found.into_inner().expect("no thread has panicked");
    found.sort_by_key(|one| one.run);
    found
}
