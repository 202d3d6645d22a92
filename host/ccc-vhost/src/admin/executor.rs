// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Carries out what operators ask for.
use std::{cmp::Reverse, collections::BinaryHeap};

use ccc_settings::{
    Changes, Enforce, GroupSettings, LogSettings, NO_GROUP, RuleSettings, VmSettings, VmSpec, Want,
    bytes_of_mbit, difference, dues,
};

use super::{
    ApiError, Command, Reply,
    authorization::Peer,
    reply::{
        CountersView, GroupView, GroupsView, HostFlowView, LargestView, MemberView, MetricsView,
        PollingView, QueuesView, RulesView, StatusView, StrangerView, TapView, TrialView, VmView,
        VmsView, mode_name,
    },
};
use ccc_core::Micros;
use ccc_proto::wire;
use prometheus_client::metrics::histogram::Histogram;

use crate::{
    coupling::{Coupling, TrialSpec},
    device::Device,
    device::counters,
    device::engine::{Context, FlowEngine, RemapReason},
    device::inspect::{Count, FlowPage, Part, SILENT},
    event_loop::busy_poll::Counts,
    event_loop::clock,
    logging::{self, audit},
    settings::state::Change,
    settings::{Rule, Settings, Vm},
    tap::{host::Unseen, kernel, uplink::floors_at_most, watch::Watched},
    vhost_user::connection::Connection,
};

/// A VM as far as operators are concerned.
pub struct Guest<'a> {
    /// Its front end, if there is one.
    pub connection: Option<&'a Connection>,
    /// Its counts while there is none.
    pub counters: &'a counters::Counters,
    /// Why none can connect, if so.
    pub unserved: Option<String>,
}

/// Where VMs are looked up, by their numbers.
pub trait Guests {
    /// The VM of this number.
    fn guest(&self, vm: usize) -> Option<Guest<'_>>;
}

/// What a command works on.
pub struct Executor<'a> {
    /// The engine, and what the operator decides.
    pub coupling: &'a mut Coupling,
    /// The time.
    pub now: Micros,
    /// All VMs.
    pub guests: &'a dyn Guests,
    /// Who asks.
    pub by: &'a Peer,
    /// Why changes are not kept, if so.
    pub not_kept: Option<String>,
    /// How long updates have taken.
    pub latency: &'a Histogram,
    /// What came of looking for messages.
    pub polls: Counts,
    /// That they are looked for, and what that takes now.
    pub polling: Option<PollingView>,
}

/// What came of a command: the answer, and what is to be kept of it.
pub type Outcome = Result<(Reply, Option<Change>), ApiError>;

