// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! vhost-user messages that the protocol crate does not handle.
use std::{
    io::{self, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use thiserror::Error;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U32, U64},
};

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
/// A front end writes a message at once; a rest that takes longer is none.
const PATIENCE: Duration = Duration::from_millis(200);

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
        let (request, is) = (self.request.get(), self.size.get());
        if is == size { Ok(()) } else { Err(MessageError::Size { request, size: is }) }
    }
}

/// The head of the next message, once all of the message is there; `None` if
/// there is none.  The protocol crate reads a message to its end whatever it
/// takes, so it is only called when there is an end.
pub fn peek(stream: &UnixStream) -> Result<Option<Header>, MessageError> {
    let started = Instant::now();
    loop {
        let mut bytes = [0; size_of::<Header>()];
        let got = match rustix::net::recv(
            stream.as_fd(),
            bytes.as_mut_slice(),
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        ) {
            Ok((0, _)) => return Err(MessageError::Closed),
            Ok((got, _)) => got as u64,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let mut expected = bytes.len() as u64;
        let mut there = got;
        if got == expected {
            let header = check(bytes)?;
            expected += u64::from(header.size.get());
            there = rustix::io::ioctl_fionread(stream.as_fd()).map_err(io::Error::from)?;
            if there >= expected {
                return Ok(Some(header));
            }
        }
        if started.elapsed() > PATIENCE {
            return Err(MessageError::Incomplete { got: there, expected });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
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

/// Reads a message about a queue that was peeked at: the queue, and a number.
pub fn read_vring(mut stream: &UnixStream, header: &Header) -> Result<(u32, u32), MessageError> {
    header.check_size(8)?;
    let mut bytes = [0; size_of::<Vring>()];
    stream.read_exact(&mut bytes)?;
    let message: Vring = zerocopy::transmute!(bytes);
    Ok((message.index.get(), message.num.get()))
}

/// Reads the socket for the back end's requests, after its message was peeked
/// at.
pub fn read_channel(stream: &UnixStream, header: &Header) -> Result<UnixStream, MessageError> {
    let mut bytes = vec![0; size_of::<Header>() + header.size.get() as usize];
    let mut fds = receive(stream, &mut bytes)?;
    let fd = fds.pop().filter(|_| fds.is_empty()).ok_or(MessageError::NoSocket)?;
    let domain = rustix::net::sockopt::socket_domain(&fd).map_err(io::Error::from)?;
    if domain != rustix::net::AddressFamily::UNIX {
        return Err(MessageError::NoSocket);
    }
    Ok(UnixStream::from(fd))
}

/// Reads a whole message with the file descriptors that came with it.
pub fn receive(mut stream: &UnixStream, bytes: &mut [u8]) -> Result<Vec<OwnedFd>, MessageError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got =
        rustix::net::recvmsg(stream.as_fd(), &mut [IoSliceMut::new(bytes)], &mut control, flags)
            .map_err(io::Error::from)?
            .bytes;
    if got == 0 {
        return Err(MessageError::Closed);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    stream.read_exact(&mut bytes[got..])?;
    Ok(fds)
}

/// Answers a request: done, or not.
pub fn reply(mut stream: &UnixStream, to: &Header, done: bool) -> Result<(), MessageError> {
    let header = Header::new(to.request.get(), REPLY, 8);
    let message = Number { header, value: u64::from(!done).into() };
    Ok(stream.write_all(message.as_bytes())?)
}

/// Calls the driver of a queue, and waits until that is known if `acknowledged`.
pub fn call(
    mut channel: &UnixStream,
    queue: usize,
    acknowledged: bool,
) -> Result<(), MessageError> {
    let flags = if acknowledged { NEED_REPLY } else { 0 };
    let header = Header::new(VRING_CALL, flags, 8);
    let message = Vring { header, index: (queue as u32).into(), num: 0.into() };
    channel.write_all(message.as_bytes())?;
    if acknowledged {
        let mut bytes = [0; size_of::<Number>()];
        channel.read_exact(&mut bytes)?;
        let answer: Number = zerocopy::transmute!(bytes);
        if answer.header.request.get() != VRING_CALL || answer.value.get() != 0 {
            return Err(MessageError::NotAcknowledged);
        }
    }
    Ok(())
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

    #[test]
    fn a_whole_message_is_seen_and_left() {
        let (mut front, back) = pair();
        assert!(matches!(peek(&back), Ok(None)));
        front.write_all(&bytes(VRING_KICK, VERSION | NEED_REPLY, 8)).expect("sent");
        front.write_all(&[1, 0, 0, 0, 0, 0, 0, 0]).expect("sent");
        let header = peek(&back).expect("sound").expect("there");
        assert!(header.wants_reply());
        assert_eq!(read_vring(&back, &header).expect("kick"), (1, 0));
        assert!(matches!(peek(&back), Ok(None)));
    }

    #[test]
    fn wrong_messages_are_refused() {
        let (mut front, back) = pair();
        front.write_all(&bytes(1, VERSION, 4097)).expect("sent");
        assert!(matches!(peek(&back), Err(MessageError::Oversized(4097))));
        let (mut front, back) = pair();
        front.write_all(&bytes(1, 0, 0)).expect("sent");
        assert!(matches!(peek(&back), Err(MessageError::Flags(0))));
        let (mut front, back) = pair();
        front.write_all(&bytes(1, VERSION, 8)).expect("sent");
        let stopped = peek(&back);
        assert!(matches!(stopped, Err(MessageError::Incomplete { got: 12, expected: 20 })));
        drop(front);
        let (front, back) = pair();
        drop(front);
        assert!(matches!(peek(&back), Err(MessageError::Closed)));
    }

    #[test]
    fn a_channel_needs_one_socket() {
        let (mut front, back) = pair();
        front.write_all(&bytes(SET_BACKEND_REQ_FD, VERSION, 0)).expect("sent");
        let header = peek(&back).expect("sound").expect("there");
        assert!(matches!(read_channel(&back, &header), Err(MessageError::NoSocket)));
    }
}
