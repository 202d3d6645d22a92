// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The weighted median of what the VMs of a group say, which a minority by weight cannot
//! move past what the others say.
//!
//! Times are counted in classes a sixteenth of an octave wide, so a change costs O(1),
//! and the median a walk over 21 octaves and the classes of one, whatever the number of
//! VMs.
use crate::fixed::{Micros, Weight};

/// Classes of an octave, as a shift.
const PARTS_SHIFT: u32 = 4;
const PARTS: Micros = 1 << PARTS_SHIFT;
/// Longer times count as this one.
pub(crate) const US_MAX: Micros = (1 << 21) - 1;
const OCTAVES: usize = 21;
const CLASSES: usize = OCTAVES << PARTS_SHIFT;

/// Weights of VMs by the classes of their times.
#[derive(Debug)]
pub(crate) struct Median {
    weights: [u64; CLASSES],
    /// Sums of them.
    octaves: [u64; OCTAVES],
    all: u64,
    version: u64,
}

impl Default for Median {
    fn default() -> Median {
        Median { weights: [0; CLASSES], octaves: [0; OCTAVES], all: 0, version: 0 }
    }
}

/// Which median of two who disagree, or of any who do so in halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OfTwo {
    /// Nobody says less than it is.
    #[default]
    Lower,
    /// Nobody says more.
    Upper,
}

impl OfTwo {
    /// How much of a weight is up to it at the least.
    fn of(self, all: u64) -> u64 {
        match self {
            OfTwo::Lower => all.div_ceil(2),
            OfTwo::Upper => all / 2 + 1,
        }
    }
}

/// A VM as it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    class: usize,
    weight: u64,
}

impl Entry {
    pub(crate) fn new(us: Micros, weight: Weight) -> Entry {
        Entry { class: class_of(us), weight: weight.raw() }
    }
}

fn class_of(us: Micros) -> usize {
    let us = us.clamp(1, US_MAX);
    let octave = us.ilog2();
    let part = ((us << PARTS_SHIFT) >> octave) % PARTS;
    ((octave << PARTS_SHIFT) as usize) + part as usize
}

/// The time in the middle of a class.
fn middle_us(class: usize) -> Micros {
    let (octave, part) = (class >> PARTS_SHIFT, class as Micros % PARTS);
    ((2 * (PARTS + part) + 1) << octave) >> (PARTS_SHIFT + 1)
}

impl Median {
    /// A VM moves from one class to another.
    pub(crate) fn moved(&mut self, from: Option<Entry>, to: Option<Entry>) {
        if from == to {
            return;
        }
        self.version += 1;
        if let Some(Entry { class, weight }) = from {
            self.weights[class] -= weight;
            self.octaves[class >> PARTS_SHIFT] -= weight;
            self.all -= weight;
        }
        if let Some(Entry { class, weight }) = to {
            self.weights[class] += weight;
            self.octaves[class >> PARTS_SHIFT] += weight;
            self.all += weight;
        }
    }

    /// Changes whenever a median may have changed.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Most by weight have no more than that.
    pub(crate) fn most_are_up_to(&self, us: Micros) -> bool {
        let class = class_of(us);
        let octave = class >> PARTS_SHIFT;
        let whole: u64 = self.octaves[..octave].iter().sum();
        let rest: u64 = self.weights[octave << PARTS_SHIFT..=class].iter().sum();
        2 * (whole + rest) > self.all
    }

