// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How a group's rate is split between its VMs: weighted max-min between floors and caps.
use super::{
    Member, Members, Sums,
    breaks::{Breaks, Wish},
};
use crate::{
    fixed::{Window, div_wide, mul_div},
    range,
};

/// Priority 1, as reports have it.
const PRIORITY_ONE: u128 = 256;

/// Rate for one of weight: what is left for VMs with backlogged flows, in bytes for what
/// one of priority counts, with 32 fraction bits; and their weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    rate: u128,
    weight: u64,
    /// What there is for floors, if they are more than all, with 32 fraction bits; 0: they are
    /// not.
    floors: u64,
}

impl Level {
    /// A VM's part, if it had neither floor nor cap.
    fn by_weight(&self, member: &Member) -> u128 {
        div_wide(self.rate * u128::from(member.weight.raw()), self.weight.max(1))
    }

    /// A VM's part, if it wants all it is given.
    fn part(&self, member: &Member) -> u128 {
        self.part_above(member, member.floor())
    }

    /// What a VM takes.
    #[cfg(test)]
    fn taken(&self, member: &Member) -> u128 {
        if self.is_enough() {
            return member.wants();
        }
        self.part_above(member, member.wanted_floor()).min(member.wants())
    }

    /// A VM's part that is no less than this floor, or than what there is for that.
    fn part_above(&self, member: &Member, floor: u128) -> u128 {
        if !member.has_range() {
            return self.by_weight(member);
        }
        match member.cap() {
            // Where all have what they want, each has that.
            Some(cap) if self.weight == 0 || self.by_weight(member) > cap => cap,
            _ => self.by_weight(member).max(self.there_is_for(floor)),
        }
    }

    /// What there is for a floor.
    fn there_is_for(&self, floor: u128) -> u128 {
        match self.floors {
            0 => floor,
            part => floor.saturating_mul(part.into()) >> 32,
        }
    }

    /// A grant's level for one flow of priority 1 in the place of all.
    pub(crate) fn of_aggregate(&self) -> u64 {
        u64::try_from(self.rate / PRIORITY_ONE).unwrap_or(u64::MAX)
    }

    /// Nobody wants more than it has: all are limited by their applications, or by caps.
    pub(crate) fn is_enough(&self) -> bool {
        self.weight == 0
    }
}

impl Member {
    /// What it wants at the most, as a rate.
    fn wants(&self) -> u128 {
        let demand = if self.is_app_limited() { self.demand_rate } else { u128::MAX };
        self.cap().map_or(demand, |cap| cap.min(demand))
    }

    fn cap(&self) -> Option<u128> {
        self.range.cap_in(self.time_us)
    }

    fn floor(&self) -> u128 {
        self.range.floor_in(self.time_us)
    }

    /// What it wants of its floor.
    fn wanted_floor(&self) -> u128 {
        self.floor().min(self.wants())
    }

    /// What it wants, if that is not its weight's part whatever that is.
    fn wish(&self) -> Option<Wish> {
        let differs = self.priorities > 0 && (self.has_range() || self.is_app_limited());
        let Member { weight, .. } = self;
        differs.then(|| Wish {
            weight: weight.raw(),
            floor: self.wanted_floor(),
            most: self.wants(),
        })
    }
}

impl Members {
    /// How what would be an `equal` level is split between VMs with backlogged flows.
    ///
    /// Weighted max-min: a VM whose flows are all application-limited keeps what it uses, if
    /// that is less than its fair part, one at its cap that, and one whose floor is more than
    /// its part the floor; the others share the rest by weight.
    pub(crate) fn max_min_level(&self, equal: Level) -> Level {
        if self.sums.app_limited == 0 && self.sums.ranged == 0 {
            return equal;
        }
        // Where floors are all there is, who keeps to them still wants more.
        if equal.floors > 0 {
            return Level { rate: 0, ..equal };
        }
        let line = self.breaks(|breaks| breaks.line_at(equal.rate, equal.weight));
        let rate = equal.rate.saturating_sub(line.takes.unsigned_abs());
        Level { rate, weight: u64::try_from(line.weight).unwrap_or(0), floors: 0 }
    }

