// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators changed while the daemon ran, kept for its next start.
//!
//! The configuration is the base and this goes over it, so the file holds the
//! changes only, in the form in which they were asked for.
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use ccc_settings::{
    Changes, Fault, GroupSettings, NO_GROUP, RuleSettings, SocketPath, Table, VmSettings, VmSpec,
};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{
    MAX_RULES, Settings, SettingsError, Vm, prefix,
    unused::{Of, Unused},
};
use crate::logging::with_cause;

const VERSION: u64 = 1;
/// Settings of groups that were called otherwise when version 1 began.  Files with these
/// names are on hosts, and are read until there is a version 2.
const RENAMED: [(&str, &str); 2] = [("aggression", "equivalent_tcps"), ("coco", "growth_source")];
/// A VM's setting that 0.1.0 does not know, which leaves out all of a VM for it: it is kept
/// beside the VMs, where only it is lost.
const CAP: &str = "cap_mbit";
const FLOOR: &str = "floor_mbit";
const TENANT: &str = "tenant";
/// The one that names something else, which may be gone.
const GROUP: &str = "group";
/// What has to fit together, a cap that is no less than the floor: what is left out for that,
/// the first that mends it.
const BOUNDS: [&[&str]; 3] = [&[CAP], &[FLOOR], &[FLOOR, CAP]];

/// Largest state file, bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Why the changes of earlier runs cannot be had.
#[derive(Debug, Error)]
pub enum StateError {
    /// There is no place for the file.
    #[error("state file {path}: its directory does not exist; create {dir}")]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// The directory.
        dir: PathBuf,
    },
    /// A directory is in its place.
    #[error("state file {0} is a directory; name a file in it, or remove it")]
    Directory(PathBuf),
    /// The file cannot be read.
    #[error("cannot read state file {0}")]
    Read(PathBuf, #[source] io::Error),
    /// The file holds something else.
    #[error("state file {path}: {fault}; correct it, or remove it to start from the configuration")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: Fault,
    },
}

impl StateError {
    /// The same of a file that was put aside, and how to have what is in it.
    pub fn of_aside(&self, path: &Path, aside: &Path) -> String {
        let why = match self {
            StateError::Content { path, fault } => {
                format!("state file {}: {fault}", path.display())
            }
            _ => with_cause(self),
        };
        format!(
            "{why}; what cannot be read of it is left out: to have it again, stop ccc-vhost, mend the \
             file as it was found, move it to {}, and start ccc-vhost, which loses the changes made since; \
             the file as it was found is {}",
            path.display(),
            aside.display()
        )
    }
}

/// All changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Sockets of VMs that were added, by name.
    pub added: BTreeMap<String, SocketPath>,
    /// Changes of VMs, by name.
    pub vms: BTreeMap<String, Changes<VmSettings>>,
    /// Changes of groups, by name.
    pub groups: BTreeMap<String, Changes<GroupSettings>>,
    /// Rules, if they were changed.
    pub rules: Option<Vec<RuleSettings>>,
}

/// A change that an operator makes, and that is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Have a VM, as described.
    PutVm(String, VmSpec),
    /// Change a VM.
    UpdateVm(String, Changes<VmSettings>),
    /// Have a VM no longer.
    DeleteVm(String),
    /// Have a VM as the configuration says again.
    ResetVm(String),
    /// Change a group.
    UpdateGroup(String, Changes<GroupSettings>),
    /// Have a group as the configuration says again.
    ResetGroup(String),
    /// Put these rules in the place of all; `None` for those of the configuration.
    SetRules(Option<Vec<RuleSettings>>),
}

impl State {
    /// Makes sure that the file can be where it is to be.
    pub fn check_directory(path: &Path) -> Result<(), StateError> {
        let dir = directory(path);
        if dir.is_dir() {
            return Ok(());
        }
        let (path, dir) = (path.to_owned(), dir.to_owned());
        Err(StateError::NoDirectory { path, dir })
    }

    /// The changes of earlier runs, all of them; none if there is no file yet.
    #[cfg(test)]
    pub fn load(path: &Path) -> Result<State, StateError> {
        let (state, trouble) = State::load_readable(path);
        trouble.map_or(Ok(state), Err)
    }

    /// As much of them as can be read, and why not all, if so.
    pub fn load_readable(path: &Path) -> (State, Option<StateError>) {
        let value = match content(path) {
            Ok(Some(value)) => value,
            Ok(None) => return (State::default(), None),
            Err(trouble) => return (State::default(), Some(trouble)),
        };
        let (state, faults) = State::readable(value);
        let fault = faults.into_iter().next();
        (state, fault.map(|fault| StateError::Content { path: path.to_owned(), fault }))
    }

