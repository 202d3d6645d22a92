// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The engine's interface.
use slab::Slab;
use thiserror::Error;

use crate::{
    bounds::Conduct,
    claims::Claims,
    config::GroupConfig,
    fixed::{Micros, Weight},
    flow::{Delta, Flow},
    grant::Grant,
    group::{Group, GroupStatus, Update},
    lru::LruList,
    policy::Aggregate,
    range::RateRange,
    report::Report,
    reports::Reports,
    witness::Evidence,
};

/// A flow that reports nothing for this long counts no more until its next report:
/// one that fell idle keeps its place for so long, and a guest that hangs or dies takes
/// no share with it (B11).
pub const IDLE_AFTER_US: Micros = 1_000_000;

/// Memory for so many flows is kept, whether there are any.
const KEPT_FLOWS: usize = 4096;

/// Why the engine refuses a call.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum EngineError {
    /// The flow is not registered, or has left.
    #[error("unknown flow {0}: expected one that is registered")]
    UnknownFlow(u32),
    /// The VM is not there.
    #[error("unknown VM {0}: expected one that was added and not removed")]
    UnknownVm(u32),
    /// The group is not there.
    #[error("unknown group {0}: expected one that was added")]
    UnknownGroup(u32),
    /// A flow of priority 0 would have a share of nothing.
    #[error("invalid priority: expected 1 to 65535 (256 is priority 1), got 0")]
    ZeroPriority,
    /// Windows cannot be counted in segments of no size.
    #[error("invalid mss_bytes: expected 1 to 65535 bytes of payload in a full segment, got 0")]
    ZeroMss,
}

type Result<T> = std::result::Result<T, EngineError>;

/// A bottleneck group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(u32);

/// A VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmId(u32);

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(u32);

/// A VM's membership in one group.
#[derive(Clone, Copy, Debug)]
struct Membership {
    group: usize,
    /// Key of the VM in it.
    member: usize,
    /// What its reports say of all its flows there, those that have left included.
    claims: Claims,
}

#[derive(Debug, Default)]
struct Vm {
    memberships: Vec<Membership>,
    /// Its active flows, in all groups.
    active_flows: u64,
}

/// All groups, VMs and flows of a host.
#[derive(Debug, Default)]
pub struct Engine {
    groups: Slab<Group>,
    vms: Slab<Vm>,
    flows: Slab<Flow>,
    /// Flows that count, in the order in which they last reported.
    active: LruList,
    reports: Reports,
    /// With no more flows than that, memory is given back.
    give_back_at: usize,
}

impl Engine {
    /// An engine without groups.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// Bounds what all flows report of mere progress, in a second.
    pub fn set_max_reports_per_s(&mut self, most: u32) {
        self.reports.set_most(most);
    }

    /// How far apart such reports of a VM's flow have to be.
    pub fn report_interval_us(&self, vm: VmId) -> Micros {
        let vm = self.vms.get(vm.0 as usize);
        self.reports.interval_us(vm.map_or(0, |vm| vm.active_flows))
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
            self.flows.iter().filter(|(_, flow)| flow.vm() == key).map(|(key, _)| key).collect();
        for flow in theirs {
            self.leave(now, FlowId(flow as u32));
        }
        if let Some(gone) = self.vms.try_remove(key) {
            for Membership { group, member, .. } in gone.memberships {
                self.groups[group].remove_member(member);
            }
        }
    }

    /// Sets a VM's weight in a group, in force at once.
    pub fn set_weight(&mut self, vm: VmId, group: GroupId, weight: Weight) -> Result<()> {
        let Membership { group, member, .. } = self.membership(vm, group)?;
        self.groups[group].set_weight(member, weight);
        Ok(())
    }

    /// Sets the rates between which a VM's part of a group stays, in force at once: no less
    /// than its floor while it wants that, no more than its cap, whatever its weight.
    pub fn set_range(&mut self, vm: VmId, group: GroupId, range: RateRange) -> Result<()> {
        let Membership { group, member, .. } = self.membership(vm, group)?;
        self.groups[group].set_range(member, range);
        Ok(())
    }

