// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Makes a counterexample simpler while it still is one.
use ccc_lab::scenario::{Scenario, path::Bottleneck};

use crate::{
    draw::{Case, rounded},
    judge::{Finding, judge},
    setup::Setup,
};

/// Runs that one shrinking may take.
const MOST_TRIES: usize = 60;

/// The simplest case found that violates the same invariant, and how.
pub fn shrink(case: Case, finding: Finding) -> (Case, Finding) {
    // Simpler, and still at least half as bad.
    let least = (finding.excess - 1.0) / 2.0;
    let mut simplest = (case, finding);
    let mut left = MOST_TRIES;
    loop {
        let simpler = candidates(&simplest.0.scenario).into_iter().filter(is_sound);
        let better = simpler.take(left).find_map(|scenario| {
            left -= 1;
            let case = Case { scenario, ..simplest.0.clone() };
            let same = |found: &Finding| {
                found.invariant == simplest.1.invariant && found.excess - 1.0 >= least
            };
            let found = judge(&case).into_iter().find(same)?;
            Some((case, found))
        });
        match better {
            Some(better) => simplest = better,
            None => return simplest,
        }
    }
}

fn is_sound(scenario: &Scenario) -> bool {
    let whole = scenario.vms.iter().all(|vm| !vm.flows.is_empty()) && !scenario.vms.is_empty();
    whole && Setup::of(scenario).is_ok()
}

/// The scenario with one thing less, or rounder, each.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut simpler = Vec::new();
    let mut with = |edit: &dyn Fn(&mut Scenario)| {
        let mut edited = scenario.clone();
        edit(&mut edited);
        if differ(&edited, scenario) {
            simpler.push(edited);
        }
    };
    for vm in 0..scenario.vms.len() {
        with(&|s| drop(s.vms.remove(vm)));
    }
    for (vm, one) in scenario.vms.iter().enumerate() {
        for group in 0..one.flows.len() {
            with(&|s| drop(s.vms[vm].flows.remove(group)));
            with(&|s| s.vms[vm].flows[group].count = s.vms[vm].flows[group].count.div_ceil(2));
            with(&|s| s.vms[vm].flows[group].stop_s = None);
            with(&|s| s.vms[vm].flows[group].rate_kbit = None);
        }
        with(&|s| s.vms[vm].weight = 1.0);
    }
    with(&|s| s.doorbell_delay_ms = None);
    with(&|s| s.bottleneck.rate_changes.clear());
    with(&|s| s.vms.iter_mut().for_each(|vm| vm.module_options.clear()));
    with(&|s| s.vms.iter_mut().for_each(|vm| vm.delay_ms = None));
    with(&|s| round_path(&mut s.bottleneck, 1));
    with(&|s| s.vms.iter_mut().for_each(|vm| vm.delay_ms = vm.delay_ms.map(|d| rounded(d, 1))));
    with(&|s| s.vms.iter_mut().flat_map(|vm| &mut vm.flows).for_each(round_flows));
    simpler
}

fn differ(a: &Scenario, b: &Scenario) -> bool {
    serde_json::to_value(a).ok() != serde_json::to_value(b).ok()
}

fn round_path(path: &mut Bottleneck, digits: i32) {
    path.rate_mbit = rounded(path.rate_mbit, digits);
    path.delay_ms = rounded(path.delay_ms, digits);
    path.limit_packets = rounded(path.limit_packets.into(), digits) as u32;
}

fn round_flows(flows: &mut ccc_lab::scenario::flows::Flows) {
    flows.start_s = rounded(flows.start_s, 1);
    flows.bytes = flows.bytes.map(|bytes| rounded(bytes as f64, 1) as u64);
    flows.rate_kbit = flows.rate_kbit.map(|rate| rounded(rate, 1));
}
