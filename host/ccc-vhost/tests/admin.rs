// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators may do to the daemon, and what they must not.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use ccc_proto::wire;
use serde_json::{Value, json};
use support::{
    daemon::{Daemon, text},
    driver::{Driver, report},
    frontend::Mode,
    operator::Operator,
};
use tempfile::TempDir;

const TWO: [(&str, f64, &str); 2] = [("a", 1.0, "g"), ("b", 1.0, "g")];

/// A configuration with a control socket, a state file and more.
fn own(dir: &Path, more: &str) -> String {
    let at = |name: &str| dir.join(name).display().to_string();
    format!(
        "[daemon]\ncontrol = \"{}\"\nstate = \"{}\"\n{more}[group.g]\n[group.h]\n",
        at("control"),
        at("state")
    )
}

fn start_in(dir: TempDir, vms: &[(&str, f64, &str)], more: &str) -> (Daemon, Operator) {
    let own = own(dir.path(), more);
    let daemon = Daemon::start_in(dir, vms, &own, &[]);
    let operator = Operator::at(&daemon.socket("control"));
    (daemon, operator)
}

fn start(vms: &[(&str, f64, &str)]) -> (Daemon, Operator) {
    start_in(tempfile::tempdir().unwrap(), vms, "")
}

fn put(operator: &Operator, daemon: &Daemon, vm: &str) -> (u16, Value) {
    let spec = json!({"socket": text(&daemon.socket(vm)), "group": "g"});
    operator.ask("PUT", &format!("/v1/vms/{vm}"), Some(&spec))
}

#[test]
fn f4_a_vm_too_many_for_the_descriptors_is_refused_and_harms_nobody() {
    let (mut daemon, operator) = start(&TWO);
    daemon.limit_files("64");
    let mut a = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let chunk = a.lend(0, 4, 1);
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
    a.tell(&chunk, wire::OP_REGISTER, 0, &report(1));
    assert!(a.accepted(&chunk, 0, 1), "the others go on");
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

/// Does something as another user, of this thread only.
fn as_user<T: Send>(uid: u32, groups: &[u32], does: impl FnOnce() -> T + Send) -> T {
    use rustix::{
        fs::{Gid, Uid},
        thread::{set_thread_gid, set_thread_groups, set_thread_uid},
    };
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let run = || {
        set_thread_groups(&groups).unwrap();
        set_thread_gid(Gid::from_raw(uid)).unwrap();
        set_thread_uid(Uid::from_raw(uid)).unwrap();
        does()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not run: only root can be another user");
    }
    root
}

#[test]
fn f9_no_qemu_may_use_the_control_socket_whatever_its_mode() {
    if !is_root() {
        return;
    }
    let (mut daemon, operator) = start(&TWO);
    let control = daemon.socket("control");
    assert_eq!(fs::metadata(&control).unwrap().mode() & 0o777, 0o600);
    // As if a unit or an administrator had opened it to all.
    fs::set_permissions(daemon.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&control, fs::Permissions::from_mode(0o666)).unwrap();
    let weight = json!({"weight": 9});
    let qemu = || operator.ask("PATCH", "/v1/vms/b", Some(&weight));
    let (status, body) = as_user(64055, &[107], qemu);
    assert_eq!(status, 403, "{body}");
    let told = body["error"].as_str().unwrap();
    assert!(told.contains("uid 64055") && told.contains("[daemon] operators"), "{told}");
    assert_eq!(as_user(64055, &[0], || operator.ask("GET", "/v1/status", None)).0, 403);
    assert_eq!(operator.get("/v1/vms/b")["weight"], 1.0, "nothing was changed");
    daemon.says("uid 64055");
}

#[test]
fn f9_operators_have_a_group_of_their_own() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (daemon, operator) = start_in(dir, &TWO, "operators = \"4242\"\n");
    let there = fs::metadata(daemon.socket("control")).unwrap();
    assert_eq!((there.mode() & 0o777, there.gid()), (0o660, 4242));
    let ask = || operator.ask("GET", "/v1/vms/a", None).0;
    assert_eq!(as_user(1234, &[4242], ask), 200);
    let connect = || std::os::unix::net::UnixStream::connect(daemon.socket("control")).is_ok();
    assert!(!as_user(1234, &[107], connect));
    assert_eq!(fs::metadata(daemon.socket("a")).unwrap().mode() & 0o777, 0o660);
}

#[test]
fn f9_a_group_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let config = own(dir.path(), "operators = \"no-such-group\"\n");
    let file = dir.path().join("ccc.toml");
    fs::write(&file, config).unwrap();
    let (done, _, said) = support::daemon::run(&["--config", text(&file)]);
    assert!(!done && said.contains("groupadd --system no-such-group"), "{said}");
}
