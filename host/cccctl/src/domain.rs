// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! libvirt's domains: the device in them, and what their metadata want of the
//! daemon.
//!
//! The metadata are the truth of a domain: `attach` writes them, the hook brings
//! them to the daemon when the domain starts, and `watch` when they change.
mod hotplug;
mod undo;
mod virsh;
mod xml;

use serde_json::{Value, json};
use thiserror::Error;

use self::{
    undo::Undo,
    virsh::{Virsh, VirshError},
    xml::{Domain, PLUGGED, Plugged, WANTED, Wanted, XmlError},
};
use crate::{
    args::{Attach, Detach, Hook},
    client::{Client, ClientError, path},
};

/// Why a domain is not as it was to be.
#[derive(Debug, Error)]
pub enum DomainError {
    /// libvirt or QEMU.
    #[error(transparent)]
    Virsh(#[from] VirshError),
    /// The domain's description.
    #[error(transparent)]
    Xml(#[from] XmlError),
    /// The daemon.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Nothing can be plugged into what does not run.
    #[error("domain {0} does not run; its next start is as its description says (without --live)")]
    NotRunning(String),
    /// The daemon could not see the guest's tables.
    #[error(
        "the memory of domain {0} is not shared, which cannot be changed while it runs; attach it \
         without --live, and start it again"
    )]
    MemoryNotShared(String),
    /// There is no place for the device.
    #[error(
        "domain {0} has no PCI Express port or PCI slot to spare; attach it without --live, and start \
         it again"
    )]
    NoPlace(String),
    /// The guest does not let go.
    #[error("the guest of domain {0} does not let go of the device; is it up? try again later")]
    GuestKeeps(String),
    /// It has no device and no metadata.
    #[error("domain {0} is not attached; attach it with cccctl attach {0}")]
    NotAttached(String),
    /// It failed, and what was done before could not be undone.
    #[error("{error}; and what was done before could not be undone: {undone}")]
    NotUndone {
        /// Why it failed.
        error: Box<DomainError>,
        /// Why it was not undone.
        undone: Box<DomainError>,
    },
}

/// libvirt and the daemon.
#[derive(Debug)]
pub struct Host<'a> {
    virsh: Virsh,
    daemon: &'a Client,
}

