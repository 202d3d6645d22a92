// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Changes while flows live: weights, sharing, policy settings, and flows that
//! were there before the engine.
mod common;

use ccc_core::{CongestionState, EquivalentTcps, GroupConfig, Report, ShareOf, Weight};
use common::{Flow, Host, MSS, steady};

#[test]
fn a_new_weight_is_in_force_at_once_and_leaves_the_aggregate() {
    let (mut host, vms) = steady(80, &[1, 4]);
    let weight = Weight::from_f64(4.0).expect("in range");
    host.engine.set_weight(vms[0][0].vm, host.group, weight).expect("known");
    assert_eq!((host.segments_of(&vms[0][0]), host.segments()), (64, 80));
}

#[test]
fn a_new_way_of_sharing_counts_live_flows_anew() {
    let (mut host, mut vms) = steady(80, &[1, 1]);
    vms[0][0].report.srtt_us = 300_000;
    vms[0][0].report.min_rtt_us = 300_000;
    host.send(&vms[0][0]);
    let rate = GroupConfig { share: ShareOf::Rate, ..GroupConfig::default() };
    host.configure(rate);
    let grant = host.grant(vms[0][0].vm);
    let units = u64::from(vms[0][0].report.priority) * 300_000;
    assert!(grant.rate_shares);
    assert_eq!(grant.cwnd_bytes(units) / u64::from(MSS), 59, "three quarters of 80");
}

#[test]
fn new_settings_keep_the_aggregate_and_begin_an_epoch() {
    let (mut host, vms) = steady(80, &[2]);
    let (epoch, reductions) = (host.epoch(), host.status().reductions);
    let equivalent_tcps = EquivalentTcps::from_f64(2.0).expect("in range");
    let config = GroupConfig { equivalent_tcps, share: ShareOf::Window, ..GroupConfig::default() };
    host.configure(config);
    assert_eq!(host.aggregate(), (80_000, Some(80_000)));
    assert_eq!((host.epoch(), host.status().reductions), (epoch + 1, reductions));
    let mut flow = vms[0][0];
    host.lose(&mut flow, epoch);
    assert_eq!(host.segments(), 80, "lost under the earlier settings");
    host.recover(&mut flow);
    host.lose(&mut flow, host.epoch());
    assert_eq!(host.segments(), 60, "two TCPs of which one halves");
    assert_eq!(host.status().reductions, reductions + 1);
}

fn running(cwnd: u32, ssthresh: Option<u32>) -> Report {
    Report {
        state: CongestionState::Avoidance,
        ssthresh_bytes: ssthresh.map(|segments| segments * MSS),
        srtt_us: 100_000,
        ..common::report(cwnd)
    }
}

#[test]
fn adopted_flows_make_up_the_aggregate_they_had() {
    let mut host = Host::with(GroupConfig::default());
    for (now, report) in [(0, running(30, Some(20))), (500_000, running(40, Some(30)))] {
        let vm = host.vm(1.0);
        host.engine.adopt(now, vm, host.group, &report).expect("adopted");
    }
    assert_eq!(host.aggregate(), (70_000, Some(50_000)));
}

#[test]
fn adopted_flows_know_better_than_an_empty_group_remembers() {
    let (mut host, vms) = steady(80, &[1]);
    host.leave(vms[0][0]);
    let found = running(30, Some(20));
    host.engine.adopt(host.now, vms[0][0].vm, host.group, &found).expect("adopted");
    assert_eq!(host.aggregate(), (30_000, Some(20_000)));
}

#[test]
fn others_give_up_what_a_burst_will_be_as_it_begins() {
    let (mut host, vms) = steady(80, &[1, 1]);
    let (bulk, mut writer) = (vms[0][0], vms[1][0]);
    writer.report.cwnd_bytes = 40 * MSS;
    let mut tells = |active, cwnd_limited, in_flight: u32| {
        let report = &mut writer.report;
        (report.active, report.cwnd_limited) = (active, cwnd_limited);
        report.inflight_bytes = in_flight * MSS;
        host.now += 400_000;
        host.send(&writer);
        host.segments_of(&bulk)
    };
    assert_eq!(tells(true, false, 30), 80, "nothing of it was delivered");
    assert_eq!(tells(false, false, 0), 80);
    assert_eq!(tells(false, false, 0), 80, "which it says twice");
    assert_eq!(tells(true, true, 0), 50, "as much again");
    assert_eq!(tells(true, false, 5), 80, "but it has less");
    assert_eq!(tells(false, false, 0), 80);
    assert_eq!(tells(true, true, 0), 75);
    assert_eq!(tells(false, true, 0), 80, "who is idle wants nothing, whatever it says");
}