    /// Changes how a group is coupled, in force at once for live flows.
    pub fn set_group(&mut self, now: Micros, group: GroupId, config: GroupConfig) -> Result<()> {
        let key = group.0 as usize;
        let reported = self.reported(key);
        let entry = self.groups.get_mut(key).ok_or(EngineError::UnknownGroup(group.0))?;
        entry.reconfigure(config, reported);
        for (_, flow) in self.flows.iter_mut().filter(|(_, flow)| flow.group() == key) {
            let contribution = entry.recount(flow);
            flow.set_contribution(&contribution);
        }
        debug_assert!(self.sums_hold(key), "sums of group {key} after a change");
        self.tick(now);
        Ok(())
    }

    /// Registers a flow found running, as after a restart of the engine's host
    /// program: the first ones of an empty group bring their windows along.
    pub fn adopt(
        &mut self,
        now: Micros,
        vm: VmId,
        group: GroupId,
        report: &Report,
    ) -> Result<FlowId> {
        let key = self.insert(now, vm, group, report)?;
        let flow = &mut self.flows[key];
        let contribution = self.groups[flow.group()].adopt(now, flow, report);
        flow.set_contribution(&contribution);
        let (vm, is_active) = (flow.vm(), contribution.active);
        self.reports.count(&mut self.vms[vm].active_flows, false, is_active);
        self.counted(now, key);
        Ok(FlowId(key as u32))
    }

    /// Registers a flow.  An idle one counts from its first active report on.
    pub fn register(
        &mut self,
        now: Micros,
        vm: VmId,
        group: GroupId,
        report: &Report,
    ) -> Result<FlowId> {
        let flow = FlowId(self.insert(now, vm, group, report)? as u32);
        self.apply(now, flow, report)?;
        Ok(flow)
    }

    fn insert(&mut self, now: Micros, vm: VmId, group: GroupId, report: &Report) -> Result<usize> {
        check(report)?;
        let Membership { group, member, .. } = self.membership(vm, group)?;
        if self.flows.len() > KEPT_FLOWS {
            self.give_back_at = self.give_back_at.max(self.flows.len() / 4);
        }
        Ok(self.flows.insert(Flow::new((vm.0 as usize, group, member), now, report)))
    }

    /// Takes a flow's report.
    pub fn update(&mut self, now: Micros, flow: FlowId, report: &Report) -> Result<()> {
        check(report)?;
        self.apply(now, flow, report)
    }

    /// The latest report of a flow, but for what is of a single event, and what is
    /// outstanding.
    pub fn last_report(&self, flow: FlowId) -> Option<Report> {
        self.flows.get(flow.0 as usize).map(Flow::last)
    }

    /// Removes a flow; unknown ones are gone already.
    pub fn leave(&mut self, now: Micros, flow: FlowId) {
        let key = flow.0 as usize;
        if self.flows.contains(key) {
            self.uncount(now, key);
            let flow = self.flows.remove(key);
            self.groups[flow.group()].left(flow.member(), key);
            self.give_back();
        }
    }

    /// Gives back what is beyond the flow of the largest number, if few are left; since all
    /// are looked at, not again before half of them have left, too.
    fn give_back(&mut self) {
        if self.flows.len() <= self.give_back_at && self.flows.capacity() > KEPT_FLOWS {
            self.give_back_at = self.flows.len() / 2;
            self.flows.shrink_to_fit();
            self.active.shrink_to(self.flows.capacity());
        }
    }

    /// Removes flows that go on without being coupled, as those of a VM whose
    /// device is unplugged: they take their parts of the aggregates along, for
    /// they still are on the path.
    pub fn detach(&mut self, now: Micros, flows: &[FlowId]) {
        for (key, group) in &mut self.groups {
            let theirs = flows.iter().filter_map(|flow| self.flows.get(flow.0 as usize));
            group.take_out(theirs.filter(|flow| flow.group() == key));
        }
        self.count_exit(flows);
        for flow in flows {
            self.leave(now, *flow);
        }
    }

    /// Flows of a VM go on alone: once in each of their groups.
    fn count_exit(&mut self, flows: &[FlowId]) {
        let known = &self.flows;
        let theirs = || flows.iter().filter_map(|flow| known.get(flow.0 as usize));
        let Some(vm) = theirs().next().map(|flow| flow.vm()) else { return };
        for entry in &mut self.vms[vm].memberships {
            entry.claims.exits += u64::from(theirs().any(|flow| flow.group() == entry.group));
        }
    }

