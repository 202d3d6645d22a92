// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon around the real engine: doorbells in, grants out.
use ccc_core::{
    Claims, Engine, FlowId, Grant, GroupConfig, GroupId, GroupStatus, Report, VmId, Weight,
};

use crate::path::Nanos;

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
    id: Option<FlowId>,
}

/// The daemon of one host with one group.
#[derive(Debug)]
pub struct Host {
    engine: Engine,
    group: GroupId,
    vms: Vec<VmId>,
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
    pub fn new(config: GroupConfig, weights: &[Weight], slots: usize, delay_ns: Nanos) -> Host {
        let mut engine = Engine::new();
        let group = engine.add_group(config);
        let vms: Vec<VmId> = weights.iter().map(|_| engine.add_vm()).collect();
        for (vm, weight) in vms.iter().zip(weights) {
            engine.set_weight(*vm, group, *weight).expect("the VM was added");
        }
        Host {
            engine,
            group,
            grants: vec![(u64::MAX, Grant::default()); vms.len()],
            vms,
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
        self.engine.verdicts(self.group)
    }

    /// Events that reduced only the VM that told of them.
    pub fn lone_events(&self) -> u64 {
        self.vms.iter().map(|vm| self.engine.conduct(*vm, self.group).lone_events).sum()
    }

    /// What a VM's reports say.
    pub fn claims(&self, vm: usize) -> Claims {
        self.engine.claims(self.vms[vm], self.group)
    }

    /// An operator changes a VM's weight.
    pub fn set_weight(&mut self, vm: usize, weight: Weight) {
        self.engine.set_weight(self.vms[vm], self.group, weight).expect("the VM was added");
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

    /// Whether the flow in that slot is known.
    pub fn is_accepted(&self, flow: usize) -> bool {
        self.slots[flow].id.is_some()
    }

    /// The guest has written a flow's report, without a message.
    pub fn write(&mut self, flow: usize, report: Report) {
        self.slots[flow].report = report;
    }

    /// A doorbell rings.
    pub fn ring(&mut self, now: Nanos, vm: usize, flow: usize, doorbell: Doorbell) {
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
        if self.engine.next_deadline().is_some_and(|at| at <= now / 1000) {
            self.engine.tick(now / 1000);
        }
    }

    fn take(&mut self, now: Nanos, vm: usize, flow: usize, doorbell: Doorbell) {
        self.tick(now);
        self.reports += 1;
        let now_us = now / 1000;
        let Slot { report, id } = self.slots[flow];
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
