// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! libvirt's hook against the real daemon: nothing of ours ends or blocks a domain.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use support::{Daemon, connecting, run_with, until};

/// What libvirt calls a hook with of a domain that runs or ran.
const RUNNING: [&str; 7] =
    ["start", "started", "stopped", "release", "reconnect", "attach", "migrate"];
/// A hook that hangs is one that has not ended by then, on however busy a machine.
const FOREVER: Duration = Duration::from_secs(60);
/// Status of one that refuses on purpose.
const REFUSED: i32 = 3;

/// A domain's description with this in its metadata.
fn described(metadata: &str) -> String {
    format!("<domain type='kvm'><name>mail</name><metadata>{metadata}</metadata></domain>")
}

/// The metadata of a domain of ours.
fn ours(attributes: &str) -> String {
    described(&format!("<c:vm xmlns:c='urn:ccc:vm:1' {attributes}/>"))
}

/// Runs a hook as libvirt does; how it ended, which it must.
fn hook_of(
    control: &Path,
    domain: &str,
    operation: &str,
    description: &str,
    config: &Path,
) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cccctl"))
        .args(["hook", "--", domain, operation, "begin", "-"])
        .env("CCC_CONTROL", control)
        .env("CCCCTL_CONFIG", config)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that does not read its input may be gone.
    let _ = child.stdin.take().unwrap().write_all(description.as_bytes());
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > FOREVER {
            child.kill().unwrap();
            panic!("hangs: hook {operation} has not ended after {FOREVER:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn hook(control: &Path, operation: &str, description: &str) -> Output {
    hook_of(control, "mail", operation, description, Path::new("/nonexistent/cccctl.toml"))
}

/// One that waits for a daemon which a busy disk holds up.
fn patient_hook(daemon: &Daemon, operation: &str, description: &str) -> Output {
    hook_of(&daemon.control(), "mail", operation, description, &daemon.patient())
}

/// Whether a domain may start that the daemon is not told of: its QEMU has a second to show
/// that it starts alone, which a busy machine may not give it.
fn starts(control: &Path, description: &str) -> bool {
    let ended = hook(control, "prepare", description);
    eprintln!("{}", said(&ended));
    assert!([Some(0), Some(REFUSED)].contains(&ended.status.code()), "{:?}", ended.status);
    ended.status.success()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_hook_tells_of_domains_that_come_and_go() {
    let daemon = Daemon::start();
    let control = daemon.control();
    let socket = daemon.dir.path().join("mail").display().to_string();
    let metadata =
        |weight: &str| ours(&format!("socket='{socket}' weight='{weight}' group='uplink'"));
    let hook = |operation: &str, description: &str| {
        let arguments = ["hook", "--", "mail", operation, "begin", "-"];
        run_with(&control, &arguments, description)
    };
    let silent = (true, String::new(), String::new());
    for (operation, weight) in [("prepare", "2.5"), ("reconnect", "4"), ("attach", "1")] {
        assert_eq!(hook(operation, &metadata(weight)), silent, "{operation}");
        let vm = daemon.json(&["show", "mail"]);
        let expected: f64 = weight.parse().unwrap();
        assert_eq!((&vm["weight"], &vm["group"]), (&expected.into(), &"uplink".into()));
        assert_eq!(hook("started", &metadata("9")), silent, "none of its business");
    }
    for _ in 0..2 {
        assert_eq!(hook("release", &metadata("1")), silent, "what is gone is gone");
        assert!(daemon.fails(&["show", "mail"]).contains("no VM"));
    }
    let plugged = described("<p:device xmlns:p='urn:ccc:plugged:1' bus='pci.6'/>");
    let (done, printed, said) = hook("migrate", &plugged);
    assert!(done && said.is_empty() && printed.contains("path=/run/ccc/vm/mail.sock"), "{printed}");
    assert_eq!(hook("migrate", &metadata("1")), silent, "as it started");
}

/// A domain that has come to be called as a tenant takes nothing from it, wherever its socket
/// is, and goes on.
#[test]
fn f1_a_domain_takes_no_tenants_name() {
    let daemon = Daemon::start();
    let at = |name: &str| daemon.dir.path().join(name).display().to_string();
    let (socket, other) = (at("mail"), at("other"));
    let add = ["tenant", "add", "mail", "--cgroup", "mail.slice", "--vhost-socket", &socket];
    daemon.prints(&[&add[..], &["--weight", "3", "--group", "uplink"]].concat());
    let tenant = daemon.json(&["show", "mail"]);
    for socket in [&socket, &other] {
        let description = ours(&format!("weight='5' socket='{socket}'"));
        for operation in ["prepare", "started", "reconnect", "attach", "release"] {
            let ended = patient_hook(&daemon, operation, &description);
            assert_eq!(ended.status.code(), Some(0), "{operation}: {}", said(&ended));
            assert_eq!(daemon.json(&["show", "mail"]), tenant, "{operation}");
            if operation == "prepare" {
                let told = said(&ended);
                assert!(told.contains("`mail` is the tenant cgroup:mail.slice"), "{told}");
                assert!(told.contains("cccctl tenant remove mail"), "{told}");
            }
        }
    }
    // One that is that tenant by its metadata has it, and takes it along.
    let its = ours(&format!("weight='5' socket='{socket}' tenant='cgroup:mail.slice'"));
    assert!(patient_hook(&daemon, "prepare", &its).status.success());
    assert_eq!(daemon.json(&["show", "mail"])["weight"], 5.0);
    assert!(patient_hook(&daemon, "release", &its).status.success());
    assert!(daemon.fails(&["show", "mail"]).contains("no VM"));
}

#[test]
fn other_domains_start_without_a_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let hook = ["hook", "--", "mail", "prepare", "begin", "-"];
    let other = described("<o:vm xmlns:o='urn:other'/>");
    let silent = (true, String::new(), String::new());
    assert_eq!(run_with(&dir.path().join("control"), &hook, &other), silent);
}

#[test]
fn f1_hooks_of_running_domains_never_fail() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start();
    let right = ours("group='uplink' weight='3'");
    let wrong = [
        ("no daemon", dir.path().join("control"), right.clone()),
        ("wrong metadata", daemon.control(), ours("weight='3,5'")),
        ("no such group", daemon.control(), ours("group='nil'")),
        ("no XML", daemon.control(), "<domain".to_owned()),
        ("nothing", daemon.control(), String::new()),
    ];
    for (what, control, description) in &wrong {
        for operation in RUNNING {
            let ended = hook(control, operation, description);
            assert_eq!(ended.status.code(), Some(0), "{what}, {operation}: {}", said(&ended));
        }
        let warned = said(&hook(control, "reconnect", description));
        assert!(warned.contains("domain mail: "), "{what}: {warned}");
    }
}

