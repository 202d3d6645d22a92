// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Which of the controller's descriptors have something to read.
//!
//! A run has hundreds of them with many VMs, and one is readable at a time, so
//! they are registered once (epoll) and not named in each wait (poll).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// More that is readable at once is told by the next wait.
const MOST_EVENTS: usize = 64;

/// A stream of a vhost-user device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// The guest's requests.
    Guest,
    /// The guest's answers to the back end's requests.
    GuestBack,
    /// The daemon's answers.
    Daemon,
    /// The daemon's requests.
    DaemonBack,
    /// The listening socket; after the end of the guest that was there before.
    Listener,
}

/// Whose descriptor it is, in the order in which they are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Where clients connect.
    Listener,
    /// The client at this place.
    Client(usize),
    /// The NIC at this place.
    Nic(usize, Stream),
    /// The relay at this place.
    Relay(usize, Stream),
    /// A request to the daemon.
    Control,
    /// The daemon asks of taps.
    Taps,
    /// Where it connects to ask.
    TapsListener,
    /// A client that has not said who it is.
    Newcomer(u64),
}

/// All descriptors that are watched.
#[derive(Clone)]
pub struct Poller(Rc<Registry>);

struct Registry {
    epoll: Epoll,
    /// A number is never given twice, so an event cannot be taken for that of
    /// a later descriptor.
    origins: RefCell<BTreeMap<u64, Origin>>,
    next: Cell<u64>,
}

/// A descriptor that is watched as long as this lives.
pub struct Polled<T: AsFd> {
    io: T,
    number: u64,
    registry: Rc<Registry>,
}

impl Poller {
    /// Nothing is watched yet.
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self(Rc::new(Registry { epoll, origins: RefCell::default(), next: Cell::new(0) })))
    }

    /// Watches one more.
    pub fn add<T: AsFd>(&self, io: T, origin: Origin) -> io::Result<Polled<T>> {
        let registry = self.0.clone();
        let number = registry.next.get();
        registry.epoll.add(&io, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
        registry.next.set(number + 1);
        registry.origins.borrow_mut().insert(number, origin);
        Ok(Polled { io, number, registry })
    }

    /// Waits for anything readable, or closed by its other end; nothing if the
    /// time is over or a signal came.
    pub fn wait(&self, at_most: Duration) -> io::Result<Vec<Origin>> {
        let timeout = EpollTimeout::try_from(at_most).map_err(io::Error::other)?;
        let mut events = [EpollEvent::empty(); MOST_EVENTS];
        let count = match self.0.epoll.wait(&mut events, timeout) {
            Err(nix::Error::EINTR) => 0,
            other => other?,
        };
        let origins = self.0.origins.borrow();
        let ready = events[..count].iter().filter_map(|event| origins.get(&event.data()));
        let mut ready: Vec<_> = ready.copied().collect();
        ready.sort_unstable();
        Ok(ready)
    }
}

impl<T: AsFd> Polled<T> {
    /// It belongs to another from now on.
    pub fn belongs_to(&self, origin: Origin) {
        self.registry.origins.borrow_mut().insert(self.number, origin);
    }
}

impl<T: AsFd> Deref for Polled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.io
    }
}

impl<T: AsFd> Drop for Polled<T> {
    fn drop(&mut self) {
        self.registry.origins.borrow_mut().remove(&self.number);
        // It was added and is still open, so this does not fail; if it did,
        // an event of it would find no origin.
        let _ = self.registry.epoll.delete(&self.io);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    fn polled(poller: &Poller, origin: Origin) -> (Polled<UnixStream>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        (poller.add(ours, origin).expect("added"), theirs)
    }

    #[test]
    fn what_is_readable_is_told_in_order() {
        let poller = Poller::new().expect("epoll");
        let (_late, mut at_late) = polled(&poller, Origin::Newcomer(0));
        let (_early, mut at_early) = polled(&poller, Origin::Client(1));
        let (_quiet, _at_quiet) = polled(&poller, Origin::Client(0));
        assert_eq!(poller.wait(SOON).expect("wait"), []);
        at_late.write_all(b"x").expect("written");
        at_early.write_all(b"x").expect("written");
        assert_eq!(poller.wait(SOON).expect("wait"), [Origin::Client(1), Origin::Newcomer(0)]);
    }

    #[test]
    fn the_end_of_a_stream_is_told_to_its_present_owner() {
        let poller = Poller::new().expect("epoll");
        let (ours, theirs) = polled(&poller, Origin::Newcomer(0));
        ours.belongs_to(Origin::Client(3));
        drop(theirs);
        assert_eq!(poller.wait(SOON).expect("wait"), [Origin::Client(3)]);
    }

    #[test]
    fn what_is_dropped_is_not_told_even_if_a_copy_stays_open() {
        let poller = Poller::new().expect("epoll");
        let (ours, mut theirs) = polled(&poller, Origin::Client(0));
        let _copy = ours.try_clone().expect("copy");
        theirs.write_all(b"x").expect("written");
        drop(ours);
        assert_eq!(poller.wait(SOON).expect("wait"), []);
    }
}
