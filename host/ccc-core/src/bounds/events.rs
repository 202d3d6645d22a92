// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whose congestion events reduce whom.
//!
//! An event of a VM that can pay for it reduces what all have, once a round trip.  One
//! that cannot loses where nobody else does, or says so: it goes on in a pool of its own,
//! the window that it has then, which its events reduce and its flows grow, until that is
//! its part again.
use super::{
    Conduct,
    budget::{Budget, Totals},
};
use crate::fixed::{Beta, Fraction, Micros, Window};

/// Events in which a VM was alone from which on it is said to be; what others lose, and
/// what it could pay for, speaks against it.
const LONE: u64 = 16;
const LONE_MOST: u64 = 20;
/// Who has so much of the bytes is not said to lose alone: others hardly can.
const MOST_PERMILLE: u32 = 750;
/// Who has so much of them decides what their mean is.
const HALF_PERMILLE: u32 = 500;

/// Of two VMs that do not lose alike nobody can say which one is wrong: behind a short
/// queue one of two honest flows may lose each time.
const JURY: u64 = 3;

/// Whom an event reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduces {
    All,
    /// Only the VM itself.
    Itself,
    /// Nobody any more.
    Nobody,
}

/// A congestion event as it is told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) now: Micros,
    pub(crate) member: usize,
    /// Reductions of others are so far apart.
    pub(crate) round_us: Micros,
    /// VMs that there are.
    pub(crate) vms: u64,
    /// Epoch under which the lost segment was sent, and the present one.
    pub(crate) epoch: u32,
    pub(crate) present: u32,
}

/// The window of a VM that loses alone.
#[derive(Clone, Copy, Debug)]
struct Pool {
    window: Window,
    /// The next reduction may come then.
    until: Micros,
}

#[derive(Clone, Debug, Default)]
struct Vm {
    budget: Budget,
    pool: Option<Pool>,
    /// The epoch in which it has lost.
    lost: Option<u32>,
    lone: u64,
    alone: bool,
    shared_events: u64,
    lone_events: u64,
    refused_undos: u64,
    refused_exits: u64,
}

impl Vm {
    /// Loses alone once more, or others have lost so many times; whether that is another
    /// verdict.
    fn judge(&mut self, alone: bool, others: u64) -> bool {
        let lone = (self.lone + u64::from(alone)).min(LONE_MOST);
        self.lone = lone.saturating_sub(others.saturating_mul(2));
        let before = self.alone;
        self.alone = self.lone >= LONE || before && self.lone > 0;
        before != self.alone
    }
}

/// The latest reduction of all.
#[derive(Clone, Copy, Debug)]
struct Latest {
    at: Micros,
    member: usize,
    epoch: u32,
    /// Another one has lost, too.
    confirmed: bool,
}

/// Who has lost since the group was empty, or one VM's alone.
#[derive(Clone, Copy, Debug, Default)]
enum Losers {
    #[default]
    Nobody,
    One(usize),
    Several,
}

impl Losers {
    fn add(&mut self, member: usize) {
        *self = match *self {
            Losers::Nobody => Losers::One(member),
            Losers::One(other) if other == member => *self,
            _ => Losers::Several,
        };
    }
}

/// The latest loss that reduced all, or confirmed such a one, and the latest one before it that
/// another VM has told of.  What one VM loses alone says nothing of what others send through.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    by: usize,
    at: Option<Micros>,
    others_at: Option<Micros>,
}

impl Lost {
    fn add(&mut self, member: usize, now: Micros) {
        if self.by != member {
            *self = Lost { by: member, at: None, others_at: self.at };
        }
        self.at = Some(now);
    }

    fn by_others_at(&self, member: usize) -> Option<Micros> {
        if self.by == member { self.others_at } else { self.at }
    }
}

/// The events of a group's VMs.
#[derive(Debug, Default)]
pub(crate) struct Events {
    vms: Vec<Vm>,
    totals: Totals,
    latest: Option<Latest>,
    losers: Losers,
    lost: Lost,
    verdicts: u64,
}

impl Events {
    /// A VM of this number comes, of which nothing is known.
    pub(crate) fn add(&mut self, member: usize) {
        if member >= self.vms.len() {
            self.vms.resize(member + 1, Vm::default());
        }
        self.vms[member] = Vm { budget: Budget::new(self.totals), ..Vm::default() };
        self.latest = self.latest.filter(|latest| latest.member != member);
        if self.lost.by == member {
            self.lost = Lost::default();
        }
        if matches!(self.losers, Losers::One(one) if one == member) {
            self.losers = Losers::default();
        }
    }