#[test]
fn f1_a_daemon_that_hangs_holds_no_hook() {
    let daemon = Daemon::start();
    daemon.signal("-STOP");
    for operation in ["reconnect", "release", "attach", "prepare"] {
        let began = Instant::now();
        let ended = hook(&daemon.control(), operation, &ours("group='uplink'"));
        let (told, took) = (said(&ended), began.elapsed());
        assert_eq!(ended.status.code(), Some(0), "{operation}: {told}");
        assert!(told.contains("does it hang?"), "{operation}: {told}");
        println!("{operation}: {took:?}");
    }
}

/// What it was asked for while it hung, it does when it goes on: that must be what the
/// domain wants.
#[test]
fn f1_a_daemon_that_hung_at_the_start_couples_as_wanted() {
    let daemon = Daemon::start();
    let qemu = daemon.dir.path().join("qemu");
    fs::write(&qemu, "#!/bin/sh\nread a; read b\n").unwrap();
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
    let description = connecting(&qemu, &daemon.dir.path().join("mail.sock"));
    daemon.signal("-STOP");
    until("seen to start alone", || starts(&daemon.control(), &description));
    daemon.signal("-CONT");
    let went_on = Instant::now();
    while !daemon.run(&["show", "mail"]).0 {
        assert!(went_on.elapsed() < FOREVER, "it was asked, and does not do it");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Time for whatever else it was asked.
    std::thread::sleep(Duration::from_secs(1));
    let vm = daemon.json(&["show", "mail"]);
    assert_eq!((&vm["group"], &vm["weight"]), (&"uplink".into(), &2.0.into()));
}

#[test]
fn f1_a_start_is_refused_only_where_the_operator_requires_it() {
    let daemon = Daemon::start();
    let config = daemon.dir.path().join("cccctl.toml");
    let nowhere = daemon.dir.path().join("nowhere");
    let ended = |control: &Path, operation: &str, description: &str| {
        let ended = hook_of(control, "mail", operation, description, &config);
        (ended.status.code(), said(&ended))
    };
    let right = ours("");
    for choice in ["", "require = false\n", "require = \"perhaps\"\n"] {
        fs::write(&config, choice).unwrap();
        let (status, told) = ended(&nowhere, "prepare", &right);
        assert_eq!(status, Some(0), "{choice}: {told}");
        assert!(told.contains("start ccc-vhost"), "{told}");
    }
    fs::write(&config, "require = true\n").unwrap();
    let (status, told) = ended(&nowhere, "prepare", &right);
    assert_eq!(status, Some(REFUSED), "{told}");
    assert!(told.contains("start ccc-vhost"), "{told}");
    assert!(told.contains(&format!("and {} has require = true", config.display())), "{told}");
    for choice in ["patience = 60\n", "patience = 2s\n", "more = 1\n"] {
        fs::write(&config, format!("{choice}require = true\n")).unwrap();
        let (status, told) = ended(&nowhere, "prepare", &right);
        assert_eq!(status, Some(REFUSED), "its operator's choice can be read: {told}");
        assert!(told.contains("cccctl.toml:1"), "{told}");
    }
    assert_eq!(ended(&daemon.control(), "prepare", &ours("weight='3,5'")).0, Some(REFUSED));
    assert_eq!(ended(&nowhere, "prepare", &described("")).0, Some(0), "none of ours");
    for operation in RUNNING {
        assert_eq!(ended(&nowhere, operation, &right).0, Some(0), "{operation}");
    }
}

/// The hook as it is installed, with these programs, for a domain of ours.
fn installed(programs: &Path, operation: &str) -> Output {
    installed_for(&ours(""), programs, operation)
}

fn installed_for(description: &str, programs: &Path, operation: &str) -> Output {
    let hook = Path::new("../../libvirt/hooks/ccc");
    let mut child = Command::new(hook)
        .args(["mail", operation, "begin", "-"])
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that does not read its input may be gone.
    let _ = child.stdin.take().unwrap().write_all(description.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn f1_the_installed_hook_passes_whatever_became_of_cccctl() {
    let dir = tempfile::tempdir().unwrap();
    let gone = installed(dir.path(), "reconnect");
    assert_eq!(gone.status.code(), Some(0));
    assert_eq!(said(&gone).lines().count(), 1, "{}", said(&gone));
    assert!(said(&gone).contains("cccctl is not installed"), "{}", said(&gone));
    let program = dir.path().join("cccctl");
    for (script, status) in [
        ("exit 0", 0),
        ("exit 1", 0),
        ("exit 101", 0),
        ("exit 2", 0),
        ("kill -SEGV $$", 0),
        ("exit 3", 1),
    ] {
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let ended = installed(dir.path(), "prepare");
        assert_eq!(ended.status.code(), Some(status), "{script}: {}", said(&ended));
    }
    fs::write(&program, "\x7fELF, half of it").unwrap();
    assert_eq!(installed(dir.path(), "reconnect").status.code(), Some(0));
}

#[test]
fn f1_the_installed_hook_runs_nothing_of_ours_for_other_domains() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("cccctl");
    let called = dir.path().join("called");
    fs::write(&program, format!("#!/bin/sh\ncat >{}\n", called.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let others = described("<o:vm xmlns:o='urn:other'/>");
    let attached = connecting(Path::new("/qemu"), Path::new("/run/ccc/mail.sock"));
    let (begins, _) = attached.split_once("<metadata>").unwrap();
    let (_, ends) = attached.split_once("</metadata>").unwrap();
    let without_metadata = format!("{begins}{ends}");
    let plugged = described("<p:device xmlns:p='urn:ccc:plugged:1'/>");
    for operation in RUNNING.iter().chain(&["prepare", "restore"]) {
        let ended = installed_for(&others, dir.path(), operation);
        assert_eq!((ended.status.code(), said(&ended)), (Some(0), String::new()), "{operation}");
        assert!(!called.exists(), "{operation}: a hang of it would be a hang of this domain");
        for description in [&attached, &without_metadata, &plugged] {
            installed_for(description, dir.path(), operation);
            let told = fs::read_to_string(&called).unwrap_or_default();
            let is_done = !["start", "started", "stopped"].contains(operation);
            assert_eq!(told.trim_end() == description, is_done, "{operation}: {description}");
            let _ = fs::remove_file(&called);
        }
    }
}

/// A daemon that is ended while it is asked, and is back at once.
#[test]
fn f1_a_conversation_that_breaks_off_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("control");
    let listener = UnixListener::bind(&control).unwrap();
    let daemon = std::thread::spawn(move || {
        for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            assert!(stream.read(&mut asked).unwrap() > 0);
            stream.write_all(answer.as_bytes()).unwrap();
        }
        drop(listener);
    });
    let config = dir.path().join("cccctl.toml");
    fs::write(&config, "patience = 20\n").unwrap();
    let ended = hook_of(&control, "mail", "prepare", &ours("group='uplink'"), &config);
    assert_eq!((ended.status.code(), said(&ended)), (Some(0), String::new()));
    daemon.join().unwrap();
}

#[test]
fn o5_the_daemon_listens_where_qemu_connects() {
    let daemon = Daemon::start();
    let socket = daemon.dir.path().join("old-name.sock");
    let description = connecting(Path::new("/nonexistent/qemu"), &socket);
    let started =
        |name: &str| hook_of(&daemon.control(), name, "prepare", &description, &daemon.patient());
    let ended = started("mail");
    assert_eq!(ended.status.code(), Some(0), "{}", said(&ended));
    let vm = daemon.json(&["show", "mail"]);
    assert_eq!(vm["socket"], socket.display().to_string());
    let clone = started("clone");
    assert_eq!(clone.status.code(), Some(REFUSED), "it would take the other's");
    assert!(said(&clone).contains("that of mail, as a clone would"), "{}", said(&clone));
    assert!(said(&clone).contains("cccctl attach clone"), "{}", said(&clone));
    let release = patient_hook(&daemon, "release", &description);
    assert_eq!(release.status.code(), Some(0), "{}", said(&release));
    assert_eq!(started("clone").status.code(), Some(0), "nobody has it now");
}

#[test]
fn o5_a_vm_left_over_at_another_socket_gives_way() {
    let daemon = Daemon::start();
    for name in ["one", "two"] {
        let socket = daemon.dir.path().join(name);
        let description = connecting(Path::new("/nonexistent"), &socket);
        let ended = patient_hook(&daemon, "prepare", &description);
        assert_eq!((ended.status.code(), said(&ended)), (Some(0), String::new()));
        let vm = daemon.json(&["show", "mail"]);
        assert_eq!(
            (&vm["socket"], &vm["weight"]),
            (&socket.display().to_string().into(), &2.0.into())
        );
    }
}

#[test]
fn o5_a_start_that_would_never_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let qemu = dir.path().join("qemu");
    let description = connecting(&qemu, &dir.path().join("mail.sock"));
    let starts_with = |script: &str| {
        fs::write(&qemu, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
        starts(&dir.path().join("control"), &description)
    };
    assert!(!starts_with("sleep 60"), "one that waits for the daemon");
    until("one starts alone", || starts_with("read a; read b"));
    assert!(!starts_with("exit 1"));
}

#[test]
fn f1_what_is_wrong_with_its_metadata_does_not_keep_a_domain_from_starting() {
    let daemon = Daemon::start();
    let socket = daemon.dir.path().join("mail.sock");
    let hook = |operation: &str, description: &str| patient_hook(&daemon, operation, description);
    for wrong in
        ["group='nil' weight='2'", "group='uplink' weight='3,5'", "group='uplink' wieght='3'"]
    {
        let description = connecting(Path::new("/nonexistent"), &socket)
            .replace("group='uplink' weight='2'", wrong);
        let ended = hook("prepare", &description);
        assert_eq!(ended.status.code(), Some(0), "{wrong}: {}", said(&ended));
        assert!(said(&ended).contains("domain mail: "), "{}", said(&ended));
        let vm = daemon.json(&["show", "mail"]);
        assert!(vm["group"].is_null(), "uncoupled, but served: {vm}");
    }
    let right = connecting(Path::new("/nonexistent"), &socket);
    assert_eq!(hook("reconnect", &right).status.code(), Some(0));
    assert_eq!(daemon.json(&["show", "mail"])["group"], "uplink", "when all is well");
}
