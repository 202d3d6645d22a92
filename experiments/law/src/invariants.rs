// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is compared of coupled and uncoupled runs, and by how much they may differ.
use crate::{
    bounds,
    judge::{Both, Finding},
    measure::Run,
    path::{FRAME_BYTES, MSS_BYTES},
    setup::{FlowSetup, VmSetup},
    spread::Mean,
};

/// The names of all.
pub const INVARIANTS: [&str; 11] = [
    "engine",
    "window",
    "sum",
    "interval",
    "losses",
    "share",
    "outside",
    "aggregate",
    "completion",
    "starvation",
    "verdict",
];

/// How bad each coupled run is, and what that is to be compared with.  Ratios are what
/// counts, so means are of logarithms.
#[derive(Debug)]
pub struct Compared {
    invariant: &'static str,
    what: &'static str,
    coupled: Vec<f64>,
    reference: Vec<f64>,
    bound: f64,
}

impl Compared {
    fn means(&self) -> [Mean; 2] {
        let logarithms = |of: &[f64]| of.iter().map(|one| one.ln()).collect::<Vec<f64>>();
        [&self.coupled, &self.reference].map(|of| Mean::of(&logarithms(of)))
    }

    /// How far apart the intervals are, beyond the bound: 1 is at it.
    fn excess(&self) -> f64 {
        let [coupled, reference] = self.means();
        (coupled.low() - reference.high()).exp() / self.bound
    }

    /// In how many phases it is far worse than all that it is compared with.
    fn gross(&self) -> usize {
        let worst = self.reference.iter().copied().fold(0.0, f64::max);
        self.coupled.iter().filter(|one| **one > bounds::GROSS * self.bound * worst).count()
    }

    /// By the means, or by too many phases that chance does not explain.
    pub fn is_beyond(&self) -> bool {
        let often = (bounds::GROSS_PART * self.coupled.len() as f64).ceil() as usize;
        self.excess() > 1.0 || self.gross() >= often
    }

    /// In words.
    pub fn finding(&self) -> Finding {
        let means = self.means();
        let number = |mean: Mean| format!("{:.4} (± {:.1} %)", mean.mean.exp(), 100.0 * mean.half);
        let [coupled, reference] = means.map(number);
        let (phases, gross) = (self.coupled.len(), self.gross());
        let detail = format!(
            "{}: expected at most {:.3} of {reference}, got {coupled}; {gross} of {phases} phases are grossly worse",
            self.what, self.bound
        );
        let excess = (means[0].mean - means[1].mean).exp() / self.bound;
        Finding { invariant: self.invariant, excess, detail }
    }
}

/// Runs of a case with different start phases.
#[derive(Default)]
pub struct Trial {
    phases: Vec<Both>,
}

impl Trial {
    /// One more phase.
    pub fn add(&mut self, both: Both) {
        self.phases.push(both);
    }

    /// Segments sent at a time.
    pub fn burst_segments(&self) -> u32 {
        self.phases[0].setup.burst_segments
    }

    /// By the name of the invariant; none, if the case says nothing about it.
    pub fn compare(&self, invariant: &str) -> Option<Compared> {
        match invariant {
            "window" => self.window(),
            "sum" => self.each("sum", "seconds for a megabit", 1.0 / bounds::SUM_OF_RUN, Both::sum),
            "interval" => self.interval(),
            "losses" => {
                self.each("losses", "segments, with the slack", bounds::LOSSES, Both::losses)
            }
            "share" => self.each("share", "error of the worst share", 1.0, Both::share),
            "outside" => {
                let what = "of all to the outside flow's";
                self.each("outside", what, 1.0 / bounds::AS_ONE, |one| one.as_one(true))
            }
            "aggregate" => {
                let what = "of all to the group's beside an outside flow";
                self.each("aggregate", what, 1.0 / bounds::AS_ONE, |one| one.as_one(false))
            }
            "completion" => self.each("completion", "seconds in the mean", 1.0, Both::completion),
            "starvation" => {
                let bound = 1.0 / bounds::STARVED;
                self.each("starvation", "of its due to a flow's bytes", bound, Both::starvation)
            }
            "verdict" => self.verdict(),
            _ => None,
        }
    }

