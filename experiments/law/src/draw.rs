// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Conditions at random, as scenarios of the laboratory.
use ccc_lab::{random::Rng, scenario::Scenario};
use serde_json::{Value, json};

use crate::{path::FRAME_BYTES, setup::Setup};

/// What is drawn from; the powers of ten of most of it are equally likely.
const RATE_MBIT: [f64; 2] = [1.0, 100_000.0];
const RTT_MS: [f64; 2] = [0.1, 300.0];
const QUEUE_PRODUCTS: [f64; 2] = [0.125, 4.0];
/// No queue is shorter, in packets.
const LEAST_QUEUE: f64 = 10.0;
const MOST_VMS: u64 = 6;
const MOST_FLOWS: f64 = 64.0;
const WEIGHTS: [f64; 7] = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 0.5];
const DOORBELL_MS: [f64; 2] = [0.02, 5.0];
/// What a limited flow asks for, of the rate.
const LIMITED_PART: [f64; 2] = [0.01, 0.5];
/// And at least a segment with each write: with less, what a segment holds is Nagle's
/// to decide, which the model has not.
const LEAST_LIMITED_KBIT: f64 = 1_200.0;
const MOST_LIMITED_KBIT: f64 = 200_000.0;
const SHORT_BYTES: [f64; 2] = [4e3, 1e6];
const SHORT_FLOWS: f64 = 12.0;
const RATE_CHANGE: [f64; 2] = [0.25, 4.0];
/// Round trips, queue and all, over which goodput is averaged.
const INTERVAL_ROUNDS: f64 = 5.0;
const INTERVAL_S: [f64; 2] = [0.1, 5.0];
/// Intervals of a run, and the bursts that may be simulated.
const INTERVALS: f64 = 40.0;
const LEAST_INTERVALS: f64 = 14.0;
const MOST_BURSTS: f64 = 80_000.0;
/// Percent of the draws in which a flow outside the group shares the path.
const BESIDE_PERCENT: f64 = 10.0;
/// Segments on the path, and flows of the group, beside an outside flow: its part is that
/// of a mean over sawtooths, and longer ones would take too long.
const BESIDE_SEGMENTS: [f64; 2] = [10.0, 60.0];
const BESIDE_RTT_MS: [f64; 2] = [2.0, 200.0];
const BESIDE_QUEUE_PRODUCTS: [f64; 2] = [0.25, 2.0];
const BESIDE_FLOWS: f64 = 16.0;
/// The longest sawtooths, one for each two segments of path and queue, of such a run.
const BESIDE_SAWTOOTHS: f64 = 40.0;
/// Percent of those in which far VMs come, leave and come back beside a near one.
const RETURNS_PERCENT: f64 = 5.0;
const RETURNS_RATE_MBIT: [f64; 2] = [5.0, 200.0];
const RETURNS_RTT_MS: [f64; 2] = [30.0, 200.0];
/// What the near one is away, of what the far ones are.
const NEARER: [f64; 2] = [0.005, 0.2];
const NEAR_FLOWS: f64 = 8.0;
const FAR_FLOWS: f64 = 4.0;
/// Round trips, queue and all, from one return to the next, and the part in which they are there.
const RETURNS_ROUNDS: [f64; 2] = [20.0, 100.0];
const THERE_PART: [f64; 2] = [0.3, 0.8];
/// Percent in which a server answers far clients, each on a connection of its own.
const ANSWERS_PERCENT: f64 = 5.0;
const ANSWERS_RATE_MBIT: [f64; 2] = [5.0, 1_000.0];
const ANSWERS_RTT_MS: [f64; 2] = [5.0, 200.0];
const ANSWER_BYTES: [f64; 2] = [500.0, 200e3];
/// What the clients are away, of what the bulk flows beside them are.
const FARTHER: [f64; 2] = [1.0, 20.0];
const FARTHEST_MS: f64 = 300.0;
/// What they ask for, of the rate, and in how many connections at the most.
const ANSWERS_PART: [f64; 2] = [0.002, 0.2];
const MOST_ANSWERS: f64 = 300.0;
/// Percent in which VMs write in bursts, as many and of what path and queue hold.
const BURSTS_PERCENT: f64 = 5.0;
const BURST_PART: [f64; 2] = [0.05, 1.0];
/// Round trips, queue and all, from one burst to the next, and the part in which it is written.
const BURSTS_ROUNDS: [f64; 2] = [1.5, 20.0];
const BURST_WRITTEN: f64 = 0.2;
const MOST_BESIDE: u64 = 3;
/// Path and queue hold so many segments for each flow: with windows of a segment or two
/// the model departs from the laboratory.
const LEAST_SEGMENTS: u64 = 4;

