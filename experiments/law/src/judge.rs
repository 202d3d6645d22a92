// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Compares a coupled run with the uncoupled one.
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

use crate::{bounds, draw::Case, measure::Run, setup::Setup, world};

/// The names of all invariants.
pub const INVARIANTS: [&str; 8] =
    ["engine", "window", "sum", "interval", "losses", "share", "completion", "starvation"];

/// A bound that does not hold.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Which.
    pub invariant: &'static str,
    /// How far beyond the bound: 1 is at it.
    pub excess: f64,
    /// The numbers.
    pub detail: String,
}

/// Runs a case both ways and judges it.
pub fn judge(case: &Case) -> Vec<Finding> {
    let setup = Setup::of(&case.scenario).expect("drawn of what is modelled");
    let uncoupled = world::run(&setup, false, case.interval_ns);
    let coupled = catch_unwind(AssertUnwindSafe(|| world::run(&setup, true, case.interval_ns)));
    let coupled = match coupled {
        Ok(run) => run,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let detail = text.unwrap_or_else(|| "the engine panicked".into());
            return vec![Finding { invariant: "engine", excess: f64::MAX, detail }];
        }
    };
    let both = Both { setup: &setup, uncoupled, coupled };
    let found = [
        both.window(),
        both.sum(),
        both.interval(),
        both.losses(),
        both.share(),
        both.completion(),
        both.starvation(),
    ];
    found.into_iter().flatten().collect()
}

struct Both<'a> {
    setup: &'a Setup,
    uncoupled: Run,
    coupled: Run,
}

fn found(invariant: &'static str, excess: f64, detail: String) -> Option<Finding> {
    (excess > 1.0).then_some(Finding { invariant, excess, detail })
}

fn least(got: f64, bound: f64, of: f64, invariant: &'static str, what: &str) -> Option<Finding> {
    let detail = format!("{what}: expected at least {bound} of {of:.3}, got {got:.3}");
    found(invariant, bound * of / got.max(of * 1e-3), detail)
}

