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

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::{
    admin::api::{ApiError, GroupPatch, RuleSpec, VmPatch, VmSpec, fields::Fields},
    coupling::Coupling,
};

const VERSION: u64 = 1;
/// A file longer than this is none of ours.
const SIZE_MAX: u64 = 64 << 20;

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
    /// The file is too long.
    #[error("state file {path} has {size} bytes; it is none of this program")]
    Size {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        size: u64,
    },
    /// The file holds something else.
    #[error("state file {path}: {error}; mend it, or remove it to start from the configuration")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ApiError,
    },
    /// The file is of another version.
    #[error("state file {path} is not of version {VERSION}; remove it to start anew")]
    Version {
        /// The file.
        path: PathBuf,
    },
}

/// All changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Sockets of VMs that were added, by name.
    pub added: BTreeMap<String, PathBuf>,
    /// Changes of VMs, by name.
    pub vms: BTreeMap<String, VmPatch>,
    /// Changes of groups, by name.
    pub groups: BTreeMap<String, GroupPatch>,
    /// Rules, if they were changed.
    pub rules: Option<Vec<RuleSpec>>,
}

/// A change of what is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A VM is as described now.
    PutVm {
        /// Its name.
        name: String,
        /// How it is.
        spec: VmSpec,
        /// The configuration does not have it.
        added: bool,
    },
    /// A VM was changed.
    PatchVm(String, VmPatch),
    /// A VM is no more.
    ForgetVm(String),
    /// A VM is as the configuration says again.
    ResetVm(String),
    /// A group was changed.
    PatchGroup(String, GroupPatch),
    /// A group is as the configuration says again.
    ResetGroup(String),
    /// Other rules; `None` for those of the configuration.
    Rules(Option<Vec<RuleSpec>>),
}

impl State {
    /// Makes sure that the file can be where it is to be.
    pub fn look_for_place(path: &Path) -> Result<(), StateError> {
        let dir = directory(path);
        if dir.is_dir() {
            return Ok(());
        }
        let (path, dir) = (path.to_owned(), dir.to_owned());
        Err(StateError::NoDirectory { path, dir })
    }

    /// The changes of earlier runs; none if there is no file yet.
    pub fn load(path: &Path) -> Result<State, StateError> {
        State::look_for_place(path)?;
        let read = |error| StateError::Read(path.to_owned(), error);
        let size = match fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(StateError::Directory(path.to_owned())),
            Ok(there) => there.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
            Err(error) => return Err(read(error)),
        };
        if size > SIZE_MAX {
            return Err(StateError::Size { path: path.to_owned(), size });
        }
        let content = |error| StateError::Content { path: path.to_owned(), error };
        let value = serde_json::from_slice(&fs::read(path).map_err(read)?)
            .map_err(|error| content(ApiError::Json(error.to_string())))?;
        let state = State::from_json(value).map_err(content)?;
        state.ok_or_else(|| StateError::Version { path: path.to_owned() })
    }

    /// Reads the file's content; `None` if it is of another version.
    pub fn from_json(value: Value) -> Result<Option<State>, ApiError> {
        let mut fields = Fields::of(value, "", &["version", "added", "vms", "groups", "rules"])?;
        if fields.take("version").and_then(|version| version.as_u64()) != Some(VERSION) {
            return Ok(None);
        }
        let added = fields.take("added").unwrap_or_else(|| json!({}));
        let vms = fields.take("vms").unwrap_or_else(|| json!({}));
        let groups = fields.take("groups").unwrap_or_else(|| json!({}));
        Ok(Some(State {
            added: each("added", added, socket)?,
            vms: each("vms", vms, VmPatch::read)?,
            groups: each("groups", groups, GroupPatch::read)?,
            rules: fields.take("rules").map(RuleSpec::read_list).transpose()?,
        }))
    }

    /// The file's content.
    pub fn json(&self) -> Value {
        let added =
            self.added.iter().map(|(name, socket)| (name.clone(), json!({"socket": socket})));
        let vms = self.vms.iter().map(|(name, patch)| (name.clone(), patch.json()));
        let groups = self.groups.iter().map(|(name, patch)| (name.clone(), patch.json()));
        let mut value = json!({
            "version": VERSION,
            "added": added.collect::<Map<_, _>>(),
            "vms": vms.collect::<Map<_, _>>(),
            "groups": groups.collect::<Map<_, _>>(),
        });
        if let Some(rules) = &self.rules {
            value["rules"] = rules.iter().map(RuleSpec::json).collect();
        }
        value
    }

    /// Takes in a change; whether there is anything new to keep.
    pub fn note(&mut self, change: &Change) -> bool {
        match change {
            Change::PutVm { name, spec, added } => self.put_vm(name, spec, *added),
            Change::PatchVm(name, patch) => {
                let before = self.vms.get(name).cloned().unwrap_or_default();
                let mut after = before.clone();
                after.then(patch);
                let new = before != after;
                if new {
                    self.vms.insert(name.clone(), after);
                }
                new
            }
            Change::ForgetVm(name) => self.forget_vm(name),
            Change::ResetVm(name) => self.vms.remove(name).is_some(),
            Change::PatchGroup(name, patch) => {
                let before = self.groups.get(name).cloned().unwrap_or_default();
                let mut after = before.clone();
                after.then(patch);
                let new = before != after;
                if new {
                    self.groups.insert(name.clone(), after);
                }
                new
            }
            Change::ResetGroup(name) => self.groups.remove(name).is_some(),
            Change::Rules(rules) => {
                let new = self.rules != *rules;
                self.rules.clone_from(rules);
                new
            }
        }
    }

    /// A VM is as described now; it may be one that was `added`.
    fn put_vm(&mut self, name: &str, spec: &VmSpec, added: bool) -> bool {
        let socket = added.then(|| spec.socket.clone());
        let new_socket = socket.is_some() && self.added.get(name) != socket.as_ref();
        let new = new_socket || self.vms.get(name) != Some(&spec.rest);
        if let Some(socket) = socket {
            self.added.insert(name.to_owned(), socket);
        }
        self.vms.insert(name.to_owned(), spec.rest.clone());
        new
    }

    /// A VM is no more, nor are the rules that were for it only.
    fn forget_vm(&mut self, name: &str) -> bool {
        let mut new = self.added.remove(name).is_some();
        new |= self.vms.remove(name).is_some();
        if let Some(rules) = &mut self.rules {
            let before = rules.len();
            rules.retain(|rule| rule.vm.as_deref() != Some(name));
            new |= rules.len() < before;
        }
        new
    }

    /// Adds the VMs that were added in earlier runs.  The configuration may
    /// have one of that name or socket by now; then that is the one.
    fn populate(&self, coupling: &mut Coupling) {
        for (name, socket) in &self.added {
            if coupling.settings().vm(name).is_some() {
                log::warn!("state of VM {name}: the configuration has it now");
                continue;
            }
            let spec = VmSpec { socket: socket.clone(), rest: VmPatch::default() };
            match coupling.new_vm(name, &spec) {
                Ok(vm) => drop(coupling.add_vm(vm)),
                Err(error) => log::warn!("state of VM {name} not used: {error}"),
            }
        }
    }

    /// Puts the changes over the configuration.  What they name may be gone
    /// from there; that is told and left out, but kept for when it comes back.
    pub fn apply(&self, coupling: &mut Coupling) {
        self.populate(coupling);
        let told = |what: &str, error: ApiError| log::warn!("state of {what} not used: {error}");
        for (name, patch) in &self.groups {
            if let Err(error) = coupling.patch_group(0, name, patch) {
                told(&format!("group {name}"), error);
            }
        }
        for (name, patch) in &self.vms {
            if let Err(error) = coupling.patch_vm(name, patch) {
                told(&format!("VM {name}"), error);
            }
        }
        if let Some(Err(error)) = self.rules.as_ref().map(|rules| coupling.put_rules(rules)) {
            told("rules", error);
        }
    }
}