/// One condition, and over what times its goodput is averaged.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is simulated.
    pub scenario: Scenario,
    /// Length of an interval.
    pub interval_ns: u64,
}

/// Draws conditions until there is one that can be simulated in reasonable time.
pub fn draw(seed: u64) -> Case {
    let mut rng = Rng(seed);
    // A generator's first numbers are near for near seeds.
    rng.next_u64();
    // Decided once: a condition that is drawn again is one of its kind.
    let drawn = kind(&mut rng);
    loop {
        if let Some(case) = drawn(&mut rng) {
            return case;
        }
    }
}

fn kind(rng: &mut Rng) -> fn(&mut Rng) -> Option<Case> {
    let percent = rng.uniform() * 100.0;
    if percent <= BESIDE_PERCENT {
        beside
    } else if percent <= BESIDE_PERCENT + RETURNS_PERCENT {
        returns
    } else if percent <= BESIDE_PERCENT + RETURNS_PERCENT + ANSWERS_PERCENT {
        answers
    } else if percent <= BESIDE_PERCENT + RETURNS_PERCENT + ANSWERS_PERCENT + BURSTS_PERCENT {
        bursts
    } else {
        anything
    }
}

/// Uniform in the logarithm.
pub(crate) fn log_uniform(rng: &mut Rng, [low, high]: [f64; 2]) -> f64 {
    low * (high / low).powf(rng.uniform())
}

fn chance(rng: &mut Rng, percent: f64) -> bool {
    rng.uniform() * 100.0 <= percent
}

pub(crate) fn below(rng: &mut Rng, count: u64) -> u64 {
    rng.next_u64() % count
}

/// To three digits: nobody reads more.
pub fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10_f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// Flows without end of one distance, beside one outside flow: only so is its part of
/// the path known.
fn beside(rng: &mut Rng) -> Option<Case> {
    let product = log_uniform(rng, BESIDE_SEGMENTS);
    let rtt_ms = rounded(log_uniform(rng, BESIDE_RTT_MS), 3);
    let rate_mbit = rounded(product * FRAME_BYTES as f64 * 8.0 / rtt_ms / 1e3, 3);
    let queue = (product * log_uniform(rng, BESIDE_QUEUE_PRODUCTS)).max(LEAST_QUEUE).round();
    let round_s = rtt_ms / 1e3 * (1.0 + queue / product);
    let duration_s = rounded(BESIDE_SAWTOOTHS * (product + queue) / 2.0 * round_s, 3);
    let count = 1 + below(rng, 3);
    let flows = log_uniform(rng, [1.0, BESIDE_FLOWS]) / count as f64;
    let mut vms: Vec<Value> = (0..count)
        .map(|_| json!({"flows": [{"count": log_uniform(rng, [1.0, flows.max(1.01)]).round() as u64}]}))
        .collect();
    vms.push(json!({"name": "outside", "congestion_control": "reno", "device": false, "flows": [{"count": 1}]}));
    let scenario = json!({
        "name": "drawn", "seed": rng.next_u64() >> 32, "duration_s": duration_s, "coupled": true,
        "daemon": "none", "vms": vms,
        "bottleneck": {"rate_mbit": rate_mbit, "limit_packets": queue as u64, "delay_ms": rtt_ms},
    });
    let scenario = Scenario::parse(&scenario.to_string()).expect("a scenario that can be");
    let all = (product + queue) as u64 >= LEAST_SEGMENTS * scenario_flows(&scenario);
    all.then_some(Case { scenario, interval_ns: (duration_s * 1e9 / INTERVALS) as u64 })
}