impl Both<'_> {
    fn mbit(&self, bytes: u64, intervals: usize) -> f64 {
        bytes as f64 * 8.0 / 1e6 / (self.coupled.interval_s * intervals.max(1) as f64)
    }

    /// Segments on the longest path and in its queue.
    fn path_segments(&self) -> f64 {
        let fastest = self.setup.rate_changes.iter().map(|(_, rate)| *rate);
        let fastest = fastest.chain([self.setup.rate_bit]).max().unwrap_or(0);
        self.setup.path_segments() as f64 * fastest as f64 / self.setup.rate_bit as f64
    }

    fn window(&self) -> Option<Finding> {
        let flows = self.setup.flows.len() as f64;
        let most = bounds::WINDOW * self.path_segments() + bounds::WINDOW_PER_FLOW * flows;
        let got = self.coupled.aggregate_segments;
        let detail = format!("mean aggregate: expected at most {most:.0} segments, got {got:.0}");
        found("window", got / most, detail)
    }

    fn sum(&self) -> Option<Finding> {
        let of = |run: &Run| {
            let sums = run.sums();
            let judged = &sums[bounds::SKIPPED_INTERVALS.min(sums.len())..];
            self.mbit(judged.iter().sum(), judged.len())
        };
        least(of(&self.coupled), bounds::SUM_OF_RUN, of(&self.uncoupled), "sum", "Mbit/s")
    }

    fn interval(&self) -> Option<Finding> {
        let [uncoupled, coupled] = [&self.uncoupled, &self.coupled].map(Run::sums);
        let judged = bounds::SKIPPED_INTERVALS..coupled.len().saturating_sub(1);
        let findings = judged.filter_map(|at| {
            let around = &uncoupled[at - 1..=at + 1];
            let of = self.mbit(around.iter().copied().min().unwrap_or(0), 1);
            let from_s = at as f64 * self.coupled.interval_s;
            let what = format!("Mbit/s from {from_s:.2} s on");
            least(self.mbit(coupled[at], 1), bounds::SUM_OF_INTERVAL, of, "interval", &what)
        });
        findings.max_by(|a, b| a.excess.total_cmp(&b.excess))
    }

    fn losses(&self) -> Option<Finding> {
        let [uncoupled, coupled] = [&self.uncoupled, &self.coupled].map(Run::total_dropped);
        let per_flow = bounds::LOSSES_PER_FLOW * f64::from(self.setup.burst_segments);
        let slack = per_flow * self.setup.flows.len() as f64;
        let most = bounds::LOSSES * uncoupled as f64 + slack;
        let detail = format!("segments: expected at most {most:.0}, got {coupled}");
        found("losses", coupled as f64 / most, detail)
    }

    /// Whether every VM has more to send than it may, all the time.
    fn all_backlogged(&self) -> bool {
        let backlogged = |vm: usize| {
            self.setup.flows.iter().any(|flow| {
                flow.vm == vm
                    && flow.start_ns * 4 < self.setup.duration_ns
                    && flow.stop_ns.is_none()
                    && flow.segments.is_none()
                    && flow.rates_bit.iter().all(|(_, rate)| rate.is_none())
            })
        };
        self.setup.vms.len() > 1 && (0..self.setup.vms.len()).all(backlogged)
    }

    /// Relative error of the worst share, by weight, over the second half.
    fn worst_share(&self, run: &Run) -> f64 {
        let weights: Vec<f64> = self.setup.vms.iter().map(|vm| vm.weight).collect();
        let all: f64 = weights.iter().sum();
        let half = |vm: &Vec<u64>| vm[vm.len() / 2..].iter().sum::<u64>() as f64;
        let sum: f64 = run.vm_bytes.iter().map(half).sum();
        let error = |(vm, weight): (&Vec<u64>, &f64)| (half(vm) / (sum * weight / all) - 1.0).abs();
        run.vm_bytes.iter().zip(&weights).map(error).fold(0.0, f64::max)
    }

    /// Segments that the flows of the VM with the least have in a round trip.
    fn least_share_segments(&self) -> f64 {
        let all: f64 = self.setup.vms.iter().map(|vm| vm.weight).sum();
        let of = |(number, vm): (usize, &crate::setup::VmSetup)| {
            let flows = self.setup.flows.iter().filter(|flow| flow.vm == number).count();
            let bits = self.setup.rate_bit as f64 * vm.delay_ns as f64 / 1e9;
            let held = bits / 8.0 / crate::path::FRAME_BYTES as f64;
            let part = vm.weight / all / flows.max(1) as f64;
            (held + self.setup.limit_segments as f64 / 2.0) * part
        };
        self.setup.vms.iter().enumerate().map(of).fold(f64::MAX, f64::min)
    }

    fn share(&self) -> Option<Finding> {
        let least = bounds::SHARE_LEAST_SEGMENTS * f64::from(self.setup.burst_segments);
        if !self.all_backlogged() || self.least_share_segments() < least {
            return None;
        }
        let [uncoupled, coupled] =
            [&self.uncoupled, &self.coupled].map(|run| self.worst_share(run));
        let most = bounds::SHARE_ERROR;
        let detail = format!(
            "worst share's error: expected at most {most}, got {coupled:.3} (uncoupled {uncoupled:.3})"
        );
        found("share", coupled / most, detail)
    }

    /// Whether the flow has more to send than it may, at that time.
    fn competes(&self, number: usize, at_ns: u64) -> bool {
        let flow = &self.setup.flows[number];
        let ends_ns = match (flow.stop_ns, self.uncoupled.completed_s[number]) {
            (Some(stop_ns), _) => stop_ns,
            (None, Some(after_s)) => flow.start_ns + (after_s * 1e9) as u64,
            (None, None) => u64::MAX,
        };
        let limited = flow.rates_bit.iter().any(|(_, rate)| rate.is_some());
        !limited && flow.start_ns <= at_ns && at_ns < ends_ns
    }

    /// What a finite flow takes at exactly what is due to it of the uncoupled goodput:
    /// its VM's part by weight of those that compete when it starts, shared within.
    fn due_s(&self, number: usize) -> f64 {
        let flows = &self.setup.flows;
        let flow = &flows[number];
        let rivals = (0..flows.len()).filter(|other| self.competes(*other, flow.start_ns));
        let mut of_vm = vec![0_u32; self.setup.vms.len()];
        rivals.for_each(|other| of_vm[flows[other].vm] += 1);
        let there = self.setup.vms.iter().zip(&of_vm).filter(|(_, count)| **count > 0);
        let all: f64 = there.map(|(vm, _)| vm.weight).sum();
        let vm = flow.vm;
        let part = self.setup.vms[vm].weight / all / f64::from(of_vm[vm].max(1));
        let bytes = self.uncoupled.flow_bytes[number] as f64;
        let run_s = self.setup.duration_ns as f64 / 1e9;
        bytes * run_s / (self.uncoupled.total_bytes() as f64 * part)
    }

    fn completion(&self) -> Option<Finding> {
        let pairs = self.uncoupled.completed_s.iter().zip(&self.coupled.completed_s).enumerate();
        let ended: Vec<(f64, f64, f64)> =
            pairs.filter_map(|(flow, (u, c))| Some(((*u)?, self.due_s(flow), (*c)?))).collect();
        if ended.is_empty() {
            return None;
        }
        let count = ended.len() as f64;
        let mean = |of: &dyn Fn(&(f64, f64, f64)) -> f64| ended.iter().map(of).sum::<f64>() / count;
        let round_s = self.setup.delays_ns().1 as f64 / 1e9;
        let fair = mean(&|(uncoupled, due, _)| (bounds::COMPLETION * uncoupled).max(*due));
        let most = fair + bounds::COMPLETION_ROUNDS * round_s;
        let (uncoupled, coupled) = (mean(&|one| one.0), mean(&|one| one.2));
        let detail = format!(
            "{count} flows: expected at most {most:.3} s in the mean, got {coupled:.3} s (uncoupled {uncoupled:.3} s)"
        );
        found("completion", coupled / most, detail)
    }

    fn starvation(&self) -> Option<Finding> {
        let flows = self.setup.flows.iter().zip(&self.coupled.flow_bytes).enumerate();
        let starved = flows.filter_map(|(number, (flow, bytes))| {
            let long = flow.segments.is_none() && flow.stop_ns.is_none();
            let limited = flow.rates_bit.iter().any(|(_, rate)| rate.is_some());
            if !long || limited || flow.start_ns * 2 > self.setup.duration_ns {
                return None;
            }
            let alone = self.uncoupled.flow_bytes[number];
            let even = self.uncoupled.total_bytes() / self.setup.flows.len() as u64;
            let weights = self.setup.vms.iter().map(|vm| vm.weight);
            let lightest = self.setup.vms[flow.vm].weight / weights.fold(0.0, f64::max);
            let due = alone.min(even) as f64 * lightest;
            let what = format!("bytes of flow {number}");
            least(*bytes as f64, bounds::STARVED, due, "starvation", &what)
        });
        starved.max_by(|a, b| a.excess.total_cmp(&b.excess))
    }
}
