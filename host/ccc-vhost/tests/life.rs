// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How the daemon begins and ends.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    io::Write,
    os::unix::{
        fs::{OpenOptionsExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::Path,
    process::Command,
};

use serde_json::json;
use support::{
    daemon::{Daemon, PROGRAM, Program, run, text, until},
    driver::Driver,
    frontend::{FrontEnd, Mode, inheritable},
};

/// As QEMU's docs/interop/vhost-user.json has them; `make test-qemu` asks that file itself.
#[test]
fn q2_capabilities_are_those_of_the_schema() {
    for others in [&[][..], &["--socket-path", "a", "--fd", "3", "--nonsense"]] {
        let (done, out, said) = run(&[&["--print-capabilities"], others].concat());
        assert!(done, "with {others:?}: {said}");
        let said: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(said, json!({"type": "ccc"}), "with {others:?}");
    }
}

#[test]
fn q2_the_discovery_file_names_the_back_end() {
    let file = Path::new("50-ccc-vhost.json");
    let said: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(said["type"], "ccc");
    assert!(said["description"].is_string());
    let binary = Path::new(said["binary"].as_str().unwrap());
    assert!(binary.is_absolute() && binary.ends_with("ccc-vhost"), "{binary:?}");
}

#[test]
fn a_configuration_can_be_checked_without_serving() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ccc.toml");
    fs::write(&file, "[vm.a]\nsocket = \"/a\"\n").unwrap();
    assert!(run(&["--config", text(&file), "--check"]).0);
    fs::write(&file, "[vm.a]\nsocket = \"/a\"\nweight = 0\n").unwrap();
    let (done, _, said) = run(&["--config", text(&file), "--check"]);
    let expected = format!("{}:3:1: invalid vm.a.weight: expected a number", file.display());
    assert!(!done && said.contains(&expected), "{said}");
}

#[test]
fn something_to_serve_has_to_be_named() {
    assert!(!run(&[]).0);
    assert!(!run(&["--socket-path", "a", "--fd", "3"]).0);
    let (done, _, said) = run(&["--config", "/nowhere/ccc.toml"]);
    assert!(!done && said.contains("/nowhere/ccc.toml"), "{said}");
}

#[test]
fn signals_end_it_and_leave_nothing() {
    for signal in ["-TERM", "-INT"] {
        let mut daemon = Daemon::start(&[("a", 1.0, "default")]);
        let socket = daemon.socket("a");
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
        let driver = Driver::connect(&socket, Mode::Eventfd);
        let (status, took) = daemon.terminate(signal);
        assert!(status.success(), "{status} after {took:?}");
        assert!(!socket.exists());
        drop(driver);
    }
}

#[test]
fn what_is_let_go_by_hand_is_told() {
    let (done, _, said) = run(&["--config", "/nowhere/ccc.toml", "--release"]);
    assert!(done, "{said}");
    assert!(
        said.contains(
            "no tap was held, and no uplink had queues, by a daemon of configuration /nowhere/"
        ),
        "{said}"
    );
    assert!(said.contains("there is no /nowhere/ccc.toml; if that is mistyped"), "{said}");
}

#[test]
fn a_hangup_reads_no_configuration_and_ends_nobody() {
    let mut daemon = Daemon::start(&[("a", 1.0, "default")]);
    let driver = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    for times in 1..=2 {
        daemon.signal("-HUP");
        until("it is told each time", || daemon.lines("SIGHUP does nothing") == times);
    }
    daemon.says("ccc-vhost --config FILE --check looks at it, and systemctl restart ccc-vhost");
    assert!(daemon.running() && daemon.socket("a").exists());
    assert_eq!(daemon.lines("disconnected"), 0);
    drop(driver);
}

#[test]
fn a_hangup_at_the_start_ends_nobody_either() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (config, state, log) = (at("ccc.toml"), at("state"), at("log"));
    let own = format!(
        "[daemon]\nstate = \"{}\"\n[vm.a]\nsocket = \"{}\"\n",
        text(&state),
        text(&at("a"))
    );
    fs::write(&config, own).unwrap();
    // It waits for what is in it.
    assert!(Command::new("mkfifo").arg(&state).status().unwrap().success());
    let mut command = Command::new(PROGRAM);
    command.args(["--config", text(&config)]).stderr(fs::File::create(&log).unwrap());
    let mut daemon = Program(command.spawn().unwrap());
    let says = |words: &str| fs::read_to_string(&log).unwrap().contains(words);
    until("it begins", || says("configuration"));
    let pid = daemon.0.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    let mut open = fs::OpenOptions::new();
    open.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let mut content = Err(std::io::ErrorKind::NotFound.into());
    until("it reads", || {
        assert!(daemon.0.try_wait().unwrap().is_none(), "it has ended");
        content = open.open(&state);
        content.is_ok()
    });
    content.unwrap().write_all(b"{\"version\": 1}").unwrap();
    until("it serves, and has seen it", || says("serving 1 VMs") && says("SIGHUP does nothing"));
}

