// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Connections to a VM's place that have not said yet that they are an agent.
//!
//! Whoever says nothing holds nobody up: all are heard at once, none for long, and where there
//! are too many the oldest goes, for an agent says its hello with the connection.
use std::{
    collections::VecDeque,
    error::Error,
    fmt,
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use ccc_proto::wire::{self, Extent};

use crate::{
    frames::{Frame, Frames},
    wait::wait,
};

/// Connections that may wait at once.
pub const ROOM: usize = 16;
/// Who has not said its hello by then goes.
const HELLO_US: u64 = 1_000_000;

/// An agent that has said its hello: the way to it, and what it has.
pub type Greeted = (Frames<File>, Extent);

/// Its tables are of this revision, which is not ours.
#[derive(Debug)]
pub struct OtherRevision(pub u32);

impl fmt::Display for OtherRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OtherRevision(revision) = self;
        write!(
            f,
            "its agent has tables of revision {revision}; expected {}, as the relay has",
            wire::REVISION
        )
    }
}

impl Error for OtherRevision {}

/// Those that wait, the oldest first.
#[derive(Debug, Default)]
pub struct Lobby {
    waiting: VecDeque<Newcomer>,
}

#[derive(Debug)]
struct Newcomer {
    frames: Frames<File>,
    until_us: u64,
}

impl Lobby {
    /// Lets one in, and the oldest out if there is no room.
    pub fn enter(&mut self, stream: OwnedFd, now_us: u64) -> Result<()> {
        let frames = Frames::over(stream)?;
        if self.waiting.len() == ROOM {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Newcomer { frames, until_us: now_us + HELLO_US });
        Ok(())
    }

    /// What is readable when one says something.
    pub fn wakes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.waiting.iter().map(|newcomer| newcomer.frames.stream().as_fd())
    }

    /// Those that have said their hello, or why they do not wait any longer.
    pub fn hear(&mut self, now_us: u64) -> Vec<Result<Greeted>> {
        let mut heard = Vec::new();
        for mut newcomer in std::mem::take(&mut self.waiting) {
            match newcomer.hello(now_us) {
                Ok(None) => self.waiting.push_back(newcomer),
                Ok(Some(extent)) => heard.push(Ok((newcomer.frames, extent))),
                Err(error) => heard.push(Err(error)),
            }
        }
        heard
    }
}

impl Newcomer {
    fn hello(&mut self, now_us: u64) -> Result<Option<Extent>> {
        let stream = self.frames.stream().as_fd();
        if wait(std::iter::once(stream), Duration::ZERO)? == [true] {
            self.frames.receive()?;
        }
        match self.frames.next()? {
            None => {}
            Some(Frame::Hello(wire::REVISION, extent)) => return Ok(Some(extent)),
            Some(Frame::Hello(revision, _)) => return Err(OtherRevision(revision).into()),
            Some(other) => bail!("its agent begins with {other:?}; expected a hello"),
        }
        ensure!(now_us < self.until_us, "its agent says nothing");
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn enter(lobby: &mut Lobby, now_us: u64) -> Frames<File> {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        lobby.enter(ours.into(), now_us).expect("let in");
        Frames::over(theirs.into()).expect("a peer")
    }

    fn greet(peer: &mut Frames<File>) {
        let extent: Extent = zerocopy::transmute!([1u8; 16]);
        assert!(peer.send(&Frame::Hello(wire::REVISION, extent)));
        peer.flush().expect("there");
    }

    #[test]
    fn who_says_nothing_holds_nobody_up_and_goes_after_a_second() {
        let mut lobby = Lobby::default();
        let silent = enter(&mut lobby, 0);
        let mut agent = enter(&mut lobby, 0);
        greet(&mut agent);
        assert_eq!(lobby.hear(1).iter().filter(|heard| heard.is_ok()).count(), 1);
        assert!(lobby.hear(HELLO_US - 1).is_empty());
        let told = lobby.hear(HELLO_US).pop().expect("one").expect_err("silent").to_string();
        assert_eq!(told, "its agent says nothing");
        drop(silent);
    }

    #[test]
    fn the_oldest_goes_where_there_are_too_many() {
        let mut lobby = Lobby::default();
        let mut silent: Vec<_> = (0..10 * ROOM).map(|_| enter(&mut lobby, 0)).collect();
        greet(&mut enter(&mut lobby, 0));
        assert_eq!(lobby.wakes().count(), ROOM);
        assert!(lobby.hear(1).iter().any(Result::is_ok));
        assert!(silent[0].receive().is_err(), "it was let out");
        assert!(silent[10 * ROOM - 1].receive().is_ok(), "it waits");
    }
}
