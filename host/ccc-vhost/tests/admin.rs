// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators may do to the daemon, and what they must not.
#![allow(clippy::unwrap_used)]
mod support;

use std::{fs, os::unix::net::UnixStream, process::Command, time::Duration};

use ccc_proto::wire;
use serde_json::{Value, json};
use support::{
    daemon::{Daemon, text, until, until_within},
    driver::{Driver, report},
    frontend::Mode,
    operator::{Operator, TWO, connect_at_once, own, start, start_in},
    users::{dir_for_all, is_root},
};

fn put(operator: &Operator, daemon: &Daemon, vm: &str) -> (u16, Value) {
    let spec = json!({"socket": text(&daemon.socket(vm)), "group": "g"});
    operator.ask("PUT", &format!("/v1/vms/{vm}"), Some(&spec))
}

#[test]
fn f4_a_vm_too_many_for_the_descriptors_is_refused_and_harms_nobody() {
    let (mut daemon, operator) = start(&TWO);
    daemon.limit_files("64");
    let mut a = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = a.offer_extent(0, 4, 1);
    let mut added = Vec::new();
    let refused = (0..100).find_map(|number| {
        let (status, body) = put(&operator, &daemon, &format!("vm{number}"));
        if status == 200 {
            added.push(number);
        }
        (status != 200).then_some((status, body))
    });
    let (status, body) = refused.expect("a VM for which no descriptor is left");
    assert!(daemon.running(), "the daemon has ended");
    assert_eq!(status, 503, "{body}");
    let told = body["error"].as_str().unwrap();
    assert!(told.contains("open files") && told.contains("LimitNOFILE"), "{told}");
    a.tell(&extent, wire::OP_REGISTER, 0, &report(1));
    assert!(a.accepted(&extent, 0, 1), "the others go on");
    // What was refused is not half there, and room that is made is room.
    assert_eq!(operator.get("/v1/status")["vms"], 2 + added.len());
    let name = format!("/v1/vms/vm{}", added.last().expect("some were added"));
    assert_eq!(operator.ask("DELETE", &name, None).0, 200);
    assert_eq!(put(&operator, &daemon, "again").0, 200);
}

#[test]
fn f4_more_vms_start_than_the_soft_limit_of_open_files_lets() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = own(dir.path(), "");
    for number in 0..60 {
        let socket = dir.path().join(format!("vm{number}"));
        config += &format!("[vm.vm{number}]\nsocket = \"{}\"\n", text(&socket));
    }
    fs::write(dir.path().join("ccc.toml"), config).unwrap();
    let daemon = Daemon::spawn_by(dir, &["prlimit", "--nofile=128:4096"], &[]);
    let operator = Operator::at(&daemon.socket("control"));
    assert_eq!(operator.get("/v1/status")["vms"], 60);
}

#[test]
fn the_log_has_more_or_less_when_an_operator_says_so() {
    let (mut daemon, operator) = start(&TWO);
    assert_eq!(operator.get("/v1/log"), json!({"level": "debug"}));
    assert_eq!(operator.refused("PATCH", "/v1/log", &json!({"level": "loud"})).1, "level");
    operator.patch("/v1/log", &json!({"level": "error"}));
    let quiet = daemon.log().len();
    drop(Driver::connect(&daemon.socket("a"), Mode::InBand));
    // What somebody has changed is told all the same.
    operator.patch("/v1/vms/a", &json!({"weight": 2}));
    let said = daemon.log()[quiet..].to_owned();
    assert!(said.contains("weight 1 → 2") && !said.contains("connected"), "{said}");
    operator.patch("/v1/log", &json!({"level": "trace"}));
    drop(Driver::connect(&daemon.socket("a"), Mode::InBand));
    until("told again", || daemon.log()[quiet..].contains("VM a: connected"));
}

