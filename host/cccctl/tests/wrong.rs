// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators do wrong, and what is wrong with their host: each is told with the thing
//! that is wrong and the remedy, has its exit status, and changes nothing.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

use serde_json::Value;
use support::{Daemon, daemon_program};

/// It failed, and says why.
const FAILED: i32 = 1;
/// The command line is wrong.
const USAGE: i32 = 2;

fn cccctl(daemon: &Daemon, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cccctl"));
    command.args(arguments).env("CCC_CONTROL", daemon.control()).output().unwrap()
}

/// All that can be set, as it is.
fn settings(daemon: &Daemon) -> [Value; 3] {
    [["list"], ["groups"], ["rules"]].map(|words| daemon.json(&words))
}

/// Makes sure that a command line is refused like that, and that nothing is other than before.
fn refused(daemon: &Daemon, arguments: &[&str], status: i32, told: &[&str]) {
    let before = settings(daemon);
    let output = cccctl(daemon, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for words in told {
        assert!(said.contains(words), "{arguments:?}: `{words}` is not in: {said}");
    }
    assert_eq!(settings(daemon), before, "{arguments:?}");
}

/// What a daemon that is not to run ends with.
fn daemon_refuses(arguments: &[&str], told: &[&str]) {
    let mut command = Command::new("timeout");
    let output = command.arg("20").arg(daemon_program()).args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(FAILED), "{arguments:?}: {said}");
    for words in told {
        assert!(said.contains(words), "{arguments:?}: `{words}` is not in: {said}");
    }
}

#[test]
fn a_vm_that_is_not_known() {
    let daemon = Daemon::start();
    let near = ["no VM `wbe`", "did you mean `web`?"];
    refused(&daemon, &["set", "wbe", "--weight", "2"], FAILED, &near);
    for words in [["show", "wbe"], ["flows", "wbe"], ["reset", "wbe"], ["remove", "wbe"]] {
        refused(&daemon, &words, FAILED, &near);
    }
}

#[test]
fn a_weight_that_is_none() {
    let daemon = Daemon::start();
    for weight in ["--weight=0", "--weight=-1", "--weight=much", "--weight=1001"] {
        let told = ["--weight", "expected a number from 0.01 to 1000"];
        refused(&daemon, &["set", "web", weight], USAGE, &told);
    }
    // As a person types it, wherever numbers and times are taken.
    for (words, told) in [
        (
            &["set", "web", "--weight", "-1"][..],
            "'-1' for '--weight <weight>': expected a number from",
        ),
        (&["attach", "web", "--weight", "-0.5"], "'-0.5' for '--weight <weight>': expected"),
        (&["group", "uplink", "--target-delay-ms", "-5"], "expected a number from 0.1 to 1000"),
        (&["flows", "--limit", "-1"], "expected 1 to 1000"),
        (&["top", "--count", "-1"], "invalid value '-1' for '--count <N>'"),
        (&["top", "--interval", "-1"], "expected 0.05 to 3600 seconds"),
        (&["trial", "uplink", "--times", "-2"], "expected 2 to 100"),
        (&["trial", "uplink", "--off", "-5s"], "expected 2s to 1day"),
        (&["trial", "uplink", "--settle", "-1s"], "expected a time such as 10s"),
    ] {
        refused(&daemon, words, USAGE, &[told]);
    }
}

