// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The main loop of a run: takes messages from whoever sends them, and when
//! nobody runs decides what comes next.

pub mod control;
pub mod script;
pub mod standstill;
pub mod supervisor;
pub mod taps;
pub mod world;

use std::time::Duration;

use script::Script;
use standstill::Standstill;
use supervisor::Supervisor;
use world::World;

use crate::error::{Context, Result};
use crate::ipc::poller::{Origin, Poller};
use crate::time::scheduler::Received;

/// Less than this is no progress; a client's arrival is.
const PROGRESS_NS: u64 = 1_000_000;
/// How often the programs are looked at while nothing is heard.
const LOOK: Duration = Duration::from_millis(100);

/// Controller of one run.
pub struct Controller {
    world: World,
    script: Script,
    poller: Poller,
}

impl Controller {
    /// Controls the machines of `world`, and does to them what the script says.
    pub fn new(mut world: World, script: Script, poller: Poller) -> Result<Self> {
        script.announce(&mut world)?;
        Ok(Self { world, script, poller })
    }

    /// What became of the run.
    pub fn finish(self) -> (World, Script) {
        (self.world, self.script)
    }

    /// Runs until every client but these has left; ends the run when for
    /// `patience` nothing goes on.
    pub fn run(
        &mut self,
        background_clients: &[&str],
        patience: Duration,
        supervisor: &mut dyn Supervisor,
    ) -> Result<()> {
        let mut standstill = Standstill::new(patience);
        let mut progress = (0, 0);
        loop {
            let heard = self.listen(supervisor)?;
            if !self.world.scheduler.has_any_but(background_clients) {
                return Ok(());
            }
            self.advance(supervisor)?;
            let (now, arrived) = self.world.scheduler.progress();
            if now >= progress.0 + PROGRESS_NS || arrived > progress.1 {
                progress = (now, arrived);
                standstill.progress();
            }
            if !heard {
                supervisor.check()?;
            }
            if standstill.is_over(|| supervisor.pulse(), heard) {
                return Err(self.world.scheduler.stalled(&self.whom_we_wait_for()));
            }
        }
    }

    /// Waits for messages and handles them; false if there were none.
    fn listen(&mut self, supervisor: &mut dyn Supervisor) -> Result<bool> {
        let ready = self.poller.wait(LOOK).context(|| "waiting for a message".into())?;
        for &origin in &ready {
            let World { scheduler, switch, relays, taps } = &mut self.world;
            match origin {
                Origin::Listener => scheduler.accept()?,
                Origin::Newcomer(number) => scheduler.newcomer_readable(number)?,
                Origin::Client(index) => match scheduler.client_readable(index)? {
                    Received::Handled => (),
                    // Only the daemon is sent a BROADCAST.
                    Received::Acknowledged => self.script.daemon_is_idle(),
                    Received::Left => supervisor.left(scheduler.name(index))?,
                },
                Origin::Nic(index, stream) => {
                    switch.readable(index, stream, scheduler.calendar())?;
                }
                Origin::Relay(index, stream) => {
                    relays[index].readable(stream, scheduler.calendar().now())?;
                    if let Some(due) = relays[index].due() {
                        scheduler.calendar().stop_at(due);
                    }
                }
                Origin::Control => self.script.answered(scheduler)?,
                Origin::TapsListener => taps.as_mut().map_or(Ok(()), taps::Taps::accept)?,
                Origin::Taps => {
                    if let Some(taps) = taps {
                        taps.readable(switch, scheduler.calendar())?;
                    }
                }
            }
        }
        Ok(!ready.is_empty())
    }

    /// When nobody runs: interrupts first, then whoever is next.
    fn advance(&mut self, supervisor: &mut dyn Supervisor) -> Result<()> {
        while self.world.scheduler.is_idle() && !self.script.is_busy() {
            self.world.switch.interrupt()?;
            if self.world.switch.interrupted().is_some() || self.world.scheduler.start_next()? {
                return Ok(());
            }
            if self.script.daemon_is_back() {
                return self.world.reconnect();
            }
            let earliest = self.world.scheduler.next_at().unwrap_or(u64::MAX);
            let (script_at, world_at) = (self.script.next_at(), self.world.due());
            if script_at.is_some_and(|at| at <= earliest.min(world_at.unwrap_or(u64::MAX))) {
                return self.script.act(&mut self.world, &self.poller, supervisor);
            }
            // Nobody has to answer what arrives: there is nothing to wait for.
            match world_at {
                Some(at) if at <= earliest => self.world.deliver(at)?,
                _ => {
                    let due = script_at.into_iter().chain(world_at).min();
                    return self.world.scheduler.run_next(due);
                }
            }
        }
        Ok(())
    }

    fn whom_we_wait_for(&self) -> String {
        if let Some(reason) = self.world.scheduler.waits_for() {
            return reason;
        }
        if self.script.is_busy() {
            return "the daemon does not answer a request".into();
        }
        let guest = self.world.switch.interrupted().unwrap_or("nobody");
        format!("{guest} does not take an interrupt")
    }
}
