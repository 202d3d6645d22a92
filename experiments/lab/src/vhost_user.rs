// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages of vhost-user, as User Mode Linux speaks it: header of three
//! words (request, flags, size), payload, descriptors beside it.

use std::io;
use std::os::fd::OwnedFd;

use crate::error::{LabError, Result};
use crate::ipc::inbox::Inbox;

/// Bytes of a header.
pub const HEADER: usize = 12;
/// Flags: version of the protocol.
pub const VERSION: u32 = 1;
/// Flag of an answer.
pub const REPLY: u32 = 1 << 2;
/// Flag: the sender waits for an answer.
pub const NEED_REPLY: u32 = 1 << 3;

/// Requests of the front end, by the names of the vhost-user specification.
#[allow(missing_docs)]
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const VRING_KICK: u32 = 35;
}

/// The back end's request to interrupt the guest.
pub const BACKEND_VRING_CALL: u32 = 4;

/// Requests that bring descriptors.
const WITH_FDS: [u32; 5] = [
    request::SET_MEM_TABLE,
    request::SET_BACKEND_REQ_FD,
    request::SET_VRING_KICK,
    request::SET_VRING_CALL,
    request::SET_VRING_ERR,
];

/// A message with its descriptors.
#[derive(Debug)]
pub struct Message {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// Descriptors beside it.
    pub fds: Vec<OwnedFd>,
}

impl Message {
    /// A message without descriptors.
    pub fn new(request: u32, flags: u32, payload: &[u8]) -> Self {
        let header = [request, flags | VERSION, payload.len() as u32];
        let header = header.iter().flat_map(|word| word.to_le_bytes());
        Self { bytes: header.chain(payload.iter().copied()).collect(), fds: Vec::new() }
    }

    /// A request about a ring: its index and one more word.
    pub fn of_ring(request: u32, flags: u32, ring: u32, word: u32) -> Self {
        Self::new(request, flags, &[ring.to_le_bytes(), word.to_le_bytes()].concat())
    }

    /// The next one that has come whole.
    pub fn next(inbox: &mut Inbox) -> Option<Self> {
        let size = u32_at(inbox.peek(), 8).ok()? as usize;
        let bytes = inbox.take(HEADER + size)?;
        let mut message = Self { bytes, fds: Vec::new() };
        if WITH_FDS.contains(&message.code()) {
            message.fds = std::mem::take(&mut inbox.fds);
        }
        Some(message)
    }

    /// Which request it is.
    pub fn code(&self) -> u32 {
        u32_at(&self.bytes, 0).unwrap_or_default()
    }

    /// Whether its sender waits for an answer.
    pub fn needs_reply(&self) -> bool {
        u32_at(&self.bytes, 4).unwrap_or_default() & NEED_REPLY != 0
    }

    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(HEADER..).unwrap_or_default()
    }

    /// A copy, its descriptors duplicated.
    pub fn try_clone(&self) -> io::Result<Self> {
        let fds = self.fds.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        Ok(Self { bytes: self.bytes.clone(), fds })
    }
}

/// A 32-bit field of a message; an error if the message is shorter.
pub fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    let part = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    part.map(u32::from_le_bytes).ok_or_else(short)
}

/// A 64-bit field of a message; an error if the message is shorter.
pub fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    let part = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    part.map(u64::from_le_bytes).ok_or_else(short)
}

fn short() -> LabError {
    LabError::Io { what: "vhost-user message".into(), source: io::ErrorKind::UnexpectedEof.into() }
}
