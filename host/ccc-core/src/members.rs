// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who is in a group, and the sums over them that make every share O(1).
//!
//! The share of flow i of VM v is w_v · p_i / Σ_v p, times its srtt where
//! shares are rates (B20, B21).  With units u_i = p_i · (srtt or 1) and
//! the VM's effective weight e_v = w_v · Σ_v u / Σ_v p it is e_v · u_i / Σ_v u,
//! so a VM needs three sums and the group two, whatever the number of flows.
mod breaks;
mod level;

use std::cell::RefCell;

use slab::Slab;

use crate::{
    fixed::{Fraction, Micros, Share, Weight, Window, mul_div},
    flow::Contribution,
    mean::MeanUnits,
    range::RateRange,
};
use breaks::Breaks;
pub(crate) use level::Level;

/// No TCP's reduction leaves less (RFC 5681, equation 4): the receiver may hold back
/// the ACK of a single segment (there, 4.2).
const LEAST_SEGMENTS: u64 = 2;

/// A VM in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    weight: Weight,
    /// Its floor and its cap.
    range: RateRange,
    /// The time in which that counts, as its demand does: where shares are rates a
    /// microsecond, where they are windows its round-trip time.
    time_us: Micros,
    priorities: u64,
    units: u64,
    /// The same as its guest says.
    claimed: u64,
    distances: u64,
    growing_units: u64,
    backlogged_priorities: u64,
    backlogged_units: u64,
    /// Sum over its application-limited flows, of [`Contribution::demand_rate`].
    demand_rate: u128,
    /// One segment for each of its active flows.
    mss_bytes: u64,
    /// e_v, in 1/256 of weight (times microseconds).
    effective: u64,
    /// The same of its flows' distances.
    distant: u64,
    /// Part of e_v that belongs to growing flows, with 16 fraction bits.
    growing: u64,
    /// e_v if there were no others than its backlogged flows.
    backlogged_effective: u64,
    means: Means,
}

/// What a VM wants that does not just share by weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asks {
    weight: Weight,
    range: RateRange,
    time_us: Micros,
    demand_rate: Option<u128>,
}

impl Asks {
    fn has_range(&self) -> bool {
        self.range != RateRange::ANY
    }
}

/// A VM's sums for one of priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Means {
    units: u64,
    claimed: u64,
    distance: u64,
}

impl Member {
    fn new(weight: Weight) -> Member {
        Member {
            weight,
            range: RateRange::ANY,
            time_us: 1,
            priorities: 0,
            units: 0,
            claimed: 0,
            distances: 0,
            growing_units: 0,
            backlogged_priorities: 0,
            backlogged_units: 0,
            demand_rate: 0,
            mss_bytes: 0,
            effective: 0,
            distant: 0,
            growing: 0,
            backlogged_effective: 0,
            means: Means::default(),
        }
    }

    fn count(&mut self, old: &Contribution, new: &Contribution) {
        self.priorities = self.priorities + new.priority - old.priority;
        self.units = self.units + new.units - old.units;
        self.claimed = self.claimed + new.claimed - old.claimed;
        self.distances = self.distances + new.distances() - old.distances();
        self.growing_units = self.growing_units + new.growing_units() - old.growing_units();
        self.backlogged_priorities =
            self.backlogged_priorities + new.backlogged_priority() - old.backlogged_priority();
        self.backlogged_units =
            self.backlogged_units + new.backlogged_units() - old.backlogged_units();
        self.demand_rate = self.demand_rate + new.demand_rate() - old.demand_rate();
        self.mss_bytes = self.mss_bytes + new.mss_bytes - old.mss_bytes;
    }

    fn refresh(&mut self) {
        self.effective = self.effective_of(self.units, self.priorities);
        self.distant = self.effective_of(self.distances, self.priorities);
        let all_are_backlogged = self.backlogged_priorities == self.priorities;
        self.backlogged_effective = match all_are_backlogged {
            true => self.effective,
            false => self.effective_of(self.backlogged_units, self.backlogged_priorities),
        };
        self.growing = self.part(self.growing_units);
        let mean = |sum: u64| sum / self.priorities.max(1);
        self.means = Means {
            units: mean(self.units),
            claimed: mean(self.claimed),
            distance: mean(self.distances),
        };
    }

    fn effective_of(&self, units: u64, priorities: u64) -> u64 {
        match priorities {
            0 => 0,
            sum => mul_div(self.weight.raw(), units, sum).max(1),
        }
    }

