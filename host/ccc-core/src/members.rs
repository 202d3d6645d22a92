// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who is in a group, and the sums over them that make every share O(1).
//!
//! The share of flow i of VM v is w_v · p_i / Σ_v p, times its srtt where
//! shares are rates (B20, B21).  With units u_i = p_i · (srtt or 1) and
//! the VM's effective weight e_v = w_v · Σ_v u / Σ_v p it is e_v · u_i / Σ_v u,
//! so a VM needs three sums and the group two, whatever the number of flows.
use slab::Slab;

use crate::fixed::{Part, Weight, Window, mul_div};

/// How one flow counts in the sums.  `Default` is a flow that does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Priority, 8 fraction bits; 0 for a flow that is idle.
    pub(crate) priority: u64,
    /// Priority, times srtt where shares are rates.
    pub(crate) units: u64,
    /// Its growth counts: window-limited and not in recovery.
    pub(crate) growing: bool,
    /// Bytes an application-limited flow uses; `None` for one that takes all
    /// it is given.
    pub(crate) demand: Option<u64>,
    /// In a timeout episode.
    pub(crate) lost: bool,
    /// Segment size.
    pub(crate) mss: u64,
}

impl Standing {
    pub(crate) fn active(&self) -> bool {
        self.priority > 0
    }
}

/// A VM in a group.
#[derive(Debug)]
struct Tenant {
    weight: Weight,
    priorities: u64,
    units: u64,
    growing_units: u64,
    /// Units of flows that take all they are given.
    greedy_units: u64,
    /// Sum of what the others use, bytes.
    demand: u64,
    /// e_v, in 1/256 of weight (times microseconds).
    effective: u64,
    /// Part of e_v that belongs to growing flows, with 16 fraction bits.
    growing: u64,
}

impl Tenant {
    fn refresh(&mut self) {
        self.effective = match self.priorities {
            0 => 0,
            sum => mul_div(self.weight.raw(), self.units, sum).max(1),
        };
        self.growing = self.part(self.growing_units);
    }

    /// Every active flow is application-limited.
    fn is_frugal(&self) -> bool {
        self.units > 0 && self.greedy_units == 0
    }

    /// e_v · units / Σ units, with 16 fraction bits.
    fn part(&self, units: u64) -> u64 {
        match self.units {
            0 => 0,
            sum => mul_div(self.effective << 16, units, sum),
        }
    }
}

/// The VMs of a group and the sums over their flows.
#[derive(Debug, Default)]
pub(crate) struct Members {
    tenants: Slab<Tenant>,
    effective: u64,
    /// Wider than a VM's: 1,060 of the largest weight at a second's srtt are more
    /// than 64 bits hold.
    growing: u128,
    active: u64,
    /// Application-limited flows.
    frugal: u64,
    lost: u64,
    mss_sum: u64,
}

impl Members {
    pub(crate) fn add_tenant(&mut self, weight: Weight) -> usize {
        self.tenants.insert(Tenant {
            weight,
            priorities: 0,
            units: 0,
            growing_units: 0,
            greedy_units: 0,
            demand: 0,
            effective: 0,
            growing: 0,
        })
    }

    /// The tenant's flows must have left before.
    pub(crate) fn remove_tenant(&mut self, tenant: usize) {
        self.tenants.remove(tenant);
    }

    pub(crate) fn set_weight(&mut self, tenant: usize, weight: Weight) {
        self.change(tenant, |t| t.weight = weight);
    }

    /// Counts a flow as `new` instead of `old`.
    pub(crate) fn recount(&mut self, tenant: usize, old: &Standing, new: &Standing) {
        if old == new {
            return;
        }
        self.frugal =
            self.frugal + u64::from(new.demand.is_some()) - u64::from(old.demand.is_some());
        self.active = self.active + u64::from(new.active()) - u64::from(old.active());
        self.lost = self.lost + u64::from(new.lost) - u64::from(old.lost);
        self.mss_sum = self.mss_sum + new.mss - old.mss;
        self.change(tenant, |t| {
            t.priorities = t.priorities + new.priority - old.priority;
            t.units = t.units + new.units - old.units;
            t.growing_units = t.growing_units + new.growing_units() - old.growing_units();
            t.greedy_units = t.greedy_units + new.greedy_units() - old.greedy_units();
            t.demand = t.demand + new.demand.unwrap_or(0) - old.demand.unwrap_or(0);
        });
    }

