// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What to do again backwards when a later step fails.
use super::{DomainError, Host, hotplug, virsh::DomainId, wanted::Kind};

#[derive(Debug)]
enum Step {
    Define(String),
    RemoveVm(String, bool),
    Metadata(DomainId, Kind, Option<String>),
    Unplug(DomainId),
}

/// Steps back, the last first.
#[derive(Debug)]
pub struct Undo<'a> {
    host: &'a Host<'a>,
    steps: Vec<Step>,
}

impl<'a> Undo<'a> {
    /// Nothing to undo yet.
    pub fn new(host: &'a Host<'a>) -> Undo<'a> {
        Undo { host, steps: Vec::new() }
    }

    /// Gives a domain the description it had.
    pub fn define(&mut self, description: String) {
        self.steps.push(Step::Define(description));
    }

    /// Takes a VM from the daemon, or a tenant.
    pub fn remove_vm(&mut self, name: &str, is_tenant: bool) {
        self.steps.push(Step::RemoveVm(name.to_owned(), is_tenant));
    }

    /// Gives a running domain the metadata it had.
    pub fn metadata(&mut self, domain: &DomainId, kind: Kind, had: Option<String>) {
        self.steps.push(Step::Metadata(domain.clone(), kind, had));
    }

    /// Takes the device from a running domain.
    pub fn unplug(&mut self, domain: &DomainId) {
        self.steps.push(Step::Unplug(domain.clone()));
    }

    /// Undoes all if it was not done; the error says so if that fails too.
    pub fn unless<T>(mut self, done: Result<T, DomainError>) -> Result<T, DomainError> {
        let Err(error) = done else { return done };
        let mut failed = None;
        // One that fails keeps none of the others from being undone.
        while let Some(step) = self.steps.pop() {
            failed = failed.or(self.back(step).err());
        }
        match failed {
            None => Err(error),
            Some(undone) => {
                Err(DomainError::NotUndone { error: Box::new(error), undone: Box::new(undone) })
            }
        }
    }

    fn back(&self, step: Step) -> Result<(), DomainError> {
        match step {
            Step::Define(description) => self.host.virsh.define(&description)?,
            Step::RemoveVm(name, is_tenant) => drop(self.host.forget(&name, is_tenant)?),
            Step::Metadata(domain, kind, had) => {
                self.host.virsh.set_metadata(&domain, kind, had.as_deref())?;
            }
            Step::Unplug(domain) => hotplug::unplug(&self.host.virsh, &domain)?,
        }
        Ok(())
    }
}