    /// Its weight, while it has backlogged flows.
    fn backlogged_weight(&self) -> u64 {
        if self.backlogged_priorities == 0 { 0 } else { self.weight.raw() }
    }

    /// Its weight, while it has active flows.
    fn weight_in_use(&self) -> u64 {
        if self.priorities == 0 { 0 } else { self.weight.raw() }
    }

    /// It has a floor or a cap.
    fn has_range(&self) -> bool {
        self.range != RateRange::ANY
    }

    /// What of it decides about what it has beside its weight's part.
    fn asks(&self) -> Option<Asks> {
        let asks = self.priorities > 0 && (self.has_range() || self.backlogged_priorities == 0);
        let Member { weight, range, time_us, demand_rate, .. } = *self;
        let demand_rate = self.is_app_limited().then_some(demand_rate);
        asks.then_some(Asks { weight, range, time_us, demand_rate })
    }

    /// Every active flow is application-limited.
    fn is_app_limited(&self) -> bool {
        self.priorities > 0 && self.backlogged_priorities == 0
    }

    /// e_v · units / Σ units, with 16 fraction bits.
    fn part(&self, units: u64) -> u64 {
        match self.units {
            0 => 0,
            sum => mul_div(self.effective << 16, units, sum),
        }
    }
}

/// Sums over all flows of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sums {
    effective: u64,
    distant: u64,
    /// The VMs with flows that count, and their weights.
    vms: u64,
    weight: u64,
    /// Wider than a VM's: 1,060 of the largest weight at a second's srtt are more
    /// than 64 bits hold.
    growing: u128,
    /// The effective weights if VMs had no others than their backlogged flows, and the
    /// weights of those that have any.
    backlogged_effective: u64,
    backlogged_weight: u64,
    active: u64,
    backlogged: u64,
    app_limited: u64,
    /// VMs with a floor or a cap, while they have flows that count.
    ranged: u64,
    timed_out: u64,
    mss_bytes: u64,
}

/// The VMs of a group and the sums over their flows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    members: Slab<Member>,
    sums: Sums,
    /// Of those that do not just share by weight, brought up to date when they are looked at.
    breaks: RefCell<Breaks>,
}

impl Members {
    pub(crate) fn add(&mut self, weight: Weight) -> usize {
        self.members.insert(Member::new(weight))
    }

    /// The member's flows must have left before.
    pub(crate) fn remove(&mut self, member: usize) {
        self.members.remove(member);
        self.breaks.get_mut().touch(member);
    }

    pub(crate) fn set_weight(&mut self, member: usize, weight: Weight) {
        self.change(member, |m| m.weight = weight);
    }

    /// Sets a VM's floor and cap, and the time in which they count.
    pub(crate) fn set_range(&mut self, member: usize, range: RateRange, time_us: Micros) {
        let there = &self.members[member];
        if (there.range, there.time_us) != (range, time_us) {
            self.change(member, |m| (m.range, m.time_us) = (range, time_us));
        }
    }

    /// A VM's floor and cap, if it has one.
    pub(crate) fn range_of(&self, member: usize) -> Option<RateRange> {
        let m = &self.members[member];
        m.has_range().then_some(m.range)
    }

    /// A VM that counts has a floor or a cap.
    pub(crate) fn has_ranges(&self) -> bool {
        self.sums.ranged > 0
    }

    /// Whether the member has flows that take all they are given.
    pub(crate) fn is_backlogged(&self, member: usize) -> bool {
        self.members[member].backlogged_weight() > 0
    }

    /// Counts a flow as `new` instead of `old`.
    // In each report: a call would cost about as much.
    #[inline(always)]
    pub(crate) fn count(&mut self, member: usize, old: &Contribution, new: &Contribution) {
        if old == new {
            return;
        }
        let step = |sum, counts: fn(&Contribution) -> bool| {
            sum + u64::from(counts(new)) - u64::from(counts(old))
        };
        self.sums.active = step(self.sums.active, |flow| flow.active);
        self.sums.backlogged =
            step(self.sums.backlogged, |flow| flow.active && flow.demand_bytes.is_none());
        self.sums.app_limited = step(self.sums.app_limited, |flow| flow.demand_bytes.is_some());
        self.sums.timed_out = step(self.sums.timed_out, |flow| flow.timed_out);
        self.sums.mss_bytes = self.sums.mss_bytes + new.mss_bytes - old.mss_bytes;
        self.change(member, |m| m.count(old, new));
    }

