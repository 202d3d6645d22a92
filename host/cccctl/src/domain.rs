// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! libvirt's domains: the device in them, and what their metadata want of the
//! daemon.
//!
//! The metadata are the truth of a domain: `attach` writes them, the hook brings
//! them to the daemon when the domain starts, and `watch` when they change.
mod check;
mod find;
mod hook;
mod hotplug;
mod left_over;
mod undo;
mod virsh;
mod wanted;
mod watch;
mod xml;

use std::{collections::BTreeSet, path::Path};

use ccc_settings::VmSettings;
use serde_json::{Value, json};
use thiserror::Error;

use self::{
    check::CheckError,
    left_over::LeftOver,
    undo::Undo,
    virsh::{DomainId, Virsh, VirshError},
    wanted::{PLUGGED, Plugged, WANTED, Wanted},
    xml::{Domain, XmlError},
};
use crate::{
    args::{Attach, Detach, Set},
    client::{Client, ClientError, path},
    journal,
};

/// What names of interfaces begin with that libvirt makes, others at each start of a domain.
pub const MADE_BY_LIBVIRT: &str = "vnet";

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
    /// It would not start.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// Nothing can be plugged into what does not run.
    #[error("domain {0} does not run; its next start is as its description says (without --live)")]
    NotRunning(String),
    /// What is written for its next start would make it one that libvirt keeps.
    #[error(
        "domain {0} is transient and has no next start; use --live, or have libvirt keep it (virsh \
         define)"
    )]
    Transient(String),
    /// The daemon could not see the guest's tables.
    #[error(
        "the memory of domain {0} is not shared, which cannot be changed while it runs; attach it \
         without --live, and start it again"
    )]
    MemoryNotShared(String),
    /// No address is free for the device.
    #[error(
        "domain {0} has no PCI Express port or PCI slot to spare; attach it without --live, and start \
         it again"
    )]
    NoAddress(String),
    /// The guest does not let go.
    #[error("the guest of domain {0} does not let go of the device; is it up? try again later")]
    GuestKeeps(String),
    /// The others were told of.
    #[error("{0} domains could not be told of; what is said above says why")]
    Some(usize),
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
        let (id, current) = self.find(name)?;
        let runs = current.runs();
        if attach.live && !runs {
            return Err(DomainError::NotRunning(name.clone()));
        }
        let before = self.virsh.persistent(&id)?;
        let mut domain = Domain::parse(&before)?;
        let text = domain.text()?;
        let wanted = merge(domain.told()?.unwrap_or_default(), attach);
        wanted.check().map_err(XmlError::from)?;
        self.check(name, &domain, &wanted)?;
        domain.attach(name, &wanted)?;
        let changed = domain.text()? != text;
        let at_once = runs && (attach.live || hotplug::is_there(&self.virsh, &id)?);
        if changed && self.virsh.is_persistent(&id)? {
            self.virsh.define(&domain.text()?)?;
            undo.define(before);
        } else if changed && !at_once {
            return Err(DomainError::Transient(name.clone()));
        }
        if at_once {
            self.attach_running(&id, wanted, attach, undo)?;
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
        id: &DomainId,
        mut wanted: Wanted,
        attach: &Attach,
        undo: &mut Undo,
    ) -> Result<(), DomainError> {
        let name = &id.name;
        let (_, running) = self.find(name)?;
        // What is wrong there is no reason not to put it right.
        let had = running.told().ok().flatten();
        let there = hotplug::is_there(&self.virsh, id)?;
        // What was switched while it runs stays so, if nothing else is said now.
        if let Some(had) = &had {
            wanted.settings.then(had.settings.only("coupled"));
        }
        wanted.settings.then(attach.settings.0.clone());
        let wanted = &wanted;
        if !there {
            undo.remove_vm(name, wanted.is_tenant());
        }
        self.tell(name, &running.socket(name, wanted), wanted)?;
        if had.as_ref() != Some(wanted) {
            self.virsh.set_metadata(id, WANTED, Some(&wanted.element()?))?;
            let had = had.map(|had| had.element()).transpose()?;
            undo.metadata(id, WANTED, had);
        }
        if !there {
            undo.unplug(id);
            let address = hotplug::plug(&self.virsh, &running, id, &wanted.socket(name))?;
            let plugged = Plugged::At(address).element()?;
            self.virsh.set_metadata(id, PLUGGED, Some(&plugged))?;
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
        let (id, current) = self.find(name)?;
        let runs = current.runs();
        if detach.live && !runs {
            return Err(DomainError::NotRunning(name.clone()));
        }
        let before = self.virsh.persistent(&id)?;
        let mut domain = Domain::parse(&before)?;
        let was = domain.has_device() || domain.has_metadata();
        if was && self.virsh.is_persistent(&id)? {
            domain.detach()?;
            self.virsh.define(&domain.text()?)?;
            undo.define(before);
        } else if was && !detach.live {
            return Err(DomainError::Transient(name.clone()));
        }
        if detach.live {
            hotplug::unplug(&self.virsh, &id)?;
            self.clear_metadata(&id)?;
            self.forget(name, current.is_tenant())?;
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
    fn clear_metadata(&self, id: &DomainId) -> Result<(), DomainError> {
        let (_, running) = self.find(&id.name)?;
        if running.is_in_commandline() {
            self.virsh.set_metadata(id, PLUGGED, Some(&Plugged::Nowhere.element()?))?;
        } else if running.plugged().is_some() {
            self.virsh.set_metadata(id, PLUGGED, None)?;
        }
        if running.has_metadata() {
            self.virsh.set_metadata(id, WANTED, None)?;
        }
        Ok(())
    }

    /// Tells the daemon what a running domain's metadata want.
    pub fn sync(&self, name: &str) -> Result<Value, DomainError> {
        let (_, running) = self.find(name)?;
        if !running.runs() {
            return Err(DomainError::NotRunning(name.to_owned()));
        }
        let wanted = running.wanted()?.ok_or_else(|| DomainError::NotAttached(name.to_owned()))?;
        Ok(self.tell(name, &running.socket(name, &wanted), &wanted)?)
    }

    /// Tells the daemon what the metadata of all running domains want, and removes what
    /// is left over of those that stopped; what was done.
    pub fn sync_all(&self) -> Result<String, DomainError> {
        let (mut said, mut failed) = (String::new(), 0);
        let mut running = BTreeSet::new();
        for name in self.virsh.running()? {
            match self.follow(&name) {
                Ok(None) => {}
                Ok(Some(_)) => said += &format!("{name}: told the daemon\n"),
                Err(error) => {
                    failed += 1;
                    journal::say(&format!("{name}: {error}"));
                }
            }
            running.insert(name);
        }
        for (name, socket) in left_over::idle(&self.daemon.get("/v1/vms")?, &running) {
            said += &match self.tidy(&name, &socket)? {
                LeftOver::Removed => format!("{name}: removed, it was left over\n"),
                LeftOver::Kept => {
                    format!("{name}: kept, though nobody is connected (cccctl remove {name})\n")
                }
            };
        }
        if failed > 0 { Err(DomainError::Some(failed)) } else { Ok(said) }
    }

    /// There is a libvirt that could have domains, whether it answers or not.
    pub fn is_installed(&self) -> bool {
        self.virsh.is_installed()
    }

    /// A domain of this name may run, whether libvirt answers or not.
    pub fn may_run(&self, name: &str) -> bool {
        self.virsh.may_run(name)
    }

    /// There is a domain of this name that runs and is one of ours.
    pub fn is_told_of(&self, name: &str) -> bool {
        self.find(name).is_ok_and(|(_, domain)| {
            domain.runs() && (domain.has_device() || domain.has_metadata())
        })
    }

    /// Writes a change that was made to a VM into the metadata of its domain, so that
    /// it lasts as long as that runs, if it is one of ours, and a tap for ever; whether its next start
    /// is without any of it.
    pub fn note(&self, set: &Set) -> Result<bool, DomainError> {
        let (id, running) = self.find(&set.vm)?;
        let Some(had) = running.wanted()?.filter(|_| running.runs()) else { return Ok(false) };
        let mut wanted = had.clone();
        wanted.settings.then(set.changes.0.clone());
        if wanted != had {
            self.virsh.set_metadata(&id, WANTED, Some(&wanted.element()?))?;
        }
        if !self.virsh.is_persistent(&id)? {
            return Ok(false);
        }
        let next = Domain::parse(&self.virsh.persistent(&id)?)?.told()?;
        let next = self.keep_tap(&id, next, set)?.unwrap_or_default();
        let next = next.settings.apply(&VmSettings::default());
        Ok(set.changes.0.apply(&next) != next)
    }

    /// Writes a tap that is set into the metadata of the next start, if that has any; what those are
    /// then.  A tap is what the domain has, and nothing that is tried for a while: without it nobody
    /// would look at the domain any more.
    fn keep_tap(
        &self,
        id: &DomainId,
        next: Option<Wanted>,
        set: &Set,
    ) -> Result<Option<Wanted>, DomainError> {
        let Some(before) = next.as_ref().filter(|_| !names_passing_tap(set)) else {
            return Ok(next);
        };
        let mut after = before.clone();
        after.settings.then(set.changes.0.only("tap"));
        if after != *before {
            self.virsh.set_next_metadata(id, WANTED, &after.element()?)?;
        }
        Ok(Some(after))
    }

    fn tell(&self, name: &str, socket: &Path, wanted: &Wanted) -> Result<Value, ClientError> {
        self.put(name, &body(socket, wanted))
    }

    /// Has the daemon serve a VM as it is wanted.  One of its name that nobody uses at
    /// another socket was left over when the domain had that, unless it is another tenant.
    fn put(&self, name: &str, vm: &Value) -> Result<Value, ClientError> {
        let (path, sent) = (path("vms", name), sent(vm));
        match self.daemon.put(&path, &sent) {
            Err(ClientError::Told { status: 409, told }) => {
                let there = self.daemon.get(&path)?;
                let is_another = there["tenant"].is_string() && there["tenant"] != vm["tenant"];
                if is_another || there["connected"] == true || there["socket"] == vm["socket"] {
                    return Err(ClientError::Told { status: 409, told });
                }
                self.daemon.delete(&path)?;
                self.daemon.put(&path, &sent)
            }
            Err(error) if error.is_in_force() => {
                journal::log(&format!("VM {name}: {error}"));
                self.daemon.get(&path)
            }
            answer => answer,
        }
    }
}

/// What a change names as the tap is that only until the domain stops: at its next start libvirt makes
/// another name, and this one may be another domain's.
pub fn names_passing_tap(set: &Set) -> bool {
    let settings = set.changes.0.apply(&VmSettings::default());
    settings.tap.is_some_and(|tap| tap.starts_with(MADE_BY_LIBVIRT))
}

/// A VM as the daemon takes it; what is not said has its default.
fn body(socket: &Path, wanted: &Wanted) -> Value {
    let mut vm = json!(wanted.settings.apply(&VmSettings::default()));
    vm["socket"] = json!(socket);
    vm
}

/// What the daemon is sent of a VM: a daemon takes the default for what is not said, and one of
/// an earlier release refuses a setting that it does not know, which nobody may have set.
fn sent(vm: &Value) -> Value {
    let defaults = json!(VmSettings::default());
    let fields = vm.as_object().into_iter().flatten();
    let said = fields.filter(|(key, value)| defaults.get(*key) != Some(*value));
    said.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What is wanted of a domain that wanted `before`.
fn merge(mut before: Wanted, attach: &Attach) -> Wanted {
    before.settings.then(attach.settings.0.clone());
    Wanted { socket: attach.vhost_socket.clone().or(before.socket), ..before }
}
