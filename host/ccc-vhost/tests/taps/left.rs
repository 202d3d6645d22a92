// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a daemon leaves behind, and what others have put there.
use std::{thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    net::{FLOOD, Net, POWERLESS, beside_an_honest_vm, flooded, is_held, start},
    support::{
        self,
        daemon::{Daemon, until},
        operator::Operator,
        space::must,
    },
};

#[test]
fn what_a_daemon_holds_outlives_its_crash_and_not_its_end() {
    let Some(net) = Net::new("b") else { return };
    let mut daemon = start(&net, "on", "");
    let hold = |daemon: &Daemon| {
        beside_an_honest_vm(&net, daemon, || {
            flooded(&net, FLOOD, || until("held", || is_held(&net)))
        });
    };
    hold(&daemon);
    daemon.terminate("-KILL");
    assert!(is_held(&net), "nobody is there to let it go");
    let dir = daemon.moved();
    let mut daemon = net.daemon(dir, "on", "");
    daemon.says("taps that an earlier daemon holds: tap0");
    until("let go, as nothing speaks against it", || !is_held(&net));
    hold(&daemon);
    net.end(daemon);
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
    assert!(!must(&format!("tc -n {} qdisc show dev tap0", net.host)).contains("ingress"));
}

#[test]
fn a_daemon_that_is_to_keep_what_it_holds_does() {
    let Some(net) = Net::new("c") else { return };
    let mut daemon = start(&net, "on", "keep_holds = true");
    let flood = || flooded(&net, FLOOD, || until("held", || is_held(&net)));
    beside_an_honest_vm(&net, &daemon, flood);
    daemon.terminate("-TERM");
    assert!(is_held(&net));
    let (space, program) = (&net.host, support::daemon::PROGRAM);
    let configuration = daemon.dir.path().join("ccc.toml");
    let configuration = configuration.display();
    must(&format!("ip netns exec {space} {program} --config {configuration} --release"));
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
}

#[test]
fn the_qdisc_of_somebody_else_is_left_alone() {
    let Some(net) = Net::new("e") else { return };
    must(&format!("tc -n {} qdisc add dev tap0 handle ffff: ingress", net.host));
    let mut daemon = start(&net, "on", "");
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || {
            let operator = Operator::at(&daemon.socket("control"));
            until("judged", || operator.get("/v1/vms/bad")["judged"] == "unreported");
            thread::sleep(Duration::from_secs(1));
        });
    });
    daemon.says("tap tap0 has an ingress qdisc of somebody else's");
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
    assert!(must(&format!("tc -n {} qdisc show dev tap0", net.host)).contains("ingress"));
    assert!(net.filters().is_empty());
}

#[test]
fn an_empty_qdisc_in_the_place_of_ours_is_left_alone() {
    let Some(net) = Net::new("m") else { return };
    let mut daemon = start(&net, "on", "");
    let cap = json!({"cap_mbit": 8});
    Operator::at(&daemon.socket("control")).patch("/v1/vms/bad", &cap);
    flooded(&net, FLOOD, || until("held to its cap", || is_held(&net)));
    daemon.terminate("-KILL");
    let host = &net.host;
    must(&format!("tc -n {host} qdisc del dev tap0 ingress"));
    must(&format!("tc -n {host} qdisc add dev tap0 handle ffff: ingress"));
    let has_qdisc = || must(&format!("tc -n {host} qdisc show dev tap0")).contains("ingress");
    let mut daemon = net.daemon(daemon.moved(), "on", "");
    Operator::at(&daemon.socket("control")).patch("/v1/vms/bad", &cap);
    flooded(&net, FLOOD, || daemon.says("tap tap0 has an ingress qdisc of somebody else's"));
    assert!(net.filters().is_empty(), "{}", net.filters());
    Operator::at(&daemon.socket("control")).patch("/v1/vms/bad", &json!({"cap_mbit": null}));
    net.end(daemon);
    assert!(!net.links().contains("ccc-ifb"), "{}", net.links());
    assert!(has_qdisc(), "it is gone with what was ours");
}

#[test]
fn the_tap_that_another_daemon_holds_is_left_alone() {
    let Some(net) = Net::new("l") else { return };
    let first = start(&net, "on", "");
    let mut second = start(&net, "on", "");
    let [operator, other] = [&first, &second].map(|daemon| Operator::at(&daemon.socket("control")));
    operator.patch("/v1/vms/bad", &json!({"cap_mbit": 8}));
    flooded(&net, FLOOD, || {
        until("held to its cap", || is_held(&net));
        let (links, filters) = (net.links(), net.filters());
        other.patch("/v1/vms/bad", &json!({"cap_mbit": 6}));
        second.says("tap tap0 has an ingress qdisc of somebody else's");
        second.terminate("-TERM");
        assert_eq!((net.links(), net.filters()), (links, filters));
    });
}

#[test]
fn what_a_daemon_may_not_let_go_is_told_with_what_to_do() {
    let Some(net) = Net::new("f") else { return };
    let mut daemon = start(&net, "on", "");
    beside_an_honest_vm(&net, &daemon, || {
        flooded(&net, FLOOD, || until("held", || is_held(&net)));
    });
    daemon.terminate("-KILL");
    let dir = daemon.moved();
    let mut daemon = net.daemon_by(dir, "on", "", &POWERLESS);
    let device = net.links().split("ccc-ifb").nth(1).unwrap().split(':').next().unwrap().to_owned();
    daemon.says("VM bad: tap tap0 is held on, and not to be: cannot remove the ingress qdisc");
    daemon.says(&format!("tc qdisc del dev tap0 ingress; ip link del ccc-ifb{device}"));
    daemon.says("AmbientCapabilities=CAP_NET_ADMIN");
    assert!(is_held(&net));
    let held = &Operator::at(&daemon.socket("control")).get("/v1/vms/bad")["held"];
    assert_eq!(*held, Value::Null, "at a rate that is not known");
    must(&format!("tc -n {} qdisc del dev tap0 ingress", net.host));
    must(&format!("ip -n {} link del ccc-ifb{device}", net.host));
}