    #[inline(never)]
    fn change(&mut self, member: usize, edit: impl FnOnce(&mut Member)) {
        let m = &mut self.members[member];
        self.sums.effective -= m.effective;
        self.sums.distant -= m.distant;
        self.sums.vms -= u64::from(m.priorities > 0);
        let asked = m.asks();
        self.sums.weight -= m.weight_in_use();
        self.sums.growing -= u128::from(m.growing);
        self.sums.backlogged_effective -= m.backlogged_effective;
        self.sums.backlogged_weight -= m.backlogged_weight();
        edit(m);
        m.refresh();
        self.sums.effective += m.effective;
        self.sums.distant += m.distant;
        self.sums.vms += u64::from(m.priorities > 0);
        self.sums.weight += m.weight_in_use();
        self.sums.growing += u128::from(m.growing);
        self.sums.backlogged_effective += m.backlogged_effective;
        self.sums.backlogged_weight += m.backlogged_weight();
        let asks = m.asks();
        if asked.is_some() || asks.is_some() {
            self.asks_anew(member, [asked, asks]);
        }
    }

    /// A VM may have asked for something else than its weight's part before, or does now.
    fn asks_anew(&mut self, member: usize, [before, now]: [Option<Asks>; 2]) {
        let ranged = |asks: Option<Asks>| u64::from(asks.is_some_and(|asks| asks.has_range()));
        self.sums.ranged = self.sums.ranged + ranged(now) - ranged(before);
        if before != now {
            self.breaks.get_mut().touch(member);
        }
    }

    /// Whether the running sums are those over these flows, each with its member.
    pub(crate) fn is_sum_over(&self, flows: impl Iterator<Item = (usize, Contribution)>) -> bool {
        let mut anew = self.clone();
        anew.sums = Sums::default();
        anew.breaks = RefCell::default();
        for (_, member) in &mut anew.members {
            let (range, time_us) = (member.range, member.time_us);
            *member = Member { range, time_us, ..Member::new(member.weight) };
        }
        for (member, contribution) in flows {
            anew.count(member, &Contribution::default(), &contribution);
        }
        let breaks = |members: &Members| members.breaks(Breaks::total);
        anew.sums == self.sums
            && anew.members.iter().eq(self.members.iter())
            && breaks(&anew) == breaks(self)
    }

    /// Flows with data outstanding.
    pub(crate) fn active_flows(&self) -> u64 {
        self.sums.active
    }

    /// Those of them that take all they are given.
    pub(crate) fn backlogged_flows(&self) -> u64 {
        self.sums.backlogged
    }

    /// All active flows, and at least one, are in a timeout episode (B3).
    pub(crate) fn all_timed_out(&self) -> bool {
        self.sums.active > 0 && self.sums.timed_out == self.sums.active
    }

    /// No flow is in a timeout episode.
    pub(crate) fn none_timed_out(&self) -> bool {
        self.sums.timed_out == 0
    }

    /// Two segments for each active flow.
    pub(crate) fn floor_bytes(&self) -> u64 {
        self.sums.mss_bytes * LEAST_SEGMENTS
    }

    /// The same of a VM's flows.
    pub(crate) fn floor_of(&self, member: usize) -> u64 {
        self.members[member].mss_bytes * LEAST_SEGMENTS
    }

    /// What a VM has of a window at the most, by weight: all but what the others' backlogged
    /// flows would have, if nobody else were there.
    pub(crate) fn most_of(&self, member: usize, window: Window) -> Window {
        let m = &self.members[member];
        let others = self.sums.backlogged_effective - m.backlogged_effective;
        window.times(Share { part: m.effective, whole: m.effective + others })
    }

    /// The mean of a VM's distances for one of priority.
    pub(crate) fn mean_distance_of(&self, member: usize) -> u64 {
        self.members[member].means.distance
    }

    /// The mean of what a VM's flows say that they count, for one of priority.
    pub(crate) fn mean_told_of(&self, member: usize) -> u64 {
        self.members[member].means.claimed
    }

    /// The mean of a VM's units for one of priority.
    pub(crate) fn mean_units_of(&self, member: usize) -> u64 {
        self.members[member].means.units
    }

    /// The windows of a VM's flows at a level for one unit, as its guest multiplies.
    pub(crate) fn bytes_at(&self, member: usize, level: u64) -> u64 {
        let wide = (u128::from(level) * u128::from(self.members[member].claimed)) >> 32;
        u64::try_from(wide).unwrap_or(u64::MAX)
    }

    /// A flow's share of its VM.
    pub(crate) fn share_of_vm(&self, member: usize, flow: &Contribution) -> Share {
        Share { part: flow.units, whole: self.members[member].units.max(1) }
    }

