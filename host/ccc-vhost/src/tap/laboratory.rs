// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Taps of the virtual-time laboratory, whose cables are no interfaces of this host.
//!
//! It answers at once, while time stands still: `received TAP` with a number or `none`, and
//! `hold TAP RATE` (bytes a second, or `none`) with `done`.
use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use super::{
    host::{Counter, Hold, HoldError, Host, QueueError, Queued, Unseen},
    uplink::Uplink,
};

/// A connection to the laboratory.
#[derive(Debug)]
pub struct Laboratory(BufReader<UnixStream>);

impl Laboratory {
    /// Connects to its socket.
    pub fn connect(socket: &Path) -> io::Result<Laboratory> {
        Ok(Laboratory(BufReader::new(UnixStream::connect(socket)?)))
    }

    fn ask(&mut self, request: &str) -> io::Result<String> {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        self.0.read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }
}

impl Host for Laboratory {
    fn received(&mut self, tap: &str) -> Result<Counter, Unseen> {
        let bytes = self.ask(&format!("received {tap}")).ok().and_then(|told| told.parse().ok());
        // A cable is never laid anew.
        let counter = bytes.map(|bytes| Counter { interface: 0, bytes });
        counter.ok_or_else(|| Unseen::Missing { tap: tap.to_owned() })
    }

    fn index_of(&mut self, _: &str) -> Option<u32> {
        None
    }

    fn hold(&mut self, Hold { tap, rate }: &Hold) -> Result<(), HoldError> {
        let rate = rate.map_or_else(|| "none".to_owned(), |rate| rate.to_string());
        let failed = |why| HoldError::Kernel { what: "set the rate", tap: tap.clone(), why };
        match self.ask(&format!("hold {tap} {rate}")) {
            Ok(done) if done == "done" => Ok(()),
            Ok(other) => Err(failed(io::Error::other(other))),
            Err(error) => Err(failed(error)),
        }
    }

    fn lost(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn queue(&mut self, _: &[Uplink]) -> Vec<Queued> {
        // Queues of its uplink are the network's own (`--queue htb`).
        Vec::new()
    }

    fn unqueue(&mut self) -> Vec<Result<(), QueueError>> {
        Vec::new()
    }

    fn left_over(&mut self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
