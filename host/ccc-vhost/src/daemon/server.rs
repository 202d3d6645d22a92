// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The event loop.
//!
//! One thread serves all VMs.  Coupling is one state that every message of
//! every VM changes, so threads would only wait for each other's lock; a
//! message is tens of nanoseconds of work; and with one thread the same
//! messages in the same order give the same result, which is what makes runs in
//! virtual time repeatable.
use std::{collections::BTreeMap, io, time::Duration};

use ccc_core::Micros;
use thiserror::Error;

use crate::{
    admin::channel::CommandReceiver,
    by_number::ByNumber,
    coupling::Coupling,
    daemon::signals::{Hangups, Signals},
    daemon::watchdog::Watchdog,
    device::budget::Budget,
    device::counters::Counters,
    device::{Context, Identity},
    event_loop::clock::{self, Clock, ClockError},
    event_loop::poll::{Poller, Token, Watch},
    event_loop::timers::Timers,
    settings::writer::StateWriter,
    tap::host::Unseen,
    vhost_user::backend::Backend,
    vhost_user::connection::{Connection, ConnectionError, Request},
    vhost_user::listener::Endpoint,
    vhost_user::message::Header,
    virtio::fault,
};

mod operators;
mod polling;
mod publishing;
mod taps;
mod unseen;
mod unserved;
mod uplinks;
mod vm;

use polling::Polling;
use publishing::Publishing;
pub use taps::Taps;
use vm::Vm;

/// Time after which a socket is looked at again on which nobody could be
/// accepted, microseconds.
const ACCEPT_AGAIN: Micros = 100_000;
/// Time after which a kick is taken again from a descriptor that had many for
/// nothing, microseconds.
const KICK_AGAIN: Micros = 1000;

/// Time after which the daemon may have stood still, microseconds.
const AWAY: Micros = 100_000;

/// What is said to who sends SIGHUP, for which other daemons read their configuration again.
const NO_RELOAD: &str = "SIGHUP does nothing: the configuration is read at the start only; ccc-vhost \
                         --config FILE --check looks at it, and systemctl restart ccc-vhost reads it, \
                         which resets no flow";

