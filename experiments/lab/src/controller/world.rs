// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is simulated: the clock, the cables, the relays before the daemon.

use super::supervisor::Supervisor;
use super::taps::Taps;
use crate::error::Result;
use crate::relay::Relay;
use crate::switch::Switch;
use crate::time::scheduler::{DAEMON, Scheduler};

/// All that a run is made of.
pub struct World {
    /// Who runs when.
    pub scheduler: Scheduler,
    /// The guests' NICs.
    pub switch: Switch,
    /// What stands between guests and daemon.
    pub relays: Vec<Relay>,
    /// Where the daemon asks of taps, if it looks at them.
    pub taps: Option<Taps>,
}

impl World {
    /// When the next thing under way arrives: a doorbell, or a frame that has to wait.
    pub fn due(&self) -> Option<u64> {
        self.relays.iter().filter_map(Relay::due).chain(self.switch.due()).min()
    }

    /// Lets arrive what does at this time.
    pub fn deliver(&mut self, at: u64) -> Result<()> {
        self.scheduler.calendar().advance(at);
        let mut due = self.relays.iter_mut().filter(|relay| relay.due() == Some(at));
        due.try_for_each(Relay::deliver)?;
        self.switch.deliver_due(self.scheduler.calendar())
    }

    /// The daemon is back: the relays tell it all it has to know.
    pub fn reconnect(&mut self) -> Result<()> {
        self.relays.iter_mut().try_for_each(Relay::reconnect)
    }

    /// Kills the daemon.
    pub fn kill_daemon(&mut self, supervisor: &mut dyn Supervisor) -> Result<()> {
        supervisor.kill_daemon()?;
        self.scheduler.forget(DAEMON);
        self.relays.iter_mut().for_each(Relay::daemon_gone);
        Ok(())
    }

    /// Starts the daemon again.
    pub fn start_daemon(&mut self, supervisor: &mut dyn Supervisor) -> Result<()> {
        self.scheduler.expect(DAEMON);
        supervisor.start_daemon()
    }

    /// Kills a guest and starts another one in its place.
    pub fn reboot(&mut self, from: &str, to: &str, supervisor: &mut dyn Supervisor) -> Result<()> {
        let (index, next) = (self.scheduler.client(from)?, self.scheduler.client(to)?);
        supervisor.kill_guest(from)?;
        self.scheduler.reap(index)?;
        self.switch.guest_gone(from)?;
        self.relays.iter_mut().filter(|r| r.vm() == from).for_each(Relay::guest_gone);
        self.scheduler.expect(next);
        supervisor.start_guest(to)
    }
}
