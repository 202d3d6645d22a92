// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who may use the control socket, and for what.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use support::{
    daemon::{Daemon, is_within, text, until, until_tried},
    operator::{IDLE_STAYS, Operator, TWO, own, start, start_in},
    users::{as_user, dir_for_all, is_root},
};

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
    let dir = dir_for_all();
    let (daemon, operator) = start_in(dir, &TWO, "operators = \"4242\"\n");
    let there = fs::metadata(daemon.socket("control")).unwrap();
    assert_eq!((there.mode() & 0o777, there.gid()), (0o660, 4242));
    let ask = || operator.ask("GET", "/v1/vms/a", None).0;
    assert_eq!(as_user(1234, &[4242], ask), 200);
    let connect = || UnixStream::connect(daemon.socket("control")).is_ok();
    assert!(!as_user(1234, &[107], connect));
    assert_eq!(fs::metadata(daemon.socket("a")).unwrap().mode() & 0o777, 0o660);
}

#[test]
fn readers_look_at_everything_and_change_nothing() {
    if !is_root() {
        return;
    }
    let dir = dir_for_all();
    let groups = "operators = \"4242\"\nreaders = \"4343\"\n";
    let (daemon, operator) = start_in(dir, &TWO, groups);
    let as_reader = |method: &str, path: &str, body: Option<Value>| {
        as_user(1234, &[4343], || operator.ask(method, path, body.as_ref()))
    };
    for path in ["/v1/status", "/v1/vms", "/v1/vms/a/flows", "/v1/groups/g", "/v1/rules", "/v1/log"]
    {
        assert_eq!(as_reader("GET", path, None).0, 200, "{path}");
    }
    let socket = text(&daemon.socket("c")).to_owned();
    let changes = [
        ("PATCH", "/v1/vms/a", Some(json!({"weight": 9}))),
        ("PUT", "/v1/vms/c", Some(json!({"socket": socket}))),
        ("DELETE", "/v1/vms/a/changes", None),
        ("PATCH", "/v1/groups/g", Some(json!({"coupled": false}))),
        ("PUT", "/v1/groups/g/trial", Some(json!({"coupled": false}))),
        ("DELETE", "/v1/groups/g/trial?id=1", None),
        ("PUT", "/v1/rules", Some(json!({"rules": []}))),
        ("PATCH", "/v1/log", Some(json!({"level": "error"}))),
    ];
    for (method, path, body) in changes {
        let (status, body) = as_reader(method, path, body);
        assert_eq!(status, 403, "{method} {path}: {body}");
        assert!(body["error"].as_str().unwrap().contains("may look and change nothing"), "{body}");
    }
    assert_eq!(operator.get("/v1/vms/a")["weight"], 1.0);
    assert_eq!(operator.get("/v1/status")["vms"], 2);
    assert_eq!(as_user(1234, &[4242], || operator.ask("GET", "/v1/vms", None)).0, 200);
    assert_eq!(as_user(1234, &[4444], || operator.ask("GET", "/v1/vms", None)).0, 403);
}

