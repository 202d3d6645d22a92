// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The engine, and what the operator decides about it.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use ccc_core::{
    Claims, Conduct, Engine, EngineError, Evidence, FlowId, Grant, GroupId, GroupStatus, Micros,
    Report, ShareOf, VmId,
};
use ccc_settings::{Changes, GroupSettings, RuleSettings, VmSettings};

use crate::{
    by_number::ByNumber,
    device::engine::{FlowEngine, Grants, GroupInfo},
    settings::{self, Settings, SettingsError},
    tap::{
        host::Hold,
        thread::{Done, Look},
        uplink::{self, Uplink},
        uplinks::Uplinks,
        watches::{Judged, Reading, Watches},
    },
};

mod floors;
mod trial;

use floors::Floors;
pub use floors::{News as FloorNews, Shortfall};
pub use trial::{ID_MAX, Trial, TrialError, TrialSpec};

/// The engine with the groups and VMs of the settings.
#[derive(Debug)]
pub struct Coupling {
    engine: Engine,
    settings: Settings,
    groups: Vec<Group>,
    /// By the same numbers as in the settings.
    vms: ByNumber<Vm>,
    /// What taps have shown.
    watches: Watches,
    /// Where VMs have queues of their own.
    uplinks: Uplinks,
    /// VMs whose taps are held: what they lose there is nothing to the others.
    held: BTreeSet<usize>,
    /// When floors were last looked at.
    floors_at: Micros,
}

#[derive(Debug)]
struct Group {
    id: GroupId,
    /// Version of its grants that the VMs have.
    published: Option<u64>,
    /// VMs that have had flows in it, by number, as the engine knows them.
    vms: BTreeMap<usize, VmId>,
    /// Verdicts of the engine that were taken, and VMs that are apart by them, or alone.
    verdicts: u64,
    apart: BTreeSet<usize>,
    alone: BTreeSet<usize>,
    /// What a client tries with it.
    trial: Option<Trial>,
    /// Whether its floors can be met.
    floors: Floors,
}

/// What a verdict comes from.
#[derive(Debug)]
pub enum Finding {
    /// That a VM has come to be apart from a group, or no longer is.
    Apart(Evidence),
    /// That a VM loses where nobody else of the group does, or no longer.
    Alone(Conduct),
}

/// That something was found of a VM, or is no longer so.
#[derive(Debug)]
pub struct Verdict {
    /// Name of the VM.
    pub vm: String,
    /// Name of the group.
    pub group: String,
    /// What it comes from.
    pub finding: Finding,
}

impl Verdict {
    /// Something is wrong with the VM, or was.
    pub fn is_against(&self) -> bool {
        match &self.finding {
            Finding::Apart(evidence) => evidence.apart,
            Finding::Alone(conduct) => conduct.alone,
        }
    }

    fn write_alone(&self, f: &mut fmt::Formatter<'_>, conduct: &Conduct) -> fmt::Result {
        let Verdict { vm, group, .. } = self;
        if !conduct.alone {
            return write!(f, "VM {vm}: loses with the others in group {group} now");
        }
        write!(
            f,
            "VM {vm}: tells of losses in group {group} which no other VM there has: {} that \
             reduced all windows, {} that reduced only its own, at {:.1} % of the bytes; from now \
             on they reduce only its own; if its losses are real, it has another bottleneck: \
             give it a group of its own (cccctl set {vm} --group GROUP)",
            conduct.shared_events,
            conduct.lone_events,
            f64::from(conduct.delivered_permille) / 10.0,
        )
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { vm, group, finding } = self;
        let evidence = match finding {
            Finding::Apart(evidence) => evidence,
            Finding::Alone(conduct) => return self.write_alone(f, conduct),
        };
        if !evidence.apart {
            return write!(f, "VM {vm}: sees the queue of the others in group {group} now");
        }
        let ms = |us: u32| f64::from(us) / 1000.0;
        write!(
            f,
            "VM {vm}: does not seem to be behind the bottleneck of group {group}: of {} \
             comparisons with others there, it saw no queue where they did at {}, and lost at a \
             queue that none of them saw at {}; in 8 s its round-trip time moved by {:.1} ms, \
             theirs by {:.1} ms; if its way is another one, give it a group of its own \
             (cccctl set {vm} --group GROUP) or couple it no more (--coupled off)",
            evidence.compared,
            evidence.unseen,
            evidence.alone,
            ms(evidence.swing_us),
            ms(evidence.others_swing_us),
        )
    }
}