#[test]
fn f2_a_disk_that_is_full_is_told_and_tried_again() {
    let (mut daemon, operator) = start(&TWO);
    // A directory where the new file would be written.
    let obstacle = daemon.dir.path().join("state.new");
    fs::create_dir(&obstacle).unwrap();
    let change = json!({"weight": 2});
    for _ in 0..2 {
        let (status, body) = operator.ask("PATCH", "/v1/vms/a", Some(&change));
        assert_eq!(status, 500, "the same again is not kept either: {body}");
        assert!(body["error"].as_str().unwrap().starts_with("in force, but not kept"), "{body}");
    }
    daemon.says("changes are in force, but not kept");
    assert_eq!(operator.get("/v1/vms/a")["weight"], 2.0);
    fs::remove_dir(&obstacle).unwrap();
    daemon.says_within("all changes are kept", Duration::from_secs(60));
    let _daemon = daemon.restart();
    assert_eq!(operator.get("/v1/vms/a")["weight"], 2.0);
}

#[test]
fn a_description_makes_no_vm_of_a_tenant_and_no_tenant_of_a_vm() {
    let (daemon, operator) = start(&TWO);
    let described = |name: &str, tenant: Value, weight: i32| json!({"socket": text(&daemon.socket(name)), "tenant": tenant, "weight": weight});
    let ask = |name: &str, tenant: Value, weight: i32| {
        let spec = described(name, tenant, weight);
        operator.ask("PUT", &format!("/v1/vms/{name}"), Some(&spec))
    };
    let web = json!("netns:web");
    assert_eq!(ask("web", web.clone(), 3).0, 200);
    // As a domain's hook describes it.
    let (status, told) = ask("web", Value::Null, 5);
    assert_eq!((status, &told["field"]), (409, &json!("tenant")), "{told}");
    let words = told["error"].as_str().unwrap();
    for part in ["is the tenant netns:web and no VM", "cccctl tenant remove web", "metadata"] {
        assert!(words.contains(part), "{words}");
    }
    let there = operator.get("/v1/vms/web");
    assert_eq!((&there["tenant"], &there["weight"]), (&web, &json!(3.0)));
    assert_eq!(ask("web", web.clone(), 4).1["weight"], 4.0, "the same tenant");
    let (status, told) = ask("a", web, 5);
    assert_eq!(status, 409, "{told}");
    assert!(told["error"].as_str().unwrap().contains("`a` is a VM and no tenant"), "{told}");
    assert_eq!(operator.get("/v1/vms/a")["tenant"], Value::Null);
}

#[test]
fn a_second_tenant_at_a_place_is_told_whose_it_is() {
    let (daemon, operator) = start(&TWO);
    let ask = |name: &str, place: &str| {
        let spec = json!({"socket": text(&daemon.socket(name)), "tenant": place});
        operator.ask("PUT", &format!("/v1/vms/{name}"), Some(&spec))
    };
    assert_eq!(ask("first", "vsock:7").0, 200);
    let (status, told) = ask("second", "vsock:7");
    assert_eq!((status, &told["field"]), (409, &json!("tenant")), "{told}");
    let words = told["error"].as_str().unwrap();
    assert!(words.starts_with("vsock:7 is the tenant `first` already"), "{told}");
    assert_eq!(ask("second", "vsock:8").0, 200);
    assert_eq!(ask("second", "vsock:7").0, 409, "nor by a change");
    assert_eq!(ask("first", "vsock:7").0, 200, "its own");
}

