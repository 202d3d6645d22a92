// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Stands between a guest and the daemon, so that the daemon can go and come
//! back: the guest's own front end cannot connect a second time.
//!
//! It passes messages on and remembers those that set the device up. While the
//! daemon is gone it answers the guest itself. When the daemon is back it
//! repeats the set-up, with each ring beginning at its used index, so that the
//! chains the earlier daemon held are offered again, and kicks every ring.

mod setup;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Context, LabError, Result};
use crate::ipc::inbox::{self, Inbox};
use crate::ipc::poller::{Origin, Polled, Poller, Stream};
use crate::vhost_user::request::{
    GET_CONFIG, GET_FEATURES, GET_PROTOCOL_FEATURES, SET_BACKEND_REQ_FD, VRING_KICK,
};
use crate::vhost_user::{Message, NEED_REPLY, REPLY, u32_at, u64_at};
use setup::Setup;

/// The ring guests tell of news by.
const DOORBELL: u32 = 1;
/// A daemon that is back answers within this.
const PATIENCE_MS: u16 = 10_000;

/// One direction's stream, cut into messages.
#[derive(Default)]
struct Channel {
    stream: Option<Polled<UnixStream>>,
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
    poller: Poller,
    listener: Polled<UnixListener>,
    path: PathBuf,
    guest: Channel,
    guest_back: Channel,
    daemon: Channel,
    daemon_back: Channel,
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

impl Channel {
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
        Message::next(&mut self.inbox)
    }

