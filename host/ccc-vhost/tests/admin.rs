// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators may do to the daemon, and what they must not.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::Path,
    process::Command,
    time::Duration,
};

use ccc_proto::wire;
use serde_json::{Value, json};
use support::{
    daemon::{Daemon, text, until, until_within},
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
    let connect = || UnixStream::connect(daemon.socket("control")).is_ok();
    assert!(!as_user(1234, &[107], connect));
    assert_eq!(fs::metadata(daemon.socket("a")).unwrap().mode() & 0o777, 0o660);
}

#[test]
fn readers_look_at_everything_and_change_nothing() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
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
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
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
    let crowds =
        [crowd(1234, &[4343]), crowd(5678, &[]), crowd(2001, &[4242]), crowd(2002, &[4242])];
    assert_eq!(operator.get("/v1/status")["vms"], 2, "root is answered");
    let stays = |stream: &UnixStream| {
        stream.set_nonblocking(true).unwrap();
        let mut stream = stream;
        stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    // Some are heard for a moment, to be told that there is no place.
    until("of 16 places for readers, one for all who may nothing, 40 for operators", || {
        let counts = crowds.each_ref().map(|crowd| crowd.iter().filter(|one| stays(one)).count());
        counts == [4, 1, 32, 8]
    });
    assert_eq!(as_user(4321, &[4343], || operator.ask("GET", "/v1/vms", None)).0, 200);
    let told = "uid 1234: this user has its 4 connections to the control socket; close some";
    // Who is slow to ask is not heard.
    until("told that there is no place", || {
        let (status, body) = as_user(1234, &[4343], || operator.ask("GET", "/v1/vms", None));
        status == 503 && body["error"].as_str().is_some_and(|error| error.starts_with(told))
    });
    // They leave by themselves after 10 s.
    until_within("an operator has the place of one that is idle", Duration::from_secs(8), || {
        as_user(2003, &[4242], || operator.ask("GET", "/v1/vms", None)).0 == 200
    });
    daemon.says(told);
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

/// Connects as `cccctl` does, which does not wait for room.
fn connect_at_once(socket: &Path) -> std::io::Result<UnixStream> {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&fd, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    Ok(stream)
}

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
    let idle = idle(&daemon, 300);
    assert_eq!(operator.get("/v1/status")["vms"], 2);
    let here = idle.iter().filter(|stream| is_open(stream)).count();
    assert!(here >= 150, "the answer waited for {} of 300 idle clients to go", 300 - here);
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
    let (done, _, said) = support::daemon::run_for(&["--config", text(&file)], "5");
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
    ] {
        assert!(said.contains(part), "{part}: not in\n{said}");
    }
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
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let [program, file] = ["ccc-vhost", "ccc.toml"].map(|name| dir.path().join(name));
    fs::copy(support::daemon::PROGRAM, &program).unwrap();
    let control = dir.path().join("control");
    fs::write(&file, own(dir.path(), "operators = \"no-such-group\"\n")).unwrap();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "timeout", "5"];
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
    sends.flags &= !wire::R_ACTIVE;
    a.tell(&extent, wire::OP_UPDATE, 0, &sends);
    assert_eq!(state(), "idle", "with a flow that has nothing to send");
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
    let coupled = || operator.get("/v1/vms/a")["coupled_flows"].as_u64();
    until("the flow is coupled", || coupled() == Some(1));

    let put = |body: Value| operator.ask("PUT", "/v1/groups/g/trial", Some(&body));
    let (status, group) = put(json!({"coupled": false, "seconds": 2}));
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
