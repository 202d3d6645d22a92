// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The vhost-user back end of one NIC, as User Mode Linux speaks it.
//!
//! Notifications are in-band: the guest stands still in a kick until the
//! reply, so whatever a kick causes happens at the simulated time of the kick.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use super::rings::{Region, RingError, Rings};
use crate::error::{Context, LabError, Result};
use crate::ipc::inbox::{self, Inbox};
use crate::ipc::poller::{Origin, Polled, Poller, Stream};
use crate::vhost_user::request::{
    GET_CONFIG, GET_FEATURES, GET_PROTOCOL_FEATURES, SET_BACKEND_REQ_FD, SET_FEATURES,
    SET_MEM_TABLE, SET_OWNER, SET_PROTOCOL_FEATURES, SET_VRING_ADDR, SET_VRING_BASE,
    SET_VRING_ENABLE, SET_VRING_NUM, VRING_KICK,
};
use crate::vhost_user::{BACKEND_VRING_CALL, Message, NEED_REPLY, REPLY, u32_at, u64_at};

const F_MAC: u64 = 1 << 5;
const F_PROTOCOL_FEATURES: u64 = 1 << 30;
const F_VERSION_1: u64 = 1 << 32;
const FEATURES: u64 = F_MAC | F_PROTOCOL_FEATURES | F_VERSION_1;

const PROTOCOL_REPLY_ACK: u64 = 1 << 3;
const PROTOCOL_BACKEND_REQ: u64 = 1 << 5;
const PROTOCOL_CONFIG: u64 = 1 << 9;
const PROTOCOL_INBAND: u64 = 1 << 14;
const PROTOCOL_FEATURES: u64 =
    PROTOCOL_REPLY_ACK | PROTOCOL_BACKEND_REQ | PROTOCOL_CONFIG | PROTOCOL_INBAND;

/// Config request header: offset, size, flags.
const CONFIG_HEADER: usize = 12;

/// Where a NIC is.
pub struct Socket {
    /// Guest it belongs to.
    pub guest: String,
    /// Its address.
    pub mac: [u8; 6],
    /// Where the guest connects.
    pub path: PathBuf,
}

/// The back end of one NIC.
pub struct Nic {
    /// Guest it belongs to.
    pub guest: String,
    /// Its rings.
    pub rings: Rings,
    /// Its address.
    pub mac: [u8; 6],
    /// Its place among the NICs.
    index: usize,
    poller: Poller,
    listener: Polled<UnixListener>,
    conn: Option<Polled<UnixStream>>,
    inbox: Inbox,
    backend: Option<Polled<UnixStream>>,
    backend_inbox: Inbox,
}

/// What a readable descriptor brought.
#[derive(Debug, Default)]
pub struct Received {
    /// Rings that were kicked; each kick is to be answered.
    pub kicks: Vec<Kick>,
    /// Interrupts the guest has taken.
    pub calls_done: usize,
    /// The guest has closed its end.
    pub closed: bool,
}

/// A kick the guest waits in.
#[derive(Debug)]
pub struct Kick {
    /// Index of the ring.
    pub ring: usize,
    need_reply: bool,
}

impl Nic {
    /// Listens for the guest of the NIC that is the poller's `index`-th.
    pub fn new(socket: Socket, index: usize, poller: &Poller) -> Result<Self> {
        let Socket { guest, mac, path } = socket;
        let listener = UnixListener::bind(&path).on("listening on", &path)?;
        let origin = Origin::Nic(index, Stream::Listener);
        let listener = poller.add(listener, origin).on("watching", &path)?;
        let rings = Rings::new().map_err(|e| LabError::protocol(&guest, e.to_string()))?;
        Ok(Self {
            guest,
            rings,
            mac,
            index,
            poller: poller.clone(),
            listener,
            conn: None,
            inbox: Inbox::default(),
            backend: None,
            backend_inbox: Inbox::default(),
        })
    }

    /// Handles a readable descriptor.
    pub fn readable(&mut self, stream: Stream) -> Result<Received> {
        let mut received = Received::default();
        match stream {
            Stream::Listener => self.accept()?,
            Stream::Guest => self.read_requests(&mut received)?,
            _ => self.read_replies(&mut received)?,
        }
        Ok(received)
    }

    fn accept(&mut self) -> Result<()> {
        let (conn, _) = self.listener.accept().context(|| "accepting a NIC".into())?;
        if self.conn.is_some() {
            return Err(self.broken("connected twice"));
        }
        self.conn = Some(self.polled(conn, Stream::Guest)?);
        Ok(())
    }

    fn polled(&self, io: UnixStream, stream: Stream) -> Result<Polled<UnixStream>> {
        let polled = self.poller.add(io, Origin::Nic(self.index, stream));
        polled.context(|| format!("watching {}", self.guest))
    }

    /// Lets the guest go on after a kick.
    pub fn answer(&mut self, kick: &Kick) -> Result<()> {
        if kick.need_reply { self.reply(VRING_KICK, &0u64.to_le_bytes()) } else { Ok(()) }
    }

    /// Interrupts the guest for ring `ring`; it answers once it has noted it.
    pub fn call(&mut self, ring: usize) -> Result<()> {
        let Some(backend) = &self.backend else {
            return Err(self.broken("no channel for interrupts"));
        };
        let call = Message::of_ring(BACKEND_VRING_CALL, NEED_REPLY, ring as u32, 0);
        inbox::send(backend, &call.bytes, &[]).context(|| format!("interrupting {}", self.guest))
    }

