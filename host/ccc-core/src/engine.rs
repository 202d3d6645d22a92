// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The engine's interface.
use slab::Slab;

use crate::{
    fixed::{Micros, Weight},
    flow::{Flow, IDLE_AFTER_US},
    grant::Grant,
    group::{Change, Group, GroupConfig, GroupStatus},
    members::Standing,
    policy::Aggregate,
    quiet::{Link, Quiet},
    report::{EngineError, Report},
};

/// A bottleneck group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(u32);

/// A VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmId(u32);

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(u32);

/// A VM's seat in one group.
#[derive(Debug)]
struct Seat {
    group: usize,
    tenant: usize,
}

#[derive(Debug, Default)]
struct Vm {
    seats: Vec<Seat>,
}

/// All groups, VMs and flows of a host.
#[derive(Debug, Default)]
pub struct Engine {
    groups: Slab<Group>,
    vms: Slab<Vm>,
    flows: Slab<Flow>,
    quiet: Quiet,
}

impl Engine {
    /// An engine without groups.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// Adds an empty group.
    pub fn add_group(&mut self, config: GroupConfig) -> GroupId {
        GroupId(self.groups.insert(Group::new(config)) as u32)
    }

    /// Adds a VM, with weight 1 in every group until told otherwise.
    pub fn add_vm(&mut self) -> VmId {
        VmId(self.vms.insert(Vm::default()) as u32)
    }

    /// Removes a VM and whatever flows it still has.
    pub fn remove_vm(&mut self, now: Micros, vm: VmId) {
        let key = vm.0 as usize;
        let theirs: Vec<usize> =
            self.flows.iter().filter(|(_, flow)| flow.vm == key).map(|(key, _)| key).collect();
        for flow in theirs {
            self.leave(now, FlowId(flow as u32));
        }
        if let Some(gone) = self.vms.try_remove(key) {
            for seat in gone.seats {
                self.groups[seat.group].remove_tenant(seat.tenant);
            }
        }
    }

    /// Sets a VM's weight in a group, in force at once.
    pub fn set_weight(
        &mut self,
        vm: VmId,
        group: GroupId,
        weight: Weight,
    ) -> Result<(), EngineError> {
        let (group, tenant) = self.seat(vm, group)?;
        self.groups[group].set_weight(tenant, weight);
        Ok(())
    }

    /// Changes how a group is coupled, in force at once for live flows.
    pub fn set_group(
        &mut self,
        now: Micros,
        group: GroupId,
        config: GroupConfig,
    ) -> Result<(), EngineError> {
        let key = group.0 as usize;
        let found = self.found(key);
        let entry = self.groups.get_mut(key).ok_or(EngineError::UnknownGroup(group.0))?;
        entry.reconfigure(config, found);
        for (_, flow) in self.flows.iter_mut().filter(|(_, flow)| flow.group == key) {
            flow.standing = entry.standing_anew(flow.tenant, &flow.standing, &flow.last);
        }
        self.tick(now);
        Ok(())
    }

    /// How a group is coupled.
    pub fn group_config(&self, group: GroupId) -> Option<GroupConfig> {
        self.groups.get(group.0 as usize).map(Group::config)
    }

    /// Registers a flow found running, as after a restart of the engine's host
    /// program: the first ones of an empty group bring their windows along.
    pub fn adopt(
        &mut self,
        now: Micros,
        vm: VmId,
        group: GroupId,
        report: &Report,
    ) -> Result<FlowId, EngineError> {
        let key = self.insert(vm, group, report)?;
        let flow = &mut self.flows[key];
        flow.standing = self.groups[flow.group].adopt(now, flow.tenant, report);
        self.hear(now, key);
        Ok(FlowId(key as u32))
    }

    /// Registers a flow.  An idle one counts from its first active report on.
    pub fn register(
        &mut self,
        now: Micros,
        vm: VmId,
        group: GroupId,
        report: &Report,
    ) -> Result<FlowId, EngineError> {
        let key = self.insert(vm, group, report)?;
        self.apply(now, key, report);
        Ok(FlowId(key as u32))
    }

    fn insert(&mut self, vm: VmId, group: GroupId, report: &Report) -> Result<usize, EngineError> {
        check(report)?;
        let (group, tenant) = self.seat(vm, group)?;
        Ok(self.flows.insert(Flow {
            vm: vm.0 as usize,
            group,
            tenant,
            last: *report,
            standing: Standing::default(),
            link: Link::default(),
        }))
    }

    /// Takes a flow's report.
    pub fn update(
        &mut self,
        now: Micros,
        flow: FlowId,
        report: &Report,
    ) -> Result<(), EngineError> {
        check(report)?;
        let key = flow.0 as usize;
        if !self.flows.contains(key) {
            return Err(EngineError::UnknownFlow(flow.0));
        }
        self.apply(now, key, report);
        Ok(())
    }