#[test]
fn a_floor_or_a_cap_that_is_none() {
    let daemon = Daemon::start();
    for wrong in [
        "--cap=0",
        "--cap=-1gbit",
        "--cap=fast",
        "--cap=1gb",
        "--cap=NaN",
        "--cap=2tbit",
        "--cap=1e400",
        "--cap=1e400gbit",
    ] {
        let told = ["--cap", "expected a number from 0.1 to 1000000, or none", "10gbit"];
        refused(&daemon, &["set", "web", wrong], USAGE, &told);
    }
    for wrong in ["--floor=-1", "--floor=nothing", "--floor=2tbit", "--floor=1e400bit"] {
        let told = ["--floor", "expected a number from 0 to 1000000"];
        refused(&daemon, &["set", "web", wrong], USAGE, &told);
    }
    for [option, wrong] in [["--cap", "-5"], ["--cap", "-5mbit"], ["--floor", "-5mbit"]] {
        let got = format!("invalid value '{wrong}' for '{option}");
        let told = [got.as_str(), "expected a number from 0"];
        refused(&daemon, &["set", "web", option, wrong], USAGE, &told);
    }
    let rates = |vm: &Value| [&vm["floor_mbit"], &vm["cap_mbit"]].map(Value::as_f64);
    let set = daemon.json(&["set", "web", "--floor", "6mbit", "--cap", "10gbit"]);
    assert_eq!(rates(&set), [Some(6.0), Some(10_000.0)]);
    let told =
        ["cap_mbit", "no less than floor_mbit, which is 6", "raise that, or lower the floor"];
    refused(&daemon, &["set", "web", "--cap", "2mbit"], FAILED, &told);
    refused(
        &daemon,
        &["set", "web", "--floor", "20gbit"],
        FAILED,
        &["invalid floor_mbit: expected no more than cap_mbit, which is 10000, got 20000"],
    );
    let set = daemon.json(&["set", "web", "--floor", "none", "--cap", "100000bit"]);
    assert_eq!(rates(&set), [Some(0.0), Some(0.1)]);
    // As its option was called before caps came.
    let set = daemon.json(&["set", "web", "--floor-mbit", "0", "--cap", "none"]);
    assert_eq!(rates(&set), [Some(0.0), None]);
}

#[test]
fn a_name_that_no_tenant_can_have() {
    let daemon = Daemon::start();
    let add = ["tenant", "add", "b d", "--cgroup", "b.slice"];
    refused(&daemon, &add, FAILED, &["invalid name: expected 1 to 64 letters", "got \"b d\""]);
}

#[test]
fn a_group_that_is_not_there() {
    let daemon = Daemon::start();
    let told = ["invalid group", "did you mean `uplink`?"];
    refused(&daemon, &["set", "web", "--group", "uplnik"], FAILED, &told);
    refused(&daemon, &["group", "uplnik", "--share", "window"], FAILED, &["no group `uplnik`"]);
    refused(&daemon, &["reset", "--group", "uplnik"], FAILED, &["no group `uplnik`"]);
    refused(&daemon, &["reset"], USAGE, &["required", "<VM|--group <NAME>>"]);
}

#[test]
fn a_socket_that_another_vm_has() {
    let daemon = Daemon::start();
    let web = daemon.dir.path().join("web").display().to_string();
    let add = ["tenant", "add", "mail", "--cgroup", "mail.slice", "--vhost-socket", &web];
    refused(&daemon, &add, FAILED, &["invalid socket", "VM `web`"]);
}

