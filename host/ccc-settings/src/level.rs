// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Weighted max-min between floors and caps: who wants less than its share keeps that, who is
//! to have more than its weight's part has that, and the others share the rest by weight.

use crate::{VmSettings, bytes_of_mbit};

/// One who wants something of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Its weight, at least 1.
    pub weight: u32,
    /// It is to have so much, bytes a second, if it takes that.
    pub least: u64,
    /// The most it takes, bytes a second; `None` for all it is given.
    pub most: Option<u64>,
}

impl Want {
    /// A VM that takes all it is given, by its settings.
    pub fn of(settings: &VmSettings) -> Want {
        Want {
            weight: (settings.weight * 256.0).max(1.0) as u32,
            least: bytes_of_mbit(settings.floor_mbit),
            most: settings.cap_mbit.map(bytes_of_mbit),
        }
    }

    /// Its part by weight.
    fn by_weight(&self, level: u128) -> u128 {
        (level * u128::from(self.weight)) >> FRACTION
    }

    /// What it wants at the most.
    fn wants(&self) -> u128 {
        self.most.map_or(u128::MAX, u128::from)
    }
}

/// Fraction bits of a level.
const FRACTION: u32 = 16;

/// How a whole is shared.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    whole: u64,
    /// Bytes a second for a weight of 1, with [`FRACTION`] bits; `None` where all have
    /// enough.
    level: Option<u128>,
}

/// A whole and who wants what of it.
struct Sharing<'a> {
    whole: u128,
    wants: &'a [Want],
    /// What all want of their floors.
    floors: u128,
}

impl Sharing<'_> {
    /// A floor, as far as it is wanted and there is enough for all.
    fn floor(&self, want: &Want) -> u128 {
        let wanted = u128::from(want.least).min(want.wants());
        match self.floors > self.whole {
            true => wanted * self.whole / self.floors,
            false => wanted,
        }
    }

    /// Whether more is taken at a level than there is.
    fn is_too_high(&self, level: u128) -> bool {
        let taken = |want: &Want| want.by_weight(level).max(self.floor(want)).min(want.wants());
        self.wants.iter().map(taken).sum::<u128>() > self.whole
    }

    /// The level of the others, without those who want no more at one that is too `low`, and
    /// those who keep to their floors at one that is too `high`; `None` where all are out.
    fn without(&self, low: u128, high: Option<u128>) -> Option<u128> {
        let (mut rest, mut weight) = (self.whole, 0u128);
        for want in self.wants {
            let (wants, floor) = (want.wants(), self.floor(want));
            if wants < want.by_weight(low) {
                rest = rest.saturating_sub(wants);
            } else if high.is_some_and(|high| floor > want.by_weight(high)) {
                rest = rest.saturating_sub(floor);
            } else {
                weight += u128::from(want.weight);
            }
        }
        (weight > 0).then(|| (rest << FRACTION) / weight)
    }
}

impl Level {
    /// Shares a whole, bytes a second.  Each pass takes at least one more out, or is the
    /// last (`ccc_core`'s `max_min_level` says why).
    pub fn of(whole: u64, wants: &[Want]) -> Level {
        let floors = wants.iter().map(|want| u128::from(want.least).min(want.wants())).sum();
        let sharing = Sharing { whole: whole.into(), wants, floors };
        let (mut low, mut high) = (0, None);
        let mut level = sharing.without(low, high);
        while let Some(now) = level {
            let is_too_high = floors > 0 && sharing.is_too_high(now);
            if is_too_high {
                high = Some(now);
            } else {
                low = now;
            }
            let next = sharing.without(low, high);
            // Where floors are all there is, who keeps to them still wants more.
            if next == level || is_too_high && next.is_none() {
                break;
            }
            level = next;
        }
        Level { whole, level }
    }

    /// What one of `weight` may have, bytes a second; all where nobody else wants more.
    pub fn share(&self, weight: u32) -> u64 {
        let share = self.level.map(|level| (level * u128::from(weight)) >> FRACTION);
        share.map_or(self.whole, |share| u64::try_from(share).unwrap_or(u64::MAX))
    }
}