    fn change(&mut self, tenant: usize, edit: impl FnOnce(&mut Tenant)) {
        let t = &mut self.tenants[tenant];
        self.effective -= t.effective;
        self.growing -= u128::from(t.growing);
        edit(t);
        t.refresh();
        self.effective += t.effective;
        self.growing += u128::from(t.growing);
    }

    /// Flows with data outstanding.
    pub(crate) fn active(&self) -> u64 {
        self.active
    }

    /// All active flows, and at least one, are in a timeout episode (B3).
    pub(crate) fn all_lost(&self) -> bool {
        self.active > 0 && self.lost == self.active
    }

    /// No flow is in a timeout episode.
    pub(crate) fn none_lost(&self) -> bool {
        self.lost == 0
    }

    /// One segment for each active flow, bytes.
    pub(crate) fn floor(&self) -> u64 {
        self.mss_sum
    }

    /// This flow's part of the growing shares, as numerator and denominator.
    /// The flow counts as growing, whatever its standing says.
    pub(crate) fn growth_part(&self, tenant: usize, standing: &Standing) -> Part {
        let own = u128::from(self.tenants[tenant].part(standing.units));
        let whole = if standing.growing { self.growing } else { self.growing + own };
        (own, whole.max(own))
    }

    /// A flow's part of [`Members::whole`].
    pub(crate) fn part(&self, tenant: usize, standing: &Standing) -> u128 {
        self.tenants[tenant].part(standing.units).into()
    }

    /// All shares.
    pub(crate) fn whole(&self) -> u128 {
        u128::from(self.effective) << 16
    }

    /// How `window` is split between VMs that take all they are given.
    ///
    /// Weighted max-min: a VM whose flows are all application-limited keeps what
    /// it uses, if that is less than its fair part, and the others share the
    /// rest by weight.  That raises the line and may bring in more such VMs, so
    /// it is repeated until it does not; two or three times in practice.
    pub(crate) fn waterline(&self, window: Window) -> Waterline {
        let mut line = Waterline { window, effective: self.effective };
        if self.frugal == 0 {
            return line;
        }
        loop {
            let raised = self.without_satisfied(window, line);
            // Each pass takes at least one more VM out, or is the last.
            if raised.effective >= line.effective {
                return line;
            }
            line = raised;
        }
    }

    /// What is left of all when VMs satisfied under `line` have their demand.
    fn without_satisfied(&self, window: Window, line: Waterline) -> Waterline {
        let mut left = Waterline { window, effective: self.effective };
        for (_, t) in self.tenants.iter().filter(|(_, t)| t.is_frugal()) {
            let demand = Window::from_bytes(t.demand);
            if demand < line.window.part((t.effective.into(), line.effective.into())) {
                left.window = left.window.minus(demand);
                left.effective -= t.effective;
            }
        }
        left
    }

    /// A VM's level under `line`; `None` while it has no active flow.
    pub(crate) fn level(&self, tenant: usize, window: Window, line: Waterline) -> Option<u64> {
        let t = &self.tenants[tenant];
        if t.units == 0 {
            return None;
        }
        if t.greedy_units == 0 {
            // It may come to want its fair part, and then has it at once.
            return Some(window.part((t.effective.into(), self.effective.into())).level(t.units));
        }
        let part = line.window.part((t.effective.into(), line.effective.into()));
        let fair = part.level(t.units);
        let rest = part.minus(Window::from_bytes(t.demand)).level(t.greedy_units);
        Some(rest.max(fair))
    }
}

impl Standing {
    fn growing_units(&self) -> u64 {
        if self.growing { self.units } else { 0 }
    }

    fn greedy_units(&self) -> u64 {
        if self.demand.is_none() { self.units } else { 0 }
    }
}