#[test]
fn a_configuration_that_cannot_be_read_or_is_wrong() {
    daemon_refuses(&["--config", "/nowhere/ccc.toml"], &["cannot read /nowhere/ccc.toml"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ccc.toml");
    let path = file.to_str().unwrap();
    for (text, told) in [
        ("[vm.web]\nsocket = \"/s\"\nweight = 0\n", "ccc.toml:3:1: invalid vm.web.weight"),
        (
            "[vm.web]\nsocket = \"/s\"\nfloor_mbit = 6\ncap_mbit = 2\n",
            "ccc.toml:4:1: invalid vm.web.cap_mbit: expected no less than floor_mbit, which is 6",
        ),
        (
            "[daemon]\ncontrol = \"/tmp/c\"\nreaders = \"no-such-group\"\n",
            "groupadd --system no-such-group",
        ),
        (
            "[daemon]\ncontrol = \"/tmp/c\"\nsandbox = \"maybe\"\n",
            "invalid daemon.sandbox: expected on, log or off",
        ),
        ("[daemon\n", "ccc.toml:1"),
    ] {
        fs::write(&file, text).unwrap();
        daemon_refuses(&["--config", path, "--check"], &[told]);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn a_second_daemon() {
    let daemon = Daemon::start();
    let before = settings(&daemon);
    let config = daemon.dir.path().join("ccc.toml").display().to_string();
    daemon_refuses(&["--config", &config], &["in use by a running process", "stop it or choose"]);
    // The first one is where it was.
    assert_eq!(settings(&daemon), before);
}

#[test]
fn an_address_of_metrics_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let daemon = Daemon::start_with(&format!("metrics = \"{address}\"\n"));
    let log = || fs::read_to_string(daemon.dir.path().join("log")).unwrap();
    support::until("it is told", || log().contains("[daemon] metrics, or free this one"));
    assert!(log().contains(&address), "{}", log());
    // VMs are served all the same.
    daemon.prints(&["list"]);
}

/// What a command comes to where libvirt is installed, and does not answer.
fn libvirtd_down(daemon: &Daemon, arguments: &[&str]) -> Output {
    let virsh = daemon.dir.path().join("virsh");
    let says = "#!/bin/sh\necho 'error: failed to connect to the hypervisor' >&2\nexit 1\n";
    fs::write(&virsh, says).unwrap();
    fs::set_permissions(&virsh, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(daemon.dir.path().join("libvirtd"), "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cccctl"));
    command.args(arguments).env("CCC_CONTROL", daemon.control()).env("PATH", daemon.dir.path());
    command.output().unwrap()
}

#[test]
fn a_disk_that_is_full() {
    let daemon = Daemon::start_with("state = \"STATE\"\n");
    // As far as the daemon can tell: what it writes first cannot be written.
    let state = daemon.dir.path().join("state");
    let in_the_way = daemon.dir.path().join("state.new");
    fs::create_dir(&in_the_way).unwrap();
    let output = libvirtd_down(&daemon, &["set", "web", "--weight", "5"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(FAILED), "{said}");
    assert!(!said.contains("libvirt"), "it is the configuration's: {said}");
    let path = state.display().to_string();
    assert!(said.contains("in force, but not kept") && said.contains(&path), "{said}");
    assert_eq!(daemon.json(&["show", "web"])["weight"], 5.0);
    let doctor = cccctl(&daemon, &["doctor"]);
    assert!(String::from_utf8(doctor.stdout).unwrap().contains(&path));
    fs::remove_dir(&in_the_way).unwrap();
    // It is tried again, and then all is kept.
    support::until("it is kept", || {
        fs::read_to_string(&state).is_ok_and(|text| text.contains("5.0"))
    });
}

#[test]
fn a_socket_that_is_a_vms() {
    let daemon = Daemon::start();
    let socket = daemon.dir.path().join("web");
    let socket = socket.to_str().unwrap();
    let told = format!("is {socket} no control socket, but a VM's?");
    refused(&daemon, &["--socket", socket, "status"], FAILED, &[&told]);
}

#[test]
fn a_tenant_whose_name_or_place_is_wrong() {
    let daemon = Daemon::start();
    let add = ["tenant", "add", "web", "--vsock", "7"];
    let told = "in the configuration: take another name, or remove it there";
    refused(&daemon, &add, FAILED, &[told]);
    refused(&daemon, &["tenant", "remove", "web"], FAILED, &[told]);
    refused(&daemon, &["tenant", "remove", "nope"], FAILED, &["no tenant `nope`"]);
    for cid in ["0", "2", "guest"] {
        let add = ["tenant", "add", "guest", "--vsock", cid];
        refused(&daemon, &add, FAILED, &["invalid --vsock: expected a CID from 3 on, or the path"]);
    }
    daemon.add("mail");
    let add = ["tenant", "add", "mail", "--vsock", "7"];
    refused(&daemon, &add, FAILED, &["cccctl remove mail, or detach its domain"]);
}

#[test]
fn a_libvirtd_that_is_down() {
    let daemon = Daemon::start();
    let said = |words: &[&str], status: i32| {
        let output = libvirtd_down(&daemon, words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert!(said.contains("libvirt: ") && said.contains("failed to connect"), "{said}");
        said
    };
    let before = settings(&daemon);
    for words in [["attach", "mail"], ["detach", "mail"], ["sync", "mail"]] {
        said(&words, FAILED);
    }
    assert_eq!(settings(&daemon), before);
    // The daemon does it, whatever libvirt does.
    daemon.add("mail");
    let told = said(&["set", "mail", "--weight", "5"], 0);
    assert!(told.contains("in force; if mail is a libvirt domain, ") && told.contains("not last"));
    assert_eq!(daemon.json(&["show", "mail"])["weight"], 5.0);
}

#[test]
fn a_daemon_that_hangs_or_is_not_there() {
    let daemon = Daemon::start();
    daemon.signal("-STOP");
    let output = cccctl(&daemon, &["set", "web", "--weight", "2"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(FAILED), "{said}");
    assert!(said.contains(daemon.control().to_str().unwrap()), "{said}");
    assert!(said.contains("has not answered within 10 s") && said.contains("systemctl"), "{said}");
    assert!(
        said.contains("the change may still be made") && said.contains("cccctl show"),
        "{said}"
    );
    let output = cccctl(&daemon, &["list"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("10 s") && !said.contains("change"), "nothing was asked for: {said}");
    daemon.signal("-CONT");
    support::until("it is made", || daemon.json(&["show", "web"])["weight"] == 2.0);
    let mut nowhere = Command::new(env!("CARGO_BIN_EXE_cccctl"));
    let output = nowhere.args(["--socket", "/nowhere/control", "status"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(FAILED), "{said}");
    assert!(said.contains("/nowhere/control"), "{said}");
}

/// Whatever looks, looks the same as JSON and as YAML, and so does what it changes.
#[test]
fn every_answer_is_there_for_programs() {
    let daemon = Daemon::start();
    for words in [
        &["status"][..],
        &["doctor"],
        &["list"],
        &["show", "web"],
        &["flows"],
        &["flows", "web"],
        &["groups"],
        &["group", "uplink"],
        &["rules"],
        &["log"],
        &["tenant", "list"],
        &["top", "--count", "1"],
        &["set", "web", "--weight", "2"],
        &["reset", "web"],
        &["group", "uplink", "--share", "window"],
        &["reset", "--group", "uplink"],
        &["log", "--level", "debug"],
    ] {
        let text = |form| {
            let output = cccctl(&daemon, &[words, &[form]].concat());
            assert!([Some(0), Some(4)].contains(&output.status.code()), "{words:?} {form}");
            String::from_utf8(output.stdout).unwrap()
        };
        let json: Value = serde_json::from_str(&text("--json")).unwrap();
        let yaml = yaml_rust2::YamlLoader::load_from_str(&text("--yaml")).unwrap();
        let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect());
        let keys: Option<Vec<String>> = keys(&json);
        let told = yaml[0]
            .as_hash()
            .map(|map| map.keys().map(|key| key.as_str().unwrap().to_owned()).collect::<Vec<_>>());
        assert_eq!(keys, told, "{words:?}");
    }
}

#[test]
fn the_largest_flows_and_the_log_as_text() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.prints(&["flows"]),
        "VM  SLOT  SOURCE  DESTINATION  CC  STATE  PRIORITY  GROUP  GRANTED  CWND  SRTT MS\n\
         0 of 0 flows that are coupled and send\n"
    );
    assert_eq!(daemon.prints(&["log", "--level", "warn"]), "level warn\n");
    assert_eq!(daemon.prints(&["log"]), "level warn\n");
    let told = ["--level", "expected error, warn, info, debug or trace"];
    refused(&daemon, &["log", "--level", "loud"], USAGE, &told);
}
