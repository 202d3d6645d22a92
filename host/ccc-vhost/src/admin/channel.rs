// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The channel from the control socket's thread to the event loop and back.
//!
//! Requests go through a bounded queue and wake the loop with an event file
//! descriptor.  Where there is no room, clients wait: a host that starts has as
//! many hooks at once as it has VMs.  A request is answered when what it
//! changed is in guest memory, and on disk if changes are kept.
use std::{io, os::fd::BorrowedFd, sync::Arc, time::Duration};

use tokio::{
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, Receiver, Sender},
        oneshot,
    },
    time::timeout,
};

use super::{ApiError, Command, Reply, authorization::Peer};
use crate::event_loop::wake::Wake;

/// Requests that may wait for the event loop.
const WAITING: usize = 32;
/// Changes under way at once, with those that wait for the disk.
const CHANGING: usize = 1024;
/// Requests taken in one turn, after which VMs have theirs.
const TURN_COMMANDS: usize = 8;
/// Longest time until a request is taken.  A client that gives up before takes
/// its request with it.
const PATIENCE: Duration = Duration::from_secs(25);

/// Where the answer of a request goes.
#[derive(Debug)]
pub struct ReplySender {
    to: oneshot::Sender<Result<Reply, ApiError>>,
    /// A change is one of those under way.
    _permit: Option<OwnedSemaphorePermit>,
}

impl ReplySender {
    /// Answers.  The client may be gone by now; its request counts all the same.
    pub fn send(self, answer: Result<Reply, ApiError>) {
        drop(self.to.send(answer));
    }
}

/// A request, who asks, and where its answer goes.
#[derive(Debug)]
pub struct PendingCommand {
    /// What is asked for.
    pub command: Command,
    /// By whom.
    pub by: Peer,
    /// Where the answer goes.
    pub reply_to: ReplySender,
}

/// The event loop's end.
#[derive(Debug)]
pub struct CommandReceiver {
    commands: Receiver<PendingCommand>,
    wake: Wake,
}

/// The control socket's end.
#[derive(Clone, Debug)]
pub struct CommandSender {
    commands: Sender<PendingCommand>,
    changing: Arc<Semaphore>,
    wake: Wake,
}

/// Both ends.
pub fn pair() -> io::Result<(CommandReceiver, CommandSender)> {
    let wake = Wake::new()?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let changing = Arc::new(Semaphore::new(CHANGING));
    let sender = CommandSender { commands: sender, changing, wake: wake.clone() };
    Ok((CommandReceiver { commands: receiver, wake }, sender))
}

impl CommandReceiver {
    /// What to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.fd()
    }

    /// The requests of this turn: some short ones, or one that takes longer.  If
    /// there may be more, there is another turn.
    pub fn take(&mut self) -> Vec<PendingCommand> {
        self.wake.clear();
        let mut taken = Vec::new();
        while let Ok(pending) = self.commands.try_recv() {
            let long = pending.command.is_long();
            taken.push(pending);
            if long || taken.len() == TURN_COMMANDS {
                self.wake.notify();
                break;
            }
        }
        taken
    }
}

impl CommandSender {
    /// Hands a request in and waits for what comes of it.
    pub async fn ask(&self, command: Command, by: Peer) -> Result<Reply, ApiError> {
        let (to, answered) = oneshot::channel();
        let handed = timeout(PATIENCE, self.hand_in(command, by, to)).await;
        handed.map_err(|_| ApiError::Busy)??;
        self.wake.notify();
        answered.await.map_err(|_| ApiError::Stopping)?
    }

    async fn hand_in(
        &self,
        command: Command,
        by: Peer,
        to: oneshot::Sender<Result<Reply, ApiError>>,
    ) -> Result<(), ApiError> {
        let permit = if matches!(command, Command::Change(_)) {
            let permit = Arc::clone(&self.changing).acquire_owned().await;
            Some(permit.map_err(|_| ApiError::Stopping)?)
        } else {
            None
        };
        let reply_to = ReplySender { to, _permit: permit };
        let pending = PendingCommand { command, by, reply_to };
        self.commands.send(pending).await.map_err(|_| ApiError::Stopping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_in_bounded_turns() {
        let (mut receiver, sender) = pair().expect("ends");
        let pending = |command| {
            let (to, _) = oneshot::channel();
            let by = Peer { uid: 0, pid: 1, groups: Vec::new() };
            PendingCommand { command, by, reply_to: ReplySender { to, _permit: None } }
        };
        let vm = || pending(Command::Vm("a".to_owned()));
        for _ in 0..WAITING {
            sender.commands.try_send(vm()).expect("room");
        }
        assert!(sender.commands.try_send(vm()).is_err(), "no more than that");
        let mut turns = |count| (0..count).map(|_| receiver.take().len()).collect::<Vec<_>>();
        assert_eq!(turns(6), [8, 8, 8, 8, 0, 0]);
        for _ in 0..2 {
            sender.commands.try_send(pending(Command::Vms)).expect("room");
        }
        sender.commands.try_send(vm()).expect("room");
        assert_eq!(turns(4), [1, 1, 1, 0], "one that looks at all VMs is enough for a turn");
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings {
    use shuttle::{future::block_on, thread};

    use super::*;
    use crate::event_loop::wake::interleavings::{RUNS, wait};

    /// Requests of two clients: some that a turn takes together, and some that it takes alone,
    /// as the last ones, after which nobody else wakes the loop.
    const ASKED: [[fn() -> Command; 3]; 2] = [[vm, vm, vms], [vms, vm, vms]];

    fn vm() -> Command {
        Command::Vm("a".to_owned())
    }

    fn vms() -> Command {
        Command::Vms
    }

    /// Asks as process `pid`, whose answers have its name.
    fn client(sender: &CommandSender, pid: i32) {
        for command in ASKED[pid as usize] {
            let by = Peer { uid: 0, pid, groups: Vec::new() };
            let answer = block_on(sender.ask(command(), by)).expect("answered");
            assert!(matches!(answer, Reply::Forgotten { name } if name == pid.to_string()));
        }
    }

    #[test]
    fn whoever_asks_wakes_the_loop_and_is_answered() {
        // tokio's clock, which `ask` has: it stands still.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a clock");
        let _clock = runtime.enter();
        let run = || {
            let (mut receiver, sender) = pair().expect("ends");
            let ask = |pid| {
                let sender = sender.clone();
                thread::spawn(move || client(&sender, pid))
            };
            let clients = [0, 1].map(ask);
            let mut to_come = ASKED.as_flattened().len();
            while to_come > 0 {
                wait(receiver.fd());
                for pending in receiver.take() {
                    let name = pending.by.pid.to_string();
                    pending.reply_to.send(Ok(Reply::Forgotten { name }));
                    to_come -= 1;
                }
            }
            clients.into_iter().for_each(|client| client.join().expect("answered"));
        };
        shuttle::check_random(run, RUNS);
    }
}