    /// Reads the file's content, all of it.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn from_json(value: Value) -> Result<State, Fault> {
        let (state, faults) = State::readable(value);
        faults.into_iter().next().map_or(Ok(state), Err)
    }

    /// What of the file's content can be read, and what is wrong with the rest.
    fn readable(value: Value) -> (State, Vec<Fault>) {
        let mut state = State::default();
        let Value::Object(mut fields) = value else {
            return (state, vec![Fault::new("content", "an object", &value)]);
        };
        let version = fields.remove("version").unwrap_or_default();
        if version != VERSION {
            return (state, vec![Fault::new("version", VERSION.to_string(), &version)]);
        }
        let mut faults = Vec::new();
        let (mut caps, mut left_out) = (BTreeMap::new(), Vec::new());
        for (name, value) in fields {
            match name.as_str() {
                "added" => state.added = each(&name, value, read_added, &mut faults),
                "vms" => {
                    for (vm, changes) in each(&name, value, read_vm, &mut faults) {
                        match changes {
                            Some(changes) => drop(state.vms.insert(vm, changes)),
                            None => left_out.push(vm),
                        }
                    }
                }
                "caps" => caps = each(&name, value, read_cap, &mut faults),
                "groups" => state.groups = each(&name, value, read_group, &mut faults),
                "rules" => match read_rules(value) {
                    Ok(rules) => state.rules = Some(rules),
                    Err(fault) => faults.push(fault),
                },
                _ => {
                    faults.push(Fault::unknown(&name, "version, added, vms, caps, groups or rules"))
                }
            }
        }
        for (name, cap) in caps {
            state.vms.entry(name).or_default().then(cap);
        }
        for name in left_out {
            state.leave_out(&name);
        }
        (state, faults)
    }

    /// The file's content.
    pub fn json(&self) -> Value {
        let added =
            self.added.iter().map(|(name, socket)| (name.clone(), json!({"socket": socket})));
        let added: Map<String, Value> = added.collect();
        let (mut vms, mut caps) = (Map::new(), Map::new());
        for (name, changes) in &self.vms {
            let told = self.told(name, changes);
            vms.insert(name.clone(), json!(told.part(|field| field != CAP)));
            if let Some(cap) = told.value(CAP) {
                // No cap is a change, too, where the configuration has one.
                let cap = if cap.is_null() { json!(NO_GROUP) } else { cap.clone() };
                caps.insert(name.clone(), cap);
            }
        }
        let mut value =
            json!({"version": VERSION, "added": added, "vms": vms, "groups": self.groups});
        if !caps.is_empty() {
            value["caps"] = Value::Object(caps);
        }
        if let Some(rules) = &self.rules {
            value["rules"] = json!(rules);
        }
        value
    }

    /// What is written of a VM's changes: of one that was added no more than what is not as if
    /// it were left out, so that an older daemon meets no setting that it does not know.
    fn told(&self, name: &str, changes: &Changes<VmSettings>) -> Changes<VmSettings> {
        if self.added.contains_key(name) {
            changes.besides(&in_no_group())
        } else {
            changes.clone()
        }
    }

    /// Takes in a change; whether there is anything new to keep.
    pub fn note(&mut self, change: &Change) -> bool {
        match change {
            Change::PutVm(name, spec) => self.put_vm(name, spec),
            Change::UpdateVm(name, changes) => add(&mut self.vms, name, changes),
            Change::DeleteVm(name) => self.delete_vm(name),
            Change::ResetVm(name) => self.vms.remove(name).is_some(),
            Change::UpdateGroup(name, changes) => add(&mut self.groups, name, changes),
            Change::ResetGroup(name) => self.groups.remove(name).is_some(),
            Change::SetRules(rules) => {
                let new = self.rules != *rules;
                self.rules.clone_from(rules);
                new
            }
        }
    }

    /// A VM that was added is as described now.
    fn put_vm(&mut self, name: &str, spec: &VmSpec) -> bool {
        let socket = self.added.insert(name.to_owned(), spec.socket.clone());
        let before = self.vms.get(name).map(|changes| self.told(name, changes));
        add(&mut self.vms, name, &Changes::all(&spec.settings));
        let after = self.vms.get(name).map(|changes| self.told(name, changes));
        before != after || socket.as_ref() != Some(&spec.socket)
    }

    /// A VM is no more, nor are the rules that were for it only.
    fn delete_vm(&mut self, name: &str) -> bool {
        let mut new = self.added.remove(name).is_some();
        new |= self.vms.remove(name).is_some();
        if let Some(rules) = &mut self.rules {
            let before = rules.len();
            rules.retain(|rule| rule.vm.as_deref() != Some(name));
            new |= rules.len() < before;
        }
        new
    }

    /// A VM that was added is left out; one of the configuration is as that says.
    fn leave_out(&mut self, name: &str) {
        if self.added.contains_key(name) {
            self.delete_vm(name);
        } else {
            self.vms.remove(name);
        }
    }

    /// Forgets VMs that were added in earlier runs and are in the configuration now.  How they
    /// were described stands among what was changed later, and cannot be told from it.
    fn forget_added(&mut self, settings: &Settings) {
        for Vm { name, .. } in settings.vms.values() {
            if self.added.remove(name).is_none() {
                continue;
            }
            let kept = self.vms.remove(name).unwrap_or_default();
            let kept: Vec<_> =
                kept.texts().map(|(field, text)| format!("{field} {text}")).collect();
            log::warn!(VM = name.as_str();
                "state of VM {name}: the configuration has it now, and is in force; what was kept of \
                 it as one that was added is forgotten: {}",
                if kept.is_empty() { "nothing but its socket".to_owned() } else { kept.join(", ") }
            );
        }
    }

    /// Adds the VMs that were added in earlier runs.  The configuration may
    /// have one of that socket by now; then that is the one.
    fn add_vms(&self, settings: &mut Settings) -> Vec<Unused> {
        let mut unused = Vec::new();
        for (name, socket) in &self.added {
            // Its group is among the changes, and may be gone: then it has none.
            let spec = VmSpec { socket: socket.clone(), settings: in_no_group() };
            match settings.new_vm(name, &spec) {
                Ok(vm) => drop(settings.insert_vm(vm)),
                Err(error) => unused.push(Unused::all(Of::Vm(name.clone()), error)),
            }
        }
        unused
    }

    /// Puts the changes over the configuration.  What they name may be gone
    /// from there; that alone is told and left out, but kept for when it comes back.
    pub fn apply(&mut self, settings: &mut Settings) -> Vec<Unused> {
        self.forget_added(settings);
        let mut unused = self.add_vms(settings);
        unused.extend(settings.put_groups(&self.groups));
        for (name, changes) in &self.vms {
            if !self.added.contains_key(name) || settings.has_vm(name) {
                unused.extend(put_changes(settings, name, changes));
            }
        }
        let rules = self.rules.as_ref().map(|rules| settings.put_rules(rules));
        let rules = rules.unwrap_or_default().into_iter();
        unused.extend(rules.map(|fault| Unused::all(Of::Rules, fault)));
        for one in &unused {
            log::warn!("{}", one.told());
        }
        // All changes are in force: two VMs may have exchanged their taps.
        for tap in settings.doubled_taps() {
            let vms = settings.names_at(tap);
            log::warn!(
                "tap {tap}: VMs {vms} name it, so nobody is judged or held by it; a tap is one \
                 VM's: set the others' to their own (virsh domiflist), or to `none`"
            );
        }
        unused
    }
}

