// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! vhost-user messages that the protocol crate does not handle, by the numbers of
//! QEMU's `docs/interop/vhost-user.rst`.
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
};

use rustix::net::SendFlags;
use thiserror::Error;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U32, U64},
};

use crate::event_loop::foreign::ReceiveError;

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
/// Nobody waits for a front end.
pub(super) const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Head of every message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// What is asked for.
    pub request: U32,
    flags: U32,
    size: U32,
}

/// A queue, and a number about it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VringState {
    /// The queue.
    pub index: U32,
    /// What the request says of it.
    pub num: U32,
}

/// A call of the driver.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Call {
    header: Header,
    state: VringState,
}

/// An answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Reply {
    header: Header,
    value: U64,
}

/// Why a front end is no longer listened to.
#[derive(Debug, Error)]
pub enum MessageError {
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("socket failed")]
    Socket(#[from] io::Error),
    #[error("message of {expected} bytes stopped after {got}")]
    Incomplete { got: u64, expected: u64 },
    #[error("message of {0} bytes; it may have {SIZE_MAX}")]
    Oversized(u32),
    #[error("message with flags {0:#x}; expected version {VERSION}, and no reply")]
    Flags(u32),
    #[error("request {request} with {got} bytes; it has {expected}")]
    Size { request: u32, got: u32, expected: u32 },
    #[error("front end does not read its answers")]
    Unread,
    #[error("the channel for calls is full; it is given up")]
    ChannelFull,
    #[error("request channel without a Unix socket; one is needed")]
    NoSocket,
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

    /// The header in these bytes, if it is one a front end may send.
    pub(super) fn parse(bytes: [u8; size_of::<Header>()]) -> Result<Header, MessageError> {
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

    /// Bytes of the message, this header included.
    pub(super) fn message_bytes(&self) -> usize {
        size_of::<Header>() + self.size.get() as usize
    }
}

impl VringState {
    /// The payload of a message about a queue.
    pub(super) fn parse(header: &Header, payload: &[u8]) -> Result<VringState, MessageError> {
        VringState::read_from_bytes(payload).map_err(|_| MessageError::Size {
            request: header.request.get(),
            got: header.size.get(),
            expected: size_of::<VringState>() as u32,
        })
    }
}

/// Sends an answer, which a front end that waits for it has room for.
pub fn answer(stream: &UnixStream, bytes: &[u8]) -> Result<(), MessageError> {
    let sent = rustix::net::send(stream, bytes, SEND).map_err(unread)?;
    if sent == bytes.len() { Ok(()) } else { Err(MessageError::Unread) }
}

pub(super) fn unread(error: rustix::io::Errno) -> MessageError {
    match error {
        rustix::io::Errno::AGAIN => MessageError::Unread,
        error => MessageError::Socket(error.into()),
    }
}

/// Answers a message whether it was done.
pub fn reply(stream: &UnixStream, to: &Header, done: bool) -> Result<(), MessageError> {
    let header = Header::new(to.request.get(), REPLY, 8);
    let message = Reply { header, value: u64::from(!done).into() };
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
    let mut bytes = [0; size_of::<Reply>()];
    channel.read_exact(&mut bytes)?;
    let answer: Reply = zerocopy::transmute!(bytes);
    if answer.header.request.get() != VRING_CALL || answer.value.get() != 0 {
        return Err(MessageError::NotAcknowledged);
    }
    Ok(())
}

fn called(queue: usize, flags: u32) -> Call {
    let state = VringState { index: (queue as u32).into(), num: 0.into() };
    Call { header: Header::new(VRING_CALL, flags, 8), state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_an_answer_nobody_reads_is_not_waited_for() {
        let (_front, back) = UnixStream::pair().expect("sockets");
        let mut sent = Ok(());
        while sent.is_ok() {
            sent = answer(&back, &[0; 4096]);
        }
        assert!(matches!(sent, Err(MessageError::Unread)), "{sent:?}");
    }
}
