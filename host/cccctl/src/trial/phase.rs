// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What flows did while their group was coupled, or was not, from looks at them.
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use ccc_settings::{Want, dues};
use serde::Serialize;

/// A use of a slot of a VM: its VM, slot and generation.
pub type FlowId = (String, u64, u64);

/// A flow, at a look.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Bytes acknowledged, since it began.
    pub delivered: u64,
    /// Congestion events, of 2^16, since it began.
    pub events: u16,
    /// Smoothed round-trip time, microseconds; 0 if it is not known.
    pub srtt_us: u64,
    /// It has data under way or to send.
    pub active: bool,
}

/// What there was at a time: flows.
pub type Look = HashMap<FlowId, Flow>;

/// What a phase came to; what cannot be said is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Goodput of all flows, Mbit/s.
    pub goodput_mbit: Option<f64>,
    /// Congestion events for each gigabyte delivered.
    pub events_per_gbyte: Option<f64>,
    /// Mean smoothed round-trip time of what was delivered, milliseconds.
    pub rtt_ms: Option<f64>,
    /// How far the VM is from its share that is farthest, percent, of those that had
    /// something to send at every look.
    pub share_error_percent: Option<f64>,
    /// Mean time that flows took which began and ended meanwhile, seconds.
    pub completion_s: Option<f64>,
}

/// A flow that has been seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Duration,
    last: Duration,
    flow: Flow,
    /// It was there at the first look, so nobody knows how long it takes.
    old: bool,
}

/// A phase, look by look.
#[derive(Debug, Default)]
pub struct Phase {
    seen: HashMap<FlowId, Seen>,
    completed: Vec<Duration>,
    bytes: BTreeMap<String, u64>,
    active_looks: BTreeMap<String, u32>,
    events: u64,
    rtt_byte_us: f64,
    looks: u32,
    latest: Duration,
    came: u64,
}

impl Phase {
    /// Takes what there is at a time since the phase began.
    pub fn look(&mut self, at: Duration, look: &Look) {
        for (id, flow) in look {
            self.take(at, id, *flow);
        }
        let gone: Vec<FlowId> =
            self.seen.keys().filter(|id| !look.contains_key(*id)).cloned().collect();
        for seen in gone.iter().filter_map(|id| self.seen.remove(id)).filter(|seen| !seen.old) {
            // It ended between two looks.
            self.completed.push((seen.last + at) / 2 - seen.first);
        }
        self.count_active(look);
        self.looks += 1;
        self.latest = at;
    }

    /// Flows that came meanwhile, and were seen.
    pub fn came(&self) -> u64 {
        self.came
    }

    fn take(&mut self, at: Duration, id: &FlowId, flow: Flow) {
        let old = self.looks == 0;
        let before = self.seen.get(id).copied();
        // A flow that came since the latest look came between the two.
        let first = before.map_or((self.latest + at) / 2, |seen| seen.first);
        let old = before.map_or(old, |seen| seen.old);
        self.seen.insert(id.clone(), Seen { first, last: at, flow, old });
        let (delivered, events) = match before {
            Some(Seen { flow: before, .. }) => (
                flow.delivered.saturating_sub(before.delivered),
                flow.events.wrapping_sub(before.events),
            ),
            None if old => (0, 0),
            None => (flow.delivered, flow.events),
        };
        self.came += u64::from(before.is_none() && !old);
        self.events += u64::from(events);
        *self.bytes.entry(id.0.clone()).or_default() += delivered;
        self.rtt_byte_us += delivered as f64 * flow.srtt_us as f64;
    }

    fn count_active(&mut self, look: &Look) {
        let mut vms: Vec<&String> =
            look.iter().filter(|(_, flow)| flow.active).map(|((vm, ..), _)| vm).collect();
        vms.sort_unstable();
        vms.dedup();
        for vm in vms {
            *self.active_looks.entry(vm.clone()).or_default() += 1;
        }
    }

    /// What it came to, with what the VMs are to have.  Unless all flows were seen, nothing is
    /// known of what depends on the short ones.
    pub fn outcome(&self, wants: &BTreeMap<String, Want>, all_seen: bool) -> Outcome {
        let bytes = self.bytes.values().sum::<u64>() as f64;
        let of_bytes = |value: f64| (bytes > 0.0).then(|| value / bytes);
        let seconds: f64 = self.completed.iter().map(Duration::as_secs_f64).sum();
        let count = self.completed.len();
        Outcome {
            goodput_mbit: all_seen.then(|| bytes * 8e-6 / self.latest.as_secs_f64().max(1e-3)),
            events_per_gbyte: of_bytes(self.events as f64 * 1e9).filter(|_| all_seen),
            rtt_ms: of_bytes(self.rtt_byte_us / 1e3),
            share_error_percent: self.share_error(wants),
            completion_s: (all_seen && count > 0).then(|| seconds / count as f64),
        }
    }