    /// In no phase: all of these VMs are honest.
    fn verdict(&self) -> Option<Compared> {
        let most = self.phases.iter().map(|one| one.coupled.verdicts).max()?;
        Some(Compared {
            invariant: "verdict",
            what: "verdicts against honest VMs, and one",
            coupled: vec![1.0 + most as f64],
            reference: vec![1.0],
            bound: 1.5,
        })
    }

    /// In no phase: an aggregate without bound is no matter of chance.
    fn window(&self) -> Option<Compared> {
        let part = |one: &Both| {
            let (got, most) = one.window();
            got / most
        };
        let worst = self.phases.iter().map(part).fold(f64::MIN_POSITIVE, f64::max);
        Some(Compared {
            invariant: "window",
            what: "largest aggregate, in all that path, queue and flows account for",
            coupled: vec![worst],
            reference: vec![1.0],
            bound: 1.0,
        })
    }

    fn each(
        &self,
        invariant: &'static str,
        what: &'static str,
        bound: f64,
        of: impl Fn(&Both) -> Option<(f64, f64)>,
    ) -> Option<Compared> {
        let pairs: Vec<(f64, f64)> = self.phases.iter().filter_map(of).collect();
        let (coupled, reference) = pairs.into_iter().unzip::<f64, f64, Vec<f64>, Vec<f64>>();
        (!coupled.is_empty()).then_some(Compared { invariant, what, coupled, reference, bound })
    }

    /// Of each run the interval in which it has least, of what uncoupled runs have in the
    /// mean there: uncoupled runs have such intervals, too.
    fn interval(&self) -> Option<Compared> {
        let judged = self.phases[0].judged_intervals();
        let sums: Vec<[Vec<u64>; 2]> =
            self.phases.iter().map(|one| [one.coupled.sums(), one.reference().sums()]).collect();
        let mean =
            |at: usize| sums.iter().map(|s| s[1][at] as f64).sum::<f64>() / sums.len() as f64;
        let least = f64::from(bounds::INTERVAL_SEGMENTS * self.burst_segments() * MSS_BYTES);
        let expected: Vec<(usize, f64)> = judged
            .into_iter()
            .map(|at| (at, mean(at - 1).min(mean(at)).min(mean(at + 1))))
            .filter(|(_, bytes)| *bytes >= least)
            .collect();
        let worst = |run: &Vec<u64>| {
            let part = |(at, bytes): &(usize, f64)| bytes / (run[*at] as f64).max(bytes * 1e-3);
            expected.iter().map(part).fold(0.0, f64::max)
        };
        let [coupled, reference] =
            [0, 1].map(|kind| sums.iter().map(|s| worst(&s[kind])).collect());
        let what = "mean to what the worst interval has";
        let bound = 1.0 / bounds::SUM_OF_INTERVAL;
        let compared = Compared { invariant: "interval", what, coupled, reference, bound };
        (!expected.is_empty()).then_some(compared)
    }
}

fn is_limited(flow: &FlowSetup) -> bool {
    flow.rates_bit.iter().any(|(_, rate)| rate.is_some())
}

/// It has more to send than it may, as long as it is there.
fn is_bulk(flow: &FlowSetup) -> bool {
    flow.segments.is_none() && !is_limited(flow)
}

impl Both {
    /// Segments on the longest path and in its queue.
    fn path_segments(&self) -> f64 {
        let fastest = self.setup.rate_changes.iter().map(|(_, rate)| *rate);
        let fastest = fastest.chain([self.setup.rate_bit]).max().unwrap_or(0);
        self.setup.path_segments() as f64 * fastest as f64 / self.setup.rate_bit as f64
    }

    fn window(&self) -> (f64, f64) {
        let flows = self.setup.flows.len() as f64;
        let most = bounds::WINDOW * self.path_segments() + bounds::WINDOW_PER_FLOW * flows;
        (self.coupled.aggregate_peak_segments, most)
    }

    /// Intervals in which there is always something to send, and around which there is.
    fn judged_intervals(&self) -> Vec<usize> {
        let intervals = self.coupled.sums().len();
        let length_s = self.coupled.interval_s;
        let ns = |at: usize| (at as f64 * length_s * 1e9) as u64;
        let busy = |at: &usize| {
            let covers = |flow: &FlowSetup| {
                let ends = flow.stop_ns.is_none_or(|stop| stop >= ns(at + 2));
                is_bulk(flow) && flow.start_ns <= ns(at - 1) && ends
            };
            self.setup.flows.iter().any(covers)
        };
        (bounds::SKIPPED_INTERVALS..intervals.saturating_sub(1)).filter(busy).collect()
    }