fn scenario_flows(scenario: &Scenario) -> u64 {
    scenario.vms.iter().flat_map(|vm| &vm.flows).map(|flows| u64::from(flows.count)).sum()
}

/// A near VM that its application limits, and far ones that come back again and again.
fn returns(rng: &mut Rng) -> Option<Case> {
    let rate_mbit = rounded(log_uniform(rng, RETURNS_RATE_MBIT), 3);
    let far_ms = rounded(log_uniform(rng, RETURNS_RTT_MS), 3);
    let product = rate_mbit * far_ms * 1e3 / 8.0 / FRAME_BYTES as f64;
    let queue = (product * log_uniform(rng, BESIDE_QUEUE_PRODUCTS)).max(LEAST_QUEUE).round();
    let round_s = far_ms / 1e3 * (1.0 + queue / product);
    let interval_s = rounded((INTERVAL_ROUNDS * round_s).max(INTERVAL_S[0]), 2);
    let duration_s = interval_s * INTERVALS;
    let period_s = round_s * log_uniform(rng, RETURNS_ROUNDS);
    let mut vms = vec![near(rng, rate_mbit, far_ms)?];
    for _ in 0..=below(rng, 3) {
        vms.push(json!({"flows": coming_back(rng, period_s, duration_s), "delay_ms": far_ms}));
    }
    let scenario = json!({
        "name": "drawn", "seed": rng.next_u64() >> 32, "duration_s": duration_s, "coupled": true,
        "daemon": "none", "vms": vms,
        "bottleneck": {"rate_mbit": rate_mbit, "limit_packets": queue as u64, "delay_ms": far_ms},
    });
    affordable(Scenario::parse(&scenario.to_string()).expect("a scenario that can be"), interval_s)
}

/// `None` if that is no limit on such a path.
fn near(rng: &mut Rng, rate_mbit: f64, far_ms: f64) -> Option<Value> {
    let count = log_uniform(rng, [1.0, NEAR_FLOWS]).round();
    let part = log_uniform(rng, LIMITED_PART) / count;
    let kbit = (rate_mbit * 1e3 * part).clamp(LEAST_LIMITED_KBIT, MOST_LIMITED_KBIT);
    let near = json!({
        "delay_ms": rounded(far_ms * log_uniform(rng, NEARER), 3),
        "flows": [{"count": count as u64, "rate_kbit": rounded(kbit, 2)}],
    });
    (count * kbit <= rate_mbit * 1e3 * LIMITED_PART[1]).then_some(near)
}

fn coming_back(rng: &mut Rng, period_s: f64, duration_s: f64) -> Vec<Value> {
    let count = log_uniform(rng, [1.0, FAR_FLOWS]).round() as u64;
    let there_s = period_s * log_uniform(rng, THERE_PART);
    let first_s = period_s * rng.uniform();
    let returns = ((duration_s - first_s) / period_s).max(0.0) as u32;
    let flows = |time: u32| {
        let start_s = first_s + f64::from(time) * period_s;
        json!({"count": count, "start_s": rounded(start_s, 4), "stop_s": rounded(start_s + there_s, 4)})
    };
    (0..=returns).map(flows).filter(|flows| flows["stop_s"].as_f64() < Some(duration_s)).collect()
}

/// A path of which bulk flows have the rest.
struct Shared {
    rate_mbit: f64,
    rtt_ms: f64,
    /// Segments that the path holds, and the queue.
    product: f64,
    queue: f64,
    interval_s: f64,
}