#[test]
fn o7_what_goes_over_the_configuration_is_told_and_can_be_taken_back() {
    let (daemon, operator) = start(&TWO);
    // As a hook does for a domain with metadata.
    let spec = json!({"socket": text(&daemon.socket("a")), "group": "h", "weight": 3});
    assert_eq!(operator.ask("PUT", "/v1/vms/a", Some(&spec)).0, 200);
    operator.patch("/v1/groups/g", &json!({"share": "window"}));
    operator.rules(&json!([{"group": "h"}]));
    let mut daemon = daemon.restart();
    let over = "an earlier change goes over the configuration";
    daemon.says(&format!("VM a: {over}: weight 1 → 3, group g → h; `cccctl reset a`"));
    daemon.says(&format!("group g: {over}: share rate → window"));
    daemon.says("rules: 1 of an earlier change instead of the configuration's 0");
    let configured = json!({
        "weight": 1.0, "group": "g", "coupled": true, "tap": null, "floor_mbit": 0.0,
        "cap_mbit": null,
        "device": true,
        "tenant": null,
    });
    assert_eq!(operator.get("/v1/vms/a")["configured"], configured);
    assert_eq!(operator.get("/v1/vms/b")["configured"], Value::Null);

    let back = |path: &str| operator.ask("DELETE", path, None);
    let (status, vm) = back("/v1/vms/a/changes");
    assert_eq!((status, &vm["weight"], &vm["group"]), (200, &json!(1.0), &json!("g")));
    assert_eq!(vm["configured"], Value::Null);
    assert_eq!(back("/v1/groups/g/changes").1["share"], "rate");
    assert_eq!(back("/v1/rules").1, json!({"rules": []}));
    let mut daemon = daemon.restart();
    assert_eq!(operator.get("/v1/vms/a")["weight"], 1.0);
    assert!(!daemon.log().contains(over), "{}", daemon.log());
    // What was added has nothing to go back to.
    assert_eq!(put(&operator, &daemon, "c").0, 200);
    assert_eq!(operator.refused("DELETE", "/v1/vms/c/changes", &Value::Null).0, 409);
}

#[test]
fn floors_at_an_uplink_are_told_with_what_they_can_be() {
    let (_daemon, operator) = start(&TWO);
    operator.patch("/v1/vms/a", &json!({"group": "g", "tap": "nosuch1", "floor_mbit": 6}));
    operator.patch("/v1/vms/b", &json!({"group": "g", "floor_mbit": 4}));
    let uplink = json!({"enforce": "on", "uplink": "nosuch0", "uplink_rate_mbit": 10});
    operator.patch("/v1/groups/g", &uplink);
    let told = || {
        let queues = &operator.get("/v1/groups/g")["queues"];
        ["floors", "floors_at_most"].map(|key| queues[key].as_u64())
    };
    assert_eq!(told(), [Some(750_000), Some(1_187_500)], "who has no tap has no queue");
    operator.patch("/v1/vms/b", &json!({"tap": "nosuch2"}));
    assert_eq!(told(), [Some(1_250_000), Some(1_187_500)]);
}

#[test]
fn o8_changes_are_logged_as_an_operator_says_them() {
    let (mut daemon, operator) = start(&TWO);
    let by = format!("(by uid {} pid {})", rustix::process::geteuid().as_raw(), std::process::id());
    operator.patch("/v1/vms/a", &json!({"weight": 3}));
    operator.patch("/v1/vms/a", &json!({"weight": 0.5, "group": null, "coupled": false}));
    operator.patch("/v1/vms/a", &json!({"weight": 0.5}));
    operator.patch("/v1/groups/g", &json!({"policy": "cm", "equivalent_tcps": 2}));
    operator
        .rules(&json!([{"vm": "a", "destination": "10.0.0.0/8", "group": null}, {"group": "h"}]));
    operator.rules(&json!([]));
    assert_eq!(put(&operator, &daemon, "c").0, 200);
    assert_eq!(operator.ask("DELETE", "/v1/vms/c", None).0, 200);
    let whole = json!({"socket": daemon.socket("d"), "weight": 3, "group": null, "coupled": false,
        "tap": "vnet9", "floor_mbit": 1.5, "cap_mbit": 20, "device": false,
        "tenant": "cgroup:/batch"});
    assert_eq!(operator.ask("PUT", "/v1/vms/d", Some(&whole)).0, 200);
    daemon.says("the control socket is in the directory of VM d's socket");
    let log = daemon.log();
    let lines: Vec<&str> = log.lines().filter_map(|line| Some(line.split_once("] ")?.1)).collect();
    let told: Vec<&str> = lines.iter().filter_map(|line| line.strip_suffix(&by)).collect();
    let [c, d] = ["c", "d"].map(|name| daemon.socket(name).display().to_string());
    assert_eq!(
        told,
        [
            "VM a: weight 1 → 3 ",
            "VM a: weight 3 → 0.5, group g → none, coupled on → off ",
            "group g: policy ctrltcp → cm, equivalent_tcps 1 → 2 ",
            "rules: a 10.0.0.0/8 → none; every VM everywhere → h ",
            "rules: none ",
            &format!("VM c: added, on {c}, group g "),
            "VM c: removed ",
            &format!(
                "VM d: added, on {d}, weight 3, group none, coupled off, tap vnet9, floor_mbit 1.5, \
                 cap_mbit 20, device off, tenant cgroup:/batch "
            ),
        ]
    );
    assert!(!log.contains("Changes") && !log.contains("Settings"), "{log}");
}

