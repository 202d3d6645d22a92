// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who counts in a group: flows come, go on, fall idle and leave, and the aggregate stays the
//! same sum of rates.
use super::{
    Group,
    carried::{Mean, Most},
};
use crate::{
    fixed::{Fraction, Micros, Window},
    flow::{self, Contribution, Flow},
    mean::MeanUnits,
    members::Members,
    policy::Joiner,
    report::Report,
};

/// A VM that comes is at the most so many times as far away as the only other one, or what that
/// has told is not believed.
const FARTHER: u64 = 64;

/// What a flow of a member has contributed, and does from now on.
pub(super) struct Change<'a> {
    pub(super) member: usize,
    pub(super) old: &'a Contribution,
    pub(super) new: &'a Contribution,
}

impl Change<'_> {
    pub(super) fn make(&self, members: &mut Members) {
        members.count(self.member, self.old, self.new);
    }

    /// Whether a flow that counts does so as another one from now on: with another priority,
    /// or with the first round-trip time that is known of it.
    fn is_of_who_counts(&self) -> bool {
        (self.old.priority, self.old.distance) != (self.new.priority, self.new.distance)
    }

    /// How far away it has been or is.
    fn farthest(&self) -> Micros {
        self.old.distance.max(self.new.distance)
    }
}

impl Group {
    /// Counts a flow no more (B7).
    pub(crate) fn uncount(&mut self, now: Micros, flow: &Flow) {
        let (old, new) = (flow.contribution(), Contribution::default());
        self.end(now, &Change { member: flow.member(), old: &old, new: &new });
    }

    fn end(&mut self, now: Micros, change: &Change) {
        let Change { member, old, .. } = change;
        let share = self.members.rate_share(*member, old);
        let waits = self.waits_at_once(*member);
        let window = self.aggregate.window;
        let is_cold = self.policy.is_cold(&self.aggregate);
        let means = self.edit(waits, |members| change.make(members));
        match means {
            Some((before, after)) if is_cold => self.scale_cold(before, after, change.farthest()),
            Some((before, after)) => {
                self.carried.leave(window, before, after);
                self.scale(after.over(before), before, after, change.farthest());
            }
            None => {}
        }
        self.forget_told(*member);
        if self.members.vms() == 1 {
            // What it tells from now on is its own word alone.
            self.events.begin();
        }
        match self.members.active_flows() {
            0 if old.active => self.policy.end(now),
            1.. if old.counts() => self.policy.leave(&mut self.aggregate, share),
            _ => {}
        }
        self.version += 1;
    }

    /// Counts a flow anew.
    pub(super) fn count(&mut self, now: Micros, change: &Change, report: &Report) {
        let Change { old, new, .. } = change;
        if !new.counts() {
            self.end(now, change);
        } else if !new.active {
            self.rest(now, change, flow::initial(report));
        } else if self.members.active_flows() == 0 {
            let is_first = self.members.vms() == 0;
            self.count_at_the_same_rate(change, flow::initial(report));
            self.events.begin();
            self.policy.begin(&mut self.aggregate, now, flow::initial(report));
            if is_first && self.policy.is_cold(&self.aggregate) {
                self.carried.begin(now, self.mean_us());
            }
        } else if !old.counts() {
            self.join(now, change, report);
        } else {
            self.count_on(change, flow::initial(report));
        }
    }

    /// A flow goes on to count.
    fn count_on(&mut self, change: &Change, initial: Window) {
        if change.is_of_who_counts() {
            self.count_at_the_same_rate(change, initial);
        } else {
            change.make(&mut self.members);
        }
    }

    /// A flow falls idle, and keeps its place.
    fn rest(&mut self, now: Micros, change: &Change, initial: Window) {
        self.count_on(change, initial);
        if change.old.active && self.members.active_flows() == 0 {
            self.policy.end(now);
        }
    }

    /// A flow joins others.
    fn join(&mut self, now: Micros, change: &Change, report: &Report) {
        let initial = flow::initial(report);
        if self.begins_anew(now, change, initial) {
            change.make(&mut self.members);
            self.policy.begin(&mut self.aggregate, now, initial);
            self.carried.begin(now, self.mean_us());
            return;
        }
        self.count_at_the_same_rate(change, initial);
        // As much as a flow at the mean distance has at this one's rate.
        let mean = self.members.mean_units();
        let mean = mean.map_or(Fraction::ALL, |mean| mean.over_own(change.new));
        let (member, told_bytes) = (change.member, flow::on_path_bytes(report));
        let part = self.part(member, report);
        let brings_bytes = self.limits.brings(now, member, part, told_bytes);
        let on_path = Window::from_bytes(brings_bytes).times(mean);
        let ssthresh = report.ssthresh_bytes.map(|bytes| Window::from_bytes(bytes.into()));
        let joiner = Joiner { initial, on_path, ssthresh };
        self.policy.join(&mut self.aggregate, &joiner);
    }

