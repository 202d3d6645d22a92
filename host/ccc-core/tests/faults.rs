// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One test for each fault of the published pseudo-code, B1 to B24, as listed
//! in docs/algorithm.md.  Each fails if its fault comes back.
mod common;

use ccc_core::{CongestionState, EngineError, GroupConfig, Report, ShareOf};
use common::{Flow, Host, MSS, steady};

#[test]
fn b01_slow_start_doubles_the_aggregate_each_round() {
    let mut host = Host::new();
    let vm = host.vm(1.0);
    let mut flows = [host.flow(vm, 10)];
    host.round(&mut flows);
    assert_eq!(host.segments(), 20);
    host.round(&mut flows);
    assert_eq!(host.aggregate(), (40_000, None));
}

#[test]
fn b02_growth_needs_no_elected_flow_while_all_are_in_slow_start() {
    let mut host = Host::new();
    let vm = host.vm(1.0);
    let mut flows = [host.flow(vm, 10), host.flow(vm, 10), host.flow(vm, 10)];
    for _ in 0..3 {
        host.round(&mut flows);
    }
    assert!(host.segments() >= 60, "{} segments after 3 rounds from 10", host.segments());
}

#[test]
fn b03_all_timed_out_reduces_whatever_the_order() {
    for order in [[0, 1], [1, 0]] {
        let (mut host, vms) = steady(80, &[2]);
        let mut flows = vms[0].clone();
        let epoch = host.epoch();
        for i in order {
            host.time_out(&mut flows[i], epoch);
        }
        assert_eq!((host.segments(), order), (2, order));
    }
}

#[test]
fn b04_threshold_after_total_timeout_comes_from_the_window_before() {
    let (mut host, vms) = steady(80, &[2]);
    let mut flows = vms[0].clone();
    let epoch = host.epoch();
    host.time_out(&mut flows[0], epoch);
    host.time_out(&mut flows[1], epoch);
    assert_eq!(host.aggregate().1, Some(40_000));
}

#[test]
fn b05_no_threshold_is_granted_before_the_first_event() {
    let mut host = Host::new();
    let vm = host.vm(1.0);
    host.flow(vm, 10);
    host.flow(vm, 10);
    assert_eq!(host.grant(vm).ssthresh_level, None);
}

#[test]
fn b06_joins_and_leaves_are_neutral() {
    let (mut host, vms) = steady(80, &[1]);
    for _ in 0..10_000 {
        let joiner = host.flow(vms[0][0].vm, 10);
        host.leave(joiner);
    }
    assert_eq!((host.segments(), host.engine.flows()), (80, 1));
}

#[test]
fn b07_a_flow_that_left_is_not_asked_for_its_state() {
    let (mut host, vms) = steady(80, &[2]);
    let mut flows = vms[0].clone();
    host.leave(flows.pop().expect("two flows"));
    host.time_out(&mut flows[0], host.epoch());
    assert_eq!(host.segments(), 1, "the only flow left has timed out");
}

#[test]
fn b08_a_reduction_outlives_the_flow_that_caused_it() {
    let (mut host, vms) = steady(80, &[2]);
    let mut flow = vms[0][0];
    host.lose(&mut flow, host.epoch());
    host.leave(flow);
    assert_eq!(host.segments(), 40);
}

#[test]
fn b09_overlapping_recoveries_of_one_event_reduce_once() {
    let (mut host, vms) = steady(80, &[4]);
    let mut flows = vms[0].clone();
    let epoch = host.epoch();
    for flow in &mut flows {
        host.lose(flow, epoch);
    }
    host.recover(&mut flows[0]);
    for flow in &mut flows[1..] {
        host.send(flow);
    }
    assert_eq!(host.segments(), 40);
}

#[test]
fn b10_congestion_counts_while_another_flow_is_in_slow_start_or_recovery() {
    for state in [CongestionState::SlowStart, CongestionState::Recovery, CongestionState::Loss] {
        let (mut host, vms) = steady(80, &[2]);
        let mut flows = vms[0].clone();
        flows[1].report.state = state;
        host.send(&flows[1]);
        host.lose(&mut flows[0], host.epoch());
        assert_eq!(host.segments(), 40, "beside a flow in {state:?}");
    }
}

#[test]
fn b11_an_idle_limited_or_silent_flow_does_not_stop_the_others() {
    let rounds = 40;
    type Quieten = fn(&mut Host, &mut Flow);
    let cases: [(&str, Quieten); 3] = [
        ("idle", |host, flow| {
            flow.report.active = false;
            host.send(flow);
        }),
        ("application-limited", |host, flow| {
            flow.report.cwnd_limited = false;
            host.send(flow);
        }),
        ("silent", |host, _| {
            host.now = host.now.max(host.engine.next_deadline().expect("active flows"));
            host.engine.tick(host.now);
        }),
    ];
    for (what, quieten) in cases {
        let (mut host, vms) = steady(40, &[2]);
        let mut flows = vms[0].clone();
        quieten(&mut host, &mut flows[0]);
        for _ in 0..rounds {
            host.round(&mut flows[1..]);
        }
        let segments = host.segments();
        assert!((70..=82).contains(&segments), "{what}: 40 grew to {segments} in {rounds} rounds");
    }
}

#[test]
fn b12_a_smaller_window_without_an_event_shrinks_nothing() {
    let (mut host, vms) = steady(80, &[2]);
    let mut flow = vms[0][0];
    flow.report.cwnd_bytes = MSS;
    host.send(&flow);
    assert_eq!(host.segments(), 80);
}