#[test]
fn f9_whoever_may_not_change_anything_keeps_no_operator_waiting_nor_operators_root() {
    if !is_root() {
        return;
    }
    let dir = dir_for_all();
    let vms = TWO.map(|(vm, ..)| format!("[vm.{vm}]\nsocket = \"{}/{vm}\"\n", text(dir.path())));
    let groups = "operators = \"4242\"\nreaders = \"4343\"\n";
    let config = own(dir.path(), groups) + &vms.concat();
    fs::write(dir.path().join("ccc.toml"), config).unwrap();
    // 64 places.
    let mut daemon = Daemon::spawn_by(dir, &["prlimit", "--nofile=256:256"], &[]);
    let operator = Operator::at(&daemon.socket("control"));
    let crowd = |uid, groups: &[u32]| -> Vec<UnixStream> {
        as_user(uid, groups, || (0..200).map(|_| operator.connect()).collect())
    };
    let stays = |stream: &UnixStream| {
        stream.set_nonblocking(true).unwrap();
        let mut stream = stream;
        stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let ask = |uid, group| as_user(uid, &[group], || operator.ask("GET", "/v1/vms", None));
    let told = "uid 1234: this user has its 4 connections to the control socket; close some";
    until_tried("places are kept", IDLE_STAYS, || {
        let since = Instant::now();
        let crowds =
            [crowd(1234, &[4343]), crowd(5678, &[]), crowd(2001, &[4242]), crowd(2002, &[4242])];
        assert_eq!(operator.get("/v1/status")["vms"], 2, "root is answered");
        // Some are heard for a moment, to be told that there is no place.
        let what = "of 16 places for readers, one for all who may nothing, 40 for operators";
        let kept = is_within(since, IDLE_STAYS, what, || {
            let count = |crowd: &Vec<UnixStream>| crowd.iter().filter(|one| stays(one)).count();
            crowds.each_ref().map(count) == [4, 1, 32, 8]
        });
        assert_eq!(ask(4321, 4343).0, 200);
        // Who is slow to ask is not heard.
        let refused = is_within(since, IDLE_STAYS, "told that there is no place", || {
            let (status, body) = ask(1234, 4343);
            status == 503 && body["error"].as_str().is_some_and(|error| error.starts_with(told))
        });
        let what = "an operator has the place of one that is idle";
        let has_place = is_within(since, IDLE_STAYS, what, || ask(2003, 4242).0 == 200);
        (since, kept && refused && has_place)
    });
    daemon.says(told);
}

/// A daemon of 512 places, of which each reader may have 32, that tells more of its VMs than a
/// socket takes at once.
fn start_large() -> (Daemon, Operator) {
    let dir = dir_for_all();
    let vm = |number| format!("[vm.{number}]\nsocket = \"{}/{number}\"\n", text(dir.path()));
    let vms: String = (0..800).map(vm).collect();
    let config = own(dir.path(), "readers = \"4343\"\n") + &vms;
    fs::write(dir.path().join("ccc.toml"), config).unwrap();
    let daemon = Daemon::spawn_by(dir, &["prlimit", "--nofile=2048:2048"], &[]);
    let operator = Operator::at(&daemon.socket("control"));
    assert_eq!(operator.get("/v1/status")["vms"], 800);
    (daemon, operator)
}

/// Two clients: one has read a part of its answer, one has sent a part of a change.
struct Midway {
    began: Instant,
    reads: UnixStream,
    asks: UnixStream,
}

impl Midway {
    fn begin(operator: &Operator) -> Midway {
        let (began, mut reads, mut asks) = (Instant::now(), operator.connect(), operator.connect());
        reads.write_all(b"GET /v1/vms HTTP/1.1\r\nhost: ccc\r\nconnection: close\r\n\r\n").unwrap();
        reads.read_exact(&mut [0; 9]).unwrap();
        let head = "PATCH /v1/vms/1 HTTP/1.1\r\nhost: ccc\r\nconnection: close\r\n\
                    content-type: application/json\r\ncontent-length: 12\r\n\r\n";
        asks.write_all(format!("{head}{{\"weig").as_bytes()).unwrap();
        Midway { began, reads, asks }
    }

    /// Both are answered, the second so.
    fn end(mut self, status: &str) {
        let mut answer = String::new();
        // Who is late is answered before.
        let _ = self.asks.write_all(b"ht\":2}");
        let _ = self.asks.read_to_string(&mut answer);
        let late = answer.contains("it took longer than 2 s");
        assert!(late || answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer:?}");
        let mut answer = String::new();
        self.reads.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let whole = head.lines().any(|line| *line == format!("content-length: {}", body.len()));
        // No connection lasts longer than 30 s.
        let late = self.began.elapsed() > Duration::from_secs(30);
        assert!(late || whole, "{} bytes of an answer: {head}", body.len());
    }
}

/// A reader with all connections that it may have asks, until one of them has had to leave.
fn crowd_out(operator: &Operator) {
    let reader = || as_user(1234, &[4343], || operator.connect());
    let idle: Vec<UnixStream> = (0..40).map(|_| reader()).collect();
    let stays = |mut stream: &UnixStream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    until("the idle leave", || {
        as_user(1234, &[4343], || operator.ask("GET", "/v1/log", None));
        !idle[..20].iter().all(stays)
    });
}

#[test]
fn who_finds_no_place_has_nobody_leave_but_its_like() {
    if !is_root() {
        return;
    }
    let (_daemon, operator) = start_large();
    let mut keeps = operator.connect();
    let mut answered = || {
        let mut answer = [0; 12];
        let _ = keeps.write_all(b"GET /v1/log HTTP/1.1\r\nhost: ccc\r\n\r\n");
        let count = keeps.read(&mut answer).unwrap_or_default();
        let _ = keeps.read(&mut [0; 4096]);
        answer[..count] == *b"HTTP/1.1 200"
    };
    assert!(answered());
    let midway = Midway::begin(&operator);
    crowd_out(&operator);
    // Who asks nothing for 10 s leaves by itself.
    let late = midway.began.elapsed() > IDLE_STAYS;
    assert!(answered() || late, "root's connection is closed for a reader");
    midway.end("200");
}

#[test]
fn who_is_amid_a_request_leaves_for_nobody() {
    if !is_root() {
        return;
    }
    let (_daemon, operator) = start_large();
    let midway = as_user(1234, &[4343], || Midway::begin(&operator));
    crowd_out(&operator);
    midway.end("403");
}

#[test]
fn f9_root_of_another_pid_namespace_operates_the_daemon() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut config = own(dir.path(), "");
    config += &format!("[vm.a]\nsocket = \"{}/a\"\n", text(dir.path()));
    fs::write(dir.path().join("ccc.toml"), config).unwrap();
    let by = ["unshare", "--pid", "--fork", "--kill-child=TERM"];
    let mut daemon = Daemon::spawn_by(dir, &by, &[]);
    let operator = Operator::at(&daemon.socket("control"));
    operator.patch("/v1/vms/a", &json!({"weight": 2}));
    daemon.says("weight 1 → 2 (by uid 0, a process elsewhere)");
    // It passes no signal on.
    daemon.terminate("-KILL");
}

#[test]
fn f9_a_socket_that_cannot_be_given_to_operators_is_the_daemons_own() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(dir.path(), open).unwrap();
    let file = dir.path().join("ccc.toml");
    fs::write(&file, own(dir.path(), "operators = \"4242\"\n")).unwrap();
    // The program where that user can execute it.
    let program = dir.path().join("ccc-vhost");
    fs::copy(support::daemon::PROGRAM, &program).unwrap();
    let user = ["--reuid", "12345", "--regid", "12345", "--clear-groups", "--pdeathsig", "KILL"];
    let mut daemon = std::process::Command::new("setpriv")
        .args(user)
        .args([text(&program), "--config", text(&file)])
        .stderr(fs::File::create(dir.path().join("said")).unwrap())
        .spawn()
        .unwrap();
    let operator = Operator::at(&dir.path().join("control"));
    until("it listens", || UnixStream::connect(dir.path().join("control")).is_ok());
    let status = operator.ask("GET", "/v1/status", None).0;
    let there = fs::metadata(dir.path().join("control")).unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let said = fs::read_to_string(dir.path().join("said")).unwrap();
    assert_eq!((status, there.mode() & 0o777, there.gid()), (200, 0o600, 12345), "{said}");
    assert!(said.contains("cannot be given to group 4242"), "{said}");
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