    /// The median of all but the VM of this entry; of nobody, none.
    pub(crate) fn us_without(&self, own: Option<Entry>, of_two: OfTwo) -> Option<Micros> {
        let all = self.all - own.map_or(0, |own| own.weight);
        if all == 0 {
            return None;
        }
        let own_of = |is_its: &dyn Fn(&Entry) -> bool| own.filter(is_its).map_or(0, |o| o.weight);
        let (mut below, least) = (0, of_two.of(all));
        let mut is_above = |weight: u64| {
            let is_half = below + weight >= least;
            below += if is_half { 0 } else { weight };
            is_half
        };
        let octave = self.octaves.iter().enumerate().position(|(octave, weight)| {
            is_above(weight - own_of(&|own| own.class >> PARTS_SHIFT == octave))
        })?;
        let first = octave << PARTS_SHIFT;
        let classes = &self.weights[first..first + PARTS as usize];
        let part = classes.iter().enumerate().position(|(part, weight)| {
            is_above(weight - own_of(&|own| own.class == first + part))
        })?;
        Some(middle_us(first + part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(us: Micros, weight: f64) -> Option<Entry> {
        Some(Entry::new(us, Weight::from_f64(weight).expect("in range")))
    }

    fn median(all: &[(Micros, f64)]) -> Median {
        let mut median = Median::default();
        for (us, weight) in all {
            median.moved(None, entry(*us, *weight));
        }
        median
    }

    #[test]
    fn of_two_who_disagree_either_can_be_had() {
        let of = |us: Micros| Some(middle_us(class_of(us)));
        let two = median(&[(20_000, 1.0), (90_000, 1.0)]);
        assert_eq!(two.us_without(None, OfTwo::Lower), of(20_000));
        assert_eq!(two.us_without(None, OfTwo::Upper), of(90_000));
        let three = median(&[(20_000, 1.0), (30_000, 1.0), (90_000, 1.0)]);
        assert_eq!(three.us_without(None, OfTwo::Upper), of(30_000));
        assert_eq!(three.us_without(entry(30_000, 1.0), OfTwo::Upper), of(90_000));
        assert_eq!(three.us_without(entry(30_000, 1.0), OfTwo::Lower), of(20_000));
    }

    #[test]
    fn it_is_within_a_32nd_of_the_true_one() {
        for us in [1, 2, 3, 7, 100, 1_000, 99_999, 100_000, 1 << 20] {
            let found =
                median(&[(us, 1.0), (1, 0.4), (1 << 20, 0.4)]).us_without(None, OfTwo::Lower);
            let off = found.expect("three VMs").abs_diff(us);
            assert!(off <= us.div_ceil(32), "{found:?} of {us}");
        }
    }

    #[test]
    fn a_minority_by_weight_does_not_move_it() {
        let honest = [(100_000, 1.0), (110_000, 1.0), (120_000, 1.0)];
        for lie in [0, 1, Micros::MAX] {
            let told =
                median(&[&honest[..], &[(lie, 2.9)]].concat()).us_without(None, OfTwo::Lower);
            let told = told.expect("four VMs");
            assert!((96_000..=124_000).contains(&told), "{told} with {lie}");
        }
    }

    #[test]
    fn sums_of_octaves_find_what_a_walk_over_all_classes_finds() {
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..500 {
            let entry = |us, weight| Entry { class: class_of(us), weight };
            let all: Vec<Entry> =
                (0..=next(6)).map(|_| entry(1 << next(21), 1 + next(9))).collect();
            let mut median = Median::default();
            all.iter().for_each(|entry| median.moved(None, Some(*entry)));
            let mut others: Vec<Entry> = all[1..].to_vec();
            others.sort_by_key(|entry| entry.class);
            let half: u64 = others.iter().map(|entry| entry.weight).sum();
            let mut sum = 0;
            let found = others.iter().find(|entry| {
                sum += entry.weight;
                2 * sum >= half
            });
            let found = found.map(|entry| middle_us(entry.class));
            assert_eq!(median.us_without(Some(all[0]), OfTwo::Lower), found, "{all:?}");
        }
    }

    #[test]
    fn half_are_not_most() {
        let two = median(&[(20_000, 1.0), (200_000, 1.0)]);
        assert_eq!([10, 20_000, 200_000].map(|us| two.most_are_up_to(us)), [false, false, true]);
    }

    #[test]
    fn who_is_left_out_says_nothing() {
        let two = median(&[(20_000, 1.0), (200_000, 5.0)]);
        let alone = median(&[(20_000, 1.0)]);
        assert_eq!(
            two.us_without(entry(200_000, 5.0), OfTwo::Lower),
            alone.us_without(None, OfTwo::Lower)
        );
        assert_eq!(alone.us_without(entry(20_000, 1.0), OfTwo::Lower), None);
    }

    #[test]
    fn who_leaves_says_nothing_any_more() {
        let mut both = median(&[(20_000, 1.0), (200_000, 5.0)]);
        both.moved(entry(200_000, 5.0), None);
        assert_eq!(
            both.us_without(None, OfTwo::Lower),
            median(&[(20_000, 1.0)]).us_without(None, OfTwo::Lower)
        );
    }
}
