// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A long life of one group, drawn at random: flows come and go all the time, weights change,
//! the daemon dies and comes back, and at the end of each day nobody is there for a while.
use std::fmt;

use ccc_core::GroupConfig;
use ccc_lab::{
    random::Rng,
    units::{bit_of_mbit, ns_of_s},
};

use crate::{
    draw::{below, log_uniform},
    inner::Inner,
    path::{MSS_BYTES, Nanos},
    setup::{FlowSetup, Restart, Setup, VmSetup},
    steady::Stall,
    taps::Judged,
    world,
};

const DAY_S: f64 = 86_400.0;
/// The last part of each day, and of the life, in which no flow is there.
const NIGHT_S: f64 = 300.0;
/// Path and queue hold more than four segments for each flow that may be there.
const RATE_MBIT: f64 = 4.0;
const QUEUE_SEGMENTS: u64 = 66;
const VMS: usize = 6;
const RTT_MS: [f64; 2] = [20.0, 200.0];
const WEIGHTS: [f64; 2] = [1.0, 4.0];
const DOORBELL_MS: [f64; 2] = [0.02, 5.0];
const WEIGHT_CHANGE_S: [f64; 2] = [60.0, 3600.0];
const LIFE_OF_DAEMON_S: [f64; 2] = [60.0, 12.0 * 3600.0];
/// From less than grants hold to many times that.
const DAEMON_AWAY_S: [f64; 2] = [0.01, 30.0];

/// Of each VM: one place of flows that stay, two of those that come and go.
const STAYS_S: [f64; 2] = [60.0, 12.0 * 3600.0];
const COMES_S: [f64; 2] = [1.0, 120.0];
const PLACES_S: [[f64; 2]; 3] = [STAYS_S, COMES_S, COMES_S];
const PAUSE_S: [f64; 2] = [1.0, 300.0];
const SHORT_BYTES: [f64; 2] = [4e3, 1e6];
/// What a limited flow writes: a segment each time, or more.
const LIMITED_KBIT: [f64; 2] = [1_200.0, 2_000.0];
const PRIORITIES: u64 = 3;

/// A flow that has data gets some of it through within that.
const MOST_STALL_NS: Nanos = 5_000_000_000;
const LEAST_GOODPUT_OF_LINK: f64 = 0.98;

/// Draws one of so many days.
pub fn drawn(seed: u64, days: f64) -> Setup {
    let mut rng = Rng(seed);
    let end_s = days * DAY_S;
    let vms: Vec<VmSetup> = (1..=VMS).map(|number| vm(&mut rng, number)).collect();
    Setup {
        name: format!("life-seed{seed}"),
        duration_ns: ns_of_s(end_s),
        rate_bit: bit_of_mbit(RATE_MBIT),
        rate_changes: Vec::new(),
        limit_segments: QUEUE_SEGMENTS,
        burst_segments: 1,
        group: GroupConfig::default(),
        doorbell_ns: ns_of_s(log_uniform(&mut rng, DOORBELL_MS) / 1e3),
        weight_changes: weight_changes(&mut rng, end_s),
        restarts: restarts(&mut rng, end_s),
        vms,
        flows: (0..VMS).flat_map(|vm| flows(&mut rng, vm, end_s)).collect(),
    }
}

fn vm(rng: &mut Rng, number: usize) -> VmSetup {
    VmSetup {
        name: format!("vm{number}"),
        weight: log_uniform(rng, WEIGHTS),
        delay_ns: ns_of_s(log_uniform(rng, RTT_MS) / 1e3),
        delay_changes: Vec::new(),
        has_device: true,
        link: None,
        lies: None,
    }
}

fn weight_changes(rng: &mut Rng, end_s: f64) -> Vec<(Nanos, usize, f64)> {
    let mut changes = Vec::new();
    let mut at_s = 0.0;
    loop {
        at_s += log_uniform(rng, WEIGHT_CHANGE_S);
        if at_s >= end_s {
            return changes;
        }
        let vm = below(rng, VMS as u64) as usize;
        changes.push((ns_of_s(at_s), vm, log_uniform(rng, WEIGHTS)));
    }
}

