// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! vhost-user messages that the protocol crate does not handle.
use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use ccc_core::Micros;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use thiserror::Error;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U32, U64},
};

use crate::vhost_user::foreign::{Foreign, Stream};

/// Front end: begin or end a queue.
pub const SET_VRING_ENABLE: u32 = 18;
/// Front end: socket for requests of the back end.
pub const SET_BACKEND_REQ_FD: u32 = 21;
/// Front end: a queue has something in it.
pub const VRING_KICK: u32 = 35;
/// Back end: a queue has something used.
const VRING_CALL: u32 = 4;
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// Longest message a front end may send.
const SIZE_MAX: u32 = 4096;
/// Descriptors a message may have; the protocol crate takes no more.
const MAX_FDS: usize = 32;
/// A front end writes a message at once; a rest that takes longer, microseconds,
/// is none.
const PATIENCE: Micros = 2_000_000;
/// Pieces of a message read in one turn.
const TURN_READS: usize = 8;
/// Nobody waits for a front end.
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Head of every message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// What is asked for.
    pub request: U32,
    flags: U32,
    size: U32,
}

/// A message about a queue.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Vring {
    header: Header,
    state: State,
}

/// A queue, and a number about it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct State {
    index: U32,
    num: U32,
}

/// An answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Number {
    header: Header,
    value: U64,
}

/// Why a front end is no longer listened to.
#[derive(Debug, Error)]
pub enum MessageError {
    /// It has closed the connection.
    #[error("closed by the front end")]
    Closed,
    /// The socket failed.
    #[error("socket failed")]
    Socket(#[from] io::Error),
    /// A message without an end.
    #[error("message of {expected} bytes stopped after {got}")]
    Incomplete {
        /// Bytes there are.
        got: u64,
        /// Bytes announced.
        expected: u64,
    },
    /// A message longer than any.
    #[error("message of {0} bytes")]
    Oversized(u32),
    /// A version nobody speaks, or an answer to nothing.
    #[error("message with flags {0:#x}")]
    Flags(u32),
    /// A request with another size than it has.
    #[error("request {request} with {size} bytes")]
    Size {
        /// The request.
        request: u32,
        /// Its bytes.
        size: u32,
    },
    /// Descriptors got lost on the way.
    #[error(
        "descriptors of a message are missing: it has more than {MAX_FDS}, or the daemon has no \
         room for them"
    )]
    Descriptors,
    /// Its socket is full of answers.
    #[error("front end does not read its answers")]
    Unread,
    /// The socket for calls is full.
    #[error("the channel for calls is full; it is given up")]
    ChannelFull,
    /// A channel without its socket.
    #[error("request channel without a socket")]
    NoSocket,
    /// The other side answers something else.
    #[error("call was not acknowledged")]
    NotAcknowledged,
}

impl Header {
    fn new(request: u32, flags: u32, size: u32) -> Header {
        Header { request: request.into(), flags: (VERSION | flags).into(), size: size.into() }
    }

    /// The front end waits for an answer.
    pub fn wants_reply(&self) -> bool {
        self.flags.get() & NEED_REPLY != 0
    }

    fn check_size(&self, size: u32) -> Result<(), MessageError> {
        if self.size.get() == size { Ok(()) } else { Err(self.wrong_size()) }
    }

    fn wrong_size(&self) -> MessageError {
        MessageError::Size { request: self.request.get(), size: self.size.get() }
    }
}

/// A message of a front end.
#[derive(Debug)]
pub struct Message {
    /// Its head.
    pub header: Header,
    bytes: Vec<u8>,
    fds: Vec<Foreign<OwnedFd>>,
}

impl Message {
    /// What follows the head.
    fn body(&self) -> &[u8] {
        self.bytes.get(size_of::<Header>()..).unwrap_or_default()
    }

    /// A message about a queue: the queue, and a number.
    pub fn vring(&self) -> Result<(u32, u32), MessageError> {
        self.header.check_size(8)?;
        let body = State::read_from_bytes(self.body());
        let body = body.map_err(|_| self.header.wrong_size())?;
        Ok((body.index.get(), body.num.get()))
    }

    /// The socket for requests of the back end.
    pub fn channel(mut self) -> Result<Stream, MessageError> {
        let fd = self.fds.pop().filter(|_| self.fds.is_empty()).ok_or(MessageError::NoSocket)?;
        let domain = rustix::net::sockopt::socket_domain(&fd).map_err(io::Error::from)?;
        if domain != rustix::net::AddressFamily::UNIX {
            return Err(MessageError::NoSocket);
        }
        Ok(fd.map(UnixStream::from))
    }

