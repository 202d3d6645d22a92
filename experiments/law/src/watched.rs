// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Honest VMs in conditions drawn at random, at taps that judge: none may be judged.
use crate::{
    fuzz::{case_of, on_all_cores},
    setup::Setup,
    taps::Judged,
    world,
};

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
    on_all_cores(runs, |run| {
        let setup = Setup::of(&case_of(seed, run).scenario).expect("drawn of what is modelled");
        let judged = world::watch(&setup).judged;
        if judged.is_empty() { Vec::new() } else { vec![False { run, judged }] }
    })
}
