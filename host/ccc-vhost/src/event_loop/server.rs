// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The event loop.
//!
//! One thread serves all VMs.  Coupling is one state that every message of
//! every VM changes, so threads would only wait for each other's lock; a
//! message is tens of nanoseconds of work; and with one thread the same
//! messages in the same order give the same result, which is what makes runs in
//! virtual time repeatable.
use std::{collections::BTreeMap, io, os::fd::AsFd, time::Duration};

use ccc_core::Micros;
use log::Level;
use thiserror::Error;

use crate::{
    admin::channel::CommandReceiver,
    coupling::{Coupling, Turn},
    daemon::limit::Limiter,
    daemon::signals::Signals,
    daemon::watchdog::Watchdog,
    device::counters::Counters,
    device::{Device, Identity},
    event_loop::clock::{self, Clock, ClockError},
    event_loop::poll::{Poller, Token, Watch},
    event_loop::timers::Timers,
    settings::writer::StateWriter,
    vhost_user::connection::{Connection, ConnectionError, Request},
    vhost_user::listener::Endpoint,
    vhost_user::message::{Header, MessageError},
    virtio::fault,
    virtio::vring::Vring,
};

mod operators;

/// Lines at once about front ends of a VM that come and go.
const LINES: u64 = 10;
/// Time after which a socket is looked at again on which nobody could be
/// accepted, microseconds.
const ACCEPT_AGAIN: Micros = 100_000;
/// Time after which a kick is taken again from a descriptor that had many for
/// nothing, microseconds.
const KICK_AGAIN: Micros = 1000;

/// Time after which the daemon may have stood still, microseconds.
const AWAY: Micros = 100_000;

