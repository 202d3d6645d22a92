// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the VMs of a group are granted, found once for each version of the group.
use std::cell::Cell;

use super::{Group, SPREAD_FROM_US};
use crate::{
    config::ShareOf,
    fixed::{Micros, Window, mul_div},
    grant::{Grant, rounding_offset},
    members::Level,
    policy::Aggregate,
};

/// Guests pause for no longer than that (`CCC_SPREAD_US_MAX`).
const SPREAD_US: Micros = 750_000;

/// What was found of one version of the group.
#[derive(Debug)]
struct Known<T: Copy> {
    /// `None` is of no version.
    version: Cell<Option<u64>>,
    value: Cell<T>,
}

impl<T: Copy + Default> Default for Known<T> {
    fn default() -> Known<T> {
        Known { version: Cell::new(None), value: Cell::default() }
    }
}

impl<T: Copy> Known<T> {
    /// What is known of this version, or found now.
    fn of(&self, version: u64, find: impl FnOnce() -> T) -> T {
        if self.version.get() != Some(version) {
            self.value.set(find());
            self.version.set(Some(version));
        }
        self.value.get()
    }
}

/// What the VMs of a group are granted.
#[derive(Debug, Default)]
pub(super) struct Granted {
    vms: Vec<Known<Grant>>,
    equal: Known<Level>,
    max_min: Known<Level>,
    twice: Known<Level>,
}

impl Granted {
    /// A VM of this number comes, which is granted nothing yet.
    pub(super) fn add(&mut self, member: usize) {
        if member >= self.vms.len() {
            self.vms.resize_with(member + 1, Known::default);
        }
        self.vms[member] = Known::default();
    }

    fn of(&self, member: usize, version: u64, find: impl FnOnce() -> Grant) -> Grant {
        self.vms[member].of(version, find)
    }
}

impl Group {
    /// What a VM is granted.
    pub(crate) fn grant(&self, member: usize) -> Grant {
        self.granted.of(member, self.version, || self.grant_anew(member))
    }

    fn grant_anew(&self, member: usize) -> Grant {
        let Aggregate { window, ssthresh, epoch } = self.aggregate;
        if !self.policy.couples() {
            return Grant { epoch, ..Grant::default() };
        }
        let rounding_offset = rounding_offset(member, epoch);
        let rate_shares = self.config.share == ShareOf::Rate;
        let not_in_force = Grant { epoch, rounding_offset, rate_shares, ..Grant::default() };
        let (equal, max_min) = (self.equal_level(), || self.max_min_level());
        let Some(level) = self.members.grant_level(member, equal, max_min) else {
            return not_in_force;
        };
        let own = self.pool(member).map(|pool| self.members.level_of(member, pool));
        let level = level.min(own.unwrap_or(level));
        // The largest value means unset on the wire.
        let ssthresh_level =
            |ssthresh: Window| mul_div(level, ssthresh.raw(), window.raw()).min(u64::MAX - 1);
        Grant {
            coupled: true,
            slow_start: self.aggregate.in_slow_start(),
            level,
            ssthresh_level: ssthresh.map(ssthresh_level),
            aggregate_level: equal.of_aggregate(),
            ..not_in_force
        }
    }

    /// What a VM's flows send in a second, if they do as they are granted.
    pub(crate) fn granted(&self, member: usize) -> u64 {
        let grant = self.grant(member);
        let told_us = match self.config.share {
            ShareOf::Rate => self.members.mean_units_of(member),
            ShareOf::Window => self.limits.likely_rtt_us(member),
        };
        if !grant.coupled || told_us == 0 {
            return 0;
        }
        let in_a_second = |bytes, rtt_us: Micros| mul_div(bytes, 1_000_000, rtt_us.max(1));
        let at_level = in_a_second(self.members.bytes_at(member, grant.level), told_us);
        let sent = at_level.min(self.most_in_a_second(member, told_us));
        // Guests send two segments a flow, however small their part is: farther than that, in a
        // round trip and the longest pause.  But nobody is much nearer than what the others'
        // packets wait.
        let waits_us = self.waits.least_of_others_us(member).unwrap_or(0) / 2;
        let near_us = self.limits.believed_us(member, told_us).max(waits_us);
        let floor = self.limits.floor_of(member, self.members.floor_of(member));
        let pause_us = if near_us < SPREAD_FROM_US.into() { 0 } else { SPREAD_US };
        sent.max(in_a_second(floor, near_us + pause_us))
    }

    /// A VM's part of the aggregate in a second: flows that are limited, or said to be, are
    /// each granted as much as one that is not, and do not take that all at once.
    fn most_in_a_second(&self, member: usize, told_us: Micros) -> u64 {
        let part = self.members.most_part_of(member, self.equal_level(), self.max_min_level());
        let us = match self.config.share {
            ShareOf::Rate => 1,
            ShareOf::Window => told_us.max(1),
        };
        let bytes = (part.saturating_mul(1_000_000) / u128::from(us)) >> 32;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// What a VM has at the most, where it has so much by weight, and floors and caps move that.
    pub(super) fn most_in_range(&self, member: usize, most: Window) -> Window {
        let levels = [self.equal_level(), self.max_min_level(), self.level_of_twice()];
        self.members.most_in_range(member, most, levels)
    }

    /// Whether floors and caps are there, and by these, nobody wants more.
    pub(super) fn is_enough(&self) -> bool {
        self.members.has_ranges() && self.max_min_level().is_enough()
    }

    fn equal_level(&self) -> Level {
        let level = || self.members.equal_level(self.aggregate.window);
        self.granted.equal.of(self.version, level)
    }

    /// That of a window of twice the aggregate's.
    fn level_of_twice(&self) -> Level {
        let window = self.aggregate.window;
        let twice = || self.members.max_min_level(self.members.equal_level(window.plus(window)));
        self.granted.twice.of(self.version, twice)
    }

    fn max_min_level(&self) -> Level {
        let level = || self.members.max_min_level(self.equal_level());
        self.granted.max_min.of(self.version, level)
    }
}
