// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One virtqueue and how its two sides wake each other.
use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io::{self, IoSliceMut, Write},
    num::Wrapping,
    os::fd::AsFd,
    sync::atomic::Ordering,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::OFlags,
    io::ReadWriteFlags,
};
use thiserror::Error;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use crate::{
    event_loop::poll::Watch,
    vhost_user::foreign::{self, Foreign},
    virtio::chain::Chain,
    virtio::memory::Mapping,
};

/// Largest queue the device takes.
pub const MAX_SIZE: u16 = 1024;
/// The driver wants no notification (without event index).
const AVAIL_F_NO_INTERRUPT: u16 = 1;
/// Kicks one after the other for which there was nothing in the queue, after
/// which they are taken at a limited rate.
const IDLE_KICKS: u32 = 64;

/// Why a queue cannot be used.
#[derive(Debug, Error)]
pub enum VringError {
    /// The rings are not in memory.
    #[error("rings of queue {0} are not in guest memory")]
    Rings(usize),
    /// The rings contradict themselves.
    #[error("ring in disorder: {0}")]
    Disorder(#[from] virtio_queue::Error),
    /// The used entry would be for no descriptor.
    #[error("chain begins at descriptor {head} of {size}")]
    Head {
        /// Descriptor.
        head: u16,
        /// Size of the queue.
        size: u16,
    },
}

/// One virtqueue.
#[derive(Debug)]
pub struct Vring {
    /// The rings.
    pub queue: Queue,
    /// The front end wants the queue served.
    pub enabled: bool,
    /// The front end has said where the rings are.
    pub placed: bool,
    /// The front end has said how kicks come: not at all, or by a descriptor.
    pub kickable: bool,
    kick: Option<(Foreign<File>, Watch)>,
    call: Option<Foreign<File>>,
    call_due: bool,
    /// Kicks in a row for which there was nothing in the queue.
    idle_kicks: u32,
    /// Where the queue was after the last kick.
    kicked_at: u16,
}

impl Vring {
    /// A queue the front end has not spoken of.
    pub fn new() -> Result<Vring, virtio_queue::Error> {
        Ok(Vring {
            queue: Queue::new(MAX_SIZE)?,
            enabled: false,
            placed: false,
            kickable: false,
            kick: None,
            call: None,
            call_due: false,
            idle_kicks: 0,
            kicked_at: 0,
        })
    }

    /// Kicks come through `kick`, or in-band.
    pub fn set_kick(&mut self, kick: Option<(Foreign<File>, Watch)>) -> io::Result<()> {
        if let Some((file, _)) = &kick {
            never_block(file)?;
        }
        self.kick = kick;
        self.kickable = true;
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

    /// Takes a kick from its descriptor; `false` if there was none.  One that
    /// cannot be read from is waited for no longer.
    pub fn take_kick(&mut self) -> io::Result<bool> {
        let Some((file, _)) = &self.kick else { return Ok(false) };
        let mut count = [0; 8];
        let bytes = &mut [IoSliceMut::new(&mut count)];
        // The front end shares the descriptor's flags and may read from it too,
        // so that it must not block is said for each read.
        let why = match rustix::io::preadv2(file, bytes, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => error.into(),
        };
        self.kick = None;
        Err(why)
    }

    /// A kick was served.  If there are many for nothing, no more are taken until
    /// `listen`; `true` then.
    pub fn rest(&mut self) -> bool {
        let at = self.queue.next_avail();
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

    /// Serves the queue from now on.  What the used ring says counts: chains
    /// taken but not used before are offered anew.
    pub fn start(&mut self, index: usize, mapping: &Mapping) -> Result<(), VringError> {
        self.queue.set_ready(true);
        if !self.queue.is_valid(mapping) {
            self.queue.set_ready(false);
            return Err(VringError::Rings(index));
        }
        let used = self.queue.used_idx(mapping, Ordering::Acquire)?;
        self.queue.set_next_used(used.0);
        Ok(())
    }

    /// Serves the queue no longer.  Where it would go on, held chains included.
    pub fn stop(&mut self) -> u16 {
        if self.queue.ready() {
            self.queue.set_ready(false);
            self.queue.set_next_avail(self.queue.next_used());
        }
        self.call_due = false;
        self.queue.next_avail()
    }

    /// Forgets what the front end said.
    pub fn reset(&mut self) {
        self.queue.reset();
        (self.enabled, self.placed, self.kickable) = (false, false, false);
        (self.kick, self.call, self.call_due) = (None, None, false);
    }

    /// The next chain the driver made available.
    pub fn pop<'m>(&mut self, mapping: &'m Mapping) -> Result<Option<Chain<'m>>, VringError> {
        let Some(chain) = self.queue.iter(mapping)?.next() else { return Ok(None) };
        let (head, size) = (chain.head_index(), self.queue.size());
        if head >= size { Err(VringError::Head { head, size }) } else { Ok(Some(chain)) }
    }

