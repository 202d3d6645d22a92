// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What libvirt calls its hook for.
//!
//! libvirt ends a running domain whose hook fails, and does not start another.  So
//! nothing fails here, whatever is wrong: it is told, the domain goes on uncoupled,
//! and `cccctl watch` takes it up when all is well.  Only starts are refused, for two
//! reasons: the host's operator wants that (`require`), or the start would never end.
use std::path::Path;

use ccc_settings::NO_GROUP;
use serde_json::Value;

use super::{Host, Wanted, XmlError, check, xml::Domain};
use crate::{
    args::Hook,
    client::{ClientError, path},
    domain::DomainError,
};

/// What becomes of what libvirt is about to do.
#[derive(Debug, Default)]
pub struct HookOutcome {
    /// The description that libvirt is to take instead.
    pub description: Option<String>,
    /// What went wrong.
    pub warnings: Vec<String>,
    /// It must not go on, for this reason.
    pub refused: Option<String>,
}

impl HookOutcome {
    fn warn(&mut self, name: &str, error: &DomainError) {
        self.warnings.push(format!("domain {name}: {error}"));
    }
}

impl Host<'_> {
    /// Does what libvirt's hook is for.  Must not ask libvirt anything, which waits for
    /// the hook.  A file of the host may require that nothing starts uncoupled.
    pub fn hook(&self, hook: &Hook, description: &str, required_by: Option<&Path>) -> HookOutcome {
        let mut outcome = HookOutcome::default();
        let name = &hook.domain;
        let domain = match hook.operation.as_str() {
            "migrate" | "restore" | "prepare" | "reconnect" | "attach" | "release" => {
                Domain::parse(description)
            }
            _ => return outcome,
        };
        match (hook.operation.as_str(), domain) {
            // It is none of ours, as far as anybody can tell.
            (_, Err(error)) => outcome.warn(name, &error.into()),
            ("migrate" | "restore", Ok(domain)) => match followed(domain, name) {
                Ok(text) => outcome.description = text,
                Err(error) => outcome.warn(name, &error.into()),
            },
            ("prepare", Ok(domain)) => self.start(name, &domain, required_by, &mut outcome),
            ("release", Ok(domain)) => {
                if domain.has_device() || domain.has_metadata() {
                    if let Err(error) = self.forget(name, domain.is_tenant()) {
                        outcome.warn(name, &error.into());
                    }
                }
            }
            (_, Ok(domain)) => {
                if let Err(error) = self.tell_of(name, &domain) {
                    outcome.warn(name, &error);
                }
            }
        }
        outcome
    }

    /// Tells the daemon of a domain, if it is one of ours.
    fn tell_of(&self, name: &str, domain: &Domain) -> Result<(), DomainError> {
        if let Some(wanted) = domain.wanted()? {
            self.tell(name, &domain.socket(name, &wanted), &wanted)?;
        }
        Ok(())
    }

    /// A domain that is about to start.
    fn start(
        &self,
        name: &str,
        domain: &Domain,
        required_by: Option<&Path>,
        outcome: &mut HookOutcome,
    ) {
        let Err(error) = self.tell_of(name, domain) else { return };
        outcome.warn(name, &error);
        if let Some(file) = required_by {
            outcome.refused = Some(format!(
                "domain {name}: {error}; and {} has require = true: it does not start uncoupled",
                file.display()
            ));
        } else if domain.is_in_commandline() {
            outcome.refused = self.uncoupled(name, domain, &error).err();
        }
    }

    /// Has a domain start uncoupled, which could not be coupled for this reason; or why
    /// that would never end.
    fn uncoupled(&self, name: &str, domain: &Domain, why: &DomainError) -> Result<(), String> {
        let socket = domain.socket(name, &Wanted::default());
        if let Some(other) = self.owner(&socket).filter(|other| other != name) {
            let socket = socket.display();
            return Err(format!(
                "domain {name}: it would connect to {socket}, which is that of {other}, as a clone \
                 would; give it a socket of its own: cccctl attach {name}"
            ));
        }
        // With a device that somebody serves, QEMU need not wait for anybody.
        if is_refused(why) {
            let mut nothing = Wanted::default();
            nothing.settings.set_text("group", NO_GROUP).map_err(|fault| fault.to_string())?;
            if self.tell(name, &socket, &nothing).is_ok() {
                return Ok(());
            }
        }
        if check::starts_alone(domain) {
            return Ok(());
        }
        Err(format!(
            "domain {name}: {why}; and its QEMU would wait for the daemon without end; start \
             ccc-vhost, or the domain without the device: cccctl detach {name}"
        ))
    }

    /// The VM that has a socket.
    fn owner(&self, socket: &Path) -> Option<String> {
        let vms = self.daemon.get("/v1/vms").ok()?;
        let mut vms = vms["vms"].as_array()?.iter();
        let owner = vms.find(|vm| vm["socket"].as_str().map(Path::new) == Some(socket))?;
        owner["name"].as_str().map(str::to_owned)
    }

    /// Removes a domain's VM from the daemon; one that is gone is gone.  False if it is of
    /// the daemon's configuration, or a tenant though the domain is to be none, and stays.
    pub(super) fn forget(&self, name: &str, is_tenant: bool) -> Result<bool, ClientError> {
        let path = path("vms", name);
        match self.daemon.get(&path) {
            Err(ClientError::Told { status: 404, .. }) => return Ok(true),
            Ok(there) if there["tenant"].is_string() && !is_tenant => return Ok(false),
            there => there?,
        };
        match self.daemon.delete(&path) {
            Err(ClientError::Told { status: 404, .. }) => Ok(true),
            Err(ClientError::Told { status: 409, .. }) => Ok(false),
            answer => answer.map(|_: Value| true),
        }
    }
}

/// Nothing came of what the daemon was asked for, if it was.  One that is silent may do
/// it yet, and would then do what it was asked for afterwards, too.
fn is_refused(why: &DomainError) -> bool {
    match why {
        DomainError::Client(error) => error.is_refusal(),
        _ => true,
    }
}

/// The description of a domain whose device was plugged in or out.
fn followed(mut domain: Domain, name: &str) -> Result<Option<String>, XmlError> {
    domain.follow_plugs(name)?.then(|| domain.text()).transpose()
}
