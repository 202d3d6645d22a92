// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the engine finds of VMs that do not see their group's queue.
mod common;

use ccc_core::{Evidence, GroupConfig, Micros, PolicyKind};
use common::{Flow, Host};

const SECOND: Micros = 1_000_000;

/// Three VMs, of which the last does not see the others' queue.
fn three(policy: PolicyKind) -> (Host, Vec<Flow>) {
    let mut host = Host::with(GroupConfig { policy, ..GroupConfig::default() });
    let flows = (0..3).map(|_| {
        let vm = host.vm(1.0);
        host.flow(vm, 10)
    });
    let flows = flows.collect();
    (host, flows)
}

/// Goes on for so many seconds; a queue of 50 ms fills every five, which all see but the last.
fn go(host: &mut Host, flows: &[Flow], seconds: u64) {
    go_seeing(host, flows, seconds, |number, queue_us| {
        100_000 + if number < 2 { queue_us } else { 0 }
    });
}

/// The same; a flow's round-trip time by its number and the queue.
fn go_seeing(host: &mut Host, flows: &[Flow], seconds: u64, rtt_us: impl Fn(usize, u32) -> u32) {
    let end = host.now + seconds * SECOND;
    while host.now < end {
        let queue_us = (host.now % (5 * SECOND) / 100) as u32;
        for (number, flow) in flows.iter().enumerate() {
            let mut flow = *flow;
            flow.report.rtt_us = rtt_us(number, queue_us);
            host.send(&flow);
        }
        host.now += 50_000;
    }
}

fn evidence(host: &Host, flow: &Flow) -> Evidence {
    host.engine.evidence(host.now, flow.vm, host.group)
}

#[test]
fn a_vm_that_does_not_see_the_queue_is_apart_from_its_group() {
    let (mut host, flows) = three(PolicyKind::CtrlTcp);
    go(&mut host, &flows, 20);
    let apart: Vec<bool> = flows.iter().map(|flow| evidence(&host, flow).apart).collect();
    assert_eq!(apart, [false, false, true]);
    assert_eq!(host.engine.verdicts(host.group), 1);
}

#[test]
fn where_flows_are_left_alone_nothing_is_found() {
    let (mut host, flows) = three(PolicyKind::Uncoupled);
    go(&mut host, &flows, 20);
    assert_eq!(evidence(&host, &flows[2]), Evidence::default());
}

#[test]
fn of_a_vm_that_comes_in_the_place_of_another_nothing_is_known() {
    let (mut host, mut flows) = three(PolicyKind::CtrlTcp);
    go(&mut host, &flows, 20);
    host.engine.remove_vm(host.now, flows[2].vm);
    let vm = host.vm(1.0);
    flows[2] = host.flow(vm, 10);
    assert_eq!(evidence(&host, &flows[2]), Evidence::default());
    go(&mut host, &flows, 20);
    assert!(evidence(&host, &flows[2]).apart);
}

#[test]
fn a_flow_that_gets_the_number_of_another_is_another() {
    let (mut host, mut flows) = three(PolicyKind::CtrlTcp);
    for turn in 0..6 {
        host.leave(flows[2]);
        flows[2] = host.flow(flows[2].vm, 10);
        let epoch = host.epoch();
        host.lose(&mut flows[2], epoch);
        // To a near receiver and to a far one, behind the same queue.
        let base_us = [100_000, 100_000, [10_000, 300_000][turn % 2]];
        go_seeing(&mut host, &flows, 12, |number, queue_us| base_us[number] + queue_us);
    }
    let Evidence { compared, alone, unseen, .. } = evidence(&host, &flows[2]);
    assert!(compared > 0 && (alone, unseen) == (0, 0), "{compared} {alone} {unseen}");
}