/// What each is due of what all have together of a whole, of 1.
pub fn dues(whole: u64, wants: &[Want]) -> Vec<f64> {
    let level = Level::of(whole, wants);
    let due = |want: &Want| want.wants().min(level.share(want.weight).max(want.least).into());
    let sum: u128 = wants.iter().map(due).sum();
    wants.iter().map(|want| due(want) as f64 / sum.max(1) as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(whole: u64, wants: &[Want], weight: u32) -> u64 {
        Level::of(whole, wants).share(weight)
    }

    fn want(weight: u32, most: impl Into<Option<u64>>) -> Want {
        Want { weight, least: 0, most: most.into() }
    }

    #[test]
    fn those_who_take_all_share_by_weight() {
        let wants = [want(1, None), want(3, None)];
        assert_eq!([1, 3].map(|weight| share(1000, &wants, weight)), [250, 750]);
    }

    #[test]
    fn what_one_does_not_want_is_the_others() {
        let wants = [want(1, 100), want(1, None), want(1, None)];
        assert_eq!(share(1000, &wants, 1), 450);
        // The one that wants 400 has it only once the first is out.
        let wants = [want(1, 100), want(1, 400), want(1, None)];
        assert_eq!(share(1000, &wants, 1), 500);
        assert_eq!(share(1000, &[want(1, 100), want(1, 200)], 1), 1000, "all have enough");
    }

    #[test]
    fn who_has_its_floor_leaves_the_others_less() {
        let floored = |least| Want { least, ..want(1, None) };
        let wants = [floored(600), want(1, 100), want(3, None)];
        assert_eq!(share(1000, &wants, 3), 300, "one has 600, one wants no more than 100");
        assert_eq!(share(1000, &[floored(200), want(1, None)], 1), 500, "its part is more");
        assert_eq!(share(1000, &[floored(2000), want(1, None)], 1), 0, "nothing is left");
        let limited = Want { most: Some(50), ..floored(600) };
        assert_eq!(share(1000, &[limited, want(1, None)], 1), 950, "it does not take it");
    }

    #[test]
    fn what_is_due_is_by_floor_cap_and_weight() {
        let vm = |weight, floor_mbit, cap_mbit| {
            Want::of(&VmSettings { weight, floor_mbit, cap_mbit, ..VmSettings::default() })
        };
        let of_10_mbit = |wants: &[Want]| {
            let permille = |due: f64| (due * 1000.0).round() / 1000.0;
            dues(1_250_000, wants).into_iter().map(permille).collect::<Vec<_>>()
        };
        let [plain, three] = [vm(1.0, 0.0, None), vm(3.0, 0.0, None)];
        assert_eq!(of_10_mbit(&[plain, three]), [0.25, 0.75]);
        assert_eq!(of_10_mbit(&[vm(1.0, 6.0, None), three]), [0.6, 0.4]);
        assert_eq!(of_10_mbit(&[plain, vm(3.0, 0.0, Some(2.0))]), [0.8, 0.2]);
        // What all are capped to, and floors that are more than there is.
        assert_eq!(of_10_mbit(&[vm(1.0, 0.0, Some(1.0)), vm(1.0, 0.0, Some(3.0))]), [0.25, 0.75]);
        assert_eq!(of_10_mbit(&[vm(1.0, 30.0, None), vm(1.0, 10.0, None)]), [0.75, 0.25]);
        assert_eq!(dues(0, &[plain]), [0.0]);
    }

    #[test]
    fn no_numbers_are_too_large() {
        let wants = [want(u32::MAX, None), want(1, Some(u64::MAX))];
        assert_eq!(
            share(u64::MAX, &wants.map(|want| Want { least: u64::MAX, ..want }), 1),
            1 << 31
        );
        assert!(share(u64::MAX, &wants, u32::MAX) > u64::MAX / 2);
        assert_eq!(share(0, &wants, 1), 0);
    }
}
