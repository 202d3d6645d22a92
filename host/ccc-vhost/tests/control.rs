// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What an operator sees and changes, and what drivers see of that.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    thread,
    time::Duration,
};

use ccc_proto::{
    stranger::{AGENT, FRONT_END},
    wire::{self, GrantLine, Report},
};
use serde_json::{Value, json};
use support::{
    daemon::{Daemon, run, run_for, text, until, until_within},
    driver::{Driver, report},
    frontend::{FrontEnd, Mode},
    operator::{self, Operator},
};
use vhost::vhost_user::{VhostUserFrontend, message::VhostUserConfigFlags};

const TWO: [(&str, f64, &str); 2] = [("a", 1.0, "g"), ("b", 1.0, "g")];
const GROUPS: &str = "[group.g]\n[group.h]\n";

/// A daemon with a control socket and a state file.
fn start(vms: &[(&str, f64, &str)], rules: &str) -> (Daemon, Operator) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let own = format!("[daemon]\ncontrol = \"{}\"\nstate = \"{}\"\n", at("control"), at("state"));
    let daemon = Daemon::start_in(dir, vms, &format!("{own}{GROUPS}{rules}"), &[]);
    let operator = Operator::at(&daemon.socket("control"));
    (daemon, operator)
}

fn driver(daemon: &Daemon, vm: &str) -> Driver {
    Driver::connect(&daemon.socket(vm), Mode::InBand)
}

/// Who cannot speak for a VM says so at the beginning of the configuration space.
fn write_config(front: &mut FrontEnd, offset: u32, words: [u32; 2]) -> bool {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    front.vhost.set_config(offset, VhostUserConfigFlags::WRITABLE, &bytes).is_ok()
}

#[test]
fn who_knows_another_revision_is_told_until_somebody_speaks_for_the_vm() {
    let (daemon, operator) = start(&TWO, "");
    let stranger = || operator.get("/v1/vms/a")["stranger"].clone();
    let mut front = FrontEnd::open(&daemon.socket("a"), Mode::InBand);
    assert!(!write_config(&mut front, 0, [wire::REVISION, FRONT_END]), "it is ours");
    assert!(!write_config(&mut front, 4, [9, AGENT]), "the rest is read-only");
    assert_eq!(stranger(), Value::Null);
    assert!(write_config(&mut front, 0, [9, AGENT]));
    let told = json!({"who": "agent", "revision": 9, "expected": wire::REVISION});
    assert_eq!(stranger(), told);
    drop(front);
    until("it goes", || operator.get("/v1/vms/a")["connected"] == false);
    assert_eq!(stranger(), told, "though nobody is connected");
    assert_eq!(operator.get("/v1/vms/b")["stranger"], Value::Null);
    let _driver = driver(&daemon, "a");
    assert_eq!(stranger(), Value::Null);
}

fn flow_to(generation: u32, address: [u8; 4]) -> Report {
    let mut daddr = [0; 16];
    daddr[..4].copy_from_slice(&address);
    Report { daddr, ..report(generation) }
}

#[test]
fn everything_can_be_looked_at() {
    let (daemon, operator) = start(&TWO, "");
    let mut a = driver(&daemon, "a");
    let extent = a.offer_extent(0, 4, 2);
    let mut sent = flow_to(7, [10, 0, 0, 1]);
    sent.algorithm[..4].copy_from_slice(b"reno");
    sent.dport = 443.into();
    a.tell(&extent, wire::OP_REGISTER, 2, &sent);

    let status = operator.get("/v1/status");
    assert_eq!(status["version"], ccc_settings::VERSION);
    assert_eq!((&status["groups"], &status["vms"]), (&json!(3), &json!(2)));
    assert_eq!(status["flows"], 1);
    let (mut vms, mut vm, mut group) = (Value::Null, Value::Null, Value::Null);
    until("its flow counts wherever it is told", || {
        a.alive();
        vms = operator.get("/v1/vms");
        vm = operator.get("/v1/vms/a");
        group = operator.get("/v1/groups/g");
        // Time goes on.
        vm["heard_ms"] = vms["vms"][0]["heard_ms"].clone();
        vms["vms"][0] == vm && vm["coupled_flows"] == 1 && group["active_flows"] == 1
    });
    assert_eq!(vms["vms"][1]["connected"], false);
    assert_eq!(group["window"], 14480);
    let path = json!({"rate": 0, "queue_us": 0, "shared": false});
    assert_eq!(
        (&group["path"], &group["mode"]),
        (&path, &Value::Null),
        "of ctrltcp, which has one way"
    );
    operator.patch("/v1/groups/g", &json!({"policy": "delay"}));
    assert_eq!(operator.get("/v1/groups/g")["mode"], "target");
    operator.patch("/v1/groups/g", &json!({"policy": "ctrltcp"}));
    let part = group["vms"][0]["part"].as_u64().unwrap();
    assert!(part.abs_diff(14480) <= 1, "{part}");
    assert_eq!(operator.get("/v1/groups")["groups"].as_array().unwrap().len(), 3);
    let flows = operator.get("/v1/vms/a/flows");
    let flow = &flows["flows"][0];
    assert_eq!((&flow["slot"], &flow["destination"]), (&json!(2), &json!("10.0.0.1")));
    assert_eq!((&flow["algorithm"], &flow["destination_port"]), (&json!("reno"), &json!(443)));
    assert_eq!((&flow["group"], &flow["state"]), (&json!("g"), &json!("slow start")));
    assert_eq!(flows["next"], Value::Null);
    assert_eq!(operator.get("/v1/rules"), json!({"rules": []}));
}

