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
        for (name, changes) in &self.groups {
            if let Err(error) = settings.change_group(name, changes) {
                unused.push(Unused::all(Of::Group(name.clone()), error));
            }
        }
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
        unused.push(Unused::fields(name, fields, &error));
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
mod tests {
    use super::*;

    fn state() -> State {
        let value = json!({
            "version": 1,
            "added": {"b": {"socket": "/s"}},
            "vms": {"a": {"weight": 2.5, "group": null}},
            "groups": {"g": {"share": "window"}},
            "rules": [{"vm": "a", "destination": "10.0.0.0/8", "group": "g"}],
        });
        State::from_json(value).expect("right")
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.json");
        assert_eq!(State::load(&path).expect("none yet"), State::default());
        fs::write(&path, state().json().to_string()).expect("written");
        assert_eq!(State::load(&path).expect("there"), state());
    }

    #[test]
    fn f2_a_change_is_new_once() {
        let mut state = state();
        let spec =
            |weight: f64| VmSpec::read(json!({"socket": "/c", "weight": weight})).expect("right");
        let put = |weight| Change::PutVm("c".to_owned(), spec(weight));
        let changes = |value| Changes::read(value).expect("right");
        for change in [
            put(1.0),
            put(2.0),
            Change::UpdateVm("c".to_owned(), changes(json!({"weight": 3}))),
            Change::UpdateGroup("g".to_owned(), Changes::default()),
            Change::ResetGroup("g".to_owned()),
            Change::DeleteVm("c".to_owned()),
            Change::ResetVm("a".to_owned()),
            Change::SetRules(Some(Vec::new())),
            Change::SetRules(None),
        ] {
            let nothing = change == Change::UpdateGroup("g".to_owned(), Changes::default());
            assert_eq!(state.note(&change), !nothing, "{change:?}");
            assert!(!state.note(&change), "again: {change:?}");
        }
    }

    #[test]
    fn an_added_vm_whose_group_is_gone_is_in_no_group() {
        let value = json!({
            "version": 1,
            "added": {"c": {"socket": "/s"}},
            "vms": {"c": {"group": "gone", "weight": 7}},
        });
        let mut settings = Settings::single(Path::new("/other"));
        State::from_json(value).expect("right").apply(&mut settings);
        let vm = &settings.vms[&settings.vm("c").expect("added")];
        assert_eq!((vm.group, vm.settings.weight), (None, 7.0));
    }

    /// A hook describes a domain, which comes into the configuration, too.
    #[test]
    fn of_an_added_vm_that_the_configuration_has_now_only_later_changes_hold() {
        let of_hook = json!({
            "version": 1,
            "added": {"default": {"socket": "/s"}},
            "vms": {"default": {"group": "none", "floor_mbit": 5}},
            "caps": {"default": 9},
        });
        let mut state = State::from_json(of_hook).expect("right");
        let mut settings = Settings::single(Path::new("/s"));
        let configured = settings.vms[&0].settings.clone();
        assert_eq!(state.apply(&mut settings), []);
        assert_eq!(settings.vms[&0].settings, configured);
        let weight = Changes::read(json!({"weight": 7})).expect("right");
        state.note(&Change::UpdateVm("default".to_owned(), weight));
        let written = state.json();
        assert_eq!(
            (&written["added"], &written["vms"]),
            (&json!({}), &json!({"default": {"weight": 7.0}}))
        );
        State::from_json(written).expect("right").apply(&mut settings);
        assert_eq!(settings.vms[&0].settings, VmSettings { weight: 7.0, ..configured });
    }

    #[test]
    fn floors_and_caps_outlive_the_daemon() {
        let mut state = State::default();
        let changes = Changes::read(json!({"floor_mbit": 1, "cap_mbit": 2})).expect("right");
        let mut settings = Settings::single(Path::new("/s"));
        state.note(&Change::UpdateVm(settings.vms[&0].name.clone(), changes));
        State::from_json(state.json()).expect("as it was written").apply(&mut settings);
        let VmSettings { floor_mbit, cap_mbit, .. } = settings.vms[&0].settings;
        assert_eq!((floor_mbit, cap_mbit), (1.0, Some(2.0)));
    }