fn socket(value: Value, place: &str) -> Result<PathBuf, ApiError> {
    VmSpec::socket(&mut Fields::of(value, place, &["socket"])?)
}

fn each<T>(
    place: &str,
    value: Value,
    read: fn(Value, &str) -> Result<T, ApiError>,
) -> Result<BTreeMap<String, T>, ApiError> {
    let Value::Object(map) = value else {
        return Err(ApiError::Object { field: place.to_owned() });
    };
    let entries = map.into_iter();
    entries
        .map(|(name, value)| Ok((name.clone(), read(value, &format!("{place}.{name}"))?)))
        .collect()
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
        State::from_json(value).expect("right").expect("this version")
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
        let put = |weight| {
            let name = "c".to_owned();
            Change::PutVm { name, spec: spec(weight), added: true }
        };
        let patch = |value| VmPatch::read(value, "").expect("right");
        for change in [
            put(1.0),
            put(2.0),
            Change::PatchVm("c".to_owned(), patch(json!({"weight": 3}))),
            Change::PatchGroup("g".to_owned(), GroupPatch::default()),
            Change::ResetGroup("g".to_owned()),
            Change::ForgetVm("c".to_owned()),
            Change::ResetVm("a".to_owned()),
            Change::Rules(Some(Vec::new())),
            Change::Rules(None),
        ] {
            let nothing = change == Change::PatchGroup("g".to_owned(), GroupPatch::default());
            assert_eq!(state.note(&change), !nothing, "{change:?}");
            assert!(!state.note(&change), "again: {change:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.json");
        let with = |text: &str| {
            fs::write(&path, text).expect("written");
            State::load(&path).expect_err("a fault").to_string()
        };
        assert!(with("{").contains("no JSON"));
        assert!(with("{\"version\": 2}").contains("not of version 1"));
        assert!(with("{\"version\": 1, \"vms\": {\"a\": {\"x\": 1}}}").contains("`vms.a.x`"));
        assert!(with("{\"version\": 1, \"vms\": 1}").contains("`vms` is no object"));
        let nowhere = State::load(&dir.path().join("no/state.json"));
        assert!(matches!(nowhere, Err(StateError::NoDirectory { .. })));
    }
}
