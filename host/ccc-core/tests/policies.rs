// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Policies beside ctrlTCP, as guests see them: what each grants, and changing
//! from one to another while flows live.
mod common;

use ccc_core::{CongestionState, GroupConfig, GrowthSource, PolicyKind, ShareOf};
use common::{Flow, Host, MSS};

/// Those that couple in congestion avoidance.
const COUPLING: [PolicyKind; 4] =
    [PolicyKind::CtrlTcp, PolicyKind::ETcp, PolicyKind::Cm, PolicyKind::Efcm];

fn config(policy: PolicyKind) -> GroupConfig {
    GroupConfig { policy, share: ShareOf::Window, ..GroupConfig::default() }
}

/// Two flows of a VM, `window` segments each by their own reports and in
/// congestion avoidance, under `policy`.
fn two_flows(policy: PolicyKind, window: u32) -> (Host, [Flow; 2]) {
    let mut host = Host::with(config(PolicyKind::Uncoupled));
    let vm = host.vm(1.0);
    let flows = [(); 2].map(|()| {
        let mut flow = host.flow(vm, window);
        flow.report.state = CongestionState::Avoidance;
        flow.report.ssthresh_bytes = Some(window * MSS);
        host.send(&flow);
        flow
    });
    host.configure(config(policy));
    (host, flows)
}

#[test]
fn uncoupled_flows_are_granted_nothing_and_counted() {
    let (mut host, mut flows) = two_flows(PolicyKind::Uncoupled, 40);
    assert!(!host.grant(flows[0].vm).coupled);
    let epoch = host.epoch();
    host.lose(&mut flows[0], epoch);
    assert_eq!((host.segments(), host.epoch()), (80, epoch), "nothing is reduced");
}

#[test]
fn a_policy_goes_on_from_what_uncoupled_flows_have() {
    for policy in COUPLING {
        let (host, flows) = two_flows(policy, 40);
        assert_eq!((host.segments(), host.segments_of(&flows[1])), (80, 40), "{policy:?}");
        assert_eq!(host.aggregate().1, Some(80_000), "{policy:?}");
    }
    let (host, flows) = two_flows(PolicyKind::Lisa, 40);
    assert!(!host.grant(flows[0].vm).coupled, "they have left slow start");
}

/// Segments that each policy leaves after one of two flows met `event` in 80.
fn left_after(event: fn(&mut Host, &mut Flow, u32)) -> [u64; 4] {
    COUPLING.map(|policy| {
        let (mut host, mut flows) = two_flows(policy, 40);
        let epoch = host.epoch();
        event(&mut host, &mut flows[0], epoch);
        host.segments()
    })
}

#[test]
fn one_drop_reduces_as_each_policy_says() {
    assert_eq!(left_after(Host::lose), [40, 40, 40, 60], "{COUPLING:?}");
}

#[test]
fn one_timeout_restarts_all_only_where_published_so() {
    assert_eq!(left_after(Host::time_out), [40, 2, 2, 41], "{COUPLING:?}");
}

#[test]
fn a_timeout_in_recovery_is_told_once() {
    for (policy, left) in [(PolicyKind::CtrlTcp, 40), (PolicyKind::ETcp, 2)] {
        let (mut host, mut flows) = two_flows(policy, 40);
        let epoch = host.epoch();
        host.lose(&mut flows[0], epoch);
        host.time_out(&mut flows[0], epoch);
        assert_eq!(host.segments(), left, "{policy:?}");
        assert_eq!(host.aggregate().1, Some(40_000), "{policy:?}");
    }
}

#[test]
fn efcm_flows_take_their_windows_along() {
    let (mut host, flows) = two_flows(PolicyKind::Efcm, 40);
    host.leave(flows[1]);
    assert_eq!((host.segments(), host.segments_of(&flows[0])), (40, 40));
}

#[test]
fn an_efcm_joiner_moves_all_back_to_slow_start() {
    let (mut host, flows) = two_flows(PolicyKind::Efcm, 40);
    assert!(!host.grant(flows[0].vm).slow_start);
    host.flow(flows[0].vm, 10);
    assert!(host.grant(flows[0].vm).slow_start);
    assert_eq!(host.segments(), 90);
}

#[test]
fn lisa_couples_until_the_first_loss() {
    let mut host = Host::with(config(PolicyKind::Lisa));
    let vm = host.vm(1.0);
    let mut flows = [host.flow(vm, 10), host.flow(vm, 10)];
    assert_eq!((host.segments_of(&flows[0]), host.grant(vm).coupled), (5, true));
    host.round(&mut flows);
    assert_eq!(host.segments(), 20);
    host.lose(&mut flows[0], host.epoch());
    assert!(!host.grant(vm).coupled);
    for flow in flows {
        host.leave(flow);
    }
    host.flow(vm, 10);
    assert!(host.grant(vm).coupled, "an empty group begins anew");
}

#[test]
fn a_change_of_policy_keeps_the_window() {
    let (mut host, _flows) = two_flows(PolicyKind::CtrlTcp, 40);
    for policy in
        [PolicyKind::ETcp, PolicyKind::Efcm, PolicyKind::Cm, PolicyKind::Delay, PolicyKind::CtrlTcp]
    {
        let epoch = host.epoch();
        host.configure(config(policy));
        assert_eq!((host.segments(), host.epoch()), (80, epoch + 1), "{policy:?}");
    }
}

/// Segments the aggregate of a near and a far flow grows in a round trip of
/// the far one, in which the near one has ten.
fn growth(growth_source: GrowthSource) -> u64 {
    let (mut host, mut flows) = two_flows(PolicyKind::Uncoupled, 40);
    for (flow, srtt_us) in flows.iter_mut().zip([200_000, 20_000]) {
        flow.report.srtt_us = srtt_us;
        host.send(flow);
    }
    let config = GroupConfig { growth_source, ..config(PolicyKind::CtrlTcp) };
    host.configure(config);
    let [far, near] = &mut flows;
    // One ACK of the first flow elects it where the first is elected.
    host.ack(far);
    for _ in 0..40 {
        for _ in 0..10 {
            host.ack(near);
            host.now += 500;
        }
        host.ack(far);
    }
    host.segments() - 80
}

#[test]
fn the_coordinating_connection_sets_the_pace() {
    let (first, mean, shortest) = (
        growth(GrowthSource::First),
        growth(GrowthSource::Mean),
        growth(GrowthSource::ShortestRtt),
    );
    assert!(first <= 1, "one round trip of the far flow: {first}");
    assert!((4..=6).contains(&mean), "half of each: {mean}");
    assert!((8..=10).contains(&shortest), "ten round trips of the near flow: {shortest}");
}
