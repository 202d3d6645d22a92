// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators may do to the daemon, and what they must not.
#![allow(clippy::unwrap_used)]
mod support;

use std::{fs, path::Path};

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