#[test]
fn o2_a_second_daemon_with_the_same_state_file_is_refused() {
    let (daemon, operator) = start(&TWO);
    // Sockets of its own, and the same state file.
    let state = text(&daemon.socket("state")).to_owned();
    let other = tempfile::tempdir().unwrap();
    let control = other.path().join("control");
    let config =
        format!("[daemon]\ncontrol = \"{}\"\nstate = \"{state}\"\n[group.g]\n", text(&control));
    let file = other.path().join("ccc.toml");
    fs::write(&file, config).unwrap();
    let (done, _, said) = support::daemon::run_for(&["--config", text(&file)], "60");
    assert!(!done && said.contains(&format!("in use by process {}", daemon.pid())), "{said}");
    operator.patch("/v1/vms/a", &json!({"weight": 2}));
    // One that was killed holds nothing.
    let _daemon = daemon.restart();
    assert_eq!(operator.get("/v1/vms/a")["weight"], 2.0);
}

#[test]
fn o3_a_check_tells_what_is_wrong_on_this_host() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ccc.toml");
    let check = |config: &str| {
        fs::write(&file, config).unwrap();
        let (done, _, said) = support::daemon::run(&["--config", text(&file), "--check"]);
        (done, said)
    };
    let at = |name: &str| dir.path().join(name).display().to_string();
    let vm = format!("[vm.a]\nsocket = \"{}\"\n", at("a"));
    let with = |state: &str| format!("[daemon]\nstate = \"{}\"\n{vm}", at(state));
    assert_eq!(check(&with("state")), (true, String::new()));
    for relative in ["socket = \"a\"", "socket = \"./a\""] {
        let (done, said) = check(&format!("[vm.a]\n{relative}\n"));
        assert!(!done && said.contains("invalid vm.a.socket: expected an absolute path"), "{said}");
    }
    // All of it at once.
    let (done, said) = check(&format!(
        "[daemon]\ncontrol = \"{}\"\nstate = \"{}\"\noperators = \"no-such-group\"\n\
         readers = \"no-such-readers\"\n\
         [group.wan]\nuplink = \"no-such-uplink\"\nuplink_rate_mbit = 9.0\n\
         [group.lan]\nuplink = \"lo\"\nuplink_rate_mbit = 9.0\n\
         [vm.a]\nsocket = \"{}\"\ntap = \"no-such-tap\"\n[vm.b]\nsocket = \"{}\"\n",
        at("nowhere/control"),
        text(dir.path()),
        at("no/a"),
        at("ccc.toml")
    ));
    assert!(!done);
    for part in [
        &format!("control: cannot listen on {}", at("nowhere/control")),
        &format!("VM a: cannot listen on {}: there is no directory {}", at("no/a"), at("no")),
        "VM b: ",
        "exists and is no socket",
        "no-such-group",
        "no-such-readers",
        "is a directory; name a file in it",
        "VM a: its tap no-such-tap is not there now",
        "group wan: its uplink no-such-uplink is not there now",
    ] {
        assert!(said.contains(part), "{part}: not in\n{said}");
    }
    assert!(!said.contains("group lan"), "{said}");
    for (content, told) in
        [("{", "expected JSON"), ("{\"version\": 9}", "expected 1, got 9"), ("[]", "an object")]
    {
        fs::write(at("state"), content).unwrap();
        let (done, said) = check(&with("state"));
        assert!(done && said.contains(told), "the daemon starts all the same: {said}");
    }
    let (done, said) = check(&with("no/state"));
    assert!(done && said.contains("its directory does not exist"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [taken.local_addr().unwrap().to_string(), "192.0.2.1:9170".to_owned()] {
        let (done, said) = check(&format!("[daemon]\nmetrics = \"{address}\"\n{vm}"));
        let told = format!("no metrics: cannot listen on {address}");
        assert!(done && said.contains(&told), "{said}");
    }
    assert!(!dir.path().join("a").exists(), "a check makes nothing");
}

/// As its user it is asked before it starts.
#[test]
fn o3_what_a_check_refuses_the_daemon_refuses_too() {
    if !is_root() {
        return;
    }
    let dir = dir_for_all();
    let [program, file] = ["ccc-vhost", "ccc.toml"].map(|name| dir.path().join(name));
    fs::copy(support::daemon::PROGRAM, &program).unwrap();
    let control = dir.path().join("control");
    fs::write(&file, own(dir.path(), "operators = \"no-such-group\"\n")).unwrap();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "timeout", "60"];
    let faults = [&["--check"][..], &[]].map(|more| {
        let mut command = Command::new("setpriv");
        command.args(user).arg(&program).args(["--config", text(&file)]).args(more);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{more:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let faults = said.lines().filter(|line| line.starts_with("ccc-vhost: "));
        faults.map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!(faults[0], faults[1]);
    assert!(
        faults[0][0].contains(&format!("cannot listen on {}: Permission", text(&control))),
        "{faults:?}"
    );
    assert!(faults[0][1].contains("no-such-group"), "{faults:?}");
}

/// What is wrong with one VM's socket is no trouble of the others.
#[test]
fn o3_a_vm_without_its_directory_is_told_and_the_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("later");
    let socket = missing.join("c");
    let more = format!("[vm.c]\nsocket = \"{}\"\n", text(&socket));
    let (mut daemon, operator) = start_in(dir, &TWO, &more);
    daemon.says(&format!("no directory {}; create it", text(&missing)));
    drop(Driver::connect(&daemon.socket("a"), Mode::Eventfd));
    assert!(operator.get("/v1/vms/c")["unserved"].is_string());
    // The daemon has taken a directory from itself that was not there when it started.
    fs::create_dir(&missing).unwrap();
    let daemon = daemon.restart();
    drop(Driver::connect(&socket, Mode::Eventfd));
    assert_eq!(operator.get("/v1/vms/c")["unserved"], Value::Null);
    drop(daemon);
}

#[test]
fn o12_a_guest_without_a_driver_does_not_look_idle() {
    let (daemon, operator) = start(&TWO);
    let state = || operator.get("/v1/vms/a")["state"].as_str().unwrap().to_owned();
    // What the alert CccVmSilent asks for.
    let tells = |silent, coupled| {
        let metrics = operator.ask("GET", "/metrics", None).1;
        let told = [
            format!("ccc_vm_silent{{vm=\"a\"}} {silent}\n"),
            format!("ccc_vm_coupled_flows{{vm=\"a\"}} {coupled}\n"),
        ];
        told.iter().all(|line| metrics.as_str().unwrap().contains(line))
    };
    assert_eq!(state(), "absent");
    assert_eq!(operator.get("/v1/vms")["vms"][0]["state"], "absent", "told alike of all");
    let mut a = Driver::connect(&daemon.socket("a"), Mode::InBand);
    assert_eq!(state(), "no driver");
    let extent = a.offer_extent(0, 4, 1);
    assert_eq!(state(), "idle");
    let mut sends = report(1);
    a.tell(&extent, wire::OP_REGISTER, 0, &sends);
    // On a busy machine the daemon may hear of it late.
    until("active", || {
        a.tell(&extent, wire::OP_UPDATE, 0, &sends);
        let vm = operator.get("/v1/vms/a");
        vm["state"] == "active" && vm["coupled_flows"] == 1
    });
    // The guest stands still, with data under way.
    until_within("silent", Duration::from_secs(60), || state() == "silent");
    let vm = operator.get("/v1/vms/a");
    assert!(vm["heard_ms"].as_u64().unwrap() >= 5000, "{vm}");
    assert_eq!((&vm["flows"], &vm["coupled_flows"]), (&json!(1), &json!(0)), "while it is silent");
    until("it is told to be silent", || tells("1.0", "0.0"));
    sends.flags &= !wire::R_ACTIVE;
    a.tell(&extent, wire::OP_UPDATE, 0, &sends);
    assert_eq!(state(), "idle", "with a flow that has nothing to send");
    until("it is told not to be", || tells("0.0", "1.0"));
    // A front end that begins to migrate has what is written noted.
    assert_eq!(operator.get("/v1/vms/a")["migrating"], false);
    let _log = a.front.log();
    assert_eq!(operator.get("/v1/vms/a")["migrating"], true);
}

#[test]
fn f2_a_socket_of_somebody_too_busy_to_accept_stalls_nobody() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let (mut daemon, operator) = start(&TWO);
    let path = daemon.socket("busy");
    let busy = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&busy, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&busy, 0).unwrap();
    let waiting: Vec<UnixStream> = std::iter::from_fn(|| connect_at_once(&path).ok()).collect();
    assert!(!waiting.is_empty(), "there is no more room");
    let (status, body) = put(&operator, &daemon, "busy");
    assert_eq!(status, 400, "{body}");
    assert!(body["error"].as_str().unwrap().contains("in use by a running process"), "{body}");
    assert!(daemon.running());
}

