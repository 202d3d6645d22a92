// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What an operator changes is in force when it is answered.
#![allow(clippy::unwrap_used)]
mod support;

use ccc_proto::wire;
use serde_json::{Value, json};
use support::{
    daemon::Daemon,
    driver::{Driver, Extent, report, while_flows_count},
    frontend::Mode,
    operator::{Operator, TWO, start},
};

/// A driver with one flow.
fn driver(daemon: &Daemon, vm: &str) -> (Driver, Extent) {
    let mut driver = Driver::connect(&daemon.socket(vm), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    (driver, extent)
}

fn active_flows(operator: &Operator, group: &str) -> Value {
    operator.get(&format!("/v1/groups/{group}"))["active_flows"].clone()
}

#[test]
fn a_weight_is_in_force_when_it_is_answered() {
    let (daemon, operator) = start(&TWO);
    let ((mut a, in_a), (mut b, in_b)) = (driver(&daemon, "a"), driver(&daemon, "b"));
    let set = |weight: f64| operator.patch("/v1/vms/a", &json!({"weight": weight}));
    for weight in [4.0, 0.25, 1.0] {
        while_flows_count(&format!("weight {weight} is in force"), || {
            set(2.0);
            let (since, _) = (a.alive(), b.alive());
            assert_eq!(set(weight)["weight"], weight);
            let ratio = a.window(&in_a) as f64 / b.window(&in_b) as f64;
            (since, (ratio / weight - 1.0).abs() < 0.01)
        });
    }
}

#[test]
fn a_vm_changes_its_group_with_its_flows() {
    let (daemon, operator) = start(&TWO);
    let ((mut a, in_a), (mut b, in_b)) = (driver(&daemon, "a"), driver(&daemon, "b"));
    let to = |group: Value| operator.patch("/v1/vms/a", &json!({"group": group}));
    let window = || operator.get("/v1/groups/g")["window"].clone();
    while_flows_count("the aggregate stays", || {
        to("g".into());
        let (since, _) = (a.alive(), b.alive());
        let before = window();
        to("h".into());
        (since, window() == before && active_flows(&operator, "h") == 1)
    });
    assert_ne!(a.group_of(&in_a, 0), b.group_of(&in_b, 0));
    // No group: the flow goes on alone, and comes back.
    to(Value::Null);
    assert_eq!(a.group_of(&in_a, 0), None);
    assert_eq!(operator.get("/v1/vms/a")["group"], Value::Null);
    a.tell(&in_a, wire::OP_UPDATE, 0, &report(1));
    assert_eq!(a.group_of(&in_a, 0), None, "and stays alone");
    assert_eq!(operator.get("/v1/vms/a")["counters"]["refused"], 0, "which is no refusal");
    to("g".into());
    assert_eq!(a.group_of(&in_a, 0), b.group_of(&in_b, 0));
}

#[test]
fn coupling_is_switched_for_vms_and_groups() {
    let (daemon, operator) = start(&TWO);
    let ((mut a, in_a), (mut b, in_b)) = (driver(&daemon, "a"), driver(&daemon, "b"));
    let couple = |what: &str, coupled: bool| {
        operator.patch(&format!("/v1/{what}"), &json!({"coupled": coupled}));
    };
    while_flows_count("what goes on alone keeps its part", || {
        couple("vms/a", true);
        let (since, _) = (a.alive(), b.alive());
        let part = b.window(&in_b);
        couple("vms/a", false);
        assert!(!a.accepted(&in_a, 0, 1) && b.accepted(&in_b, 0, 1));
        let left = b.window(&in_b);
        (since, left.abs_diff(part) <= 1 && active_flows(&operator, "g") == 1)
    });
    // What begins meanwhile is not coupled either, and leaves as it came.
    a.register(&in_a, 1, 1);
    assert!(!a.accepted(&in_a, 1, 1));
    assert_eq!(a.grant(&in_a, 1).generation.get(), 1, "but answered");
    a.ring_bell(wire::OP_LEAVE, 1, 1);
    couple("vms/a", true);
    assert!(a.accepted(&in_a, 0, 1));
    couple("groups/g", false);
    assert!(!a.accepted(&in_a, 0, 1) && !b.accepted(&in_b, 0, 1));
    assert_eq!(active_flows(&operator, "g"), 0);
    couple("groups/g", true);
    assert!(a.accepted(&in_a, 0, 1) && b.accepted(&in_b, 0, 1));
    assert_eq!(operator.get("/v1/status")["flows"], 2);
}

#[test]
fn a_group_changes_what_it_shares_and_how_hard() {
    let (daemon, operator) = start(&TWO);
    let (mut a, extent) = driver(&daemon, "a");
    let by_rate = |driver: &Driver| driver.line(&extent, 0).flags.get() & wire::L_RATE != 0;
    let windows = json!({"share": "window", "equivalent_tcps": 2.5, "policy": "ctrltcp"});
    let rates = json!({"share": "rate"});
    let mut changes = |from: &Value, to: &Value| {
        while_flows_count(&format!("{to} is in force"), || {
            operator.patch("/v1/groups/g", from);
            let since = a.alive();
            let (was, window) = (by_rate(&a), a.window(&extent));
            let group = operator.patch("/v1/groups/g", to);
            assert_eq!((&group["share"], &group["equivalent_tcps"]), (&to["share"], &json!(2.5)));
            let is = (was, by_rate(&a)) == (from["share"] == "rate", to["share"] == "rate");
            (since, is && a.window(&extent).abs_diff(window) <= 1)
        });
    };
    changes(&rates, &windows);
    changes(&windows, &rates);
}

#[test]
fn a_groups_policy_changes_while_flows_run() {
    let (daemon, operator) = start(&TWO);
    let (mut a, extent) = driver(&daemon, "a");
    let set = |policy: &str| operator.patch("/v1/groups/g", &json!({"policy": policy}));
    // A flow that is alone begins with as much, whenever it begins again.
    const WINDOW: u64 = 14480;
    let policies = ["ctrltcp", "uncoupled", "e-tcp", "efcm", "cm", "ctrltcp"];
    for (before, policy) in policies.iter().zip(&policies[1..]) {
        while_flows_count(&format!("{policy} after {before}"), || {
            set(before);
            let since = a.alive();
            assert_eq!(set(policy)["policy"], *policy);
            let coupled = a.window(&extent).abs_diff(WINDOW) <= 1 && a.coupled(&extent);
            (since, coupled == (*policy != "uncoupled") && coupled == a.coupled(&extent))
        });
    }
}