fn restarts(rng: &mut Rng, end_s: f64) -> Vec<Restart> {
    let mut restarts = Vec::new();
    let mut started_s = 0.0;
    loop {
        let killed_s = started_s + log_uniform(rng, LIFE_OF_DAEMON_S);
        started_s = killed_s + log_uniform(rng, DAEMON_AWAY_S);
        if started_s >= end_s {
            return restarts;
        }
        restarts.push(Restart { killed_ns: ns_of_s(killed_s), started_ns: ns_of_s(started_s) });
    }
}

/// Every other VM's are CUBIC.
fn flows(rng: &mut Rng, vm: usize, end_s: f64) -> Vec<FlowSetup> {
    let name = if vm % 2 == 0 { "reno" } else { "cubic" };
    let inner: Inner = name.parse().expect("an algorithm that the model has");
    let mut flows = Vec::new();
    for place_s in PLACES_S {
        let mut at_s = log_uniform(rng, PAUSE_S);
        while at_s < end_s {
            let night_s = ((at_s / DAY_S).ceil() * DAY_S).min(end_s) - NIGHT_S;
            let stop_s = (at_s + log_uniform(rng, place_s)).min(night_s);
            if stop_s > at_s {
                let flow = FlowSetup {
                    vm,
                    inner,
                    priority: 256 * (1 + below(rng, PRIORITIES)) as u16,
                    start_ns: ns_of_s(at_s),
                    stop_ns: Some(ns_of_s(stop_s)),
                    segments: None,
                    rates_bit: vec![(0, None)],
                };
                flows.push(if place_s == STAYS_S { flow } else { of_any_kind(rng, flow) });
            }
            at_s = stop_s.max(at_s) + log_uniform(rng, PAUSE_S);
        }
    }
    flows
}

/// A visitor has no end of data, or little of it, or writes at a rate.
fn of_any_kind(rng: &mut Rng, flow: FlowSetup) -> FlowSetup {
    match below(rng, 3) {
        0 => flow,
        1 => {
            let bytes = log_uniform(rng, SHORT_BYTES) as u64;
            FlowSetup { segments: Some(bytes.div_ceil(MSS_BYTES.into())), ..flow }
        }
        _ => {
            let bit = (log_uniform(rng, LIMITED_KBIT) * 1e3) as u64;
            FlowSetup { rates_bit: vec![(0, Some(bit))], ..flow }
        }
    }
}

/// What became of one.
#[derive(Debug)]
pub struct Lived {
    longest_stall: Stall,
    goodput_of_link: f64,
    busy_s: usize,
    left_flows: usize,
    quiet_looks: u64,
    verdicts: u64,
    /// VMs that taps have judged, all of which are honest.
    pub judged: Vec<Judged>,
}

/// Lives it.
pub fn live(setup: &Setup, coupled: bool) -> Lived {
    let (run, steady, judged) = world::live(setup, coupled);
    Lived {
        longest_stall: steady.longest,
        goodput_of_link: steady.goodput_of_link(setup, &run),
        busy_s: steady.busy_seconds.len(),
        left_flows: steady.left_flows,
        quiet_looks: steady.quiet_looks,
        verdicts: run.verdicts,
        judged,
    }
}

impl Lived {
    /// Nothing stalled, was left or wasted, and nobody was judged.
    pub fn holds(&self) -> bool {
        let all_went_on = self.longest_stall.lasted <= MOST_STALL_NS
            && self.goodput_of_link >= LEAST_GOODPUT_OF_LINK;
        all_went_on && self.left_flows == 0 && self.verdicts == 0 && self.judged.is_empty()
    }
}

impl fmt::Display for Lived {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Stall { flow, since, lasted } = self.longest_stall;
        let seconds = |ns: Nanos| ns as f64 / 1e9;
        write!(
            f,
            "goodput {:.4} of the link's in {} s with unsent data; longest stall {:.1} s \
             (flow {flow}, from {:.1} s); {} flows left at {} looks while nobody was there; \
             {} verdicts of the engine, {} of taps",
            self.goodput_of_link,
            self.busy_s,
            seconds(lasted),
            seconds(since),
            self.left_flows,
            self.quiet_looks,
            self.verdicts,
            self.judged.len(),
        )
    }
}