#[derive(Debug)]
struct Vm {
    id: VmId,
    /// Indices of the groups in which the engine knows its weight.
    groups: Vec<usize>,
}

impl Vm {
    fn new(engine: &mut Engine) -> Vm {
        Vm { id: engine.add_vm(), groups: Vec::new() }
    }
}

impl FlowEngine for Coupling {
    fn route(&self, vm: usize, destination: IpAddr) -> Option<usize> {
        self.settings.route(vm, destination).filter(|group| self.couples(vm, *group))
    }

    fn couples(&self, vm: usize, group: usize) -> bool {
        !self.held.contains(&vm) && self.is_coupled(group)
    }

    fn group_info(&self, group: usize) -> GroupInfo<'_> {
        let group = &self.settings.groups[group];
        GroupInfo { name: &group.name, by_rate: group.settings.share == ShareOf::Rate }
    }

    fn max_flows_per_vm(&self) -> usize {
        self.settings.daemon.max_flows_per_vm
    }

    fn full(&self) -> Option<usize> {
        let most = self.settings.daemon.max_flows;
        (self.engine.flows() >= most).then_some(most)
    }

    fn register(
        &mut self,
        now: Micros,
        vm: usize,
        group: usize,
        report: &Report,
        adopted: bool,
    ) -> Result<FlowId, EngineError> {
        let settings = &self.settings.vms[&vm].settings;
        let id = self.groups[group].id;
        let entry = self.vms.get_mut(&vm).ok_or(EngineError::UnknownVm(vm as u32))?;
        if !entry.groups.contains(&group) {
            self.engine.set_weight(entry.id, id, settings.engine_weight())?;
            self.engine.set_range(entry.id, id, settings.engine_range())?;
            entry.groups.push(group);
            self.groups[group].vms.insert(vm, entry.id);
        }
        if adopted {
            self.engine.adopt(now, entry.id, id, report)
        } else {
            self.engine.register(now, entry.id, id, report)
        }
    }

    fn update(&mut self, now: Micros, flow: FlowId, report: &Report) -> Result<(), EngineError> {
        self.engine.update(now, flow, report)
    }

    fn last_report(&self, flow: FlowId) -> Option<Report> {
        self.engine.last_report(flow)
    }

    fn leave(&mut self, now: Micros, flow: FlowId) {
        self.engine.leave(now, flow);
    }

    fn detach(&mut self, now: Micros, flows: &[FlowId]) {
        self.engine.detach(now, flows);
    }

    fn grant(&self, vm: usize, group: usize) -> Grant {
        self.engine.grant(self.vms[&vm].id, self.groups[group].id)
    }
}

/// A VM whose grants may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Changed {
    /// Its number.
    pub number: usize,
    id: VmId,
}

/// What a VM is granted.
struct Granted<'a> {
    coupling: &'a Coupling,
    id: VmId,
}

impl Grants for Granted<'_> {
    fn report_interval_us(&self) -> u32 {
        // No longer than a quarter of a second.
        self.coupling.engine.report_interval_us(self.id) as u32
    }

    fn in_group(&self, group: usize) -> Grant {
        self.coupling.engine.grant(self.id, self.coupling.groups[group].id)
    }
}

impl Coupling {
    /// An engine for these settings.
    pub fn new(settings: Settings) -> Coupling {
        let mut engine = Engine::new();
        engine.set_max_reports_per_s(settings.daemon.max_reports_per_s);
        let mut add = |group: &settings::Group| {
            let (configured, config) = (group.configured.config(), group.settings.config());
            let id = engine.add_group(configured);
            // A change of an earlier run is a change: it begins an epoch.
            if config != configured {
                // Fails only for a group that is not there.
                let _ = engine.set_group(0, id, config);
            }
            Group {
                id,
                published: None,
                vms: BTreeMap::new(),
                verdicts: 0,
                apart: BTreeSet::new(),
                alone: BTreeSet::new(),
                trial: None,
                floors: Floors::default(),
            }
        };
        let groups = settings.groups.iter().map(&mut add).collect();
        let vms = settings.vms.keys().map(|number| (*number, Vm::new(&mut engine))).collect();
        Coupling {
            engine,
            settings,
            groups,
            vms,
            watches: Watches::default(),
            uplinks: Uplinks::default(),
            held: BTreeSet::new(),
            floors_at: 0,
        }
    }