#[test]
fn flows_are_told_in_pages() {
    let (daemon, operator) = start(&TWO, "");
    let mut a = driver(&daemon, "a");
    let extent = a.offer_extent(0, 8, 1);
    for slot in 0..5 {
        a.register(&extent, slot, 1);
    }
    let page = operator.get("/v1/vms/a/flows?limit=2");
    assert_eq!((&page["next"], &page["flows"][1]["slot"]), (&json!(2), &json!(1)));
    let last = operator.get("/v1/vms/a/flows?from=4&limit=2");
    assert_eq!((&last["next"], &last["flows"][0]["slot"]), (&Value::Null, &json!(4)));
    assert_eq!(operator.get("/v1/vms/b/flows"), json!({"flows": [], "next": null}));
}

#[test]
fn rules_say_where_flows_are_coupled() {
    let rules = "[[rule]]\nvm = \"a\"\ndestination = \"10.1.0.0/16\"\ngroup = \"none\"\n\
                 [[rule]]\ndestination = \"10.0.0.0/8\"\ngroup = \"h\"\n";
    let (daemon, operator) = start(&TWO, rules);
    let (mut a, mut b) = (driver(&daemon, "a"), driver(&daemon, "b"));
    let (in_a, in_b) = (a.offer_extent(0, 8, 4), b.offer_extent(0, 8, 4));
    let flows = [flow_to(1, [10, 1, 0, 1]), flow_to(1, [10, 2, 0, 1]), flow_to(1, [192, 0, 2, 1])];
    for (slot, flow) in (0..).zip(&flows) {
        a.tell(&in_a, wire::OP_REGISTER, slot, flow);
        b.tell(&in_b, wire::OP_REGISTER, slot, flow);
    }
    let groups = |driver: &Driver, extent| [0, 1, 2].map(|slot| driver.group_of(extent, slot));
    // Groups have their numbers in the order of the file's names: g, h.
    assert_eq!(groups(&a, &in_a), [None, Some(1), Some(0)]);
    assert_eq!(groups(&b, &in_b), [Some(1), Some(1), Some(0)]);

    operator.rules(&json!([{"vm": "b", "group": null}, {"group": "h"}]));
    assert_eq!(groups(&a, &in_a), [Some(1); 3]);
    assert_eq!(groups(&b, &in_b), [None; 3]);
    let told = operator.get("/v1/rules");
    let first = json!({"vm": "b", "destination": null, "group": null});
    assert_eq!(told["rules"][0], first);
    operator.rules(&json!([]));
    assert_eq!(groups(&a, &in_a), [Some(0); 3]);
}

