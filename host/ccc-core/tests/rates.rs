// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! With shares by rate, who counts may change: the sum of rates stays.
mod common;

use ccc_core::{CongestionState, GroupConfig, Micros, Report, ShareOf, VmId, Weight};
use common::{Flow, Host, MSS};
use proptest::{prelude::*, sample::select};

/// A backlogged flow as far away as that.
fn far(srtt_ms: u32) -> Report {
    let srtt_us = 1000 * srtt_ms;
    let state = CongestionState::Avoidance;
    Report { srtt_us, min_rtt_us: srtt_us, state, ..common::report(10) }
}

/// A host in congestion avoidance whose first VM's flow, alone, has that many segments.
fn alone(segments: u64, report: &Report, share: ShareOf) -> (Host, Flow) {
    let mut host = Host::with(GroupConfig { share, ..GroupConfig::default() });
    let vm = host.vm(1.0);
    let mut flow = host.flow_of(vm, report);
    while host.segments() < 2 * segments {
        host.now += 1_000_000;
        host.ack(&mut flow);
    }
    host.lose(&mut flow, host.epoch());
    host.recover(&mut flow);
    deliver(&mut host, &mut flow);
    (host, flow)
}

/// A second, in each of whose round trips a flow has its window delivered.
fn deliver(host: &mut Host, flow: &mut Flow) {
    let round_us = u64::from(flow.report.srtt_us);
    for _ in 0..1_000_000 / round_us {
        host.now += round_us;
        flow.report.delivered_bytes += host.window_of(flow);
        host.send(flow);
    }
}

/// Segments that the flow is granted, rounded to the nearest.
fn segments(host: &Host, flow: &Flow) -> u64 {
    (host.window_of(flow) + u64::from(MSS) / 2) / u64::from(MSS)
}

/// Bytes a second that all are granted together.
fn rate(host: &Host, flows: &[Flow]) -> f64 {
    let of = |flow: &Flow| host.window_of(flow) as f64 / f64::from(flow.report.srtt_us) * 1e6;
    flows.iter().map(of).sum()
}

#[test]
fn a_far_flow_takes_half_of_a_near_ones_rate_and_gives_it_back() {
    let (mut host, near) = alone(40, &far(10), ShareOf::Rate);
    let vm = host.vm(1.0);
    let joiner = host.flow_of(vm, &far(200));
    assert_eq!([&near, &joiner].map(|flow| segments(&host, flow)), [20, 400]);
    host.leave(joiner);
    assert_eq!((segments(&host, &near), host.segments()), (40, 40));
}

#[test]
fn reductions_leave_near_flows_two_segments_and_far_ones_one() {
    for (srtt_ms, left) in [(9, 8), (10, 4)] {
        let (mut host, first) = alone(40, &far(srtt_ms), ShareOf::Rate);
        let mut flows = [first; 4];
        for flow in &mut flows[1..] {
            *flow = host.flow_of(first.vm, &far(srtt_ms));
        }
        for _ in 0..10 {
            let epoch = host.epoch();
            host.lose(&mut flows[0], epoch);
            host.recover(&mut flows[0]);
        }
        assert_eq!(host.segments(), left, "{srtt_ms} ms");
    }
}

#[test]
fn shares_of_the_window_leave_the_window_as_it_is() {
    let (mut host, near) = alone(40, &far(10), ShareOf::Window);
    let vm = host.vm(1.0);
    let joiner = host.flow_of(vm, &far(200));
    assert_eq!((host.segments(), segments(&host, &near)), (40, 20));
    host.leave(joiner);
    assert_eq!((host.segments(), segments(&host, &near)), (40, 40));
}

#[test]
fn a_round_trip_time_that_drifts_moves_no_window_but_its_share() {
    let (mut host, mut near) = alone(40, &far(10), ShareOf::Rate);
    near.report.srtt_us = 20_000;
    host.send(&near);
    assert_eq!(host.segments(), 40);
}

#[test]
fn the_first_round_trip_time_that_is_known_of_a_flow_keeps_the_rate() {
    let (mut host, near) = alone(40, &far(10), ShareOf::Rate);
    let vm = host.vm(1.0);
    let mut joiner = host.flow_of(vm, &far(0));
    assert_eq!(segments(&host, &near), 20);
    joiner.report.srtt_us = 10_000;
    host.send(&joiner);
    assert_eq!([&near, &joiner].map(|flow| segments(&host, flow)), [20, 20]);
}

/// Reports of a second in which 40 ms of packets wait.
fn wait(host: &mut Host, flows: &mut [Flow]) {
    for _ in 0..100 {
        host.now += 10_000;
        for flow in flows.iter_mut() {
            (flow.report.srtt_us, flow.report.rtt_us) = (44_000, 44_000);
            host.ack(flow);
        }
    }
}

