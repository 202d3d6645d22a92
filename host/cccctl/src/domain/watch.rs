// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Keeps the daemon told of what the metadata of running domains want.
//!
//! Events of libvirt say what to look at.  What the daemon does not take is told again
//! until it does, and so is everything when another daemon listens, which may know
//! less than the one before: the metadata are the truth, whoever was away meanwhile.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use ccc_settings::VmSettings;
use serde_json::{Value, json};

use super::{Domain, DomainError, Host, body, left_over};
use crate::client::ClientError;

/// Between two looks whether the daemon is there.
const TICK: Duration = Duration::from_millis(500);
/// Until what failed is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// Between two comparisons with what the daemon has, whatever was noticed.
const COMPARE: Duration = Duration::from_secs(60);

/// What was done with a domain, or why it was not.
pub type Told<'a> = dyn FnMut(&str, Result<&'static str, DomainError>) + 'a;

struct Watch<'a, 'b> {
    host: &'a Host<'a>,
    told: &'b mut Told<'b>,
    /// What running domains want, as the daemon was told.
    wanted: BTreeMap<String, Value>,
    /// What could not be told, and what was said of it.
    failed: BTreeMap<String, String>,
    /// VMs that are no business of ours.
    others: BTreeSet<String>,
    /// The process that listened last.
    listener: Option<i32>,
    tried: Instant,
    compared: Instant,
}

impl Host<'_> {
    /// Watches for ever; `told` is told of what was done, and of what went wrong.
    pub fn watch<'b>(&self, told: &'b mut Told<'b>) -> Result<(), DomainError> {
        // Events first, so that no change falls between.
        let mut events = self.virsh.events()?;
        let now = Instant::now();
        let mut watch = Watch {
            host: self,
            told,
            wanted: BTreeMap::new(),
            failed: BTreeMap::new(),
            others: BTreeSet::new(),
            listener: None,
            tried: now,
            compared: now,
        };
        for name in self.virsh.running()? {
            watch.look(&name);
        }
        watch.listener = self.daemon.listener().ok().flatten();
        watch.compare();
        loop {
            if let Some(name) = events.next(TICK)? {
                watch.others.remove(&name);
                watch.look(&name);
            }
            watch.tick();
        }
    }

    /// Tells the daemon what a running domain's metadata want, if anything, until
    /// they still want that afterwards; what it was told last.  A domain may be
    /// detached, and the daemon told, between a look and what follows from it.
    pub(super) fn follow(&self, name: &str) -> Result<Option<Value>, DomainError> {
        let mut told: Option<Option<Value>> = None;
        loop {
            let (_, domain) = self.find(name)?;
            let wanted = if domain.runs() { want(name, &domain)? } else { None };
            match (told, wanted) {
                (Some(before), now) if before == now => return Ok(now),
                // Its next start tells, or there is nothing to tell.
                (None, None) => return Ok(None),
                (Some(before), None) => {
                    self.forget(name, before.is_some_and(|vm| vm["tenant"].is_string()))?;
                    told = Some(None);
                }
                (_, Some(vm)) => {
                    self.put(name, &vm)?;
                    told = Some(Some(vm));
                }
            }
        }
    }
}

/// What a running domain wants of the daemon.
fn want(name: &str, domain: &Domain) -> Result<Option<Value>, DomainError> {
    let wanted = domain.wanted()?;
    Ok(wanted.map(|wanted| body(&domain.socket(name, &wanted), &wanted)))
}

impl Watch<'_, '_> {
    /// Looks at one domain; false if the daemon does not answer.
    fn look(&mut self, name: &str) -> bool {
        match self.host.follow(name) {
            Err(error @ DomainError::Client(ClientError::Silent { .. })) => {
                self.fail(name, error);
                return false;
            }
            Ok(Some(vm)) => {
                self.failed.remove(name);
                if self.wanted.insert(name.to_owned(), vm.clone()) != Some(vm) {
                    (self.told)(name, Ok("told the daemon"));
                }
            }
            Ok(None) => {
                self.failed.remove(name);
                if let Some(vm) = self.wanted.remove(name) {
                    self.stopped(name, vm["tenant"].is_string());
                }
            }
            Err(error) => self.fail(name, error),
        }
        true
    }

