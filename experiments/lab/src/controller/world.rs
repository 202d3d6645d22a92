// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is simulated: the clock, the cables, the relays before the daemon.

use super::supervisor::Supervisor;
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
}

impl World {
    /// The relay whose doorbell arrives next, and when.
    pub fn next_doorbell(&self) -> Option<(u64, usize)> {
        let due = self.relays.iter().enumerate().filter_map(|(i, r)| Some((r.due()?, i)));
        due.min()
    }

    /// Lets a doorbell arrive.
    pub fn deliver_doorbell(&mut self, at: u64, relay: usize) -> Result<()> {
        self.scheduler.calendar().advance(at);
        self.relays[relay].deliver()
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