/// Three VMs of a flow each, 4 ms away.
fn three_near() -> (Host, [Flow; 3]) {
    let (mut host, near) = alone(120, &far(4), ShareOf::Rate);
    let mut another = || {
        let vm = host.vm(1.0);
        host.flow_of(vm, &far(4))
    };
    let flows = [near, another(), another()];
    (host, flows)
}

#[test]
fn who_comes_to_a_full_queue_takes_nothing_from_who_is_near() {
    let (mut host, mut flows) = three_near();
    host.leave(flows[2]);
    wait(&mut host, &mut flows[..2]);
    flows[2] = host.flow_of(flows[2].vm, &far(44));
    wait(&mut host, &mut flows);
    let windows = flows.map(|flow| segments(&host, &flow));
    assert!(windows.iter().all(|window| window.abs_diff(windows[2]) <= 1), "{windows:?}");
}

#[test]
fn what_waits_in_ones_own_queue_keeps_no_far_one_from_its_rate() {
    let windows = [0, 800].map(|own_ms| {
        let (mut host, mut flows) = three_near();
        host.leave(flows[2]);
        for _ in 0..100 {
            host.now += 10_000;
            let own_us = flows[1].report.min_rtt_us + 1000 * own_ms;
            (flows[1].report.srtt_us, flows[1].report.rtt_us) = (own_us, own_us);
            flows[0].report.rtt_us = flows[0].report.min_rtt_us;
            flows[..2].iter_mut().for_each(|flow| host.ack(flow));
        }
        let before = host.segments();
        host.flow_of(flows[2].vm, &far(150));
        host.segments() / before
    });
    assert!(windows[1] + 1 >= windows[0] && windows[0] > 5, "{windows:?}");
}

#[test]
fn who_comes_right_after_a_reduction_counts_what_is_to_wait_then() {
    let joined = |[come_us, go_us]: [Micros; 2]| {
        let (mut host, mut near) = alone(40, &far(10), ShareOf::Rate);
        let vm = host.vm(1.0);
        // Half of the window waits, for many round trips.
        (near.report.srtt_us, near.report.rtt_us) = (20_000, 20_000);
        (0..3).for_each(|_| deliver(&mut host, &mut near));
        let epoch = host.epoch();
        host.lose(&mut near, epoch);
        host.recover(&mut near);
        let left = host.segments();
        host.now += come_us;
        let joiner = host.flow_of(vm, &far(200));
        let times = host.segments() / left;
        host.now += go_us;
        host.leave(joiner);
        assert!(host.segments().abs_diff(left) <= 1, "who comes and goes leaves {left}");
        times
    };
    // None waits of what is left: from 10 to 105 ms in the mean, and from 20 to 115.
    let times = [[0, 0], [39_000, 2_000], [41_000, 0], [41_000, 500_000]].map(joined);
    assert_eq!(times, [10; 4]);
}

#[test]
fn who_says_that_nothing_waits_takes_nothing_from_who_is_near() {
    let (mut host, mut flows) = three_near();
    for _ in 0..100 {
        wait(&mut host, &mut flows[..2]);
        let liar = &mut flows[2];
        (liar.report.srtt_us, liar.report.rtt_us) = (44_000, liar.report.min_rtt_us);
        host.ack(liar);
    }
    let windows = flows.map(|flow| segments(&host, &flow));
    assert!(windows[..2].iter().all(|window| *window + 1 >= windows[2]), "{windows:?}");
}

#[test]
fn an_empty_group_remembers_a_rate() {
    let (mut host, near) = alone(40, &far(10), ShareOf::Rate);
    host.leave(near);
    let vm = host.vm(1.0);
    host.flow_of(vm, &far(200));
    assert_eq!(host.segments(), 800);
}

#[test]
fn a_remembered_window_is_not_a_rate_once_shares_are_others() {
    let (mut host, near) = alone(40, &far(10), ShareOf::Window);
    host.leave(near);
    host.configure(GroupConfig { share: ShareOf::Rate, ..GroupConfig::default() });
    let vm = host.vm(1.0);
    host.flow_of(vm, &far(200));
    assert_eq!(host.segments(), 40);
}

#[test]
fn an_undone_reduction_is_of_the_same_rate() {
    let (mut host, mut near) = alone(40, &far(10), ShareOf::Rate);
    host.lose(&mut near, host.epoch());
    let vm = host.vm(1.0);
    let joiner = host.flow_of(vm, &far(200));
    near.report.spurious_events += 1;
    host.recover(&mut near);
    assert_eq!([&near, &joiner].map(|flow| segments(&host, flow)), [20, 400]);
}

