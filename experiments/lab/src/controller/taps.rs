// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The VMs' taps, which are the cables to their NICs: the daemon asks what came through
//! them, and holds them to rates. Time stands still meanwhile.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::error::{Context, LabError, Result};
use crate::ipc::poller::{Origin, Polled, Poller};
use crate::switch::Switch;
use crate::time::calendar::Calendar;

/// Where the daemon asks.
pub struct Taps {
    listener: Polled<UnixListener>,
    poller: Poller,
    daemon: Option<Polled<UnixStream>>,
    begun: Vec<u8>,
}

/// What the daemon asks for.
#[derive(Debug, PartialEq, Eq)]
enum Request<'a> {
    /// What came through a tap so far.
    Received(&'a str),
    /// To hold one to a rate, bytes a second, or no more.
    Hold(&'a str, Option<u64>),
}

impl Taps {
    /// Listens there.
    pub fn new(path: &Path, poller: &Poller) -> Result<Self> {
        let listener = UnixListener::bind(path).on("listening on", path)?;
        let listener = poller.add(listener, Origin::TapsListener).on("watching", path)?;
        Ok(Self { listener, poller: poller.clone(), daemon: None, begun: Vec::new() })
    }

    /// The daemon, or the next one, connects.
    pub fn accept(&mut self) -> Result<()> {
        let (stream, _) = self.listener.accept().context(|| "accepting the daemon".into())?;
        let stream = self.poller.add(stream, Origin::Taps);
        self.daemon = Some(stream.context(|| "watching the daemon".into())?);
        self.begun.clear();
        Ok(())
    }

    /// Answers what the daemon asks.
    pub fn readable(&mut self, switch: &mut Switch, calendar: &Calendar) -> Result<()> {
        let Some(daemon) = &self.daemon else { return Ok(()) };
        let mut part = [0; 4096];
        let count = (&**daemon).read(&mut part).context(|| "reading of taps".into())?;
        if count == 0 {
            self.daemon = None;
            return Ok(());
        }
        self.begun.extend_from_slice(&part[..count]);
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            let answer = answer(&String::from_utf8_lossy(&line), switch, calendar)?;
            (&**daemon).write_all(answer.as_bytes()).context(|| "answering of taps".into())?;
        }
        Ok(())
    }
}

fn answer(line: &str, switch: &mut Switch, calendar: &Calendar) -> Result<String> {
    match parse(line) {
        Some(Request::Received(tap)) => {
            let bytes = switch.sent_bytes(tap).map_or("none".to_owned(), |sent| sent.to_string());
            Ok(format!("{bytes}\n"))
        }
        Some(Request::Hold(tap, rate)) => {
            switch.hold(tap, rate, calendar)?;
            Ok("done\n".to_owned())
        }
        None => Err(LabError::protocol("daemon", format!("asks of taps: {line:?}"))),
    }
}

fn parse(line: &str) -> Option<Request<'_>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["received", tap] => Some(Request::Received(tap)),
        ["hold", tap, "none"] => Some(Request::Hold(tap, None)),
        ["hold", tap, rate] => Some(Request::Hold(tap, Some(rate.parse().ok()?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_asks_is_read() {
        assert_eq!(parse("received vm1\n"), Some(Request::Received("vm1")));
        assert_eq!(parse("hold vm1 7"), Some(Request::Hold("vm1", Some(7))));
        assert_eq!(parse("hold vm1 none"), Some(Request::Hold("vm1", None)));
        assert_eq!(parse("hold vm1 fast").or(parse("")), None);
    }
}
