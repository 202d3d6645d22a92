// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What flows did while their group was coupled, or was not.
//!
//! The daemon adds up what each flow tells, to its last report.  Looks at the flows
//! themselves say how long they take and who always has something to send: the time between
//! two looks, for each at which a flow is there, is its time in the mean, however short.
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use ccc_settings::{Want, dues};
use serde::Serialize;

/// A use of a slot of a VM: its VM, slot and generation.
pub type FlowId = (String, u64, u64);

/// What the flows of a VM have told of so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Flows that came.
    pub came: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Congestion events.
    pub events: u64,
    /// Those of the bytes whose flow knew its round-trip time.
    pub rtt_bytes: u64,
    /// Smoothed round-trip times, one for each of those, milliseconds.
    pub rtt_byte_ms: u64,
}

impl Counts {
    /// What was counted since; nothing where somebody has begun anew.
    fn since(&self, before: &Counts) -> Option<Counts> {
        Some(Counts {
            came: self.came.checked_sub(before.came)?,
            delivered_bytes: self.delivered_bytes.checked_sub(before.delivered_bytes)?,
            events: self.events.checked_sub(before.events)?,
            rtt_bytes: self.rtt_bytes.checked_sub(before.rtt_bytes)?,
            rtt_byte_ms: self.rtt_byte_ms.checked_sub(before.rtt_byte_ms)?,
        })
    }
}

/// What there is at a time.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// All flows, and whether they have data under way or to send.
    pub flows: HashMap<FlowId, bool>,
    /// What each VM has counted, where the daemon says.
    pub counts: BTreeMap<String, Counts>,
}

/// What a phase came to; what cannot be said is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Goodput of all flows, Mbit/s.
    pub goodput_mbit: Option<f64>,
    /// Congestion events for each gigabyte delivered.
    pub events_per_gbyte: Option<f64>,
    /// Mean smoothed round-trip time of what was delivered, milliseconds.
    pub rtt_ms: Option<f64>,
    /// How far the VM is from its share that is farthest, percent, of those that are compared.
    pub share_error_percent: Option<f64>,
    /// Mean time of the flows that came in the first half, seconds, of none more than the
    /// second half is long: so long all of them were looked at.
    pub completion_s: Option<f64>,
}

/// A phase, look by look.
#[derive(Debug)]
pub struct Phase {
    /// When its first half is over.
    half: Duration,
    first: Option<Look>,
    /// The look at which the first half was over.
    middle: Option<(Duration, BTreeMap<String, Counts>)>,
    last: (Duration, BTreeMap<String, Counts>),
    /// Flows that came in the first half.
    came: HashMap<FlowId, Seen>,
    active_looks: BTreeMap<String, u32>,
    looks: u32,
}

/// When a flow that came was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// It was not there yet.
    before: Duration,
    first: Duration,
    last: Duration,
}

impl Phase {
    /// One that takes so long.
    pub fn new(time: Duration) -> Phase {
        Phase {
            half: time / 2,
            first: None,
            middle: None,
            last: (Duration::ZERO, BTreeMap::new()),
            came: HashMap::new(),
            active_looks: BTreeMap::new(),
            looks: 0,
        }
    }

    /// Takes what there is at a time since the phase began.
    pub fn look(&mut self, at: Duration, look: Look) {
        self.see(at, &look);
        let active = look.flows.iter().filter(|(_, active)| **active);
        for vm in active.map(|((vm, ..), _)| vm).collect::<BTreeSet<_>>() {
            *self.active_looks.entry(vm.clone()).or_default() += 1;
        }
        self.looks += 1;
        self.last = (at, look.counts.clone());
        if self.middle.is_none() && at >= self.half {
            self.middle = Some(self.last.clone());
        }
        self.first.get_or_insert(look);
    }

