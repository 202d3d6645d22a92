// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a front end says of one queue: when it is to be served, and the descriptors
//! through which the two sides wake each other.
use std::{
    fs::File,
    io::{self, IoSliceMut, Write},
    os::fd::AsFd,
    rc::Rc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::OFlags,
    io::ReadWriteFlags,
};

use crate::event_loop::{
    foreign::{self, Foreign},
    poll::Watch,
};

/// Kicks one after the other for which there was nothing in the queue, after
/// which they are taken at a limited rate.
const IDLE_KICKS: u32 = 64;

/// Where the rings of a queue are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// The front end has not said.
    #[default]
    Unknown,
    /// Where they were when the queue was stopped; it may say another before it is served again.
    Before,
    /// The front end has said so (SET_VRING_ADDR), or kicks there.
    Known,
}

/// The front end's side of one queue.
#[derive(Debug, Default)]
pub struct Vring {
    /// The front end wants the queue served (SET_VRING_ENABLE).
    pub enabled: bool,
    place: Place,
    /// The front end has said how kicks come: in-band, or by a descriptor
    /// (SET_VRING_KICK).
    pub kick_ready: bool,
    kick: Option<(Rc<Foreign<File>>, Watch)>,
    call: Option<Foreign<File>>,
    /// Kicks in a row for which there was nothing in the queue.
    idle_kicks: u32,
    /// Where the queue was after the last kick.
    kicked_at: u16,
}

impl Vring {
    /// All is said that is needed to serve the queue.
    pub fn is_complete(&self) -> bool {
        self.enabled && self.place == Place::Known && self.kick_ready
    }

    /// The front end has said where the rings are.
    pub fn set_place(&mut self) {
        self.place = Place::Known;
    }

    /// The front end has stopped the queue (GET_VRING_BASE), and may move it next.
    pub fn stop(&mut self) {
        self.forget_kick();
        if self.place == Place::Known {
            self.place = Place::Before;
        }
    }

    /// The front end kicks the queue, so one that was stopped is where it was; whether that is new.
    pub fn kicked(&mut self) -> bool {
        let is_new = self.kick_ready && self.place == Place::Before;
        if is_new {
            self.place = Place::Known;
        }
        is_new
    }

    /// Kicks come through `kick`, or in-band.
    pub fn set_kick(&mut self, kick: Option<(Rc<Foreign<File>>, Watch)>) -> io::Result<()> {
        if let Some((file, _)) = &kick {
            never_block(file)?;
        }
        self.kick = kick;
        self.kick_ready = true;
        Ok(())
    }

    /// Calls go through `call`, or in-band.
    pub fn set_call(&mut self, call: Option<Foreign<File>>) -> io::Result<()> {
        if let Some(file) = &call {
            check_call(file)?;
            never_block(file)?;
        }
        self.call = call;
        Ok(())
    }

    /// Calls go in-band.
    pub fn forget_call(&mut self) {
        self.call = None;
    }

    /// Forgets how kicks come.
    fn forget_kick(&mut self) {
        (self.kick, self.kick_ready) = (None, false);
    }

    /// Forgets what the front end said.
    pub fn reset(&mut self) {
        self.forget_kick();
        (self.enabled, self.place, self.call) = (false, Place::Unknown, None);
    }

    /// Takes a kick from its descriptor; `false` if there was none.  One that
    /// cannot be read from is waited for no longer.
    pub fn take_kick(&mut self) -> io::Result<bool> {
        let Some((file, _)) = &self.kick else { return Ok(false) };
        let mut count = [0; 8];
        let bytes = &mut [IoSliceMut::new(&mut count)];
        // The front end shares the descriptor's flags and may read from it too,
        // so that it must not block is said for each read.
        let why = match rustix::io::preadv2(&**file, bytes, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => error.into(),
        };
        self.kick = None;
        Err(why)
    }

    /// A kick was served, after which the queue is at a position.  If there are
    /// many for nothing, no more are taken until `listen`; `true` then.
    pub fn rest(&mut self, at: u16) -> bool {
        let idle = std::mem::replace(&mut self.kicked_at, at) == at;
        self.idle_kicks = if idle { self.idle_kicks.saturating_add(1) } else { 0 };
        match &mut self.kick {
            Some((_, watch)) if self.idle_kicks >= IDLE_KICKS => {
                watch.pause();
                true
            }
            _ => false,
        }
    }

    /// Waits for kicks again.
    pub fn listen(&mut self) -> io::Result<()> {
        self.kick.as_mut().map_or(Ok(()), |(_, watch)| watch.resume())
    }

    /// Calls the driver; `true` if it has to be done in-band.
    pub fn call(&self) -> bool {
        let Some(file) = &self.call else { return true };
        // One that is full says what there is to say already.
        let called = never_block(file).and_then(|()| match has_room(file) {
            true => (&**file).write(&1u64.to_ne_bytes()).map(drop),
            false => Ok(()),
        });
        if let Err(error) = called {
            log::debug!("call descriptor: {error}");
        }
        false
    }
}

/// The front end shares this descriptor, and may have passed anything, or changed
/// its flags since.
fn never_block(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file.as_fd())?;
    if flags.contains(OFlags::NONBLOCK) {
        return Ok(());
    }
    Ok(rustix::fs::fcntl_setfl(file.as_fd(), flags | OFlags::NONBLOCK)?)
}

/// Others can block whatever their flags say.
fn check_call(file: &File) -> io::Result<()> {
    if foreign::is_eventfd(file) || foreign::is_pipe(file) {
        return Ok(());
    }
    Err(foreign::wrong_kind("calls", "eventfd or pipe"))
}

/// There is room for a call.  The front end may say that a descriptor blocks, and
/// then nobody may write to one that is full.
fn has_room(file: &File) -> bool {
    let mut polled = [PollFd::new(file, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready == 1)
        && polled[0].revents().contains(PollFlags::OUT)
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::event_loop::poll::{Poller, Token};

    #[test]
    fn t7_a_kick_descriptor_made_blocking_again_does_not_block() {
        let kick = File::from(eventfd(1, EventfdFlags::CLOEXEC).expect("eventfd"));
        let ours = kick.try_clone().expect("the same");
        let poller = Poller::new().expect("poller");
        let kick = Rc::new(Foreign::new(kick));
        let watch = poller.watch_shared(kick.clone(), Token::Kick(0, 0)).expect("watched");
        let mut vring = Vring::default();
        vring.set_kick(Some((kick, watch))).expect("taken");
        rustix::fs::fcntl_setfl(&ours, OFlags::empty()).expect("blocks");
        assert!(vring.take_kick().expect("a kick"));
        assert!(!vring.take_kick().expect("no kick"));
    }

    #[test]
    fn t7_calls_go_through_what_cannot_block() {
        let mut vring = Vring::default();
        let file = tempfile::tempfile().expect("file");
        assert!(vring.set_call(Some(Foreign::new(file))).is_err());
        let call = File::from(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"));
        let ours = call.try_clone().expect("the same");
        vring.set_call(Some(Foreign::new(call))).expect("taken");
        // Full, and blocking again.
        rustix::io::write(&ours, &(u64::MAX - 1).to_ne_bytes()).expect("full");
        rustix::fs::fcntl_setfl(&ours, OFlags::empty()).expect("blocks");
        assert!(!vring.call());
    }
}