    /// 0.1.0 leaves out all of a VM with a setting that it does not know, and only this key.
    #[test]
    fn caps_are_kept_where_an_older_daemon_loses_nothing_else() {
        let mut state = state();
        let spec = VmSpec::read(json!({"socket": "/c", "cap_mbit": 9.5})).expect("right");
        state.note(&Change::PutVm("c".to_owned(), spec));
        let changes = |cap| Changes::read(json!({"weight": 4, "cap_mbit": cap})).expect("right");
        state.note(&Change::UpdateVm("b".to_owned(), changes(json!(2))));
        state.note(&Change::UpdateVm("a".to_owned(), changes(Value::Null)));
        let written = state.json();
        assert_eq!(written["caps"], json!({"a": "none", "b": 2.0, "c": 9.5}));
        let vms = written["vms"].as_object().expect("VMs");
        assert_eq!(vms["a"], json!({"group": null, "weight": 4.0}));
        assert!(vms.values().all(|vm| vm.get("cap_mbit").is_none()), "{written}");
        let read = State::from_json(written.clone()).expect("as it was written");
        assert_eq!(read.json(), written);
        // Of an added VM no cap is as if it were left out.
        let no_cap = Changes::read(json!({"cap_mbit": null})).expect("right");
        state.note(&Change::UpdateVm("c".to_owned(), no_cap));
        assert_eq!(state.json()["caps"], json!({"a": "none", "b": 2.0}));
        let before = json!({"version": 1, "vms": {"a": {"weight": 2.5, "cap_mbit": 7}}});
        let read = State::from_json(before).expect("as it was written before");
        assert_eq!(read.json()["caps"], json!({"a": 7.0}));
        let wrong = json!({"version": 1, "caps": {"a": 0}});
        assert_eq!(State::from_json(wrong).expect_err("no cap").field, "caps.a.cap_mbit");
    }

    #[test]
    fn a_cap_below_a_new_floor_takes_no_other_change_along() {
        let changes = json!({"cap_mbit": 2, "weight": 3, "tap": "vnet7"});
        let mut settings = Settings::single(Path::new("/s"));
        let name = settings.vms[&0].name.clone();
        let floor = Changes::read(json!({"floor_mbit": 6})).expect("right");
        settings.change_vm(&name, &floor).expect("of a new configuration");
        let state = json!({"version": 1, "vms": {name.clone(): changes}});
        let mut told = State::from_json(state).expect("right").apply(&mut settings);
        let VmSettings { floor_mbit, cap_mbit, weight, tap, .. } = &settings.vms[&0].settings;
        assert_eq!((*floor_mbit, *cap_mbit, *weight), (6.0, None, 3.0));
        assert_eq!(tap.as_deref(), Some("vnet7"));
        let told = told.pop().expect("who has no cap is told of").to_string();
        assert!(told.starts_with("VM default: invalid cap_mbit: expected no less than"), "{told}");
        let mut settings = Settings::single(Path::new("/s"));
        let floor = Changes::read(json!({"floor_mbit": 6})).expect("right");
        settings.change_vm(&name, &floor).expect("of a new configuration");
        let changes = json!({"cap_mbit": 2, "floor_mbit": 8});
        let state = json!({"version": 1, "vms": {name.clone(): changes}});
        State::from_json(state).expect("right").apply(&mut settings);
        let floor_mbit = settings.vms[&0].settings.floor_mbit;
        assert_eq!(floor_mbit, 8.0, "it has the floor that was set last");
    }

    #[test]
    fn a_file_with_the_old_names_of_settings_is_read() {
        let groups = json!({"g": {"aggression": 2, "coco": "first", "coupled": false}});
        let state = State::from_json(json!({"version": 1, "groups": groups})).expect("right");
        let now = json!({"equivalent_tcps": 2.0, "growth_source": "first", "coupled": false});
        assert_eq!(state.json()["groups"]["g"], now, "and written as they are called now");
        let wrong = json!({"version": 1, "groups": {"g": {"aggression": 0}}});
        let fault = State::from_json(wrong).expect_err("out of range");
        assert_eq!(fault.field, "groups.g.equivalent_tcps");
    }

    /// Among 1,000 names as long as a cloud's that took 5 s.
    #[test]
    fn f2_added_vms_are_loaded_without_a_search_for_similar_names() {
        let names =
            (0..1000).map(|number| format!("instance-of-a-customer-of-a-cloud-{number:06}"));
        let added: Map<String, Value> =
            names.map(|name| (name.clone(), json!({"socket": format!("/{name}")}))).collect();
        let mut state = State::from_json(json!({"version": 1, "added": added})).expect("right");
        let mut settings = Settings::single(Path::new("/other"));
        let searches = || crate::settings::SEARCHES.get();
        let before = searches();
        state.apply(&mut settings);
        assert_eq!(searches(), before, "similar names of VMs that are new were looked for");
        assert_eq!(settings.vms.len(), 1001);
    }

