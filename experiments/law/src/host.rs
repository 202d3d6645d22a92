// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon around the real engine: doorbells in, grants out.
use ccc_core::{
    Claims, Engine, FlowId, Grant, GroupConfig, GroupId, GroupStatus, Report, VmId, Weight,
};

use crate::path::Nanos;

/// A guest that gets no answer goes on alone after that (the device's `stale_us`).
const STALE_NS: Nanos = 1_000_000_000;

/// What a doorbell says of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// It has data to send.
    Register,
    /// Its report has changed.
    Update,
    /// It gives its slot back.
    Leave,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    report: Report,
    /// The VM whose flow is in it, by the table.
    vm: Option<usize>,
    /// That flow, once the daemon has been told.
    id: Option<FlowId>,
}

/// The daemon of one host with one group.
#[derive(Debug)]
pub struct Host {
    config: GroupConfig,
    weights: Vec<f64>,
    engine: Engine,
    group: GroupId,
    vms: Vec<VmId>,
    /// When it was killed, while it is not back.
    killed_at: Option<Nanos>,
    verdicts_before: u64,
    slots: Vec<Slot>,
    grants: Vec<(u64, Grant)>,
    delay_ns: Nanos,
    pending: Vec<(usize, usize, Doorbell)>,
    /// When it looks at what has rung.
    pub looks_at: Option<Nanos>,
    /// Reports taken.
    pub reports: u64,
}

impl Host {
    /// One with so many VMs and slots; doorbells take `delay_ns`.
    pub fn new(config: GroupConfig, weights: Vec<f64>, slots: usize, delay_ns: Nanos) -> Host {
        let (engine, group, vms) = begun(config, &weights);
        Host {
            config,
            weights,
            engine,
            group,
            grants: vec![(u64::MAX, Grant::default()); vms.len()],
            vms,
            killed_at: None,
            verdicts_before: 0,
            slots: vec![Slot::default(); slots],
            delay_ns,
            pending: Vec::new(),
            looks_at: None,
            reports: 0,
        }
    }

    /// The aggregate.
    pub fn status(&self) -> GroupStatus {
        self.engine.status(self.group).expect("the group was added")
    }

    /// Verdicts against VMs, and for them again.
    pub fn verdicts(&self) -> u64 {
        self.verdicts_before + self.engine.verdicts(self.group)
    }

    /// It is killed: what rings is not heard, what was granted grows old.
    pub fn kill(&mut self, now: Nanos) {
        self.killed_at = Some(now);
        self.pending.clear();
        self.looks_at = None;
    }

    /// Another one begins, and finds in the tables which flows are there.
    pub fn start(&mut self, now: Nanos) {
        self.verdicts_before = self.verdicts();
        (self.engine, self.group, self.vms) = begun(self.config, &self.weights);
        self.grants.fill((u64::MAX, Grant::default()));
        self.killed_at = None;
        for slot in &mut self.slots {
            slot.id = slot.vm.map(|vm| {
                let adopted = self.engine.adopt(now / 1000, self.vms[vm], self.group, &slot.report);
                adopted.expect("a sound report")
            });
        }
    }

    /// It is there.
    pub fn is_alive(&self) -> bool {
        self.killed_at.is_none()
    }

    /// Flows that it knows, once it has heard all that rang.
    pub fn flows(&self) -> Option<usize> {
        let settled = self.is_alive() && self.pending.is_empty();
        settled.then(|| self.engine.flows())
    }

    /// Events that reduced only the VM that told of them.
    pub fn lone_events(&self) -> u64 {
        self.vms.iter().map(|vm| self.engine.conduct(*vm, self.group).lone_events).sum()
    }

    /// What a VM's reports say.
    pub fn claims(&self, vm: usize) -> Claims {
        self.engine.claims(self.vms[vm], self.group)
    }

    /// A VM's weight.
    pub fn weight(&self, vm: usize) -> f64 {
        self.weights[vm]
    }

    /// An operator changes a VM's weight.
    pub fn set_weight(&mut self, vm: usize, weight: f64) {
        self.weights[vm] = weight;
        weigh(&mut self.engine, self.group, self.vms[vm], weight);
    }

