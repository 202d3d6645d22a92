// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM's reports claim, added up.
mod common;

use ccc_core::Claims;
use common::Host;

#[test]
fn what_all_flows_of_a_vm_claim_is_added_up_and_outlives_them() {
    let mut host = Host::new();
    let (vm, other) = (host.vm(1.0), host.vm(1.0));
    let mut flows = [host.flow(vm, 10), host.flow(vm, 10)];
    for (flow, bytes) in flows.iter_mut().zip([3000, 4000]) {
        flow.report.delivered_bytes += bytes;
        flow.report.congestion_events += 1;
        host.send(flow);
        host.send(flow);
    }
    let claims = host.engine.claims(vm, host.group);
    assert_eq!((claims.delivered_bytes, claims.events), (7000, 2), "once each");
    host.engine.leave(host.now, flows[0].id);
    assert_eq!(host.engine.claims(vm, host.group).delivered_bytes, 7000);
    assert_eq!(host.engine.claims(other, host.group), Claims::default());
}

#[test]
fn a_vm_is_backlogged_while_a_flow_takes_all_it_is_given() {
    let mut host = Host::new();
    let vm = host.vm(1.0);
    let mut flow = host.flow(vm, 10);
    for cwnd_limited in [true, false] {
        flow.report.cwnd_limited = cwnd_limited;
        host.send(&flow);
        assert_eq!(host.engine.claims(vm, host.group).backlogged, cwnd_limited);
    }
}

#[test]
fn flows_that_go_on_alone_count_once_each_time() {
    let mut host = Host::new();
    let vm = host.vm(1.0);
    for exits in 1..4 {
        let flows = [host.flow(vm, 10).id, host.flow(vm, 10).id];
        host.engine.detach(host.now, &flows);
        host.engine.detach(host.now, &flows);
        assert_eq!(host.engine.claims(vm, host.group).exits, exits, "those that are gone do not");
    }
    let flow = host.flow(vm, 10);
    host.engine.leave(host.now, flow.id);
    assert_eq!(host.engine.claims(vm, host.group).exits, 3, "it has ended");
}
