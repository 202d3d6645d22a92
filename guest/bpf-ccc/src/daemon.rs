// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the daemon answers at its control socket.
use std::{
    fmt,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// No answer is longer.
const ANSWER_MAX: u64 = 64 << 20;

/// It is away, or hangs: there is no use in asking it something else now.
#[derive(Debug)]
pub struct Silent;

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the daemon does not answer")
    }
}

/// What it answers to a `GET`.
pub fn get(control: &Path, path: &str) -> Result<Value> {
    read(&ask(control, path).context(Silent)?)
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
    fn what_is_no_answer_is_told() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\": 1}";
        assert_eq!(read(answer).expect("an answer")["a"], 1);
        assert!(read("HTTP/1.1 500 x\r\n\r\n{}").is_err());
        assert!(read("HTTP/1.1 200 OK\r\n\r\nhello").is_err());
        assert!(read("").is_err());
    }
}
