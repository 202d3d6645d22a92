// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program against the real daemon.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use support::{Daemon, run};

/// The words of a line that begins with `first`.
fn line<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.into_iter().find(|words| words.first() == Some(&first)).unwrap()
}

#[test]
fn everything_can_be_looked_at() {
    let daemon = Daemon::start();
    let list = daemon.prints(&["list"]);
    assert_eq!(
        line(&list, "web"),
        ["web", "3", "uplink", "on", "none", "0", "none", "on", "none", "absent", "0", "0", "-"]
    );
    let show = daemon.prints(&["show", "web"]);
    assert_eq!(line(&show, "weight"), ["weight", "3"]);
    assert_eq!(line(&show, "floor"), ["floor", "mbit", "0"]);
    assert_eq!(line(&show, "cap"), ["cap", "mbit", "none"]);
    let set = daemon.prints(&["--yaml", "set", "web", "--floor", "500kbit", "--cap", "1gbit"]);
    assert!(set.contains("floor_mbit: 0.5\n") && set.contains("cap_mbit: 1000.0\n"), "{set}");
    daemon.prints(&["set", "web", "--floor", "0", "--cap", "none"]);
    assert_eq!(line(&show, "SLOT")[0], "SLOT");
    let groups = daemon.prints(&["groups"]);
    assert_eq!(line(&groups, "uplink")[1..6], ["ctrltcp", "rate", "1", "mean", "5"]);
    let group = daemon.prints(&["group", "uplink"]);
    assert_eq!(line(&group, "web"), ["web", "3", "0", "0", "0.0", "-", "-", "-"]);
    assert_eq!(line(&daemon.prints(&["rules"]), "db"), ["db", "10.0.0.0/8", "none"]);
    let top = daemon.prints(&["top", "--count", "2", "--interval", "0.05"]);
    assert_eq!(top.matches("GROUP").count(), 2);
}

