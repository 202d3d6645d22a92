// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! An operator at the control socket, who writes HTTP by hand.
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use super::daemon::{Daemon, PATIENCE};

/// Within this time no client leaves by itself that asks nothing; after 10 s they do.
pub const IDLE_STAYS: Duration = Duration::from_secs(8);

pub struct Operator {
    socket: PathBuf,
}

impl Operator {
    pub fn at(socket: &Path) -> Operator {
        Operator { socket: socket.to_owned() }
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes as they are; status and body of the answer.
    pub fn send(&self, bytes: &[u8]) -> (u16, Value) {
        let mut stream = self.connect();
        // The other side may answer and close before it has read all.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let told = || if body.is_empty() { Value::Null } else { body.into() };
        (status, serde_json::from_str(body).unwrap_or_else(|_| told()))
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(Value::to_string).unwrap_or_default();
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: ccc\r\nconnection: close\r\n{kind}\
             content-length: {length}\r\n\r\n{body}"
        );
        self.send(request.as_bytes())
    }

    /// What is at a path.
    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Changes what is at a path.
    pub fn patch(&self, path: &str, body: &Value) -> Value {
        let (status, body) = self.ask("PATCH", path, Some(body));
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Puts rules in the place of all.
    pub fn rules(&self, rules: &Value) {
        let (status, body) =
            self.ask("PUT", "/v1/rules", Some(&serde_json::json!({"rules": rules})));
        assert_eq!(status, 200, "{body}");
    }

    /// Status and field of a refusal.
    pub fn refused(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let (status, body) = self.ask(method, path, Some(body));
        assert!(body["error"].is_string(), "{status} {body}");
        (status, body["field"].as_str().unwrap_or_default().to_owned())
    }
}

/// Two VMs of one group.
pub const TWO: [(&str, f64, &str); 2] = [("a", 1.0, "g"), ("b", 1.0, "g")];

/// A configuration with a control socket, a state file and more.
pub fn own(dir: &Path, more: &str) -> String {
    let at = |name: &str| dir.join(name).display().to_string();
    format!(
        "[daemon]\ncontrol = \"{}\"\nstate = \"{}\"\n{more}[group.g]\n[group.h]\n",
        at("control"),
        at("state")
    )
}

/// A daemon with that configuration, and an operator at its control socket.
pub fn start_in(dir: TempDir, vms: &[(&str, f64, &str)], more: &str) -> (Daemon, Operator) {
    let own = own(dir.path(), more);
    let daemon = Daemon::start_in(dir, vms, &own, &[]);
    let operator = Operator::at(&daemon.socket("control"));
    (daemon, operator)
}

pub fn start(vms: &[(&str, f64, &str)]) -> (Daemon, Operator) {
    start_in(tempfile::tempdir().unwrap(), vms, "")
}

/// Connects as `cccctl` does, which does not wait for room.
pub fn connect_at_once(socket: &Path) -> std::io::Result<UnixStream> {
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
