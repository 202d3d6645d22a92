// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the operator decides: groups, VMs, and which flow is coupled where.
//!
//! The configuration is the base; what was changed goes over it, until it is taken back.
pub mod aside;
pub mod config;
mod daemon;
mod error;
pub mod lock;
mod places;
pub mod state;
mod taps;
pub mod unused;
mod uplinks;
pub mod writer;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::IpAddr, path::Path, path::PathBuf};

use ccc_settings::{
    Changes, DEFAULT_GROUP, Fault, GroupSettings, NO_GROUP, RuleSettings, VmSettings, VmSpec,
    difference,
};
use ipnet::IpNet;
use serde_json::json;

pub use self::{
    daemon::{DaemonSettings, Sandbox},
    error::SettingsError,
};

/// Most rules there may be: each new flow is held against all of them.
pub const MAX_RULES: usize = 256;

/// What the operator decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// What cannot be changed while the daemon runs.
    pub daemon: DaemonSettings,
    /// Bottleneck groups.
    pub groups: Vec<Group>,
    /// VMs, by number: those of the configuration, and those that were added.
    pub vms: BTreeMap<usize, Vm>,
    /// The first that matches a flow says where it is coupled.
    pub rules: Vec<Rule>,
    /// Rules of the configuration.
    configured_rules: Vec<Rule>,
    /// Directories in and below which sockets can be made, if not everywhere.
    pub socket_directories: Option<Vec<PathBuf>>,
}

/// A bottleneck group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its settings in force.
    pub settings: GroupSettings,
    /// Those of the configuration.
    pub configured: GroupSettings,
}

/// A VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Where its front end connects.
    pub socket: PathBuf,
    /// Its settings in force.
    pub settings: VmSettings,
    /// Those of the configuration; `None` for one that an operator added, and may remove.
    pub configured: Option<VmSettings>,
    /// Index in [`Settings::groups`] of the group of its settings.
    group: Option<usize>,
}

/// Which flows are coupled where.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// As it was written.
    pub settings: RuleSettings,
    /// Number in [`Settings::vms`] of the VM it is for; `None` for all.
    vm: Option<usize>,
    /// Where its flows go; `None` for everywhere.
    destination: Option<IpNet>,
    /// Index of their group; `None` for flows that are not coupled.
    group: Option<usize>,
}

impl Group {
    /// One of the configuration.
    pub fn new(name: &str, settings: GroupSettings) -> Group {
        Group { name: name.to_owned(), configured: settings.clone(), settings }
    }

    /// What the configuration says, if something else is in force.
    pub fn overridden(&self) -> Option<&GroupSettings> {
        Some(&self.configured).filter(|configured| **configured != self.settings)
    }
}

impl Vm {
    /// What the configuration says, if something else is in force.
    pub fn overridden(&self) -> Option<&VmSettings> {
        self.configured.as_ref().filter(|configured| **configured != self.settings)
    }

    /// Index of the group that it is for, where no rule says otherwise.
    pub fn group(&self) -> Option<usize> {
        self.group
    }
}

impl Rule {
    fn is_for(&self, vm: usize) -> bool {
        self.vm.is_none_or(|only| only == vm)
    }

    fn matches(&self, vm: usize, to: IpAddr) -> bool {
        self.is_for(vm) && self.destination.is_none_or(|net| net.contains(&to))
    }
}

/// Where rules lead flows of a VM, in their order.
fn routes(vm: usize, rules: &[Rule]) -> impl Iterator<Item = (Option<IpNet>, Option<usize>)> {
    rules.iter().filter(move |rule| rule.is_for(vm)).map(|rule| (rule.destination, rule.group))
}

impl Settings {
    /// One VM at `socket`, alone in the default group.
    pub fn single(socket: &Path) -> Settings {
        let group = Group::new(DEFAULT_GROUP, GroupSettings::default());
        let mut settings = Settings { groups: vec![group], ..Settings::default() };
        let vm = VmSettings::default();
        settings.insert_vm(Vm {
            name: DEFAULT_GROUP.to_owned(),
            socket: socket.to_owned(),
            configured: Some(vm.clone()),
            settings: vm,
            group: Some(0),
        });
        settings
    }