#[test]
fn a_doctor_says_what_is_wrong_and_what_to_do() {
    let daemon = Daemon::start();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cccctl"));
        let done = command.args(words).env("CCC_CONTROL", daemon.control()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let (code, told) = run(&["doctor"]);
    assert_eq!(code, Some(4), "{told}");
    let web = line(&told, "web").join(" ");
    assert!(web.contains("no front end is connected to") && web.contains("attach web"), "{web}");
    let socket = daemon.dir.path().join("web");
    fs::remove_file(&socket).unwrap();
    fs::create_dir(&socket).unwrap();
    let web = line(&run(&["doctor"]).1, "web").join(" ");
    assert!(web.contains("exists and is no socket") && web.contains("it is tried again"), "{web}");
    fs::remove_dir(&socket).unwrap();
    let is_served = || !line(&run(&["doctor"]).1, "web").join(" ").contains("is no socket");
    support::until("it is made again", is_served);
    let (code, told) = run(&["--json", "doctor"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    let findings = told["findings"].as_array().unwrap();
    assert_eq!((code, findings.len()), (Some(4), 2), "{told}");
    let (code, told) = run(&["status"]);
    assert_eq!(code, Some(4), "{told}");
    assert!(told.contains("2 VMs, 0 of them connected"), "{told}");
    assert!(told.contains("not all is well (2): cccctl doctor"), "{told}");
}

#[test]
fn json_is_what_the_daemon_answers() {
    let daemon = Daemon::start();
    assert_eq!(daemon.json(&["list"])["vms"][0]["name"], "db");
    assert_eq!(daemon.json(&["show", "web"])["flow_list"], Value::Array(Vec::new()));
    assert_eq!(daemon.json(&["group", "uplink"])["share"], "rate");
}

#[test]
fn vms_and_groups_are_changed() {
    let daemon = Daemon::start();
    let shown = daemon.prints(&["set", "web", "--weight", "2.5", "--group", "none"]);
    assert_eq!(
        (line(&shown, "weight"), line(&shown, "group")),
        (vec!["weight", "2.5"], vec!["group", "none"])
    );
    daemon.prints(&["set", "web", "--coupled", "off"]);
    let vm = daemon.json(&["show", "web"]);
    assert_eq!(
        (&vm["weight"], &vm["group"], &vm["coupled"]),
        (&2.5.into(), &Value::Null, &false.into())
    );
    daemon.prints(&["set", "web", "--group", "uplink", "--coupled", "on"]);
    assert_eq!(daemon.json(&["show", "web"])["group"], "uplink");
    let change = ["group", "uplink", "--share", "window", "--policy", "ctrltcp"];
    daemon.prints(&[&change[..], &["--equivalent-tcps", "2", "--coupled", "off"]].concat());
    let group = daemon.json(&["group", "uplink"]);
    assert_eq!(
        (&group["share"], &group["equivalent_tcps"], &group["coupled"]),
        (&"window".into(), &2.0.into(), &false.into())
    );
}

#[test]
fn what_is_changed_of_a_group_is_seen_and_taken_back() {
    let daemon = Daemon::start();
    let last = |text: &str| line(text, "uplink").last().copied().map(str::to_owned);
    assert_eq!(last(&daemon.prints(&["groups"])).as_deref(), Some("-"));
    daemon.prints(&["group", "uplink", "--share", "window", "--enforce", "observe"]);
    let configured = "share rate, enforce off";
    for words in [&["groups"][..], &["group", "uplink"]] {
        let told = daemon.prints(words);
        assert!(line(&told, "uplink").join(" ").ends_with(configured), "{told}");
    }
    assert_eq!(daemon.json(&["group", "uplink"])["configured"]["share"], "rate");
    daemon.prints(&["reset", "--group", "uplink"]);
    let group = daemon.json(&["group", "uplink"]);
    assert_eq!((&group["share"], &group["configured"]), (&"rate".into(), &Value::Null));
}

#[test]
fn what_was_kept_of_what_is_gone_is_said_to_be_forgotten() {
    let mut daemon = Daemon::start_with("state = \"STATE\"\n");
    daemon.prints(&["group", "uplink", "--share", "window"]);
    daemon.prints(&["set", "web", "--weight", "2"]);
    daemon.start_again_with(&[
        ("[group.uplink]", "[group.other]"),
        ("\"uplink\"", "\"other\""),
        ("[vm.web]", "[vm.www]"),
    ]);
    let reset = |words: &[&str]| daemon.prints(&[&["reset"], words].concat());
    assert_eq!(reset(&["--group", "uplink"]), "forgotten: what was kept of group uplink\n");
    assert_eq!(reset(&["web"]), "forgotten: what was kept of VM web\n");
    let told = daemon.run(&["doctor"]).1;
    assert!(!told.contains("cccctl reset"), "{told}");
}

#[test]
fn rules_are_the_configuration_s_again_as_a_doctor_says() {
    let mut daemon = Daemon::start_with("state = \"STATE\"\n");
    put(&daemon, "rules", r#"{"rules": [{"vm": "web", "group": "none"}]}"#);
    daemon.start_again_with(&[("[vm.web]", "[vm.www]")]);
    let told = daemon.run(&["doctor"]).1;
    let (_, remedy) = told.split_once("curl ").expect(&told);
    let (curl, _) = remedy.split_once(" has ").unwrap();
    let pasted = |curl: &str| {
        let done = Command::new("sh").args(["-c", &format!("curl -sf {curl}")]).output().unwrap();
        assert!(done.status.success(), "{curl}");
    };
    pasted(curl);
    let told = daemon.run(&["doctor"]).1;
    assert!(!told.contains("curl"), "{told}");
    let (rules, file) = (daemon.json(&["rules"]), daemon.dir.path().join("rules"));
    fs::write(&file, rules.to_string()).unwrap();
    pasted(&curl.replace("-X DELETE", &format!("-X PUT --json @{}", file.display())));
    assert_eq!(daemon.json(&["rules"]), rules);
    assert_eq!(line(&daemon.prints(&["rules"]), "db"), ["db", "10.0.0.0/8", "none"]);
}

/// What `cccctl set` of a VM says, where virsh is this script.
fn set_beside(daemon: &Daemon, virsh: &str, vm: &str, changes: &[&str]) -> String {
    let path = daemon.dir.path().join("virsh");
    fs::write(&path, virsh).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let set = Command::new(env!("CARGO_BIN_EXE_cccctl"))
        .args([&["set", vm], changes].concat())
        .env("CCC_CONTROL", daemon.control())
        .env("PATH", daemon.dir.path())
        .output()
        .unwrap();
    let told = String::from_utf8(set.stderr).unwrap();
    assert!(set.status.success(), "{told}");
    told
}

#[test]
fn o9_what_is_set_lasts_unless_it_is_of_a_domain_that_is_not_told() {
    let daemon = Daemon::start();
    let virsh = "#!/bin/sh\necho 'error: failed to connect' >&2\nexit 1\n";
    daemon.add("mail");
    let set = |vm: &str| set_beside(&daemon, virsh, vm, &["--weight", "4"]);
    assert_eq!(set("mail"), "", "there are no domains");
    fs::write(daemon.dir.path().join("libvirtd"), "").unwrap();
    let told = set("mail");
    assert!(told.contains("in force; if mail is a libvirt domain, "), "{told}");
    assert_eq!(set("web"), "", "it lasts by the configuration and the state file");
    assert!(told.contains("failed to connect"), "{told}");
}

/// A domain that runs with weight 3, and whose next start has the weight that is given.
const VIRSH: &str = r#"#!/bin/sh
domain() {
    echo "<domain type='qemu' $2><name>web</name><uuid>7</uuid><metadata>"
    echo "<ccc:vm xmlns:ccc='urn:ccc:vm:1' weight='$1'/></metadata></domain>"
}
case "$*" in
*metadata*--config*) echo "$*" >> "${0%/*}/next" ;;
*metadata*) ;;
*--persistent*) echo 7 ;;
*--inactive*) domain "NEXT" ;;
*dumpxml*) domain 3 "id='1'" ;;
*) exit 1 ;;
esac
"#;