#[test]
fn rules_hold_for_version_6_too() {
    let rules = "[[rule]]\ndestination = \"2001:db8::/32\"\ngroup = \"h\"\n";
    let (daemon, _) = start(&TWO, rules);
    let mut a = driver(&daemon, "a");
    let extent = a.offer_extent(0, 4, 4);
    let mut daddr = [0; 16];
    daddr[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    a.tell(&extent, wire::OP_REGISTER, 0, &Report { family: 6, daddr, ..report(1) });
    a.tell(&extent, wire::OP_REGISTER, 1, &Report { family: 6, ..report(1) });
    assert_eq!([0, 1].map(|slot| a.group_of(&extent, slot)), [Some(1), Some(0)]);
}

#[test]
fn flows_without_a_line_wait_for_one() {
    let rules = "[[rule]]\ndestination = \"10.0.0.0/8\"\ngroup = \"h\"\n";
    let (daemon, operator) = start(&TWO, rules);
    let mut a = driver(&daemon, "a");
    let extent = a.offer_extent(0, 4, 1);
    a.register(&extent, 0, 1);
    a.tell(&extent, wire::OP_REGISTER, 1, &flow_to(1, [10, 0, 0, 1]));
    assert!(!a.accepted(&extent, 1, 1));
    a.tell(&extent, wire::OP_UPDATE, 1, &flow_to(1, [10, 0, 0, 1]));
    assert_eq!(operator.get("/v1/vms/a")["counters"]["no_line"], 1, "told once");
    a.ring_bell(wire::OP_LEAVE, 0, 1);
    a.tell(&extent, wire::OP_UPDATE, 1, &flow_to(1, [10, 0, 0, 1]));
    assert_eq!(a.group_of(&extent, 1), Some(1));
}

#[test]
fn more_groups_than_lines_leave_the_rest_alone() {
    let mut rules: String = (0..17).map(|n| format!("[group.x{n}]\n")).collect();
    for n in 0..17 {
        rules += &format!("[[rule]]\ndestination = \"10.{n}.0.0/16\"\ngroup = \"x{n}\"\n");
    }
    let (mut daemon, operator) = start(&TWO, &rules);
    let mut a = driver(&daemon, "a");
    let extent = a.offer_extent(0, 32, 16);
    for n in 0..17u8 {
        a.tell(&extent, wire::OP_REGISTER, u32::from(n), &flow_to(1, [10, n, 0, 1]));
        assert_eq!(a.accepted(&extent, u32::from(n), 1), n < 16, "group {n}");
    }
    assert_eq!(operator.get("/v1/vms/a")["counters"]["no_line"], 1);
    daemon.says("no grant line is left for group x16");
}

#[test]
fn wrong_requests_are_told_what_is_wrong() {
    let (_daemon, operator) = start(&TWO, "");
    let refused = |method, path, body| operator.refused(method, path, &body);
    let is = |status: u16, field: &str| (status, field.to_owned());
    assert_eq!(refused("GET", "/v1/nothing", json!({})), is(404, ""));
    assert_eq!(refused("GET", "/v1/vms/c", json!({})), is(404, ""));
    assert_eq!(refused("PATCH", "/v1/groups/c", json!({})), is(404, ""));
    assert_eq!(refused("DELETE", "/v1/groups/g", json!({})), is(405, ""));
    assert_eq!(refused("PATCH", "/v1/vms/a", json!({"wieght": 1})), is(400, "wieght"));
    assert_eq!(refused("PATCH", "/v1/vms/a", json!({"weight": 0})), is(400, "weight"));
    assert_eq!(refused("PATCH", "/v1/vms/a", json!({"group": "c"})), is(400, "group"));
    assert_eq!(refused("PATCH", "/v1/groups/g", json!({"share": "all"})), is(400, "share"));
    let rules = |rule: Value| json!({"rules": [{"group": "g"}, rule]});
    let put = |rule| refused("PUT", "/v1/rules", rules(rule));
    assert_eq!(put(json!({"group": "c"})), is(400, "rules[1].group"));
    assert_eq!(put(json!({"group": "g", "vm": "c"})), is(400, "rules[1].vm"));
    assert_eq!(put(json!({"vm": "a"})), is(400, "rules[1].group"));
    let many = json!({"rules": vec![json!({"group": "g"}); 257]});
    assert_eq!(refused("PUT", "/v1/rules", many), is(400, "rules"));
    assert_eq!(operator.get("/v1/rules"), json!({"rules": []}), "nothing was changed");
    // A near miss comes with a suggestion.
    let (_, body) = operator.ask("GET", "/v1/groups/defualt", None);
    assert_eq!(body["error"], "no group `defualt`; did you mean `default`?");

    let raw = |head: &str, body: &[u8]| {
        let head = format!("{head}\r\nhost: ccc\r\nconnection: close\r\n");
        let length = format!("content-length: {}\r\n\r\n", body.len());
        operator.send(&[head.as_bytes(), length.as_bytes(), body].concat()).0
    };
    assert_eq!(raw("PATCH /v1/vms/a HTTP/1.1", b"{}"), 415);
    let json = "PATCH /v1/vms/a HTTP/1.1\r\ncontent-type: application/json; charset=utf-8";
    assert_eq!(raw(json, b"{}"), 200);
    assert_eq!(raw(json, b"{\"weight\": "), 400);
    assert_eq!(raw(json, &[b' '; 65_537]), 413);
    assert_eq!(raw("nonsense", b""), 400);
}

#[test]
fn slow_clients_stall_nobody() {
    let (daemon, operator) = start(&TWO, "");
    let mut a = driver(&daemon, "a");
    let extent = a.offer_extent(0, 4, 1);
    let mut generations = 1u32..;
    // They are thrown out after some seconds. What had waited for them would be done
    // only then, whenever it was tried; a busy machine is as slow now and then.
    until("flows are registered while slow clients hold on", || {
        let slow: Vec<_> = (0..20)
            .map(|_| {
                let mut stream = operator.connect();
                stream.write_all(b"GET /v1/status HTT").unwrap();
                stream.set_nonblocking(true).unwrap();
                stream
            })
            .collect();
        for generation in generations.by_ref().take(10) {
            a.register(&extent, 0, generation);
            assert!(a.accepted(&extent, 0, generation));
        }
        let holds_on = |mut stream: &UnixStream| {
            stream.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
        };
        slow.iter().all(holds_on)
    });
    assert_eq!(operator.get("/v1/status")["flows"], 1);
    // One that asks and asks without reading is just as harmless.
    let mut greedy = operator.connect();
    greedy.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    while greedy.write_all(b"GET /v1/vms HTTP/1.1\r\nhost: ccc\r\n\r\n").is_ok() {}
    let last = generations.start;
    a.register(&extent, 0, last);
    assert!(a.accepted(&extent, 0, last));
    assert_eq!(operator.get("/v1/status")["flows"], 1);
}

#[test]
fn several_requests_go_over_one_connection() {
    let (_daemon, operator) = start(&TWO, "");
    let mut stream = operator.connect();
    for _ in 0..3 {
        stream.write_all(b"GET /v1/rules HTTP/1.1\r\nhost: ccc\r\n\r\n").unwrap();
        let mut answer = vec![0; 4096];
        let length = stream.read(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer[..length]).starts_with("HTTP/1.1 200 OK"));
    }
}

