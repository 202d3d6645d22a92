// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Which interface is a VM's tap, by its names and its kind.
use std::{fs, thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    net::{FLOOD, Net, flooded, is_held, start},
    support::{
        self,
        daemon::{Daemon, until},
        operator::Operator,
        space::{must, run},
    },
};

/// `tap0` becomes `old0`, and another interface `tap0`.
fn rename(net: &Net) {
    let (host, vm) = (&net.host, &net.vm);
    must(&format!("ip -n {host} link add tap1 type veth peer name eth1 netns {vm}"));
    for (from, to) in [("tap0", "old0"), ("tap1", "tap0")] {
        must(&format!("ip -n {host} link set {from} down"));
        must(&format!("ip -n {host} link set {from} name {to}"));
        must(&format!("ip -n {host} link set {to} up"));
    }
}

#[test]
fn an_interface_with_another_name_is_no_vms_tap_any_more() {
    let Some(net) = Net::new("o") else { return };
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let sent = || operator.get("/v1/groups/uplink")["vms"][0]["tap"]["sent"].as_u64();
    flooded(&net, FLOOD / 4, || until("seen", || sent() > Some(FLOOD / 8)));
    rename(&net);
    until("the other one is looked at", || sent().is_some_and(|sent| sent < FLOOD / 8));
    // No sooner: who floods catches up, and may be above it for a moment.
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    thread::sleep(Duration::from_secs(1));
    flooded(&net, FLOOD, || thread::sleep(Duration::from_secs(2)));
    assert_eq!(operator.get("/v1/vms/bad")["judged"], Value::Null);
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
}

#[test]
fn of_a_tap_that_is_held_the_name_counts() {
    let Some(net) = Net::new("p") else { return };
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    flooded(&net, FLOOD, || until("held to its cap", || is_held(&net)));
    let device = net.links();
    rename(&net);
    until("the other one is held", || {
        is_held(&net) && net.links().matches("qdisc htb").count() == 1
    });
    assert_ne!(net.links(), device);
    let qdisc = must(&format!("tc -n {} qdisc show dev old0", net.host));
    assert!(!qdisc.contains("ingress"), "{qdisc}");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(net.filters().matches("mirred").count(), 1, "{}", net.filters());
    assert_eq!(daemon.log().matches("tap tap0 is held no more").count(), 1, "{}", daemon.log());
    // With no interface of that name nobody is held.
    must(&format!("ip -n {} link set tap0 down", net.host));
    must(&format!("ip -n {} link set tap0 name tap9", net.host));
    until("let go", || !net.links().contains("ccc-ifb"));
}

/// What `--check` says of the daemon's configuration in the host's namespace.
fn checked(net: &Net, daemon: &Daemon) -> String {
    let (program, file) = (support::daemon::PROGRAM, daemon.dir.path().join("ccc.toml"));
    let check = format!("{program} --config {} --check", file.display());
    run(&format!("ip netns exec {} {check}", net.host)).1
}

#[test]
fn a_tap_that_counts_what_its_vm_receives_is_not_looked_at() {
    const MAC: &str = "02:00:00:00:00:03";
    let Some(net) = Net::new("q") else { return };
    let (host, vm) = (&net.host, &net.vm);
    let make = format!("ip -n {host} link add link tap0 name mv0 address {MAC} type");
    if !["macvtap", "macvlan"].iter().any(|kind| run(&format!("{make} {kind}")).0) {
        eprintln!("left out: neither macvtap nor macvlan here");
        return;
    }
    must(&format!("ip -n {host} link set mv0 up"));
    // What the flood sends is what a VM at `mv0` would receive.
    must(&format!("ip -n {vm} neigh replace 10.9.9.1 lladdr {MAC} dev eth0 nud permanent"));
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"tap": "mv0", "cap_mbit": 8, "device": false}));
    daemon.says("VM bad: its tap mv0 is a macv");
    daemon.says("<interface type='bridge'>), so group uplink neither judges nor holds it");
    flooded(&net, FLOOD, || {
        let received = || {
            let told = must(&format!("ip -n {host} -s -j link show mv0"));
            let told: Vec<Value> = serde_json::from_str(&told).unwrap();
            told[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
        };
        until("it receives", || received() > FLOOD * 2);
    });
    let told = operator.get("/v1/vms/bad");
    assert_eq!([&told["judged"], &told["held"]], [&Value::Null, &Value::Null], "{told}");
    assert!(told["unseen"].as_str().unwrap().starts_with("its tap mv0 is a macv"), "{told}");
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
    operator.patch("/v1/vms/bad", &json!({"tap": "tap0"}));
    until("looked at", || operator.get("/v1/vms/bad")["unseen"].is_null());
    // A VM of several groups, which are told if any of them is to enforce.
    let rule = json!({"vm": "bad", "destination": "10.0.0.0/8", "group": "default"});
    let (status, said) = operator.ask("PUT", "/v1/rules", Some(&json!({"rules": [rule]})));
    assert_eq!(status, 200, "{said}");
    operator.patch("/v1/groups/uplink", &json!({"enforce": "off"}));
    operator.patch("/v1/groups/default", &json!({"enforce": "observe"}));
    operator.patch("/v1/vms/bad", &json!({"tap": "mv0"}));
    daemon.says("so group default neither judges nor holds it: after that: cccctl set bad --tap");
    until("told", || operator.get("/v1/vms/bad")["unseen"].is_string());
    let file = daemon.dir.path().join("ccc.toml");
    let config = fs::read_to_string(&file).unwrap().replace("\"tap0\"", "\"mv0\"");
    fs::write(&file, config).unwrap();
    let said = checked(&net, &daemon);
    assert!(said.contains("VM bad: its tap mv0 is a macv"), "{said}");
}

