// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Stands between a guest and the daemon, so that the daemon can go and come
//! back: the guest's own front end cannot connect a second time.
//!
//! It passes messages on and remembers those that set the device up. While the
//! daemon is gone it answers the guest itself. When the daemon is back it
//! repeats the set-up, with each ring beginning at its used index, so that the
//! chains the earlier daemon held are offered again, and kicks every ring.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Context, LabError, Result};
use crate::fdmsg::{self, Inbox};
use crate::relay_setup::{Message, Setup};
use crate::vhost_user::{
    GET_CONFIG, GET_FEATURES, GET_PROTOCOL_FEATURES, HEADER, NEED_REPLY, REPLY, SET_BACKEND_REQ_FD,
    SET_MEM_TABLE, SET_VRING_CALL, SET_VRING_ERR, SET_VRING_KICK, VERSION, VRING_KICK, header,
    u32_at, u64_at,
};
use crate::watch::{Origin, Watch, Watched};

/// The ring guests tell of news by.
const DOORBELL: u32 = 1;
/// A daemon that is back answers within this.
const PATIENCE_MS: u16 = 10_000;

/// Which of a relay's descriptors is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The guest's requests.
    Guest,
    /// The guest's answers to the daemon's.
    GuestBack,
    /// The daemon's answers.
    Daemon,
    /// The daemon's requests.
    DaemonBack,
    /// Where the guest connects; after the end of the one that was there before.
    Listener,
}

/// One direction's stream, cut into messages.
#[derive(Default)]
struct Link {
    stream: Option<Watched<UnixStream>>,
    inbox: Inbox,
}

/// Where a relay stands.
pub struct Sockets {
    /// Whose device it is.
    pub vm: String,
    /// Where the guest connects.
    pub own: PathBuf,
    /// Where the daemon listens for the guest.
    pub daemon: PathBuf,
}

/// Between one guest and the daemon.
pub struct Relay {
    vm: String,
    /// Its place among the relays.
    index: usize,
    watch: Watch,
    listener: Watched<UnixListener>,
    path: PathBuf,
    guest: Link,
    guest_back: Link,
    daemon: Link,
    daemon_back: Link,
    setup: Setup,
    /// The question the guest waits for the answer to.
    asked: Option<Vec<u8>>,
    /// Answers the daemon has given to such questions.
    known: BTreeMap<Vec<u8>, Vec<u8>>,
    /// How long a doorbell takes, in nanoseconds.
    delay: Option<u64>,
    /// When the doorbell that is under way arrives.
    arrives: Option<u64>,
}

impl Link {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(|stream| stream.as_fd())
    }

    /// Reads once; false at the end of the stream.
    fn fill(&mut self, what: &str) -> Result<bool> {
        let Some(stream) = &self.stream else {
            return Ok(true);
        };
        self.inbox.fill(stream).context(|| format!("reading from {what}"))
    }

    /// The next message, with its descriptors.
    fn next(&mut self) -> Option<Message> {
        let size = u32_at(self.inbox.peek(), 8).ok()? as usize;
        let bytes = self.inbox.take(HEADER + size)?;
        let carries =
            [SET_MEM_TABLE, SET_BACKEND_REQ_FD, SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR];
        let code = u32_at(&bytes, 0).ok()?;
        let fds =
            if carries.contains(&code) { std::mem::take(&mut self.inbox.fds) } else { vec![] };
        Some(Message { bytes, fds })
    }

    fn send(&self, bytes: &[u8], fds: &[OwnedFd], what: &str) -> Result<()> {
        let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        match self.stream.as_ref().map(|stream| fdmsg::send(stream, bytes, &fds)) {
            Some(sent) => sent.context(|| format!("sending to {what}")),
            None => Ok(()),
        }
    }

    fn is_readable(&self) -> Result<bool> {
        let Some(fd) = self.fd() else {
            return Ok(false);
        };
        let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
        Ok(poll(&mut polled, PollTimeout::ZERO).context(|| "poll".into())? > 0)
    }
}

impl Relay {
    /// Listens for the guest; is the watch's `index`-th.
    ///
    /// With a delay, doorbells reach the daemon so many nanoseconds after they
    /// rang, and all that rang meanwhile with the first.
    pub fn new(sockets: Sockets, delay: Option<u64>, index: usize, watch: &Watch) -> Result<Self> {
        let Sockets { vm, own, daemon } = sockets;
        let listener = UnixListener::bind(&own).on("listening on", &own)?;
        let origin = Origin::Relay(index, Source::Listener);
        Ok(Self {
            vm,
            index,
            watch: watch.clone(),
            listener: watch.add(listener, origin).on("watching", &own)?,
            path: daemon,
            guest: Link::default(),
            guest_back: Link::default(),
            daemon: Link::default(),
            daemon_back: Link::default(),
            setup: Setup::default(),
            asked: None,
            known: BTreeMap::new(),
            delay,
            arrives: None,
        })
    }

