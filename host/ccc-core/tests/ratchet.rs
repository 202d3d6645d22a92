// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who comes and goes, or changes its priority, leaves the aggregate as it was, whatever
//! it says of its round-trip times meanwhile.
mod common;

use ccc_core::{GroupConfig, Report, VmId};
use common::{Flow, Host, MSS, report};
use proptest::{prelude::*, sample::select};

const RTT_US: u32 = 100_000;
/// All have what their windows make of that acknowledged at once.
const STEP_US: u64 = 1_000;

/// A report of a flow so far away, without a queue.
fn away(srtt_us: u32) -> Report {
    Report { srtt_us, min_rtt_us: srtt_us, rtt_us: srtt_us, ..report(10) }
}

/// Flows of these round-trip times, each in a VM of its own, with so many segments.
fn steady(segments: u64, away_us: &[u32]) -> (Host, Vec<Flow>) {
    let mut host = Host::with(GroupConfig::default());
    host.now = 1;
    let flow = |us: &u32| {
        let vm = host.vm(1.0);
        host.flow_of(vm, &away(*us))
    };
    let mut flows: Vec<Flow> = away_us.iter().map(flow).collect();
    let mut acked = vec![0; flows.len()];
    while host.segments() < 2 * segments {
        host.now += STEP_US;
        for ((flow, us), acked) in flows.iter_mut().zip(away_us).zip(&mut acked) {
            *acked += host.window_of(flow) * STEP_US / u64::from(*us);
            (0..*acked / u64::from(MSS)).for_each(|_| host.ack(flow));
            *acked %= u64::from(MSS);
        }
    }
    // Nobody is new to its path any more.
    host.now += 10 * away_us.iter().copied().map(u64::from).max().unwrap_or(0);
    flows.iter().for_each(|flow| host.send(flow));
    let epoch = host.epoch();
    host.lose(&mut flows[0], epoch);
    host.recover(&mut flows[0]);
    (host, flows)
}

/// Packets of these flows wait so long from now on.
fn wait(host: &mut Host, flows: &mut [Flow], away_us: &[u32], waits_us: u32) {
    for _ in 0..100 {
        for (flow, us) in flows.iter_mut().zip(away_us) {
            flow.report.rtt_us = us + waits_us;
            flow.report.srtt_us = us + waits_us;
            host.send(flow);
        }
    }
}

/// What one VM's guest says.
#[derive(Clone, Copy, Debug)]
enum Word {
    Joins,
    Leaves(usize),
    Srtt(usize, u32),
    Rtt(usize, u32),
    Priority(usize, u16),
    Idle(usize, bool),
}

fn word() -> impl Strategy<Value = Word> {
    let flow = || 0..4_usize;
    let us = || select(vec![0, 1, 1_000, RTT_US, 1 << 20, u32::MAX]);
    prop_oneof![
        2 => Just(Word::Joins),
        2 => flow().prop_map(Word::Leaves),
        4 => (flow(), us()).prop_map(|(flow, us)| Word::Srtt(flow, us)),
        2 => (flow(), us()).prop_map(|(flow, us)| Word::Rtt(flow, us)),
        2 => (flow(), select(vec![1, 256, u16::MAX])).prop_map(|(flow, is)| Word::Priority(flow, is)),
        1 => (flow(), any::<bool>()).prop_map(|(flow, is)| Word::Idle(flow, is)),
    ]
}

/// A VM that says whatever it likes, and sends nothing.
struct Liar {
    vm: VmId,
    flows: Vec<Flow>,
}

impl Liar {
    fn new(host: &mut Host) -> Liar {
        Liar { vm: host.vm(1.0), flows: Vec::new() }
    }

    fn say(&mut self, host: &mut Host, word: Word) {
        match word {
            Word::Joins if self.flows.len() < 4 => {
                let limited = Report { cwnd_limited: false, ..away(RTT_US) };
                self.flows.push(host.flow_of(self.vm, &limited));
            }
            Word::Leaves(flow) if flow < self.flows.len() => {
                host.leave(self.flows.swap_remove(flow));
            }
            Word::Srtt(flow, us) => self.change(host, flow, |report| report.srtt_us = us),
            Word::Rtt(flow, us) => self.change(host, flow, |report| report.rtt_us = us),
            Word::Priority(flow, is) => self.change(host, flow, |report| report.priority = is),
            Word::Idle(flow, is) => self.change(host, flow, |report| report.active = !is),
            Word::Joins | Word::Leaves(_) => {}
        }
    }

    fn change(&mut self, host: &mut Host, flow: usize, edit: impl FnOnce(&mut Report)) {
        if let Some(flow) = self.flows.get_mut(flow) {
            edit(&mut flow.report);
            host.send(flow);
        }
    }