/// Puts a VM's changes over it, but for fields that cannot be; those.
fn put_changes(settings: &mut Settings, name: &str, changes: &Changes<VmSettings>) -> Vec<Unused> {
    let (mut rest, mut unused) = (changes.clone(), Vec::new());
    while let Err(error) = settings.put_changes(name, &rest) {
        let names_group = matches!(&error, SettingsError::Field(fault) if fault.field == GROUP);
        let parts: &[&[&str]] = if names_group { &[&[GROUP]] } else { &BOUNDS };
        let without = |fields: &&'static [&'static str]| {
            let part = rest.part(|field| !fields.contains(&field));
            // Bounds are looked at when the group is one.
            let mends = names_group || settings.put_changes(name, &part).is_ok();
            (part != rest && mends).then_some((*fields, part))
        };
        let Some((fields, part)) = parts.iter().find_map(without) else {
            unused.push(Unused::all(Of::Vm(name.to_owned()), error));
            break;
        };
        unused.push(Unused::fields(Of::Vm(name.to_owned()), fields, &error));
        rest = part;
    }
    unused
}

/// What an added VM is before its changes.
fn in_no_group() -> VmSettings {
    VmSettings { group: None, ..VmSettings::default() }
}

/// Adds changes to those of a name; whether they are new.
fn add<T>(to: &mut BTreeMap<String, Changes<T>>, name: &str, changes: &Changes<T>) -> bool {
    let before = to.get(name).cloned().unwrap_or_default();
    let mut after = before.clone();
    after.then(changes.clone());
    let new = before != after;
    if new {
        to.insert(name.to_owned(), after);
    }
    new
}