    /// Sends it on as it came.
    pub fn pass_on(&self, stream: &UnixStream) -> Result<(), MessageError> {
        let fds: Vec<BorrowedFd<'_>> = self.fds.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let bytes = [IoSlice::new(&self.bytes)];
        let sent = rustix::net::sendmsg(stream, &bytes, &mut control, SEND).map_err(unread)?;
        if sent == self.bytes.len() { Ok(()) } else { Err(MessageError::Unread) }
    }
}

/// What has come of the next message of a front end.  A message that has begun
/// is kept here until its rest comes, so nobody waits for that.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    fds: Vec<Foreign<OwnedFd>>,
    /// When the message has to be whole.
    deadline: Option<Micros>,
}

impl Inbox {
    /// The next message, if all of it has come.
    pub fn take(
        &mut self,
        stream: &UnixStream,
        now: Micros,
    ) -> Result<Option<Message>, MessageError> {
        for _ in 0..TURN_READS {
            let expected = self.expected()?;
            if self.bytes.len() < expected && !self.read(stream, expected)? {
                break;
            }
            if self.bytes.len() == self.expected()? {
                let header = check(self.head())?;
                let (bytes, fds) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.fds));
                self.deadline = None;
                return Ok(Some(Message { header, bytes, fds }));
            }
        }
        if !self.bytes.is_empty() && self.deadline.is_none() {
            self.deadline = Some(now + PATIENCE);
        }
        Ok(None)
    }

    /// When the message that has begun has to be whole.
    pub fn deadline(&self) -> Option<Micros> {
        self.deadline
    }

    /// What there is of the message that has begun, and what there should be.
    pub fn incomplete(&self) -> MessageError {
        let expected = self.expected().unwrap_or(self.bytes.len());
        MessageError::Incomplete { got: self.bytes.len() as u64, expected: expected as u64 }
    }

    /// Bytes of the head, or of the message once that is known.
    fn expected(&self) -> Result<usize, MessageError> {
        if self.bytes.len() < size_of::<Header>() {
            return Ok(size_of::<Header>());
        }
        Ok(size_of::<Header>() + check(self.head())?.size.get() as usize)
    }

    fn head(&self) -> [u8; size_of::<Header>()] {
        let mut head = [0; size_of::<Header>()];
        for (to, from) in head.iter_mut().zip(&self.bytes) {
            *to = *from;
        }
        head
    }

    /// Reads up to `expected` bytes in all; `false` if there are none.
    fn read(&mut self, stream: &UnixStream, expected: usize) -> Result<bool, MessageError> {
        let before = self.bytes.len();
        self.bytes.resize(expected, 0);
        let got = receive(stream, &mut self.bytes[before..], RecvFlags::DONTWAIT);
        let (got, fds) = match got {
            Ok(got) => got,
            Err(MessageError::Socket(error)) if waits(&error) => (0, Vec::new()),
            Err(error) => return Err(error),
        };
        self.bytes.truncate(before + got);
        self.fds.extend(fds);
        if self.fds.len() > MAX_FDS {
            return Err(MessageError::Descriptors);
        }
        Ok(got > 0)
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn check(bytes: [u8; 12]) -> Result<Header, MessageError> {
    let header: Header = zerocopy::transmute!(bytes);
    let flags = header.flags.get();
    if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
        return Err(MessageError::Flags(flags));
    }
    if header.size.get() > SIZE_MAX {
        return Err(MessageError::Oversized(header.size.get()));
    }
    Ok(header)
}

/// Reads what there is with the file descriptors that came with it, and how much
/// that is.
pub fn receive(
    stream: &UnixStream,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<Foreign<OwnedFd>>), MessageError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got =
        rustix::net::recvmsg(stream.as_fd(), &mut [IoSliceMut::new(bytes)], &mut control, flags)
            .map_err(io::Error::from)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received.map(Foreign::new));
        }
    }
    if got.bytes == 0 {
        return Err(MessageError::Closed);
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(MessageError::Descriptors);
    }
    Ok((got.bytes, fds))
}

/// Sends an answer, which a front end that waits for it has room for.
pub fn answer(stream: &UnixStream, bytes: &[u8]) -> Result<(), MessageError> {
    let sent = rustix::net::send(stream, bytes, SEND).map_err(unread)?;
    if sent == bytes.len() { Ok(()) } else { Err(MessageError::Unread) }
}

fn unread(error: rustix::io::Errno) -> MessageError {
    match error {
        rustix::io::Errno::AGAIN => MessageError::Unread,
        error => MessageError::Socket(error.into()),
    }
}

