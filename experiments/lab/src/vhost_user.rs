// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The vhost-user back end of one NIC, as User Mode Linux speaks it.
//!
//! Notifications are in-band: the guest stands still in a kick until the
//! reply, so whatever a kick causes happens at the simulated time of the kick.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use crate::error::{Context, LabError, Result};
use crate::fdmsg::{self, Inbox};
use crate::watch::{Origin, Watch, Watched};
use crate::wire::{Region, Rings};

pub(crate) const HEADER: usize = 12;
pub(crate) const VERSION: u32 = 1;
pub(crate) const REPLY: u32 = 1 << 2;
pub(crate) const NEED_REPLY: u32 = 1 << 3;

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

pub(crate) const GET_FEATURES: u32 = 1;
pub(crate) const SET_FEATURES: u32 = 2;
pub(crate) const SET_OWNER: u32 = 3;
pub(crate) const SET_MEM_TABLE: u32 = 5;
pub(crate) const SET_VRING_NUM: u32 = 8;
pub(crate) const SET_VRING_ADDR: u32 = 9;
pub(crate) const SET_VRING_BASE: u32 = 10;
pub(crate) const SET_VRING_KICK: u32 = 12;
pub(crate) const SET_VRING_CALL: u32 = 13;
pub(crate) const SET_VRING_ERR: u32 = 14;
pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
pub(crate) const SET_VRING_ENABLE: u32 = 18;
pub(crate) const SET_BACKEND_REQ_FD: u32 = 21;
pub(crate) const GET_CONFIG: u32 = 24;
pub(crate) const VRING_KICK: u32 = 35;

const BACKEND_VRING_CALL: u32 = 4;

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
    watch: Watch,
    listener: Watched<UnixListener>,
    conn: Option<Watched<UnixStream>>,
    inbox: Inbox,
    backend: Option<Watched<UnixStream>>,
    backend_inbox: Inbox,
}

/// Which of a NIC's descriptors is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The guest's requests.
    Front,
    /// The guest's answers to ours.
    Back,
    /// The listening socket; after the end of the guest that was there before.
    Listener,
}

/// What a readable descriptor brought.
#[derive(Debug, Default)]
pub struct Heard {
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

struct Request {
    code: u32,
    need_reply: bool,
    payload: Vec<u8>,
}

impl Nic {
    /// Listens for the guest of the NIC that is the watch's `index`-th.
    pub fn new(socket: Socket, index: usize, watch: &Watch) -> Result<Self> {
        let Socket { guest, mac, path } = socket;
        let listener = UnixListener::bind(&path).on("listening on", &path)?;
        let origin = Origin::Nic(index, Source::Listener);
        let listener = watch.add(listener, origin).on("watching", &path)?;
        let rings = Rings::new().map_err(|e| LabError::protocol(&guest, e.to_string()))?;
        Ok(Self {
            guest,
            rings,
            mac,
            index,
            watch: watch.clone(),
            listener,
            conn: None,
            inbox: Inbox::default(),
            backend: None,
            backend_inbox: Inbox::default(),
        })
    }

    /// Handles a readable descriptor.
    pub fn readable(&mut self, source: Source) -> Result<Heard> {
        let mut heard = Heard::default();
        match source {
            Source::Listener => self.accept()?,
            Source::Front => self.front(&mut heard)?,
            Source::Back => self.back(&mut heard)?,
        }
        Ok(heard)
    }

    fn accept(&mut self) -> Result<()> {
        let (conn, _) = self.listener.accept().context(|| "accepting a NIC".into())?;
        if self.conn.is_some() {
            return Err(self.broken("connected twice"));
        }
        self.conn = Some(self.watched(conn, Source::Front)?);
        Ok(())
    }

    fn watched(&self, stream: UnixStream, source: Source) -> Result<Watched<UnixStream>> {
        let watched = self.watch.add(stream, Origin::Nic(self.index, source));
        watched.context(|| format!("watching {}", self.guest))
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
        let mut message = header(BACKEND_VRING_CALL, VERSION | NEED_REPLY, 8);
        message.extend((ring as u32).to_le_bytes());
        message.extend(0u32.to_le_bytes());
        fdmsg::send(backend, &message, &[]).context(|| format!("interrupting {}", self.guest))
    }

    fn front(&mut self, heard: &mut Heard) -> Result<()> {
        let Some(conn) = &self.conn else {
            return Ok(());
        };
        if !self.inbox.fill(conn).context(|| format!("reading from {}", self.guest))? {
            heard.closed = true;
            return self.close();
        }
        while let Some(request) = next_request(&mut self.inbox) {
            self.handle(request, heard)?;
        }
        Ok(())
    }

    fn back(&mut self, heard: &mut Heard) -> Result<()> {
        let Some(backend) = &self.backend else {
            return Ok(());
        };
        if !self.backend_inbox.fill(backend).context(|| format!("reading from {}", self.guest))? {
            heard.closed = true;
            return self.close();
        }
        while let Some(reply) = next_request(&mut self.backend_inbox) {
            if reply.payload.iter().any(|&b| b != 0) {
                return Err(self.broken("refused an interrupt"));
            }
            heard.calls_done += 1;
        }
        Ok(())
    }