impl Shared {
    /// The longest distance is this many times that of the bulk flows.
    fn draw(rng: &mut Rng, farther: f64) -> Shared {
        let rate_mbit = rounded(log_uniform(rng, ANSWERS_RATE_MBIT), 3);
        let rtt_ms = rounded(log_uniform(rng, ANSWERS_RTT_MS), 3);
        let product = rate_mbit * rtt_ms * 1e3 / 8.0 / FRAME_BYTES as f64;
        let queue = (product * log_uniform(rng, BESIDE_QUEUE_PRODUCTS)).max(LEAST_QUEUE).round();
        let queue_ms = queue * FRAME_BYTES as f64 * 8.0 / rate_mbit / 1e3;
        let round_s = ((rtt_ms * farther).min(FARTHEST_MS) + queue_ms) / 1e3;
        let interval_s = (INTERVAL_ROUNDS * round_s).clamp(INTERVAL_S[0], INTERVAL_S[1]);
        Shared { rate_mbit, rtt_ms, product, queue, interval_s: rounded(interval_s, 2) }
    }

    fn round_s(&self) -> f64 {
        self.rtt_ms / 1e3 * (1.0 + self.queue / self.product)
    }

    fn duration_s(&self) -> f64 {
        self.interval_s * INTERVALS
    }

    fn case(&self, rng: &mut Rng, vms: Vec<Value>) -> Option<Case> {
        let mut scenario = json!({
            "name": "drawn", "seed": rng.next_u64() >> 32, "duration_s": self.duration_s(), "coupled": true,
            "daemon": "none", "vms": vms,
            "bottleneck": {"rate_mbit": self.rate_mbit, "limit_packets": self.queue as u64, "delay_ms": self.rtt_ms},
        });
        if chance(rng, 25.0) {
            scenario["doorbell_delay_ms"] = rounded(log_uniform(rng, DOORBELL_MS), 2).into();
        }
        let mut scenario = Scenario::parse(&scenario.to_string()).expect("a scenario that can be");
        let setup = Setup::of(&scenario).expect("drawn of what is modelled");
        let lasting = setup.flows.iter().filter(|flow| flow.segments.is_none()).count();
        scenario.duration_s =
            affordable_intervals(&setup, lasting, self.interval_s)? * self.interval_s;
        leave_out_later(&mut scenario);
        Some(Case { scenario, interval_ns: (self.interval_s * 1e9) as u64 })
    }
}

/// What would happen after the end.
fn leave_out_later(scenario: &mut Scenario) {
    let end_s = scenario.duration_s;
    for vm in &mut scenario.vms {
        vm.flows.retain(|flows| flows.start_s < end_s);
        vm.flows.iter_mut().for_each(|flows| flows.phases.retain(|phase| phase.at_s < end_s));
    }
    scenario.vms.retain(|vm| !vm.flows.is_empty());
}

fn bulk(rng: &mut Rng) -> Value {
    json!({"count": log_uniform(rng, [1.0, FAR_FLOWS]).round() as u64})
}

/// A server beside bulk flows of other VMs, or of its own.
fn answers(rng: &mut Rng) -> Option<Case> {
    let farther = log_uniform(rng, FARTHER);
    let path = Shared::draw(rng, farther);
    let mean_bytes = log_uniform(rng, ANSWER_BYTES);
    let rate_bytes = path.rate_mbit * 1e6 / 8.0 * log_uniform(rng, ANSWERS_PART);
    let every_s = mean_bytes / rate_bytes;
    if path.duration_s() / every_s > MOST_ANSWERS {
        return None;
    }
    let mut flows = Vec::new();
    let mut at_s = every_s * rng.uniform();
    // Of a time that is rounded up there may be nothing left.
    while rounded(at_s, 4) < path.duration_s() {
        let bytes = (mean_bytes * 2.0 * rng.uniform()).max(1.0) as u64;
        flows.push(json!({"start_s": rounded(at_s, 4), "bytes": bytes}));
        at_s += every_s * 2.0 * rng.uniform();
    }
    let mut vms = Vec::new();
    if chance(rng, 25.0) {
        flows.push(bulk(rng));
    } else {
        vms.extend((0..=below(rng, MOST_BESIDE)).map(|_| json!({"flows": [bulk(rng)]})));
    }
    let far_ms = rounded((path.rtt_ms * farther).min(FARTHEST_MS), 3);
    vms.push(json!({"flows": flows, "delay_ms": far_ms}));
    path.case(rng, vms)
}