impl Executor<'_> {
    /// Carries out a command.
    pub fn execute(&mut self, command: &Command) -> Outcome {
        let settings = self.settings();
        let reply = match command {
            Command::Status => Reply::Status(self.status()),
            Command::Vms => Reply::Vms(self.vms()),
            Command::Vm(name) => Reply::Vm(Box::new(self.vm(settings.vm(name)?))),
            Command::Flows { vm, from, limit } => {
                Reply::Flows(self.flows(settings.vm(vm)?, *from, *limit))
            }
            Command::Largest { limit } => Reply::Largest(self.largest(*limit)),
            Command::Groups => Reply::Groups(self.groups()),
            Command::Group(name) => Reply::Group(self.group(settings.group(name)?)),
            Command::Rules => Reply::Rules(self.rules()),
            Command::Log => Reply::Log(LogSettings { level: logging::level() }),
            Command::SetLog(changes) => Reply::Log(self.set_log(changes)),
            Command::Metrics => Reply::Metrics(self.metrics()),
            Command::Trial(name, wanted) => Reply::Group(self.begin_trial(name, wanted)?),
            Command::EndTrial(name, id) => {
                let group = settings.group(name)?;
                self.coupling.check_trial(group, Some(*id))?;
                self.end_trial(group);
                Reply::Group(self.group(group))
            }
            Command::Change(change) => {
                let reply = self.change(change)?;
                return Ok((reply, Some(self.to_keep(change))));
            }
        };
        Ok((reply, None))
    }

    /// Carries out a change.
    fn change(&mut self, change: &Change) -> Result<Reply, ApiError> {
        Ok(match change {
            Change::PutVm(name, spec) => Reply::Vm(Box::new(self.put_vm(name, spec)?)),
            Change::UpdateVm(name, changes) => Reply::Vm(Box::new(self.change_vm(name, changes)?)),
            Change::ResetVm(name) => {
                let changes = self.settings().configured_vm(name)?;
                Reply::Vm(Box::new(self.change_vm(name, &changes)?))
            }
            Change::DeleteVm(name) => Reply::Vm(Box::new(self.delete(name)?)),
            Change::UpdateGroup(name, changes) => Reply::Group(self.change_group(name, changes)?),
            Change::ResetGroup(name) => {
                let changes = self.settings().configured_group(name)?;
                Reply::Group(self.change_group(name, &changes)?)
            }
            Change::SetRules(rules) => {
                let before = self.settings().rules.clone();
                self.coupling.set_rules(rules.as_deref())?;
                Reply::Rules(self.new_rules(&before))
            }
        })
    }

    /// What is kept of a change: of a VM of the configuration no more than its settings.
    fn to_keep(&self, change: &Change) -> Change {
        match change {
            Change::PutVm(name, spec) if self.settings().removable(name).is_err() => {
                Change::UpdateVm(name.clone(), Changes::all(&spec.settings))
            }
            other => other.clone(),
        }
    }

    fn settings(&self) -> &Settings {
        self.coupling.settings()
    }

    /// A VM that is there, or is new, as it is described.
    fn put_vm(&mut self, name: &str, spec: &VmSpec) -> Result<VmView, ApiError> {
        self.settings().check_kind(name, &spec.settings)?;
        self.settings().check_socket(name, &spec.socket)?;
        self.change_vm(name, &Changes::all(&spec.settings))
    }

    fn change_vm(&mut self, name: &str, changes: &Changes<VmSettings>) -> Result<VmView, ApiError> {
        let before = self.coupling.change_vm(name, changes)?;
        let number = self.settings().vm(name)?;
        let after = &self.settings().vms[&number].settings;
        let told = difference(&before, after);
        if !told.is_empty() {
            audit!(VM = name, PEER:% = self.by; "VM {name}: {told} (by {})", self.by);
        }
        if (&before.group, before.coupled) != (&after.group, after.coupled) {
            self.remap(RemapReason::Routes, [number]);
        }
        Ok(self.vm(number))
    }

    fn change_group(
        &mut self,
        name: &str,
        changes: &Changes<GroupSettings>,
    ) -> Result<GroupView, ApiError> {
        let before = self.coupling.change_group(self.now, name, changes)?;
        let index = self.settings().group(name)?;
        let after = &self.settings().groups[index].settings;
        let told = difference(&before, after);
        if !told.is_empty() {
            audit!(GROUP = name, PEER:% = self.by; "group {name}: {told} (by {})", self.by);
        }
        if after.enforce == Enforce::On && before.enforce != Enforce::On {
            kernel::powerless(name).iter().for_each(|why| log::warn!(GROUP = name; "{why}"));
        }
        // Not every driver can share by rate.
        if (before.share, before.coupled) != (after.share, after.coupled) {
            self.remap(RemapReason::Coupling, self.numbers());
        }
        // Who says whether it is coupled means it.
        if !changes.only("coupled").is_empty() {
            self.end_trial(index);
        }
        Ok(self.group(index))
    }

    /// Begins a trial, or goes on with it.
    fn begin_trial(&mut self, name: &str, wanted: &TrialSpec) -> Result<GroupView, ApiError> {
        let group = self.settings().group(name)?;
        let (before, coupled) =
            (self.coupling.trial(group).cloned(), self.coupling.is_coupled(group));
        self.coupling.set_trial(group, wanted, clock::monotonic(), self.by)?;
        if before.is_none_or(|before| before.coupled != wanted.coupled) {
            let how = if wanted.coupled { "coupled" } else { "left alone" };
            let (seconds, by) = (wanted.seconds, self.by);
            audit!(GROUP = name, PEER:% = by;
                "group {name}: {how} for a trial, for {seconds} s unless it goes on (by {by})"
            );
        }
        if coupled != wanted.coupled {
            self.remap(RemapReason::Coupling, self.numbers());
        }
        Ok(self.group(group))
    }

    fn end_trial(&mut self, group: usize) {
        if self.coupling.end_trial(group).is_none() {
            return;
        }
        let name = &self.settings().groups[group].name;
        audit!(GROUP = name.as_str(), PEER:% = self.by;
            "group {name}: its trial has ended (by {})", self.by);
        self.remap(RemapReason::Coupling, self.numbers());
    }

    /// Has other lines in the log, until the daemon ends.
    fn set_log(&self, changes: &Changes<LogSettings>) -> LogSettings {
        let before = LogSettings { level: logging::level() };
        let after = changes.apply(&before);
        let told = format!("log: {} (by {})", difference(&before, &after), self.by);
        if before != after {
            audit!(PEER:% = self.by; "{told}");
            logging::set_level(after.level);
        }
        after
    }

    /// Flows move by rules that have just been put in force.
    fn new_rules(&mut self, before: &[Rule]) -> RulesView {
        self.remap(RemapReason::Routes, self.settings().rerouted(before));
        let rules = self.rules();
        let told: Vec<String> = rules.rules.iter().map(said).collect();
        let told = if told.is_empty() { "none".to_owned() } else { told.join("; ") };
        audit!(PEER:% = self.by; "rules: {told} (by {})", self.by);
        rules
    }

    /// Removes a VM whose front end is gone; how it was.
    fn delete(&mut self, name: &str) -> Result<VmView, ApiError> {
        let number = self.settings().removable(name)?;
        let last = self.vm(number);
        self.coupling.remove_vm(self.now, number);
        audit!(VM = name, PEER:% = self.by; "VM {name}: removed (by {})", self.by);
        Ok(last)
    }

    /// Moves the flows of these VMs to where they are coupled now.
    fn remap(&mut self, reason: RemapReason, vms: impl IntoIterator<Item = usize>) {
        for number in vms {
            if let Some(connection) = self.guests.guest(number).and_then(|vm| vm.connection) {
                let mut context = Context { engine: &mut *self.coupling, now: self.now };
                connection.backend().device_mut().remap(reason, &mut context);
            }
        }
    }

    /// Numbers of all VMs.
    fn numbers(&self) -> Vec<usize> {
        self.settings().vms.keys().copied().collect()
    }

    fn connection(&self, vm: usize) -> Option<&Connection> {
        self.guests.guest(vm).and_then(|guest| guest.connection)
    }

    fn status(&self) -> StatusView {
        let connections = self.numbers().into_iter().filter_map(|vm| self.connection(vm));
        StatusView {
            version: ccc_settings::VERSION,
            groups: self.settings().groups.len(),
            vms: self.settings().vms.len(),
            flows: connections.map(|connection| connection.backend().device().flows()).sum(),
            not_kept: self.not_kept.clone(),
            may_hold: kernel::may_hold(),
            polling: self.polling,
            no_metrics: None,
        }
    }

    fn vms(&self) -> VmsView {
        let mut vms: Vec<VmView> = self.numbers().into_iter().map(|vm| self.vm(vm)).collect();
        vms.sort_by(|a, b| a.name.cmp(&b.name));
        VmsView { vms }
    }

    fn metrics(&self) -> MetricsView {
        let vm = |number| (self.vm(number), self.refused(number));
        MetricsView {
            status: self.status(),
            vms: self.numbers().into_iter().map(vm).collect(),
            groups: self.groups().groups,
            latency: self.latency.clone(),
            polls: self.polls,
        }
    }

    /// How often what of a VM was refused.
    fn refused(&self, number: usize) -> [(&'static str, u64); counters::KINDS.len()] {
        let backend = self.connection(number).map(Connection::backend);
        match (&backend, self.guests.guest(number)) {
            (Some(backend), _) => backend.device().counters().refused_by_kind(),
            (None, Some(guest)) => guest.counters.refused_by_kind(),
            (None, None) => counters::KINDS.map(|kind| (kind, 0)),
        }
    }

    fn vm(&self, index: usize) -> VmView {
        let (vm, guest) = (&self.settings().vms[&index], self.guests.guest(index));
        let backend = self.connection(index).map(Connection::backend);
        let device = backend.as_ref().map(|backend| backend.device());
        let flows = device.map_or_else(Count::default, |device| device.count_flows(self.coupling));
        let now = self.now;
        let heard = device.and_then(Device::heard);
        let counters = device.map(Device::counters).or(guest.as_ref().map(|guest| guest.counters));
        let tap = vm.settings.tap.as_deref();
        let state = device.map_or("absent", |device| device.life(&flows, now));
        VmView {
            name: vm.name.clone(),
            socket: vm.socket.display().to_string(),
            settings: vm.settings.clone(),
            configured: vm.overridden().cloned(),
            added: vm.configured.is_none(),
            connected: device.is_some(),
            unserved: guest.as_ref().and_then(|guest| guest.unserved.clone()),
            state,
            heard_ms: heard.map(|heard| now.saturating_sub(heard) / 1000),
            migrating: backend.as_ref().is_some_and(|backend| backend.is_migrating()),
            flows: flows.all,
            coupled_flows: if state == SILENT { 0 } else { flows.coupled },
            apart: self.groups_where(|group| self.is_apart(index, group)),
            alone: self.groups_where(|group| self.coupling.conduct(index, group).alone),
            judged: self.watched(index).and_then(Watched::verdict).map(|v| v.reason.word()),
            held: tap.and_then(|tap| self.coupling.watches().held(tap)),
            left_held: tap.is_some_and(|tap| self.coupling.watches().is_left(tap)),
            unseen: self.coupling.watches().unseen(index).map(Unseen::to_string),
            stranger: counters.and_then(stranger),
            counters: counters.map(count).unwrap_or_default(),
        }
    }

    fn flows(&self, vm: usize, from: u32, limit: usize) -> FlowPage {
        let listed = self
            .connection(vm)
            .map(|connection| connection.backend().device().list_flows(from, limit, self.coupling));
        listed.unwrap_or_default()
    }

    /// The flows that are granted most, of all VMs.  Of the others no slot is read.
    fn largest(&self, limit: usize) -> LargestView {
        let (mut largest, mut active_flows) = (BinaryHeap::new(), 0);
        for number in self.numbers() {
            let Some(connection) = self.connection(number) else { continue };
            for (slot, bytes) in connection.backend().device().granted(self.coupling) {
                active_flows += 1;
                largest.push(Reverse((bytes, Reverse((number, slot)))));
                if largest.len() > limit {
                    largest.pop();
                }
            }
        }
        let places = largest.into_sorted_vec().into_iter();
        let view = |Reverse((_, Reverse((number, slot))))| {
            let device = self.connection(number)?.backend();
            let flow = device.device().view(slot, self.coupling)?;
            Some(HostFlowView { vm: self.settings().vms[&number].name.clone(), flow })
        };
        LargestView { flows: places.filter_map(view).collect(), active_flows }
    }

    fn groups(&self) -> GroupsView {
        let all = 0..self.settings().groups.len();
        let mut groups: Vec<GroupView> = all.map(|group| self.group(group)).collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        GroupsView { groups }
    }

    fn group(&self, index: usize) -> GroupView {
        let group = &self.settings().groups[index];
        let status = self.coupling.status(index);
        let mut vms: Vec<MemberView> =
            self.numbers().into_iter().filter_map(|vm| self.member(vm, index)).collect();
        vms.sort_by(|a, b| a.name.cmp(&b.name));
        let path = status.map(|status| status.path).unwrap_or_default();
        set_dues(&mut vms, path.rate_bytes);
        GroupView {
            name: group.name.clone(),
            settings: group.settings.clone(),
            configured: group.overridden().cloned(),
            window: status.map_or(0, |status| status.cwnd_bytes),
            ssthresh: status.and_then(|status| status.ssthresh_bytes),
            epoch: status.map_or(0, |status| status.epoch),
            reductions: status.map_or(0, |status| status.reductions),
            active_flows: status.map_or(0, |status| status.active_flows),
            path: path.into(),
            mode: status.and_then(|status| status.mode).map(mode_name),
            vms,
            trial: self.coupling.trial(index).map(|t| TrialView::new(t, clock::monotonic())),
            shortfall: self.coupling.shortfall(self.now, index).map(Into::into),
            queues: self.queues(index),
        }
    }

    /// What has come of the queues that a group's VMs are to have at its uplink.
    fn queues(&self, index: usize) -> Option<QueuesView> {
        let settings = &self.settings().groups[index].settings;
        let uplink = settings.uplink.as_ref().filter(|_| settings.enforce == Enforce::On)?;
        let uplinks = self.coupling.uplinks();
        let (made, trouble) = (uplinks.made(uplink), uplinks.trouble(uplink).map(str::to_owned));
        let members = self.settings().vms.iter().filter(|(_, vm)| vm.group() == Some(index));
        let with_tap = members.clone().filter(|(_, vm)| vm.settings.tap.is_some());
        let floors = with_tap.map(|(_, vm)| bytes_of_mbit(vm.settings.floor_mbit)).sum();
        let has_no_tap = |vm: &Vm| {
            let absent = made.map(|made| &made.absent);
            vm.settings.tap.as_ref().zip(absent).is_some_and(|(tap, absent)| absent.contains(tap))
        };
        let is_off = |number: usize, vm: &Vm| has_no_tap(vm) && self.connection(number).is_none();
        let wanted =
            members.filter(|(number, vm)| may_have_tap(&vm.settings) && !is_off(**number, vm));
        Some(QueuesView {
            there: made.is_some(),
            trouble,
            vms: made.map_or(0, |made| made.vms),
            wanted: wanted.count(),
            floors,
            floors_at_most: floors_at_most(bytes_of_mbit(settings.uplink_rate_mbit?)),
        })
    }

    fn member(&self, number: usize, group: usize) -> Option<MemberView> {
        let vm = &self.settings().vms[&number];
        let grant = self.coupling.grant(number, group);
        let backend = self.connection(number).map(Connection::backend);
        let part = backend.map(|backend| backend.device().part_of(group, &grant, self.coupling));
        let Part { flows, bytes: part, srtt_us } = part.unwrap_or_default();
        let there = flows > 0 || vm.group() == Some(group);
        let VmSettings { weight, coupled, floor_mbit, cap_mbit, .. } = vm.settings;
        let name = vm.name.clone();
        let evidence = self.coupling.evidence(self.now, number, group).into();
        let watched = self.coupling.watches().vm(group, number);
        let tap = vm.settings.tap.as_ref().zip(watched);
        let tap = tap.map(|(tap, watched)| TapView::new(tap, watched, self.now));
        let conduct = self.coupling.conduct(number, group).into();
        there.then_some(MemberView {
            name,
            weight,
            coupled,
            floor_mbit,
            cap_mbit,
            flows,
            part,
            due_permille: None,
            srtt_us,
            evidence,
            conduct,
            tap,
        })
    }

    /// What is known of a VM by its tap.
    fn watched(&self, number: usize) -> Option<&Watched> {
        let group = self.settings().vms[&number].group()?;
        self.coupling.watches().vm(group, number)
    }

    /// Names of some groups.
    fn groups_where(&self, is_one: impl Fn(usize) -> bool) -> Vec<String> {
        let groups = self.settings().groups.iter().enumerate();
        let those = groups.filter(|(group, _)| is_one(*group));
        those.map(|(_, group)| group.name.clone()).collect()
    }

    /// Whether a VM does not seem to be behind a group's bottleneck.
    fn is_apart(&self, number: usize, group: usize) -> bool {
        self.coupling.evidence(self.now, number, group).apart
    }

    fn rules(&self) -> RulesView {
        let rules = self.settings().rules.iter().map(|rule| rule.settings.clone());
        RulesView { rules: rules.collect() }
    }
}

