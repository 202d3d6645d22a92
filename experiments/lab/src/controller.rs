// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The one clock of a run: lets clients run one at a time, in the order of
//! simulated time, and carries frames between their NICs meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::actions::{self, Caretaker, Deed, Exchange};
use crate::calendar::Calendar;
use crate::error::{Context, LabError, Result};
use crate::faults::Faults;
use crate::fdmsg::{self, Inbox};
use crate::relay::{self, Relay, Sockets};
use crate::scenario::Action;
use crate::standstill::{Pulse, Standstill};
use crate::time_travel::{Message, op};
use crate::vhost_user::{Kick, Nic, Socket, Source};
use crate::watch::{Origin, Watch, Watched};
use crate::wire::{self, Frame, RX, TX};

/// A client may run this long before it has to look in again, so that
/// progress is seen even when it has nobody to wait for.
const SLICE_NS: u64 = 1_000_000_000;
/// Less than this is no progress; a client's arrival is.
const PROGRESS_NS: u64 = 1_000_000;
/// How often the programs are looked at while nothing is heard.
const LOOK: Duration = Duration::from_millis(100);

/// START numbers of the guests begin here.
const GUESTS: u64 = 0x10000;

/// Looks after the programs while the controller waits for them.
pub trait Supervisor: Caretaker {
    /// An error if a program has ended that should not have, or if the user
    /// wants the end.
    fn check(&mut self) -> Result<()>;
    /// What the programs are doing.
    fn pulse(&self) -> Pulse;
    /// `client` has closed its connection; an error unless it was to end now.
    fn left(&mut self, client: &str) -> Result<()>;
}

/// What the controller needs to know of a run.
pub struct Settings {
    /// Wall clock of the guests at simulated time 0.
    pub clock_start_ns: u64,
    /// Simulated time by which all guests must have ended.
    pub end_ns: u64,
    /// Time asleep, or at work, without progress that counts as a standstill.
    pub patience: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not started yet, and not to be waited for.
    Later,
    /// Expected, not heard of.
    Absent,
    /// Asked to start; the answer is still to be given.
    Starting {
        seq: u32,
    },
    Running,
    Waiting,
    Gone,
}

struct Client {
    name: String,
    /// When its own time began, in which it is told when to run.
    began: u64,
    state: State,
    conn: Option<Watched<UnixStream>>,
    inbox: Inbox,
}

/// A NIC and the cable at it, or the switch that a cable with more ends is.
struct Port {
    nic: Nic,
    /// The NICs at the other end.
    peers: Range<usize>,
    frames: VecDeque<Frame>,
    call_due: bool,
    calls_open: usize,
}

/// What is done to the daemon, which is the first client, and to guests.
#[derive(Default)]
struct Agenda {
    /// Still to come, by simulated time.
    due: VecDeque<(u64, Deed)>,
    /// There is a daemon.
    has_daemon: bool,
    /// The daemon's control socket.
    control: PathBuf,
    /// The request under way.
    exchange: Option<(Exchange, Action)>,
    /// The daemon has answered a request, but may still be at work.
    settling: bool,
    /// The daemon is starting; the relays are to connect to it.
    rejoining: bool,
    records: Vec<serde_json::Value>,
}

impl Agenda {
    fn busy(&self) -> bool {
        self.exchange.is_some() || self.settling
    }
}

/// Place of the daemon among the clients.
const DAEMON: usize = 0;

/// Controller of one run.
pub struct Controller {
    settings: Settings,
    calendar: Calendar,
    watch: Watch,
    listener: Watched<UnixListener>,
    /// Connected, but not yet said who they are; by number.
    newcomers: BTreeMap<u64, (Watched<UnixStream>, Inbox)>,
    /// How many there were.
    arrived: u64,
    /// Client n has id n + 1.
    clients: Vec<Client>,
    ports: Vec<Port>,
    relays: Vec<Relay>,
    faults: Faults,
    agenda: Agenda,
    running: Option<usize>,
    log: std::fs::File,
}