#[test]
fn in_a_cold_start_a_far_flow_brings_its_initial_window() {
    let mut host = Host::with(GroupConfig::default());
    let vms = [1.0, 1.0].map(|weight| host.vm(weight));
    host.flow_of(vms[0], &Report { state: CongestionState::SlowStart, ..far(10) });
    host.flow_of(vms[1], &Report { state: CongestionState::SlowStart, ..far(200) });
    assert_eq!(host.segments(), 20);
}

#[test]
fn what_ran_uncoupled_brings_its_rate() {
    let (mut host, near) = alone(40, &far(10), ShareOf::Rate);
    let vm = host.vm(1.0);
    let inflight_bytes = 40 * MSS;
    let brings = Report { inflight_bytes, cwnd_bytes: inflight_bytes, ..far(200) };
    let joiner = host.flow_of(vm, &brings);
    // 40 segments in 10 ms and 40 in 200 ms are 4,200 a second.
    assert_eq!([&near, &joiner].map(|flow| segments(&host, flow)), [21, 420]);
}

#[test]
fn flows_that_go_on_uncoupled_take_their_rate_along() {
    let (mut host, near) = alone(40, &far(10), ShareOf::Rate);
    let vm = host.vm(3.0);
    let gone = host.flow_of(vm, &far(200));
    host.engine.detach(host.now, &[gone.id]);
    assert_eq!(segments(&host, &near), 10);
}

/// Who counts changes.
#[derive(Clone, Debug)]
enum Change {
    Join { vm: usize, srtt_us: u32, priority: u16 },
    Leave(usize),
    Idle(usize),
    Wake(usize),
    Weight { vm: usize, weight: f64 },
    Priority { flow: usize, priority: u16 },
}

fn change() -> impl Strategy<Value = Change> {
    let priority = || 1..=2560_u16;
    prop_oneof![
        4 => (0..4_usize, 100..=250_000_u32, priority())
            .prop_map(|(vm, srtt_us, priority)| Change::Join { vm, srtt_us, priority }),
        1 => (0..64_usize).prop_map(Change::Leave),
        2 => (0..64_usize).prop_map(Change::Idle),
        2 => (0..64_usize).prop_map(Change::Wake),
        1 => (0..4_usize, select(vec![0.01, 0.5, 1.0, 4.0, 1000.0]))
            .prop_map(|(vm, weight)| Change::Weight { vm, weight }),
        1 => (0..64_usize, priority()).prop_map(|(flow, priority)| Change::Priority { flow, priority }),
    ]
}

/// Of so many VMs a flow counts always.
const ALWAYS: usize = 2;

/// Flows of some VMs.
struct World {
    host: Host,
    vms: Vec<VmId>,
    flows: Vec<Flow>,
}

impl World {
    fn take(&mut self, change: &Change) {
        let i = |i: usize, flows: &[Flow]| ALWAYS + i % (flows.len() - ALWAYS).max(1);
        match *change {
            Change::Join { vm, srtt_us, priority } => {
                let report = Report { priority, srtt_us, min_rtt_us: srtt_us, ..far(1) };
                self.flows.push(self.host.flow_of(self.vms[vm], &report));
            }
            Change::Weight { vm, weight } => {
                let weight = Weight::from_f64(weight).expect("in range");
                self.host.engine.set_weight(self.vms[vm], self.host.group, weight).expect("known");
            }
            _ if self.flows.len() <= ALWAYS => {}
            Change::Leave(flow) => {
                let flow = self.flows.remove(i(flow, &self.flows));
                self.host.leave(flow);
            }
            Change::Idle(flow) => self.with(i(flow, &self.flows), |report| report.active = false),
            Change::Wake(flow) => {
                self.with(i(flow, &self.flows), |report| report.active = true);
                // It wants all it can have.
                self.with(i(flow, &self.flows), |_| {});
            }
            Change::Priority { flow, priority } => {
                self.with(i(flow, &self.flows), |report| report.priority = priority);
            }
        }
    }

    fn with(&mut self, i: usize, edit: impl FnOnce(&mut Report)) {
        edit(&mut self.flows[i].report);
        self.host.send(&self.flows[i]);
    }

    fn counting(&self) -> Vec<Flow> {
        self.flows.iter().copied().filter(|flow| flow.report.active).collect()
    }
}