#[test]
fn what_is_set_of_a_domain_lasts_until_it_stops_and_that_is_said() {
    let daemon = Daemon::start();
    let set = |next: &str| {
        let changes = ["--weight", "4", "--cap", "10gbit"];
        set_beside(&daemon, &VIRSH.replace("NEXT", next), "web", &changes)
    };
    let told = set("3");
    assert!(told.contains("in force until domain web stops"), "{told}");
    assert!(told.contains("cccctl attach web --weight 4 --cap 10000\n"), "{told}");
    assert_eq!(set("4' cap_mbit='10gbit"), "");
}

#[test]
fn a_tap_that_is_set_of_a_domain_is_its_own_at_its_next_start_too() {
    let daemon = Daemon::start();
    let kept = || fs::read_to_string(daemon.dir.path().join("next")).unwrap_or_default();
    let set = |changes: &[&str]| set_beside(&daemon, &VIRSH.replace("NEXT", "3"), "web", changes);
    assert_eq!(set(&["--tap", "web0"]), "", "there is nothing to say");
    assert!(kept().contains("tap=\"web0\" weight=\"3\""), "{}", kept());
    let told = set(&["--tap", "web1", "--weight", "4"]);
    assert!(
        told.contains("in force until domain web stops") && !kept().contains("\"4\""),
        "{told}"
    );
    // Which would be another domain's by then.
    let before = kept();
    let told = set(&["--tap", "vnet3"]);
    assert!(told.contains("its interface has another name then"), "{told}");
    assert_eq!(kept(), before);
}

#[test]
fn errors_say_what_to_do() {
    let daemon = Daemon::start();
    assert_eq!(daemon.fails(&["show", "wbe"]), "cccctl: no VM `wbe`; did you mean `web`?\n");
    assert!(daemon.fails(&["show", "we/b"]).contains("no VM"));
    let group = daemon.fails(&["set", "web", "--group", "uplnik"]);
    assert!(group.contains("did you mean `uplink`?"), "{group}");
    let weight = daemon.fails(&["set", "web", "--weight", "0"]);
    assert!(weight.contains("expected a number from 0.01 to 1000"), "{weight}");
    let share = daemon.fails(&["group", "uplink", "--share", "all"]);
    assert!(share.contains("expected window or rate"), "{share}");
    assert!(daemon.fails(&["set", "web"]).contains("--weight"), "nothing to change");
    assert!(daemon.fails(&["set", "web", "--coupled", "maybe"]).contains("expected on or off"));
    assert!(daemon.fails(&["top", "--interval", "0"]).contains("expected 0.05 to 3600 seconds"));
}

