// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The one clock of a run: lets clients run one at a time, in the order of
//! simulated time.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use super::calendar::Calendar;
use super::message::{TimeMessage, op};
use crate::error::{Context, LabError, Result};
use crate::ipc::inbox::{self, Inbox};
use crate::ipc::poller::{Origin, Polled, Poller};

/// A client may run this long before it has to look in again, so that
/// progress is seen even when it has nobody to wait for.
const SLICE_NS: u64 = 1_000_000_000;
/// START numbers of the guests begin here.
const GUESTS: u64 = 0x10000;
/// Place of the daemon among the clients.
pub const DAEMON: usize = 0;

/// What the scheduler needs to know of a run.
pub struct Settings {
    /// Wall clock of the guests at simulated time 0.
    pub clock_start_ns: u64,
    /// Simulated time by which all guests must have ended.
    pub end_ns: u64,
    /// Time asleep, or at work, without progress that counts as a standstill.
    pub patience: Duration,
}

/// What came of a client's messages.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing that concerns others.
    Handled,
    /// It has answered a BROADCAST.
    Acknowledged,
    /// It has closed its connection.
    Left,
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
    conn: Option<Polled<UnixStream>>,
    inbox: Inbox,
}

/// Scheduler of one run.
pub struct Scheduler {
    settings: Settings,
    calendar: Calendar,
    poller: Poller,
    listener: Polled<UnixListener>,
    /// Connected, but not yet said who they are; by number.
    newcomers: BTreeMap<u64, (Polled<UnixStream>, Inbox)>,
    /// How many there were.
    arrived: u64,
    /// Client n has id n + 1.
    clients: Vec<Client>,
    running: Option<usize>,
    log: std::fs::File,
}

impl Scheduler {
    /// Listens on `path` for the clients of these names. In START guest n of
    /// the list says [`guest_number`]`(n)`; any other number is the first
    /// client's, the daemon's, which knows nothing of the others. The order is
    /// also that of the starts and of equal run times.
    pub fn new(
        path: &Path,
        names: Vec<String>,
        settings: Settings,
        poller: &Poller,
    ) -> Result<Self> {
        let client = |name| Client {
            name,
            began: 0,
            state: State::Absent,
            conn: None,
            inbox: Inbox::default(),
        };
        let null = Path::new("/dev/null");
        let listener = UnixListener::bind(path).on("listening on", path)?;
        Ok(Self {
            settings,
            calendar: Calendar::new(names.len() as u16)?,
            listener: poller.add(listener, Origin::Listener).on("watching", path)?,
            poller: poller.clone(),
            newcomers: BTreeMap::new(),
            arrived: 0,
            clients: names.into_iter().map(client).collect(),
            running: None,
            log: std::fs::File::options().write(true).open(null).on("opening", null)?,
        })
    }

    /// The calendar that all clients share.
    pub fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// Simulated time and the number of arrivals: one grows while the run goes on.
    pub fn progress(&self) -> (u64, u64) {
        (self.calendar.now(), self.arrived)
    }

    /// Place of the client with this name.
    pub fn client(&self, name: &str) -> Result<usize> {
        let place = self.clients.iter().position(|c| c.name == name);
        place.ok_or_else(|| LabError::protocol(name, "is not part of this run"))
    }

    /// Name of the client at this place.
    pub fn name(&self, index: usize) -> &str {
        &self.clients[index].name
    }

    /// Whether a client is there, or still to come, that is none of these.
    pub fn has_any_but(&self, background: &[&str]) -> bool {
        let counts = |c: &Client| c.state != State::Gone && !background.contains(&c.name.as_str());
        self.clients.iter().any(counts)
    }