/// Answers a message whether it was done.
pub fn reply(stream: &UnixStream, to: &Header, done: bool) -> Result<(), MessageError> {
    let header = Header::new(to.request.get(), REPLY, 8);
    let message = Number { header, value: u64::from(!done).into() };
    answer(stream, message.as_bytes())
}

/// Calls the driver of a queue.
pub fn call(channel: &UnixStream, queue: usize) -> Result<(), MessageError> {
    match answer(channel, called(queue, 0).as_bytes()) {
        Err(MessageError::Unread) => Err(MessageError::ChannelFull),
        sent => sent,
    }
}

/// Calls the driver of a queue, and waits until that is known.  For virtual time
/// only, where a call has to arrive before time goes on.
pub fn call_and_wait(mut channel: &UnixStream, queue: usize) -> Result<(), MessageError> {
    channel.write_all(called(queue, NEED_REPLY).as_bytes())?;
    let mut bytes = [0; size_of::<Number>()];
    channel.read_exact(&mut bytes)?;
    let answer: Number = zerocopy::transmute!(bytes);
    if answer.header.request.get() != VRING_CALL || answer.value.get() != 0 {
        return Err(MessageError::NotAcknowledged);
    }
    Ok(())
}

fn called(queue: usize, flags: u32) -> Vring {
    let state = State { index: (queue as u32).into(), num: 0.into() };
    Vring { header: Header::new(VRING_CALL, flags, 8), state }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("sockets")
    }

    fn bytes(request: u32, flags: u32, size: u32) -> [u8; 12] {
        zerocopy::transmute!(Header {
            request: request.into(),
            flags: flags.into(),
            size: size.into()
        })
    }

    fn take(inbox: &mut Inbox, stream: &UnixStream) -> Result<Option<Message>, MessageError> {
        inbox.take(stream, 5)
    }

    #[test]
    fn t1_a_message_is_taken_when_its_rest_has_come() {
        let (mut front, back) = pair();
        let mut inbox = Inbox::default();
        assert!(take(&mut inbox, &back).expect("nothing").is_none());
        assert_eq!(inbox.deadline(), None);
        let head = bytes(VRING_KICK, VERSION | NEED_REPLY, 8);
        let whole = [&head[..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
        for byte in &whole[..19] {
            front.write_all(&[*byte]).expect("sent");
            assert!(take(&mut inbox, &back).expect("a part").is_none());
        }
        assert_eq!(inbox.deadline(), Some(5 + PATIENCE));
        let stopped = inbox.incomplete();
        assert!(matches!(stopped, MessageError::Incomplete { got: 19, expected: 20 }));
        // The next message stays where it is.
        front.write_all(&[&whole[19..], &head[..3]].concat()).expect("sent");
        let message = take(&mut inbox, &back).expect("sound").expect("there");
        assert!(message.header.wants_reply());
        assert_eq!(message.vring().expect("kick"), (1, 0));
        assert_eq!(inbox.deadline(), None);
        assert!(take(&mut inbox, &back).expect("a part").is_none());
        assert!(matches!(inbox.incomplete(), MessageError::Incomplete { got: 3, expected: 12 }));
    }

    #[test]
    fn wrong_messages_are_refused() {
        let taken = |words: &[u8]| {
            let (mut front, back) = pair();
            front.write_all(words).expect("sent");
            drop(front);
            let mut inbox = Inbox::default();
            (take(&mut inbox, &back), take(&mut inbox, &back))
        };
        let (oversized, _) = taken(&bytes(1, VERSION, 4097));
        assert!(matches!(oversized, Err(MessageError::Oversized(4097))));
        assert!(matches!(taken(&bytes(1, 0, 0)).0, Err(MessageError::Flags(0))));
        assert!(matches!(taken(&[]).0, Err(MessageError::Closed)));
        let (whole, end) = taken(&bytes(1, VERSION, 0));
        assert!(whole.is_ok_and(|message| message.is_some()));
        assert!(matches!(end, Err(MessageError::Closed)));
    }

    #[test]
    fn a_channel_needs_one_socket() {
        let (mut front, back) = pair();
        front.write_all(&bytes(SET_BACKEND_REQ_FD, VERSION, 0)).expect("sent");
        let message = take(&mut Inbox::default(), &back).expect("sound").expect("there");
        assert!(matches!(message.channel(), Err(MessageError::NoSocket)));
    }

    #[test]
    fn t1_an_answer_nobody_reads_is_not_waited_for() {
        let (_front, back) = pair();
        let mut sent = Ok(());
        while sent.is_ok() {
            sent = answer(&back, &[0; 4096]);
        }
        assert!(matches!(sent, Err(MessageError::Unread)), "{sent:?}");
    }
}