#[test]
fn b13_repeated_and_late_reports_count_once() {
    let (mut host, vms) = steady(80, &[1]);
    let mut flow = vms[0][0];
    let late = flow;
    for _ in 0..80 {
        host.ack(&mut flow);
        host.send(&flow);
        host.send(&flow);
    }
    let grown = host.segments();
    host.send(&late);
    assert_eq!((grown, host.segments()), (81, 81));
}

#[test]
fn b14_a_timeout_is_told_from_slow_start() {
    let (mut host, vms) = steady(80, &[1]);
    let mut flow = vms[0][0];
    flow.report.state = CongestionState::SlowStart;
    host.send(&flow);
    assert_eq!(host.segments(), 80);
    host.time_out(&mut flow, host.epoch());
    assert_eq!(host.segments(), 1);
}

#[test]
fn b15_the_reduction_is_by_the_flows_own_factor() {
    let (mut host, vms) = steady(80, &[2]);
    let mut flow = vms[0][0];
    flow.report.beta = 45_875; // CUBIC's 0.7
    host.lose(&mut flow, host.epoch());
    let (cwnd_bytes, ssthresh_bytes) = host.aggregate();
    assert_eq!((host.segments(), ssthresh_bytes), (55, Some(cwnd_bytes)));
}

#[test]
fn b16_growth_is_the_controllers_own_and_not_the_difference_of_windows() {
    let (mut host, vms) = steady(80, &[1]);
    let mut flow = vms[0][0];
    flow.report.cwnd_bytes = 500 * MSS; // an inner algorithm with ideas of its own
    host.send(&flow);
    assert_eq!(host.segments(), 80);
}

#[test]
fn b17_all_flows_are_reduced_when_recovery_is_entered() {
    let (mut host, vms) = steady(80, &[1, 1]);
    let mut loser = vms[0][0];
    host.lose(&mut loser, host.epoch());
    assert_eq!(host.segments_of(&vms[1][0]), 20);
}

#[test]
fn b18_granted_windows_sum_to_the_aggregate_after_a_join() {
    let (mut host, mut vms) = steady(80, &[1]);
    let joiner = host.flow(vms[0][0].vm, 10);
    vms[0].push(joiner);
    let sum: u64 = vms[0].iter().map(|flow| host.window_of(flow)).sum();
    let whole = host.status().cwnd_bytes;
    assert!(sum <= whole && whole - sum <= 2, "{sum} of {whole} bytes are granted");
}

#[test]
fn b19_growth_does_not_depend_on_the_order_of_flows() {
    let grown = |order: [usize; 3]| {
        let (mut host, vms) = steady(90, &[3]);
        let mut flows: Vec<Flow> = order.iter().map(|i| vms[0][*i]).collect();
        for _ in 0..30 {
            host.round(&mut flows);
        }
        host.segments()
    };
    assert_eq!(grown([0, 1, 2]), grown([2, 1, 0]));
}

#[test]
fn b20_shares_by_rate_are_windows_in_proportion_to_srtt() {
    let mut host = Host::with(GroupConfig { share: ShareOf::Rate, ..GroupConfig::default() });
    let (near, far) = (host.vm(1.0), host.vm(1.0));
    let mut flows = [host.flow(near, 10), host.flow(far, 10)];
    flows[0].report.srtt_us = 20_000;
    flows[1].report.srtt_us = 200_000;
    for flow in &flows {
        host.send(flow);
    }
    let [near, far] = flows.map(|flow| {
        host.grant(flow.vm)
            .cwnd_bytes(u64::from(flow.report.priority) * u64::from(flow.report.srtt_us))
    });
    assert!(near.abs_diff(far / 10) <= 1, "windows {near} and {far} for 20 and 200 ms");
}

#[test]
fn b21_a_vm_has_its_weight_whatever_its_number_of_flows() {
    for flows in 1..=64 {
        let (host, vms) = steady(640, &[1, flows]);
        let [one, many] =
            [0, 1].map(|vm: usize| vms[vm].iter().map(|f| host.window_of(f)).sum::<u64>());
        assert!(one.abs_diff(many) <= 64, "1 flow has {one}, {flows} flows have {many}");
    }
}

#[test]
fn b22_no_priority_segment_size_or_empty_group_divides_by_zero() {
    let mut host = Host::new();
    let vm = host.vm(1.0);
    let report = Report { active: true, ..Report::default() };
    let refused = [
        (Report { priority: 0, ..report }, EngineError::ZeroPriority),
        (Report { mss_bytes: 0, ..report }, EngineError::ZeroMss),
    ];
    for (bad, reason) in refused {
        assert_eq!(host.engine.register(0, vm, host.group, &bad), Err(reason));
    }
    assert_eq!(host.grant(vm).level, 0);
    let flow = host.flow(vm, 10);
    host.leave(flow);
    assert!(!host.grant(vm).coupled);
}

#[test]
fn b23_the_threshold_is_one_value_of_the_aggregate() {
    let (mut host, vms) = steady(80, &[2]);
    let mut flow = vms[0][0];
    flow.report.ssthresh_bytes = Some(7 * MSS); // of one flow: says nothing of the sum
    host.send(&flow);
    assert_eq!(host.aggregate().1, Some(80_000));
}

#[test]
fn b24_a_lone_timeout_costs_one_reduction_and_keeps_the_others_going() {
    let (mut host, vms) = steady(80, &[4]);
    let mut flows = vms[0].clone();
    let epoch = host.epoch();
    host.time_out(&mut flows[0], epoch);
    assert_eq!(host.segments(), 40);
    // Repeats of the timer and the way from recovery to loss charge nothing.
    host.send(&flows[0]);
    host.lose(&mut flows[1], epoch);
    host.time_out(&mut flows[1], epoch);
    assert_eq!(host.segments(), 40);
}
