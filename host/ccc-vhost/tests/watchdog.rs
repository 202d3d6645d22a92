// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a service manager hears of the daemon.
#![allow(clippy::unwrap_used)]
use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    process::{Child, Command},
    time::Duration,
};

/// Twice as often is told.
const WANTED: Duration = Duration::from_millis(400);
/// A daemon that is busy is heard of by then.
const PATIENCE: Duration = Duration::from_secs(30);

struct Daemon(Child);

impl Daemon {
    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn heard(manager: &UnixDatagram, patience: Duration) -> Option<String> {
    manager.set_read_timeout(Some(patience)).unwrap();
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
fn o11_the_service_manager_hears_of_a_loop_that_turns_and_of_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_ccc-vhost"))
        .arg("--socket-path")
        .arg(at("vm.sock"))
        .env("NOTIFY_SOCKET", at("notify"))
        .env("WATCHDOG_USEC", WANTED.as_micros().to_string())
        .spawn()
        .unwrap();
    let daemon = Daemon(child);
    assert_eq!(heard(&manager, PATIENCE).as_deref(), Some("READY=1"));
    for _ in 0..3 {
        assert_eq!(heard(&manager, PATIENCE).as_deref(), Some("WATCHDOG=1"), "with nothing to do");
    }
    daemon.signal("-STOP");
    // What was on its way.
    while heard(&manager, WANTED * 2).is_some() {}
    assert_eq!(heard(&manager, WANTED * 4), None, "hangs, and says that all is well");
    daemon.signal("-CONT");
    assert_eq!(heard(&manager, PATIENCE).as_deref(), Some("WATCHDOG=1"));
}