    /// What the operator has decided.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Flows that are coupled.
    #[cfg(feature = "fuzzing")]
    pub fn flows(&self) -> usize {
        self.engine.flows()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Micros) {
        self.engine.tick(now);
    }

    /// When something is due again.
    pub fn next_deadline(&self) -> Option<Micros> {
        self.engine.next_deadline()
    }

    /// The aggregate of a group.
    pub fn status(&self, group: usize) -> Option<GroupStatus> {
        self.engine.status(self.groups[group].id)
    }

    /// VMs whose grants may have changed since this was last asked, each once: those of
    /// groups that somebody has reported to.
    pub fn take_changed(&mut self) -> Vec<Changed> {
        let mut changed = Vec::new();
        let mut groups = 0;
        for group in &mut self.groups {
            let version = Some(self.engine.group_version(group.id));
            if std::mem::replace(&mut group.published, version) != version {
                changed.extend(group.vms.iter().map(|(&number, &id)| Changed { number, id }));
                groups += 1;
            }
        }
        if groups > 1 {
            changed.sort_unstable();
            changed.dedup();
        }
        changed
    }

    /// What such a VM is granted.
    pub fn grants(&self, to: Changed) -> impl Grants {
        Granted { coupling: self, id: to.id }
    }

    /// What speaks for and against a VM's being behind a group's bottleneck.
    pub fn evidence(&self, now: Micros, vm: usize, group: usize) -> Evidence {
        self.engine.evidence(now, self.vms[&vm].id, self.groups[group].id)
    }

    /// What a VM was found to do in a group.
    pub fn conduct(&self, vm: usize, group: usize) -> Conduct {
        self.engine.conduct(self.vms[&vm].id, self.groups[group].id)
    }

    /// Verdicts since this was last asked.  A VM comes to one only after seconds, so it
    /// cannot cause many.
    pub fn take_verdicts(&mut self, now: Micros) -> Vec<Verdict> {
        let mut changed = Vec::new();
        for (group, named) in self.groups.iter_mut().zip(&self.settings.groups) {
            let verdicts = self.engine.verdicts(group.id);
            if std::mem::replace(&mut group.verdicts, verdicts) == verdicts {
                continue;
            }
            for (number, vm) in &self.vms {
                let evidence = self.engine.evidence(now, vm.id, group.id);
                let conduct = self.engine.conduct(vm.id, group.id);
                let apart = changes(&mut group.apart, *number, evidence.apart);
                let alone = changes(&mut group.alone, *number, conduct.alone);
                let findings = apart.then_some(Finding::Apart(evidence)).into_iter();
                for finding in findings.chain(alone.then_some(Finding::Alone(conduct))) {
                    let vm = self.settings.vms[number].name.clone();
                    changed.push(Verdict { vm, group: named.name.clone(), finding });
                }
            }
        }
        changed
    }

    /// What taps have shown, and what is held.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// The same, to be changed.
    pub fn watches_mut(&mut self) -> &mut Watches {
        &mut self.watches
    }

    /// Where VMs have queues of their own.
    pub fn uplinks(&self) -> &Uplinks {
        &self.uplinks
    }

    /// The same, to be changed.
    pub fn uplinks_mut(&mut self) -> &mut Uplinks {
        &mut self.uplinks
    }

    /// What is to be ordered of uplinks, if anything.
    pub fn order_uplinks(&mut self, now: Micros) -> Option<Vec<Uplink>> {
        self.uplinks.order(now, uplink::uplinks(&self.settings))
    }

    /// Taps that are to be looked at.
    pub fn taps(&mut self, now: Micros) -> Vec<Look> {
        self.rest_watches(now);
        self.watches.taps(&self.settings)
    }

