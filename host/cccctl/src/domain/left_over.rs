// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! VMs that are in the daemon though their domains have stopped: it was away then.
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{Domain, DomainError, Host};

/// What is to be done with a VM that no running domain has.
#[derive(Debug, PartialEq, Eq)]
pub enum LeftOver {
    /// Its domain does not run: it was the hook that added it.
    Removed,
    /// There is no domain of ours by that name and socket, so an operator may have added
    /// it; or it is in the daemon's configuration.
    Kept,
}

impl Host<'_> {
    /// Removes a VM that nobody is connected to and whose domain is attached, would
    /// connect where it is, and does not run.  Others stay: they may be an operator's.
    pub(super) fn tidy(&self, name: &str, socket: &Path) -> Result<LeftOver, DomainError> {
        let domain = match self.find(name) {
            Err(DomainError::Virsh(error)) if error.is_no_domain() => None,
            found => Some(found?.1),
        };
        let its = |domain: &Domain| {
            let wanted = domain.told().ok().flatten().unwrap_or_default();
            (domain.has_device() || domain.has_metadata()) && domain.socket(name, &wanted) == socket
        };
        if !domain.is_some_and(|domain| its(&domain) && !domain.runs())
            || !self.forget(name, false)?
        {
            return Ok(LeftOver::Kept);
        }
        // It may have been started between.
        self.follow(name)?;
        Ok(LeftOver::Removed)
    }
}

/// VMs of the daemon's answer that nobody is connected to, and their sockets, but for
/// those that run.
pub fn idle(vms: &Value, running: &BTreeSet<String>) -> Vec<(String, PathBuf)> {
    let vms = vms["vms"].as_array().into_iter().flatten();
    // Parts of the host are no domains.
    let idle = vms.filter(|vm| vm["connected"] == false && vm["tenant"].is_null());
    let idle = idle.filter_map(|vm| Some((vm["name"].as_str()?, vm["socket"].as_str()?)));
    let idle = idle.filter(|(name, _)| !running.contains(*name));
    idle.map(|(name, socket)| (name.to_owned(), socket.into())).collect()
}