/// The group's window as a flow comes back whose round-trip time is of before a queue grew to
/// 90 ms, after it has said so often that it is idle.
fn found_by_who_rested(idle_reports: u32, min_rtt_us: u32) -> (u64, u64) {
    let (mut host, first) = alone(120, &far(100), ShareOf::Rate);
    let others = [first, host.flow(first.vm, 10)];
    let vm = host.vm(1.0);
    let mut rests = host.flow_of(vm, &far(100));
    rests.report.active = false;
    host.send(&rests);
    for mut other in others.into_iter().cycle().take(400) {
        (other.report.srtt_us, other.report.rtt_us) = (190_000, 190_000);
        other.report.min_rtt_us = 100_000;
        host.now += 10_000;
        host.send(&other);
    }
    host.engine.tick(host.now);
    (0..idle_reports).for_each(|_| host.send(&rests));
    let before = host.segments();
    (rests.report.active, rests.report.srtt_us) = (true, 110_000);
    rests.report.min_rtt_us = min_rtt_us;
    host.send(&rests);
    (before, host.segments())
}

#[test]
fn who_rested_is_as_far_away_as_it_was() {
    for idle_reports in [0, 1, 2] {
        let (before, after) = found_by_who_rested(idle_reports, 100_000);
        assert!(before.abs_diff(after) <= 2, "{before} to {after} after {idle_reports}");
    }
    let (before, after) = found_by_who_rested(1, 10_000);
    assert!(after < before * 9 / 10, "{before} to {after}: its path has become shorter");
}

/// A near one with a window of 20 segments, and one that was 100 ms away and has left.
fn left_alone() -> (Host, Flow, VmId) {
    let (mut host, near) = alone(20, &far(2), ShareOf::Rate);
    let vm = host.vm(1.0);
    let joiner = host.flow_of(vm, &far(100));
    assert_eq!(host.segments(), 510, "20 segments in 2 ms are 510 in 51");
    host.leave(joiner);
    (host, near, vm)
}

/// What a near one grows to while it is alone, of little that it needs, times the round-trip
/// time of far ones is more than any path holds.
#[test]
fn who_comes_back_to_a_near_one_finds_the_rate_of_when_it_left() {
    for rounds in [0, 90] {
        let (mut host, mut near, vm) = left_alone();
        // A round trip of which is seen each 100 ms.
        (0..rounds).for_each(|_| host.round(std::slice::from_mut(&mut near)));
        assert!(rounds == 0 || host.segments() > 80, "{} segments, grown from 20", host.segments());
        host.flow_of(vm, &far(100));
        assert_eq!(host.segments(), 510, "after {rounds} rounds");
    }
}

#[test]
fn who_comes_to_near_ones_that_use_little_begins_in_slow_start() {
    for rounds in [150, 1_000] {
        let (mut host, mut near, vm) = left_alone();
        (0..rounds).for_each(|_| host.round(std::slice::from_mut(&mut near)));
        let alone = host.segments();
        host.flow_of(vm, &far(100));
        let twice = 2 * alone * 51 / 100;
        assert!(
            (twice - 10..=twice + 10).contains(&host.segments()),
            "{} of {twice}",
            host.segments()
        );
        assert!(host.grant(vm).slow_start, "what there is besides is found out");
    }
}

#[test]
fn who_comes_to_near_ones_that_use_all_finds_its_part() {
    let (mut host, mut near, vm) = left_alone();
    // Meanwhile the path has become ten times as fast.
    while host.segments() < 200 {
        host.ack(&mut near);
        host.now += 1_000;
    }
    (0..12).for_each(|_| deliver(&mut host, &mut near));
    let grown = host.segments();
    host.flow_of(vm, &far(100));
    assert!(host.segments().abs_diff(grown * 51 / 2) <= 51, "{} of {grown}", host.segments());
}

/// What was there in other units is not what it left.
#[test]
fn who_comes_back_after_shares_were_windows_finds_nothing_of_before() {
    for (is_changed, found) in [(false, 510), (true, 10)] {
        let (mut host, mut near, vm) = left_alone();
        (0..90).for_each(|_| host.round(std::slice::from_mut(&mut near)));
        if is_changed {
            for share in [ShareOf::Window, ShareOf::Rate] {
                host.configure(GroupConfig { share, ..GroupConfig::default() });
            }
        }
        host.flow_of(vm, &far(100));
        assert_eq!(host.segments(), found, "changed: {is_changed}");
    }
}

