// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Taps, in the event loop.
use std::os::fd::BorrowedFd;

use super::{Server, ServerError};
use crate::{
    device::{Context, RemapReason},
    event_loop::clock,
    event_loop::poll::Token,
    tap::{
        host::Hold,
        laboratory::Laboratory,
        thread::{Done, Order, Thread},
        watches::PERIOD_US,
    },
};

/// What looks at taps.
#[derive(Debug)]
pub enum Taps {
    /// Nobody: virtual time without a laboratory.
    None,
    /// A thread that asks the kernel.
    Thread(Thread),
    /// The laboratory, in virtual time.
    Laboratory(Laboratory),
}

impl Taps {
    /// What to wait for, if for anything.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Taps::Thread(thread) => Some(thread.fd()),
            _ => None,
        }
    }
}

impl Server {
    /// Looks for the first time.
    pub(super) fn begin_with_taps(&mut self) {
        match self.taps {
            Taps::None => {}
            Taps::Thread(_) => {
                self.tell_powerless();
                self.look_at_taps();
            }
            Taps::Laboratory(_) => self.taps_due = Some(PERIOD_US),
        }
    }

    /// An operator has changed something: there may be taps to look at from now on.
    pub(super) fn look_again_at_taps(&mut self) {
        if std::mem::take(&mut self.taps_rest) {
            self.look_at_taps();
        }
    }

    /// Has the thread look, and again after a period; where no VM names a tap and none is held,
    /// not before an operator has changed something.
    pub(super) fn look_at_taps(&mut self) {
        let now = clock::monotonic();
        let taps = self.coupling.taps(now);
        if taps.is_empty() {
            self.tell_unseen(&[]);
        }
        let Taps::Thread(thread) = &mut self.taps else { return };
        let is_needed = self.coupling.has_taps() || self.coupling.uplinks().any();
        self.taps_rest = !is_needed && thread.is_idle();
        if self.taps_rest {
            return;
        }
        self.timers.wake(Token::Taps, now + PERIOD_US);
        if !thread.is_idle() {
            return;
        }
        // Nothing is seen then by which a tap would be let go.
        let holds = if taps.is_empty() { self.coupling.holds(now) } else { Vec::new() };
        let uplinks = self.coupling.order_uplinks(now);
        if !(taps.is_empty() && holds.is_empty() && uplinks.is_none()) {
            thread.order(Order { holds, taps, uplinks });
        }
    }

    /// Takes what the thread has seen.
    pub(super) fn take_taps(&mut self) -> Result<(), ServerError> {
        self.judge_what_was_seen();
        self.publish()
    }

    fn judge_what_was_seen(&mut self) {
        let Taps::Thread(thread) = &mut self.taps else { return };
        for mut done in thread.take() {
            done.leave_out_shared(self.coupling.settings());
            if !(done.received.is_empty() && done.unseen.is_empty()) {
                self.tell_unseen(&done.unseen);
            }
            self.take_queues(&done);
            let holds = self.judge(&done);
            match &mut self.taps {
                Taps::Thread(thread) if !holds.is_empty() => {
                    thread.order(Order { holds, ..Order::default() });
                }
                _ => {}
            }
        }
    }

    /// Looks at the laboratory's taps if it is time to.
    pub(super) fn look_at_laboratory(&mut self) {
        let now = self.clock.now();
        if !matches!(self.taps, Taps::Laboratory(_)) || self.taps_due.is_none_or(|due| due > now) {
            return;
        }
        self.taps_due = Some(now + PERIOD_US);
        let look = Order { taps: self.coupling.taps(now), ..Order::default() };
        let Taps::Laboratory(laboratory) = &mut self.taps else { return };
        let done = look.carry_out(|| now, laboratory);
        let holds = self.judge(&done);
        let Taps::Laboratory(laboratory) = &mut self.taps else { return };
        let held = Order { holds, ..Order::default() }.carry_out(|| now, laboratory);
        self.take_holds(&held);
    }

    /// Judges by what was seen; what is to be held now.
    fn judge(&mut self, done: &Done) -> Vec<Hold> {
        self.take_holds(done);
        if done.received.is_empty() {
            // What is held in groups that rest, or by taps that tell nothing of a VM, is let go.
            let holds = self.coupling.holds(done.at);
            self.map_held();
            return holds;
        }
        let (judged, holds) = self.coupling.take_taps(done);
        let settings = self.coupling.settings();
        for one in judged {
            let (vm, group) = (&settings.vms[&one.vm].name, &settings.groups[one.group].name);
            let verdict = one.verdict;
            if one.is_judged {
                log::warn!(VM = vm.as_str(), GROUP = group.as_str(); "VM {vm}: in group {group}, {verdict}");
            } else {
                let over = verdict.over();
                log::info!(VM = vm.as_str(), GROUP = group.as_str(); "VM {vm}: {over} in group {group} now");
            }
        }
        self.map_held();
        holds
    }

    /// A VM that is held is not coupled: it loses in a queue of its own.
    fn map_held(&mut self) {
        for vm in self.coupling.take_held() {
            let Some(connection) = self.vms.get(&vm).and_then(|vm| vm.connection.as_ref()) else {
                continue;
            };
            let mut context = Context { engine: &mut self.coupling, now: self.clock.now() };
            connection.backend().device_mut().remap(RemapReason::Coupling, &mut context);
        }
    }

    /// Takes what came of holds, and says what failed, of whose tap.
    fn take_holds(&mut self, done: &Done) {
        for tap in &done.lost {
            if !self.coupling.watches_mut().take_lost(done.at, tap) {
                continue;
            }
            let vm = self.coupling.settings().names_at(tap);
            log::warn!(
                VM = vm; "tap {tap} is held no more, for it was made anew or renamed, or somebody has removed its \
                 ingress qdisc, or the device or shaper that it leads through; it is held again"
            );
        }
        for (hold, outcome) in &done.holds {
            let told = self.coupling.watches_mut().take_hold(done.at, hold, outcome.is_ok());
            let Some(error) = outcome.as_ref().err().filter(|_| told) else { continue };
            match self.coupling.settings().names_at(&hold.tap) {
                vm if vm.is_empty() => log::warn!("{error}"),
                vm => log::warn!(VM = vm; "VM {vm}: {error}"),
            }
        }
        self.map_held();
    }
}
