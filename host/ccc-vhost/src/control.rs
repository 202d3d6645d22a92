// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The way from the control socket's thread to the event loop and back.
//!
//! Requests go through a bounded queue and wake the loop with an event file
//! descriptor.  A request is answered when what it changed is in guest memory.
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
};

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;

use crate::{
    api::{ApiError, Command, Reply},
    state::State,
};

/// Requests that may wait for the event loop.
const WAITING: usize = 32;
/// Requests taken in one turn, after which VMs have theirs.
pub const TURN_REQUESTS: usize = 8;

/// What came of a request.
#[derive(Debug)]
pub struct Done {
    /// What the operator is told.
    pub reply: Reply,
    /// The number of the state after a change, and the state.
    pub keep: Option<(u64, State)>,
}

/// A request and where its answer goes.
#[derive(Debug)]
pub struct Envelope {
    /// What is asked for.
    pub command: Command,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<Done, ApiError>>,
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
    requests: SyncSender<Envelope>,
    bell: Arc<OwnedFd>,
}

/// Both ends.
pub fn pair() -> io::Result<(Desk, Window)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = sync_channel(WAITING);
    let window = Window { requests: sender, bell: Arc::clone(&bell) };
    Ok((Desk { requests: receiver, bell }, window))
}

impl Desk {
    /// What to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The requests of this turn; if there are more, there is another turn.
    pub fn take(&self) -> Vec<Envelope> {
        // The count does not matter, and none is there if one was made up for.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let taken: Vec<Envelope> = self.requests.try_iter().take(TURN_REQUESTS).collect();
        if taken.len() == TURN_REQUESTS {
            ring(&self.bell);
        }
        taken
    }
}

impl Window {
    /// Hands a request in and waits for what comes of it.
    pub async fn ask(&self, command: Command) -> Result<Done, ApiError> {
        let (answer, answered) = oneshot::channel();
        self.requests.try_send(Envelope { command, answer }).map_err(|error| match error {
            TrySendError::Full(_) => ApiError::Busy,
            TrySendError::Disconnected(_) => ApiError::Stopping,
        })?;
        ring(&self.bell);
        answered.await.map_err(|_| ApiError::Stopping)?
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
        let (desk, window) = pair().expect("ends");
        for _ in 0..WAITING {
            let (answer, _) = oneshot::channel();
            let envelope = Envelope { command: Command::Status, answer };
            window.requests.try_send(envelope).expect("room");
        }
        let (answer, _) = oneshot::channel();
        let more = Envelope { command: Command::Status, answer };
        assert!(matches!(window.requests.try_send(more), Err(TrySendError::Full(_))));
        let turns: Vec<usize> = (0..6).map(|_| desk.take().len()).collect();
        assert_eq!(turns, [8, 8, 8, 8, 0, 0]);
    }
}