impl<'a> Host<'a> {
    /// libvirt at `uri`, and the daemon.
    pub fn new(uri: &str, daemon: &'a Client) -> Host<'a> {
        Host { virsh: Virsh::at(uri), daemon }
    }

    /// Attaches a domain, or changes how it is attached; what was done.
    pub fn attach(&self, attach: &Attach) -> Result<String, DomainError> {
        let mut undo = Undo::new(self);
        let done = self.attach_steps(attach, &mut undo);
        undo.unless(done)
    }

    fn attach_steps(&self, attach: &Attach, undo: &mut Undo) -> Result<String, DomainError> {
        let name = &attach.domain;
        let runs = self.current(name)?.runs();
        if attach.live && !runs {
            return Err(DomainError::NotRunning(name.clone()));
        }
        let before = self.virsh.persistent(name)?;
        let mut domain = Domain::parse(&before)?;
        let text = domain.text()?;
        let wanted = merge(domain.told()?.unwrap_or_default(), attach);
        domain.attach(name, &wanted)?;
        let changed = domain.text()? != text;
        if changed {
            self.virsh.define(&domain.text()?)?;
            undo.define(before);
        }
        if runs && (attach.live || hotplug::is_there(&self.virsh, name)?) {
            self.attach_running(name, &wanted, undo)?;
            return Ok(format!("{name}: attached, and coupled as it runs\n"));
        }
        Ok(match (changed, runs) {
            (false, _) => format!("{name}: attached as it was\n"),
            (true, false) => format!("{name}: attached\n"),
            (true, true) => format!("{name}: attached from its next start on (--live: at once)\n"),
        })
    }

    fn attach_running(
        &self,
        name: &str,
        wanted: &Wanted,
        undo: &mut Undo,
    ) -> Result<(), DomainError> {
        let running = self.current(name)?;
        let had = running.told()?;
        let there = hotplug::is_there(&self.virsh, name)?;
        if !there {
            undo.remove_vm(name);
        }
        self.tell(name, wanted)?;
        if had.as_ref() != Some(wanted) {
            self.virsh.set_metadata(name, WANTED, Some(&wanted.element()?))?;
            let had = had.map(|had| had.element()).transpose()?;
            undo.metadata(name, WANTED, had);
        }
        if !there {
            undo.unplug(name);
            let place = hotplug::plug(&self.virsh, &running, name, &wanted.socket(name))?;
            let plugged = Plugged::At(place).element()?;
            self.virsh.set_metadata(name, PLUGGED, Some(&plugged))?;
        }
        Ok(())
    }

    /// Detaches a domain; what was done.
    pub fn detach(&self, detach: &Detach) -> Result<String, DomainError> {
        let mut undo = Undo::new(self);
        let done = self.detach_steps(detach, &mut undo);
        undo.unless(done)
    }

    fn detach_steps(&self, detach: &Detach, undo: &mut Undo) -> Result<String, DomainError> {
        let name = &detach.domain;
        let runs = self.current(name)?.runs();
        if detach.live && !runs {
            return Err(DomainError::NotRunning(name.clone()));
        }
        let before = self.virsh.persistent(name)?;
        let mut domain = Domain::parse(&before)?;
        let was = domain.has_device() || domain.wanted()?.is_some();
        if was {
            domain.detach()?;
            self.virsh.define(&domain.text()?)?;
            undo.define(before);
        }
        if detach.live {
            hotplug::unplug(&self.virsh, name)?;
            self.clear_metadata(name)?;
            self.forget(name)?;
            return Ok(format!("{name}: detached\n"));
        }
        Ok(match (was, runs) {
            (false, _) => format!("{name}: was not attached\n"),
            (true, false) => format!("{name}: detached\n"),
            (true, true) => format!("{name}: detached from its next start on (--live: at once)\n"),
        })
    }

    /// Leaves in the metadata of a domain without the device only what its command
    /// line does not say.  What is wanted goes last: whoever watches for that must
    /// not find a device that nothing more is wanted of, which is as usual then.
    fn clear_metadata(&self, name: &str) -> Result<(), DomainError> {
        let running = self.current(name)?;
        if running.is_in_commandline() {
            self.virsh.set_metadata(name, PLUGGED, Some(&Plugged::Nowhere.element()?))?;
        } else if running.plugged().is_some() {
            self.virsh.set_metadata(name, PLUGGED, None)?;
        }
        if running.told()?.is_some() {
            self.virsh.set_metadata(name, WANTED, None)?;
        }
        Ok(())
    }

    /// Tells the daemon what a running domain's metadata want.
    pub fn sync(&self, name: &str) -> Result<Value, DomainError> {
        let running = self.current(name)?;
        if !running.runs() {
            return Err(DomainError::NotRunning(name.to_owned()));
        }
        let wanted = running.wanted()?.ok_or_else(|| DomainError::NotAttached(name.to_owned()))?;
        Ok(self.tell(name, &wanted)?)
    }

    /// Tells the daemon of every change of a running domain's metadata, for
    /// ever; `told` is told of each, and of what went wrong with one.
    pub fn watch(
        &self,
        mut told: impl FnMut(&str, Result<(), DomainError>),
    ) -> Result<(), DomainError> {
        let mut look = |name: &str| match self.follow(name) {
            Ok(false) => {}
            followed => told(name, followed.map(drop)),
        };
        // Events first, so that no change falls between.
        let mut events = self.virsh.metadata_events()?;
        for name in self.virsh.running()? {
            look(&name);
        }
        loop {
            look(&events.next()?);
        }
    }

    /// Tells the daemon what a running domain's metadata want, if anything, until
    /// they still want that afterwards; whether there was anything to tell.  A domain
    /// may be detached, and the daemon told, between a look and what follows from it.
    fn follow(&self, name: &str) -> Result<bool, DomainError> {
        let mut told = None;
        loop {
            let domain = self.current(name)?;
            let wanted = if domain.runs() { domain.wanted()? } else { None };
            match (&told, &wanted) {
                (Some(before), now) if before == now => return Ok(true),
                // Its next start tells, or there is nothing to tell.
                (None, None) => return Ok(false),
                (Some(_), None) => self.forget(name)?,
                (_, Some(wanted)) => drop(self.tell(name, wanted)?),
            }
            told = Some(wanted);
        }
    }

    /// What libvirt calls its hook for, with the domain's description; the
    /// description it is to take instead, if any.  Must not ask libvirt anything,
    /// which waits for the hook.
    pub fn hook(&self, hook: &Hook, description: &str) -> Result<Option<String>, DomainError> {
        let mut domain = match hook.operation.as_str() {
            "migrate" | "restore" | "prepare" | "reconnect" | "attach" | "release" => {
                Domain::parse(description)?
            }
            _ => return Ok(None),
        };
        let name = &hook.domain;
        match (hook.operation.as_str(), domain.wanted()?) {
            ("migrate" | "restore", _) => {
                return Ok(domain.follow_plugs(name)?.then(|| domain.text()).transpose()?);
            }
            ("release", Some(_)) => self.forget(name)?,
            (_, Some(wanted)) => drop(self.tell(name, &wanted)?),
            (_, None) => {}
        }
        Ok(None)
    }

    fn current(&self, name: &str) -> Result<Domain, DomainError> {
        Ok(Domain::parse(&self.virsh.current(name)?)?)
    }

    fn tell(&self, name: &str, wanted: &Wanted) -> Result<Value, ClientError> {
        let mut vm = json!({"socket": wanted.socket(name)});
        if let Some(group) = &wanted.group {
            vm["group"] = if group == "none" { Value::Null } else { json!(group) };
        }
        if let Some(weight) = wanted.weight {
            vm["weight"] = json!(weight);
        }
        self.daemon.put(&path("vms", name), &vm)
    }

    /// A VM of the daemon's configuration stays; one that is gone is gone.
    fn forget(&self, name: &str) -> Result<(), ClientError> {
        match self.daemon.delete(&path("vms", name)) {
            Err(ClientError::Told { status: 404 | 409, .. }) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// What is wanted of a domain that wanted `before`.
fn merge(before: Wanted, attach: &Attach) -> Wanted {
    Wanted {
        group: attach.group.clone().or(before.group),
        weight: attach.weight.or(before.weight),
        socket: attach.vhost_socket.clone().or(before.socket),
    }
}
