// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Weighted max-min: who wants less than its share keeps that, and the others share the
//! rest by weight.

/// One who wants something of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Its weight, at least 1.
    pub weight: u32,
    /// The most it takes, bytes a second; `None` for all it is given.
    pub most: Option<u64>,
}

impl Want {
    /// Whether `level` a weight is more than it takes.
    fn is_satisfied(&self, level: u128) -> bool {
        let share = (level * u128::from(self.weight)) >> FRACTION;
        self.most.is_some_and(|most| u128::from(most) < share)
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

impl Level {
    /// Shares a whole, bytes a second.  Each pass takes at least one more out, or is the
    /// last.
    pub fn of(whole: u64, wants: &[Want]) -> Level {
        let mut level = 0;
        loop {
            let (mut rest, mut weight) = (u128::from(whole), 0u128);
            for want in wants {
                match want.most.filter(|_| want.is_satisfied(level)) {
                    Some(most) => rest = rest.saturating_sub(most.into()),
                    None => weight += u128::from(want.weight),
                }
            }
            if weight == 0 {
                return Level { whole, level: None };
            }
            let raised = (rest << FRACTION) / weight;
            if raised <= level {
                return Level { whole, level: Some(level) };
            }
            level = raised;
        }
    }

    /// What one of `weight` may have, bytes a second; all where nobody else wants more.
    pub fn share(&self, weight: u32) -> u64 {
        let share = self.level.map(|level| (level * u128::from(weight)) >> FRACTION);
        share.map_or(self.whole, |share| u64::try_from(share).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(whole: u64, wants: &[Want], weight: u32) -> u64 {
        Level::of(whole, wants).share(weight)
    }

    fn want(weight: u32, most: impl Into<Option<u64>>) -> Want {
        Want { weight, most: most.into() }
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
    fn no_numbers_are_too_large() {
        let wants = [want(u32::MAX, None), want(1, Some(u64::MAX))];
        assert!(share(u64::MAX, &wants, u32::MAX) > u64::MAX / 2);
        assert_eq!(share(0, &wants, 1), 0);
    }
}
