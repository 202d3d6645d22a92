// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages of a front end, taken as their bytes come.
use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use ccc_core::Micros;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage};

use crate::{
    event_loop::foreign::{self, Foreign, MAX_FDS, ReceiveError, Stream},
    vhost_user::message::{Header, MessageError, SEND, VringState, unread},
};

/// Bytes of the header of a message.
const HEADER: usize = size_of::<Header>();
/// A front end writes a message at once; a rest that takes longer, microseconds,
/// is none.
const PATIENCE: Micros = 2_000_000;
/// Pieces of a message read in one turn.
const TURN_READS: usize = 8;

/// A message of a front end.
#[derive(Debug)]
pub struct Message {
    /// Its head.
    pub header: Header,
    bytes: Vec<u8>,
    fds: Vec<Foreign<OwnedFd>>,
}

impl Message {
    /// The payload of a message about a queue.
    pub fn vring(&self) -> Result<VringState, MessageError> {
        VringState::parse(&self.header, self.bytes.get(HEADER..).unwrap_or_default())
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
                let header = Header::parse(self.header())?;
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

    /// Bytes of the header, or of the message once that is known.
    fn expected(&self) -> Result<usize, MessageError> {
        if self.bytes.len() < HEADER {
            return Ok(HEADER);
        }
        Ok(Header::parse(self.header())?.message_bytes())
    }

    fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        for (to, from) in header.iter_mut().zip(&self.bytes) {
            *to = *from;
        }
        header
    }

    /// Reads up to `expected` bytes in all; `false` if there are none.
    fn read(&mut self, stream: &UnixStream, expected: usize) -> Result<bool, MessageError> {
        let before = self.bytes.len();
        self.bytes.resize(expected, 0);
        let got = foreign::receive(stream, &mut self.bytes[before..], RecvFlags::DONTWAIT);
        let (got, fds) = match got {
            Ok(got) => got,
            Err(ReceiveError::Socket(error)) if waits(&error) => (0, Vec::new()),
            Err(error) => return Err(error.into()),
        };
        self.bytes.truncate(before + got);
        self.fds.extend(fds);
        if self.fds.len() > MAX_FDS {
            return Err(ReceiveError::Descriptors.into());
        }
        Ok(got > 0)
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::vhost_user::message::{SET_BACKEND_REQ_FD, VRING_KICK};

    const VERSION: u32 = 1;
    const NEED_REPLY: u32 = 1 << 3;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("sockets")
    }

    fn bytes(request: u32, flags: u32, size: u32) -> Vec<u8> {
        [request, flags, size].iter().flat_map(|word| word.to_le_bytes()).collect()
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
        let vring = message.vring().expect("kick");
        assert_eq!((vring.index.get(), vring.num.get()), (1, 0));
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
        assert!(matches!(taken(&[]).0, Err(MessageError::Receive(ReceiveError::Closed))));
        let (whole, end) = taken(&bytes(1, VERSION, 0));
        assert!(whole.is_ok_and(|message| message.is_some()));
        assert!(matches!(end, Err(MessageError::Receive(ReceiveError::Closed))));
    }

    #[test]
    fn a_channel_needs_one_socket() {
        let (mut front, back) = pair();
        front.write_all(&bytes(SET_BACKEND_REQ_FD, VERSION, 0)).expect("sent");
        let message = take(&mut Inbox::default(), &back).expect("sound").expect("there");
        assert!(matches!(message.channel(), Err(MessageError::NoSocket)));
    }
}