    /// The next chain of a queue that is being worked on, without kicks; if there
    /// is none, kicks are wanted from now on.
    pub fn pop_or_rest<'m>(
        &mut self,
        mapping: &'m Mapping,
    ) -> Result<Option<Chain<'m>>, VringError> {
        loop {
            let chain = self.pop(mapping)?;
            // One may have come before the driver saw that kicks are wanted.
            if chain.is_some() || !self.queue.enable_notification(mapping)? {
                return Ok(chain);
            }
            self.queue.disable_notification(mapping)?;
        }
    }

    /// Gives a chain back.
    pub fn give_back(
        &mut self,
        mapping: &Mapping,
        head: u16,
        written: u32,
    ) -> Result<(), VringError> {
        self.queue.add_used(mapping, head, written)?;
        Ok(())
    }

    /// Notes that the driver is to be told, if it wants to know.
    pub fn call_if_wanted(&mut self, mapping: &Mapping) -> Result<(), VringError> {
        self.call_due |= self.queue.needs_notification(mapping)? && !self.mute(mapping)?;
        Ok(())
    }

    fn mute(&self, mapping: &Mapping) -> Result<bool, VringError> {
        if self.queue.event_idx_enabled() {
            return Ok(false);
        }
        let flags: u16 = mapping
            .load(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed)
            .map_err(virtio_queue::Error::GuestMemory)?;
        Ok(u16::from_le(flags) & AVAIL_F_NO_INTERRUPT != 0)
    }

    /// Calls the driver if that is due; `true` if it has to be done in-band.
    pub fn call(&mut self) -> bool {
        if !std::mem::take(&mut self.call_due) {
            return false;
        }
        let Some(file) = &mut self.call else { return true };
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

    /// Positions of chains that were made available and never used, if the ring
    /// has not gone round, so that this can be told.  A front end that offers
    /// held chains again goes back to the used index, which counts chains and
    /// does not say which: it passes over held ones that are older than one used
    /// since, and offers that one again.
    pub fn never_used(&self, mapping: &Mapping) -> Result<Option<Vec<u16>>, VringError> {
        let available = self.queue.avail_idx(mapping, Ordering::Acquire)?.0;
        let used = self.queue.next_used();
        if available > self.queue.size() || used > available {
            return Ok(None);
        }
        let mut open: HashMap<u16, VecDeque<u16>> = HashMap::new();
        for position in 0..available {
            let head = self.ring(mapping, self.queue.avail_ring() + 4 + u64::from(position) * 2)?;
            open.entry(head).or_default().push_back(position);
        }
        for position in 0..used {
            let head = self.ring(mapping, self.queue.used_ring() + 4 + u64::from(position) * 8)?;
            // A head is used as often as it was available before, in this order.
            open.get_mut(&head).map(VecDeque::pop_front);
        }
        let mut never: Vec<u16> = open.into_values().flatten().collect();
        never.sort_unstable();
        Ok(Some(never))
    }

    /// The chain at a position of the available ring, after which the queue
    /// goes on.
    pub fn pop_at<'m>(
        &mut self,
        mapping: &'m Mapping,
        position: u16,
    ) -> Result<Option<Chain<'m>>, VringError> {
        self.queue.set_next_avail(position);
        self.pop(mapping)
    }

    fn ring(&self, mapping: &Mapping, address: u64) -> Result<u16, VringError> {
        let entry: u16 = mapping
            .load(GuestAddress(address), Ordering::Relaxed)
            .map_err(virtio_queue::Error::GuestMemory)?;
        Ok(u16::from_le(entry))
    }

    /// Chains held: taken and not given back.
    pub fn held(&self) -> u16 {
        (Wrapping(self.queue.next_avail()) - Wrapping(self.queue.next_used())).0
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
        let watch = poller.watch(kick.as_fd(), Token::Kick(0, 0)).expect("watched");
        let mut vring = Vring::new().expect("queue");
        vring.set_kick(Some((Foreign::new(kick), watch))).expect("taken");
        rustix::fs::fcntl_setfl(&ours, OFlags::empty()).expect("blocks");
        assert!(vring.take_kick().expect("a kick"));
        assert!(!vring.take_kick().expect("no kick"));
    }

    #[test]
    fn t7_calls_go_through_what_cannot_block() {
        let mut vring = Vring::new().expect("queue");
        let file = tempfile::tempfile().expect("file");
        assert!(vring.set_call(Some(Foreign::new(file))).is_err());
        let call = File::from(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"));
        let ours = call.try_clone().expect("the same");
        vring.set_call(Some(Foreign::new(call))).expect("taken");
        // Full, and blocking again.
        rustix::io::write(&ours, &(u64::MAX - 1).to_ne_bytes()).expect("full");
        rustix::fs::fcntl_setfl(&ours, OFlags::empty()).expect("blocks");
        vring.call_due = true;
        assert!(!vring.call());
    }
}