/// A flow whose VM has a floor of 50 Mbit/s delivers 1, and each report says what nothing more
/// goes through by: waits until that is told.
fn floors_are_told(by: impl Fn(&mut Report, GrantLine)) {
    let (mut daemon, operator) = start(&TWO, "");
    operator.patch("/v1/vms/a", &json!({"floor_mbit": 50}));
    let mut a = driver(&daemon, "a");
    let extent = a.offer_extent(0, 4, 4);
    let mut now = report(1);
    a.tell(&extent, wire::OP_REGISTER, 0, &now);
    let short = || operator.get("/v1/groups/g")["shortfall"].clone();
    assert_eq!(short(), json!(null));
    let mut bytes = 0;
    until_within("told", Duration::from_secs(60), || {
        thread::sleep(Duration::from_millis(200));
        bytes += 25_000;
        (now.delivered_bytes, now.acked_limited_bytes) = (bytes.into(), bytes.into());
        by(&mut now, a.line(&extent, 0));
        a.tell(&extent, wire::OP_UPDATE, 0, &now);
        short()["floors"] == 6_250_000
    });
    assert!(short()["delivered"].as_u64().is_some_and(|rate| rate < 200_000), "{}", short());
    daemon.says("group g: its floors cannot be met: those of VMs that want them are 50.00 Mbit/s");
}

#[test]
fn floors_that_are_more_than_there_is_are_told_where_packets_are_lost() {
    floors_are_told(|now, line| {
        now.congestion_events = (now.congestion_events.get() + 1).into();
        now.congestion_epoch = line.epoch;
    });
}

#[test]
fn floors_that_are_more_than_there_is_are_told_where_packets_wait() {
    floors_are_told(|now, _| {
        now.min_rtt_us = (now.srtt_us.get() / 2).into();
        now.rtt_sample = ((now.srtt_us.get() / wire::RTT_UNIT_US) as u16).into();
    });
}

#[test]
fn changes_outlive_the_daemon() {
    let (daemon, operator) = start(&TWO, "");
    operator.patch("/v1/vms/a", &json!({"weight": 4, "coupled": false}));
    operator.patch("/v1/vms/a", &json!({"group": null, "coupled": true}));
    operator.patch("/v1/groups/g", &json!({"share": "window", "equivalent_tcps": 2}));
    operator.rules(&json!([{"destination": "10.0.0.0/8", "group": "h"}]));
    let paths = ["/v1/vms/a", "/v1/vms/b", "/v1/groups/g", "/v1/rules"];
    let before = paths.map(|path| operator.get(path));
    let daemon = daemon.restart();
    assert_eq!(paths.map(|path| operator.get(path)), before);
    assert_eq!(before[0]["weight"], 4.0);
    let mut b = driver(&daemon, "b");
    let extent = b.offer_extent(0, 4, 4);
    b.tell(&extent, wire::OP_REGISTER, 0, &flow_to(1, [10, 0, 0, 1]));
    b.register(&extent, 1, 1);
    assert_eq!([0, 1].map(|slot| b.group_of(&extent, slot)), [Some(1), Some(0)]);
    let line = u64::from(b.grant(&extent, 1).line.get());
    assert_eq!(b.line(&extent, line).flags.get() & wire::L_RATE, 0, "shared by window");
}

#[test]
fn a_state_that_names_what_is_gone_is_used_as_far_as_it_goes() {
    let (daemon, operator) = start(&TWO, "");
    operator.patch("/v1/vms/a", &json!({"weight": 4}));
    operator.patch("/v1/vms/b", &json!({"weight": 3}));
    let config = daemon.dir.path().join("ccc.toml");
    let text = fs::read_to_string(&config).unwrap();
    let without = text.split("[vm.b]").next().unwrap().to_owned();
    fs::write(&config, without).unwrap();
    let mut daemon = daemon.restart();
    assert_eq!(operator.get("/v1/vms/a")["weight"], 4.0);
    daemon.says("state of VM b not used: no VM `b`");
    let told = || operator.get("/v1/status")["not_kept"].clone();
    assert_eq!(told(), "VM b: no VM `b`");
    assert_eq!(operator.ask("DELETE", "/v1/vms/b/changes", None), (200, json!({"name": "b"})));
    assert_eq!(told(), json!(null), "it is forgotten");
    let _daemon = daemon.restart();
    assert_eq!(told(), json!(null));
    assert_eq!(operator.ask("DELETE", "/v1/vms/b/changes", None).0, 404);
}