/// One that says that it is a microsecond away would have 100,000 times its window beside
/// who is 100 ms away, at the same rate.
#[test]
fn who_comes_to_one_that_is_no_distance_away_begins_anew() {
    for (near_us, begins_anew) in [(2_000, false), (100, true), (1, true)] {
        let report = Report { srtt_us: near_us, min_rtt_us: near_us, ..far(1) };
        let (mut host, _near) = alone(20, &report, ShareOf::Rate);
        let vm = host.vm(1.0);
        host.flow_of(vm, &far(100));
        if begins_anew {
            assert_eq!(host.aggregate(), (10_000, None), "{near_us} us");
        } else {
            assert_eq!(host.segments(), 510, "20 segments in 2 ms are 510 in 51");
        }
        let third = host.vm(1.0);
        host.flow_of(third, &far(100));
        assert!(host.segments() <= 800, "{} segments of three", host.segments());
    }
}

#[test]
fn who_comes_to_one_that_is_no_distance_away_begins_anew_once_in_ten_seconds() {
    for (after_us, begins_anew) in [(1_000_000, false), (9_000_000, false), (10_000_000, true)] {
        let near = Report { srtt_us: 1, min_rtt_us: 1, ..far(1) };
        let (mut host, _near) = alone(20, &near, ShareOf::Rate);
        let vm = host.vm(1.0);
        let comes = host.flow_of(vm, &far(100));
        assert_eq!(host.aggregate(), (10_000, None));
        host.lose(&mut { comes }, host.epoch());
        host.leave(comes);
        host.now += after_us;
        host.flow_of(vm, &far(100));
        let is_new = host.status().ssthresh_bytes.is_none();
        assert_eq!(is_new, begins_anew, "after {after_us} us: {:?}", host.aggregate());
    }
}

proptest! {
    #[test]
    fn writes_of_an_application_scale_nothing_whatever_the_queue(
        srtts_ms in prop::collection::vec(1..500_u32, 1..100),
    ) {
        let (mut host, mut near) = alone(400, &far(10), ShareOf::Rate);
        let vm = host.vm(4.0);
        let mut writes = host.flow_of(vm, &far(30));
        let before = host.status();
        for srtt_ms in srtts_ms {
            near.report.srtt_us = 1000 * srtt_ms;
            host.send(&near);
            for (active, srtt_us) in [(false, 20_000), (true, 30_000)] {
                host.now += 300_000;
                writes.report = Report { active, srtt_us, ..writes.report };
                host.send(&writes);
            }
        }
        prop_assert_eq!(host.status(), before);
    }

    #[test]
    fn the_sum_of_rates_stays_whoever_counts(
        srtt_ms in 1..=250_u32,
        changes in prop::collection::vec(change(), 1..100),
    ) {
        let (mut host, first) = alone(400, &far(srtt_ms), ShareOf::Rate);
        let vms = [1.0, 1.0, 3.0].map(|weight| host.vm(weight));
        // What one VM alone has told is not always believed.
        let mut second = host.flow_of(vms[0], &far(srtt_ms));
        host.lose(&mut second, host.epoch());
        host.recover(&mut second);
        host.now += 1_000_000;
        let vms = [&[first.vm], &vms[..]].concat();
        let mut world = World { host, vms, flows: vec![first, second] };
        let before = rate(&world.host, &world.counting());
        for change in &changes {
            world.take(change);
            world.host.now += Micros::from(world.flows.len() as u64);
        }
        let after = rate(&world.host, &world.counting());
        // Windows are rounded down to bytes, and weights to 1/256.
        let rounding: f64 =
            world.counting().iter().map(|flow| 1e6 / f64::from(flow.report.srtt_us)).sum();
        prop_assert!((after - before).abs() <= before / 500.0 + rounding, "{before} became {after}");
    }
}

/// What the others' packets waited may be of a fuller queue, and is then longer than a near
/// flow's round trip now.
#[test]
fn a_near_flow_counts_its_round_trip_beside_others_that_waited_longer() {
    let mut host = Host::with(GroupConfig::default());
    host.now = 1;
    let flow = |host: &mut Host, srtt_ms| {
        let vm = host.vm(1.0);
        host.flow_of(vm, &far(srtt_ms))
    };
    let mut flows = [1, 50, 50].map(|srtt_ms| flow(&mut host, srtt_ms));
    // All the others say so of their own.
    host.now += 1_000_000;
    for (at, waits_us) in [(1, 20_000), (2, 20_000), (0, 4_000)] {
        for _ in 0..100 {
            let report = &mut flows[at].report;
            report.rtt_us = report.min_rtt_us + waits_us;
            report.srtt_us = report.rtt_us;
            let flow = flows[at];
            host.send(&flow);
        }
    }
    let rates = flows.map(|flow| host.window_of(&flow) as f64 / f64::from(flow.report.srtt_us));
    assert!(rates[0] > 0.95 * rates[1], "{rates:?}");
}