    /// A VM names a tap, or one is held.
    pub fn has_taps(&self) -> bool {
        self.settings.vms.values().any(|vm| vm.settings.tap.is_some()) || self.watches.holds_any()
    }

    fn rest_watches(&mut self, now: Micros) {
        let groups = 0..self.groups.len();
        let uncoupled: Vec<usize> = groups.filter(|group| !self.is_coupled(*group)).collect();
        self.watches.rest(now, &self.settings, uncoupled.into_iter());
    }

    /// Takes what was read at taps; whose verdict has changed, and what is to be held.
    pub fn take_taps(&mut self, done: &Done) -> (Vec<Judged>, Vec<Hold>) {
        self.rest_watches(done.at);
        let (engine, vms, groups) = (&self.engine, &self.vms, &self.groups);
        let claims = |vm: usize, group: usize| {
            vms.get(&vm).map_or_else(Claims::default, |vm| engine.claims(vm.id, groups[group].id))
        };
        let reading = Reading { now: done.at, received: &done.received, claims: &claims };
        let judged = self.watches.take(&self.settings, &reading);
        (judged, self.holds(done.at))
    }

    /// VMs that have come to be held, or are so no more, since this was last asked: their
    /// flows are to be mapped anew.
    pub fn take_held(&mut self) -> Vec<usize> {
        let held = |vm: &settings::Vm| {
            vm.settings.tap.as_ref().is_some_and(|tap| self.watches.is_held(tap))
        };
        let vms = self.settings.vms.iter().filter(|(_, vm)| held(vm));
        let held: BTreeSet<usize> = vms.map(|(number, _)| *number).collect();
        let changed = held.symmetric_difference(&self.held).copied().collect();
        self.held = held;
        changed
    }

    /// What has to change at taps.
    pub fn holds(&mut self, now: Micros) -> Vec<Hold> {
        self.watches.holds(now, &self.settings)
    }

    /// Changes a VM; its settings before.
    pub fn change_vm(
        &mut self,
        name: &str,
        changes: &Changes<VmSettings>,
    ) -> Result<VmSettings, SettingsError> {
        let (number, before) = self.settings.change_vm(name, changes)?;
        let settings = &self.settings.vms[&number].settings;
        let Vm { id, groups } = &self.vms[&number];
        for group in groups {
            let group = self.groups[*group].id;
            self.engine.set_weight(*id, group, settings.engine_weight())?;
            self.engine.set_range(*id, group, settings.engine_range())?;
        }
        Ok(before)
    }

    /// Changes a group; its settings before.
    pub fn change_group(
        &mut self,
        now: Micros,
        name: &str,
        changes: &Changes<GroupSettings>,
    ) -> Result<GroupSettings, SettingsError> {
        let (index, before) = self.settings.change_group(name, changes)?;
        let config = self.settings.groups[index].settings.config();
        if config != before.config() {
            self.engine.set_group(now, self.groups[index].id, config)?;
        }
        Ok(before)
    }

    /// Puts other rules in the place of all; those of the configuration for `None`.
    pub fn set_rules(&mut self, rules: Option<&[RuleSettings]>) -> Result<(), SettingsError> {
        match rules {
            Some(rules) => self.settings.set_rules(rules),
            None => {
                self.settings.reset_rules();
                Ok(())
            }
        }
    }

    /// Adds a VM; its number.
    pub fn add_vm(&mut self, vm: settings::Vm) -> usize {
        let number = self.settings.insert_vm(vm);
        self.vms.insert(number, Vm::new(&mut self.engine));
        number
    }

    /// Removes a VM.
    pub fn remove_vm(&mut self, now: Micros, number: usize) {
        self.settings.remove_vm(number);
        for group in &mut self.groups {
            group.vms.remove(&number);
            group.apart.remove(&number);
            group.alone.remove(&number);
        }
        if let Some(vm) = self.vms.shift_remove(&number) {
            self.engine.remove_vm(now, vm.id);
        }
    }
}

/// Makes a number one of those, or not; whether it was otherwise.
fn changes(those: &mut BTreeSet<usize>, number: usize, is_one: bool) -> bool {
    if is_one { those.insert(number) } else { those.remove(&number) }
}
