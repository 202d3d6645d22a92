// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The way from the control socket's thread to the event loop and back.
//!
//! Requests go through a bounded queue and wake the loop with an event file
//! descriptor.  Where there is no room, clients wait: a host that starts has as
//! many hooks at once as it has VMs.  A request is answered when what it
//! changed is in guest memory, and on disk if changes are kept.
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::event::{EventfdFlags, eventfd};
use tokio::{
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, Receiver, Sender},
        oneshot,
    },
    time::timeout,
};

use crate::{
    admin::access::Peer,
    admin::api::{ApiError, Command, Reply},
};

/// Requests that may wait for the event loop.
const WAITING: usize = 32;
/// Changes under way at once, with those that wait for the disk.
const CHANGING: usize = 1024;
/// Requests taken in one turn, after which VMs have theirs.
pub const TURN_REQUESTS: usize = 8;
/// Longest time until a request is taken.  A client that gives up before takes
/// its request with it.
const PATIENCE: Duration = Duration::from_secs(25);

/// Where the answer of a request goes.
#[derive(Debug)]
pub struct Answer {
    to: oneshot::Sender<Result<Reply, ApiError>>,
    /// A change's place among those under way.
    _place: Option<OwnedSemaphorePermit>,
}

impl Answer {
    /// Answers.  The client may be gone by now; its request counts all the same.
    pub fn give(self, answer: Result<Reply, ApiError>) {
        drop(self.to.send(answer));
    }
}

/// A request, who asks, and where its answer goes.
#[derive(Debug)]
pub struct Envelope {
    /// What is asked for.
    pub command: Command,
    /// By whom.
    pub by: Peer,
    /// Where the answer goes.
    pub answer: Answer,
}

/// The event loop's end.
#[derive(Debug)]
pub struct Desk {
    requests: Receiver<Envelope>,
    bell: Arc<OwnedFd>,
}

/// The control socket's end.
#[derive(Clone, Debug)]
pub struct Window {
    requests: Sender<Envelope>,
    changing: Arc<Semaphore>,
    bell: Arc<OwnedFd>,
}

/// Both ends.
pub fn pair() -> io::Result<(Desk, Window)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = mpsc::channel(WAITING);
    let changing = Arc::new(Semaphore::new(CHANGING));
    let window = Window { requests: sender, changing, bell: Arc::clone(&bell) };
    Ok((Desk { requests: receiver, bell }, window))
}

impl Desk {
    /// What to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The requests of this turn: some short ones, or one that takes longer.  If
    /// there may be more, there is another turn.
    pub fn take(&mut self) -> Vec<Envelope> {
        // The count does not matter, and none is there if one was made up for.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let mut taken = Vec::new();
        while let Ok(envelope) = self.requests.try_recv() {
            let long = envelope.command.is_long();
            taken.push(envelope);
            if long || taken.len() == TURN_REQUESTS {
                ring(&self.bell);
                break;
            }
        }
        taken
    }
}

impl Window {
    /// Hands a request in and waits for what comes of it.
    pub async fn ask(&self, command: Command, by: Peer) -> Result<Reply, ApiError> {
        let (to, answered) = oneshot::channel();
        let handed = timeout(PATIENCE, self.hand_in(command, by, to)).await;
        handed.map_err(|_| ApiError::Busy)??;
        ring(&self.bell);
        answered.await.map_err(|_| ApiError::Stopping)?
    }

    async fn hand_in(
        &self,
        command: Command,
        by: Peer,
        to: oneshot::Sender<Result<Reply, ApiError>>,
    ) -> Result<(), ApiError> {
        let place = if command.changes() {
            let place = Arc::clone(&self.changing).acquire_owned().await;
            Some(place.map_err(|_| ApiError::Stopping)?)
        } else {
            None
        };
        let answer = Answer { to, _place: place };
        let envelope = Envelope { command, by, answer };
        self.requests.send(envelope).await.map_err(|_| ApiError::Stopping)
    }
}

fn ring(bell: &OwnedFd) {
    // It can only fail because it was rung 2^64 times before.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_in_bounded_turns() {
        let (mut desk, window) = pair().expect("ends");
        let envelope = |command| {
            let (to, _) = oneshot::channel();
            let by = Peer { uid: 0, pid: 1, groups: Vec::new() };
            Envelope { command, by, answer: Answer { to, _place: None } }
        };
        let vm = || envelope(Command::Vm("a".to_owned()));
        for _ in 0..WAITING {
            window.requests.try_send(vm()).expect("room");
        }
        assert!(window.requests.try_send(vm()).is_err(), "no more than that");
        let mut turns = |count| (0..count).map(|_| desk.take().len()).collect::<Vec<_>>();
        assert_eq!(turns(6), [8, 8, 8, 8, 0, 0]);
        for _ in 0..2 {
            window.requests.try_send(envelope(Command::Vms)).expect("room");
        }
        window.requests.try_send(vm()).expect("room");
        assert_eq!(turns(4), [1, 1, 1, 0], "one that looks at all VMs is enough for a turn");
    }
}