#[test]
fn a_group_that_is_renamed_costs_nothing_but_its_name() {
    let (daemon, operator) = start(&TWO, "");
    operator.patch("/v1/vms/a", &json!({"group": "h", "weight": 5, "cap_mbit": 100}));
    operator.patch("/v1/groups/h", &json!({"share": "window"}));
    operator.rules(&json!([{"vm": "b", "group": "h"}, {"vm": "b", "group": "none"}]));
    let tenant = json!({"socket": daemon.socket("t"), "group": "h", "cap_mbit": 10,
        "tenant": "cgroup:/batch"});
    assert_eq!(operator.ask("PUT", "/v1/vms/batch", Some(&tenant)).0, 200);
    let config = daemon.dir.path().join("ccc.toml");
    let text = fs::read_to_string(&config).unwrap().replace("[group.h]", "[group.wan]");
    fs::write(&config, text).unwrap();
    let daemon = daemon.restart();
    let of = |vm: &str, field: &str| operator.get(&format!("/v1/vms/{vm}"))[field].clone();
    assert_eq!((of("a", "group"), of("a", "weight")), (json!("g"), json!(5.0)));
    assert_eq!((of("a", "cap_mbit"), of("batch", "cap_mbit")), (json!(100.0), json!(10.0)));
    assert_eq!(
        (of("batch", "group"), of("batch", "tenant")),
        (json!(null), json!("cgroup:/batch"))
    );
    assert_eq!(operator.get("/v1/rules")["rules"].as_array().unwrap().len(), 1);
    let told = || operator.get("/v1/status")["not_kept"].as_str().unwrap_or_default().to_owned();
    let of_lines =
        || told().lines().map(|line| line.split_once(": ").unwrap().0.to_owned()).collect();
    let lines: Vec<String> = of_lines();
    assert_eq!(lines, ["group h", "VM a", "VM batch", "rules"]);
    assert!(
        operator.get("/metrics").as_str().unwrap().contains("ccc_state_kept{what=\"changes\"} 0")
    );
    // What is set now holds, and settles nothing else.
    operator.patch("/v1/vms/a", &json!({"cap_mbit": 50}));
    let daemon = daemon.restart();
    assert_eq!((of("a", "cap_mbit"), of_lines()), (json!(50.0), lines));
    operator.patch("/v1/vms/a", &json!({"group": "wan"}));
    assert_eq!(operator.ask("DELETE", "/v1/vms/batch", None).0, 200);
    operator.rules(&json!([{"vm": "b", "group": "wan"}]));
    assert_eq!(operator.ask("DELETE", "/v1/groups/h/changes", None).0, 200);
    assert_eq!(told(), "");
    let _daemon = daemon.restart();
    assert_eq!(
        (of("a", "group"), of("a", "cap_mbit"), told()),
        (json!("wan"), json!(50.0), String::new())
    );
}

#[test]
fn a_damaged_state_is_used_as_far_as_it_can_be_read() {
    let (daemon, operator) = start(&TWO, "");
    operator.patch("/v1/vms/a", &json!({"weight": 3}));
    assert_eq!(operator.get("/v1/status")["not_kept"], json!(null));
    let file = daemon.socket("state");
    let damaged = fs::read_to_string(&file).unwrap().replace("\"vms\": {", "\"vms\": {\"b\": 7,");
    let mut daemon = daemon.restart_while(|| fs::write(&file, &damaged).unwrap());
    daemon.says("goes on with what can be read of it");
    assert_eq!(operator.get("/v1/vms/a")["weight"], 3.0, "which can be read");
    let told = operator.get("/v1/status")["not_kept"].to_string();
    assert!(told.contains("invalid vms.b"), "{told}");
    let beside = told.split("as it was found is ").nth(1).unwrap().trim_end_matches('"');
    assert_eq!(fs::read_to_string(beside).unwrap(), damaged);
    let remedy = format!(
        ": to have it again, stop ccc-vhost, mend the file as it was found, move it to {}, and start \
         ccc-vhost, which loses the changes made since;",
        text(&file)
    );
    assert!(told.contains(&remedy) && !told.contains("correct it"), "{told}");
    operator.patch("/v1/vms/b", &json!({"weight": 2}));
    let after = operator.get("/v1/status")["not_kept"].to_string();
    assert_eq!(after, told, "a change mends nothing of it");
    let _daemon = daemon.restart();
    assert_eq!(operator.get("/v1/status")["not_kept"], json!(null), "it is whole again");
    assert_eq!(operator.get("/v1/vms/a")["weight"], 3.0);
}

