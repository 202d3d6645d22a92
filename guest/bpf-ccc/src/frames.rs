// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What an agent in a guest and the relay on its host say to each other.
//!
//! A frame is a head of eight bytes and a structure of `virtio_ccc.h`, whose kind says how long
//! it is; all numbers are little-endian.  The agent sends its reports and messages, the relay
//! what the daemon has written since: each side so keeps a copy of the other's part of the table.
//!
//! | kind | sent by | number | followed by |
//! |---|---|---|---|
//! | 1 hello, the first | agent | revision | `virtio_ccc_extent` |
//! | 2 report | agent | slot | `virtio_ccc_report` |
//! | 3 message | agent | 0 | `virtio_ccc_doorbell` |
//! | 4 alive, ten times a second | both | microseconds for which grants hold; 0 by the agent | – |
//! | 5 status | relay | 0 | `virtio_ccc_extent_status` |
//! | 6 line | relay | line | `virtio_ccc_grant_line` |
//! | 7 slot | relay | slot | `virtio_ccc_slot_grant` |
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::fd::OwnedFd,
};

use anyhow::{Context, Result, bail, ensure};
use ccc_proto::wire::{Doorbell, Extent, ExtentStatus, GrantLine, Report, SlotGrant};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32},
};

/// Bytes that are read at a time.
const READ: usize = 64 << 10;
/// Bytes that may wait for a peer that does not read.
const WAIT: usize = 256 << 10;

const HELLO: u16 = 1;
const REPORT: u16 = 2;
const MESSAGE: u16 = 3;
const ALIVE: u16 = 4;
const STATUS: u16 = 5;
const LINE: u16 = 6;
const SLOT: u16 = 7;

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    kind: U16,
    reserved: U16,
    number: U32,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Frame {
    /// The revision of the structures, and the table's size.
    Hello(u32, Extent),
    /// A slot's.
    Report(u32, Report),
    /// For the device.
    Message(Doorbell),
    /// Grants hold for so many microseconds more.
    Alive(u32),
    /// Whether the table is accepted.
    Status(ExtentStatus),
    /// A line's.
    Line(u32, GrantLine),
    /// A slot's.
    Slot(u32, SlotGrant),
}

impl Frame {
    fn parts(&self) -> (u16, u32, &[u8]) {
        match self {
            Frame::Hello(revision, extent) => (HELLO, *revision, extent.as_bytes()),
            Frame::Report(slot, report) => (REPORT, *slot, report.as_bytes()),
            Frame::Message(message) => (MESSAGE, 0, message.as_bytes()),
            Frame::Alive(hold_us) => (ALIVE, *hold_us, &[]),
            Frame::Status(status) => (STATUS, 0, status.as_bytes()),
            Frame::Line(line, grant) => (LINE, *line, grant.as_bytes()),
            Frame::Slot(slot, grant) => (SLOT, *slot, grant.as_bytes()),
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        let (kind, number, bytes) = self.parts();
        let head = Head { kind: kind.into(), reserved: 0.into(), number: number.into() };
        to.extend_from_slice(head.as_bytes());
        to.extend_from_slice(bytes);
    }

    /// The first of these bytes, once it is whole, and what follows it.
    fn read(bytes: &[u8]) -> Result<Option<(Frame, &[u8])>> {
        let Ok((head, rest)) = Head::read_from_prefix(bytes) else { return Ok(None) };
        let number = head.number.get();
        Ok(match head.kind.get() {
            HELLO => with(rest, |extent| Frame::Hello(number, extent)),
            REPORT => with(rest, |report| Frame::Report(number, report)),
            MESSAGE => with(rest, Frame::Message),
            ALIVE => Some((Frame::Alive(number), rest)),
            STATUS => with(rest, Frame::Status),
            LINE => with(rest, |line| Frame::Line(number, line)),
            SLOT => with(rest, |grant| Frame::Slot(number, grant)),
            kind => bail!("a frame of kind {kind}; expected {HELLO} to {SLOT}"),
        })
    }
}

fn with<T: FromBytes>(bytes: &[u8], frame: impl FnOnce(T) -> Frame) -> Option<(Frame, &[u8])> {
    let (read, rest) = T::read_from_prefix(bytes).ok()?;
    Some((frame(read), rest))
}

/// Frames over a stream that never blocks.
#[derive(Debug)]
pub struct Frames<S> {
    stream: S,
    /// Read, but for what was taken of it.
    read: Vec<u8>,
    taken: usize,
    /// To be written.
    unwritten: Vec<u8>,
}

impl Frames<File> {
    /// Over a stream of any kind, which does not block from now on.
    pub fn over(stream: OwnedFd) -> Result<Frames<File>> {
        fcntl_setfl(&stream, fcntl_getfl(&stream)? | OFlags::NONBLOCK)?;
        Ok(Frames::new(File::from(stream)))
    }
}

impl<S: Read + Write> Frames<S> {
    /// Over a stream that does not block.
    fn new(stream: S) -> Frames<S> {
        Frames { stream, read: Vec::new(), taken: 0, unwritten: Vec::new() }
    }