    #[test]
    fn what_can_be_read_of_a_damaged_file_is_used() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.json");
        let text = r#"{"version": 1, "vms": {"a": {"weight": 2.5}, "b": {"weight": -1}}}"#;
        fs::write(&path, text).expect("written");
        let (state, trouble) = State::load_readable(&path);
        let told = trouble.expect("b is wrong").to_string();
        assert!(told.contains("invalid vms.b.weight"), "{told}");
        assert_eq!(state.json()["vms"], json!({"a": {"weight": 2.5}}));
    }

    #[test]
    fn what_a_newer_daemon_has_added_costs_nothing_else() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.json");
        let text = r#"{"version": 1, "vms": {"a": {"weight": 2.5, "colour": "red"}}}"#;
        fs::write(&path, text).expect("written");
        let (state, trouble) = State::load_readable(&path);
        assert!(trouble.expect("told").to_string().contains("invalid vms.a.colour"));
        assert_eq!(state.json()["vms"], json!({"a": {"weight": 2.5}}));
    }

    #[test]
    fn a_tenant_whose_place_is_not_understood_does_not_become_a_vm() {
        let text = json!({
            "version": 1,
            "added": {"web": {"socket": "/w"}, "db": {"socket": "/d"}},
            "vms": {
                "web": {"tenant": "pod:7", "weight": 3},
                "db": {"tenant": "netns:db", "weight": 2},
            },
            "caps": {"web": 5},
            "rules": [{"vm": "web", "group": null}, {"vm": "db", "group": null}],
        });
        let (mut state, faults) = State::readable(text);
        let told = faults.iter().map(Fault::to_string).collect::<Vec<_>>();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("invalid vms.web.tenant: expected cgroup:PATH"), "{told:?}");
        assert!(told[0].ends_with("got \"pod:7\"; the tenant is left out; add it again (cccctl tenant add) as what it is"), "{told:?}");
        let mut settings = Settings::single(Path::new("/other"));
        state.apply(&mut settings);
        assert!(!settings.has_vm("web"), "a VM with the device would come of it");
        assert!(settings.has_vm("db") && settings.rules.len() == 1, "the rest is in force");
        assert_eq!(settings.vms[&1].settings.tenant.as_deref(), Some("netns:db"));
        let named = json!({"version": 1, "added": {"default": {"socket": "/o"}},
            "vms": {"default.tenant": 1}});
        let (state, faults) = State::readable(named);
        assert_eq!((state.added.len(), faults.len()), (1, 1), "of another VM");
    }

    /// As a hook adds a domain: an older daemon would not read a VM with a setting of ours.
    #[test]
    fn of_an_added_vm_no_more_is_written_than_what_is_set() {
        let mut state = State::default();
        let spec = VmSpec::read(json!({"socket": "/c", "weight": 3})).expect("right");
        assert!(state.note(&Change::PutVm("c".to_owned(), spec)));
        let written = state.json();
        assert_eq!(written["vms"]["c"], json!({"weight": 3.0, "group": "default"}));
        let mut read = State::from_json(written).expect("right");
        let mut settings = Settings::single(Path::new("/other"));
        read.apply(&mut settings);
        let vm = &settings.vms[&settings.vm("c").expect("added")].settings;
        assert_eq!(*vm, VmSettings { weight: 3.0, ..VmSettings::default() });
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.json");
        let with = |text: &str| {
            fs::write(&path, text).expect("written");
            State::load(&path).expect_err("a fault").to_string()
        };
        assert!(with("{").contains("expected JSON"));
        assert!(with("{\"version\": 2}").contains("invalid version: expected 1, got 2"));
        assert!(
            with("{\"version\": 1, \"vms\": {\"a\": {\"x\": 1}}}").contains("invalid vms.a.x: ")
        );
        assert!(with("{\"version\": 1, \"vms\": 1}").contains("invalid vms: expected an object"));
        let wrong = |field: Value| {
            let Value::Object(mut file) = field else { panic!("an object") };
            file.insert("version".to_owned(), json!(1));
            with(&Value::Object(file).to_string())
        };
        let rules = [json!({"group": "g"}), json!({"group": "g", "destination": "10.0.0.1/8"})];
        let prefix = wrong(json!({"rules": rules}));
        assert!(prefix.contains("invalid rules[1].destination: "), "{prefix}");
        assert!(prefix.contains("got \"10.0.0.1/8\"; write 10.0.0.0/8"), "{prefix}");
        let added = wrong(json!({"added": {"a": {"socket": "/s", "weight": 2}}}));
        assert!(added.contains("invalid added.a.weight: expected socket, got an unknown key"));
        assert!(wrong(json!({"added": {"a": 1}})).contains("invalid added.a: expected an object"));
        let many = wrong(json!({"rules": vec![json!({"groop": 1}); 257]}));
        assert!(many.contains("invalid rules: expected at most 256 rules, got 257"), "{many}");
        let nowhere = State::load(&dir.path().join("no/state.json"));
        assert!(matches!(nowhere, Err(StateError::NoDirectory { .. })));
    }
}