/// A rule as an operator reads it.
fn said(rule: &RuleSettings) -> String {
    let or = |field: &Option<String>, none: &str| field.as_deref().unwrap_or(none).to_owned();
    let (vm, to) = (or(&rule.vm, "every VM"), or(&rule.destination, "everywhere"));
    format!("{vm} {to} → {}", or(&rule.group, NO_GROUP))
}

/// A cgroup of the host has no interface, and nobody can name one.
fn may_have_tap(settings: &VmSettings) -> bool {
    !settings.tenant.as_deref().is_some_and(|place| place.starts_with("cgroup:"))
}

/// Who comes to speak for a VM and cannot.
fn stranger(counters: &counters::Counters) -> Option<StrangerView> {
    let (revision, who) = counters.strangers.latest(clock::monotonic())?;
    Some(StrangerView { who, revision, expected: wire::REVISION })
}

fn count(counters: &counters::Counters) -> CountersView {
    CountersView {
        messages: counters.messages,
        registered: counters.registered,
        updated: counters.updated,
        events: counters.events,
        delivered_bytes: counters.told.delivered_bytes,
        congestion_events: counters.told.congestion_events,
        rtt_bytes: counters.told.rtt_bytes,
        rtt_byte_ms: (counters.told.rtt_byte_us / 1000) as u64,
        left: counters.left,
        rescans: counters.rescans,
        published: counters.published,
        refused: counters.all_refused(),
        refused_ms: counters.since_fault().map(|us| us / 1000),
        torn: counters.refused(counters::Kind::Torn),
        stale: counters.refused(counters::Kind::Stale),
        no_line: counters.refused(counters::Kind::Line),
        over_limit: counters.refused(counters::Kind::Limit),
        limit: counters.since_limit().map(|(_, key)| key),
        limit_ms: counters.since_limit().map(|(us, _)| us / 1000),
    }
}