    /// The group was empty, or one VM's alone.
    pub(crate) fn begin(&mut self) {
        self.losers = Losers::default();
    }

    /// Whether all that reduced the group since then was told by one other VM.
    pub(crate) fn are_of_one_other(&self, member: usize) -> bool {
        matches!(self.losers, Losers::One(other) if other != member)
    }

    /// A VM that has this part of the window has had so much delivered; whether its pool has
    /// become its part again.
    pub(crate) fn deliver(
        &mut self,
        member: usize,
        bytes: u64,
        part_bytes: u64,
        all_bytes: u64,
    ) -> bool {
        self.totals.add_bytes(bytes);
        let vm = &mut self.vms[member];
        let others = vm.budget.count(self.totals, bytes, all_bytes);
        // Judged again by the same events, it would be found the same.
        if others > 0 {
            self.verdicts += u64::from(vm.judge(false, others));
        }
        vm.pool.take_if(|pool| pool.window.bytes() >= part_bytes).is_some()
    }

    /// A VM has lost, or says so.
    pub(crate) fn event(&mut self, told: &Told) -> Reduces {
        let Told { now, member, epoch, present, round_us, vms } = *told;
        let since_us = self.latest.map_or(Micros::MAX, |latest| now.saturating_sub(latest.at));
        if epoch != present || since_us < round_us {
            self.confirm(now, member, epoch);
            return Reduces::Nobody;
        }
        if self.vms[member].budget.pay(Fraction::ALL) || vms < JURY {
            self.pays(member, now, epoch);
            return Reduces::All;
        }
        // What several have who cannot pay is no loss of one, whatever a VM says that loses
        // nothing: it earns the others theirs.
        self.totals.add_event();
        let vm = &mut self.vms[member];
        vm.budget.skip_event(self.totals);
        vm.lone_events += 1;
        let others_have_bytes = vm.budget.part_permille() < MOST_PERMILLE;
        self.verdicts += u64::from(vm.judge(others_have_bytes, 0));
        Reduces::Itself
    }

    /// A VM's event is one of all.
    fn pays(&mut self, member: usize, now: Micros, epoch: u32) {
        self.totals.add_event();
        self.losers.add(member);
        self.lost.add(member, now);
        let vm = &mut self.vms[member];
        vm.shared_events += 1;
        vm.lost = Some(epoch);
        vm.budget.skip_event(self.totals);
        self.verdicts += u64::from(vm.judge(false, 1));
        self.latest = Some(Latest { at: now, member, epoch, confirmed: false });
    }

    /// Another than the one that has paid has lost, and shares the cost if that was in the same
    /// epoch.
    fn confirm(&mut self, now: Micros, member: usize, epoch: u32) {
        let Some(latest) = self.latest.as_mut().filter(|latest| latest.member != member) else {
            return;
        };
        // Who reduces again and again has the others' losses always come late.
        latest.confirmed = true;
        self.losers.add(member);
        self.lost.add(member, now);
        if latest.epoch != epoch || self.vms[member].lost == Some(epoch) {
            return;
        }
        let vm = &mut self.vms[member];
        vm.lost = Some(epoch);
        vm.budget.skip_event(self.totals);
        let part = vm.budget.part();
        self.vms[latest.member].budget.share_cost(part);
    }

    /// A VM that loses alone reduces what it has.
    pub(crate) fn reduce_pool(&mut self, told: &Told, part: Window, beta: Beta) {
        let vm = &mut self.vms[told.member];
        let pool = vm.pool.unwrap_or(Pool { window: part, until: 0 });
        if told.now >= pool.until {
            let window = pool.window.min(part).times(beta);
            vm.pool = Some(Pool { window, until: told.now.saturating_add(told.round_us) });
        }
    }

    /// A VM in a pool of its own grows that one.
    pub(crate) fn grow_pool(&mut self, member: usize, by: impl FnOnce() -> Window) -> bool {
        let pool = self.vms[member].pool.as_mut();
        pool.map(|pool| pool.window = pool.window.plus(by())).is_some()
    }

    /// The window of a VM in a pool of its own.
    pub(crate) fn pool(&self, member: usize) -> Option<Window> {
        self.vms[member].pool.map(|pool| pool.window)
    }

    /// Whether a VM tells of more than half of the bytes, while others have lost since then.
    pub(crate) fn outvotes_losses(&self, member: usize, since: Micros) -> bool {
        self.vms[member].budget.part_permille() > HALF_PERMILLE
            && self.lost.by_others_at(member).is_some_and(|at| at > since)
    }