    /// Whether time can go on: nobody runs or has yet to connect.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && !self.clients.iter().any(|c| c.state == State::Absent)
    }

    /// A client will be started later.
    pub fn comes_later(&mut self, index: usize) {
        self.clients[index].state = State::Later;
    }

    /// A client is being started; time stands still until it has connected.
    pub fn expect(&mut self, index: usize) {
        self.clients[index].state = State::Absent;
    }

    /// A client was killed.
    pub fn forget(&mut self, index: usize) {
        self.calendar.withdraw(id(index));
        let client = &mut self.clients[index];
        (client.conn, client.inbox, client.state) = (None, Inbox::default(), State::Gone);
    }

    /// Waits until a client that was killed has let go of its descriptors, so
    /// that all have seen its end at this simulated time.
    pub fn reap(&mut self, index: usize) -> Result<()> {
        let client = &mut self.clients[index];
        if let Some(conn) = client.conn.take() {
            let what = || format!("waiting for the end of {}", client.name);
            conn.set_read_timeout(Some(self.settings.patience)).context(what)?;
            while client.inbox.fill(&conn).context(what)? {}
        }
        self.forget(index);
        Ok(())
    }

    /// A client has connected.
    pub fn accept(&mut self) -> Result<()> {
        let (conn, _) = self.listener.accept().context(|| "accepting a client".into())?;
        let conn = self.poller.add(conn, Origin::Newcomer(self.arrived));
        let conn = conn.context(|| "watching a new client".into())?;
        self.newcomers.insert(self.arrived, (conn, Inbox::default()));
        self.arrived += 1;
        Ok(())
    }

    /// A newcomer's first message says which client it is.
    pub fn newcomer_readable(&mut self, number: u64) -> Result<()> {
        let Some((conn, mut inbox)) = self.newcomers.remove(&number) else {
            return Ok(());
        };
        if !inbox.fill(&conn).context(|| "reading from a new client".into())? {
            return Ok(());
        }
        let Some(message) = TimeMessage::next(&mut inbox) else {
            self.newcomers.insert(number, (conn, inbox));
            return Ok(());
        };
        if message.op != op::START {
            return Err(LabError::protocol("a new client", "its first message is not START"));
        }
        let known = (0..self.clients.len()).find(|&n| guest_number(n) == message.time);
        let index = known.unwrap_or(DAEMON);
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

    /// Handles the messages of a client.
    pub fn client_readable(&mut self, index: usize) -> Result<Received> {
        let client = &mut self.clients[index];
        let Some(conn) = &client.conn else {
            return Ok(Received::Handled);
        };
        if !client.inbox.fill(conn).context(|| format!("reading from {}", client.name))? {
            self.forget(index);
            self.running = self.running.filter(|&running| running != index);
            return Ok(Received::Left);
        }
        let mut received = Received::Handled;
        while let Some(message) = TimeMessage::next(&mut self.clients[index].inbox) {
            if message.op == op::ACK {
                received = Received::Acknowledged;
            } else {
                self.handle(index, &message)?;
            }
        }
        Ok(received)
    }

    fn handle(&mut self, index: usize, message: &TimeMessage) -> Result<()> {
        let answer = match message.op {
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

    /// Answers the next START that waits for it; false if none does. A START
    /// answered late is a run at the present time.
    pub fn start_next(&mut self) -> Result<bool> {
        let next = self.clients.iter().enumerate().find_map(|(index, c)| match c.state {
            State::Starting { seq } => Some((index, seq)),
            _ => None,
        });
        let Some((index, seq)) = next else {
            return Ok(false);
        };
        let now = self.calendar.now();
        self.let_run(index, now, now);
        let ack = TimeMessage { op: op::ACK, seq, time: id(index).into() }.bytes();
        let fds = [self.calendar.file().as_raw_fd(), self.log.as_raw_fd()];
        let client = &self.clients[index];
        if let Some(conn) = &client.conn {
            inbox::send(conn, &ack, &fds).context(|| format!("starting {}", client.name))?;
        }
        Ok(true)
    }

    /// When the next client wants to run.
    pub fn next_at(&self) -> Option<u64> {
        self.calendar.next().map(|(time, _)| time)
    }

    /// Lets the next client run, at most to the time when something else is due.
    pub fn run_next(&mut self, due: Option<u64>) -> Result<()> {
        let Some((time, next)) = self.calendar.next() else {
            return Err(self.stalled("nobody has anything left to do"));
        };
        let end_ns = self.settings.end_ns;
        if time > end_ns {
            let present = self.clients.iter().filter(|c| c.state != State::Gone);
            let present: Vec<_> = present.map(|c| c.name.as_str()).collect();
            let reason =
                format!("the run should have ended, but {} is still there", present.join(", "));
            return Err(self.stalled(&reason));
        }
        let index = usize::from(next) - 1;
        let limit = (time + SLICE_NS).min(end_ns + 1).min(due.unwrap_or(u64::MAX));
        self.let_run(index, time, limit);
        self.send(index, op::RUN, 0, time - self.clients[index].began)
    }

    fn let_run(&mut self, index: usize, time: u64, limit: u64) {
        self.calendar.grant(id(index), time, limit);
        self.clients[index].state = State::Running;
        self.running = Some(index);
    }

    /// Asks a client for a sign that it has done with its events.
    pub fn broadcast(&self, index: usize) -> Result<()> {
        self.send(index, op::BROADCAST, 0, 0)
    }

    fn send(&self, index: usize, op: u32, seq: u32, time: u64) -> Result<()> {
        let client = &self.clients[index];
        let Some(conn) = &client.conn else {
            return Ok(());
        };
        match inbox::send(conn, &TimeMessage { op, seq, time }.bytes(), &[]) {
            // It has just ended; the next read tells.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context(|| format!("sending to {}", client.name)),
        }
    }

    /// The client that time cannot go on without, and why.
    pub fn waits_for(&self) -> Option<String> {
        let absent = self.clients.iter().find(|c| c.state == State::Absent);
        let running =
            self.running.map(|index| format!("{} runs and does not wait", self.name(index)));
        absent.map(|client| format!("{} has not connected", client.name)).or(running)
    }

    /// An error that says that time cannot go on.
    pub fn stalled(&self, reason: &str) -> LabError {
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
