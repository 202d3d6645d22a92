// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the daemon answers at its control socket.
use std::{
    fmt,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Error, Result, ensure};
use serde_json::Value;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// No answer is longer.
const ANSWER_MAX: u64 = 64 << 20;

/// There is no use in asking it something else now.
#[derive(Debug)]
pub enum Silent {
    /// Nobody listens.
    Away,
    /// It hangs, or may not be asked.
    Mute,
}

impl Silent {
    fn of(error: &io::Error) -> Silent {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Silent::Away,
            _ => Silent::Mute,
        }
    }
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Silent::Away => {
                "the daemon does not run (start it: systemctl start ccc-vhost), or is asked elsewhere \
                 (--control)"
            }
            Silent::Mute => "the daemon does not answer",
        })
    }
}

/// What it answers to a `GET`.
pub fn get(control: &Path, path: &str) -> Result<Value> {
    let answer = ask(control, path).map_err(|error| {
        let silent = Silent::of(&error);
        Error::new(error).context(silent)
    });
    read(&answer?)
}

fn ask(control: &Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: ccc\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}

fn read(answer: &str) -> Result<Value> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the daemon broke off")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "the daemon answers {status}");
    serde_json::from_str(body).context("the daemon does not speak JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_does_not_run_is_to_be_started() {
        let told = |kind: io::ErrorKind| Silent::of(&kind.into()).to_string();
        let remedy = "start it: systemctl start ccc-vhost";
        for away in [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused] {
            assert!(told(away).contains(remedy), "{away}");
        }
        assert_eq!(told(io::ErrorKind::WouldBlock), "the daemon does not answer");
        let error = get(Path::new("/nowhere/control"), "/v1/vms").expect_err("nobody is there");
        assert!(error.is::<Silent>() && format!("{error:#}").contains(remedy), "{error:#}");
    }

    #[test]
    fn what_is_no_answer_is_told() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\": 1}";
        assert_eq!(read(answer).expect("an answer")["a"], 1);
        assert!(read("HTTP/1.1 500 x\r\n\r\n{}").is_err());
        assert!(read("HTTP/1.1 200 OK\r\n\r\nhello").is_err());
        assert!(read("").is_err());
    }
}