#[test]
fn a_state_that_cannot_be_kept_does_not_stop_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let own = format!(
        "[daemon]\ncontrol = \"{}\"\nstate = \"{}\"\n[vm.a]\nsocket = \"{}\"\n",
        at("control"),
        at("no/state"),
        at("a")
    );
    fs::write(dir.path().join("ccc.toml"), own).unwrap();
    let control = dir.path().join("control");
    let config = dir.path().join("ccc.toml");
    let lost = "changes are in force, and lost at the next start";
    let (_, _, checked) = run(&["--config", text(&config), "--check"]);
    assert!(checked.contains(lost), "{checked}");
    let mut daemon = Daemon::spawn_by(dir, &[], &[]);
    daemon.says("its directory does not exist");
    daemon.says(lost);
    let operator = Operator::at(&control);
    let told = operator.get("/v1/status")["not_kept"].to_string();
    assert!(told.contains("its directory does not exist"), "{told}");
    let (status, body) = operator.ask("PATCH", "/v1/vms/a", Some(&json!({"weight": 2})));
    assert_eq!(status, 500, "{body}");
    assert_eq!(operator.get("/v1/vms/a")["weight"], 2.0, "in force");
}

#[test]
fn o2_a_state_file_that_could_not_be_locked_is_locked_as_soon_as_it_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let in_the_way = dir.path().join("state.lock");
    fs::create_dir(&in_the_way).unwrap();
    let (mut daemon, operator) = operator::start_in(dir, &TWO, "");
    let kept = || operator.get("/metrics").as_str().unwrap().contains("{what=\"changes\"} 1");
    let told = operator.get("/v1/status")["not_kept"].to_string();
    assert!(told.contains("cannot lock") && !kept(), "{told}");
    fs::remove_dir(&in_the_way).unwrap();
    daemon.says("is locked: no other daemon takes it");
    until("nothing to tell of", || operator.get("/v1/status")["not_kept"].is_null() && kept());
    let config = daemon.socket("ccc.toml");
    let other = daemon.socket("other");
    let (served, _, told) = run_for(&["--config", text(&config), "--control", text(&other)], "60");
    assert!(!served && told.contains("in use by process"), "{told}");
}

#[test]
fn a_state_file_whose_directory_comes_late_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let [control, state, a] = ["control", "var/state", "a"].map(at);
    let own = format!(
        "[daemon]\ncontrol = \"{control}\"\nstate = \"{state}\"\nsandbox = \"off\"\n\
         [vm.a]\nsocket = \"{a}\"\n"
    );
    fs::write(at("ccc.toml"), own).unwrap();
    let (var, away) = (dir.path().join("var"), dir.path().join("away"));
    fs::create_dir(&var).unwrap();
    let daemon = Daemon::spawn_by(dir, &[], &[]);
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/a", &json!({"weight": 7}));
    let kept = fs::read_to_string(&state).unwrap();
    let mut daemon = daemon.restart_while(|| fs::rename(&var, &away).unwrap());
    fs::rename(&away, &var).unwrap();
    daemon.says("is locked: no other daemon takes it");
    let told = || operator.get("/v1/status")["not_kept"].as_str().unwrap_or_default().to_owned();
    until("it is told", || told().starts_with("state file") && told().lines().count() == 1);
    let beside = told().rsplit_once("as it was found is ").unwrap().1.to_owned();
    operator.patch("/v1/vms/a", &json!({"group": null}));
    assert_eq!(fs::read_to_string(&beside).unwrap(), kept, "no change takes its place");
    assert!(told().contains("move the file as it was found to"), "{}", told());
    assert!(
        operator.get("/metrics").as_str().unwrap().contains("ccc_state_kept{what=\"changes\"} 0")
    );
    let _daemon = daemon.restart_while(|| fs::rename(&beside, &state).unwrap());
    assert_eq!((operator.get("/v1/vms/a")["weight"].clone(), told()), (json!(7.0), String::new()));
}

#[test]
fn the_command_line_names_a_control_socket_too() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("control");
    let argument = text(&control).to_owned();
    let daemon = Daemon::start_in(dir, &[("a", 1.0, "default")], "", &["--control", &argument]);
    let operator = Operator::at(&control);
    assert_eq!(operator.get("/v1/status")["vms"], 1);
    drop(daemon);
    until("gone", || !control.exists());
}

