// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests to the kernel by netlink (rtnetlink(7)): as much of it as a tap needs.
//!
//! Few kinds of message are all.  The crates for netlink bring an asynchronous runtime or
//! know no queueing disciplines, and `tc` as a program would be a process for each change.
use std::{io, os::fd::OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Kinds of messages.
pub mod kind {
    pub const NEW_LINK: u16 = 16;
    pub const DELETE_LINK: u16 = 17;
    pub const GET_LINK: u16 = 18;
    pub const NEW_QDISC: u16 = 36;
    pub const DELETE_QDISC: u16 = 37;
    pub const GET_QDISC: u16 = 38;
    pub const NEW_CLASS: u16 = 40;
    pub const DELETE_CLASS: u16 = 41;
    pub const GET_CLASS: u16 = 42;
    pub const NEW_FILTER: u16 = 44;
    pub const DELETE_FILTER: u16 = 45;
    pub const GET_FILTER: u16 = 46;
    pub const GET_STATS: u16 = 94;
    pub(super) const ERROR: u16 = 2;
    pub(super) const DONE: u16 = 3;
}

/// Flags of messages.
pub mod flag {
    pub const CREATE: u16 = 0x400;
    pub const EXCLUSIVE: u16 = 0x200;
    pub const REPLACE: u16 = 0x100;
    pub const DUMP: u16 = 0x300;
    pub(super) const REQUEST: u16 = 1;
    pub(super) const ACK: u16 = 4;
    pub(super) const INTERRUPTED: u16 = 0x10;
}

/// Bytes of a message's header.
const HEADER: usize = 16;
/// A list that changes while it is told is asked for so often.
const ATTEMPTS: u32 = 8;
/// Bytes taken at once.
const BUFFER: usize = 1 << 16;

/// A message, or a part of one, that is being written.
#[derive(Clone, Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Fixed bytes.
    pub fn put(mut self, bytes: &[u8]) -> Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A number of four bytes.
    pub fn u32(self, number: u32) -> Writer {
        self.put(&number.to_ne_bytes())
    }

    /// An attribute.
    pub fn attribute(self, kind: u16, value: &[u8]) -> Writer {
        let length = (value.len() + 4) as u16;
        let padding = value.len().next_multiple_of(4) - value.len();
        self.put(&length.to_ne_bytes()).put(&kind.to_ne_bytes()).put(value).put(&[0; 3][..padding])
    }

    /// An attribute of attributes.
    pub fn nest(self, kind: u16, inner: Writer) -> Writer {
        self.attribute(kind, &inner.0)
    }

    /// An attribute that is a word, with its last zero.
    pub fn word(self, kind: u16, word: &str) -> Writer {
        self.attribute(kind, &[word.as_bytes(), &[0]].concat())
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn message(&self, kind: u16, flags: u16, sequence: u32) -> Vec<u8> {
        let length = (HEADER + self.0.len()) as u32;
        let flags = flags | flag::REQUEST | flag::ACK;
        let header = Writer::default().u32(length).put(&kind.to_ne_bytes());
        header.put(&flags.to_ne_bytes()).u32(sequence).u32(0).put(&self.0).0
    }
}

/// The attributes of a message behind its fixed part.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, kind) = (u16_at(rest, 0)?, u16_at(rest, 2)?);
        let value = rest.get(4..length.into())?;
        rest = rest.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
        // The highest bits say how it is encoded.
        Some((kind & 0x3fff, value))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A number of four bytes at a place.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A connection to the kernel.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// One for routes (`NETLINK_ROUTE`, 0), in this process's network namespace.
    pub fn open() -> io::Result<Socket> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let fd = socket_with(family, SocketType::RAW, flags, None)?;
        Ok(Socket { fd, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Sends a request and waits for all of its answer: the bodies of its messages.
    pub fn ask(&mut self, kind: u16, flags: u16, request: &Writer) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..ATTEMPTS {
            self.sequence = self.sequence.wrapping_add(1);
            send(&self.fd, &request.message(kind, flags, self.sequence), SendFlags::empty())?;
            let answer = self.answer()?;
            if !answer.is_interrupted {
                return Ok(answer.bodies);
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// All of the answer to the latest request.
    fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = Answer { sequence: self.sequence, ..Answer::default() };
        loop {
            let (_, length) = recv(&self.fd, &mut self.buffer[..], RecvFlags::empty())?;
            if answer.take(&self.buffer[..length.min(BUFFER)])? {
                return Ok(answer);
            }
        }
    }
}

/// An answer as far as it has come.
#[derive(Debug, Default)]
struct Answer {
    /// Number of the request.
    sequence: u32,
    bodies: Vec<Vec<u8>>,
    /// What it lists has changed meanwhile, so something may be missing.
    is_interrupted: bool,
}

impl Answer {
    /// Takes messages; whether that is all.
    fn take(&mut self, messages: &[u8]) -> io::Result<bool> {
        let mut rest = messages;
        while let Some(length) = u32_at(rest, 0).map(|length| length as usize) {
            let (kind, flags) = (u16_at(rest, 4), u16_at(rest, 6).unwrap_or_default());
            let Some(body) = rest.get(HEADER..length) else { break };
            // Others are of a request before.
            if u32_at(rest, 8) == Some(self.sequence) {
                self.is_interrupted |= flags & flag::INTERRUPTED != 0;
                match kind.unwrap_or_default() {
                    // A list that could not be told to its end says so here.
                    kind::DONE | kind::ERROR => return outcome(body).map(|()| true),
                    _ => self.bodies.push(body.to_vec()),
                }
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(false)
    }
}

/// What an error message says; 0 is that all is well.
fn outcome(body: &[u8]) -> io::Result<()> {
    match u32_at(body, 0).map(|error| error as i32) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let inner = Writer::default().word(1, "ifb").u32(7);
        let message = Writer::default().attribute(3, &[1, 2, 3, 4, 5]).nest(18, inner);
        let read: Vec<_> = attributes(&message.0).collect();
        assert_eq!(read[0], (3, &[1, 2, 3, 4, 5][..]));
        assert_eq!((read[1].0, read.len()), (18, 2));
        assert_eq!(attributes(read[1].1).next(), Some((1, &b"ifb\0"[..])));
        assert_eq!(attributes(&[9, 0, 1, 0, 0]).count(), 0, "longer than what is there");
    }

    fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let header = Writer::default().u32((HEADER + body.len()) as u32);
        let header = header.put(&kind.to_ne_bytes()).put(&flags.to_ne_bytes());
        header.u32(sequence).u32(0).put(body).into_bytes()
    }

    #[test]
    fn a_list_that_ends_with_an_error_is_none() {
        let link = message(kind::NEW_LINK, 0, 2, &[7; 4]);
        let end = message(kind::DONE, 0, 2, &(-libc::ENOMEM).to_ne_bytes());
        let mut answer = Answer { sequence: 2, ..Answer::default() };
        let error = answer.take(&[link, end].concat()).expect_err("not all of it");
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn a_list_that_has_changed_meanwhile_is_asked_for_again() {
        let (own, kernel) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        let mut socket = Socket { fd: own.into(), sequence: 0, buffer: vec![0; BUFFER] };
        for (flags, sequence, body) in [(flag::INTERRUPTED, 1, [7; 4]), (0, 2, [8; 4])] {
            let link = message(kind::NEW_LINK, flags, sequence, &body);
            let done = message(kind::DONE, 0, sequence, &[0; 4]);
            kernel.send(&[link, done].concat()).expect("sent");
        }
        let links = socket.ask(kind::GET_LINK, flag::DUMP, &Writer::default()).expect("a list");
        assert_eq!(links, [vec![8; 4]]);
    }

    #[test]
    fn a_list_that_has_changed_meanwhile_is_known_for_one() {
        let link = |flags, sequence| message(kind::NEW_LINK, flags, sequence, &[7; 4]);
        let mut answer = Answer { sequence: 2, ..Answer::default() };
        let first = [link(flag::INTERRUPTED, 1), link(0, 2)].concat();
        assert!(!answer.take(&first).expect("no error"));
        assert_eq!((answer.bodies.len(), answer.is_interrupted), (1, false), "of its own");
        let rest = [link(flag::INTERRUPTED, 2), message(kind::DONE, 0, 2, &[0; 4])].concat();
        assert!(answer.take(&rest).expect("no error"));
        assert_eq!((answer.bodies.len(), answer.is_interrupted), (2, true));
    }

    #[test]
    fn the_kernel_says_what_is_wrong() {
        let mut socket = Socket::open().expect("a socket");
        let nobody = Writer::default().put(&[0; 16]).word(3, "no-such-tap");
        let error = socket.ask(kind::GET_LINK, 0, &nobody).expect_err("not there");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        let own = Writer::default().put(&[0; 16]).word(3, "lo");
        assert_eq!(socket.ask(kind::GET_LINK, 0, &own).expect("there").len(), 1);
    }
}
