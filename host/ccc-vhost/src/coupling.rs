// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The engine, and what the operator decides about it.
use std::{collections::BTreeMap, path::Path};

use ccc_core::{
    Engine, EngineError, FlowId, Grant, GroupId, GroupStatus, Micros, Report, VmId, Weight,
};

use crate::{
    admin::api::{ApiError, GroupPatch, RuleSpec, VmPatch, VmSpec, error::nearest},
    event_loop::budget::Budget,
    settings::told,
    settings::values::Given,
    settings::{self, MAX_RULES, Rule, Settings},
};

/// The engine with the groups and VMs of the settings.
#[derive(Debug)]
pub struct Coupling {
    /// The engine.
    pub engine: Engine,
    settings: Settings,
    /// As they were before any change.
    configured: Settings,
    groups: Vec<Group>,
    /// By the same numbers as in the settings.
    vms: BTreeMap<usize, Vm>,
    /// What a VM has in one turn.
    pub budget: Budget,
}

#[derive(Debug)]
struct Group {
    id: GroupId,
    /// Version of its grants that the VMs have.
    published: Option<u64>,
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

/// The engine, and the time at which it is used.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The engine with its groups.
    pub coupling: &'a mut Coupling,
    /// The time.
    pub now: Micros,
}

impl Coupling {
    /// An engine for these settings.
    pub fn new(settings: Settings) -> Coupling {
        let mut engine = Engine::new();
        let groups = settings
            .groups
            .iter()
            .map(|group| Group { id: engine.add_group(group.config), published: None })
            .collect();
        let vms = settings.vms.keys().map(|number| (*number, Vm::new(&mut engine))).collect();
        let budget = Budget::TURN;
        Coupling { engine, configured: settings.clone(), settings, groups, vms, budget }
    }

    /// What the operator has decided.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Couples a flow of a VM in a group.  One that was `adopted` has run
    /// before this engine began.
    pub fn join(
        &mut self,
        now: Micros,
        vm: usize,
        group: usize,
        report: &Report,
        adopted: bool,
    ) -> Result<FlowId, EngineError> {
        let weight = self.settings.vms[&vm].weight.value;
        let id = self.groups[group].id;
        let entry = self.vms.get_mut(&vm).ok_or(EngineError::UnknownVm(vm as u32))?;
        if !entry.groups.contains(&group) {
            self.engine.set_weight(entry.id, id, weight)?;
            entry.groups.push(group);
        }
        if adopted {
            self.engine.adopt(now, entry.id, id, report)
        } else {
            self.engine.register(now, entry.id, id, report)
        }
    }

    /// What a VM is granted in a group.
    pub fn grant(&self, vm: usize, group: usize) -> Grant {
        self.engine.grant(self.vms[&vm].id, self.groups[group].id)
    }

    /// The aggregate of a group.
    pub fn status(&self, group: usize) -> Option<GroupStatus> {
        self.engine.status(self.groups[group].id)
    }

    /// Whether any grant may have changed since this was last asked.
    pub fn take_changed(&mut self) -> bool {
        let mut changed = false;
        for group in &mut self.groups {
            let version = Some(self.engine.group_version(group.id));
            changed |= group.published != version;
            group.published = version;
        }
        changed
    }

    /// Changes a VM; whether flows may have to move.
    pub fn patch_vm(&mut self, name: &str, patch: &VmPatch) -> Result<bool, ApiError> {
        let vm = self.vm(name)?;
        let group = match &patch.group {
            Some(Some(group)) => Some(Some(self.named_group("group", group)?)),
            Some(None) => Some(None),
            None => None,
        };
        if let Some(weight) = patch.weight {
            self.set_weight(vm, weight.value)?;
        }
        let Some(settings) = self.settings.vms.get_mut(&vm) else { return Ok(false) };
        settings.weight = patch.weight.unwrap_or(settings.weight);
        let before = (settings.group, settings.coupled);
        settings.group = group.unwrap_or(settings.group);
        settings.coupled = patch.coupled.unwrap_or(settings.coupled);
        Ok(before != (settings.group, settings.coupled))
    }

