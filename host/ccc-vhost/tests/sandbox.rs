// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the daemon has taken from itself when it serves.  What that keeps from it is tested
//! beside the code, thread by thread.
#![allow(clippy::unwrap_used)]
mod support;

use serde_json::json;
use support::{
    daemon::{Daemon, text},
    driver::Driver,
    frontend::Mode,
    operator::Operator,
};

fn start(more: &str) -> (Daemon, Operator) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let own = format!(
        "[daemon]\ncontrol = \"{}\"\nstate = \"{}\"\n{more}[group.g]\n",
        at("control"),
        at("state")
    );
    let mut daemon = Daemon::start_in(dir, &[("a", 1.0, "g")], &own, &[]);
    let operator = Operator::at(&daemon.socket("control"));
    daemon.says("serving 1 VMs");
    (daemon, operator)
}

/// How many threads there are, and how many of them have this in their status.
fn threads(daemon: &Daemon, line: &str) -> (usize, usize) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let said = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("status")));
    let said: Vec<String> = said.map(Result::unwrap).collect();
    (said.len(), said.iter().filter(|status| status.lines().any(|one| one == line)).count())
}

#[test]
fn every_thread_of_a_daemon_that_serves_is_confined() {
    let (daemon, operator) = start("");
    // It has some, and more when it closes what a front end gave.
    drop(Driver::connect(&daemon.socket("a"), Mode::InBand));
    operator.patch("/v1/vms/a", &json!({"weight": 2}));
    let (all, filtered) = threads(&daemon, "Seccomp:\t2");
    assert!(all >= 4, "{all}");
    assert_eq!(filtered, all);
    assert_eq!(threads(&daemon, "NoNewPrivs:\t1"), (all, all));
}

#[test]
fn a_socket_where_the_sandbox_lets_none_be_made_is_refused_with_the_remedy() {
    let (mut daemon, operator) = start("");
    if !daemon.log().contains("files by landlock") {
        eprintln!("not run: no landlock here");
        return;
    }
    let other = tempfile::tempdir().unwrap();
    let socket = other.path().join("b");
    let (status, body) = operator.ask("PUT", "/v1/vms/b", Some(&json!({"socket": text(&socket)})));
    let told = body["error"].as_str().unwrap();
    assert_eq!((status, &body["field"]), (400, &json!("socket")), "{body}");
    assert!(told.contains(text(daemon.dir.path())) && told.contains("ReadWritePaths="), "{told}");
    assert!(!socket.exists());
    let inside = daemon.socket("b");
    assert_eq!(operator.ask("PUT", "/v1/vms/b", Some(&json!({"socket": text(&inside)}))).0, 200);
}

#[test]
fn a_sandbox_can_be_tried_and_left() {
    let other = tempfile::tempdir().unwrap();
    for (word, seccomp) in [("log", "Seccomp:\t2"), ("off", "Seccomp:\t0")] {
        let (daemon, operator) = start(&format!("sandbox = \"{word}\"\n"));
        let (all, so) = threads(&daemon, seccomp);
        assert_eq!(so, all, "{word}");
        let socket = json!({"socket": text(&other.path().join(word))});
        assert_eq!(operator.ask("PUT", "/v1/vms/b", Some(&socket)).0, 200, "{word}");
    }
}