    fn link(&self, stream: UnixStream, source: Source) -> Result<Link> {
        let watched = self.watch.add(stream, Origin::Relay(self.index, source));
        let stream = Some(watched.context(|| format!("watching {}", self.vm))?);
        Ok(Link { stream, inbox: Inbox::default() })
    }

    /// Handles a descriptor that was readable at simulated time `now`.
    pub fn readable(&mut self, source: Source, now: u64) -> Result<()> {
        match source {
            Source::Listener => self.accept(),
            Source::Guest => self.hear_guest(now),
            Source::GuestBack => self.hear_guest_back(),
            Source::Daemon => self.hear_daemon(),
            Source::DaemonBack => self.hear_daemon_back(),
        }
    }

    /// When the doorbell that is under way arrives.
    pub fn due(&self) -> Option<u64> {
        self.arrives
    }

    /// Lets the doorbell arrive.
    pub fn deliver(&mut self) -> Result<()> {
        self.arrives = None;
        if self.daemon.stream.is_none() { Ok(()) } else { self.kick(DOORBELL) }
    }

    /// The daemon was killed: from now on the guest is answered here.
    pub fn daemon_gone(&mut self) {
        self.daemon = Link::default();
        self.daemon_back = Link::default();
    }

    /// The guest has ended: the daemon is to see that.
    pub fn guest_gone(&mut self) {
        self.guest = Link::default();
        self.guest_back = Link::default();
        self.daemon_gone();
        self.setup = Setup::default();
    }

    /// Whose device this is.
    pub fn vm(&self) -> &str {
        &self.vm
    }

    /// The daemon is back: it is told all it has to know.
    pub fn reconnect(&mut self) -> Result<()> {
        if self.guest.stream.is_none() {
            return Ok(());
        }
        self.connect()?;
        for message in self.setup.replay(&self.vm)? {
            let code = message.code()?;
            if code == SET_BACKEND_REQ_FD {
                let theirs = self.back_channel()?;
                self.ask(&message.bytes, &[theirs])?;
            } else {
                self.ask(&message.bytes, &message.fds)?;
            }
        }
        for ring in self.setup.rings() {
            self.kick(ring)?;
        }
        Ok(())
    }

    fn kick(&mut self, ring: u32) -> Result<()> {
        let mut kick = header(VRING_KICK, VERSION | NEED_REPLY, 8);
        kick.extend(ring.to_le_bytes());
        kick.extend(0u32.to_le_bytes());
        self.ask(&kick, &[])
    }

    fn accept(&mut self) -> Result<()> {
        let (stream, _) = self.listener.accept().context(|| "accepting a guest".into())?;
        if self.guest.stream.is_some() {
            return Err(self.broken("connected twice"));
        }
        self.guest = self.link(stream, Source::Guest)?;
        // If the daemon is gone now, the set-up is told later.
        if let Ok(daemon) = UnixStream::connect(&self.path) {
            self.daemon = self.link(daemon, Source::Daemon)?;
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        let daemon = UnixStream::connect(&self.path).on("connecting to", &self.path)?;
        self.daemon = self.link(daemon, Source::Daemon)?;
        Ok(())
    }

    /// A new channel for the daemon's requests; returns its end of it.
    fn back_channel(&mut self) -> Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair().context(|| "socketpair".into())?;
        self.daemon_back = self.link(ours, Source::DaemonBack)?;
        Ok(theirs.into())
    }

    fn hear_guest(&mut self, now: u64) -> Result<()> {
        if !self.guest.fill(&self.vm)? {
            self.guest_gone();
            return Ok(());
        }
        while let Some(mut message) = self.guest.next() {
            if message.code()? == SET_BACKEND_REQ_FD {
                let fd = message.fds.pop().ok_or_else(|| self.broken("sent no channel"))?;
                self.guest_back = self.link(fd.into(), Source::GuestBack)?;
                if self.daemon.stream.is_some() {
                    message.fds = vec![self.back_channel()?];
                }
            }
            match self.delay {
                Some(delay) if is_doorbell(&message)? => {
                    self.arrives.get_or_insert(now + delay);
                    self.acknowledge(&message)?;
                }
                _ => self.pass_on(message)?,
            }
        }
        Ok(())
    }

    /// Answers a message in the daemon's place, if its sender waits for that.
    fn acknowledge(&self, message: &Message) -> Result<()> {
        if !message.needs_reply()? {
            return Ok(());
        }
        let mut done = header(message.code()?, VERSION | REPLY, 8);
        done.extend(0u64.to_le_bytes());
        self.guest.send(&done, &[], &self.vm)
    }

