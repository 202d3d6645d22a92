// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests on the daemon's control socket: HTTP/1.1, one for a connection.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{Context, LabError, Result};
use crate::ipc::poller::{Origin, Polled, Poller};
use crate::scenario::daemon::{Action, Request};

/// A daemon that runs listens within this, on any machine.
const LISTENS: Duration = Duration::from_secs(120);
/// Longest answer.
const MAX_ANSWER: usize = 16 << 20;

/// A request under way.
pub struct Exchange {
    stream: Polled<UnixStream>,
    answer: Vec<u8>,
}

/// An answer.
#[derive(Debug, PartialEq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// JSON if it is that, else text.
    pub body: Value,
}

impl Exchange {
    /// Sends a request to the socket at `path`.
    pub fn begin(path: &Path, request: &Request, poller: &Poller) -> Result<Self> {
        let stream = connect(path)?;
        let stream = poller.add(stream, Origin::Control).on("watching", path)?;
        (&*stream).write_all(&encode(request)).on("writing to", path)?;
        Ok(Self { stream, answer: Vec::new() })
    }

    /// Takes what is there; the answer once it is whole.
    pub fn readable(&mut self) -> Result<Option<Answer>> {
        let mut part = [0; 16384];
        let count = (&*self.stream).read(&mut part).context(|| "reading an answer".into())?;
        self.answer.extend_from_slice(&part[..count]);
        if self.answer.len() > MAX_ANSWER {
            return Err(malformed());
        }
        parse(&self.answer, count == 0)
    }
}

fn connect(path: &Path) -> Result<UnixStream> {
    let started = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Err(e)
                if [ErrorKind::NotFound, ErrorKind::ConnectionRefused].contains(&e.kind())
                    && started.elapsed() < LISTENS =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other.on("connecting to", path),
        }
    }
}

fn encode(request: &Request) -> Vec<u8> {
    let Request { method, path, body } = request;
    let body = body.as_ref().map_or(String::new(), Value::to_string);
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         {kind}Content-Length: {}\r\n\r\n{body}",
        body.len(),
    )
    .into_bytes()
}

/// The answer, if it is whole; it is when the stream has ended.
fn parse(bytes: &[u8], ended: bool) -> Result<Option<Answer>> {
    let Some(split) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return if ended { Err(malformed()) } else { Ok(None) };
    };
    let head = String::from_utf8_lossy(&bytes[..split]);
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(malformed)?;
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .find_map(|(_, value)| value.trim().parse::<usize>().ok())
        .or_else(|| (status == 204).then_some(0));
    let body = &bytes[split + 4..];
    let body = match length {
        Some(length) if body.len() >= length => &body[..length],
        None if ended => body,
        _ if ended => return Err(malformed()),
        _ => return Ok(None),
    };
    let text = || Value::String(String::from_utf8_lossy(body).into_owned());
    let body = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body).unwrap_or_else(|_| text())
    };
    Ok(Some(Answer { status, body }))
}

fn malformed() -> LabError {
    LabError::protocol("daemon", "its control socket gave no HTTP answer")
}

/// An action that was carried out, for `actions.json`; an error if the answer
/// is not the expected one.
pub fn record(action: &Action, answer: Option<Answer>) -> Result<Value> {
    let mut record = json!({"action": action});
    let Some(answer) = answer else {
        return Ok(record);
    };
    let right = match action.expect {
        Some(status) => answer.status == status,
        None => (200..300).contains(&answer.status),
    };
    if !right {
        let request = action.control.as_ref().map(|c| format!("{} {}", c.method, c.path));
        let request = request.unwrap_or_default();
        let reason = format!(
            "answered {} to {request} at {} s: {}",
            answer.status, action.at_s, answer.body
        );
        return Err(LabError::protocol("daemon", reason));
    }
    record["status"] = answer.status.into();
    record["answer"] = answer.body;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(expect: Option<u16>) -> Action {
        let request = Request { method: "GET".into(), path: "/v1/status".into(), body: None };
        let control = Some(request);
        Action { at_s: 3.0, control, expect, kill_daemon: false, start_daemon: false }
    }

    fn answer(status: u16) -> Option<Answer> {
        Some(Answer { status, body: json!({"error": "none of that name"}) })
    }

    #[test]
    fn an_answer_is_whole_by_its_length_or_the_streams_end() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n";
        let whole = [head.as_slice(), b"{\"a\": 1}"].concat();
        assert_eq!(parse(&whole[..20], false).expect("sound"), None);
        assert_eq!(parse(&whole[..whole.len() - 1], false).expect("sound"), None);
        let expected = Answer { status: 200, body: json!({"a": 1}) };
        assert_eq!(parse(&whole, false).expect("sound"), Some(expected));
        let open = b"HTTP/1.1 404 Not Found\r\n\r\nno";
        assert_eq!(parse(open, false).expect("sound"), None);
        let expected = Answer { status: 404, body: "no".into() };
        assert_eq!(parse(open, true).expect("sound"), Some(expected));
        assert!(parse(b"what?", true).is_err());
    }

    #[test]
    fn a_body_is_sent_with_its_length() {
        let body = Some(json!({"weight": 4}));
        let request = Request { method: "PATCH".into(), path: "/v1/vms/vm1".into(), body };
        let text = String::from_utf8(encode(&request)).expect("text");
        assert!(text.starts_with("PATCH /v1/vms/vm1 HTTP/1.1\r\n"));
        assert!(text.ends_with("Content-Length: 12\r\n\r\n{\"weight\":4}"));
    }

    #[test]
    fn only_the_expected_status_passes() {
        assert!(record(&action(None), answer(204)).is_ok());
        assert!(record(&action(Some(404)), answer(404)).is_ok());
        assert!(record(&action(Some(404)), answer(200)).is_err());
        let told = record(&action(None), answer(404)).expect_err("refused").to_string();
        assert!(told.contains("answered 404 to GET /v1/status at 3 s"), "{told}");
    }
}
