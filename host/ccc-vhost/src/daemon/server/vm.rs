// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One VM, with and without a front end.
use std::{fmt::Display, io};

use log::Level;

use crate::{
    device::counters::Counters,
    device::log_limit::Limiter,
    event_loop::busy_poll::Window,
    event_loop::clock,
    event_loop::foreign::Stream,
    event_loop::poll::{Poller, Token, Watch},
    vhost_user::connection::{Connection, ConnectionError},
    vhost_user::listener::{Endpoint, ListenError},
};

/// Lines at once about front ends that come and go.
const LINES: u64 = 10;

/// One VM.
pub struct Vm {
    pub name: String,
    pub endpoint: Endpoint,
    pub connection: Option<Connection>,
    /// What is counted while there is no connection.
    pub counters: Counters,
    /// How long it is looked for its next message.
    pub window: Window,
    watch: Option<Watch>,
    lines: Limiter,
}

impl Vm {
    /// A VM whose front end is waited for.
    pub fn new(name: String, endpoint: Endpoint, poller: &Poller, vm: usize) -> io::Result<Vm> {
        let listening = endpoint.listening();
        let watch = listening.map(|fd| poller.watch(fd, Token::Listener(vm))).transpose()?;
        let (counters, lines) = (Counters::new(&name), Limiter::new(LINES));
        Ok(Vm {
            name,
            endpoint,
            connection: None,
            counters,
            window: Window::default(),
            watch,
            lines,
        })
    }

    /// Waits for front ends at another endpoint; one that is there stays.
    pub fn reopen(&mut self, endpoint: Endpoint, poller: &Poller, vm: usize) -> io::Result<()> {
        let listening = endpoint.listening();
        self.watch = listening.map(|fd| poller.watch(fd, Token::Listener(vm))).transpose()?;
        self.endpoint = endpoint;
        Ok(())
    }

    /// Waits for front ends no more, for that reason; one that is there stays.
    pub fn close(&mut self, why: ListenError) {
        self.watch = None;
        self.endpoint = Endpoint::Failed(why);
    }

    /// Says what its front ends do, but not as often as they like.
    fn say(&mut self, level: Level, what: &dyn Display) {
        self.lines.say(level, &self.name, clock::monotonic(), what);
    }

    /// Waits for front ends again.
    pub fn listen(&mut self) -> io::Result<()> {
        self.watch.as_mut().map_or(Ok(()), Watch::resume)
    }

    /// The next front end, if it is the only one.  If it cannot be accepted, none is
    /// waited for until `listen`.
    pub fn accept(&mut self) -> io::Result<Option<Stream>> {
        let accepted = self.endpoint.accept();
        match &accepted {
            Ok(Some(_)) if self.connection.is_some() => {
                self.say(Level::Warn, &"refused a second front end");
                return Ok(None);
            }
            Ok(_) => {}
            Err(error) => {
                // Most likely there are no descriptors left: the front end waits
                // in the queue of the socket, and is there until some are.
                self.say(Level::Warn, &format_args!("cannot accept its front end: {error}"));
                if let Some(watch) = &mut self.watch {
                    watch.pause();
                }
            }
        }
        accepted
    }

    /// Has this connection, if it could be made, and counts on there.
    pub fn connect(&mut self, connection: io::Result<Connection>) {
        match connection {
            Ok(connection) => {
                self.say(Level::Info, &"connected");
                let mut backend = connection.backend();
                std::mem::swap(&mut self.counters, backend.device_mut().counters_mut());
                drop(backend);
                self.connection = Some(connection);
            }
            Err(error) => {
                self.say(Level::Warn, &format_args!("cannot serve its front end: {error}"));
            }
        }
    }

    /// Says that a front end with so many flows is gone.
    pub fn say_disconnected(&mut self, why: &ConnectionError, flows: usize) {
        if why.is_closed() {
            let line = format!("disconnected with {flows} flows; {}", self.counters);
            self.say(Level::Info, &line);
        } else {
            self.say(Level::Warn, &format!("disconnected: {why}; {}", self.counters));
        }
    }
}
