// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a service manager hears of the program while it runs, and when it ends.
use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

/// Twice as often is told.
const WANTED: Duration = Duration::from_millis(600);
/// A program that is busy is heard of by then.
const PATIENCE: Duration = Duration::from_secs(30);

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ccc-bpf"))
}

/// Ends with the test.
struct Running(Child);

impl Running {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.expect("sent").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory of its own.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ccc-service-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).expect("a directory");
    path
}

fn heard(manager: &UnixDatagram, patience: Duration) -> Option<String> {
    manager.set_read_timeout(Some(patience)).expect("set");
    let mut said = [0; 256];
    let length = loop {
        match manager.recv(&mut said) {
            Ok(length) => break length,
            // As after a stop of this process (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => panic!("nothing can be heard: {error}"),
        }
    };
    Some(String::from_utf8_lossy(&said[..length]).trim().to_owned())
}

#[test]
fn the_service_manager_hears_of_a_relay_that_turns_and_of_no_other() {
    let directory = directory("turns");
    let manager = UnixDatagram::bind(directory.join("notify")).expect("bound");
    let child = program()
        .args(["relay", "--control", "/nowhere/control.sock", "--port", "1064"])
        .env("NOTIFY_SOCKET", directory.join("notify"))
        .env("WATCHDOG_USEC", WANTED.as_micros().to_string())
        .spawn()
        .expect("started");
    let relay = Running(child);
    assert_eq!(heard(&manager, PATIENCE).as_deref(), Some("READY=1"));
    for _ in 0..3 {
        assert_eq!(heard(&manager, PATIENCE).as_deref(), Some("WATCHDOG=1"), "with nothing to do");
    }
    relay.signal("-STOP");
    // What was on its way.
    while heard(&manager, WANTED * 2).is_some() {}
    assert_eq!(heard(&manager, WANTED * 4), None, "hangs, and says that all is well");
    relay.signal("-CONT");
    assert_eq!(heard(&manager, PATIENCE).as_deref(), Some("WATCHDOG=1"));
    std::fs::remove_dir_all(directory).expect("removed");
}

/// How it ends with these words, which must not begin to serve.
fn ends_with(arguments: &[&str]) -> Option<i32> {
    program().args(arguments).status().expect("started").code()
}

#[test]
fn what_no_other_attempt_mends_has_a_status_for_which_no_unit_starts_it_again() {
    let directory = directory("hopeless");
    let pins = directory.join("pins").display().to_string();
    assert_eq!(ends_with(&["run", "--no-such-option"]), Some(2));
    assert_eq!(ends_with(&["agent", "--pins", &pins]), Some(78), "no bpffs");
    assert!(!Path::new(&pins).exists());
    std::fs::remove_dir_all(directory).expect("removed");
    for unit in ["ccc-agent", "ccc-bpf", "ccc-relay"] {
        let path = format!("{}/systemd/{unit}.service", env!("CARGO_MANIFEST_DIR"));
        let unit = std::fs::read_to_string(path).expect("a unit");
        assert!(unit.contains("\nRestartPreventExitStatus=2 78\n"));
    }
}