/// Why the daemon cannot go on.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Waiting for events failed.
    #[error("event loop failed")]
    Poll(#[from] io::Error),
    /// Time stands still.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// A device could not be made.
    #[error("cannot make a device: {0}")]
    Device(#[from] virtio_queue::Error),
}

/// One VM.
struct Vm {
    name: String,
    endpoint: Endpoint,
    connection: Option<Connection>,
    counters: Counters,
    watch: Option<Watch>,
    lines: Limiter,
}

impl Vm {
    /// Says what its front ends do, but not as often as they like.
    fn say(&mut self, level: Level, what: &dyn std::fmt::Display) {
        self.lines.say(level, &self.name, clock::monotonic(), what);
    }
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
}

/// The daemon.
pub struct Server {
    poller: Poller,
    clock: Clock,
    coupling: Coupling,
    /// By the same numbers as in the settings.
    vms: BTreeMap<usize, Vm>,
    /// Queues with more in them than one turn takes.
    backlog: Vec<(usize, usize)>,
    timers: Timers,
    /// When something was last done.
    awake: Micros,
    /// Devices begun.
    beginnings: u32,
    commands: Option<CommandReceiver>,
    state_writer: Option<StateWriter>,
    signals: Signals,
    watchdog: Option<Watchdog>,
    _watches: Vec<Watch>,
}

impl Server {
    /// A daemon that serves its VMs at their endpoints.
    pub fn new(parts: Parts) -> Result<Server, ServerError> {
        let Parts { coupling, endpoints, clock, commands, state_writer } = parts;
        let poller = Poller::new()?;
        let signals = Signals::catch()?;
        fault::catch()?;
        let mut watches = vec![
            poller.watch(signals.as_fd(), Token::Signal)?,
            poller.watch(clock.fd(), Token::Clock)?,
        ];
        if let Some(commands) = &commands {
            watches.push(poller.watch(commands.fd(), Token::Control)?);
        }
        let watchdog = Watchdog::start()?;
        if let Some(watchdog) = &watchdog {
            watches.push(poller.watch(watchdog.fd(), Token::Watchdog)?);
        }
        let names = coupling.settings().vms.iter();
        let names: Vec<_> = names.map(|(number, vm)| (*number, vm.name.clone())).collect();
        let mut server = Server {
            poller,
            clock,
            coupling,
            vms: BTreeMap::new(),
            backlog: Vec::new(),
            timers: Timers::default(),
            awake: clock::monotonic(),
            beginnings: 0,
            commands,
            state_writer,
            signals,
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
        let watch = match endpoint.listening() {
            Some(fd) => Some(self.poller.watch(fd, Token::Listener(number))?),
            None => None,
        };
        let counters = Counters::default();
        let lines = Limiter::new(LINES);
        self.vms.insert(number, Vm { name, endpoint, connection: None, counters, watch, lines });
        Ok(())
    }

    /// Serves until a signal says to stop, or until nobody can come any more.
    pub fn run(mut self) -> Result<(), ServerError> {
        for index in self.vms.keys().copied().collect::<Vec<_>>() {
            if self.vms[&index].endpoint.listening().is_none() {
                self.accept(index)?;
            }
        }
        log::info!("serving {} VMs", self.vms.len());
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            log::warn!("cannot tell the service manager that it is served: {error}");
        }
        while self.reachable() {
            for token in self.poller.wait(self.rest())? {
                if token == Token::Signal {
                    log::debug!("asked to stop on {:?}", self.signals.as_fd());
                    self.report();
                    return Ok(());
                }
                self.see_ends()?;
                self.dispatch(token)?;
                self.see_faults()?;
            }
            self.wake()?;
            self.work_off()?;
            while self.clock.pending() {
                self.tick()?;
            }
        }
        self.report();
        Ok(())
    }

    /// How long to wait for events: not at all if there is work left to do.
    fn rest(&self) -> Option<Duration> {
        if self.backlog.is_empty() {
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
                Token::Listener(index) => self.listen(index)?,
                Token::Connection(index) => self.end_unfinished(index, now)?,
                Token::Kick(index, queue) => self.listen_for_kicks(index, queue)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits for front ends again.
    fn listen(&mut self, index: usize) -> io::Result<()> {
        let watch = self.vms.get_mut(&index).and_then(|vm| vm.watch.as_mut());
        watch.map_or(Ok(()), Watch::resume)
    }

    fn listen_for_kicks(&mut self, index: usize, queue: usize) -> io::Result<()> {
        let Some(connection) = connected(&self.vms, index) else { return Ok(()) };
        connection.device().vrings.get_mut(queue).map_or(Ok(()), Vring::listen)
    }

    /// Ends a connection whose message has not become whole in time.
    fn end_unfinished(&mut self, index: usize, now: Micros) -> Result<(), ServerError> {
        let Some(connection) = connected(&self.vms, index) else { return Ok(()) };
        match connection.deadline() {
            Some(deadline) if deadline <= now => {
                let why = connection.incomplete();
                self.disconnect(index, &why.into())
            }
            Some(deadline) => {
                self.timers.wake(Token::Connection(index), deadline);
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
            for index in ended {
                self.disconnect(index, &MessageError::Closed.into())?;
            }
        }
    }

    /// Disconnects VMs whose memory was not there in this turn.
    fn see_faults(&mut self) -> Result<(), ServerError> {
        // The end of one may be where another's is seen.
        while fault::taken() {
            let faulted = |vm: &Vm| vm.connection.as_ref().is_some_and(|c| c.device().faulted());
            let them = self.vms.iter().filter(|(_, vm)| faulted(vm)).map(|(index, _)| *index);
            for index in them.collect::<Vec<_>>() {
                self.disconnect(index, &ConnectionError::Memory)?;
            }
        }
        Ok(())
    }

    /// Somebody can come, if only an operator who adds a VM.
    fn reachable(&self) -> bool {
        let open = |vm: &Vm| vm.connection.is_some() || vm.endpoint.listening().is_some();
        self.vms.values().any(open) || (self.vms.is_empty() && self.commands.is_some())
    }

    fn dispatch(&mut self, token: Token) -> Result<(), ServerError> {
        match token {
            Token::Signal => Ok(()),
            Token::Watchdog => {
                self.watchdog.iter().for_each(Watchdog::tell);
                Ok(())
            }
            Token::Clock => self.tick(),
            Token::Control => self.operate(),
            Token::Listener(index) => self.accept(index),
            Token::Connection(index) => self.serve(index),
            Token::Kick(index, queue) => self.kick(index, queue),
        }
    }

    fn tick(&mut self) -> Result<(), ServerError> {
        if self.clock.take()? {
            self.coupling.engine.tick(self.clock.now());
            self.after()?;
            self.clock.rest()?;
        }
        Ok(())
    }

    fn accept(&mut self, index: usize) -> Result<(), ServerError> {
        if connected(&self.vms, index).is_some_and(Connection::gone) {
            self.disconnect(index, &MessageError::Closed.into())?;
        }
        let Some(vm) = self.vms.get_mut(&index) else { return Ok(()) };
        let stream = match vm.endpoint.accept() {
            Ok(Some(stream)) => stream,
            Ok(None) => return Ok(()),
            Err(error) => {
                // Most likely there are no descriptors left: the front end waits
                // in the queue of the socket, and is there until some are.
                vm.say(Level::Warn, &format_args!("cannot accept its front end: {error}"));
                if let Some(watch) = &mut vm.watch {
                    watch.pause();
                }
                self.timers.wake(Token::Listener(index), clock::monotonic() + ACCEPT_AGAIN);
                return Ok(());
            }
        };
        if vm.connection.is_some() {
            vm.say(Level::Warn, &"refused a second front end");
            return Ok(());
        }
        self.beginnings = self.beginnings.wrapping_add(1);
        let identity = Identity {
            name: vm.name.clone(),
            index,
            instance: self.clock.instance(self.beginnings),
            max_memory: self.coupling.settings().daemon.max_memory_bytes_per_vm(),
        };
        let device = Device::new(identity, self.poller.clone(), Counters::default())?;
        let synchronous = self.clock.is_virtual();
        match Connection::new(stream, device, &self.poller, index, synchronous) {
            Ok(connection) => {
                vm.say(Level::Info, &"connected");
                connection.device().counters = std::mem::take(&mut vm.counters);
                vm.connection = Some(connection);
            }
            Err(error) => {
                vm.say(Level::Warn, &format_args!("cannot take its front end: {error}"));
            }
        }
        Ok(())
    }

    fn serve(&mut self, index: usize) -> Result<(), ServerError> {
        let vm = self.vms.get_mut(&index);
        let Some(connection) = vm.and_then(|vm| vm.connection.as_mut()) else { return Ok(()) };
        match connection.serve(clock::monotonic()) {
            Ok(Request::None) => {
                if let Some(deadline) = connection.deadline() {
                    self.timers.wake(Token::Connection(index), deadline);
                }
                Ok(())
            }
            Ok(Request::Answered) => {
                self.settle(index);
                self.after()?;
                self.call(index, false);
                Ok(())
            }
            Ok(Request::Kick(queue, header)) => {
                self.process(index, queue);
                self.answer(index, &header, true)
            }
            Ok(Request::Enable(done, header)) => {
                self.settle(index);
                self.answer(index, &header, done)
            }
            Err(error) => self.disconnect(index, &error),
        }
    }

    /// Everything a message brings about is done before it is answered; in real
    /// time, all that is done in one turn.
    fn answer(&mut self, index: usize, header: &Header, done: bool) -> Result<(), ServerError> {
        self.after()?;
        let Some(connection) = connected_mut(&mut self.vms, index) else { return Ok(()) };
        let answered = connection.call(true).and_then(|()| connection.reply(header, done));
        match answered {
            Ok(()) => Ok(()),
            Err(error) => self.disconnect(index, &error.into()),
        }
    }

    fn kick(&mut self, index: usize, queue: usize) -> Result<(), ServerError> {
        let Some(connection) = connected(&self.vms, index) else { return Ok(()) };
        let mut device = connection.device();
        let Some(vring) = device.vrings.get_mut(queue) else { return Ok(()) };
        let taken = vring.take_kick();
        let kicked = taken.unwrap_or_else(|error| {
            device.warn(&format_args!("cannot take kicks of queue {queue} any more: {error}"));
            false
        });
        drop(device);
        if kicked {
            self.process(index, queue);
            self.after()?;
            self.call(index, false);
        }
        self.rest_from_kicks(index, queue);
        Ok(())
    }

    /// A descriptor with kicks for nothing is left alone for a while.
    fn rest_from_kicks(&mut self, index: usize, queue: usize) {
        let Some(connection) = connected(&self.vms, index) else { return };
        if connection.device().vrings.get_mut(queue).is_some_and(Vring::rest) {
            self.timers.wake(Token::Kick(index, queue), clock::monotonic() + KICK_AGAIN);
        }
    }

    /// Gives each queue in the backlog one more turn.
    fn work_off(&mut self) -> Result<(), ServerError> {
        for (index, queue) in std::mem::take(&mut self.backlog) {
            self.see_ends()?;
            self.process(index, queue);
            self.after()?;
            self.call(index, false);
            self.see_faults()?;
        }
        Ok(())
    }

    fn process(&mut self, index: usize, queue: usize) {
        let Some(connection) = connected(&self.vms, index) else { return };
        let mut turn = Turn { coupling: &mut self.coupling, now: self.clock.now() };
        let more = connection.device().process(queue, &mut turn);
        if more {
            self.put_off(index, queue);
        }
        self.settle(index);
    }

    /// A queue has another turn when the others have had theirs.
    fn put_off(&mut self, index: usize, queue: usize) {
        if !self.backlog.contains(&(index, queue)) {
            self.backlog.push((index, queue));
        }
    }

    fn settle(&mut self, index: usize) {
        let Some(connection) = connected(&self.vms, index) else { return };
        let mut turn = Turn { coupling: &mut self.coupling, now: self.clock.now() };
        let more = connection.device().settle(&mut turn);
        for queue in more {
            self.put_off(index, queue);
        }
    }

    /// After the engine was used: every VM sees its grants, and the clock knows
    /// when the engine wants to be woken.
    fn after(&mut self) -> Result<(), ServerError> {
        if self.coupling.take_changed() {
            for connection in self.vms.values().filter_map(|vm| vm.connection.as_ref()) {
                connection.device().publish(&self.coupling);
            }
        }
        self.clock.wake_at(self.coupling.engine.next_deadline())?;
        Ok(())
    }

    fn call(&mut self, index: usize, within_kick: bool) {
        let Some(connection) = connected_mut(&mut self.vms, index) else { return };
        if let Err(error) = connection.call(within_kick) {
            connection.device().warn(&format_args!("cannot call its driver: {error}"));
        }
    }

    fn disconnect(&mut self, index: usize, why: &ConnectionError) -> Result<(), ServerError> {
        let Some(vm) = self.vms.get_mut(&index) else { return Ok(()) };
        let Some(connection) = vm.connection.take() else { return Ok(()) };
        let mut device = connection.device();
        let flows = device.flows();
        device.end();
        device.settle(&mut Turn { coupling: &mut self.coupling, now: self.clock.now() });
        vm.counters = device.take_counters();
        if matches!(why, ConnectionError::Message(MessageError::Closed)) {
            let line = format!("disconnected with {flows} flows; {}", vm.counters);
            vm.say(Level::Info, &line);
        } else {
            let line = format!("disconnected: {why}; {}", vm.counters);
            vm.say(Level::Warn, &line);
        }
        drop(device);
        self.backlog.retain(|(other, _)| *other != index);
        self.after()
    }

    fn report(&self) {
        for vm in self.vms.values() {
            if let Some(connection) = &vm.connection {
                log::info!("VM {}: {}", vm.name, connection.device().counters());
            }
        }
    }
}

fn connected(vms: &BTreeMap<usize, Vm>, index: usize) -> Option<&Connection> {
    vms.get(&index).and_then(|vm| vm.connection.as_ref())
}

fn connected_mut(vms: &mut BTreeMap<usize, Vm>, index: usize) -> Option<&mut Connection> {
    vms.get_mut(&index).and_then(|vm| vm.connection.as_mut())
}