impl Controller {
    /// Listens on `path` for the clients of these names. In START guest n of
    /// the list says [`guest_number`]`(n)`; any other number is the first
    /// client's, the daemon's, which knows nothing of the others. The order is
    /// also that of the starts and of equal run times.
    pub fn new(path: &Path, names: Vec<String>, settings: Settings) -> Result<Self> {
        let client = |name| Client {
            name,
            began: 0,
            state: State::Absent,
            conn: None,
            inbox: Inbox::default(),
        };
        let null = Path::new("/dev/null");
        let watch = Watch::new().context(|| "epoll_create".into())?;
        let listener = UnixListener::bind(path).on("listening on", path)?;
        Ok(Self {
            settings,
            calendar: Calendar::new(names.len() as u16)?,
            listener: watch.add(listener, Origin::Listener).on("watching", path)?,
            watch,
            newcomers: BTreeMap::new(),
            arrived: 0,
            clients: names.into_iter().map(client).collect(),
            ports: Vec::new(),
            relays: Vec::new(),
            faults: Faults::default(),
            agenda: Agenda::default(),
            running: None,
            log: std::fs::File::options().write(true).open(null).on("opening", null)?,
        })
    }

    /// Joins NICs with one by cables without delay or loss.
    pub fn connect(&mut self, ends: Vec<Socket>, one: Socket) -> Result<()> {
        let first = self.ports.len();
        let last = first + ends.len();
        for end in ends {
            self.plug(end, last..last + 1)?;
        }
        self.plug(one, first..last)
    }

    fn plug(&mut self, socket: Socket, peers: Range<usize>) -> Result<()> {
        let nic = Nic::new(socket, self.ports.len(), &self.watch)?;
        let frames = VecDeque::new();
        self.ports.push(Port { nic, peers, frames, call_due: false, calls_open: 0 });
        Ok(())
    }

    /// Lets a relay stand between a guest and the daemon; doorbells take `delay`
    /// nanoseconds, if that is given.
    pub fn relay(&mut self, sockets: Sockets, delay: Option<u64>) -> Result<()> {
        self.relays.push(Relay::new(sockets, delay, self.relays.len(), &self.watch)?);
        Ok(())
    }