    fn pass_on(&mut self, message: Message) -> Result<()> {
        let question = [GET_FEATURES, GET_PROTOCOL_FEATURES, GET_CONFIG].contains(&message.code()?);
        if self.daemon.stream.is_some() {
            self.asked = question.then(|| message.bytes.clone());
            self.daemon.send(&message.bytes, &message.fds, "daemon")?;
        } else if question {
            let answer = self.known.get(&message.bytes);
            let answer = answer.ok_or_else(|| self.broken("asks what only the daemon knows"))?;
            self.guest.send(answer, &[], &self.vm)?;
        } else {
            self.acknowledge(&message)?;
        }
        self.setup.remember(message)
    }

    fn hear_guest_back(&mut self) -> Result<()> {
        if !self.guest_back.fill(&self.vm)? {
            self.guest_back = Link::default();
            return Ok(());
        }
        while let Some(message) = self.guest_back.next() {
            self.daemon_back.send(&message.bytes, &message.fds, "daemon")?;
        }
        Ok(())
    }

    /// What the daemon sent on its own channel before is passed on before: an
    /// interrupt reaches the guest within the kick that caused it.
    fn hear_daemon(&mut self) -> Result<()> {
        if self.daemon.stream.is_none() {
            return Ok(());
        }
        self.hear_daemon_back()?;
        if !self.daemon.fill("daemon")? {
            return Err(LabError::protocol("daemon", format!("has left {}", self.vm)));
        }
        while let Some(answer) = self.daemon.next() {
            if let Some(question) = self.asked.take() {
                self.known.insert(question, answer.bytes.clone());
            }
            self.guest.send(&answer.bytes, &answer.fds, &self.vm)?;
        }
        Ok(())
    }

    fn hear_daemon_back(&mut self) -> Result<()> {
        // It may have been read before its turn.
        if !self.daemon_back.is_readable()? {
            return Ok(());
        }
        if !self.daemon_back.fill("daemon")? {
            self.daemon_back = Link::default();
            return Ok(());
        }
        while let Some(message) = self.daemon_back.next() {
            self.guest_back.send(&message.bytes, &message.fds, &self.vm)?;
        }
        Ok(())
    }

    /// Asks the daemon and takes its answer; what it asks the guest meanwhile
    /// is passed on.
    fn ask(&mut self, bytes: &[u8], fds: &[OwnedFd]) -> Result<()> {
        self.daemon.send(bytes, fds, "daemon")?;
        let code = u32_at(bytes, 0)?;
        let question = [GET_FEATURES, GET_PROTOCOL_FEATURES].contains(&code);
        if !question && u32_at(bytes, 4)? & NEED_REPLY == 0 {
            return Ok(());
        }
        let answer = loop {
            if let Some(answer) = self.daemon.next() {
                break answer;
            }
            self.await_daemon(code)?;
        };
        if !question && u64_at(&answer.bytes, HEADER)? != 0 {
            let reason = format!("refused request {code} of {} repeated", self.vm);
            return Err(LabError::protocol("daemon", reason));
        }
        Ok(())
    }

    fn await_daemon(&mut self, code: u32) -> Result<()> {
        let links =
            [(Source::DaemonBack, &self.daemon_back), (Source::GuestBack, &self.guest_back)];
        let mut sources: Vec<_> =
            links.iter().filter_map(|(source, link)| Some((*source, link.fd()?))).collect();
        sources.extend(self.daemon.fd().map(|fd| (Source::Daemon, fd)));
        let mut polled: Vec<_> =
            sources.iter().map(|(_, fd)| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        if poll(&mut polled, PATIENCE_MS).context(|| "poll".into())? == 0 {
            let reason = format!("does not answer request {code} of {} repeated", self.vm);
            return Err(LabError::protocol("daemon", reason));
        }
        let ready: Vec<_> = sources
            .iter()
            .zip(&polled)
            .filter(|(_, p)| p.any().unwrap_or(false))
            .map(|((source, _), _)| *source)
            .collect();
        for source in ready {
            match source {
                Source::Daemon => {
                    if !self.daemon.fill("daemon")? {
                        return Err(LabError::protocol("daemon", "has left when it was back"));
                    }
                }
                // Not the guest's requests: the time does not matter.
                other => self.readable(other, 0)?,
            }
        }
        Ok(())
    }

    fn broken(&self, reason: &str) -> LabError {
        LabError::protocol(&self.vm, format!("CCC device: {reason}"))
    }
}

fn is_doorbell(message: &Message) -> Result<bool> {
    Ok(message.code()? == VRING_KICK && u32_at(&message.bytes, HEADER)? == DOORBELL)
}
