// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon at taps of a real kernel, in network namespaces of the test's own.
//!
//! A tap is an end of a veth: what its other end sends comes in there, as from a VM.  Needs
//! root, and the kernel's ifb, htb and u32; without them it says so and passes.
#![allow(clippy::unwrap_used)]
mod left;
mod names;
mod net;
#[path = "../support/mod.rs"]
mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use net::{FLOOD, Net, POWERLESS, beside_an_honest_vm, flooded, is_held, start};
use serde_json::{Value, json};
use support::{
    daemon::until,
    driver::Driver,
    frontend::Mode,
    operator::Operator,
    space::{must, run},
};

const FLOOR_MBIT: f64 = 8.0;

#[test]
fn a_vm_that_floods_is_held_to_its_share_at_its_tap() {
    let Some(net) = Net::new("a") else { return };
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"floor_mbit": FLOOR_MBIT}));
    beside_an_honest_vm(&net, &daemon, || {
        thread::sleep(Duration::from_secs(3));
        assert!(!net.links().contains("ccc-ifb"), "nothing is done to who does nothing");
        flooded(&net, FLOOD, || {
            until("held", || is_held(&net));
            let held = || operator.get("/v1/vms/bad")["held"].as_f64().unwrap_or(0.0);
            until("held to its floor", || held() == FLOOR_MBIT * 1e6 / 8.0);
            assert_eq!(operator.get("/v1/vms/bad")["judged"], "unreported");
            net.is_let_go_at(FLOOR_MBIT * 1e6 / 8.0);
            let tap = &operator.get("/v1/groups/uplink")["vms"][0]["tap"];
            assert!(tap["sent"].as_u64() > Some(FLOOD / 4) && tap["claimed"] == 0, "{tap}");
            assert_eq!(tap["verdict"]["reason"], "unreported");
        });
        until("let go", || !net.links().contains("ccc-ifb") && net.filters().is_empty());
    });
    daemon.says("VM bad: in group uplink, has no module, or sends what is not coupled");
    daemon.says("VM bad: keeps below its share in group uplink now");
}

#[test]
fn a_vm_above_its_cap_is_held_to_that_though_nobody_loses() {
    let Some(net) = Net::new("i") else { return };
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let held = || operator.get("/v1/vms/bad")["held"].as_f64().unwrap_or(0.0);
    flooded(&net, FLOOD, || {
        thread::sleep(Duration::from_secs(3));
        assert!(!is_held(&net), "without a cap it may send what nobody else wants");
        operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
        until("held to its cap", || is_held(&net) && held() == 1e6);
        net.is_let_go_at(1e6);
        assert_eq!(operator.get("/v1/vms/bad")["judged"], "above its cap");
        operator.patch("/v1/vms/bad", &json!({"cap_mbit": 4}));
        until("held to a lower one", || held() == 5e5);
    });
    daemon.says("VM bad: in group uplink, sends above its cap");
}

#[test]
fn a_rate_that_changes_lets_no_more_go() {
    let Some(net) = Net::new("o") else { return };
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let cap = |mbit: f64| operator.patch("/v1/vms/bad", &json!({"cap_mbit": mbit}));
    let through = || {
        let said = must(&format!("tc -n {} -s -j qdisc show", net.host));
        let told: Vec<Value> = serde_json::from_str(&said).unwrap();
        let ours = told.iter().find(|qdisc| {
            qdisc["root"] == true
                && qdisc["dev"].as_str().is_some_and(|dev| dev.starts_with("ccc-ifb"))
        });
        ours.unwrap()["bytes"].as_f64().unwrap()
    };
    cap(4.0);
    flooded(&net, FLOOD, || {
        until("held", || is_held(&net));
        thread::sleep(Duration::from_secs(1));
        let (begun, before) = (Instant::now(), through());
        for step in 0..60 {
            cap(4.0 + f64::from(step % 2) / 10.0);
            thread::sleep(Duration::from_millis(50));
        }
        let rate = (through() - before) / begun.elapsed().as_secs_f64() * 8.0 / 1e6;
        assert!(rate < 4.3, "{rate} Mbit/s");
    });
}

/// Bytes a second of a VM that begins to flood, and of its cap.
const GIGABIT: u64 = 125_000_000;
const FAST_CAP_MBIT: u64 = 200;
/// A daemon that looks once a second takes longer, a busy machine does not.
const SOON: Duration = Duration::from_millis(500);

/// How long it takes until a VM that begins to send more than its cap is held, and that it is
/// held to it.
fn time_until_a_gigabit_is_held() -> Option<Duration> {
    let net = Net::new("n")?;
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": FAST_CAP_MBIT}));
    let is_seen = || !operator.get("/v1/groups/uplink")["vms"][0]["tap"].is_null();
    until("looked at", is_seen);
    let begun = Instant::now();
    let took = flooded(&net, GIGABIT, || {
        until("held", || net.filters().contains("mirred"));
        let took = begun.elapsed();
        net.is_let_go_at(FAST_CAP_MBIT as f64 * 1e6 / 8.0);
        took
    });
    Some(took)
}

#[test]
fn a_gigabit_is_held_to_its_cap_soon_after_it_begins() {
    // A machine that stands still for a moment spoils one or two.
    let took: Option<Vec<_>> = (0..5).map(|_| time_until_a_gigabit_is_held()).collect();
    let Some(mut took) = took else { return };
    took.sort();
    eprintln!("held after {took:?}");
    assert!(took[took.len() / 2] < SOON, "{took:?}");
}