    /// Forgets a guest that is gone.
    pub fn close(&mut self) -> Result<()> {
        self.conn = None;
        (self.inbox, self.backend_inbox) = (Inbox::default(), Inbox::default());
        self.backend = None;
        self.rings = Rings::new().map_err(|e| self.broken(&e.to_string()))?;
        Ok(())
    }

    fn handle(&mut self, request: Request, heard: &mut Heard) -> Result<()> {
        match request.code {
            GET_FEATURES => return self.reply(request.code, &FEATURES.to_le_bytes()),
            GET_PROTOCOL_FEATURES => {
                return self.reply(request.code, &PROTOCOL_FEATURES.to_le_bytes());
            }
            GET_CONFIG => return self.config(&request.payload),
            VRING_KICK => {
                let ring = self.ring(&request.payload)?;
                heard.kicks.push(Kick { ring, need_reply: request.need_reply });
                return Ok(());
            }
            SET_OWNER | SET_FEATURES | SET_PROTOCOL_FEATURES => (),
            SET_MEM_TABLE => self.memory(&request.payload)?,
            SET_VRING_NUM => self
                .rings
                .set_size(self.ring(&request.payload)?, u32_at(&request.payload, 4)? as u16),
            SET_VRING_BASE => self
                .rings
                .set_base(self.ring(&request.payload)?, u32_at(&request.payload, 4)? as u16),
            SET_VRING_ADDR => self.addresses(&request.payload)?,
            SET_VRING_ENABLE => {
                let ring = self.ring(&request.payload)?;
                let on = u32_at(&request.payload, 4)? != 0;
                self.rings.enable(ring, on).map_err(|e| self.broken(&e.to_string()))?;
            }
            SET_BACKEND_REQ_FD => {
                let fd =
                    self.fds().pop().ok_or_else(|| self.broken("no descriptor for interrupts"))?;
                self.backend = Some(self.watched(fd.into(), Source::Back)?);
            }
            other => return Err(self.broken(&format!("request {other} is not known"))),
        }
        if request.need_reply { self.reply(request.code, &0u64.to_le_bytes()) } else { Ok(()) }
    }

    fn ring(&self, payload: &[u8]) -> Result<usize> {
        match u32_at(payload, 0)? as usize {
            ring @ 0..2 => Ok(ring),
            other => Err(self.broken(&format!("there is no ring {other}"))),
        }
    }

    fn memory(&mut self, payload: &[u8]) -> Result<()> {
        let region = |i: usize| -> Result<Region> {
            let at = 8 + 32 * i;
            Ok(Region {
                guest: u64_at(payload, at)?,
                size: u64_at(payload, at + 8)?,
                user: u64_at(payload, at + 16)?,
                offset: u64_at(payload, at + 24)?,
            })
        };
        let files: Vec<File> = self.fds().into_iter().map(File::from).collect();
        let regions = (0..u32_at(payload, 0)? as usize).map(region).collect::<Result<Vec<_>>>()?;
        if files.len() != regions.len() {
            return Err(self.broken("memory regions and descriptors differ in number"));
        }
        self.rings.set_memory(regions, files).map_err(|e| self.broken(&e.to_string()))
    }

    fn addresses(&mut self, payload: &[u8]) -> Result<()> {
        let ring = self.ring(payload)?;
        let [desc, used, avail] = [u64_at(payload, 8)?, u64_at(payload, 16)?, u64_at(payload, 24)?];
        self.rings.set_addresses(ring, desc, used, avail);
        Ok(())
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
        let mut message = header(code, VERSION | REPLY, payload.len());
        message.extend(payload);
        fdmsg::send(conn, &message, &[]).context(|| format!("answering {}", self.guest))
    }

    fn fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.inbox.fds)
    }

    fn broken(&self, reason: &str) -> LabError {
        LabError::protocol(&self.guest, format!("NIC: {reason}"))
    }
}

pub(crate) fn header(code: u32, flags: u32, size: usize) -> Vec<u8> {
    [code, flags, size as u32].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn next_request(inbox: &mut Inbox) -> Option<Request> {
    let size = u32_at(inbox.peek(), 8).ok()? as usize;
    let message = inbox.take(HEADER + size)?;
    Some(Request {
        code: u32_at(&message, 0).ok()?,
        need_reply: u32_at(&message, 4).ok()? & NEED_REPLY != 0,
        payload: message[HEADER..].to_vec(),
    })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    let part = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    part.map(u32::from_le_bytes).ok_or_else(short)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    let part = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    part.map(u64::from_le_bytes).ok_or_else(short)
}

fn short() -> LabError {
    LabError::Io { what: "vhost-user message".into(), source: io::ErrorKind::UnexpectedEof.into() }
}