    fn see(&mut self, at: Duration, look: &Look) {
        let Some(there_first) = &self.first else { return };
        for id in look.flows.keys() {
            if let Some(seen) = self.came.get_mut(id) {
                seen.last = at;
            } else if self.middle.is_none() && !there_first.flows.contains_key(id) {
                let seen = Seen { before: self.last.0, first: at, last: at };
                self.came.insert(id.clone(), seen);
            }
        }
    }

    /// VMs that had something to send at every look.
    pub fn always_active(&self) -> BTreeSet<String> {
        let always = self.active_looks.iter().filter(|(_, looks)| **looks == self.looks);
        always.map(|(vm, _)| vm.clone()).collect()
    }

    /// What it came to, with what the VMs are to have, of which some are compared.
    pub fn outcome(&self, wants: &BTreeMap<String, Want>, compared: &BTreeSet<String>) -> Outcome {
        let counts = self.until(&self.last.1);
        let sum = |of: fn(&Counts) -> u64| {
            counts.as_ref().map(|counts| counts.values().map(of).sum::<u64>() as f64)
        };
        let bytes = sum(|of| of.delivered_bytes);
        let each = |value: Option<f64>, of: Option<f64>| {
            of.filter(|of| *of > 0.0).and_then(|of| Some(value? / of))
        };
        let wants = wants.iter().filter(|(vm, _)| compared.contains(*vm));
        Outcome {
            goodput_mbit: each(bytes.map(|bytes| bytes * 8e-6), Some(self.last.0.as_secs_f64())),
            events_per_gbyte: each(sum(|of| of.events).map(|events| events * 1e9), bytes),
            rtt_ms: each(sum(|of| of.rtt_byte_ms), sum(|of| of.rtt_bytes)),
            share_error_percent: counts.as_ref().and_then(|of| self.share_error(wants, of)),
            completion_s: self.completion(),
        }
    }

    /// What each VM counted until then, if all were counted.
    fn until(&self, counts: &BTreeMap<String, Counts>) -> Option<BTreeMap<String, Counts>> {
        let first = &self.first.as_ref()?.counts;
        let since =
            |(vm, before): (&String, &Counts)| Some((vm.clone(), counts.get(vm)?.since(before)?));
        (first.len() == counts.len()).then(|| first.iter().map(since).collect())?
    }

    /// In the mean of all that came, for not all of them were seen.
    fn completion(&self) -> Option<f64> {
        let (middle, counts) = self.middle.as_ref()?;
        let came: u64 = self.until(counts)?.values().map(|of| of.came).sum();
        let most = self.last.0.saturating_sub(*middle);
        let time = |seen: &Seen| (seen.first - seen.before) + (seen.last - seen.first).min(most);
        let times: f64 = self.came.values().map(|seen| time(seen).as_secs_f64()).sum();
        (came > 0).then(|| times / came as f64)
    }