    /// Loses frames as these faults say.
    pub fn lose(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The faults and what came of them.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The first client is the daemon; its control socket is at `control`.
    pub fn has_daemon(&mut self, control: &Path) {
        self.agenda.has_daemon = true;
        self.agenda.control = control.to_owned();
    }

    /// Carries out deeds in the order of simulated times.  Guests that are
    /// started by one are not waited for before.
    pub fn act_at(&mut self, mut deeds: Vec<(u64, Deed)>) -> Result<()> {
        deeds.sort_by_key(|(at, _)| *at);
        for (_, deed) in &deeds {
            if let Deed::Reboot { to, .. } = deed {
                let later = self.client(to)?;
                self.clients[later].state = State::Later;
            }
        }
        self.agenda.due = deeds.into();
        Ok(())
    }

    /// Place of the client with this name.
    fn client(&self, name: &str) -> Result<usize> {
        let place = self.clients.iter().position(|c| c.name == name);
        place.ok_or_else(|| LabError::protocol(name, "is not part of this run"))
    }

    /// The actions that were carried out.
    pub fn records(&self) -> &[serde_json::Value] {
        &self.agenda.records
    }

    /// Simulated time.
    pub fn now(&self) -> u64 {
        self.calendar.now()
    }

    /// Runs until every client but those named `servants` has left.
    pub fn run(&mut self, servants: &[&str], supervisor: &mut dyn Supervisor) -> Result<()> {
        let mut standstill = Standstill::new(self.settings.patience);
        let mut progress = (0, 0);
        loop {
            let heard = self.listen(supervisor)?;
            if !self.anyone_left(servants) {
                return Ok(());
            }
            self.advance(supervisor)?;
            if self.calendar.now() >= progress.0 + PROGRESS_NS || self.arrived > progress.1 {
                progress = (self.calendar.now(), self.arrived);
                standstill.progress();
            }
            if !heard {
                supervisor.check()?;
            }
            if standstill.is_over(|| supervisor.pulse(), heard) {
                return Err(self.stalled(&self.whom_we_wait_for()));
            }
        }
    }

    fn anyone_left(&self, servants: &[&str]) -> bool {
        self.clients.iter().any(|c| c.state != State::Gone && !servants.contains(&c.name.as_str()))
    }

    /// Waits for messages and handles them; false if there were none.
    fn listen(&mut self, supervisor: &mut dyn Supervisor) -> Result<bool> {
        let ready = self.watch.wait(LOOK).context(|| "waiting for a message".into())?;
        for &origin in &ready {
            match origin {
                Origin::Listener => self.accept()?,
                Origin::Client(index) => self.client_readable(index, supervisor)?,
                Origin::Nic(index, source) => self.nic_readable(index, source)?,
                Origin::Relay(index, source) => self.relay_readable(index, source)?,
                Origin::Control => self.answered()?,
                Origin::Newcomer(number) => self.newcomer_readable(number)?,
            }
        }
        Ok(!ready.is_empty())
    }

    fn accept(&mut self) -> Result<()> {
        let (conn, _) = self.listener.accept().context(|| "accepting a client".into())?;
        let conn = self.watch.add(conn, Origin::Newcomer(self.arrived));
        let conn = conn.context(|| "watching a new client".into())?;
        self.newcomers.insert(self.arrived, (conn, Inbox::default()));
        self.arrived += 1;
        Ok(())
    }

    /// A newcomer's first message says which client it is.
    fn newcomer_readable(&mut self, number: u64) -> Result<()> {
        let Some((conn, mut inbox)) = self.newcomers.remove(&number) else {
            return Ok(());
        };
        if !inbox.fill(&conn).context(|| "reading from a new client".into())? {
            return Ok(());
        }
        let Some(message) = Message::next(&mut inbox) else {
            self.newcomers.insert(number, (conn, inbox));
            return Ok(());
        };
        if message.op != op::START {
            return Err(LabError::protocol("a new client", "its first message is not START"));
        }
        let known = (0..self.clients.len()).find(|&n| guest_number(n) == message.time);
        let index = known.unwrap_or(0);
        let client = &mut self.clients[index];
        if client.state != State::Absent {
            return Err(LabError::protocol(&client.name, "connected twice"));
        }
        self.calendar.set_name(id(index), message.time);
        conn.belongs_to(Origin::Client(index));
        *client = Client {
            name: std::mem::take(&mut client.name),
            // Guests begin at 0; the daemon, which comes back, has our time.
            began: known.map_or(0, |_| self.calendar.now()),
            state: State::Starting { seq: message.seq },
            conn: Some(conn),
            inbox,
        };
        Ok(())
    }

    fn client_readable(&mut self, index: usize, supervisor: &mut dyn Supervisor) -> Result<()> {
        let client = &mut self.clients[index];
        let Some(conn) = &client.conn else {
            return Ok(());
        };
        if !client.inbox.fill(conn).context(|| format!("reading from {}", client.name))? {
            client.conn = None;
            client.state = State::Gone;
            self.calendar.withdraw(id(index));
            if self.running == Some(index) {
                self.running = None;
            }
            return supervisor.left(&self.clients[index].name);
        }
        while let Some(message) = Message::next(&mut self.clients[index].inbox) {
            self.handle(index, &message)?;
        }
        Ok(())
    }

    fn handle(&mut self, index: usize, message: &Message) -> Result<()> {
        let answer = match message.op {
            // In answer to a BROADCAST, which only the daemon is sent.
            op::ACK => {
                self.agenda.settling = false;
                return Ok(());
            }
            op::WAIT => return self.client_waits(index),
            op::REQUEST => {
                self.calendar.request(id(index), message.time);
                message.time
            }
            op::UPDATE => message.time,
            op::GET => self.calendar.now(),
            op::GET_TOD => self.settings.clock_start_ns + self.calendar.now(),
            other => {
                let reason = format!("time-travel message {other} is not known");
                return Err(LabError::protocol(&self.clients[index].name, reason));
            }
        };
        self.send(index, op::ACK, message.seq, answer)
    }

    fn client_waits(&mut self, index: usize) -> Result<()> {
        if self.running != Some(index) {
            let reason = "waits without having run";
            return Err(LabError::protocol(&self.clients[index].name, reason));
        }
        self.clients[index].state = State::Waiting;
        self.running = None;
        Ok(())
    }

    fn nic_readable(&mut self, index: usize, source: Source) -> Result<()> {
        let heard = self.ports[index].nic.readable(source)?;
        let port = &mut self.ports[index];
        port.calls_open = port.calls_open.saturating_sub(heard.calls_done);
        if heard.closed {
            port.calls_open = 0;
            port.call_due = false;
        }
        for kick in heard.kicks {
            self.kicked(index, &kick)?;
        }
        Ok(())
    }

    fn relay_readable(&mut self, index: usize, source: relay::Source) -> Result<()> {
        self.relays[index].readable(source, self.calendar.now())?;
        if let Some(due) = self.relays[index].due() {
            self.calendar.stop_at(due);
        }
        Ok(())
    }

    /// The relay whose doorbell arrives next, and when.
    fn next_doorbell(&self) -> Option<(u64, usize)> {
        let due = self.relays.iter().enumerate().filter_map(|(i, r)| Some((r.due()?, i)));
        due.min()
    }

    /// A guest stands in a kick: move frames, then let it go on, but not
    /// beyond now, so that the peer can run at this very time.
    fn kicked(&mut self, index: usize, kick: &Kick) -> Result<()> {
        if kick.ring == TX {
            let port = &mut self.ports[index];
            let peers = port.peers.clone();
            let mut frames = port.nic.rings.transmitted().map_err(|e| ring_error(&port.nic, e))?;
            let now = self.calendar.now();
            frames.retain(|frame| !self.faults.take(now, wire::ethernet(frame)));
            self.switch(peers.clone(), frames);
            peers.into_iter().try_for_each(|peer| self.deliver(peer))?;
        } else {
            self.deliver(index)?;
        }
        self.ports[index].nic.answer(kick)
    }

    /// Puts frames on the cable of the NIC they are for, of several; what is
    /// for all goes to none: the guests know their neighbours.
    fn switch(&mut self, peers: Range<usize>, frames: Vec<Frame>) {
        if peers.len() == 1 {
            return self.ports[peers.start].frames.extend(frames);
        }
        for frame in frames {
            let is_for = |port: &&mut Port| wire::ethernet(&frame).starts_with(&port.nic.mac);
            if let Some(port) = self.ports[peers.clone()].iter_mut().find(is_for) {
                port.frames.push_back(frame);
            }
        }
    }

    fn deliver(&mut self, index: usize) -> Result<()> {
        let port = &mut self.ports[index];
        if port.nic.rings.receive(&mut port.frames).map_err(|e| ring_error(&port.nic, e))? {
            port.call_due = true;
            self.calendar.hold();
        }
        Ok(())
    }

    /// When nobody runs: interrupts first, then whoever is next.
    fn advance(&mut self, supervisor: &mut dyn Supervisor) -> Result<()> {
        let absent = self.clients.iter().any(|c| c.state == State::Absent);
        if self.running.is_some() || absent || self.agenda.busy() {
            return Ok(());
        }
        for port in self.ports.iter_mut().filter(|p| p.call_due) {
            port.call_due = false;
            port.nic.call(RX)?;
            port.calls_open += 1;
        }
        if self.ports.iter().any(|p| p.calls_open > 0) {
            return Ok(());
        }
        match self.clients.iter().position(|c| matches!(c.state, State::Starting { .. })) {
            Some(index) => self.start(index),
            None if std::mem::take(&mut self.agenda.rejoining) => {
                self.relays.iter_mut().try_for_each(Relay::reconnect)
            }
            None => self.run_next(supervisor),
        }
    }

    /// A START answered late is a run at the present time.
    fn start(&mut self, index: usize) -> Result<()> {
        let State::Starting { seq } = self.clients[index].state else {
            return Ok(());
        };
        let now = self.calendar.now();
        self.calendar.grant(id(index), now, now);
        self.clients[index].state = State::Running;
        self.running = Some(index);
        let ack = Message { op: op::ACK, seq, time: id(index).into() }.bytes();
        let fds = [self.calendar.file().as_raw_fd(), self.log.as_raw_fd()];
        let client = &self.clients[index];
        let Some(conn) = &client.conn else {
            return Ok(());
        };
        fdmsg::send(conn, &ack, &fds).context(|| format!("starting {}", client.name))
    }

    fn run_next(&mut self, supervisor: &mut dyn Supervisor) -> Result<()> {
        let earliest = self.calendar.next();
        let act_at = self.agenda.due.front().map(|(at, _)| *at);
        if act_at.is_some_and(|at| earliest.is_none_or(|(time, _)| at <= time)) {
            return self.act(supervisor);
        }
        let doorbell = self.next_doorbell();
        if let Some((at, relay)) = doorbell {
            if earliest.is_none_or(|(time, _)| at <= time) {
                self.calendar.advance(at);
                self.relays[relay].deliver()?;
                // Nobody has to answer: there would be nothing to wait for.
                return self.run_next(supervisor);
            }
        }
        let Some((time, next)) = earliest else {
            return Err(self.stalled("nobody has anything left to do"));
        };
        if time > self.settings.end_ns {
            return Err(self.stalled(&format!(
                "the run should have ended, but {} is still there",
                self.present().join(", ")
            )));
        }
        let index = usize::from(next) - 1;
        let limit = (time + SLICE_NS).min(self.settings.end_ns + 1);
        let breaks = act_at.into_iter().chain(doorbell.map(|(at, _)| at));
        let limit = breaks.fold(limit, u64::min);
        self.calendar.grant(next, time, limit);
        self.clients[index].state = State::Running;
        self.running = Some(index);
        self.send(index, op::RUN, 0, time - self.clients[index].began)
    }

    /// Carries out the next action: nobody runs, and time stands still until
    /// it is done.
    fn act(&mut self, supervisor: &mut dyn Supervisor) -> Result<()> {
        let Some((at, deed)) = self.agenda.due.pop_front() else {
            return Ok(());
        };
        self.calendar.advance(at);
        match deed {
            Deed::Daemon(action) => self.act_on_daemon(action, supervisor),
            Deed::Reboot { from, to } => self.reboot(&from, &to, supervisor),
        }
    }

    fn act_on_daemon(&mut self, action: Action, supervisor: &mut dyn Supervisor) -> Result<()> {
        if let Some(request) = &action.control {
            let exchange = Exchange::begin(&self.agenda.control, request, &self.watch)?;
            self.agenda.exchange = Some((exchange, action));
            return Ok(());
        }
        if action.kill_daemon {
            supervisor.kill_daemon()?;
            self.calendar.withdraw(id(DAEMON));
            let daemon = &mut self.clients[DAEMON];
            (daemon.conn, daemon.inbox, daemon.state) = (None, Inbox::default(), State::Gone);
            self.relays.iter_mut().for_each(Relay::daemon_gone);
        }
        if action.start_daemon {
            self.clients[DAEMON].state = State::Absent;
            self.agenda.rejoining = true;
            supervisor.start_daemon()?;
        }
        self.agenda.records.push(actions::record(&action, None)?);
        Ok(())
    }

    /// Kills a guest and starts another one in its place.
    fn reboot(&mut self, from: &str, to: &str, supervisor: &mut dyn Supervisor) -> Result<()> {
        let (index, next) = (self.client(from)?, self.client(to)?);
        supervisor.kill_guest(from)?;
        self.bury(index)?;
        for port in self.ports.iter_mut().filter(|p| p.nic.guest == from) {
            port.nic.close()?;
            port.frames.clear();
            (port.call_due, port.calls_open) = (false, 0);
        }
        self.relays.iter_mut().filter(|r| r.vm() == from).for_each(Relay::guest_gone);
        self.clients[next].state = State::Absent;
        supervisor.start_guest(to)?;
        if self.agenda.has_daemon {
            self.agenda.settling = true;
            self.send(DAEMON, op::BROADCAST, 0, 0)?;
        }
        Ok(())
    }

    /// Waits until a client that was killed has let go of its descriptors, so
    /// that all have seen its end at this simulated time.
    fn bury(&mut self, index: usize) -> Result<()> {
        self.calendar.withdraw(id(index));
        let client = &mut self.clients[index];
        if let Some(conn) = client.conn.take() {
            let what = || format!("waiting for the end of {}", client.name);
            conn.set_read_timeout(Some(self.settings.patience)).context(what)?;
            while client.inbox.fill(&conn).context(what)? {}
        }
        client.state = State::Gone;
        Ok(())
    }

    /// Something of an answer is there. When it is whole the daemon is asked
    /// for a sign that it has done with its events.
    fn answered(&mut self) -> Result<()> {
        let Some((exchange, action)) = &mut self.agenda.exchange else {
            return Ok(());
        };
        let Some(answer) = exchange.readable()? else {
            return Ok(());
        };
        self.agenda.records.push(actions::record(action, Some(answer))?);
        self.agenda.exchange = None;
        self.agenda.settling = true;
        self.send(DAEMON, op::BROADCAST, 0, 0)
    }

    fn send(&self, index: usize, op: u32, seq: u32, time: u64) -> Result<()> {
        let client = &self.clients[index];
        let Some(conn) = &client.conn else {
            return Ok(());
        };
        match fdmsg::send(conn, &Message { op, seq, time }.bytes(), &[]) {
            // It has just ended; the next read tells.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context(|| format!("sending to {}", client.name)),
        }
    }

    fn present(&self) -> Vec<&str> {
        let present = self.clients.iter().filter(|c| c.state != State::Gone);
        present.map(|c| c.name.as_str()).collect()
    }

    fn whom_we_wait_for(&self) -> String {
        let absent: Vec<_> = self.clients.iter().filter(|c| c.state == State::Absent).collect();
        if let Some(client) = absent.first() {
            return format!("{} has not connected", client.name);
        }
        if self.agenda.busy() {
            return "the daemon does not answer a request".into();
        }
        match self.running {
            Some(index) => format!("{} runs and does not wait", self.clients[index].name),
            None => {
                let deaf = self.ports.iter().find(|p| p.calls_open > 0);
                format!("{} does not take an interrupt", deaf.map_or("nobody", |p| &p.nic.guest))
            }
        }
    }

    fn stalled(&self, reason: &str) -> LabError {
        LabError::Stalled { at_s: self.calendar.now() as f64 / 1e9, reason: reason.to_owned() }
    }
}

/// What the guest at place `index` says in START.
pub fn guest_number(index: usize) -> u64 {
    GUESTS + index as u64
}

fn id(index: usize) -> u16 {
    index as u16 + 1
}

fn ring_error(nic: &Nic, error: crate::wire::RingError) -> LabError {
    LabError::protocol(&nic.guest, format!("NIC: {error}"))
}
