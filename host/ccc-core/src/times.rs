// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A time that each VM of a group says, smoothed, and what the others' are in the middle.
//!
//! All who wait in one queue wait as long, and nobody is much farther away than most: so
//! what a VM says is held against the others' weighted median, whatever it says itself.
use std::cell::Cell;

use crate::{
    fixed::{Micros, Weight},
    median::{Entry, Median, OfTwo, US_MAX},
};

/// What a VM says is an average over about so many reports.
const SMOOTHED: u64 = 8;
/// After so many reports that do not tell, what a VM said before is of another time.
const PASSED_MOST: u64 = 32;

/// What one VM says.
#[derive(Clone, Debug, Default)]
struct Vm {
    /// Times [`SMOOTHED`].
    smoothed_us: u64,
    entry: Option<Entry>,
    /// Reports since then that did not tell.
    passed: u64,
    /// The median of the others, and of which version of the median that is, plus one.
    others: Cell<Option<Micros>>,
    version: Cell<u64>,
}

/// What the VMs of a group say.
#[derive(Debug, Default)]
pub(crate) struct Times {
    vms: Vec<Vm>,
    median: Median,
    of_two: OfTwo,
}

impl Times {
    /// Of two others who disagree the one who says more is believed.
    pub(crate) fn upper() -> Times {
        Times { of_two: OfTwo::Upper, ..Times::default() }
    }

    /// A VM of this number comes, of which nothing is known.
    pub(crate) fn add(&mut self, member: usize) {
        if member >= self.vms.len() {
            self.vms.resize(member + 1, Vm::default());
        }
        self.forget(member);
    }

    /// A VM sends no more, or has gone.
    pub(crate) fn forget(&mut self, member: usize) {
        let gone = std::mem::take(&mut self.vms[member]);
        self.median.moved(gone.entry, None);
    }

    /// A VM of this weight says that.
    // In each report: a call would cost about as much.
    #[inline(always)]
    pub(crate) fn hear(&mut self, member: usize, weight: Weight, told_us: Micros) {
        let told_us = told_us.min(US_MAX);
        let vm = &mut self.vms[member];
        vm.smoothed_us = match vm.entry {
            Some(_) => vm.smoothed_us - vm.smoothed_us / SMOOTHED + told_us,
            None => told_us * SMOOTHED,
        };
        let entry = Some(Entry::new(vm.smoothed_us / SMOOTHED, weight));
        self.median.moved(vm.entry, entry);
        vm.entry = entry;
        vm.passed = 0;
    }

    /// A VM reports, and does not say.
    pub(crate) fn pass(&mut self, member: usize) {
        self.vms[member].passed += 1;
        if self.vms[member].passed > PASSED_MOST {
            self.forget(member);
        }
    }

    /// What a VM has told, an average; 0 if nothing.
    pub(crate) fn told_us(&self, member: usize) -> Micros {
        self.vms[member].smoothed_us / SMOOTHED
    }

    /// The median of the other VMs, if there are others.  Times are averages, so it is
    /// looked for once in many reports.
    pub(crate) fn of_others_us(&self, member: usize) -> Option<Micros> {
        let (vm, version) = (&self.vms[member], self.median.version() + 1);
        if vm.version.replace(version) != version {
            vm.others.set(self.median.us_without(vm.entry, self.of_two));
        }
        vm.others.get()
    }

    /// What the other VMs say at the least, if there are others: of two the lower one.
    pub(crate) fn least_of_others_us(&self, member: usize) -> Option<Micros> {
        self.median.us_without(self.vms[member].entry, OfTwo::Lower)
    }

    /// The median of all; of nobody, 0.
    pub(crate) fn us(&self) -> Micros {
        self.median.us_without(None, OfTwo::Lower).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(of: &[Micros]) -> Times {
        let mut times = Times::default();
        for (member, us) in of.iter().enumerate() {
            times.add(member);
            (0..100).for_each(|_| times.hear(member, Weight::ONE, *us));
        }
        times
    }

    fn near(found: Option<Micros>, us: Micros) -> bool {
        found.is_some_and(|found| found.abs_diff(us) <= us / 32 + 1)
    }

    #[test]
    fn a_vm_says_nothing_of_its_own_time() {
        let times = times(&[20_000, 900_000]);
        assert!(near(times.of_others_us(1), 20_000));
        assert!(near(times.of_others_us(0), 900_000));
    }

    #[test]
    fn two_that_lie_together_move_nothing_for_three() {
        let times = times(&[20_000, 21_000, 22_000, 900_000, 0]);
        assert!(near(Some(times.us()), 21_000), "{}", times.us());
    }

    #[test]
    fn who_sends_no_more_says_nothing() {
        let mut times = times(&[20_000, 50_000]);
        assert!(near(times.of_others_us(0), 50_000));
        times.forget(1);
        assert_eq!(times.of_others_us(0), None);
        assert!(near(Some(times.us()), 20_000));
    }

    #[test]
    fn a_time_is_an_average_over_some_reports() {
        let mut times = times(&[20_000]);
        times.hear(0, Weight::ONE, 100_000);
        assert!(near(Some(times.us()), 30_000), "an eighth of the way: {}", times.us());
        (0..16).for_each(|_| times.hear(0, Weight::ONE, 100_000));
        assert!(times.us() > 85_000, "seven eighths of it: {}", times.us());
    }

    #[test]
    fn what_was_said_is_forgotten_when_many_reports_do_not_tell() {
        let mut times = times(&[20_000, 50_000]);
        let passes = |times: &mut Times, reports| (0..reports).for_each(|_| times.pass(1));
        passes(&mut times, PASSED_MOST);
        times.hear(1, Weight::ONE, 50_000);
        passes(&mut times, PASSED_MOST);
        assert!(near(times.of_others_us(0), 50_000), "not so many one after the other");
        passes(&mut times, 1);
        assert_eq!(times.of_others_us(0), None);
    }

    #[test]
    fn no_time_that_is_told_takes_longer_to_forget_than_the_longest() {
        let mut times = times(&[20_000]);
        times.hear(0, Weight::ONE, Micros::MAX);
        (0..64).for_each(|_| times.hear(0, Weight::ONE, 20_000));
        assert!(times.us() < 22_000, "{}", times.us());
    }
}