    fn share_error<'a>(
        &self,
        wants: impl Iterator<Item = (&'a String, &'a Want)>,
        counts: &BTreeMap<String, Counts>,
    ) -> Option<f64> {
        let bytes = |vm| counts.get(vm).map_or(0.0, |of| of.delivered_bytes as f64);
        let (wants, bytes): (Vec<Want>, Vec<f64>) =
            wants.map(|(vm, want)| (*want, bytes(vm))).unzip();
        let sum: f64 = bytes.iter().sum();
        if wants.len() < 2 || sum == 0.0 {
            return None;
        }
        let rate = sum / self.last.0.as_secs_f64().max(1e-3);
        let dues = dues(rate as u64, &wants);
        let errors =
            bytes.iter().zip(dues).map(|(bytes, due)| (bytes / sum / due - 1.0).abs() * 100.0);
        errors.reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use ccc_settings::VmSettings;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Flows that have something to send, and what each VM has delivered.
    fn look<const F: usize, const V: usize>(
        flows: [(&str, u64); F],
        bytes: [(&str, u64); V],
    ) -> Look {
        let counts = |delivered_bytes| Counts { delivered_bytes, ..Counts::default() };
        Look {
            flows: flows.map(|(vm, slot)| ((vm.to_owned(), slot, 1), true)).into(),
            counts: bytes.map(|(vm, bytes)| (vm.to_owned(), counts(bytes))).into(),
        }
    }

    fn wants(of_b: VmSettings) -> BTreeMap<String, Want> {
        let of_a = VmSettings { weight: 3.0, ..VmSettings::default() };
        [("a".to_owned(), Want::of(&of_a)), ("b".to_owned(), Want::of(&of_b))].into()
    }

    fn outcome(phase: &Phase) -> Outcome {
        phase.outcome(&wants(VmSettings::default()), &phase.always_active())
    }

    #[test]
    fn only_what_is_counted_meanwhile_counts() {
        let mut phase = Phase::new(2 * SECOND);
        let mut begin = look([("a", 0), ("b", 0)], [("a", 1_000_000), ("b", 9_000_000)]);
        begin.counts.get_mut("a").expect("there").events = 9;
        let mut end = look([("a", 0), ("b", 0)], [("a", 2_500_000), ("b", 9_500_000)]);
        // Of half of the bytes no round-trip time is known.
        *end.counts.get_mut("a").expect("there") = Counts {
            came: 0,
            events: 11,
            rtt_bytes: 1_000_000,
            rtt_byte_ms: 20_000_000,
            ..end.counts["a"]
        };
        phase.look(Duration::ZERO, begin);
        phase.look(2 * SECOND, end);
        let expected = Outcome {
            goodput_mbit: Some(8.0),
            events_per_gbyte: Some(1_000.0),
            rtt_ms: Some(20.0),
            share_error_percent: Some(0.0),
            completion_s: None,
        };
        assert_eq!(outcome(&phase), expected);
    }

    #[test]
    fn what_nobody_counts_is_not_known() {
        let unknown = |end: Look| {
            let mut phase = Phase::new(SECOND);
            phase.look(Duration::ZERO, look([("a", 0)], [("a", 9)]));
            phase.look(SECOND, end);
            let of = outcome(&phase);
            [of.goodput_mbit, of.events_per_gbyte, of.rtt_ms, of.completion_s] == [None; 4]
        };
        assert!(unknown(look([("a", 0)], [])), "a daemon that does not say");
        assert!(unknown(look([("a", 0)], [("a", 3)])), "one that counts anew");
        assert!(unknown(look([("a", 0)], [("a", 12), ("b", 1)])), "others");
        assert!(!unknown(look([("a", 0)], [("a", 12)])));
    }

    #[test]
    fn a_vm_that_pauses_has_no_share_to_be_held_to() {
        let mut phase = Phase::new(2 * SECOND);
        phase.look(Duration::ZERO, look([("a", 0), ("b", 0)], [("a", 0), ("b", 0)]));
        phase.look(SECOND, look([("a", 0)], [("a", 9), ("b", 0)]));
        phase.look(2 * SECOND, look([("a", 0), ("b", 1)], [("a", 18), ("b", 3)]));
        assert_eq!(phase.always_active(), ["a".to_owned()].into());
        assert_eq!(outcome(&phase).share_error_percent, None);
    }

    #[test]
    fn only_vms_that_are_compared_have_shares() {
        let mut phase = Phase::new(SECOND);
        phase.look(Duration::ZERO, look([("a", 0), ("b", 0)], [("a", 0), ("b", 0)]));
        phase.look(SECOND, look([("a", 0), ("b", 0)], [("a", 500), ("b", 500)]));
        // 1/2 where 1/4 is wanted.
        assert_eq!(outcome(&phase).share_error_percent, Some(100.0));
        let one = phase.outcome(&wants(VmSettings::default()), &["a".to_owned()].into());
        assert_eq!(one.share_error_percent, None);
    }

    #[test]
    fn who_has_its_floor_or_its_cap_is_not_off() {
        let mut phase = Phase::new(SECOND);
        phase.look(Duration::ZERO, look([("a", 0), ("b", 0)], [("a", 0), ("b", 0)]));
        // 10 Mbit/s, half of them each.
        phase.look(SECOND, look([("a", 0), ("b", 0)], [("a", 625_000), ("b", 625_000)]));
        let error = |of_b| phase.outcome(&wants(of_b), &phase.always_active()).share_error_percent;
        let floor = VmSettings { floor_mbit: 5.0, ..VmSettings::default() };
        let cap = VmSettings { weight: 9.0, cap_mbit: Some(5.0), ..VmSettings::default() };
        for bounded in [floor, cap] {
            assert!(error(bounded).is_some_and(|error| error < 0.01));
        }
        assert_eq!(error(VmSettings::default()), Some(100.0));
    }

    const FLOW_BYTES: u64 = 250_000;
    const SECONDS: u64 = 300;

    /// A phase of flows of so many bytes, which come at any time, four in a second, and take
    /// from `least_ms` to `most_ms`.
    fn of_flows(least_ms: u64, most_ms: u64) -> Outcome {
        // Fractions of the golden ratio, as even as random numbers in the mean.
        let spread = |n: u64, over: u64| n * 618_034 % 1_000_000 * over / 1_000_000;
        let lives = |n: u64| {
            let begin = n * 250 + spread(n, 250);
            (begin, begin + least_ms + spread(n * 7 + 3, most_ms - least_ms))
        };
        let before = 20 * 1000;
        let flows: Vec<(u64, u64)> = (0..(SECONDS + 20) * 4).map(lives).collect();
        let mut phase = Phase::new(Duration::from_secs(SECONDS));
        for ms in (0..=SECONDS).map(|second| second * 1000) {
            let now = before + ms;
            let mut counts = Counts::default();
            let mut there = HashMap::new();
            for (slot, (begin, end)) in flows.iter().enumerate() {
                if *begin <= now {
                    counts.came += 1;
                    let told = FLOW_BYTES * (now.min(*end) - begin) / (end - begin);
                    counts.delivered_bytes += told;
                    counts.rtt_bytes += told;
                    counts.rtt_byte_ms += told * 20;
                    counts.events += u64::from(*end <= now);
                }
                if (*begin..*end).contains(&now) {
                    there.insert(("a".to_owned(), slot as u64, 1), true);
                }
            }
            let counts = [("a".to_owned(), counts)].into();
            phase.look(Duration::from_millis(ms), Look { flows: there, counts });
        }
        outcome(&phase)
    }

    #[test]
    fn short_flows_of_equal_load_make_no_difference_however_long_they_take() {
        for (least_ms, most_ms) in [(50, 350), (1000, 1400), (2000, 2800), (9000, 11_000)] {
            let of = of_flows(least_ms, most_ms);
            let near = |is: Option<f64>, expected: f64| {
                is.is_some_and(|is| (is / expected - 1.0).abs() < 0.01)
            };
            assert!(near(of.goodput_mbit, 8.0), "{of:?}");
            assert!(near(of.events_per_gbyte, 4_000.0), "{of:?}");
            assert!(near(of.rtt_ms, 20.0), "{of:?}");
            let seconds = (least_ms + most_ms) as f64 / 2e3;
            let time = of.completion_s.expect("some came");
            assert!((time - seconds).abs() < 0.05, "{time} of {seconds}");
        }
    }

    #[test]
    fn flows_that_outlast_a_phase_count_as_half_of_it() {
        let mut phase = Phase::new(4 * SECOND);
        for second in 0..=4 {
            let mut now = look([("a", 0), ("a", 1), ("a", 2)], [("a", 0)]);
            now.flows.retain(|(_, slot, _), _| *slot <= second);
            now.counts.get_mut("a").expect("there").came = second.min(2);
            phase.look(second as u32 * SECOND, now);
        }
        // Of the old one nobody knows; half a second more than is seen, in the mean.
        assert_eq!(outcome(&phase).completion_s, Some(3.0));
    }
}