#[test]
fn vms_come_and_go_while_others_run() {
    let (daemon, operator) = start(&TWO, "");
    let mut a = driver(&daemon, "a");
    let in_a = a.offer_extent(0, 4, 1);
    a.register(&in_a, 0, 1);
    let alone = a.window(&in_a);
    let spec = json!({"socket": text(&daemon.socket("c")), "group": "g", "weight": 3});
    let put = |spec: &Value| operator.ask("PUT", "/v1/vms/c", Some(spec));
    for life in 0..20 {
        let (status, vm) = put(&spec);
        assert_eq!(status, 200, "life {life}: {vm}");
        assert_eq!((&vm["weight"], &vm["group"]), (&json!(3.0), &json!("g")));
        let mode = fs::metadata(daemon.socket("c")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let mut c = driver(&daemon, "c");
        let in_c = c.offer_extent(0, 4, 1);
        c.register(&in_c, 0, 1);
        // A flow that says nothing for long no longer counts: on a busy machine that
        // may be between any two lines, so both say something before each look.
        let mut windows = || {
            a.tell(&in_a, wire::OP_UPDATE, 0, &report(1));
            c.tell(&in_c, wire::OP_UPDATE, 0, &report(1));
            (a.window(&in_a), c.window(&in_c))
        };
        until("three times as much", || {
            let (in_a, in_c) = windows();
            (in_c as f64 / in_a as f64 / 3.0 - 1.0).abs() < 0.01
        });
        // Again, with another weight: nothing but that changes.
        assert_eq!(put(&json!({"socket": spec["socket"], "group": "g"})).0, 200);
        until("as much", || {
            let (in_a, in_c) = windows();
            in_c.abs_diff(in_a) <= 1
        });
        assert!(c.accepted(&in_c, 0, 1));
        let (status, last) = operator.ask("DELETE", "/v1/vms/c", None);
        assert_eq!((status, &last["name"]), (200, &json!("c")));
        assert!(!daemon.socket("c").exists());
        assert_eq!(operator.ask("GET", "/v1/vms/c", None).0, 404);
        until("one flow that has everything", || {
            a.tell(&in_a, wire::OP_UPDATE, 0, &report(1));
            operator.get("/v1/groups/g")["active_flows"] == 1 && a.window(&in_a) + 1 >= alone
        });
        assert!(a.accepted(&in_a, 0, 1), "life {life}");
    }
    assert_eq!(operator.get("/v1/status")["vms"], 2);
}

#[test]
fn vms_that_cannot_be_added_or_removed_are_told_why() {
    let (daemon, operator) = start(&TWO, "");
    let at = |name: &str| json!({"socket": text(&daemon.socket(name))});
    let is = |status: u16, field: &str| (status, field.to_owned());
    let put = |vm: &str, spec: &Value| operator.refused("PUT", &format!("/v1/vms/{vm}"), spec);
    assert_eq!(put("c", &json!({})), is(400, "socket"));
    assert_eq!(put("c", &json!({"socket": "relative"})), is(400, "socket"));
    assert_eq!(put("c", &json!({"socket": format!("/{}", "x".repeat(107))})), is(400, "socket"));
    assert_eq!(put("c", &json!({"socket": "/nowhere/at/all"})), is(400, "socket"));
    assert_eq!(put("c", &at("ccc.toml")), is(400, "socket"), "a file");
    assert_eq!(put("c", &at("a")), is(400, "socket"), "that of another");
    assert_eq!(put("a", &at("c")), is(409, "socket"), "it has another");
    assert_eq!(put("a%20b", &at("c")), is(400, "name"));
    let unknown = json!({"socket": text(&daemon.socket("c")), "group": "nil"});
    assert_eq!(put("c", &unknown), is(400, "group"));
    assert!(!daemon.socket("c").exists(), "nothing is left of what was refused");
    assert_eq!(operator.refused("DELETE", "/v1/vms/c", &Value::Null), is(404, ""));
    assert_eq!(operator.refused("DELETE", "/v1/vms/a", &Value::Null), is(409, ""));
    // One of the configuration can be described all the same.
    let (status, vm) = operator.ask("PUT", "/v1/vms/a", Some(&at("a")));
    assert_eq!((status, &vm["group"]), (200, &json!("default")));
}

#[test]
fn vms_that_were_added_outlive_the_daemon() {
    let (daemon, operator) = start(&TWO, "");
    let spec = |vm: &str| json!({"socket": text(&daemon.socket(vm)), "group": "h", "weight": 5});
    for vm in ["c", "d", "e"] {
        let (status, told) = operator.ask("PUT", &format!("/v1/vms/{vm}"), Some(&spec(vm)));
        assert_eq!(status, 200, "{told}");
    }
    operator.rules(&json!([{"vm": "d", "group": "g"}, {"vm": "c", "group": "g"}]));
    assert_eq!(operator.ask("DELETE", "/v1/vms/d", None).0, 200);
    let (rules, before) = (operator.get("/v1/rules"), operator.get("/v1/vms/c"));
    assert_eq!(rules["rules"].as_array().unwrap().len(), 1, "{rules}");
    let mut daemon = daemon.restart_while(|| {});
    assert_eq!((operator.get("/v1/rules"), operator.get("/v1/vms/c")), (rules, before));
    assert_eq!(operator.ask("GET", "/v1/vms/d", None).0, 404);
    let mut c = driver(&daemon, "c");
    let extent = c.offer_extent(0, 4, 1);
    c.register(&extent, 0, 1);
    assert!(c.accepted(&extent, 0, 1));
    // What is in the way of one is no trouble of the others.
    daemon.terminate("-TERM");
    fs::create_dir(daemon.socket("e")).unwrap();
    daemon = daemon.restart_dead();
    daemon.says("VM e: nobody can connect to its socket");
    let unserved = |vm: &str| operator.get(&format!("/v1/vms/{vm}"))["unserved"].clone();
    assert!(unserved("e").as_str().unwrap().contains("exists and is no socket"));
    assert_eq!(unserved("c"), Value::Null);
    let metrics = || operator.get("/metrics").as_str().unwrap().to_owned();
    assert!(metrics().contains("ccc_vm_served{vm=\"e\"} 0"), "{}", metrics());
    fs::remove_dir(daemon.socket("e")).unwrap();
    daemon.says("VM e: its front end can connect now");
    drop(driver(&daemon, "e"));
    assert_eq!(unserved("e"), Value::Null);
}

#[test]
fn a_socket_that_was_removed_is_made_again_when_somebody_asks_for_vms() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    fs::create_dir(&below).unwrap();
    let socket = below.join("c");
    let more = format!("sandbox = \"off\"\n[vm.c]\nsocket = \"{}\"\n", text(&socket));
    let (mut daemon, operator) = operator::start_in(dir, &TWO, &more);
    let connected = driver(&daemon, "a");
    for vm in ["a", "b"] {
        fs::remove_file(daemon.socket(vm)).unwrap();
    }
    let served = |vm: &str, is: u8| {
        let metrics = operator.get("/metrics").as_str().unwrap().to_owned();
        assert!(metrics.contains(&format!("ccc_vm_served{{vm=\"{vm}\"}} {is}.0\n")), "{metrics}");
    };
    served("b", 1);
    daemon.says("VM b: its socket was removed, and is made again");
    drop(driver(&daemon, "b"));
    assert_eq!(operator.get("/v1/vms/a")["connected"], true, "who is there stays");
    drop(connected);
    until("gone", || operator.get("/v1/vms/a")["connected"] == false);
    drop(driver(&daemon, "a"));
    // Where it cannot be, that is told, and tried again without anybody who asks.
    fs::remove_dir_all(&below).unwrap();
    let told = operator.get("/v1/vms/c")["unserved"].to_string();
    assert!(told.contains("there is no directory"), "{told}");
    daemon.says("VM c: nobody can connect to its socket: cannot listen on");
    served("c", 0);
    fs::create_dir(&below).unwrap();
    daemon.says("VM c: its front end can connect now");
    served("c", 1);
    drop(Driver::connect(&socket, Mode::InBand));
}

