// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is done to the daemon and to guests at simulated times. Nobody runs
//! meanwhile, and time stands still until it is done.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::control::{self, Exchange};
use super::supervisor::Supervisor;
use super::world::World;
use crate::error::Result;
use crate::ipc::poller::Poller;
use crate::scenario::daemon::Action;
use crate::time::scheduler::{DAEMON, Scheduler};

/// What is done to the programs of a run from outside.
#[derive(Debug, Clone)]
pub enum ScriptedAction {
    /// Something to the daemon.
    Daemon(Action),
    /// A guest is killed, and another one takes its place.
    Reboot {
        /// Who is killed.
        from: String,
        /// Who is started.
        to: String,
    },
}

/// The script of a run, and how far it has come.
#[derive(Default)]
pub struct Script {
    /// Still to come, by simulated time.
    due: VecDeque<(u64, ScriptedAction)>,
    /// The daemon's control socket, if there is a daemon: the first client.
    control: Option<PathBuf>,
    /// The request under way.
    exchange: Option<(Exchange, Action)>,
    /// The daemon was told of something, and may still be at work.
    daemon_at_work: bool,
    /// The daemon is starting; the relays are to connect to it.
    rejoining: bool,
    records: Vec<serde_json::Value>,
}

impl Script {
    /// Carries out actions in the order of simulated times; those on the
    /// daemon by its control socket, if there is a daemon.
    pub fn new(mut actions: Vec<(u64, ScriptedAction)>, control: Option<&Path>) -> Self {
        actions.sort_by_key(|(at, _)| *at);
        let control = control.map(Path::to_owned);
        Self { due: actions.into(), control, ..Self::default() }
    }

    /// Lets the world know who starts later.
    pub fn announce(&self, world: &mut World) -> Result<()> {
        for (_, action) in &self.due {
            if let ScriptedAction::Reboot { to, .. } = action {
                let later = world.scheduler.client(to)?;
                world.scheduler.comes_later(later);
            }
        }
        Ok(())
    }

    /// The actions on the daemon that were carried out.
    pub fn records(&self) -> &[serde_json::Value] {
        &self.records
    }

    /// Whether time stands still for the daemon.
    pub fn is_busy(&self) -> bool {
        self.exchange.is_some() || self.daemon_at_work
    }

    /// When the next action is due.
    pub fn next_at(&self) -> Option<u64> {
        self.due.front().map(|(at, _)| *at)
    }

    /// The daemon has done with its events.
    pub fn daemon_is_idle(&mut self) {
        self.daemon_at_work = false;
    }

    /// Whether a daemon that was started has now connected; once.
    pub fn daemon_is_back(&mut self) -> bool {
        std::mem::take(&mut self.rejoining)
    }

    /// Carries out the next action.
    pub fn act(
        &mut self,
        world: &mut World,
        poller: &Poller,
        supervisor: &mut dyn Supervisor,
    ) -> Result<()> {
        let Some((at, action)) = self.due.pop_front() else {
            return Ok(());
        };
        world.scheduler.calendar().advance(at);
        match action {
            ScriptedAction::Daemon(action) => self.act_on_daemon(action, world, poller, supervisor),
            ScriptedAction::Reboot { from, to } => {
                world.reboot(&from, &to, supervisor)?;
                self.let_daemon_work(&world.scheduler)
            }
        }
    }

    fn act_on_daemon(
        &mut self,
        action: Action,
        world: &mut World,
        poller: &Poller,
        supervisor: &mut dyn Supervisor,
    ) -> Result<()> {
        if let (Some(request), Some(path)) = (&action.control, &self.control) {
            let exchange = Exchange::begin(path, request, poller)?;
            self.exchange = Some((exchange, action));
            return Ok(());
        }
        if action.kill_daemon {
            world.kill_daemon(supervisor)?;
        }
        if action.start_daemon {
            self.rejoining = true;
            world.start_daemon(supervisor)?;
        }
        self.records.push(control::record(&action, None)?);
        Ok(())
    }

    /// Something of an answer is there. When it is whole the daemon is asked
    /// for a sign that it has done with its events.
    pub fn answered(&mut self, scheduler: &Scheduler) -> Result<()> {
        let Some((exchange, action)) = &mut self.exchange else {
            return Ok(());
        };
        let Some(answer) = exchange.readable()? else {
            return Ok(());
        };
        self.records.push(control::record(action, Some(answer))?);
        self.exchange = None;
        self.let_daemon_work(scheduler)
    }

    fn let_daemon_work(&mut self, scheduler: &Scheduler) -> Result<()> {
        if self.control.is_some() {
            self.daemon_at_work = true;
            scheduler.broadcast(DAEMON)?;
        }
        Ok(())
    }
}