    /// Does what time alone brings about: flows that report nothing for
    /// [`IDLE_AFTER_US`] no longer count.  Call it at [`Engine::next_deadline`] or later.
    pub fn tick(&mut self, now: Micros) {
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let Some(key) = self.active.oldest() else { break };
            self.uncount(now, key);
        }
    }

    /// When [`Engine::tick`] next has something to do.
    pub fn next_deadline(&self) -> Option<Micros> {
        let oldest = &self.flows[self.active.oldest()?];
        Some(oldest.heard.saturating_add(IDLE_AFTER_US))
    }

    /// What the VM is granted in the group, not in force before its first
    /// active flow there.
    pub fn grant(&self, vm: VmId, group: GroupId) -> Grant {
        match self.member_of(vm, group) {
            Some((group, member)) => group.grant(member),
            None => Grant::default(),
        }
    }

    /// The group, and the VM in it, if it is there.
    fn member_of(&self, vm: VmId, group: GroupId) -> Option<(&Group, usize)> {
        let theirs = &self.vms.get(vm.0 as usize)?.memberships;
        let entry = theirs.iter().find(|entry| entry.group == group.0 as usize)?;
        Some((&self.groups[entry.group], entry.member))
    }

    /// What the VM's reports have claimed in the group so far.
    pub fn claims(&self, vm: VmId, group: GroupId) -> Claims {
        let vm = self.vms.get(vm.0 as usize);
        let entry = vm.and_then(|vm| vm.memberships.iter().find(|m| m.group == group.0 as usize));
        entry.map_or_else(Claims::default, |entry| Claims {
            backlogged: self.groups[entry.group].is_backlogged(entry.member),
            granted: self.groups[entry.group].granted(entry.member),
            ..entry.claims
        })
    }

    /// What speaks for and against a VM's being behind the group's bottleneck.
    pub fn evidence(&self, now: Micros, vm: VmId, group: GroupId) -> Evidence {
        let found = self.member_of(vm, group);
        found.map(|(group, member)| group.evidence(now, member)).unwrap_or_default()
    }

    /// What the VM was found to do in the group.
    pub fn conduct(&self, vm: VmId, group: GroupId) -> Conduct {
        let found = self.member_of(vm, group);
        found.map(|(group, member)| group.conduct(member)).unwrap_or_default()
    }

    /// Changes whenever [`Engine::evidence`] or [`Engine::conduct`] comes to another verdict
    /// of a VM of the group.
    pub fn verdicts(&self, group: GroupId) -> u64 {
        self.groups.get(group.0 as usize).map_or(0, Group::verdicts)
    }

    /// Changes whenever a grant of the group may have changed.
    pub fn group_version(&self, group: GroupId) -> u64 {
        self.groups.get(group.0 as usize).map_or(0, Group::version)
    }

    /// The aggregate of a group as it is now; where flows are left alone, the
    /// sum of what they have.
    pub fn status(&self, group: GroupId) -> Option<GroupStatus> {
        let key = group.0 as usize;
        self.groups.get(key).map(|entry| entry.status(|| self.reported(key)))
    }

    /// Flows that count, in all groups.
    pub fn active_flows(&self) -> u64 {
        self.reports.flows()
    }

    /// What the active flows of a group have by their own reports.
    fn reported(&self, group: usize) -> Aggregate {
        let mut reported = Aggregate::default();
        for flow in self.flows_of(group).filter(|flow| flow.is_active()) {
            reported.add(&flow.last());
        }
        reported
    }

    fn flows_of(&self, group: usize) -> impl Iterator<Item = &Flow> {
        self.flows.iter().map(|(_, flow)| flow).filter(move |flow| flow.group() == group)
    }

    /// Flows registered by all VMs.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The VM's membership in the group, which begins at its first use.
    fn membership(&mut self, vm: VmId, group: GroupId) -> Result<Membership> {
        let key = group.0 as usize;
        let theirs = self.vms.get_mut(vm.0 as usize).ok_or(EngineError::UnknownVm(vm.0))?;
        let entry = self.groups.get_mut(key).ok_or(EngineError::UnknownGroup(group.0))?;
        if let Some(there) = theirs.memberships.iter().find(|there| there.group == key) {
            return Ok(*there);
        }
        let member = entry.add_member(Weight::ONE);
        let membership = Membership { group: key, member, claims: Claims::default() };
        theirs.memberships.push(membership);
        Ok(membership)
    }

    fn apply(&mut self, now: Micros, id: FlowId, report: &Report) -> Result<()> {
        let key = id.0 as usize;
        let flow = self.flows.get_mut(key).ok_or(EngineError::UnknownFlow(id.0))?;
        let before = flow.contribution();
        let told = Delta::between(&flow.counters(), report);
        let usage = flow.usage.with(now, report, told.delivered_bytes);
        let usage = if report.active && before.is_idle() { usage.back() } else { usage };
        let vm = &mut self.vms[flow.vm()];
        let interval_us = self.reports.interval_us(vm.active_flows);
        let update = Update { now, key, flow, before: &before, report, told, usage, interval_us };
        let new = self.groups[flow.group()].take(&update);
        self.reports.count(&mut vm.active_flows, before.active, new.active);
        let mut theirs = vm.memberships.iter_mut();
        if let Some(entry) = theirs.find(|entry| entry.group == flow.group()) {
            entry.claims.take(&told);
        }
        flow.reported(report, usage);
        flow.set_contribution(&new);
        if before.active || report.active {
            self.counted(now, key);
        }
        Ok(())
    }

    /// Notes that a flow has reported, and was counted by its group.
    fn counted(&mut self, now: Micros, key: usize) {
        let flow = &mut self.flows[key];
        if flow.counts() {
            flow.heard = now;
            self.active.touch(key);
        } else {
            self.active.remove(key);
        }
        let group = flow.group();
        debug_assert!(self.sums_hold(group), "sums of group {group} at flow {key}");
    }

    fn uncount(&mut self, now: Micros, key: usize) {
        self.active.remove(key);
        let flow = &mut self.flows[key];
        self.groups[flow.group()].uncount(now, flow);
        let active_flows = &mut self.vms[flow.vm()].active_flows;
        self.reports.count(active_flows, flow.is_active(), false);
        flow.forget();
        let group = flow.group();
        debug_assert!(self.sums_hold(group), "sums of group {group} without flow {key}");
    }

    /// Whether a group's running sums are those of a recount.  With many flows only
    /// some calls recount, so that each looks at 16 of them in the mean.
    fn sums_hold(&self, group: usize) -> bool {
        let entry = &self.groups[group];
        let active: u64 = self.groups.iter().map(|(_, group)| group.active_flows()).sum();
        if active != self.reports.flows() {
            return false;
        }
        // Odd, for versions that go by twos.
        let calls = ((self.flows.len() + self.vms.len()) as u64 / 16) | 1;
        entry.version() % calls != 0 || entry.is_sum_over(self.flows_of(group))
    }
}

