// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Where a VM's agents come in.
use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender},
    },
};

use anyhow::Result;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::{bound::Bound, directory::Directories, lobby::ROOM};

/// Where connections come from.
#[derive(Debug)]
pub enum Door {
    /// A socket of the VM's own.
    Path(Bound),
    /// Whoever accepts those of all CIDs passes them on.
    Passed(Receiver<OwnedFd>, Arc<EventFd>),
}

/// The other side of a door.
#[derive(Clone, Debug)]
pub struct Sender {
    to: SyncSender<OwnedFd>,
    bell: Arc<EventFd>,
}

/// A door to pass connections through, with room for a few.
pub fn passed() -> Result<(Sender, Door)> {
    let (to, from) = mpsc::sync_channel(ROOM);
    let bell = Arc::new(EventFd::new(EFD_NONBLOCK)?);
    Ok((Sender { to, bell: Arc::clone(&bell) }, Door::Passed(from, bell)))
}

impl Sender {
    /// Passes a connection on, or closes it where there is no room.
    pub fn pass(&self, stream: OwnedFd) {
        if self.to.try_send(stream).is_ok() {
            // It fails only if it has rung 2^64 - 1 times.
            let _ = self.bell.write(1);
        }
    }
}

impl Door {
    /// One at a path of a socket.
    pub fn at(path: &Path, directories: &Directories) -> Result<Door> {
        Ok(Door::Path(Bound::at(path, directories)?))
    }

    /// Its socket's, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Door::Path(bound) => Some(bound.path()),
            Door::Passed(..) => None,
        }
    }

    /// Fails once somebody else could take its place.
    pub fn check_way(&self) -> Result<()> {
        match self {
            Door::Path(bound) => bound.check_way(),
            Door::Passed(..) => Ok(()),
        }
    }

    /// Whether who comes finds it: the socket may have been removed.
    pub fn is_there(&self) -> bool {
        match self {
            Door::Path(bound) => bound.is_there(),
            Door::Passed(..) => true,
        }
    }

    /// The next connection, if one is there.
    pub fn next(&self) -> Option<OwnedFd> {
        match self {
            Door::Path(bound) => bound.listener().accept().ok().map(|(stream, _)| stream.into()),
            Door::Passed(from, bell) => from.try_recv().ok().or_else(|| {
                // It goes on ringing while somebody may be there: not all are let in at a time.
                // Before the last look: who comes after that rings again.
                let _ = bell.read();
                from.try_recv().ok()
            }),
        }
    }

    /// What is readable when one comes.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        match self {
            Door::Path(bound) => bound.listener().as_fd(),
            // SAFETY: the bell keeps it open, and is borrowed for as long.
            Door::Passed(_, bell) => unsafe { BorrowedFd::borrow_raw(bell.as_raw_fd()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, time::Duration};

    use super::*;
    use crate::wait::wait;

    #[test]
    fn the_bell_rings_while_somebody_is_at_the_door() {
        let (sender, door) = passed().expect("a door");
        let comes = || sender.pass(UnixStream::pair().expect("a pair").0.into());
        let rings =
            || wait(std::iter::once(door.wakes()), Duration::ZERO).expect("asked") == [true];
        (0..ROOM).for_each(|_| comes());
        assert!(door.next().is_some());
        comes();
        for _ in 0..ROOM {
            assert!(rings());
            assert!(door.next().is_some());
        }
        assert!(door.next().is_none() && !rings());
    }
}