    /// The level for one unit at which a VM has this window.
    pub(crate) fn level_of(&self, member: usize, window: Window) -> u64 {
        let m = &self.members[member];
        let wide = (u128::from(window.raw()) << 16) / u128::from(m.claimed.max(1));
        u64::try_from(wide).unwrap_or(u64::MAX)
    }

    /// A flow's share of the growth of all that grow.  The flow counts as
    /// growing, whatever its contribution says.
    pub(crate) fn growth_share(&self, member: usize, flow: &Contribution) -> Fraction {
        let own = self.weight(member, flow);
        let others = if flow.growing { 0 } else { own };
        Fraction::new(own, (self.sums.growing + others).max(own))
    }

    /// Whether those that grow have less than a quarter: each grows for many, then.
    pub(crate) fn few_grow(&self) -> bool {
        self.sums.growing < self.weights() / 4
    }

    /// The weighted mean of what one share is counted in; of nobody's, none.
    pub(crate) fn mean_units(&self) -> Option<MeanUnits> {
        let Sums { effective, weight, .. } = self.sums;
        (weight > 0).then_some(MeanUnits { effective, weight })
    }

    /// The weighted mean of how far away they are; of nobody, none.
    pub(crate) fn mean_distance(&self) -> Option<MeanUnits> {
        let Sums { distant: effective, weight, .. } = self.sums;
        (weight > 0).then_some(MeanUnits { effective, weight })
    }

    /// A VM's weight.
    pub(crate) fn weight_of(&self, member: usize) -> Weight {
        self.members[member].weight
    }

    /// VMs that have flows that count.
    pub(crate) fn vms(&self) -> u64 {
        self.sums.vms
    }

    /// A VM has flows that count.
    pub(crate) fn counts(&self, member: usize) -> bool {
        self.members[member].priorities > 0
    }

    /// The mean of all VMs' units over that of their backlogged flows: a window that these
    /// take is so many times as much of the aggregate.
    pub(crate) fn mean_over_backlogged(&self) -> Fraction {
        let means = self.means_if_they_differ();
        means.map_or(Fraction::ALL, |(mean, backlogged)| mean.over(backlogged))
    }

    /// The mean of the backlogged flows' units over that of all VMs: what the former take is so
    /// many times the aggregate.
    pub(crate) fn backlogged_over_mean(&self) -> Fraction {
        let means = self.means_if_they_differ();
        means.map_or(Fraction::ALL, |(mean, backlogged)| backlogged.over(mean))
    }

    /// The mean of all VMs' units, and that of their backlogged flows, if there are such.
    fn means_if_they_differ(&self) -> Option<(MeanUnits, MeanUnits)> {
        let Sums { backlogged_effective: effective, backlogged_weight: weight, .. } = self.sums;
        let backlogged = MeanUnits { effective, weight };
        let mean = self.mean_units().filter(|mean| weight > 0 && *mean != backlogged)?;
        Some((mean, backlogged))
    }

    /// A flow's share of the sum of rates; of windows, where shares are of those.
    pub(crate) fn rate_share(&self, member: usize, flow: &Contribution) -> Fraction {
        Fraction::new(self.rate_weight(member, flow), self.rate_weights().max(1))
    }

    /// A flow's part of [`Members::rate_weights`].
    pub(crate) fn rate_weight(&self, member: usize, flow: &Contribution) -> u128 {
        let m = &self.members[member];
        let weight = u128::from(m.weight.raw()) << 32;
        weight * u128::from(flow.priority) / u128::from(m.priorities.max(1))
    }

    /// A VM's part of them, while it has flows that count.
    pub(crate) fn rate_weight_of(&self, member: usize) -> u128 {
        u128::from(self.members[member].weight_in_use()) << 32
    }

    /// Weight of all VMs with active flows, with 32 fraction bits.
    pub(crate) fn rate_weights(&self) -> u128 {
        u128::from(self.sums.weight) << 32
    }

    /// A flow's share of the aggregate.
    pub(crate) fn share(&self, member: usize, flow: &Contribution) -> Fraction {
        Fraction::new(self.weight(member, flow), self.weights().max(1))
    }

    /// A flow's part of [`Members::weights`].
    pub(crate) fn weight(&self, member: usize, flow: &Contribution) -> u128 {
        self.members[member].part(flow.units).into()
    }