    /// Makes sure that a VM is served on this socket.
    pub fn is_at(&self, name: &str, socket: &Path) -> Result<(), ApiError> {
        let there = &self.settings.vms[&self.vm(name)?];
        if there.socket == socket {
            return Ok(());
        }
        let (name, socket) = (name.to_owned(), there.socket.clone());
        Err(ApiError::OtherSocket { name, socket })
    }

    /// What the configuration says of a VM, if something else is in force.
    pub fn overridden_vm(&self, number: usize) -> Option<&settings::Vm> {
        let (now, then) = (self.settings.vms.get(&number)?, self.configured.vms.get(&number)?);
        let same =
            now.weight == then.weight && now.group == then.group && now.coupled == then.coupled;
        (!same).then_some(then)
    }

    /// The change that makes a VM as the configuration says.
    pub fn configured_vm(&self, name: &str) -> Result<VmPatch, ApiError> {
        let unknown = || ApiError::NotConfigured(name.to_owned());
        let vm = self.configured.vms.get(&self.vm(name)?).ok_or_else(unknown)?;
        let group = vm.group.map(|group| self.settings.groups[group].name.clone());
        Ok(VmPatch { weight: Some(vm.weight), group: Some(group), coupled: Some(vm.coupled) })
    }

    /// The change that makes a group as the configuration says.
    pub fn configured_group(&self, name: &str) -> Result<GroupPatch, ApiError> {
        let group = &self.configured.groups[self.group(name)?];
        Ok(GroupPatch {
            policy: Some(group.config.policy),
            share: Some(group.config.share),
            equivalent_tcps: Some(group.equivalent_tcps),
            growth_source: Some(group.config.growth_source),
            coupled: Some(group.coupled),
        })
    }

    /// Puts the configuration's rules in force; flows may have to move.
    pub fn reset_rules(&mut self) {
        self.settings.rules.clone_from(&self.configured.rules);
    }

    /// Tells where earlier changes go over the configuration.
    pub fn tell_overridden(&self) {
        let back = "goes back";
        for (number, vm) in &self.settings.vms {
            if let Some(configured) = self.overridden_vm(*number) {
                let (name, changes) = (&vm.name, told::vm(configured, vm, &self.settings));
                log::warn!(
                    "VM {name}: an earlier change goes over the configuration: {changes}; \
                     `cccctl reset {name}` {back}"
                );
            }
        }
        for (group, configured) in self.settings.groups.iter().zip(&self.configured.groups) {
            let (name, changes) = (&group.name, told::group(configured, group));
            if !changes.is_empty() {
                log::warn!(
                    "group {name}: an earlier change goes over the configuration: {changes}; \
                     DELETE /v1/groups/{name}/changes {back}"
                );
            }
        }
        if self.settings.rules != self.configured.rules {
            log::warn!(
                "rules: {} of an earlier change instead of the configuration's {}; \
                 DELETE /v1/rules {back}",
                self.settings.rules.len(),
                self.configured.rules.len()
            );
        }
    }

    /// A VM to add as described, if it can be.
    pub fn new_vm(&self, name: &str, spec: &VmSpec) -> Result<settings::Vm, ApiError> {
        if let Some(other) = self.settings.vms.values().find(|vm| vm.socket == spec.socket) {
            let (socket, name) = (spec.socket.clone(), other.name.clone());
            return Err(ApiError::SocketTaken { socket, name });
        }
        let group = spec.rest.group.as_ref().and_then(Option::as_deref);
        Ok(settings::Vm {
            name: name.to_owned(),
            socket: spec.socket.clone(),
            group: group.map(|name| self.named_group("group", name)).transpose()?,
            weight: spec.rest.weight.unwrap_or(Given::<Weight>::ONE),
            coupled: spec.rest.coupled.unwrap_or(true),
            added: true,
        })
    }

    /// Adds a VM; its number.
    pub fn add_vm(&mut self, vm: settings::Vm) -> usize {
        let number = self.settings.add_vm(vm);
        self.vms.insert(number, Vm::new(&mut self.engine));
        number
    }