    /// Whether the latest reduction may be undone by a flow of this VM: others have not
    /// lost, too.
    pub(crate) fn may_undo(&mut self, member: usize) -> bool {
        let may = self.latest.is_some_and(|latest| latest.member == member && !latest.confirmed);
        self.vms[member].refused_undos += u64::from(!may);
        may
    }

    /// Whether a VM may take so much of its part out of the aggregate: all of it is an
    /// event for the others, who do not get it.
    pub(crate) fn may_take_out(&mut self, member: usize, of_part: Fraction) -> bool {
        let vm = &mut self.vms[member];
        let may = vm.budget.pay(of_part);
        vm.refused_exits += u64::from(!may);
        may
    }

    /// What a VM was found to do.
    pub(crate) fn conduct(&self, member: usize) -> Conduct {
        let vm = &self.vms[member];
        Conduct {
            alone: vm.alone,
            own_cwnd_bytes: vm.pool.map(|pool| pool.window.bytes()),
            shared_events: vm.shared_events,
            lone_events: vm.lone_events,
            delivered_permille: vm.budget.part_permille(),
            refused_undos: vm.refused_undos,
            refused_exits: vm.refused_exits,
            ..Conduct::default()
        }
    }

    /// Changes whenever a VM comes to be alone, or no longer is.
    pub(crate) fn verdicts(&self) -> u64 {
        self.verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_lost_alone_is_so_until_as_much_speaks_for_it() {
        let mut vm = Vm::default();
        let verdicts = (1..=LONE).map(|_| vm.judge(true, 0)).filter(|is_new| *is_new).count();
        assert!(vm.alone && verdicts == 1);
        assert!(!vm.judge(false, 1) && vm.alone, "others have lost once");
        assert!(vm.judge(false, LONE / 2) && !vm.alone);
        assert!(!vm.judge(true, 0) && !vm.alone, "and it begins anew");
    }

    #[test]
    fn who_is_judged_again_without_an_event_is_judged_the_same() {
        let mut vm = Vm::default();
        // Up to the verdict, beyond it, and down to none.
        for (alone, others) in (0..60).map(|step| (step < 30, u64::from(step >= 30))) {
            vm.judge(alone, others);
            let (lone, verdict) = (vm.lone, vm.alone);
            assert!(!vm.judge(false, 0) && (vm.lone, vm.alone) == (lone, verdict));
        }
    }

    #[test]
    fn a_loss_of_ones_own_is_none_of_others() {
        let mut lost = Lost::default();
        assert_eq!(lost.by_others_at(1), None);
        lost.add(1, 10);
        lost.add(1, 20);
        assert_eq!((lost.by_others_at(1), lost.by_others_at(2)), (None, Some(20)));
        lost.add(2, 30);
        lost.add(2, 40);
        assert_eq!((lost.by_others_at(1), lost.by_others_at(2)), (Some(40), Some(20)));
    }

    const ROUND_US: Micros = 100_000;

    /// A second of three VMs, of which the first one has nearly all bytes, and the second tells
    /// of a loss.
    fn second(events: &mut Events, now: Micros, epoch: u32) -> Reduces {
        for (member, bytes) in [(0, 1_000_000), (1, 10_000), (2, 10_000)] {
            events.deliver(member, bytes, bytes, 1_020_000);
        }
        let (round_us, vms) = (ROUND_US, 3);
        events.event(&Told { now, member: 1, round_us, vms, epoch, present: epoch })
    }

    #[test]
    fn losses_that_are_ones_alone_outvote_nobody() {
        let mut events = Events::default();
        (0..3).for_each(|member| events.add(member));
        for number in 1..=20 {
            let now = Micros::from(number) * 1_000_000;
            let reduces = second(&mut events, now, number);
            let believed = matches!(reduces, Reduces::All);
            assert_eq!(
                events.outvotes_losses(0, now - ROUND_US),
                believed,
                "{number}: {reduces:?}"
            );
            assert_eq!(believed, number <= 3, "three are saved");
        }
    }

    #[test]
    fn who_gets_a_number_has_lost_nothing_under_it() {
        let mut events = Events::default();
        (0..3).for_each(|member| events.add(member));
        second(&mut events, 1_000_000, 1);
        assert!(events.are_of_one_other(2) && events.outvotes_losses(0, 0));
        events.add(1);
        assert!(!events.are_of_one_other(2) && !events.outvotes_losses(0, 0));
    }
}