#[test]
fn how_it_begins_and_ends_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("control");
    let mut daemon = Daemon::start_logging(
        "info",
        dir,
        &[("a", 1.0, "default")],
        "",
        &["--control", text(&control)],
    );
    let begins = format!(
        "ccc-vhost {}: configuration {}, control socket {}",
        ccc_settings::VERSION,
        daemon.socket("ccc.toml").display(),
        control.display()
    );
    daemon.says(&begins);
    daemon.terminate("-TERM");
    daemon.says("ends, as a signal asks for");
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    drop(UnixListener::bind(&socket).unwrap());
    let _first = Program::start(&["--socket-path", text(&socket)]);
    until("listening", || UnixStream::connect(&socket).is_ok());
    let (done, _, said) = run(&["--socket-path", text(&socket)]);
    assert!(!done && said.contains("in use by a running process"), "{said}");
    assert!(socket.exists());
}

#[test]
fn a_level_that_is_none_is_told_and_costs_no_lines() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut command = Command::new(PROGRAM);
    command.args(["--socket-path", text(&dir.path().join("s"))]).env("RUST_LOG", "gibberish=nope");
    let _daemon = Program(command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap());
    let says = |words: &str| fs::read_to_string(&log).unwrap().contains(words);
    until("it is told", || says("invalid RUST_LOG") && says("gibberish=nope"));
    until("what is told as a rule is told", || says("serving 1 VMs"));
}

#[test]
fn inherited_sockets_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let number = inheritable(&listener).to_string();
    let daemon = Program::start(&["--fd", &number]);
    for _ in 0..10 {
        let mut driver = Driver::connect(&path, Mode::Eventfd);
        let extent = driver.offer_extent(0, 4, 1);
        driver.register(&extent, 0, 1);
        assert!(driver.accepted(&extent, 0, 1));
    }
    drop(daemon);

    let (ours, theirs) = UnixStream::pair().unwrap();
    let number = inheritable(&theirs).to_string();
    let log = dir.path().join("log");
    let mut command = Command::new(PROGRAM);
    command.args(["--fd", &number]).stderr(fs::File::create(&log).unwrap());
    let mut daemon = Program(command.spawn().unwrap());
    drop(theirs);
    drop(ours);
    until("ended with its only front end", || daemon.0.try_wait().unwrap().is_some());
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("ends, as nobody can come any more"), "{said}");

    let (done, _, said) = run(&["--fd", "77"]);
    assert!(!done && said.contains("file descriptor 77"), "{said}");
}

#[test]
fn a_second_front_end_is_refused_and_the_next_is_not() {
    let mut daemon = Daemon::start(&[("a", 1.0, "default")]);
    let socket = daemon.socket("a");
    let mut first = Driver::connect(&socket, Mode::Eventfd);
    let extent = first.offer_extent(0, 4, 1);
    let mut second = UnixStream::connect(&socket).unwrap();
    let end = std::io::Read::read(&mut second, &mut [0; 1]).unwrap();
    assert_eq!(end, 0);
    daemon.says("refused a second front end");
    first.register(&extent, 1, 1);
    assert!(first.accepted(&extent, 1, 1));
    drop(first);
    for _ in 0..10 {
        FrontEnd::open(&socket, Mode::InBand).close();
        daemon.says("disconnected with");
    }
    assert!(daemon.running());
}

/// A thousand VMs are to fit into what a service may open: eight of each, with the socket that
/// the daemon listens on, which is there without a front end too.
#[test]
fn an_attached_vm_takes_seven_descriptors() {
    let daemon = Daemon::start(&[("a", 1.0, "default")]);
    let open = || fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let before = open();
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    driver.offer_extent(0, 4, 1);
    // What is not kept is closed by another thread.
    until("closed", || open() <= before + 7);
    assert_eq!(open(), before + 7);
}

#[test]
fn a_daemon_with_nothing_to_do_is_not_woken() {
    let daemon = Daemon::start(&[("a", 1.0, "default")]);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    driver.offer_extent(0, 4, 1);
    let waits = || {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.unwrap().to_owned()
    };
    until("at rest for a second", || {
        let before = waits();
        std::thread::sleep(std::time::Duration::from_secs(1));
        waits() == before
    });
}