#[test]
fn a_daemon_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control");
    let (done, _, said) = run(&socket, &["list"]);
    assert!(
        !done
            && said.contains("no control socket at")
            && said.contains("systemctl start ccc-vhost"),
        "{said}"
    );
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let (done, _, said) = run(&socket, &["list"]);
    assert!(!done && said.contains("nobody listens"), "{said}");
}

#[test]
fn o7_what_is_left_over_is_removed() {
    let daemon = Daemon::start();
    assert!(daemon.fails(&["remove", "web"]).contains("configuration"), "not ours to remove");
    assert!(daemon.fails(&["remove", "nil"]).contains("no VM"));
    let socket = daemon.dir.path().join("mail");
    let metadata = format!("<c:vm xmlns:c='urn:ccc:vm:1' socket='{}'/>", socket.display());
    let description = format!("<domain><metadata>{metadata}</metadata></domain>");
    let hook = ["hook", "--", "mail", "prepare", "begin", "-"];
    assert!(support::run_with(&daemon.control(), &hook, &description).0);
    let front_end = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    while daemon.json(&["show", "mail"])["connected"] != true {}
    assert!(daemon.fails(&["remove", "mail"]).contains("has a front end"));
    drop(front_end);
    while daemon.json(&["show", "mail"])["connected"] == true {}
    assert_eq!(line(&daemon.prints(&["remove", "mail"]), "weight"), ["weight", "1"]);
    assert!(daemon.fails(&["show", "mail"]).contains("no VM"));
    assert!(!socket.exists());
}

#[test]
fn without_libvirt_commands_on_domains_say_so() {
    let nowhere = Path::new("/nowhere/control");
    let (done, _, said) = run(nowhere, &["attach", "mail", "--weight", "0"]);
    assert!(!done && said.contains("expected a number from 0.01 to 1000"), "{said}");
    let (done, _, said) = run(nowhere, &["--connect", "nonsense:///", "attach", "mail"]);
    assert!(!done && (said.contains("libvirt: ") || said.contains("install libvirt")), "{said}");
}

/// One whose flows are all in the groups of their VMs.
fn without_rules() -> Daemon {
    let daemon = Daemon::start();
    put(&daemon, "rules", "{\"rules\": []}");
    daemon
}

