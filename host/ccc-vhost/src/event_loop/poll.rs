// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the event loop waits for.
use std::{
    fmt::Debug,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use rustix::event::epoll;

use crate::event_loop::foreign::Foreign;

/// Events taken at once.
const BATCH: usize = 64;

/// Whom an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Token {
    /// A signal has come that ends the daemon.
    Signal,
    /// The clock has something to say.
    Clock,
    /// A front end connects to this VM's socket.
    Listener(usize),
    /// A front end of this VM has sent something, or is gone.
    Connection(usize),
    /// The driver of this VM kicked this queue.
    Kick(usize, usize),
    /// An operator asks for something.
    Control,
    /// The service manager wants to hear of us.
    Watchdog,
    /// Taps are to be looked at, or have been.
    Taps,
    /// The trial of a group may be over.
    Trial,
    /// SIGHUP has come.
    Hangup,
}

impl Token {
    fn encode(self) -> u64 {
        let (kind, vm, queue) = match self {
            Token::Signal => (0, 0, 0),
            Token::Clock => (1, 0, 0),
            Token::Listener(vm) => (2, vm, 0),
            Token::Connection(vm) => (3, vm, 0),
            Token::Kick(vm, queue) => (4, vm, queue),
            Token::Control => (5, 0, 0),
            Token::Watchdog => (6, 0, 0),
            Token::Taps => (7, 0, 0),
            Token::Trial => (8, 0, 0),
            Token::Hangup => (9, 0, 0),
        };
        kind << 56 | (vm as u64) << 8 | queue as u64
    }

    fn decode(data: u64) -> Token {
        let vm = (data >> 8 & 0xffff_ffff_ffff) as usize;
        match data >> 56 {
            0 => Token::Signal,
            1 => Token::Clock,
            2 => Token::Listener(vm),
            3 => Token::Connection(vm),
            4 => Token::Kick(vm, (data & 0xff) as usize),
            6 => Token::Watchdog,
            7 => Token::Taps,
            8 => Token::Trial,
            9 => Token::Hangup,
            _ => Token::Control,
        }
    }
}

/// What is waited for, and others use too: with many VMs each descriptor counts.
pub trait Descriptor: AsFd + Debug {}

impl<T: AsFd + Debug> Descriptor for T {}

/// The set of file descriptors the loop waits for.
#[derive(Clone, Debug)]
pub struct Poller {
    events: Rc<OwnedFd>,
    /// Connections of front ends, to be asked which of them are closed.
    ends: Rc<OwnedFd>,
}

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Poller> {
        let set = || epoll::create(epoll::CreateFlags::CLOEXEC).map(Rc::new);
        Ok(Poller { events: set()?, ends: set()? })
    }

    /// Tells of the end of a VM's connection for as long as the answer lives.
    pub fn watch_end(&self, fd: Rc<dyn Descriptor>, vm: usize) -> io::Result<End> {
        let data = epoll::EventData::new_u64(vm as u64);
        epoll::add(&self.ends, fd.as_fd(), data, epoll::EventFlags::RDHUP)?;
        Ok(End { poller: self.clone(), fd })
    }

    /// VMs whose connections are closed, some of them if there are many.
    pub fn ended(&self) -> io::Result<Vec<usize>> {
        let at_once = Some(Duration::ZERO);
        Ok(take(&self.ends, at_once)?.into_iter().map(|data| data as usize).collect())
    }

    /// Waits for a copy of `fd` for as long as the answer lives.
    pub fn watch(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<Watch> {
        self.watch_shared(Rc::new(Foreign::new(fd.try_clone_to_owned()?)), token)
    }

    /// Waits for `fd` itself for as long as the answer lives.
    pub fn watch_shared(&self, fd: Rc<dyn Descriptor>, token: Token) -> io::Result<Watch> {
        let mut watch = Watch { poller: self.clone(), fd, token, watching: false };
        watch.resume()?;
        Ok(watch)
    }

    /// Waits for events, at most for a `time`.
    pub fn wait(&self, time: Option<Duration>) -> io::Result<Vec<Token>> {
        Ok(take(&self.events, time)?.into_iter().map(Token::decode).collect())
    }
}

/// What the descriptors with events stand for.
fn take(set: &OwnedFd, time: Option<Duration>) -> io::Result<Vec<u64>> {
    let time = time.map(|time| rustix::event::Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
    let mut events = Vec::with_capacity(BATCH);
    match epoll::wait(set, rustix::buffer::spare_capacity(&mut events), time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(events.iter().map(|event| event.data.u64()).collect())
}

/// A connection whose end is told of.
#[derive(Debug)]
pub struct End {
    poller: Poller,
    fd: Rc<dyn Descriptor>,
}

impl Drop for End {
    fn drop(&mut self) {
        if let Err(error) = epoll::delete(&self.poller.ends, self.fd.as_fd()) {
            log::debug!("connection's end was not being waited for: {error}");
        }
    }
}

/// A file descriptor in the set.  It is taken out explicitly, because the
/// front end holds the same open file, so closing ours would not do it.
#[derive(Debug)]
pub struct Watch {
    poller: Poller,
    fd: Rc<dyn Descriptor>,
    token: Token,
    watching: bool,
}

impl Watch {
    /// Waits for it again.
    pub fn resume(&mut self) -> io::Result<()> {
        if !self.watching {
            let data = epoll::EventData::new_u64(self.token.encode());
            epoll::add(&self.poller.events, self.fd.as_fd(), data, epoll::EventFlags::IN)?;
            self.watching = true;
        }
        Ok(())
    }

    /// Waits for it no more for now.
    pub fn pause(&mut self) {
        if !std::mem::take(&mut self.watching) {
            return;
        }
        if let Err(error) = epoll::delete(&self.poller.events, self.fd.as_fd()) {
            log::debug!("file descriptor was not being waited for: {error}");
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        for token in [
            Token::Signal,
            Token::Clock,
            Token::Listener(7),
            Token::Connection(70_000),
            Token::Kick(3, 2),
            Token::Control,
            Token::Watchdog,
            Token::Taps,
            Token::Trial,
            Token::Hangup,
        ] {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
