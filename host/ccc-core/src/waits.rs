// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How long packets wait in the queue of a group, as its VMs see it.
//!
//! All who wait in one queue wait as long, so what a VM's own packets wait is known from
//! the others', whatever it says.
use crate::{
    fixed::{Micros, Weight},
    median::{Median, Place},
    policy::PathSample,
};

/// What a VM sees is an average over about so many reports.
const SMOOTHED: u64 = 8;
/// Longer waits count as this one.
const WAIT_MAX_US: u32 = 1 << 20;

/// What one VM sees.
#[derive(Clone, Copy, Debug, Default)]
struct Vm {
    /// Times [`SMOOTHED`].
    smoothed_us: u64,
    place: Option<Place>,
}

/// What the VMs of a group see.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    vms: Vec<Vm>,
    median: Median,
}

impl Waits {
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
        self.median.moved(gone.place, None);
    }

    /// A VM of this weight has seen that.
    pub(crate) fn hear(&mut self, member: usize, weight: Weight, sample: &PathSample) {
        if sample.rtt_us == 0 || sample.min_rtt_us == 0 {
            return;
        }
        let waited_us = sample.rtt_us.saturating_sub(sample.min_rtt_us).min(WAIT_MAX_US);
        let waited_us = u64::from(waited_us);
        let vm = &mut self.vms[member];
        vm.smoothed_us = match vm.place {
            Some(_) => vm.smoothed_us - vm.smoothed_us / SMOOTHED + waited_us,
            None => waited_us * SMOOTHED,
        };
        let place = Some(Place::new(vm.smoothed_us / SMOOTHED, weight));
        self.median.moved(vm.place, place);
        vm.place = place;
    }

    /// What packets wait as the others of a group see it, if there are others.
    pub(crate) fn of_others_us(&self, member: usize) -> Option<Micros> {
        self.median.us_without(self.vms[member].place)
    }

    /// As all see it.
    pub(crate) fn us(&self) -> Micros {
        self.median.us_without(None).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rtt_us: u32) -> PathSample {
        PathSample { now: 0, delivered_bytes: 0, rtt_us, min_rtt_us: 100_000, joined: 0 }
    }

    fn waits(of: &[u32]) -> Waits {
        let mut waits = Waits::default();
        for (member, waited_us) in of.iter().enumerate() {
            waits.add(member);
            for _ in 0..100 {
                waits.hear(member, Weight::ONE, &sample(100_000 + waited_us));
            }
        }
        waits
    }

    fn near(found: Option<Micros>, us: Micros) -> bool {
        found.is_some_and(|found| found.abs_diff(us) <= us / 32 + 1)
    }

    #[test]
    fn a_vm_says_nothing_of_its_own_wait() {
        let waits = waits(&[20_000, 900_000]);
        assert!(near(waits.of_others_us(1), 20_000));
        assert!(near(waits.of_others_us(0), 900_000));
    }

    #[test]
    fn two_that_lie_together_move_nothing_for_three() {
        let waits = waits(&[20_000, 21_000, 22_000, 900_000, 0]);
        assert!(near(Some(waits.us()), 21_000), "{}", waits.us());
    }

    #[test]
    fn who_sends_no_more_says_nothing() {
        let mut waits = waits(&[20_000, 50_000]);
        waits.forget(1);
        assert_eq!(waits.of_others_us(0), None);
        assert!(near(Some(waits.us()), 20_000));
    }

    #[test]
    fn what_was_not_measured_is_not_heard() {
        let mut waits = Waits::default();
        waits.add(0);
        waits.hear(0, Weight::ONE, &sample(0));
        waits.hear(0, Weight::ONE, &PathSample { min_rtt_us: 0, ..sample(9) });
        assert_eq!((waits.us(), waits.of_others_us(0)), (0, None));
    }
}