/// What each VM whose flows are granted something is due of what all of them deliver.
fn set_dues(vms: &mut [MemberView], rate_bytes: u64) {
    let mut sending: Vec<&mut MemberView> = vms.iter_mut().filter(|vm| vm.part > 0).collect();
    let want = |vm: &&mut MemberView| {
        let MemberView { weight, floor_mbit, cap_mbit, .. } = **vm;
        Want::of(&VmSettings { weight, floor_mbit, cap_mbit, ..VmSettings::default() })
    };
    let dues = dues(rate_bytes, &sending.iter().map(want).collect::<Vec<_>>());
    for (vm, due) in sending.iter_mut().zip(dues) {
        // Before anything is delivered nothing can be told.
        vm.due_permille = (rate_bytes > 0).then_some((due * 1000.0).round() as u32);
    }
}

#[cfg(test)]
mod tests {
    use ccc_core::{Conduct, Evidence};

    use super::*;

    fn member(weight: f64, floor_mbit: f64, cap_mbit: Option<f64>, part: u64) -> MemberView {
        MemberView {
            name: String::new(),
            weight,
            coupled: true,
            floor_mbit,
            cap_mbit,
            flows: 1,
            part,
            due_permille: None,
            srtt_us: None,
            evidence: Evidence::default().into(),
            conduct: Conduct::default().into(),
            tap: None,
        }
    }

    #[test]
    fn who_sends_is_due_what_floor_cap_and_weight_say() {
        let dues = |vms: &mut [MemberView], rate| {
            set_dues(vms, rate);
            vms.iter().map(|vm| vm.due_permille).collect::<Vec<_>>()
        };
        let idle = || member(9.0, 0.0, None, 0);
        let mut vms = [member(3.0, 0.0, None, 1), member(1.0, 0.0, None, 1), idle()];
        assert_eq!(dues(&mut vms, 1_250_000), [Some(750), Some(250), None]);
        let mut vms = [member(3.0, 0.0, Some(2.0), 1), member(1.0, 0.0, None, 1), idle()];
        assert_eq!(dues(&mut vms, 1_250_000), [Some(200), Some(800), None]);
        let mut vms = [member(3.0, 0.0, None, 1), member(1.0, 6.0, None, 1), idle()];
        assert_eq!(dues(&mut vms, 1_250_000), [Some(400), Some(600), None]);
        assert_eq!(dues(&mut vms, 0), [None; 3], "nothing is delivered");
    }
}