    /// Whether a VM that comes had better believe nothing of what there is, which one other VM
    /// has told: a window smaller than any flow begins with, since who has a group for itself
    /// can reduce it as often as it likes; or one of so near that at its rate it would be many
    /// times as large.
    fn begins_anew(&mut self, now: Micros, change: &Change, initial: Window) -> bool {
        let member = change.member;
        if self.members.counts(member) {
            return false;
        }
        let is_little = self.aggregate.window < initial && self.events.are_of_one_other(member);
        (is_little || self.are_too_near(change)) && self.limits.may_begin_anew(now, member)
    }

    /// Whether the only other VM is nearer than any can be beside a flow that comes.
    fn are_too_near(&self, change: &Change) -> bool {
        let waits = self.waits_of(change.member);
        self.members.vms() == 1 && FARTHER * (self.mean_us() + waits) < change.new.distance
    }

    /// What packets of a VM wait, and no more than the window makes them: what the VMs say is of
    /// before a reduction for some round trips.  It follows from who counts and the window, so who
    /// comes and goes leaves both as they were.
    fn waits_at_once(&self, member: usize) -> u64 {
        let waits = self.waits_of(member);
        let told_us = self.path.waits_us(self.aggregate.window, self.mean_us());
        told_us.map_or(waits, |us| waits.min(self.units_of(us)))
    }

    /// How far away the flows are in the mean; nothing where shares are windows.
    pub(super) fn mean_us(&self) -> Micros {
        self.members.mean_distance().map_or(0, MeanUnits::us)
    }

    /// Who counts from now on may find less than all there is at its distance, but an initial
    /// window.
    fn count_at_the_same_rate(&mut self, change: &Change, initial: Window) {
        let is_cold = self.policy.is_cold(&self.aggregate);
        let waits = self.waits_at_once(change.member);
        let Some((before, after)) = self.edit(waits, |members| change.make(members)) else {
            return;
        };
        if is_cold {
            self.scale_cold(before, after, change.farthest());
            return;
        }
        let window = self.aggregate.window;
        let all = window.times(after.over(before));
        match self.carried.come(before, after) {
            Some(Most { known, used }) if all > known.max(used).max(initial) => {
                let found = used.max(initial);
                self.scale(window.to(found.max(known)), before, after, change.farthest());
                if found > known {
                    self.aggregate.slow_start_to(all);
                }
            }
            _ => self.scale(after.over(before), before, after, change.farthest()),
        }
    }

    /// Changes who counts; the sum of rates stays as it is, and the aggregate follows.
    /// A round-trip time that drifts is no such change: windows, not rates, are what
    /// fills a queue.  So all count as far away as they were when they came, and what
    /// `waits` now: who comes and goes leaves the aggregate as it was.
    pub(super) fn at_the_same_rate(&mut self, waits: u64, edit: impl FnOnce(&mut Members)) {
        if let Some((before, after)) = self.edit(waits, edit) {
            self.scale(after.over(before), before, after, after.us());
        }
    }

    /// The same where nothing is known of the rate yet: who comes and goes again and again moves
    /// nothing.
    fn scale_cold(&mut self, before: Mean, after: Mean, farthest: Micros) {
        let window = self.aggregate.window;
        let found = self.carried.cold(window, before, after);
        if found != window {
            self.scale(window.to(found), before, after, farthest);
        }
    }

    /// Who comes or goes is so far away: the path is told, and whether all are others by that.
    fn scale(&mut self, factor: Fraction, before: Mean, after: Mean, farthest: Micros) {
        let window = self.aggregate.window;
        self.policy.scale(&mut self.aggregate, factor);
        self.carried.follow(window, self.aggregate.window);
        self.path.changed(after.us(), farthest);
        if after.is_much_more_than(before) || before.is_much_more_than(after) {
            self.path.are_others();
        }
    }

    /// Changes who counts; the means before and after, if they differ.
    fn edit(&mut self, waits: u64, edit: impl FnOnce(&mut Members)) -> Option<(Mean, Mean)> {
        let mean = |members: &Members| members.mean_distance().map(|mean| Mean::new(mean, waits));
        let before = mean(&self.members).or(self.left);
        edit(&mut self.members);
        let after = mean(&self.members);
        self.left = before;
        before.zip(after).filter(|(before, after)| before != after)
    }
}
