// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How far apart the reports of a flow are: so that those of all stay below what the operator
//! wants in a second.
//!
//! Each VM with flows has an equal part of that for them: who has many, or says so, has them
//! report more rarely, and nobody else's.  In powers of two, so that few of the flows that come
//! and go change it.
use crate::fixed::Micros;

/// No flow waits longer (`VIRTIO_CCC_REPORT_INTERVAL_MAX_US`).
const LONGEST_US: Micros = 250_000;
/// So far apart nobody's growth waits for reports: then all have the same.
const COMMON_US: Micros = 256;

/// The active flows of all VMs, and how much they may report.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    most_per_s: u32,
    flows: u64,
    /// VMs that have any.
    vms: u64,
    /// What all flows together would have.
    common_us: Micros,
}

impl Default for Reports {
    fn default() -> Reports {
        Reports { most_per_s: u32::MAX, flows: 0, vms: 0, common_us: 0 }
    }
}

impl Reports {
    /// So many in a second, of all flows.
    pub(crate) fn set_most(&mut self, most_per_s: u32) {
        self.most_per_s = most_per_s;
        self.common_us = self.of(self.flows);
    }

    /// Active flows.
    pub(crate) fn flows(&self) -> u64 {
        self.flows
    }

    /// A flow has become active, or is so no more; so many are of its VM.
    pub(crate) fn count(&mut self, of_vm: &mut u64, was_active: bool, is_active: bool) {
        if was_active == is_active {
            return;
        }
        self.vms -= u64::from(*of_vm > 0);
        let step = |flows: u64| flows + u64::from(is_active) - u64::from(was_active);
        (*of_vm, self.flows) = (step(*of_vm), step(self.flows));
        self.vms += u64::from(*of_vm > 0);
        self.common_us = self.of(self.flows);
    }

    /// How far apart those of a flow are, of a VM with so many.
    pub(crate) fn interval_us(&self, of_vm: u64) -> Micros {
        match self.common_us {
            0..=COMMON_US => self.common_us,
            _ => self.of(of_vm.saturating_mul(self.vms)).max(COMMON_US),
        }
    }

    fn of(&self, flows: u64) -> Micros {
        let us = flows.next_power_of_two().saturating_mul(1_000_000);
        (us / u64::from(self.most_per_s.max(1))).min(LONGEST_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VMs with so many flows, and what each waits.
    fn intervals_us(most_per_s: u32, flows: &[u64]) -> Vec<Micros> {
        let mut reports = Reports::default();
        reports.set_most(most_per_s);
        let mut counts = vec![0; flows.len()];
        for (count, flows) in counts.iter_mut().zip(flows) {
            (0..*flows).for_each(|_| reports.count(count, false, true));
        }
        assert_eq!(reports.flows(), flows.iter().sum::<u64>());
        counts.iter().map(|count| reports.interval_us(*count)).collect()
    }

    #[test]
    fn few_flows_all_wait_as_long_as_all_of_them_make_it() {
        assert_eq!(intervals_us(1_000_000, &[0]), [1]);
        assert_eq!(intervals_us(1_000_000, &[1, 4]), [8, 8]);
        assert_eq!(intervals_us(1_000_000, &[1, 200]), [256, 256]);
    }

    #[test]
    fn who_has_many_flows_waits_for_that_and_nobody_else_does() {
        assert_eq!(intervals_us(1_000_000, &[16_384, 1]), [32_768, 256]);
        assert_eq!(intervals_us(1_000, &[4, 1]), [8_000, 2_000]);
        assert_eq!(intervals_us(1_000, &[100_000]), [LONGEST_US]);
    }

    #[test]
    fn equal_vms_wait_as_long_as_all_flows_make_it() {
        for us in intervals_us(1_000_000, &[100; 1_000]) {
            assert_eq!(us, 131_072);
        }
    }

    #[test]
    fn flows_that_end_make_nobody_wait() {
        let mut reports = Reports::default();
        reports.set_most(1_000);
        let (mut one, mut other) = (0, 0);
        reports.count(&mut one, false, true);
        (0..64).for_each(|_| reports.count(&mut other, false, true));
        assert_eq!(reports.interval_us(one), 2_000);
        (0..64).for_each(|_| reports.count(&mut other, true, false));
        assert_eq!((reports.interval_us(one), reports.vms), (1_000, 1));
        // What is counted as it was is nothing new.
        reports.count(&mut one, true, true);
        assert_eq!((one, reports.flows()), (1, 1));
    }
}