/// Why the daemon cannot go on.
#[derive(Debug, Error)]
pub enum ServerError {
    #[error("event loop failed")]
    Poll(#[from] io::Error),
    #[error(transparent)]
    Clock(#[from] ClockError),
    #[error("cannot make a device: {0}")]
    Device(#[from] virtio_queue::Error),
}

/// What a daemon is made of.
pub struct Parts {
    /// The engine, and what the operator decides.
    pub coupling: Coupling,
    /// One endpoint for each VM, by number.
    pub endpoints: BTreeMap<usize, Endpoint>,
    /// The time.
    pub clock: Clock,
    /// Where operators' requests come from.
    pub commands: Option<CommandReceiver>,
    /// Where their changes are kept.
    pub state_writer: Option<StateWriter>,
    /// What looks at taps.
    pub taps: Taps,
    /// What is caught from the start on, so that it ends nobody.
    pub hangups: Hangups,
}

/// The daemon.
pub struct Server {
    poller: Poller,
    clock: Clock,
    /// What a device may do in one turn.
    budget: Budget,
    coupling: Coupling,
    /// By the same numbers as in the settings.
    vms: ByNumber<Vm>,
    /// Queues with more in them than one turn takes.
    backlog: Vec<(usize, usize)>,
    publishing: Publishing,
    polling: Polling,
    timers: Timers,
    /// When something was last done.
    awake: Micros,
    /// Devices begun.
    beginnings: u32,
    commands: Option<CommandReceiver>,
    state_writer: Option<StateWriter>,
    taps: Taps,
    /// There are none to look at, until an operator changes something.
    taps_rest: bool,
    /// When taps are looked at again, in the engine's time.
    taps_due: Option<Micros>,
    /// VMs that are to be looked at and cannot be, with the tap that is not there, if one is
    /// named; each was told.
    unseen: BTreeMap<usize, Option<Unseen>>,
    _signals: Signals,
    hangups: Hangups,
    watchdog: Option<Watchdog>,
    _watches: Vec<Watch>,
}

impl Server {
    /// A daemon that serves its VMs at their endpoints.
    pub fn new(parts: Parts) -> Result<Server, ServerError> {
        let Parts { coupling, endpoints, clock, commands, state_writer, taps, hangups } = parts;
        let poller = Poller::new()?;
        let signals = Signals::catch()?;
        fault::catch()?;
        let mut watches = vec![
            poller.watch(signals.fd(), Token::Signal)?,
            poller.watch(hangups.fd(), Token::Hangup)?,
            poller.watch(clock.fd(), Token::Clock)?,
        ];
        if let Some(commands) = &commands {
            watches.push(poller.watch(commands.fd(), Token::Control)?);
        }
        if let Some(fd) = taps.fd() {
            watches.push(poller.watch(fd, Token::Taps)?);
        }
        let watchdog = Watchdog::start()?;
        if let Some(watchdog) = &watchdog {
            watches.push(poller.watch(watchdog.fd(), Token::Watchdog)?);
        }
        let names = coupling.settings().vms.iter();
        let names: Vec<_> = names.map(|(number, vm)| (*number, vm.name.clone())).collect();
        let polling = Polling::new(&coupling.settings().daemon, &clock);
        let budget = if clock.is_virtual() { Budget::ALL } else { Budget::TURN };
        let mut server = Server {
            poller,
            clock,
            budget,
            coupling,
            vms: ByNumber::default(),
            backlog: Vec::new(),
            publishing: Publishing::default(),
            polling,
            timers: Timers::default(),
            awake: clock::monotonic(),
            beginnings: 0,
            commands,
            state_writer,
            taps,
            taps_rest: false,
            taps_due: None,
            unseen: BTreeMap::new(),
            _signals: signals,
            hangups,
            watchdog,
            _watches: watches,
        };
        for ((number, name), endpoint) in names.into_iter().zip(endpoints.into_values()) {
            server.open(number, name, endpoint)?;
        }
        Ok(server)
    }

    /// Serves a VM from now on.
    fn open(&mut self, number: usize, name: String, endpoint: Endpoint) -> io::Result<()> {
        self.vms.insert(number, Vm::new(name, endpoint, &self.poller, number)?);
        Ok(())
    }

    /// Serves until a signal says to stop, or until nobody can come any more.
    pub fn run(mut self) -> Result<(), ServerError> {
        for index in self.vms.keys().copied().collect::<Vec<_>>() {
            if self.vms[&index].endpoint.listening().is_none() {
                self.accept(index)?;
            }
        }
        self.begin_with_taps();
        self.begin_with_unserved();
        self.polling.tell();
        log::info!("serving {} VMs", self.vms.len());
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            log::warn!("cannot tell the service manager that it is served: {error}");
        }
        while self.reachable() {
            let tokens = self.poller.wait(self.rest())?;
            let idle = tokens.is_empty();
            for token in tokens {
                if token == Token::Signal {
                    self.report("a signal asks for (SIGTERM or SIGINT)");
                    return Ok(());
                }
                self.see_ends()?;
                self.dispatch(token)?;
                self.see_faults()?;
            }
            self.wake()?;
            self.work_off()?;
            self.publish_left(idle)?;
            while self.clock.pending() {
                self.tick()?;
            }
            self.poll()?;
        }
        self.report("nobody can come any more");
        Ok(())
    }

    /// How long to wait for events: not at all if there is work left to do.
    fn rest(&self) -> Option<Duration> {
        if self.backlog.is_empty() && !self.publishing.is_left() && !self.polling.is_on() {
            self.timers.rest(clock::monotonic())
        } else {
            Some(Duration::ZERO)
        }
    }

    /// Does what is due.
    fn wake(&mut self) -> Result<(), ServerError> {
        let now = clock::monotonic();
        for token in self.timers.take(now) {
            self.see_ends()?;
            match token {
                Token::Listener(vm) => self.listen(vm)?,
                Token::Connection(vm) => self.end_unfinished(vm, now)?,
                Token::Kick(vm, queue) => self.listen_for_kicks(vm, queue)?,
                Token::Taps => self.look_at_taps(),
                Token::Trial => self.end_trials()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn listen_for_kicks(&mut self, vm: usize, queue: usize) -> io::Result<()> {
        let Some(connection) = self.connection(vm) else { return Ok(()) };
        connection.backend().kicks(queue).map_or(Ok(()), |(vring, _)| vring.listen())
    }

    /// Ends a connection whose message has not become whole in time.
    fn end_unfinished(&mut self, vm: usize, now: Micros) -> Result<(), ServerError> {
        let Some(connection) = self.connection(vm) else { return Ok(()) };
        match connection.deadline() {
            Some(deadline) if deadline <= now => {
                let why = connection.incomplete();
                self.disconnect(vm, &why.into())
            }
            Some(deadline) => {
                self.timers.wake(Token::Connection(vm), deadline);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Disconnects VMs whose front ends have gone, before anything else is done, if
    /// the daemon may have stood still.  A front end does not wait for ever for a
    /// daemon that hangs, and its guest uses the memory for something else then.
    fn see_ends(&mut self) -> Result<(), ServerError> {
        let now = clock::monotonic();
        let away = now.saturating_sub(std::mem::replace(&mut self.awake, now)) > AWAY;
        if !away || self.clock.is_virtual() {
            return Ok(());
        }
        loop {
            let ended = self.poller.ended()?;
            if ended.is_empty() {
                return Ok(());
            }
            for vm in ended {
                self.disconnect(vm, &ConnectionError::CLOSED)?;
            }
        }
    }

    /// Disconnects VMs whose memory was not there in this turn.
    fn see_faults(&mut self) -> Result<(), ServerError> {
        // The end of one may be where another's is seen.
        while fault::taken() {
            let faulted = |vm: &Vm| vm.connection.as_ref().is_some_and(|c| c.backend().faulted());
            let them = self.vms.iter().filter(|(_, vm)| faulted(vm)).map(|(number, _)| *number);
            for vm in them.collect::<Vec<_>>() {
                self.disconnect(vm, &ConnectionError::Memory)?;
            }
        }
        Ok(())
    }

    /// Somebody can come, if only an operator who adds a VM.
    fn reachable(&self) -> bool {
        let open = |vm: &Vm| {
            vm.connection.is_some()
                || vm.endpoint.listening().is_some()
                || vm.endpoint.trouble().is_some()
        };
        self.vms.values().any(open) || (self.vms.is_empty() && self.commands.is_some())
    }

    fn dispatch(&mut self, token: Token) -> Result<(), ServerError> {
        match token {
            Token::Signal | Token::Trial => Ok(()),
            Token::Watchdog => {
                self.watchdog.iter().for_each(Watchdog::tell);
                Ok(())
            }
            Token::Hangup => {
                self.hangups.take();
                log::warn!("{NO_RELOAD}");
                Ok(())
            }
            Token::Clock => self.tick(),
            Token::Control => self.operate(),
            Token::Taps => self.take_taps(),
            Token::Listener(vm) => self.accept(vm),
            Token::Connection(vm) => self.receive(vm),
            Token::Kick(vm, queue) => self.kick(vm, queue),
        }
    }

    fn tick(&mut self) -> Result<(), ServerError> {
        if self.clock.take()? {
            self.coupling.tick(self.clock.now());
            self.look_at_laboratory();
            self.publish()?;
            self.clock.rest()?;
        }
        Ok(())
    }

    fn accept(&mut self, number: usize) -> Result<(), ServerError> {
        if self.connection(number).is_some_and(Connection::gone) {
            self.disconnect(number, &ConnectionError::CLOSED)?;
        }
        let Some(vm) = self.vms.get_mut(&number) else { return Ok(()) };
        let stream = match vm.accept() {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(()),
            Err(_) => {
                self.timers.wake(Token::Listener(number), clock::monotonic() + ACCEPT_AGAIN);
                return Ok(());
            }
        };
        self.beginnings = self.beginnings.wrapping_add(1);
        let instance = self.clock.instance(self.beginnings);
        let identity = Identity { vm: number, instance, budget: self.budget };
        let max_memory_bytes = self.coupling.settings().daemon.max_memory_bytes_per_vm();
        let counters = Counters::new(&vm.name);
        let backend = Backend::new(identity, counters, self.poller.clone(), max_memory_bytes)?;
        let synchronous = self.clock.is_virtual();
        vm.connect(Connection::new(stream, backend, &self.poller, number, synchronous));
        Ok(())
    }

    /// Takes what a front end has sent.
    fn receive(&mut self, vm: usize) -> Result<(), ServerError> {
        let Some(connection) = connected(&mut self.vms, vm) else { return Ok(()) };
        match connection.serve(clock::monotonic()) {
            Ok(Request::None) => {
                if let Some(deadline) = connection.deadline() {
                    self.timers.wake(Token::Connection(vm), deadline);
                }
                Ok(())
            }
            Ok(Request::Answered) => self.turn(vm, None, None),
            Ok(Request::Kick(queue, header)) => self.turn(vm, Some(queue), Some((header, true))),
            Ok(Request::Enable(done, header)) => self.turn(vm, None, Some((header, done))),
            Err(error) => self.disconnect(vm, &error),
        }
    }

    fn kick(&mut self, vm: usize, queue: usize) -> Result<(), ServerError> {
        let Some(connection) = self.connection(vm) else { return Ok(()) };
        let mut backend = connection.backend();
        let Some((vring, _)) = backend.kicks(queue) else { return Ok(()) };
        let kicked = vring.take_kick().unwrap_or_else(|error| {
            let why = format!("cannot take kicks of queue {queue} any more: {error}");
            backend.device_mut().counters_mut().warn(&why);
            false
        });
        if kicked {
            backend.kicked(queue);
        }
        drop(backend);
        if kicked {
            self.turn(vm, Some(queue), None)?;
        }
        self.rest_from_kicks(vm, queue);
        Ok(())
    }

    /// A descriptor with kicks for nothing is left alone for a while.
    fn rest_from_kicks(&mut self, vm: usize, queue: usize) {
        let Some(connection) = self.connection(vm) else { return };
        let rests = connection.backend().kicks(queue).is_some_and(|(vring, at)| vring.rest(at));
        if rests {
            self.timers.wake(Token::Kick(vm, queue), clock::monotonic() + KICK_AGAIN);
        }
    }

    /// Gives each queue in the backlog one more turn.
    fn work_off(&mut self) -> Result<(), ServerError> {
        for (vm, queue) in std::mem::take(&mut self.backlog) {
            self.see_ends()?;
            self.turn(vm, Some(queue), None)?;
            self.see_faults()?;
        }
        Ok(())
    }

    /// All that is ever done for a VM: its device serves a queue, if one has
    /// something in it, and what stopped and started queues leave to do; every VM
    /// sees its grants, if not at once then soon; its driver is called; and a message
    /// that brought this about is answered when that is done (in real time, what one
    /// turn takes of it).
    fn turn(
        &mut self,
        vm: usize,
        queue: Option<usize>,
        answer: Option<(Header, bool)>,
    ) -> Result<(), ServerError> {
        self.begin_poll(vm);
        let Some(connection) = connected(&mut self.vms, vm) else { return Ok(()) };
        let mut context = Context { engine: &mut self.coupling, now: self.clock.now() };
        let more = connection.backend().device_mut().turn(queue, &mut context);
        for queue in more {
            // It has another turn when the others have had theirs.
            if !self.backlog.contains(&(vm, queue)) {
                self.backlog.push((vm, queue));
            }
        }
        self.publish_soon(answer.is_some())?;
        let Some(connection) = connected(&mut self.vms, vm) else { return Ok(()) };
        let called = connection.call(answer.is_some());
        match (called, answer) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some((header, done))) => match connection.reply(&header, done) {
                Ok(()) => Ok(()),
                Err(error) => self.disconnect(vm, &error.into()),
            },
            (Err(error), Some(_)) => self.disconnect(vm, &error.into()),
            (Err(error), None) => {
                let why = format!("cannot call its driver: {error}");
                connection.backend().device_mut().counters_mut().warn(&why);
                Ok(())
            }
        }
    }

    fn disconnect(&mut self, number: usize, why: &ConnectionError) -> Result<(), ServerError> {
        let Some(vm) = self.vms.get_mut(&number) else { return Ok(()) };
        let Some(connection) = vm.connection.take() else { return Ok(()) };
        let mut backend = connection.backend();
        let flows = backend.device().flows();
        backend.end();
        let mut context = Context { engine: &mut self.coupling, now: self.clock.now() };
        backend.device_mut().turn(None, &mut context);
        std::mem::swap(&mut vm.counters, backend.device_mut().counters_mut());
        vm.say_disconnected(why, flows);
        drop(backend);
        self.backlog.retain(|(other, _)| *other != number);
        self.polling.forget(number);
        self.publish_soon(false)
    }

    /// Says why it ends, and what it did.
    fn report(&self, why: &str) {
        log::info!("ends, as {why}");
        for vm in self.vms.values() {
            if let Some(connection) = &vm.connection {
                log::info!(VM = vm.name.as_str(); "VM {}: {}", vm.name, connection.backend().device().counters());
            }
        }
    }

    fn connection(&self, vm: usize) -> Option<&Connection> {
        self.vms.get(&vm).and_then(|vm| vm.connection.as_ref())
    }
}

fn connected(vms: &mut ByNumber<Vm>, vm: usize) -> Option<&mut Connection> {
    vms.get_mut(&vm).and_then(|vm| vm.connection.as_mut())
}