    /// Whom the sum is compared with: beside an outside flow the group is to keep the path
    /// as busy as one flow would.
    fn reference(&self) -> &Run {
        self.as_one.as_ref().unwrap_or(&self.uncoupled)
    }

    /// Slow start is not judged where flows go on after it.
    fn sum(&self) -> Option<(f64, f64)> {
        let goes_on = self.setup.flows.iter().any(is_bulk);
        let skipped = if goes_on { bounds::SKIPPED_INTERVALS } else { 0 };
        let of = |run: &Run| {
            let sums = run.sums();
            let judged = &sums[skipped.min(sums.len())..];
            let mbit = judged.iter().sum::<u64>() as f64 * 8e-6;
            run.interval_s * judged.len() as f64 / mbit.max(1e-3)
        };
        Some((of(&self.coupled), of(self.reference())))
    }

    fn losses(&self) -> Option<(f64, f64)> {
        let per_flow = bounds::LOSSES_PER_FLOW * f64::from(self.setup.burst_segments);
        let slack = per_flow * self.setup.flows.len() as f64 / (bounds::LOSSES - 1.0);
        let of = |run: &Run| run.total_dropped() as f64 + slack;
        Some((of(&self.coupled), of(&self.uncoupled)))
    }

    /// Whether every coupled VM has more to send than it may, all the time.
    fn all_backlogged(&self) -> bool {
        let lasts = |flow: &FlowSetup| {
            is_bulk(flow) && flow.stop_ns.is_none() && flow.start_ns * 4 < self.setup.duration_ns
        };
        let backlogged = |vm: usize| self.setup.flows.iter().any(|f| f.vm == vm && lasts(f));
        let coupled: Vec<usize> =
            (0..self.setup.vms.len()).filter(|vm| self.setup.vms[*vm].has_device).collect();
        coupled.len() > 1 && coupled.into_iter().all(backlogged)
    }

    /// Relative error of the worst share, by weight, over the second half.
    fn worst_share(&self, run: &Run) -> f64 {
        let half = |vm: &Vec<u64>| vm[vm.len() / 2..].iter().sum::<u64>() as f64;
        let vms = self.setup.vms.iter().zip(&run.vm_bytes).filter(|(vm, _)| vm.has_device);
        let coupled: Vec<(f64, f64)> = vms.map(|(vm, bytes)| (vm.weight, half(bytes))).collect();
        let weights: f64 = coupled.iter().map(|(weight, _)| weight).sum();
        let sum: f64 = coupled.iter().map(|(_, bytes)| bytes).sum();
        let error = |(weight, bytes): &(f64, f64)| (bytes / (sum * weight / weights) - 1.0).abs();
        coupled.iter().map(error).fold(0.0, f64::max)
    }

    /// How many times what it has all have, of who is outside the group or of the group;
    /// and how many times if the group is one flow.
    fn as_one(&self, of_outside: bool) -> Option<(f64, f64)> {
        let outside = self.setup.outside()?;
        let part = |run: &Run| {
            let skipped = (run.sums().len() as f64 * bounds::AS_ONE_SKIPPED) as usize;
            let judged = |bytes: &[u64]| bytes[skipped..].iter().sum::<u64>() as f64;
            let (all, own) = (judged(&run.sums()), judged(&run.vm_bytes[outside]));
            all / if of_outside { own } else { all - own }.max(1.0)
        };
        Some((part(&self.coupled), part(self.as_one.as_ref()?)))
    }

    /// Segments that the flows of the VM with the least have in a round trip.
    fn least_share_segments(&self) -> f64 {
        let all: f64 = self.setup.vms.iter().map(|vm| vm.weight).sum();
        let of = |(number, vm): (usize, &VmSetup)| {
            let flows = self.setup.flows.iter().filter(|flow| flow.vm == number).count();
            let bits = self.setup.rate_bit as f64 * vm.delay_ns as f64 / 1e9;
            let held = bits / 8.0 / FRAME_BYTES as f64;
            let part = vm.weight / all / flows.max(1) as f64;
            (held + self.setup.limit_segments as f64 / 2.0) * part
        };
        self.setup.vms.iter().enumerate().map(of).fold(f64::MAX, f64::min)
    }

