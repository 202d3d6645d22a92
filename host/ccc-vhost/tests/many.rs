// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Many clients of the control socket at once: hooks of libvirt, and some that say nothing.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::Path,
    time::Instant,
};

use serde_json::json;
use support::{
    daemon::{Daemon, text, until_tried},
    operator::{IDLE_STAYS, Operator, TWO, connect_at_once, own, start},
};

/// Asks for a VM; status of the answer.
fn hook(control: &Path, dir: &Path, vm: &str, weight: u32) -> Result<u16, String> {
    let said = |error: std::io::Error| error.to_string();
    let mut stream = connect_at_once(control).map_err(said)?;
    let spec = json!({"socket": text(&dir.join(vm)), "group": "g", "weight": weight}).to_string();
    let length = spec.len();
    let request = format!(
        "PUT /v1/vms/{vm} HTTP/1.1\r\nhost: ccc\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{spec}"
    );
    stream.write_all(request.as_bytes()).map_err(said)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(said)?;
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    status.ok_or_else(|| format!("no answer: {answer:?}"))
}

/// Asks for all these VMs at once; what went wrong.
fn hooks_at_once(daemon: &Daemon, vms: u32, weight: u32) -> Vec<String> {
    let (control, dir) = (daemon.socket("control"), daemon.dir.path());
    let all = std::sync::Barrier::new(vms as usize);
    std::thread::scope(|scope| {
        let one = |number: u32| {
            let (all, control) = (&all, &control);
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, move || {
                all.wait();
                hook(control, dir, &format!("vm{number}"), weight)
            })
        };
        let hooks: Vec<_> = (0..vms).map(|number| one(number).unwrap()).collect();
        let answers = hooks.into_iter().map(|hook| hook.join().unwrap());
        answers
            .filter_map(|answer| match answer {
                Ok(200) => None,
                other => Some(format!("{other:?}")),
            })
            .collect()
    })
}

#[test]
fn f2_a_thousand_hooks_at_once_all_succeed_and_are_kept() {
    let limit = rustix::process::Rlimit { current: Some(8192), maximum: Some(8192) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
    let (daemon, operator) = start(&TWO);
    let failed = hooks_at_once(&daemon, 1000, 3);
    assert!(failed.is_empty(), "{} hooks fail, such as {:?}", failed.len(), failed[0]);
    // Who was answered is on disk: the daemon gets no time to write now.
    let daemon = daemon.restart();
    assert_eq!(operator.get("/v1/status")["vms"], 1002);
    assert_eq!(operator.get("/v1/vms/vm999")["weight"], 3.0);
    // They all come again, as after a restart of libvirtd: nothing is written.
    let file = || fs::metadata(daemon.socket("state")).unwrap().ino();
    let before = file();
    let failed = hooks_at_once(&daemon, 1000, 3);
    assert!(failed.is_empty(), "{} hooks fail, such as {:?}", failed.len(), failed[0]);
    assert_eq!(file(), before, "nothing was changed, and the file was written");
    operator.patch("/v1/vms/vm0", &json!({"weight": 4}));
    assert_ne!(file(), before, "and a change is");
}

/// Clients that connect and say nothing.
fn idle(daemon: &Daemon, count: usize) -> Vec<UnixStream> {
    let control = daemon.socket("control");
    let connect = |number: usize| {
        let mut stream = connect_at_once(&control).ok()?;
        // Some begin a request.
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /v1/status HTT");
        }
        Some(stream)
    };
    (0..count).filter_map(connect).collect()
}

#[test]
fn t10_idle_clients_do_not_lock_the_control_socket() {
    let (daemon, operator) = start(&TWO);
    until_tried("an answer that waits for no idle client to go", IDLE_STAYS, || {
        let since = Instant::now();
        let idle = idle(&daemon, 300);
        assert_eq!(operator.get("/v1/status")["vms"], 2);
        let here = idle.iter().filter(|stream| is_open(stream)).count();
        eprintln!("{here} of 300 idle clients are here");
        (since, here >= 150)
    });
}

/// The other side has not closed it.
fn is_open(mut stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let nothing = stream.read(&mut [0; 1]).map_err(|error| error.kind());
    nothing == Err(std::io::ErrorKind::WouldBlock)
}

#[test]
fn t10_idle_clients_leave_where_there_is_no_room() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("ccc.toml"), own(dir.path(), "")).unwrap();
    let daemon = Daemon::spawn_by(dir, &["prlimit", "--nofile=128:128"], &[]);
    let operator = Operator::at(&daemon.socket("control"));
    let idle = idle(&daemon, 150);
    assert_eq!(operator.get("/v1/status")["vms"], 0);
    drop(idle);
}