#[test]
fn a_vm_that_comes_back_alone_is_a_joiner() {
    let (mut host, vms) = steady(80, &[1, 1]);
    host.leave(vms[1][0]);
    host.now += 100_000;
    let vm = vms[1][0].vm;
    host.engine.adopt(host.now, vm, host.group, &running(40, Some(40))).expect("adopted");
    assert_eq!(host.segments(), 80);
}

#[test]
fn flows_that_start_together_have_their_initial_windows() {
    let started = |flows: usize| {
        let mut host = Host::new();
        let vm = host.vm(1.0);
        for _ in 0..flows {
            host.flow(vm, 10);
        }
        host.segments()
    };
    assert_eq!([1, 2, 4, 16].map(started), [10, 20, 40, 160]);
}

#[test]
fn who_joins_when_slow_start_has_found_a_full_path_brings_nothing() {
    let mut host = Host::new();
    let vm = host.vm(1.0);
    let mut first = host.flow(vm, 10);
    let joined = |host: &mut Host| {
        let before = host.segments();
        let joiner = host.flow(vm, 10);
        let brought = host.segments() - before;
        host.leave(joiner);
        brought
    };
    host.ack(&mut first);
    assert_eq!(joined(&mut host), 10, "a window that nothing is known against");
    // A segment in 10 ms, so ten in the smallest round-trip time.
    for _ in 0..40 {
        host.now += 10_000;
        host.ack(&mut first);
    }
    assert_eq!(joined(&mut host), 0);
}

#[test]
fn an_undo_beside_others_does_not_bring_slow_start_back() {
    for (others, aggregate) in [(0, (10_000, None)), (1, (20_000, Some(20_000)))] {
        let mut host = Host::new();
        let vm = host.vm(1.0);
        let mut loses = host.flow(vm, 10);
        for _ in 0..others {
            let other = host.vm(1.0);
            host.flow(other, 10);
        }
        host.lose(&mut loses, host.epoch());
        loses.report.spurious_events += 1;
        host.recover(&mut loses);
        assert_eq!(host.aggregate(), aggregate, "beside {others}");
    }
}

/// A group that a VM has for itself is as small as it says.
#[test]
fn who_comes_to_a_smaller_window_than_it_begins_with_finds_out_more() {
    let mut host = Host::new();
    let (first, second) = (host.vm(1.0), host.vm(1.0));
    let mut loses = host.flow(first, 10);
    let lose = |host: &mut Host, flow: &mut Flow| {
        for _ in 0..5 {
            host.now += 100_000;
            host.lose(flow, host.epoch());
            host.recover(flow);
        }
    };
    lose(&mut host, &mut loses);
    assert_eq!(host.segments(), 1, "what is left to a flow that pauses");
    host.flow(first, 10);
    assert_eq!(host.segments(), 1, "another one of the same VM");
    let joiner = host.flow(second, 10);
    assert_eq!(host.aggregate(), (10_000, None));
    lose(&mut host, &mut loses);
    host.leave(joiner);
    let before = host.segments();
    host.flow(second, 10);
    assert!(host.segments() <= before && before < 10, "no VM does so again within ten seconds");
}

/// The test before this one, with the largest segments and after the others have lost, too.
#[test]
fn who_comes_back_to_a_group_that_another_has_emptied_finds_out_more() {
    let mut host = Host::new();
    let (first, second) = (host.vm(1.0), host.vm(1.0));
    let mut loses = host.flow(first, 10);
    let jumbo = Report { mss_bytes: 8948, cwnd_bytes: 89_480, ..common::report(10) };
    for _ in 0..3 {
        for _ in 0..5 {
            host.now += 100_000;
            host.lose(&mut loses, host.epoch());
            host.recover(&mut loses);
        }
        let mut comes = host.flow_of(second, &jumbo);
        assert_eq!(host.aggregate(), (89_480, None));
        host.now += 100_000;
        host.lose(&mut comes, host.epoch());
        host.leave(comes);
        host.now += 10_000_000;
        host.send(&loses);
    }
}