    fn share(&self) -> Option<(f64, f64)> {
        let least = bounds::SHARE_LEAST_SEGMENTS * f64::from(self.setup.burst_segments);
        if !self.all_backlogged() || self.least_share_segments() < least {
            return None;
        }
        Some((self.worst_share(&self.coupled).max(1e-6), bounds::SHARE_ERROR))
    }

    /// Whether the flow has more to send than it may, at that time.
    fn competes(&self, number: usize, at_ns: u64) -> bool {
        let flow = &self.setup.flows[number];
        let ends_ns = match (flow.stop_ns, self.uncoupled.completed_s[number]) {
            (Some(stop_ns), _) => stop_ns,
            (None, Some(after_s)) => flow.start_ns + (after_s * 1e9) as u64,
            (None, None) => u64::MAX,
        };
        !is_limited(flow) && flow.start_ns <= at_ns && at_ns < ends_ns
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

    /// Of the flows that end uncoupled; one that does not coupled took the rest of the run.
    fn completion(&self) -> Option<(f64, f64)> {
        let round_s = self.setup.delays_ns().1 as f64 / 1e9;
        let end_s = self.setup.duration_ns as f64 / 1e9;
        let of = |(number, uncoupled): (usize, &Option<f64>)| {
            let uncoupled = (*uncoupled)?;
            let left = end_s - self.setup.flows[number].start_ns as f64 / 1e9;
            let coupled = self.coupled.completed_s[number].unwrap_or(left);
            Some((coupled, (bounds::COMPLETION * uncoupled).max(self.due_s(number))))
        };
        let ended: Vec<(f64, f64)> =
            self.uncoupled.completed_s.iter().enumerate().filter_map(of).collect();
        let count = ended.len() as f64;
        let [coupled, most] =
            [ended.iter().map(|one| one.0).sum::<f64>(), ended.iter().map(|one| one.1).sum()];
        let most = most / count + bounds::COMPLETION_ROUNDS * round_s;
        (!ended.is_empty()).then_some((coupled / count, most))
    }

    fn starvation(&self) -> Option<(f64, f64)> {
        let flows = self.setup.flows.iter().zip(&self.coupled.flow_bytes).enumerate();
        let starved = flows.filter_map(|(number, (flow, bytes))| {
            let long = is_bulk(flow) && flow.stop_ns.is_none();
            if !long || flow.start_ns * 2 > self.setup.duration_ns {
                return None;
            }
            let alone = self.uncoupled.flow_bytes[number];
            let even = self.uncoupled.total_bytes() / self.setup.flows.len() as u64;
            let weights = self.setup.vms.iter().map(|vm| vm.weight);
            let lightest = self.setup.vms[flow.vm].weight / weights.fold(0.0, f64::max);
            let due = alone.min(even) as f64 * lightest;
            Some(due.max(1.0) / (*bytes as f64).max(1.0))
        });
        starved.max_by(f64::total_cmp).map(|ratio| (ratio, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(coupled: &[f64], reference: &[f64]) -> Compared {
        Compared {
            invariant: "sum",
            what: "seconds",
            coupled: coupled.to_vec(),
            reference: reference.to_vec(),
            bound: 1.1,
        }
    }

    #[test]
    fn one_phase_of_five_proves_nothing() {
        let found = compared(&[3.0, 1.0, 1.01, 0.99, 1.0], &[1.0, 1.02, 0.98, 1.0, 1.01]);
        assert!(!found.is_beyond(), "{found:?}");
    }

    #[test]
    fn two_of_five_twice_as_bad_are_no_chance() {
        let found = compared(&[3.0, 1.0, 2.5, 0.99, 1.0], &[1.0, 1.02, 0.98, 1.0, 1.01]);
        assert!(found.is_beyond(), "{found:?}");
    }

    #[test]
    fn a_little_in_every_phase_is_a_finding() {
        let found = compared(&[1.15, 1.16, 1.14, 1.15, 1.15], &[1.0, 1.01, 0.99, 1.0, 1.0]);
        assert!(found.is_beyond(), "{found:?}");
    }

    #[test]
    fn what_uncoupled_runs_do_themselves_is_none() {
        let found = compared(&[1.3, 1.6, 1.2, 1.5, 1.4], &[1.0, 1.7, 1.2, 1.5, 1.3]);
        assert!(!found.is_beyond(), "{found:?}");
    }
}