    /// Effective weight of all flows together, with 16 fraction bits.
    pub(crate) fn weights(&self) -> u128 {
        u128::from(self.sums.effective) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn flow(priority: u64) -> Contribution {
        let units = priority;
        let (active, growing) = (true, true);
        Contribution {
            priority,
            units,
            active,
            growing,
            mss_bytes: 1000,
            ..Contribution::default()
        }
    }

    pub(super) fn app_limited(demand_bytes: u64) -> Contribution {
        Contribution { growing: false, demand_bytes: Some(demand_bytes), ..flow(256) }
    }

    #[test]
    fn the_place_of_who_has_left_is_another_s() {
        let mut members = Members::default();
        let first = members.add(Weight::ONE);
        members.remove(first);
        assert_eq!(members.add(Weight::ONE), first);
    }

    /// VMs of these weights, numbered from 0, with these flows.
    pub(super) fn members(weights: &[f64], flows: &[(usize, Contribution)]) -> Members {
        let mut members = Members::default();
        for weight in weights {
            members.add(Weight::from_f64(*weight).expect("in range"));
        }
        for (vm, flow) in flows {
            members.count(*vm, &Contribution::default(), flow);
        }
        members
    }

    #[test]
    fn what_backlogged_flows_take_and_grow_by_is_more_of_the_aggregate() {
        let far = Contribution { units: 300, demand_bytes: Some(0), ..flow(100) };
        let near = Contribution { units: 100, ..flow(100) };
        let grow_and_take = |flows: &[(usize, Contribution)]| {
            let members = members(&[1.0; 2], flows);
            [members.mean_over_backlogged(), members.backlogged_over_mean()]
                .map(|part| Window::from_bytes(1000).times(part).bytes())
        };
        assert_eq!(grow_and_take(&[(0, near), (1, near)]), [1000, 1000]);
        assert_eq!(grow_and_take(&[(0, near), (1, far)]), [2000, 500], "a mean of 200 over 100");
        assert_eq!(grow_and_take(&[(1, far)]), [1000, 1000], "nobody could grow");
    }

    #[test]
    fn only_who_takes_all_is_backlogged() {
        let idle = Contribution { active: false, demand_bytes: Some(0), ..flow(256) };
        let members = members(&[1.0], &[(0, flow(256)), (0, app_limited(9)), (0, idle)]);
        assert_eq!(members.backlogged_flows(), 1);
    }

    #[test]
    fn sums_return_to_zero() {
        let mut members = members(&[1.0], &[(0, flow(77))]);
        members.count(0, &flow(77), &Contribution::default());
        assert_eq!(members.sums, Sums::default());
        let window = Window::from_bytes(1000);
        let equal = members.equal_level(window);
        assert_eq!(members.grant_level(0, equal, || members.max_min_level(equal)), None);
    }

    #[test]
    fn a_recount_finds_a_flow_that_was_not_counted() {
        let members = members(&[1.0, 2.0], &[(0, flow(77)), (1, app_limited(9))]);
        let (a, b) = (flow(77), app_limited(9));
        assert!(members.is_sum_over([(1, b), (0, a)].into_iter()));
        assert!(!members.is_sum_over([(1, b)].into_iter()));
        assert!(!members.is_sum_over([(0, b), (1, a)].into_iter()), "the other's");
    }

    #[test]
    fn e7_shares_of_two_thousand_vms_sum_to_the_whole() {
        // The longest smoothed round-trip time counted, where shares are rates.
        let far = Contribution { units: 256 << 20, ..flow(256) };
        let flows: Vec<_> = (0..2_000).map(|vm| (vm, far)).collect();
        let members = members(&[Weight::MAX; 2_000], &flows);
        let sum: u128 = flows.iter().map(|(vm, far)| members.weight(*vm, far)).sum();
        assert_eq!(sum, members.weights());
    }

    #[test]
    fn each_active_flow_counts_with_a_segment() {
        let members = members(&[3.0, 1.0], &[(0, flow(256)), (1, flow(256)), (1, flow(768))]);
        assert_eq!(members.floor_bytes(), 6_000);
    }

    #[test]
    fn growth_shares_sum_to_the_whole() {
        let flows = [(0, flow(256)), (1, flow(256)), (1, flow(768))];
        let members = members(&[3.0, 1.0], &flows);
        let sum: u128 = flows.iter().map(|(vm, flow)| members.weight(*vm, flow)).sum();
        for (vm, flow) in flows {
            let own = members.weight(vm, &flow);
            assert_eq!(members.growth_share(vm, &flow), Fraction::new(own, sum));
            let recovering = Contribution { growing: false, ..flow };
            let beside = Fraction::new(own, sum + own);
            assert_eq!(members.growth_share(vm, &recovering), beside);
        }
    }
}
