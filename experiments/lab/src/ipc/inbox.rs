// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages with file descriptors over Unix stream sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Most descriptors of one message.
pub const MAX_FDS: usize = 8;

/// Sends all of `bytes`, with `fds` beside the first.
pub fn send(stream: &UnixStream, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &rights[..0] } else { &rights[..] };
    let sent = sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives what is there, at most `buf`; 0 is the end.
pub fn receive(stream: &UnixStream, buf: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = nix::cmsg_space!([RawFd; MAX_FDS]);
    let mut parts = [IoSliceMut::new(buf)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(rights) = control {
            // SAFETY: the kernel just made these descriptors for us alone.
            fds.extend(rights.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(message.bytes)
}

/// An incoming byte stream cut into messages of known length.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Descriptors received and not yet taken.
    pub fds: Vec<OwnedFd>,
}

impl Inbox {
    /// Reads once from a readable stream; false at its end.
    pub fn fill(&mut self, stream: &UnixStream) -> io::Result<bool> {
        let mut buf = [0; 4096];
        let count = match receive(stream, &mut buf, &mut self.fds) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => 0,
            other => other?,
        };
        self.bytes.extend_from_slice(&buf[..count]);
        Ok(count > 0)
    }

    /// What has been received and not yet taken.
    pub fn peek(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the first `len` bytes once they are there.
    pub fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        if self.bytes.len() < len {
            return None;
        }
        let rest = self.bytes.split_off(len);
        Some(std::mem::replace(&mut self.bytes, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn descriptors_travel_with_the_bytes() {
        let (a, b) = UnixStream::pair().expect("pair");
        let file = File::open("/dev/null").expect("null");
        send(&a, b"hello", &[file.as_raw_fd()]).expect("sent");
        let mut inbox = Inbox::default();
        assert!(inbox.fill(&b).expect("read"));
        assert_eq!(inbox.fds.len(), 1);
        assert_eq!(inbox.take(6), None);
        assert_eq!(inbox.take(2).as_deref(), Some(&b"he"[..]));
        assert_eq!(inbox.peek(), b"llo");
        drop(a);
        assert!(!inbox.fill(&b).expect("end"));
    }
}