/// Reads a list of rules: all of it is right, but for what it names.
pub fn read_rules(value: Value) -> Result<Vec<RuleSettings>, Fault> {
    let Value::Array(rules) = value else {
        return Err(Fault::new("rules", "a list", &value));
    };
    if rules.len() > MAX_RULES {
        let count = json!(rules.len());
        return Err(Fault::new("rules", format!("at most {MAX_RULES} rules"), &count));
    }
    let numbered = rules.into_iter().enumerate().map(|(number, rule)| {
        read_rule(rule).map_err(|fault| fault.below(&format!("rules[{number}]")))
    });
    numbered.collect()
}

fn read_rule(value: Value) -> Result<RuleSettings, Fault> {
    let rule = RuleSettings::read(value)?;
    rule.destination.as_deref().map(prefix).transpose()?;
    Ok(rule)
}

/// The one field that an object may have.
pub fn read_only_field(value: Value, name: &str) -> Result<Option<Value>, Fault> {
    let Value::Object(mut fields) = value else {
        return Err(Fault::new("body", "an object", &value));
    };
    let field = fields.remove(name);
    fields.keys().next().map_or(Ok(field), |other| Err(Fault::unknown(other, name)))
}

fn read_added(value: Value) -> (Option<SocketPath>, Vec<Fault>) {
    let field = read_only_field(value, "socket");
    match field.and_then(|field| SocketPath::read("socket", field)) {
        Ok(socket) => (Some(socket), Vec::new()),
        Err(fault) => (None, vec![fault]),
    }
}

/// All that can be read: a daemon that is older than the file knows less.
fn read_changes<T: Table>(value: Value) -> (Option<Changes<T>>, Vec<Fault>) {
    let Value::Object(fields) = value else {
        return (None, vec![Fault::new("body", "an object", &value)]);
    };
    let (changes, faults) = Changes::collect(fields);
    let any = faults.is_empty() || !changes.is_empty();
    (any.then_some(changes), faults)
}

/// A VM's changes; none of a tenant whose place is not understood, of which a VM would be made.
fn read_vm(value: Value) -> (Option<Option<Changes<VmSettings>>>, Vec<Fault>) {
    let (changes, mut faults) = read_changes(value);
    let Some(fault) = faults.iter_mut().find(|fault| fault.field == TENANT) else {
        return (changes.map(Some), faults);
    };
    let remedy = "the tenant is left out; add it again (cccctl tenant add) as what it is";
    *fault = fault.clone().remedy(remedy);
    (Some(None), faults)
}

fn read_cap(value: Value) -> (Option<Changes<VmSettings>>, Vec<Fault>) {
    let mut cap = Changes::default();
    match cap.set(CAP, value) {
        Ok(()) => (Some(cap), Vec::new()),
        Err(fault) => (None, vec![fault]),
    }
}

fn read_group(value: Value) -> (Option<Changes<GroupSettings>>, Vec<Fault>) {
    let Value::Object(fields) = value else { return read_changes(value) };
    let renamed = fields.into_iter().map(|(name, value)| {
        let now = RENAMED.iter().find(|(before, _)| *before == name);
        (now.map_or(name, |(_, now)| (*now).to_owned()), value)
    });
    read_changes(Value::Object(renamed.collect()))
}

/// Reads each entry; what cannot be read is left out, and told of.
fn each<T>(
    place: &str,
    value: Value,
    read: fn(Value) -> (Option<T>, Vec<Fault>),
    faults: &mut Vec<Fault>,
) -> BTreeMap<String, T> {
    let Value::Object(map) = value else {
        faults.push(Fault::new(place, "an object", &value));
        return BTreeMap::new();
    };
    let entries = map.into_iter().filter_map(|(name, value)| {
        let (entry, wrong) = read(value);
        faults.extend(wrong.into_iter().map(|fault| fault.below(&format!("{place}.{name}"))));
        Some((name, entry?))
    });
    entries.collect()
}

/// What a file holds; nothing if there is none.
fn content(path: &Path) -> Result<Option<Value>, StateError> {
    State::check_directory(path)?;
    let failed = |error| StateError::Read(path.to_owned(), error);
    let bytes = match fs::metadata(path) {
        Ok(there) if there.is_dir() => return Err(StateError::Directory(path.to_owned())),
        Ok(there) => there.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let fault = |fault| StateError::Content { path: path.to_owned(), fault };
    if bytes > MAX_BYTES {
        let expected = format!("at most {MAX_BYTES} bytes");
        return Err(fault(Fault::new("size", expected, &json!(bytes))));
    }
    let value = serde_json::from_slice(&fs::read(path).map_err(failed)?).map_err(|error| {
        fault(Fault { got: error.to_string(), ..Fault::missing("content", "JSON") })
    })?;
    Ok(Some(value))
}

/// Where a file is.
pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