    /// What is known of where VMs cease to share by weight.
    pub(super) fn breaks<T>(&self, find: impl FnOnce(&Breaks) -> T) -> T {
        let mut breaks = self.breaks.borrow_mut();
        breaks.refresh(|vm| self.members.get(vm).and_then(Member::wish));
        find(&breaks)
    }

    /// The level if each VM had its part, whatever it uses.
    // In each report: a call would cost about as much.
    #[inline(always)]
    pub(crate) fn equal_level(&self, window: Window) -> Level {
        let Sums { effective, weight, ranged, .. } = self.sums;
        let wide = (u128::from(window.raw()) << 16) * u128::from(weight);
        let rate = div_wide(wide, effective.max(1));
        let floors = if ranged == 0 { 0 } else { self.part_for_floors(rate) };
        Level { rate, weight, floors }
    }

    /// The part of what is wanted of floors that there is, if they are more than all.
    fn part_for_floors(&self, rate: u128) -> u64 {
        let floors = self.breaks(Breaks::floors);
        if floors <= rate {
            return 0;
        }
        // Nobody is left without: 0 is all.
        u64::try_from((rate << 32) / floors).unwrap_or(u64::MAX).max(1)
    }

    /// What a VM has for one of its units, as a grant's level; `None` while it
    /// has no active flow.
    pub(crate) fn grant_level(
        &self,
        member: usize,
        equal: Level,
        max_min_level: impl FnOnce() -> Level,
    ) -> Option<u64> {
        let m = &self.members[member];
        if m.priorities == 0 {
            return None;
        }
        let each = |rate: u128, priorities: u64| div_wide(rate, priorities.max(1));
        let level = if m.is_app_limited() {
            // It may come to want its fair part, and then has it at once.
            each(equal.part(m), m.priorities)
        } else {
            let part = max_min_level().part(m);
            let rest = part.saturating_sub(m.demand_rate);
            match (rest, m.backlogged_priorities) == (part, m.priorities) {
                true => each(part, m.priorities),
                false => each(rest, m.backlogged_priorities).max(each(part, m.priorities)),
            }
        };
        // Its guest multiplies by what it claims.
        let level = mul_div(u64::try_from(level).unwrap_or(u64::MAX), m.units, m.claimed);
        // The largest value means unset on the wire.
        Some(level.min(u64::MAX - 1))
    }

    /// The most of a window that a VM has for what one of priority counts, with 32 fraction
    /// bits: what it does not use goes to others, but it may come to want it.
    pub(crate) fn most_part_of(&self, member: usize, equal: Level, level: Level) -> u128 {
        let m = &self.members[member];
        level.part(m).max(equal.part(m))
    }

    /// What a VM has of a window at the most, where floors or caps move parts, and it has so
    /// much by weight: at least what it is granted, and no more than its cap.  What others
    /// keep is all the more of less, so half of what it had of `twice` as much counts, too:
    /// before a reduction it may have had that.
    pub(crate) fn most_in_range(
        &self,
        member: usize,
        by_weight: Window,
        [equal, level, twice]: [Level; 3],
    ) -> Window {
        let m = &self.members[member];
        let of = |rate: u128| range::window(rate.saturating_mul(m.means.units.into()));
        // Where nobody wants more, nothing but a cap says what one might have.
        let part = |level: Level| match level.is_enough() && m.cap().is_none() {
            true => 0,
            false => level.part(m),
        };
        let most = equal.part(m).max(part(level)).max(part(twice) / 2);
        m.cap().map_or(by_weight.max(of(most)), |cap| of(most.min(cap)))
    }
}

#[cfg(test)]
mod tests;