    /// The group in which a flow is coupled, if it is.
    pub fn route(&self, vm: usize, to: IpAddr) -> Option<usize> {
        let of_vm = self.vms.get(&vm).filter(|vm| vm.settings.coupled)?;
        // A socket for both families writes IPv4 addresses as IPv6 ones.
        let to = to.to_canonical();
        let rule = self.rules.iter().find(|rule| rule.matches(vm, to));
        let group = rule.map_or(of_vm.group, |rule| rule.group)?;
        self.groups.get(group).filter(|group| group.settings.coupled).map(|_| group)
    }

    /// The group of all of a VM's flows; none if a rule leads some of them elsewhere.
    pub fn only_group(&self, vm: usize) -> Option<usize> {
        let group = self.vms.get(&vm)?.group?;
        let elsewhere = |rule: &Rule| rule.is_for(vm) && rule.group != Some(group);
        (!self.rules.iter().any(elsewhere)).then_some(group)
    }

    /// Indices of all groups that flows of a VM may be in, the one that it is for before the others.
    pub fn groups_of(&self, vm: usize) -> Vec<usize> {
        let own = self.vms.get(&vm).and_then(|vm| vm.group);
        let led = self.rules.iter().filter(|rule| rule.is_for(vm)).filter_map(|rule| rule.group);
        let mut groups: Vec<usize> = own.into_iter().collect();
        for group in led {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// VMs whose flows other rules led elsewhere, or may have.
    pub fn rerouted(&self, before: &[Rule]) -> Vec<usize> {
        let is_rerouted = |vm: &usize| !routes(*vm, before).eq(routes(*vm, &self.rules));
        self.vms.keys().copied().filter(is_rerouted).collect()
    }

    /// Whether there is a VM with this name.  Where that is the question, no
    /// similar name is looked for, which takes long among many VMs.
    pub fn has_vm(&self, name: &str) -> bool {
        self.number_of(name).is_some()
    }

    fn number_of(&self, name: &str) -> Option<usize> {
        self.vms.iter().find(|(_, vm)| vm.name == name).map(|(number, _)| *number)
    }

    /// Number of the VM with this name.
    pub fn vm(&self, name: &str) -> Result<usize, SettingsError> {
        self.number_of(name).ok_or_else(|| SettingsError::NoVm {
            name: name.to_owned(),
            near: nearest(name, self.vms.values().map(|vm| vm.name.as_str())),
        })
    }

    /// Index of the group with this name.
    pub fn group(&self, name: &str) -> Result<usize, SettingsError> {
        let index = self.groups.iter().position(|group| group.name == name);
        index.ok_or_else(|| SettingsError::NoGroup {
            name: name.to_owned(),
            near: nearest(name, self.groups.iter().map(|group| group.name.as_str())),
        })
    }

    /// Changes a VM; its number, and its settings before.
    pub fn change_vm(
        &mut self,
        name: &str,
        changes: &Changes<VmSettings>,
    ) -> Result<(usize, VmSettings), SettingsError> {
        // What a state file of before has doubled does not stand in the way of the rest.
        self.vm(name)?;
        self.check_tap(name, &changes.only("tap").apply(&VmSettings::default()))?;
        self.check_place(name, &changes.only("tenant").apply(&VmSettings::default()))?;
        self.put_changes(name, changes)
    }

    /// The same, whatever taps others have.
    fn put_changes(
        &mut self,
        name: &str,
        changes: &Changes<VmSettings>,
    ) -> Result<(usize, VmSettings), SettingsError> {
        let number = self.vm(name)?;
        let before = self.vms[&number].settings.clone();
        let settings = changes.apply(&before);
        let group = self.find_group(settings.group.as_deref())?;
        settings.check_change(&before)?;
        if let Some(vm) = self.vms.get_mut(&number) {
            (vm.settings, vm.group) = (settings, group);
        }
        Ok((number, before))
    }

    /// Changes a group; its index, and its settings before.
    pub fn change_group(
        &mut self,
        name: &str,
        changes: &Changes<GroupSettings>,
    ) -> Result<(usize, GroupSettings), SettingsError> {
        let index = self.group(name)?;
        let after = changes.apply(&self.groups[index].settings);
        after.check()?;
        self.check_uplink(name, &after)?;
        Ok((index, std::mem::replace(&mut self.groups[index].settings, after)))
    }

    /// The changes that make a VM as the configuration says.
    pub fn configured_vm(&self, name: &str) -> Result<Changes<VmSettings>, SettingsError> {
        let configured = self.vms[&self.vm(name)?].configured.as_ref();
        configured.map(Changes::all).ok_or_else(|| SettingsError::NotConfigured(name.to_owned()))
    }

    /// The changes that make a group as the configuration says.
    pub fn configured_group(&self, name: &str) -> Result<Changes<GroupSettings>, SettingsError> {
        Ok(Changes::all(&self.groups[self.group(name)?].configured))
    }

    /// Puts other rules in the place of all.
    pub fn set_rules(&mut self, rules: &[RuleSettings]) -> Result<(), SettingsError> {
        self.rules = self.numbered(rules).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The same, but for those that name what is not there; what that is.
    fn put_rules(&mut self, rules: &[RuleSettings]) -> Vec<Fault> {
        let (there, gone): (Vec<_>, Vec<_>) = self.numbered(rules).partition(Result::is_ok);
        self.rules = there.into_iter().flatten().collect();
        gone.into_iter().filter_map(Result::err).collect()
    }

    /// Rules with what they name.
    fn numbered(&self, rules: &[RuleSettings]) -> impl Iterator<Item = Result<Rule, Fault>> {
        rules.iter().enumerate().map(|(number, settings)| {
            let (rule, faults) = self.rule(settings);
            let fault = faults.into_iter().next();
            fault.map_or(Ok(rule), |fault| Err(fault.below(&format!("rules[{number}]"))))
        })
    }

    /// Puts the rules of the configuration in the place of all.
    pub fn reset_rules(&mut self) {
        self.rules.clone_from(&self.configured_rules);
    }

    /// A VM to add as described, if it can be.
    pub fn new_vm(&self, name: &str, spec: &VmSpec) -> Result<Vm, SettingsError> {
        if let Some(other) = self.vms.values().find(|vm| *vm.socket == *spec.socket) {
            let expected = format!("a path that VM `{}` does not have", other.name);
            return Err(Fault::new("socket", expected, &json!(spec.socket)).into());
        }
        self.check_directory(&spec.socket)?;
        self.check_tap(name, &spec.settings)?;
        self.check_place(name, &spec.settings)?;
        Ok(Vm {
            name: name.to_owned(),
            socket: spec.socket.to_path_buf(),
            settings: spec.settings.clone(),
            configured: None,
            group: self.find_group(spec.settings.group.as_deref())?,
        })
    }

    /// Makes sure that the daemon has not taken a socket's directory from itself.
    fn check_directory(&self, socket: &Path) -> Result<(), Fault> {
        let Some(directories) = &self.socket_directories else { return Ok(()) };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let directory = real(socket.parent().unwrap_or(Path::new("/")));
        if directories.iter().any(|one| directory.starts_with(real(one))) {
            return Ok(());
        }
        // What is below another goes without saying.
        let is_told = |one: &&PathBuf| {
            !directories.iter().any(|other| other != *one && one.starts_with(other))
        };
        let told = directories.iter().filter(is_told);
        let names: Vec<_> = told.map(|one| one.display().to_string()).collect();
        let expected = format!("a path below {}", names.join(" or "));
        let remedy = "the daemon's sandbox lets it make sockets nowhere else while it runs: take \
                      such a path, or give the VM its socket in the configuration, and under systemd \
                      name the directory in ReadWritePaths= (systemctl edit ccc-vhost)";
        Err(Fault::new("socket", expected, &json!(socket)).remedy(remedy))
    }

    /// Gives a VM the next number.
    pub fn insert_vm(&mut self, vm: Vm) -> usize {
        let number = self.vms.last_key_value().map_or(0, |(last, _)| last + 1);
        self.vms.insert(number, vm);
        number
    }

    /// Makes sure that a VM is served on this socket.
    pub fn check_socket(&self, name: &str, socket: &Path) -> Result<(), SettingsError> {
        let there = &self.vms[&self.vm(name)?].socket;
        if there == socket {
            return Ok(());
        }
        Err(SettingsError::OtherSocket { name: name.to_owned(), socket: there.clone() })
    }

    /// Makes sure that a description makes no VM of a tenant, and no tenant of a VM: whoever
    /// describes one under a name does not know that the other has it.
    pub fn check_kind(&self, name: &str, described: &VmSettings) -> Result<(), SettingsError> {
        match (&self.vms[&self.vm(name)?].settings.tenant, &described.tenant) {
            (Some(place), None) => {
                Err(SettingsError::IsTenant { name: name.to_owned(), place: place.clone() })
            }
            (None, Some(_)) => Err(SettingsError::IsVm(name.to_owned())),
            _ => Ok(()),
        }
    }

    /// Number of a VM that may be removed.
    pub fn removable(&self, name: &str) -> Result<usize, SettingsError> {
        let number = self.vm(name)?;
        match self.vms[&number].configured {
            None => Ok(number),
            Some(_) => Err(SettingsError::Configured(name.to_owned())),
        }
    }

    /// Takes a VM out, with the rules that are for it only.
    pub fn remove_vm(&mut self, number: usize) {
        self.vms.remove(&number);
        self.rules.retain(|rule| rule.vm != Some(number));
    }

    /// Where earlier changes go over the configuration, as an operator reads it.
    pub fn overridden(&self) -> Vec<String> {
        let over = "an earlier change goes over the configuration";
        let vms = self.vms.values().filter_map(|Vm { name, settings, configured, .. }| {
            let changes = difference(configured.as_ref()?, settings);
            let line = format!("VM {name}: {over}: {changes}; `cccctl reset {name}` goes back");
            (!changes.is_empty()).then_some(line)
        });
        let groups = self.groups.iter().filter_map(|Group { name, settings, configured }| {
            let changes = difference(configured, settings);
            let back = format!("`cccctl reset --group {name}` goes back");
            (!changes.is_empty()).then(|| format!("group {name}: {over}: {changes}; {back}"))
        });
        let (now, configured) = (self.rules.len(), self.configured_rules.len());
        let rules = (self.rules != self.configured_rules).then(|| {
            format!(
                "rules: {now} of an earlier change instead of the configuration's {configured}; \
                 DELETE /v1/rules goes back"
            )
        });
        vms.chain(groups).chain(rules).collect()
    }

    /// A rule with what it names; what cannot be found is as if it were left out.
    fn rule(&self, settings: &RuleSettings) -> (Rule, Vec<Fault>) {
        let mut faults = Vec::new();
        let vm = settings.vm.as_deref().map(|name| self.find_vm(name)).transpose();
        let destination = settings.destination.as_deref().map(prefix).transpose();
        let group = self.find_group(settings.group.as_deref());
        let rule = Rule {
            settings: settings.clone(),
            vm: vm.unwrap_or_else(|fault| keep(&mut faults, fault)),
            destination: destination.unwrap_or_else(|fault| keep(&mut faults, fault)),
            group: group.unwrap_or_else(|fault| keep(&mut faults, fault)),
        };
        (rule, faults)
    }

    /// The VM that a field `vm` names.
    fn find_vm(&self, name: &str) -> Result<usize, Fault> {
        self.vm(name).map_err(|error| error.in_field("vm", "the name of a VM"))
    }

    /// The group that a field `group` names, or none.
    fn find_group(&self, name: Option<&str>) -> Result<Option<usize>, Fault> {
        let find = |name| {
            let expected = format!("the name of a group, or {NO_GROUP}");
            self.group(name).map_err(|error| error.in_field("group", &expected))
        };
        name.map(find).transpose()
    }
}

fn keep<T>(faults: &mut Vec<Fault>, fault: Fault) -> Option<T> {
    faults.push(fault);
    None
}

/// A prefix of addresses, without bits behind it.
fn prefix(written: &str) -> Result<IpNet, Fault> {
    let example = "a prefix of addresses such as 10.0.0.0/8 or 2001:db8::/32";
    let wrong = || Fault::new("destination", example, &json!(written));
    let net: IpNet = written.parse().map_err(|_| wrong())?;
    let prefix = net.trunc();
    if net == prefix { Ok(net) } else { Err(wrong().remedy(format!("write {prefix}"))) }
}

#[cfg(test)]
thread_local! {
    /// How often similar names were looked for: among many VMs that takes long.
    static SEARCHES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The name most like `name`, if one is like it.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    #[cfg(test)]
    SEARCHES.set(SEARCHES.get() + 1);
    names
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known.to_owned())
}