#[test]
fn a_socket_that_was_removed_is_made_again_for_who_describes_its_vm() {
    let (daemon, operator) = start(&TWO, "");
    let (a, b) = (daemon.socket("a"), daemon.socket("b"));
    for (method, body) in [("PUT", json!({"socket": text(&a)})), ("PATCH", json!({"weight": 2}))] {
        fs::remove_file(&a).unwrap();
        fs::remove_file(&b).unwrap();
        assert_eq!(operator.ask(method, "/v1/vms/a", Some(&body)).0, 200);
        assert!(a.exists() && !b.exists(), "{method}");
        drop(driver(&daemon, "a"));
        operator.get("/v1/vms");
    }
}

#[test]
fn a_daemon_may_begin_without_any_vm() {
    let (mut daemon, operator) = start(&[], "");
    assert_eq!(operator.get("/v1/vms"), json!({"vms": []}));
    let spec = json!({"socket": text(&daemon.socket("c"))});
    assert_eq!(operator.ask("PUT", "/v1/vms/c", Some(&spec)).0, 200);
    drop(driver(&daemon, "c"));
    assert_eq!(operator.ask("DELETE", "/v1/vms/c", None).0, 200);
    assert!(daemon.running());
    assert_eq!(operator.get("/v1/status")["vms"], 0);
}

#[test]
fn a_tap_of_another_vm_is_refused_until_it_is_given_up() {
    let (daemon, operator) = start(&TWO, "");
    operator.patch("/v1/vms/a", &json!({"tap": "vnet0"}));
    let own = json!({"tap": "vnet0"});
    let taken = (400, "tap".to_owned());
    assert_eq!(operator.refused("PATCH", "/v1/vms/b", &own), taken);
    let new = json!({"socket": daemon.socket("c"), "tap": "vnet0"});
    assert_eq!(operator.refused("PUT", "/v1/vms/c", &new), taken);
    assert_eq!(operator.ask("GET", "/v1/vms/c", None).0, 404, "it was not added");
    let there = json!({"socket": daemon.socket("b"), "tap": "vnet0"});
    assert_eq!(operator.refused("PUT", "/v1/vms/b", &there), taken);
    operator.patch("/v1/vms/a", &json!({"tap": null}));
    assert_eq!(operator.patch("/v1/vms/b", &own)["tap"], "vnet0");
}