/// What a client of its own puts, and what it is told.
fn put(daemon: &Daemon, path: &str, body: &str) -> Value {
    let mut curl = Command::new("curl");
    curl.args(["-sf", "--unix-socket"]).arg(daemon.control()).args(["-X", "PUT", "-d", body]);
    curl.args(["-H", "Content-Type: application/json"]).arg(format!("http://ccc/v1/{path}"));
    let done = curl.output().unwrap();
    assert!(done.status.success(), "{path}: {body}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// So long an operator's program waits for the daemon.
const PATIENCE: Duration = Duration::from_secs(10);

/// A trial that runs on a daemon, once it has uncoupled the group; it would do so for longer
/// than a test takes.
fn trial(daemon: &Daemon) -> std::process::Child {
    trial_with(daemon, "20", "0s")
}

fn trial_with(daemon: &Daemon, times: &str, settle: &str) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cccctl"));
    command.args(["trial", "uplink", "--json", "--off", "2s", "--times", times]);
    command.args(["--settle", settle]);
    let command = command.env("CCC_CONTROL", daemon.control());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while daemon.json(&["group", "uplink"])["trial"]["coupled"] != false {
        assert!(started.elapsed() < Duration::from_secs(60), "it uncouples nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn a_trial_ends_with_the_group_coupled() {
    let daemon = without_rules();
    let done = trial_with(&daemon, "2", "0s").wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(told["pairs"].as_array().map(Vec::len), Some(2), "{told}");
    assert_eq!(told["measures"]["goodput_mbit"]["coupled"], 0.0, "{told}");
    assert_eq!(told["measures"]["rtt_ms"], Value::Null, "nothing was sent: {told}");
    let said = String::from_utf8(done.stderr).unwrap();
    let phases: Vec<bool> = said.lines().map(|line| line.contains(": coupled for")).collect();
    assert_eq!(phases, [true, false, false, true], "{said}");
    assert_eq!(daemon.json(&["group", "uplink"])["trial"], Value::Null);
}

#[test]
fn a_trial_that_is_interrupted_couples_the_group_again() {
    let daemon = without_rules();
    let child = trial_with(&daemon, "20", "1s");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("not coupled for 3s (the first 1s count for nothing; "), "{said}");
    assert!(said.contains("interrupted; the group is coupled again"), "{said}");
    assert_eq!(daemon.json(&["group", "uplink"])["trial"], Value::Null);
}

#[test]
fn a_trial_that_is_killed_is_told_keeps_others_away_and_can_be_ended() {
    let daemon = without_rules();
    let mut child = trial(&daemon);
    let (_, told, _) = daemon.run(&["doctor"]);
    assert!(told.contains("a trial runs, by uid"), "{told}");
    assert!(daemon.fails(&["trial", "uplink"]).contains("runs already, by uid"));
    child.kill().unwrap();
    child.wait().unwrap();
    daemon.prints(&["group", "uplink", "--coupled", "on"]);
    assert_eq!(daemon.json(&["group", "uplink"])["trial"], Value::Null);
}

#[test]
fn a_trial_that_somebody_else_meddles_with_compares_nothing() {
    let meddle: [fn(&Daemon); 4] = [
        |daemon| drop(daemon.prints(&["set", "web", "--weight", "5"])),
        |daemon| drop(daemon.prints(&["set", "db", "--group", "uplink"])),
        |daemon| drop(daemon.prints(&["group", "uplink", "--equivalent-tcps", "8"])),
        |daemon| drop(put(daemon, "rules", r#"{"rules": [{"vm": "web", "group": null}]}"#)),
    ];
    std::thread::scope(|scope| {
        for (number, meddle) in meddle.into_iter().enumerate() {
            scope.spawn(move || {
                let daemon = without_rules();
                let child = trial(&daemon);
                meddle(&daemon);
                let done = child.wait_with_output().unwrap();
                let said = String::from_utf8(done.stderr).unwrap();
                assert_eq!((done.status.code(), done.stdout.len()), (Some(1), 0), "{number}");
                assert!(said.contains("changed meanwhile"), "{number}: {said}");
                assert_eq!(daemon.json(&["group", "uplink"])["trial"], Value::Null, "{number}");
            });
        }
    });
}

#[test]
fn a_trial_that_was_ended_does_not_end_the_next() {
    let daemon = without_rules();
    let child = trial(&daemon);
    daemon.prints(&["group", "uplink", "--coupled", "on"]);
    let next = put(&daemon, "groups/uplink/trial", r#"{"coupled": false, "seconds": 60}"#);
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success() && said.contains("somebody has ended the trial"), "{said}");
    let runs = &daemon.json(&["group", "uplink"])["trial"];
    assert_eq!((&runs["id"], &runs["coupled"]), (&next["trial"]["id"], &false.into()), "{runs}");
}

#[test]
fn a_trial_is_interrupted_at_once_while_the_daemon_hangs() {
    // It asks the daemon once more within a second, or later on a busy machine.
    let is_at_once = [1500, 5000, 5000, 5000].iter().any(|asks_within_ms| {
        let daemon = without_rules();
        let mut child = trial(&daemon);
        let pid = child.id().to_string();
        let interrupt = || {
            assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        };
        let stopped = Instant::now();
        daemon.signal("-STOP");
        std::thread::sleep(Duration::from_millis(*asks_within_ms));
        interrupt();
        std::thread::sleep(Duration::from_millis(200));
        let waits = child.try_wait().unwrap().is_none();
        interrupt();
        assert_eq!(child.wait().unwrap().code(), Some(1));
        eprintln!("waits for the daemon: {waits}; ends after {:?}", stopped.elapsed());
        waits && stopped.elapsed() < PATIENCE
    });
    assert!(is_at_once, "it ends when its patience does");
}

#[test]
fn a_trial_whose_vms_are_changed_between_two_phases_compares_nothing() {
    let changes = ["--weight=5", "--coupled=off", "--floor=1mbit", "--cap=7mbit"];
    std::thread::scope(|scope| {
        for change in changes {
            scope.spawn(move || {
                let daemon = without_rules();
                // The second phase has begun, and nothing counts yet.
                let child = trial_with(&daemon, "20", "3s");
                daemon.prints(&["set", "web", change]);
                let done = child.wait_with_output().unwrap();
                let said = String::from_utf8(done.stderr).unwrap();
                assert_eq!(
                    (done.status.code(), done.stdout.len()),
                    (Some(1), 0),
                    "{change}: {said}"
                );
                assert!(said.contains("changed meanwhile"), "{change}: {said}");
                assert_eq!(daemon.json(&["group", "uplink"])["trial"], Value::Null, "{change}");
            });
        }
    });
}

#[test]
fn a_trial_needs_a_group_that_is_coupled() {
    let with_rules = Daemon::start();
    let (done, _, said) = with_rules.run(&["trial", "uplink"]);
    assert!(!done && said.contains("there are rules"), "{said}");
    let daemon = without_rules();
    daemon.prints(&["group", "uplink", "--coupled", "off"]);
    let (done, _, said) = daemon.run(&["trial", "uplink"]);
    assert!(!done && said.contains("cccctl group uplink --coupled on"), "{said}");
    let (done, _, said) = daemon.run(&["trial", "uplink", "--off", "1s"]);
    assert!(!done && said.contains("expected 2s to 1day"), "{said}");
}

#[test]
fn a_tenant_that_is_added_again_keeps_what_is_not_said() {
    let daemon = Daemon::start();
    let socket = daemon.dir.path().join("job").display().to_string();
    let add = ["tenant", "add", "job", "--cgroup", "job.slice"];
    let first = ["--vhost-socket", &socket, "--weight", "3", "--group", "uplink"];
    daemon.prints(&[&add[..], &first].concat());
    daemon.prints(&add);
    let job = daemon.json(&["show", "job"]);
    assert_eq!((&job["weight"], &job["group"]), (&3.0.into(), &"uplink".into()));
    daemon.prints(&[&add[..], &["--weight", "2"]].concat());
    let job = daemon.json(&["show", "job"]);
    assert_eq!((&job["weight"], &job["group"]), (&2.0.into(), &"uplink".into()));
    let elsewhere = daemon.fails(&[&add[..], &["--vhost-socket", "/run/other"]].concat());
    assert!(elsewhere.contains("job is served on socket"), "{elsewhere}");
}

#[test]
fn a_tenant_is_the_same_however_its_place_is_written() {
    let daemon = Daemon::start();
    for (name, first, again) in [
        ("guest", ["--vsock", "7"], ["--vsock", "07"]),
        ("named", ["--netns", "web"], ["--netns", "/run/netns/web"]),
        ("linked", ["--netns", "db"], ["--netns", "/var/run/netns/db"]),
    ] {
        let socket = daemon.dir.path().join(name);
        let at = ["--vhost-socket", socket.to_str().unwrap()];
        daemon.prints(&[&["tenant", "add", name], &first[..], &at].concat());
        let place = daemon.json(&["show", name])["tenant"].clone();
        daemon.prints(&[&["tenant", "add", name], &again[..], &["--weight", "2"]].concat());
        let there = daemon.json(&["show", name]);
        assert_eq!((&there["tenant"], &there["weight"]), (&place, &2.0.into()), "as at first");
    }
}

/// Where there is no libvirt nothing is said of it, and advice is for tenants.
#[test]
fn a_tenant_is_no_domain() {
    let daemon = Daemon::start();
    let nowhere = ["--connect", "qemu+unix:///system?socket=/nonexistent"];
    for (name, place) in [("job", ["--cgroup", "job.slice"]), ("guest", ["--vsock", "7"])] {
        let socket = daemon.dir.path().join(name);
        let at = ["--vhost-socket", socket.to_str().unwrap()];
        daemon.prints(&[&["tenant", "add", name], &place[..], &at].concat());
        let set = [&nowhere[..], &["set", name, "--weight", "2"]].concat();
        let (done, _, said) = daemon.run(&set);
        assert!(done && said.is_empty(), "{name}: {said}");
        let front_end = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        support::until("connected", || daemon.json(&["show", name])["connected"] == true);
        let advice = daemon.fails(&["remove", name]);
        assert!(advice.contains(&format!("cccctl tenant remove {name}")), "{advice}");
        assert!(!advice.contains("detach"), "{advice}");
        drop(front_end);
        daemon.prints(&["tenant", "remove", name]);
    }
}