#[test]
fn a_trial_ends_by_itself_and_nothing_of_it_is_kept() {
    let (daemon, operator) = start(&TWO);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    driver.tell(&extent, wire::OP_REGISTER, 0, &report(1));
    // A guest that says nothing for long has no coupled flows, whatever is tried.
    let mut coupled = || {
        driver.alive();
        operator.get("/v1/vms/a")["coupled_flows"].as_u64()
    };
    until("the flow is coupled", || coupled() == Some(1));

    let put = |body: Value| operator.ask("PUT", "/v1/groups/g/trial", Some(&body));
    let (status, group) = put(json!({"coupled": false, "seconds": 300}));
    assert_eq!(
        (status, &group["coupled"], &group["trial"]["coupled"]),
        (200, &json!(true), &json!(false))
    );
    assert_eq!(coupled(), Some(0));
    assert!(
        operator
            .ask("GET", "/metrics", None)
            .1
            .as_str()
            .unwrap()
            .contains("ccc_group_coupled{group=\"g\"} 0.0")
    );
    let over_soon = json!({"coupled": false, "seconds": 1, "id": group["trial"]["id"]});
    assert_eq!(put(over_soon).0, 200);
    until("the flow is coupled again", || coupled() == Some(1));
    assert_eq!(operator.get("/v1/groups/g")["trial"], Value::Null);

    let (status, group) = put(json!({"coupled": false, "seconds": 300}));
    assert_eq!((status, coupled()), (200, Some(0)));
    let id = &group["trial"]["id"];
    let end = |id: &Value| operator.ask("DELETE", &format!("/v1/groups/g/trial?id={id}"), None).0;
    // Another one is not its owner's, whoever asks.
    assert_eq!(put(json!({"coupled": true})).0, 409);
    assert_eq!((put(json!({"id": 1})).0, end(&json!(1)), coupled()), (409, 409, Some(0)));
    assert_eq!(put(json!({"coupled": true, "id": id})).1["trial"]["id"], *id);
    assert_eq!((coupled(), end(id)), (Some(1), 200));
    assert_eq!((put(json!({"id": id})).0, end(id)), (409, 200), "it has ended");

    assert_eq!(put(json!({"coupled": false, "seconds": 300})).0, 200);
    assert_eq!(coupled(), Some(0));
    let daemon = daemon.restart();
    assert_eq!(operator.get("/v1/groups/g")["trial"], Value::Null);
    operator.patch("/v1/groups/g", &json!({"coupled": false}));
    assert_eq!(put(json!({"coupled": true})).0, 409, "there is nothing to try");
    assert_eq!(put(json!({"seconds": 0})).0, 400);
    drop(daemon);
}