    /// The hook has removed its VM, unless the daemon was away.
    fn stopped(&mut self, name: &str, is_tenant: bool) {
        match self.host.forget(name, is_tenant) {
            // It may have been started between; then this is told of it again.
            Ok(_) => drop(self.host.follow(name)),
            Err(error) => self.fail(name, error.into()),
        }
    }

    /// Says what is wrong, once.
    fn fail(&mut self, name: &str, error: DomainError) {
        let said = error.to_string();
        if self.failed.insert(name.to_owned(), said.clone()) != Some(said) {
            (self.told)(name, Err(error));
        }
    }

    fn tick(&mut self) {
        let listener = self.host.daemon.listener();
        let (is_there, now) = (listener.is_ok(), listener.ok().flatten());
        let another = is_there && now != self.listener;
        self.listener = now;
        if another || self.compared.elapsed() > COMPARE {
            self.compare();
        }
        if another || (is_there && self.tried.elapsed() > AGAIN) {
            self.tried = Instant::now();
            for name in self.failed.keys().cloned().collect::<Vec<_>>() {
                // There are others to hear of while it hangs.
                if !self.look(&name) {
                    break;
                }
            }
        }
    }

    /// Holds what the daemon has against what is wanted.
    fn compare(&mut self) {
        self.compared = Instant::now();
        let Ok(vms) = self.host.daemon.get("/v1/vms") else {
            // As soon as it answers.
            self.listener = None;
            return;
        };
        for (name, vm) in self.wanted.clone() {
            if !has(&vms, &name, &vm) {
                self.wanted.remove(&name);
                self.look(&name);
            }
        }
        let running = self.wanted.keys().chain(&self.others).cloned().collect();
        for (name, socket) in left_over::idle(&vms, &running) {
            match self.host.tidy(&name, &socket) {
                Ok(left_over::LeftOver::Removed) => {
                    (self.told)(&name, Ok("removed, it was left over"))
                }
                Ok(left_over::LeftOver::Kept) => drop(self.others.insert(name)),
                Err(error) => self.fail(&name, error),
            }
        }
    }
}

/// The daemon has a VM as it is wanted.
fn has(vms: &Value, name: &str, wanted: &Value) -> bool {
    let mut vms = vms["vms"].as_array().into_iter().flatten();
    let there = vms.find(|vm| vm["name"] == *name);
    let mut wanted = wanted.as_object().into_iter().flatten();
    // A daemon of an earlier release does the same as by the default of what it does not know.
    let defaults = json!(VmSettings::default());
    let is_so = |there: &Value, key: &str, value: &Value| {
        there.get(key).or(defaults.get(key)) == Some(value)
    };
    there.is_some_and(|there| wanted.all(|(key, value)| is_so(there, key, value)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{
        super::{Wanted, sent},
        *,
    };

    fn wanted(attributes: &[(&str, &str)]) -> Value {
        let owned = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let read = Wanted::read(&owned.collect::<Vec<_>>()).expect("right");
        body(Path::new("/s"), &read)
    }

    #[test]
    fn what_the_daemon_has_is_held_against_what_is_wanted() {
        let mut vm = wanted(&[]);
        (vm["name"], vm["weight"], vm["group"]) = (json!("a"), json!(3.0), json!("g"));
        let vms = json!({"vms": [{"name": "b"}, vm]});
        let all = wanted(&[("weight", "3"), ("group", "g")]);
        assert!(has(&vms, "a", &all));
        assert!(!has(&vms, "b", &all) && !has(&vms, "c", &all));
        for (key, other) in [("socket", json!("/t")), ("weight", json!(2)), ("group", json!(null))]
        {
            let mut wanted = all.clone();
            wanted[key] = other;
            assert!(!has(&vms, "a", &wanted), "{key}");
        }
        assert!(!has(&vms, "a", &wanted(&[("group", "g")])), "weight 1");
    }

    #[test]
    fn an_older_daemon_is_told_of_nothing_that_nobody_set() {
        assert_eq!(sent(&wanted(&[])), json!({"socket": "/s"}));
        let set = wanted(&[("weight", "3"), ("device", "off")]);
        assert_eq!(sent(&set), json!({"socket": "/s", "weight": 3.0, "device": false}));
        let mut older = wanted(&[]);
        older["name"] = json!("a");
        older.as_object_mut().expect("an object").retain(|key, _| key != "device");
        let vms = json!({"vms": [older]});
        assert!(has(&vms, "a", &wanted(&[])));
        assert!(!has(&vms, "a", &wanted(&[("device", "off")])));
    }
}
