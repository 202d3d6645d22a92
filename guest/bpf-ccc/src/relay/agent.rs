// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! An agent at the relay: its reports go into a table that is lent to the daemon, and it hears
//! what the daemon writes there.
use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use ccc_proto::{
    MAX_GRANT_LINES,
    wire::{ExtentStatus, GrantLine, SlotGrant},
};
use log::Level;

use super::lobby::Greeted;
use crate::{
    back_off::BackOff,
    frames::{Frame, Frames},
    front::Front,
    front_end::FrontEnd,
    lent::{Layout, Lent},
    log_limit::Limited,
    round::SLOW_US,
    serve::now_us,
    wanted::Wanted,
};

/// How often the daemon's connection is looked after, and an agent hears until when grants hold.
const TEND_US: u64 = 100_000;
/// How far apart connections to the daemon are, however often agents come and go: the VM's own
/// agent, which is started again, waits no longer.
const CONNECT_US: u64 = 1_000_000;
/// An agent that is silent for longer has gone: it says something ten times a second.
const SILENT_US: u64 = 5_000_000;
/// One that is silent for so long makes way for another.
const QUIET_US: u64 = 1_000_000;
/// Grants are looked at so often while there are reports, and so often while there are none.
const BUSY: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_millis(20);
/// How far apart it is looked for what the daemon has written: an agent that says little, and often,
/// may have used each of its slots, and all of these are looked at.
const TELL_US: u64 = 500;
/// After so long without a report there are none.
const REPORTS_US: u64 = 1_000_000;
/// Slots of a guest: what an agent has, and room for later ones.
const SLOTS_MAX: u32 = 4096;

/// An agent, and the table that is its VM's.
#[derive(Debug)]
pub struct Agent<'a> {
    vm: &'a Wanted,
    frames: Frames<File>,
    table: Lent,
    /// None while the daemon is not there.
    front: Option<FrontEnd>,
    told: Option<String>,
    /// What the agent knows of the daemon's part.
    status: ExtentStatus,
    lines: Vec<GrantLine>,
    slots: Vec<SlotGrant>,
    /// Slots from the first one of which there were reports.
    used: u32,
    heard_us: u64,
    reported_us: u64,
    tend_at_us: u64,
    tell_at_us: u64,
}

impl<'a> Agent<'a> {
    /// Makes a table for what the agent says that it has.
    pub fn new(vm: &'a Wanted, (frames, extent): Greeted, now_us: u64) -> Result<Agent<'a>> {
        let (slots, lines) = (extent.slots.get(), extent.grant_lines.get());
        ensure!(
            (1..=SLOTS_MAX).contains(&slots),
            "its agent has {slots} slots; expected 1 to {SLOTS_MAX}"
        );
        ensure!(
            (1..=MAX_GRANT_LINES).contains(&lines),
            "its agent has {lines} grant lines; expected 1 to {MAX_GRANT_LINES}, as the daemon takes"
        );
        let table = Lent::create(Layout::of(slots, lines)).context("no memory for a table")?;
        Ok(Agent {
            vm,
            frames,
            table,
            front: None,
            told: None,
            status: zerocopy::transmute!([0u8; 64]),
            lines: vec![zerocopy::transmute!([0u8; 64]); lines as usize],
            slots: vec![zerocopy::transmute!([0u8; 16]); slots as usize],
            used: 0,
            heard_us: now_us,
            reported_us: now_us,
            tend_at_us: 0,
            tell_at_us: 0,
        })
    }

    /// What is readable when it says something.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.frames.stream().as_fd()
    }

    /// Whether it has said something a while ago at most.
    pub fn is_lively(&self, now_us: u64) -> bool {
        now_us - self.heard_us < QUIET_US
    }

    /// Takes what it says, if there is something, and tells it what is new.
    /// The back-off is the VM's, whichever agent it has.
    pub fn serve(
        &mut self,
        is_readable: bool,
        back_off: &mut BackOff,
        said: &mut Limited,
    ) -> Result<()> {
        let now = now_us();
        // What was read with the hello comes first.
        if is_readable || self.tend_at_us == 0 {
            self.take(now)?;
        }
        ensure!(now - self.heard_us < SILENT_US, "its agent is silent");
        if now >= self.tend_at_us {
            self.tend_at_us = now + TEND_US;
            self.tend(now, back_off, said);
        }
        if let Some(front) = &mut self.front {
            front.flush();
        }
        if now >= self.tell_at_us {
            self.tell_at_us = now + TELL_US;
            self.tell();
        }
        self.frames.flush()
    }

    /// Looks after the connection to the daemon, and says until when grants hold.
    fn tend(&mut self, now: u64, back_off: &mut BackOff, said: &mut Limited) {
        let Agent { vm, front, table, told, .. } = self;
        let name = &vm.name;
        let received = front.as_mut().map(|there| there.receive(now, table));
        if let Some(Err(error)) = received {
            said.say(Level::Warn, format_args!("tenant {name}: {error:#}; its flows go on alone"));
            *front = None;
            back_off.ended(now);
        }
        if front.is_none() && back_off.is_over(now) {
            match FrontEnd::connect(&vm.socket, table, now) {
                Ok(there) => {
                    back_off.rest_until(now + CONNECT_US);
                    (*front, *told) = (Some(there), None);
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    if told.as_ref() != Some(&error) {
                        let what =
                            format_args!("tenant {name}: cannot connect to the daemon: {error}");
                        said.say(Level::Warn, what);
                    }
                    *told = Some(error);
                    back_off.rest_until(now + TEND_US);
                    // The agent is not heard while somebody is waited for who does not answer.
                    let after = now_us();
                    if after - now >= SLOW_US {
                        back_off.ended(after);
                    }
                }
            }
        }
        if front.is_some() && table.is_accepted() {
            back_off.served();
        }
        let until = front.as_mut().map_or(0, |front| front.lease(now));
        let hold_us = u32::try_from(until.saturating_sub(now)).unwrap_or(u32::MAX);
        // An agent that does not read has no lease for long.
        self.frames.send(&Frame::Alive(hold_us));
    }

    /// How long may be waited for the agent.
    pub fn patience(&self, now_us: u64) -> Duration {
        if now_us - self.reported_us < REPORTS_US { BUSY } else { IDLE }
    }

    /// Takes what has come, or a part of it.
    fn take(&mut self, now: u64) -> Result<()> {
        self.frames.receive()?;
        self.heard_us = now;
        while let Some(frame) = self.frames.next()? {
            match frame {
                Frame::Report(slot, report) if slot < self.table.layout().slots => {
                    self.table.set_report(slot, &report);
                    self.used = self.used.max(slot + 1);
                    self.reported_us = now;
                }
                Frame::Message(message) => {
                    if let Some(front) = &mut self.front {
                        front.send(now, &self.table, &message);
                    }
                }
                Frame::Alive(_) => {}
                other => bail!("its agent sends what is not expected: {other:?}"),
            }
        }
        Ok(())
    }

    /// Tells the agent what the daemon has written since.
    fn tell(&mut self) {
        let Agent { frames, table, status, lines, slots, used, .. } = self;
        let now = table.status();
        if now != *status && frames.send(&Frame::Status(now)) {
            *status = now;
        }
        for (number, known) in (0..).zip(lines) {
            match table.line(number) {
                Some(now) if now != *known && frames.send(&Frame::Line(number, now)) => {
                    *known = now;
                }
                _ => {}
            }
        }
        for (number, known) in (0..*used).zip(slots) {
            let now = table.slot_grant(number);
            if now != *known && frames.send(&Frame::Slot(number, now)) {
                *known = now;
            }
        }
    }
}