    /// What is granted to a VM.
    pub fn grant(&mut self, vm: usize) -> Grant {
        let version = self.engine.group_version(self.group);
        let (seen, grant) = &mut self.grants[vm];
        if *seen != version {
            *seen = version;
            *grant = self.engine.grant(self.vms[vm], self.group);
        }
        *grant
    }

    /// Whether the flow in that slot is known, and what it is granted not too old.
    pub fn is_accepted(&self, now: Nanos, flow: usize) -> bool {
        let is_fresh = self.killed_at.is_none_or(|at| now - at <= STALE_NS);
        self.slots[flow].id.is_some() && is_fresh
    }

    /// The guest has written a flow's report, without a message.
    pub fn write(&mut self, flow: usize, report: Report) {
        self.slots[flow].report = report;
    }

    /// A doorbell rings.
    pub fn ring(&mut self, now: Nanos, vm: usize, flow: usize, doorbell: Doorbell) {
        self.slots[flow].vm = (doorbell != Doorbell::Leave).then_some(vm);
        if !self.is_alive() {
            return;
        }
        if self.delay_ns == 0 {
            self.take(now, vm, flow, doorbell);
            return;
        }
        self.pending.push((vm, flow, doorbell));
        self.looks_at.get_or_insert(now + self.delay_ns);
    }

    /// What has rung is looked at, with the reports as they are now.
    pub fn look(&mut self, now: Nanos) {
        self.looks_at = None;
        for (vm, flow, doorbell) in std::mem::take(&mut self.pending) {
            self.take(now, vm, flow, doorbell);
        }
    }

    /// Time passes.
    pub fn tick(&mut self, now: Nanos) {
        if self.is_alive() && self.engine.next_deadline().is_some_and(|at| at <= now / 1000) {
            self.engine.tick(now / 1000);
        }
    }

    fn take(&mut self, now: Nanos, vm: usize, flow: usize, doorbell: Doorbell) {
        self.tick(now);
        self.reports += 1;
        let now_us = now / 1000;
        let Slot { report, id, .. } = self.slots[flow];
        let (vm, group) = (self.vms[vm], self.group);
        self.slots[flow].id = match (doorbell, id) {
            (Doorbell::Register, None) => {
                Some(self.engine.register(now_us, vm, group, &report).expect("a sound report"))
            }
            (Doorbell::Leave, Some(id)) => {
                self.engine.update(now_us, id, &report).expect("a known flow");
                self.engine.leave(now_us, id);
                None
            }
            (_, Some(id)) => {
                self.engine.update(now_us, id, &report).expect("a known flow");
                Some(id)
            }
            (_, None) => None,
        };
    }
}

/// An engine of one group, with a VM of each weight.
fn begun(config: GroupConfig, weights: &[f64]) -> (Engine, GroupId, Vec<VmId>) {
    let mut engine = Engine::new();
    let group = engine.add_group(config);
    let add = |weight: &f64| {
        let vm = engine.add_vm();
        weigh(&mut engine, group, vm, *weight);
        vm
    };
    let vms = weights.iter().map(add).collect();
    (engine, group, vms)
}

fn weigh(engine: &mut Engine, group: GroupId, vm: VmId, weight: f64) {
    let weight = Weight::from_f64(weight).expect("checked in the setup");
    engine.set_weight(vm, group, weight).expect("the VM was added");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_daemon_finds_the_flows_of_the_tables_and_no_others() {
        let mut host = Host::new(GroupConfig::default(), vec![1.0], 3, 0);
        let report = Report { active: true, priority: 256, mss_bytes: 1448, ..Report::default() };
        for flow in 0..3 {
            host.write(flow, report);
        }
        host.ring(0, 0, 0, Doorbell::Register);
        host.ring(0, 0, 1, Doorbell::Register);
        host.kill(1);
        assert_eq!(host.flows(), None);
        assert!(host.is_accepted(1 + STALE_NS, 0), "what was granted holds for a while");
        assert!(!host.is_accepted(2 + STALE_NS, 0));
        host.ring(2, 0, 1, Doorbell::Leave);
        host.ring(2, 0, 2, Doorbell::Register);
        host.start(3 + STALE_NS);
        assert_eq!(host.flows(), Some(2));
        let accepted = [0, 1, 2].map(|flow| host.is_accepted(3 + STALE_NS, flow));
        assert_eq!(accepted, [true, false, true]);
    }
}