    fn read_requests(&mut self, received: &mut Received) -> Result<()> {
        let Some(conn) = &self.conn else {
            return Ok(());
        };
        if !self.inbox.fill(conn).context(|| format!("reading from {}", self.guest))? {
            received.closed = true;
            return self.close();
        }
        while let Some(request) = Message::next(&mut self.inbox) {
            self.handle(request, received)?;
        }
        Ok(())
    }

    fn read_replies(&mut self, received: &mut Received) -> Result<()> {
        let Some(backend) = &self.backend else {
            return Ok(());
        };
        if !self.backend_inbox.fill(backend).context(|| format!("reading from {}", self.guest))? {
            received.closed = true;
            return self.close();
        }
        while let Some(reply) = Message::next(&mut self.backend_inbox) {
            if reply.payload().iter().any(|&b| b != 0) {
                return Err(self.broken("refused an interrupt"));
            }
            received.calls_done += 1;
        }
        Ok(())
    }

    /// Forgets a guest that is gone.
    pub fn close(&mut self) -> Result<()> {
        self.conn = None;
        (self.inbox, self.backend_inbox) = (Inbox::default(), Inbox::default());
        self.backend = None;
        self.rings = Rings::new().map_err(|e| self.ring_error(&e))?;
        Ok(())
    }

    fn handle(&mut self, mut request: Message, received: &mut Received) -> Result<()> {
        match request.code() {
            GET_FEATURES => return self.reply(GET_FEATURES, &FEATURES.to_le_bytes()),
            GET_PROTOCOL_FEATURES => {
                return self.reply(GET_PROTOCOL_FEATURES, &PROTOCOL_FEATURES.to_le_bytes());
            }
            GET_CONFIG => return self.config(request.payload()),
            VRING_KICK => {
                let ring = self.ring(request.payload())?;
                received.kicks.push(Kick { ring, need_reply: request.needs_reply() });
                return Ok(());
            }
            SET_BACKEND_REQ_FD => self.set_backend_channel(&mut request)?,
            _ => self.set_up(&mut request)?,
        }
        if request.needs_reply() { self.reply(request.code(), &0u64.to_le_bytes()) } else { Ok(()) }
    }

    fn set_up(&mut self, request: &mut Message) -> Result<()> {
        let fds = std::mem::take(&mut request.fds);
        let payload = request.payload();
        match request.code() {
            SET_OWNER | SET_FEATURES | SET_PROTOCOL_FEATURES => (),
            SET_MEM_TABLE => self.memory(payload, fds)?,
            SET_VRING_NUM => self.rings.set_size(self.ring(payload)?, u32_at(payload, 4)? as u16),
            SET_VRING_BASE => self.rings.set_base(self.ring(payload)?, u32_at(payload, 4)? as u16),
            SET_VRING_ADDR => {
                let [desc, used, avail] = [8, 16, 24].map(|at| u64_at(payload, at));
                self.rings.set_addresses(self.ring(payload)?, desc?, used?, avail?);
            }
            SET_VRING_ENABLE => {
                let (ring, on) = (self.ring(payload)?, u32_at(payload, 4)? != 0);
                self.rings.enable(ring, on).map_err(|e| self.ring_error(&e))?;
            }
            other => return Err(self.broken(&format!("request {other} is not known"))),
        }
        Ok(())
    }

    fn set_backend_channel(&mut self, request: &mut Message) -> Result<()> {
        let fd = request.fds.pop().ok_or_else(|| self.broken("no descriptor for interrupts"))?;
        self.backend = Some(self.polled(fd.into(), Stream::GuestBack)?);
        Ok(())
    }

    fn ring(&self, payload: &[u8]) -> Result<usize> {
        match u32_at(payload, 0)? as usize {
            ring @ 0..2 => Ok(ring),
            other => Err(self.broken(&format!("there is no ring {other}"))),
        }
    }

    fn memory(&mut self, payload: &[u8], fds: Vec<OwnedFd>) -> Result<()> {
        let region = |i: usize| -> Result<Region> {
            let at = 8 + 32 * i;
            Ok(Region {
                guest: u64_at(payload, at)?,
                size: u64_at(payload, at + 8)?,
                user: u64_at(payload, at + 16)?,
                offset: u64_at(payload, at + 24)?,
            })
        };
        let files: Vec<File> = fds.into_iter().map(File::from).collect();
        let regions = (0..u32_at(payload, 0)? as usize).map(region).collect::<Result<Vec<_>>>()?;
        if files.len() != regions.len() {
            return Err(self.broken("memory regions and descriptors differ in number"));
        }
        self.rings.set_memory(regions, files).map_err(|e| self.ring_error(&e))
    }

    /// Answers a read of the config space, which begins with the MAC address.
    fn config(&mut self, payload: &[u8]) -> Result<()> {
        let mut answer = payload.to_vec();
        let offset = u32_at(payload, 0)? as usize;
        for (i, byte) in answer.iter_mut().skip(CONFIG_HEADER).enumerate() {
            *byte = self.mac.get(offset + i).copied().unwrap_or(0);
        }
        self.reply(GET_CONFIG, &answer)
    }

    fn reply(&self, code: u32, payload: &[u8]) -> Result<()> {
        let Some(conn) = &self.conn else {
            return Ok(());
        };
        let reply = Message::new(code, REPLY, payload);
        inbox::send(conn, &reply.bytes, &[]).context(|| format!("answering {}", self.guest))
    }

    /// An error of the guest's rings.
    pub fn ring_error(&self, error: &RingError) -> LabError {
        self.broken(&error.to_string())
    }

    fn broken(&self, reason: &str) -> LabError {
        LabError::protocol(&self.guest, format!("NIC: {reason}"))
    }
}