    fn share_error(&self, wants: &BTreeMap<String, Want>) -> Option<f64> {
        let always = |vm: &String| self.active_looks.get(vm) == Some(&self.looks);
        let (wants, bytes): (Vec<Want>, Vec<f64>) = wants
            .iter()
            .filter(|(vm, _)| always(vm))
            .map(|(vm, want)| (*want, self.bytes.get(vm).copied().unwrap_or(0) as f64))
            .unzip();
        let sum: f64 = bytes.iter().sum();
        if wants.len() < 2 || sum == 0.0 {
            return None;
        }
        let rate = sum / self.latest.as_secs_f64().max(1e-3);
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

    fn flow(vm: &str, slot: u64, delivered: u64, events: u16) -> (FlowId, Flow) {
        let flow = Flow { delivered, events, srtt_us: 20_000, active: true };
        ((vm.to_owned(), slot, 1), flow)
    }

    fn wants(of_b: VmSettings) -> BTreeMap<String, Want> {
        let of_a = VmSettings { weight: 3.0, ..VmSettings::default() };
        [("a".to_owned(), Want::of(&of_a)), ("b".to_owned(), Want::of(&of_b))].into()
    }

    fn weights() -> BTreeMap<String, Want> {
        wants(VmSettings::default())
    }

    #[test]
    fn only_what_happens_meanwhile_counts() {
        let mut phase = Phase::default();
        let begin = [flow("a", 0, 1_000_000, 65_535), flow("b", 0, 9_000_000, 7)];
        phase.look(Duration::ZERO, &begin.into());
        let end = [flow("a", 0, 2_500_000, 1), flow("b", 0, 9_500_000, 7)];
        phase.look(Duration::from_secs(2), &end.into());
        let outcome = phase.outcome(&weights(), true);
        assert_eq!(outcome.goodput_mbit, Some(8.0));
        assert_eq!(outcome.events_per_gbyte, Some(1_000.0));
        assert_eq!(outcome.rtt_ms, Some(20.0));
        assert_eq!(outcome.share_error_percent, Some(0.0));
        assert_eq!(outcome.completion_s, None);
    }

    #[test]
    fn a_vm_that_pauses_has_no_share_to_be_held_to() {
        let mut phase = Phase::default();
        phase.look(Duration::ZERO, &[flow("a", 0, 0, 0), flow("b", 0, 0, 0)].into());
        phase.look(Duration::from_secs(1), &[flow("a", 0, 9, 0)].into());
        phase.look(Duration::from_secs(2), &[flow("a", 0, 18, 0), flow("b", 1, 3, 0)].into());
        assert_eq!(phase.outcome(&weights(), true).share_error_percent, None);
    }

    #[test]
    fn who_has_half_of_its_share_is_half_off() {
        let mut phase = Phase::default();
        phase.look(Duration::ZERO, &[flow("a", 0, 0, 0), flow("b", 0, 0, 0)].into());
        phase.look(Duration::from_secs(1), &[flow("a", 0, 500, 0), flow("b", 0, 500, 0)].into());
        // 1/2 where 1/4 is wanted.
        assert_eq!(phase.outcome(&weights(), true).share_error_percent, Some(100.0));
    }

    #[test]
    fn who_has_its_floor_or_its_cap_is_not_off() {
        let mut phase = Phase::default();
        phase.look(Duration::ZERO, &[flow("a", 0, 0, 0), flow("b", 0, 0, 0)].into());
        // 10 Mbit/s, half of them each.
        let end = [flow("a", 0, 625_000, 0), flow("b", 0, 625_000, 0)];
        phase.look(Duration::from_secs(1), &end.into());
        let error = |of_b| phase.outcome(&wants(of_b), true).share_error_percent;
        let floor = VmSettings { floor_mbit: 5.0, ..VmSettings::default() };
        let cap = VmSettings { weight: 9.0, cap_mbit: Some(5.0), ..VmSettings::default() };
        for bounded in [floor, cap] {
            assert!(error(bounded).is_some_and(|error| error < 0.01));
        }
        assert_eq!(error(VmSettings::default()), Some(100.0));
    }

    #[test]
    fn flows_that_come_and_go_are_timed() {
        let mut phase = Phase::default();
        let short = flow("b", 5, 40_000, 0);
        phase.look(Duration::ZERO, &[flow("b", 4, 1, 0)].into());
        phase.look(Duration::from_secs(1), &[short.clone()].into());
        phase.look(Duration::from_secs(2), &[short].into());
        phase.look(Duration::from_secs(3), &Look::new());
        let outcome = phase.outcome(&weights(), true);
        // From half a second to two and a half; of the old one nobody knows.
        assert_eq!(outcome.completion_s, Some(2.0));
        assert_eq!(phase.came(), 1);
        let goodput = outcome.goodput_mbit.expect("seen");
        assert!((goodput - 40_000.0 * 8e-6 / 3.0).abs() < 1e-9);
        let outcome = phase.outcome(&weights(), false);
        let unknown = (outcome.goodput_mbit, outcome.events_per_gbyte, outcome.completion_s);
        assert_eq!(unknown, (None, None, None));
    }
}