#[test]
fn a_cap_holds_whether_the_group_is_coupled_or_not() {
    let Some(net) = Net::new("k") else { return };
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let judged = || operator.get("/v1/vms/bad")["judged"].clone();
    operator.patch("/v1/groups/uplink", &json!({"coupled": false}));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    flooded(&net, FLOOD, || {
        until("held to its cap", || is_held(&net) && judged() == "above its cap");
        operator.patch("/v1/groups/uplink", &json!({"coupled": true}));
        for _ in 0..30 {
            thread::sleep(Duration::from_millis(100));
            assert!(is_held(&net) && judged() == "above its cap", "{}", judged());
        }
        let trial = json!({"coupled": false, "seconds": 60});
        let (status, said) = operator.ask("PUT", "/v1/groups/uplink/trial", Some(&trial));
        assert_eq!(status, 200, "{said}");
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(100));
            assert!(is_held(&net) && judged() == "above its cap", "{}", judged());
        }
        operator.patch("/v1/vms/bad", &json!({"cap_mbit": null}));
        until("let go without a cap", || !is_held(&net));
    });
}

#[test]
fn a_tap_that_is_made_anew_or_let_go_by_others_is_held_again() {
    let Some(net) = Net::new("j") else { return };
    let mut daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    let (host, vm) = (&net.host, &net.vm);
    // A hold ends some seconds after what it is for: that goes on meanwhile.
    let device = flooded(&net, FLOOD, || {
        until("held to its cap", || is_held(&net));
        must(&format!("tc -n {host} qdisc del dev tap0 ingress"));
        until("held again", || is_held(&net));
        daemon.says("tap tap0 is held no more");
        let links = net.links();
        let number = links.split("ccc-ifb").nth(1).unwrap().split(':').next().unwrap();
        must(&format!("tc -n {host} qdisc del dev ccc-ifb{number} root"));
        until("with a shaper again", || net.links().contains("qdisc htb"));
        let lost = daemon.log().matches("tap tap0 is held no more").count();
        assert_eq!(lost, 2, "nor is it lost since");
        must(&format!("ip -n {host} link del ccc-ifb{number}"));
        until("with a device again", || is_held(&net) && !net.filters().contains("device *"));
        net.links()
    });
    must(&format!("ip -n {host} link del tap0"));
    must(&format!("ip -n {host} link add tap0 type veth peer name eth0 netns {vm}"));
    net.address();
    flooded(&net, FLOOD, || until("held once more", || is_held(&net)));
    assert_ne!(net.links(), device);
}

#[test]
fn while_a_group_is_tried_uncoupled_none_of_its_vms_is_judged_or_held() {
    let Some(net) = Net::new("h") else { return };
    let daemon = start(&net, "on", "");
    let operator = Operator::at(&daemon.socket("control"));
    let judged = || operator.get("/v1/vms/bad")["judged"].clone();
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || {
            until("held", || is_held(&net));
            let trial = json!({"coupled": false, "seconds": 60});
            let (status, said) = operator.ask("PUT", "/v1/groups/uplink/trial", Some(&trial));
            assert_eq!(status, 200, "{said}");
            until("let go", || !net.links().contains("ccc-ifb"));
            for _ in 0..30 {
                thread::sleep(Duration::from_millis(100));
                assert_eq!(judged(), Value::Null, "uncoupled it may send what it likes");
            }
            operator.patch("/v1/groups/uplink", &json!({"coupled": true}));
            until("coupled again, and held", || is_held(&net));
        });
    });
}

#[test]
fn where_it_only_observes_nothing_is_held() {
    let Some(net) = Net::new("d") else { return };
    let daemon = start(&net, "observe", "");
    let operator = Operator::at(&daemon.socket("control"));
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || {
            until("judged", || operator.get("/v1/vms/bad")["judged"] == "unreported");
        });
    });
    assert!(!net.links().contains("ccc-ifb"));
    assert_eq!(operator.get("/v1/vms/bad")["held"], Value::Null);
}

#[test]
fn what_is_to_be_enforced_in_vain_is_told() {
    let Some(net) = Net::new("g") else { return };
    let file = tempfile::tempdir().unwrap();
    let mut daemon = net.daemon_by(file, "on", "", &POWERLESS);
    let powerless = "group uplink: enforce = \"on\" cannot hold any VM: the daemon needs";
    daemon.says(powerless);
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || {
            let operator = Operator::at(&daemon.socket("control"));
            until("judged", || operator.get("/v1/vms/bad")["judged"] == "unreported");
            thread::sleep(Duration::from_secs(1));
        });
    });
    daemon.says("VM bad: cannot make the device of tap tap0: ");
    let line = daemon.log().lines().find(|line| line.contains("cannot make")).map(str::to_owned);
    assert!(line.is_some_and(|line| line.contains("AmbientCapabilities=CAP_NET_ADMIN")));
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/groups/default", &json!({"enforce": "on"}));
    daemon.says("group default: enforce = \"on\" cannot hold any VM");
    operator.patch("/v1/vms/good", &json!({"tap": null}));
    daemon.says("VM good: it has no tap, so group uplink neither judges nor holds it");
    operator.patch("/v1/vms/good", &json!({"tap": "gone0"}));
    let _good = Driver::connect(&daemon.socket("good"), Mode::InBand);
    daemon.says("VM good: its tap gone0 is not there, so group uplink neither judges");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(daemon.log().matches("gone0 is not there").count(), 1, "once");
    assert_eq!(daemon.log().matches(powerless).count(), 1, "once");
    let config = daemon.dir.path().join("ccc.toml");
    let program = env!("CARGO_BIN_EXE_ccc-vhost");
    let check = format!("{program} --config {} --check", config.display());
    let (_, said) = run(&format!("{} {check}", POWERLESS.join(" ")));
    assert!(said.contains(powerless), "{said}");
    assert!(!run(&check).1.contains("cannot hold any VM"), "this one may");
}