/// What is left for VMs that take all they are given, and their weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waterline {
    window: Window,
    effective: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(priority: u64) -> Standing {
        Standing { priority, units: priority, growing: true, demand: None, lost: false, mss: 1000 }
    }

    #[test]
    fn a_vm_of_many_flows_weighs_what_its_operator_set() {
        let mut members = Members::default();
        let one = members.add_tenant(Weight::ONE);
        let many = members.add_tenant(Weight::ONE);
        members.recount(one, &Standing::default(), &flow(256));
        for _ in 0..16 {
            members.recount(many, &Standing::default(), &flow(256));
        }
        let window = Window::from_bytes(320_000);
        let line = members.waterline(window);
        let [one, many] = [(one, 256), (many, 16 * 256)]
            .map(|(vm, units)| (members.level(vm, window, line).expect("active") * units) >> 32);
        assert_eq!((one, many), (160_000, 160_000));
    }

    #[test]
    fn sums_return_to_zero() {
        let mut members = Members::default();
        let vm = members.add_tenant(Weight::ONE);
        members.recount(vm, &Standing::default(), &flow(77));
        members.recount(vm, &flow(77), &Standing::default());
        assert_eq!((members.effective, members.growing, members.floor()), (0, 0, 0));
        let window = Window::from_bytes(1000);
        assert_eq!(members.level(vm, window, members.waterline(window)), None);
    }

    #[test]
    fn what_a_vm_does_not_use_goes_to_the_others_by_weight() {
        let mut members = Members::default();
        let vms = [1.0, 1.0, 2.0]
            .map(|weight| members.add_tenant(Weight::from_f64(weight).expect("in range")));
        let frugal = Standing { growing: false, demand: Some(10_000), ..flow(256) };
        members.recount(vms[0], &Standing::default(), &frugal);
        members.recount(vms[1], &Standing::default(), &flow(256));
        members.recount(vms[2], &Standing::default(), &flow(256));
        let window = Window::from_bytes(100_000);
        let line = members.waterline(window);
        let windows = vms.map(|vm| (members.level(vm, window, line).expect("active") * 256) >> 32);
        assert_eq!(windows, [25_000, 30_000, 60_000]);
    }

    #[test]
    fn vms_that_are_all_satisfied_leave_nobody_to_share() {
        let mut members = Members::default();
        let vms = [(); 2].map(|()| members.add_tenant(Weight::ONE));
        for (vm, demand) in vms.into_iter().zip([10_000, 60_000]) {
            let frugal = Standing { growing: false, demand: Some(demand), ..flow(256) };
            members.recount(vm, &Standing::default(), &frugal);
        }
        let window = Window::from_bytes(100_000);
        let line = members.waterline(window);
        assert_eq!((line.window.bytes(), line.effective), (30_000, 0));
        let level = members.level(vms[0], window, line).expect("active");
        assert_eq!((level * 256) >> 32, 50_000, "what it may come to want");
    }

    #[test]
    fn a_demand_above_the_fair_part_is_no_demand() {
        let mut members = Members::default();
        let vms = [(); 2].map(|()| members.add_tenant(Weight::ONE));
        let wants = Standing { growing: false, demand: Some(70_000), ..flow(256) };
        members.recount(vms[0], &Standing::default(), &wants);
        members.recount(vms[1], &Standing::default(), &flow(256));
        let window = Window::from_bytes(100_000);
        let level = members.level(vms[1], window, members.waterline(window)).expect("active");
        assert_eq!((level * 256) >> 32, 50_000);
    }

    #[test]
    fn within_a_vm_the_greedy_flows_have_what_the_others_leave() {
        let mut members = Members::default();
        let vm = members.add_tenant(Weight::ONE);
        let frugal = Standing { growing: false, demand: Some(10_000), ..flow(256) };
        members.recount(vm, &Standing::default(), &frugal);
        members.recount(vm, &Standing::default(), &flow(256));
        let window = Window::from_bytes(100_000);
        let level = members.level(vm, window, members.waterline(window)).expect("active");
        assert_eq!((level * 256) >> 32, 90_000);
    }

    #[test]
    fn e7_parts_of_two_thousand_vms_sum_to_the_whole() {
        let mut members = Members::default();
        // The longest smoothed round-trip time counted, where shares are rates.
        let far = Standing { units: 256 << 20, ..flow(256) };
        let vms = [(); 2_000]
            .map(|()| members.add_tenant(Weight::from_f64(Weight::MAX).expect("in range")));
        for vm in vms {
            members.recount(vm, &Standing::default(), &far);
        }
        let sum: u128 = vms.iter().map(|vm| members.part(*vm, &far)).sum();
        assert_eq!(sum, members.whole());
    }

    #[test]
    fn growth_parts_sum_to_the_whole() {
        let mut members = Members::default();
        let a = members.add_tenant(Weight::from_f64(3.0).expect("in range"));
        let b = members.add_tenant(Weight::ONE);
        members.recount(a, &Standing::default(), &flow(256));
        members.recount(b, &Standing::default(), &flow(256));
        members.recount(b, &Standing::default(), &flow(768));
        let parts = [(a, flow(256)), (b, flow(256)), (b, flow(768))]
            .map(|(tenant, standing)| members.growth_part(tenant, &standing));
        let sum: u128 = parts.iter().map(|(own, _)| own).sum();
        assert!(parts.iter().all(|(_, whole)| *whole == sum), "{parts:?}");
    }
}