/// Refuses what the engine would divide by.
fn check(report: &Report) -> Result<()> {
    match report {
        Report { priority: 0, .. } => Err(EngineError::ZeroPriority),
        Report { mss_bytes: 0, .. } => Err(EngineError::ZeroMss),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_flows_that_have_left_is_given_back() {
        let mut engine = Engine::new();
        let (group, vm) = (engine.add_group(GroupConfig::default()), engine.add_vm());
        let register = |engine: &mut Engine, active| {
            let report = Report { active, ..Report::default() };
            engine.register(1, vm, group, &report).expect("registered")
        };
        let flows: Vec<_> = (0..9 * KEPT_FLOWS).map(|_| register(&mut engine, false)).collect();
        let most = engine.flows.capacity();
        let (first, last) = flows.split_at(KEPT_FLOWS);
        for flow in last.iter().rev() {
            engine.leave(2, *flow);
        }
        assert!(engine.flows.capacity() < most / 4, "{} of {most}", engine.flows.capacity());
        // The one of the largest number stays the longest.
        for flow in first {
            engine.leave(2, *flow);
        }
        assert!(engine.flows.capacity() <= KEPT_FLOWS, "{}", engine.flows.capacity());
        assert_eq!((engine.flows(), engine.next_deadline()), (0, None));
        let again = register(&mut engine, true);
        assert_eq!(engine.next_deadline(), Some(1 + IDLE_AFTER_US));
        engine.leave(3, again);
    }
}