#[test]
fn flows_that_go_on_alone_take_their_parts_along() {
    let (mut host, vms) = steady(80, &[1, 4]);
    let gone: Vec<_> = vms[1].iter().map(|flow| flow.id).collect();
    host.engine.detach(host.now, &gone[..1]);
    assert_eq!(host.aggregate(), (70_000, Some(70_000)), "an eighth is gone");
    host.engine.detach(host.now, &gone[1..]);
    assert_eq!(host.aggregate(), (35_000, Some(35_000)));
    assert_eq!((host.segments_of(&vms[0][0]), host.status().active_flows), (35, 1));
}

#[test]
fn the_last_flows_that_go_on_alone_leave_what_is_remembered() {
    let (mut host, vms) = steady(80, &[4]);
    let gone: Vec<_> = vms[0].iter().map(|flow| flow.id).collect();
    host.engine.detach(host.now, &gone);
    assert_eq!((host.segments(), host.status().active_flows), (80, 0));
}

#[test]
fn e3_an_event_found_spurious_late_stays() {
    for (later, segments) in [(400_000, 80), (400_001, 40)] {
        let (mut host, vms) = steady(80, &[2]);
        let mut flow = vms[0][0];
        host.lose(&mut flow, host.epoch());
        host.now += later;
        flow.report.spurious_events += 1;
        host.send(&flow);
        assert_eq!(host.segments(), segments, "{later} us later, at a srtt of 100 ms");
    }
}

#[test]
fn a_flow_that_ran_alone_brings_what_it_has_on_the_path() {
    for (inflight, cwnd) in [(20, 30), (30, 20)] {
        let (mut host, vms) = steady(80, &[1]);
        let report = Report { inflight_bytes: inflight * MSS, ..running(cwnd, Some(cwnd)) };
        host.engine.register(host.now, vms[0][0].vm, host.group, &report).expect("registered");
        assert_eq!(host.aggregate(), (100_000, Some(100_000)));
    }
}

#[test]
fn adopted_flows_count_once_whatever_their_number() {
    for ssthresh in [None, Some(5)] {
        let mut host = Host::with(GroupConfig::default());
        let vm = host.vm(1.0);
        for _ in 0..24 {
            let report = Report { inflight_bytes: 10 * MSS, ..running(10, ssthresh) };
            host.engine.adopt(0, vm, host.group, &report).expect("adopted");
        }
        assert_eq!(host.aggregate().0, 240_000, "threshold {ssthresh:?}");
    }
}

/// A flow in slow start that goes on reporting a window of ten segments.
fn acked_at_ten_segments(host: &mut Host, flow: &mut Flow) {
    for _ in 0..1_000 {
        flow.report.acked_limited_bytes += u64::from(MSS);
        flow.report.delivered_bytes += u64::from(MSS);
        host.send(flow);
    }
}

#[test]
fn who_does_not_use_what_is_granted_does_not_grow_it_in_slow_start() {
    let mut host = Host::new();
    let vms = [1.0, 1.0].map(|weight| host.vm(weight));
    let mut limited = host.flow(vms[0], 10);
    acked_at_ten_segments(&mut host, &mut limited);
    assert_eq!(host.segments(), 21, "no more than twice its own, and one for an ACK");
    let mut other = host.flow(vms[1], 10);
    assert_eq!(host.segments(), 31, "with its initial window");
    host.ack(&mut other);
    assert_eq!(host.segments(), 32, "who uses what is granted grows it");
}

/// Rounds in which a quarter of the round-trip time is queueing delay.
fn wait_in_a_queue(host: &mut Host, flow: &mut Flow) {
    flow.report.rtt_us = 133_333;
    for _ in 0..4 {
        host.round(std::slice::from_mut(flow));
    }
}

#[test]
fn a_lone_flow_keeps_what_the_path_holds_once_at_the_end_of_slow_start() {
    let mut host = Host::new();
    let vm = host.vm(1.0);
    let mut flow = host.flow(vm, 10);
    wait_in_a_queue(&mut host, &mut flow);
    let before = host.segments();
    host.lose(&mut flow, host.epoch());
    assert_eq!(host.segments(), before * 3 / 4, "from slow start");
    host.recover(&mut flow);
    wait_in_a_queue(&mut host, &mut flow);
    let before = host.segments();
    host.lose(&mut flow, host.epoch());
    assert_eq!(host.segments(), before / 2, "as uncoupled");
}