/// One in which tap0 has a further name, where interfaces can have that.
fn net_of_two_names(name: &str) -> Option<Net> {
    let net = Net::new(name)?;
    let named = run(&format!("ip -n {} link property add dev tap0 altname also0", net.host)).0;
    if !named {
        eprintln!("left out: interfaces have one name here");
    }
    named.then_some(net)
}

#[test]
fn two_vms_at_one_tap_by_two_of_its_names_are_told_and_not_judged() {
    let Some(net) = net_of_two_names("r") else { return };
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    flooded(&net, FLOOD, || {
        until("held to its cap", || is_held(&net));
        operator.patch("/v1/vms/good", &json!({"tap": "also0", "cap_mbit": 8}));
        daemon.says("VM good: its tap also0 is tap0, which is another VM's");
        daemon.says("VM bad: its tap tap0 is also0, which is another VM's");
        until("let go", || !net.links().contains("ccc-ifb") && net.filters().is_empty());
        thread::sleep(Duration::from_secs(1));
        assert!(!is_held(&net), "neither is held by it");
        for vm in ["bad", "good"] {
            let judged = &operator.get(&format!("/v1/vms/{vm}"))["judged"];
            assert!(judged.is_null(), "{vm}: {judged}");
        }
        operator.patch("/v1/vms/good", &json!({"group": "default"}));
        thread::sleep(Duration::from_secs(2));
        let told = operator.get("/v1/vms/bad");
        assert!(told["unseen"].as_str().unwrap().contains("tap0 is also0"), "{told}");
        assert!(told["judged"].is_null() && !is_held(&net), "nobody looks at the other: {told}");
    });
    let said = checked(&net, &daemon);
    assert!(!said.contains("is another VM's"), "{said}");
    let file = daemon.dir.path().join("ccc.toml");
    let config = fs::read_to_string(&file).unwrap().replace("\"lo\"", "\"also0\"");
    fs::write(&file, config).unwrap();
    let said = checked(&net, &daemon);
    assert!(said.contains("VM good: its tap also0 is tap0, which is another VM's"), "{said}");
    let uplink = "[group.uplink]\nuplink = \"tap0\"\nuplink_rate_mbit = 9.0\n";
    let config = fs::read_to_string(&file).unwrap().replace("[group.uplink]\n", uplink);
    fs::write(&file, config).unwrap();
    let said = checked(&net, &daemon);
    assert!(said.contains("VM good: its tap also0 is tap0, the uplink of its group"), "{said}");
}

#[test]
fn the_uplink_of_its_group_is_no_vms_tap() {
    let Some(net) = Net::new("s") else { return };
    let mut daemon = start(&net, "observe", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    let change = json!({"uplink": "tap0", "uplink_rate_mbit": 100.0});
    operator.patch("/v1/groups/uplink", &change);
    daemon.says("VM bad: its tap tap0 is tap0, the uplink of its group");
    flooded(&net, FLOOD, || thread::sleep(Duration::from_secs(2)));
    assert!(operator.get("/v1/vms/bad")["judged"].is_null());
}

/// Each look took away the hold of a tap that is not named by its first name.
#[test]
fn a_tap_with_a_further_name_stays_held_by_that() {
    let Some(net) = net_of_two_names("t") else { return };
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"tap": "also0", "cap_mbit": 8}));
    flooded(&net, FLOOD, || {
        until("held to its cap", || is_held(&net));
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(100));
            assert!(is_held(&net), "{}", net.links());
        }
    });
}