    fn send(&self, message: &Message, what: &str) -> Result<()> {
        let fds: Vec<_> = message.fds.iter().map(AsRawFd::as_raw_fd).collect();
        match self.stream.as_ref().map(|stream| inbox::send(stream, &message.bytes, &fds)) {
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
    /// Listens for the guest; is the poller's `index`-th.
    ///
    /// With a delay, doorbells reach the daemon so many nanoseconds after they
    /// rang, and all that rang meanwhile with the first.
    pub fn new(
        sockets: Sockets,
        delay: Option<u64>,
        index: usize,
        poller: &Poller,
    ) -> Result<Self> {
        let Sockets { vm, own, daemon } = sockets;
        let listener = UnixListener::bind(&own).on("listening on", &own)?;
        let origin = Origin::Relay(index, Stream::Listener);
        Ok(Self {
            vm,
            index,
            poller: poller.clone(),
            listener: poller.add(listener, origin).on("watching", &own)?,
            path: daemon,
            guest: Channel::default(),
            guest_back: Channel::default(),
            daemon: Channel::default(),
            daemon_back: Channel::default(),
            setup: Setup::default(),
            asked: None,
            known: BTreeMap::new(),
            delay,
            arrives: None,
        })
    }

    fn channel(&self, io: UnixStream, stream: Stream) -> Result<Channel> {
        let polled = self.poller.add(io, Origin::Relay(self.index, stream));
        let stream = Some(polled.context(|| format!("watching {}", self.vm))?);
        Ok(Channel { stream, inbox: Inbox::default() })
    }

    /// Handles a descriptor that was readable at simulated time `now`.
    pub fn readable(&mut self, stream: Stream, now: u64) -> Result<()> {
        match stream {
            Stream::Listener => self.accept(),
            Stream::Guest => self.read_guest(now),
            Stream::GuestBack => self.read_guest_replies(),
            Stream::Daemon => self.read_daemon(),
            Stream::DaemonBack => self.read_daemon_requests(),
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
        self.daemon = Channel::default();
        self.daemon_back = Channel::default();
    }

    /// The guest has ended: the daemon is to see that.
    pub fn guest_gone(&mut self) {
        self.guest = Channel::default();
        self.guest_back = Channel::default();
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
        for mut message in self.setup.replay(&self.vm)? {
            if message.code() == SET_BACKEND_REQ_FD {
                message.fds = vec![self.back_channel()?];
            }
            self.ask(&message)?;
        }
        for ring in self.setup.rings() {
            self.kick(ring)?;
        }
        Ok(())
    }

    fn kick(&mut self, ring: u32) -> Result<()> {
        self.ask(&Message::of_ring(VRING_KICK, NEED_REPLY, ring, 0))
    }

    fn accept(&mut self) -> Result<()> {
        let (stream, _) = self.listener.accept().context(|| "accepting a guest".into())?;
        if self.guest.stream.is_some() {
            return Err(self.broken("connected twice"));
        }
        self.guest = self.channel(stream, Stream::Guest)?;
        // If the daemon is gone now, the set-up is told later.
        if let Ok(daemon) = UnixStream::connect(&self.path) {
            self.daemon = self.channel(daemon, Stream::Daemon)?;
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        let daemon = UnixStream::connect(&self.path).on("connecting to", &self.path)?;
        self.daemon = self.channel(daemon, Stream::Daemon)?;
        Ok(())
    }

    /// A new channel for the daemon's requests; returns its end of it.
    fn back_channel(&mut self) -> Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair().context(|| "socketpair".into())?;
        self.daemon_back = self.channel(ours, Stream::DaemonBack)?;
        Ok(theirs.into())
    }

    fn read_guest(&mut self, now: u64) -> Result<()> {
        if !self.guest.fill(&self.vm)? {
            self.guest_gone();
            return Ok(());
        }
        while let Some(mut message) = self.guest.next() {
            if message.code() == SET_BACKEND_REQ_FD {
                let fd = message.fds.pop().ok_or_else(|| self.broken("sent no channel"))?;
                self.guest_back = self.channel(fd.into(), Stream::GuestBack)?;
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
        if !message.needs_reply() {
            return Ok(());
        }
        let done = Message::new(message.code(), REPLY, &0u64.to_le_bytes());
        self.guest.send(&done, &self.vm)
    }

    fn pass_on(&mut self, message: Message) -> Result<()> {
        let question = [GET_FEATURES, GET_PROTOCOL_FEATURES, GET_CONFIG].contains(&message.code());
        if self.daemon.stream.is_some() {
            self.asked = question.then(|| message.bytes.clone());
            self.daemon.send(&message, "daemon")?;
        } else if question {
            let answer = self.known.get(&message.bytes);
            let answer = answer.ok_or_else(|| self.broken("asks what only the daemon knows"))?;
            let answer = Message { bytes: answer.clone(), fds: vec![] };
            self.guest.send(&answer, &self.vm)?;
        } else {
            self.acknowledge(&message)?;
        }
        self.setup.remember(message)
    }

    fn read_guest_replies(&mut self) -> Result<()> {
        if !self.guest_back.fill(&self.vm)? {
            self.guest_back = Channel::default();
            return Ok(());
        }
        while let Some(message) = self.guest_back.next() {
            self.daemon_back.send(&message, "daemon")?;
        }
        Ok(())
    }

    /// What the daemon sent on its own channel before is passed on before: an
    /// interrupt reaches the guest within the kick that caused it.
    fn read_daemon(&mut self) -> Result<()> {
        if self.daemon.stream.is_none() {
            return Ok(());
        }
        self.read_daemon_requests()?;
        if !self.daemon.fill("daemon")? {
            return Err(LabError::protocol("daemon", format!("has left {}", self.vm)));
        }
        while let Some(answer) = self.daemon.next() {
            if let Some(question) = self.asked.take() {
                self.known.insert(question, answer.bytes.clone());
            }
            self.guest.send(&answer, &self.vm)?;
        }
        Ok(())
    }

    fn read_daemon_requests(&mut self) -> Result<()> {
        // It may have been read before its turn.
        if !self.daemon_back.is_readable()? {
            return Ok(());
        }
        if !self.daemon_back.fill("daemon")? {
            self.daemon_back = Channel::default();
            return Ok(());
        }
        while let Some(message) = self.daemon_back.next() {
            self.guest_back.send(&message, &self.vm)?;
        }
        Ok(())
    }

    /// Asks the daemon and takes its answer; what it asks the guest meanwhile
    /// is passed on.
    fn ask(&mut self, message: &Message) -> Result<()> {
        self.daemon.send(message, "daemon")?;
        let code = message.code();
        let question = [GET_FEATURES, GET_PROTOCOL_FEATURES].contains(&code);
        if !question && !message.needs_reply() {
            return Ok(());
        }
        let answer = loop {
            if let Some(answer) = self.daemon.next() {
                break answer;
            }
            self.await_daemon(code)?;
        };
        if !question && u64_at(answer.payload(), 0)? != 0 {
            let reason = format!("refused request {code} of {} repeated", self.vm);
            return Err(LabError::protocol("daemon", reason));
        }
        Ok(())
    }

    fn await_daemon(&mut self, code: u32) -> Result<()> {
        let channels = [
            (Stream::DaemonBack, &self.daemon_back),
            (Stream::GuestBack, &self.guest_back),
            (Stream::Daemon, &self.daemon),
        ];
        let open = channels.iter().filter_map(|(stream, channel)| Some((*stream, channel.fd()?)));
        let (streams, mut polled): (Vec<_>, Vec<_>) =
            open.map(|(stream, fd)| (stream, PollFd::new(fd, PollFlags::POLLIN))).unzip();
        if poll(&mut polled, PATIENCE_MS).context(|| "poll".into())? == 0 {
            let reason = format!("does not answer request {code} of {} repeated", self.vm);
            return Err(LabError::protocol("daemon", reason));
        }
        let events = streams.into_iter().zip(&polled);
        let ready: Vec<_> =
            events.filter(|(_, p)| p.any().unwrap_or(false)).map(|(stream, _)| stream).collect();
        for stream in ready {
            match stream {
                Stream::Daemon => {
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
    Ok(message.code() == VRING_KICK && u32_at(message.payload(), 0)? == DOORBELL)
}