    /// Removes a flow; unknown ones are gone already.
    pub fn leave(&mut self, now: Micros, flow: FlowId) {
        let key = flow.0 as usize;
        if self.flows.contains(key) {
            self.silence(now, key);
            self.flows.remove(key);
        }
    }

    /// Removes flows that go on without being coupled, as those of a VM whose
    /// device is unplugged: they take their parts of the aggregates along, for
    /// they still are on the path.
    pub fn detach(&mut self, now: Micros, flows: &[FlowId]) {
        for (key, group) in &mut self.groups {
            let theirs = flows.iter().filter_map(|flow| self.flows.get(flow.0 as usize));
            let theirs = theirs.filter(|flow| flow.group == key);
            group.give_up(theirs.map(|flow| (flow.tenant, &flow.standing)));
        }
        for flow in flows {
            self.leave(now, *flow);
        }
    }

    /// Does what time alone brings about: flows not heard for [`IDLE_AFTER_US`]
    /// no longer count.  Call it at [`Engine::next_deadline`] or later.
    pub fn tick(&mut self, now: Micros) {
        while let Some((key, heard)) = self.quiet.longest(&self.flows) {
            if heard.saturating_add(IDLE_AFTER_US) > now {
                break;
            }
            self.silence(now, key);
        }
    }

    /// When [`Engine::tick`] next has something to do.
    pub fn next_deadline(&self) -> Option<Micros> {
        let (_, heard) = self.quiet.longest(&self.flows)?;
        Some(heard.saturating_add(IDLE_AFTER_US))
    }

    /// What the VM is granted in the group, not in force before its first
    /// active flow there.
    pub fn grant(&self, vm: VmId, group: GroupId) -> Grant {
        self.vms
            .get(vm.0 as usize)
            .and_then(|vm| vm.seats.iter().find(|seat| seat.group == group.0 as usize))
            .map(|seat| self.groups[seat.group].grant(seat.tenant))
            .unwrap_or_default()
    }

    /// Changes whenever a grant of the group may have changed.
    pub fn group_version(&self, group: GroupId) -> u64 {
        self.groups.get(group.0 as usize).map_or(0, Group::version)
    }

    /// The aggregate of a group as it is now; where flows are left alone, the
    /// sum of what they have.
    pub fn status(&self, group: GroupId) -> Option<GroupStatus> {
        let key = group.0 as usize;
        self.groups.get(key).map(|entry| entry.status(self.found(key)))
    }

    /// What the active flows of a group have by their own reports.
    fn found(&self, group: usize) -> Aggregate {
        let mut found = Aggregate::default();
        let theirs = self.flows.iter().map(|(_, flow)| flow);
        for flow in theirs.filter(|flow| flow.group == group && flow.standing.active()) {
            found.absorb(&flow.last);
        }
        found
    }

    /// Flows registered by all VMs.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The VM's seat in the group, taken at its first use.
    fn seat(&mut self, vm: VmId, group: GroupId) -> Result<(usize, usize), EngineError> {
        let key = group.0 as usize;
        let seats = &mut self.vms.get_mut(vm.0 as usize).ok_or(EngineError::UnknownVm(vm.0))?.seats;
        let entry = self.groups.get_mut(key).ok_or(EngineError::UnknownGroup(group.0))?;
        if let Some(seat) = seats.iter().find(|seat| seat.group == key) {
            return Ok((key, seat.tenant));
        }
        let tenant = entry.add_tenant(Weight::ONE);
        seats.push(Seat { group: key, tenant });
        Ok((key, tenant))
    }

    fn apply(&mut self, now: Micros, key: usize, report: &Report) {
        let flow = &mut self.flows[key];
        let group = &mut self.groups[flow.group];
        flow.standing = group.apply(&Change {
            now,
            flow: key,
            tenant: flow.tenant,
            old: &flow.last,
            counted: &flow.standing,
            new: report,
        });
        flow.last = *report;
        self.hear(now, key);
    }

    /// Notes that a flow was heard.
    fn hear(&mut self, now: Micros, key: usize) {
        if self.flows[key].last.active {
            self.quiet.heard(&mut self.flows, key, now);
        } else {
            self.quiet.forget(&mut self.flows, key);
        }
    }

    fn silence(&mut self, now: Micros, key: usize) {
        self.quiet.forget(&mut self.flows, key);
        let flow = &mut self.flows[key];
        self.groups[flow.group].silence(now, flow.tenant, &flow.standing);
        flow.standing = Standing::default();
    }
}

fn check(report: &Report) -> Result<(), EngineError> {
    if report.priority == 0 {
        return Err(EngineError::ZeroPriority);
    }
    if report.mss_bytes == 0 {
        return Err(EngineError::ZeroMss);
    }
    Ok(())
}