/// VMs that write a part of what path and queue hold, and pause, beside bulk flows.
fn bursts(rng: &mut Rng) -> Option<Case> {
    let path = Shared::draw(rng, 1.0);
    let mut vms: Vec<Value> =
        (0..=below(rng, MOST_BESIDE)).map(|_| json!({"flows": [bulk(rng)]})).collect();
    for _ in 0..=below(rng, MOST_BESIDE) {
        let period_s = path.round_s() * log_uniform(rng, BURSTS_ROUNDS);
        let segments = (path.product + path.queue) * log_uniform(rng, BURST_PART);
        let written_s = period_s * BURST_WRITTEN;
        let kbit = rounded(segments * FRAME_BYTES as f64 * 8.0 / 1e3 / written_s, 3);
        if kbit > MOST_LIMITED_KBIT {
            return None;
        }
        let mut at_s = period_s * rng.uniform();
        let mut phases = Vec::new();
        while at_s + written_s < path.duration_s() {
            phases.push(json!({"at_s": rounded(at_s, 5), "rate_kbit": kbit}));
            phases.push(json!({"at_s": rounded(at_s + written_s, 5), "rate_kbit": 0}));
            at_s += period_s;
        }
        vms.push(json!({"flows": [{"rate_kbit": 0, "phases": phases}]}));
    }
    path.case(rng, vms)
}

fn anything(rng: &mut Rng) -> Option<Case> {
    let rate_mbit = rounded(log_uniform(rng, RATE_MBIT), 3);
    let rtt_ms = rounded(log_uniform(rng, RTT_MS), 3);
    let product = rate_mbit * rtt_ms * 1e3 / 8.0 / FRAME_BYTES as f64;
    let queue = (product * log_uniform(rng, QUEUE_PRODUCTS)).max(LEAST_QUEUE).round();
    let queue_ms = queue * FRAME_BYTES as f64 * 8.0 / rate_mbit / 1e3;
    let interval_s = INTERVAL_ROUNDS * (rtt_ms + queue_ms) / 1e3;
    let interval_s = rounded(interval_s.clamp(INTERVAL_S[0], INTERVAL_S[1]), 2);
    let duration_s = interval_s * INTERVALS;
    let vms = vms(rng, rate_mbit, rtt_ms, duration_s);
    let mut bottleneck =
        json!({"rate_mbit": rate_mbit, "limit_packets": queue as u64, "delay_ms": rtt_ms});
    if chance(rng, 15.0) {
        let to = (rate_mbit * log_uniform(rng, RATE_CHANGE)).min(RATE_MBIT[1]);
        let to = rounded(to, 3);
        let at_s = rounded(duration_s * (0.3 + 0.4 * rng.uniform()), 3);
        bottleneck["rate_changes"] = json!([{"at_s": at_s, "rate_mbit": to}]);
    }
    let mut scenario = json!({
        "name": "drawn", "seed": rng.next_u64() >> 32, "duration_s": duration_s, "coupled": true,
        "daemon": "none", "bottleneck": bottleneck, "vms": vms,
    });
    if chance(rng, 25.0) {
        scenario["doorbell_delay_ms"] = rounded(log_uniform(rng, DOORBELL_MS), 2).into();
    }
    let scenario = Scenario::parse(&scenario.to_string()).expect("a scenario that can be");
    affordable(scenario, interval_s)
}

/// Shorter, if so long a run would take too long; `None` if nothing of it is left.
fn affordable(mut scenario: Scenario, interval_s: f64) -> Option<Case> {
    let setup = Setup::of(&scenario).expect("drawn of what is modelled");
    let whole = affordable_intervals(&setup, setup.flows.len(), interval_s)?;
    let before_s = scenario.duration_s;
    scenario.duration_s = whole * interval_s;
    scale_times(&mut scenario, whole * interval_s / before_s);
    Some(Case { scenario, interval_ns: (interval_s * 1e9) as u64 })
}