    /// Number of a VM that may be removed.
    pub fn removable(&self, name: &str) -> Result<usize, ApiError> {
        let number = self.vm(name)?;
        if self.settings.vms[&number].added {
            Ok(number)
        } else {
            Err(ApiError::Configured(name.to_owned()))
        }
    }

    /// Removes a VM.
    pub fn remove_vm(&mut self, now: Micros, number: usize) {
        self.settings.remove_vm(number);
        if let Some(vm) = self.vms.remove(&number) {
            self.engine.remove_vm(now, vm.id);
        }
    }

    /// Changes a group; whether flows may have to move.
    pub fn patch_group(
        &mut self,
        now: Micros,
        name: &str,
        patch: &GroupPatch,
    ) -> Result<bool, ApiError> {
        let group = self.group(name)?;
        let settings = &mut self.settings.groups[group];
        let before = (settings.config, settings.coupled);
        let mut config = settings.config;
        config.policy = patch.policy.unwrap_or(config.policy);
        config.share = patch.share.unwrap_or(config.share);
        config.growth_source = patch.growth_source.unwrap_or(config.growth_source);
        config.equivalent_tcps =
            patch.equivalent_tcps.map_or(config.equivalent_tcps, |given| given.value);
        if config != settings.config {
            self.engine.set_group(now, self.groups[group].id, config)?;
        }
        settings.config = config;
        settings.equivalent_tcps = patch.equivalent_tcps.unwrap_or(settings.equivalent_tcps);
        settings.coupled = patch.coupled.unwrap_or(settings.coupled);
        // Not every driver can share by rate.
        Ok(before.0.share != config.share || before.1 != settings.coupled)
    }

    /// Puts other rules in the place of all; flows may have to move.
    pub fn put_rules(&mut self, rules: &[RuleSpec]) -> Result<(), ApiError> {
        if rules.len() > MAX_RULES {
            return Err(ApiError::TooManyRules { count: rules.len(), most: MAX_RULES });
        }
        let numbered = rules.iter().enumerate();
        let rules = numbered.map(|(number, rule)| self.rule(number, rule));
        self.settings.rules = rules.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Number of a VM that is asked for.
    pub fn vm(&self, name: &str) -> Result<usize, ApiError> {
        self.settings.vm(name).ok_or_else(|| ApiError::NoVm {
            name: name.to_owned(),
            near: nearest(name, self.settings.vms.values().map(|vm| vm.name.as_str())),
        })
    }

    /// Index of a group that is asked for.
    pub fn group(&self, name: &str) -> Result<usize, ApiError> {
        self.settings
            .group(name)
            .ok_or_else(|| ApiError::NoGroup { name: name.to_owned(), near: self.like_group(name) })
    }

    fn rule(&self, number: usize, rule: &RuleSpec) -> Result<Rule, ApiError> {
        let field = |key: &str| format!("rules[{number}].{key}");
        let vm = rule.vm.as_deref().map(|name| {
            self.settings.vm(name).ok_or_else(|| ApiError::UnknownVm {
                field: field("vm"),
                name: name.to_owned(),
                near: nearest(name, self.settings.vms.values().map(|vm| vm.name.as_str())),
            })
        });
        let group = rule.group.as_deref().map(|name| self.named_group(&field("group"), name));
        Ok(Rule { vm: vm.transpose()?, destination: rule.destination, group: group.transpose()? })
    }

    fn named_group(&self, field: &str, name: &str) -> Result<usize, ApiError> {
        self.settings.group(name).ok_or_else(|| ApiError::UnknownGroup {
            field: field.to_owned(),
            name: name.to_owned(),
            near: self.like_group(name),
        })
    }

    fn like_group(&self, name: &str) -> Option<String> {
        nearest(name, self.settings.groups.iter().map(|group| group.name.as_str()))
    }

    fn set_weight(&mut self, vm: usize, weight: Weight) -> Result<(), EngineError> {
        let Vm { id, groups } = &self.vms[&vm];
        for group in groups {
            self.engine.set_weight(*id, self.groups[*group].id, weight)?;
        }
        Ok(())
    }
}