    /// The stream itself.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Reads what has come, but not more than a part of it; fails when the peer has gone.
    pub fn receive(&mut self) -> Result<()> {
        self.read.drain(..std::mem::take(&mut self.taken));
        let had = self.read.len();
        self.read.resize(had + READ, 0);
        let came = again(|| self.stream.read(&mut self.read[had..]));
        self.read.truncate(had + came.as_ref().map_or(0, |came| came.unwrap_or_default()));
        ensure!(came?.is_none_or(|bytes| bytes != 0), "the peer has gone");
        Ok(())
    }

    /// The next frame of those that were read.
    pub fn next(&mut self) -> Result<Option<Frame>> {
        let bytes = &self.read[self.taken..];
        let Some((frame, rest)) = Frame::read(bytes)? else { return Ok(None) };
        self.taken += bytes.len() - rest.len();
        Ok(Some(frame))
    }

    /// Has a frame sent, unless too many wait; whether it was.
    pub fn send(&mut self, frame: &Frame) -> bool {
        let room = self.unwritten.len() < WAIT;
        if room {
            frame.write(&mut self.unwritten);
        }
        room
    }

    /// Writes what can be written.
    pub fn flush(&mut self) -> Result<()> {
        while !self.unwritten.is_empty() {
            let Some(written) = again(|| self.stream.write(&self.unwritten))? else { break };
            self.unwritten.drain(..written);
        }
        Ok(())
    }

    /// Whether frames wait for the peer to read.
    pub fn waits(&self) -> bool {
        !self.unwritten.is_empty()
    }
}

/// What an operation did; none, if it would have had to wait.
fn again(mut operation: impl FnMut() -> io::Result<usize>) -> Result<Option<usize>> {
    loop {
        match operation() {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("the peer has gone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use ccc_proto::wire;

    use super::*;

    fn pair() -> (Frames<UnixStream>, Frames<UnixStream>) {
        let (one, other) = UnixStream::pair().expect("a pair");
        for stream in [&one, &other] {
            stream.set_nonblocking(true).expect("set");
        }
        (Frames::new(one), Frames::new(other))
    }

    fn all() -> Vec<Frame> {
        let message: Doorbell = zerocopy::transmute!([3u8; 16]);
        vec![
            Frame::Hello(wire::REVISION, zerocopy::transmute!([1u8; 16])),
            Frame::Report(5, Report::FREE),
            Frame::Message(message),
            Frame::Alive(1_000_000),
            Frame::Status(zerocopy::transmute!([4u8; 64])),
            Frame::Line(2, zerocopy::transmute!([5u8; 64])),
            Frame::Slot(1023, zerocopy::transmute!([6u8; 16])),
        ]
    }

    #[test]
    fn frames_come_as_they_were_sent_however_they_are_cut() {
        let mut bytes = Vec::new();
        all().iter().for_each(|frame| frame.write(&mut bytes));
        let (mut one, other) = pair();
        let mut came = Vec::new();
        for byte in bytes {
            other.stream().write_all(&[byte]).expect("written");
            one.receive().expect("there");
            came.extend(one.next().expect("a frame, or none"));
        }
        assert_eq!(came, all());
    }

    #[test]
    fn what_is_no_frame_is_told() {
        let (mut one, other) = pair();
        other.stream().write_all(&[8, 0, 0, 0, 0, 0, 0, 0]).expect("written");
        one.receive().expect("there");
        let told = one.next().expect_err("no frame").to_string();
        assert_eq!(told, "a frame of kind 8; expected 1 to 7");
    }

    #[test]
    fn a_peer_that_does_not_read_has_no_more_than_a_bound() {
        let (mut one, mut other) = pair();
        let frame = Frame::Report(0, Report::FREE);
        let sent = (0..1_000_000).take_while(|_| one.flush().is_ok() && one.send(&frame)).count();
        assert!(sent < 10_000 && one.waits(), "{sent} frames wait");
        let mut came = 0;
        for _ in 0..sent {
            one.flush().expect("there");
            other.receive().expect("there");
            came += std::iter::from_fn(|| other.next().expect("a frame, or none")).count();
        }
        assert_eq!((came, one.waits()), (sent, false));
    }

    #[test]
    fn a_peer_that_has_gone_is_told() {
        let (mut one, other) = pair();
        drop(other);
        assert!(one.receive().is_err());
    }
}