/// How many can be simulated in reasonable time, with so many flows at a time.
fn affordable_intervals(setup: &Setup, flows: usize, interval_s: f64) -> Option<f64> {
    if setup.path_segments() < LEAST_SEGMENTS * flows as u64 {
        return None;
    }
    let burst_bits = f64::from(setup.burst_segments) * FRAME_BYTES as f64 * 8.0;
    let longest_s = MOST_BURSTS * burst_bits / setup.rate_bit as f64;
    let whole = (longest_s / interval_s).floor().min(INTERVALS);
    (whole >= LEAST_INTERVALS).then_some(whole)
}

/// What happens in a run of another length happens at other times.
fn scale_times(scenario: &mut Scenario, factor: f64) {
    let scale = |at_s: &mut f64| *at_s = rounded(*at_s * factor, 3);
    scenario.bottleneck.rate_changes.iter_mut().for_each(|change| scale(&mut change.at_s));
    for flows in scenario.vms.iter_mut().flat_map(|vm| &mut vm.flows) {
        scale(&mut flows.start_s);
        flows.stop_s.iter_mut().for_each(scale);
    }
}

fn vms(rng: &mut Rng, rate_mbit: f64, rtt_ms: f64, duration_s: f64) -> Vec<Value> {
    let count = 1 + below(rng, MOST_VMS);
    let weighted = chance(rng, 40.0);
    let spread = chance(rng, 50.0);
    let inner = if chance(rng, 60.0) { "" } else { "inner=cubic" };
    let all = log_uniform(rng, [1.0, MOST_FLOWS]);
    let vm = |number: u64| {
        let nearer = if spread && number > 0 { log_uniform(rng, [0.1, 1.0]) } else { 1.0 };
        let weight = WEIGHTS[if weighted { below(rng, 7) as usize } else { 0 }];
        let most = (all / count as f64).max(1.0);
        json!({
            "module_options": inner, "weight": weight, "delay_ms": rounded(rtt_ms * nearer, 3),
            "flows": flows(rng, most, rate_mbit, duration_s),
        })
    };
    (0..count).map(vm).collect()
}

/// Most VMs have flows without end; some come and go, some are limited, some short.
fn flows(rng: &mut Rng, most: f64, rate_mbit: f64, duration_s: f64) -> Vec<Value> {
    let count = log_uniform(rng, [1.0, most.max(1.01)]).round();
    let mut flows = Vec::new();
    let part = |rng: &mut Rng| rounded(duration_s * (0.1 + 0.8 * rng.uniform()), 3);
    if chance(rng, 85.0) {
        let mut bulk = json!({"count": count as u64});
        if chance(rng, 25.0) {
            bulk["start_s"] = (part(rng) / 2.0).into();
        }
        if chance(rng, 15.0) {
            bulk["stop_s"] = (duration_s / 2.0 + part(rng) / 2.0).into();
        }
        flows.push(bulk);
    }
    if chance(rng, 20.0) {
        let part = log_uniform(rng, LIMITED_PART);
        let kbit = (rate_mbit * 1e3 * part).clamp(LEAST_LIMITED_KBIT, MOST_LIMITED_KBIT);
        if kbit <= rate_mbit * 1e3 * LIMITED_PART[1] {
            flows.push(json!({"rate_kbit": rounded(kbit, 2)}));
        }
    }
    if flows.is_empty() || chance(rng, 25.0) {
        let shorts = log_uniform(rng, [1.0, SHORT_FLOWS]) as usize;
        for _ in 0..shorts {
            let bytes = log_uniform(rng, SHORT_BYTES) as u64;
            flows.push(json!({"start_s": part(rng), "bytes": bytes}));
        }
    }
    flows
}