    fn leave(&mut self, host: &mut Host) {
        self.flows.drain(..).for_each(|flow| host.leave(flow));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_one_says_until_it_has_gone_leaves_the_others_as_they_were(
        words in prop::collection::vec(word(), 1..200),
    ) {
        let (mut host, flows) = steady(400, &[RTT_US; 3]);
        let before = host.status().cwnd_bytes;
        let windows: Vec<u64> = flows.iter().map(|flow| host.window_of(flow)).collect();
        let mut liar = Liar::new(&mut host);
        for word in words {
            liar.say(&mut host, word);
        }
        liar.leave(&mut host);
        let after = host.status().cwnd_bytes;
        prop_assert!(after.abs_diff(before) <= before / 100, "{before} to {after}");
        for (flow, before) in flows.iter().zip(windows) {
            prop_assert!(host.window_of(flow).abs_diff(before) <= before / 100);
        }
    }
}

#[test]
fn short_flows_whose_round_trip_times_rise_leave_the_aggregate_as_it_was() {
    for (joins_us, leaves_us) in [(10_000, 12_000), (1_000, 6_000), (160_000, 100_000)] {
        let (mut host, _) = steady(200, &[joins_us.min(leaves_us)]);
        let before = host.segments();
        let vm = host.vm(1.0);
        for _ in 0..50 {
            let mut short = host.flow_of(vm, &away(joins_us));
            short.report.srtt_us = leaves_us;
            host.send(&short);
            host.leave(short);
        }
        assert!(host.segments().abs_diff(before) <= 1, "{before} to {}", host.segments());
    }
}

/// A flow that has grown to 320 segments in its first slow start, and a VM beside it.
fn cold() -> (Host, VmId) {
    let mut host = Host::with(GroupConfig::default());
    host.now = 1;
    let vms = [1.0; 2].map(|weight| host.vm(weight));
    let mut flow = host.flow_of(vms[0], &away(RTT_US));
    // What leaves in bursts does not show how much the path holds.
    for acks in [10, 20, 40, 80, 160] {
        (0..acks).for_each(|_| host.ack(&mut flow));
        host.now += u64::from(RTT_US);
    }
    assert_eq!(host.aggregate(), (320_000, None));
    (host, vms[1])
}

/// One that sends nothing, so far away.
fn limited(away_us: u32) -> Report {
    Report { cwnd_limited: false, ..away(away_us) }
}

/// Of two that come, the first leaves first.
#[test]
fn who_comes_and_goes_leaves_a_cold_start_as_it_was() {
    let away_us = [0, 1_000, RTT_US / 2, RTT_US, 2 * RTT_US, 10 * RTT_US];
    for first in away_us {
        for second in away_us {
            let (mut host, vm) = cold();
            for _ in 0..30 {
                let flows = [first, second].map(|us| host.flow_of(vm, &limited(us)));
                flows.into_iter().for_each(|flow| host.leave(flow));
            }
            assert_eq!(host.aggregate(), (320_000, None), "{first} and {second} us away");
        }
    }
}

#[test]
fn a_far_flow_finds_as_much_of_a_cold_starts_rate_as_is_delivered() {
    for (away_us, found) in [(RTT_US, 320_000), (10 * RTT_US, 599_000)] {
        let (mut host, vm) = cold();
        let far = host.flow_of(vm, &away(away_us));
        // 239 segments in two round trips, twice; who is ten times as far is believed four.
        let (window, ssthresh) = host.aggregate();
        assert!(window.abs_diff(found) <= found / 100, "{away_us} us away: {window}");
        assert_eq!(ssthresh, None);
        host.leave(far);
        assert_eq!(host.aggregate(), (320_000, None), "{away_us} us away");
    }
}

#[test]
fn who_changes_what_it_says_leaves_a_cold_start_as_it_was() {
    for (away_us, other_us) in
        [(1_000, 10 * RTT_US), (10 * RTT_US, RTT_US), (0, 1_000), (0, 1 << 20)]
    {
        let (mut host, vm) = cold();
        let mut flows = [away_us, other_us].map(|us| host.flow_of(vm, &limited(us)));
        for priority in [u16::MAX, 1].into_iter().cycle().take(60) {
            for us in [away_us, other_us] {
                flows[0].report = Report { priority, ..limited(us) };
                host.send(&flows[0]);
            }
        }
        flows.into_iter().for_each(|flow| host.leave(flow));
        assert_eq!(host.aggregate(), (320_000, None), "{away_us} and {other_us} us away");
    }
}

/// A queue that has come up since a far flow came is no distance of the near ones.
#[test]
fn a_far_flow_leaves_a_queue_that_has_come_since_to_the_others() {
    let away_us = [10_000, 10_000, 200_000];
    let (mut host, mut flows) = steady(400, &away_us);
    wait(&mut host, &mut flows, &away_us, 30_000);
    let near = host.window_of(&flows[0]);
    host.leave(flows.pop().expect("three flows"));
    let after = host.window_of(&flows[0]);
    // It had a third of the rate, and the near ones have that now.
    assert!(after.abs_diff(near * 3 / 2) <= near / 20, "{near} to {after}");
}

#[test]
fn a_round_trip_time_that_is_not_known_any_more_is_the_last_one() {
    let (mut host, flows) = steady(200, &[10_000; 2]);
    let (before, windows) = (host.segments(), host.window_of(&flows[0]));
    let mut other = flows[1];
    other.report.srtt_us = 0;
    host.send(&other);
    assert_eq!((host.segments(), host.window_of(&flows[0])), (before, windows));
}
