// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! VMs that are in the daemon though their domains have stopped: it was away then.
use std::collections::BTreeSet;

use serde_json::Value;

use super::{Domain, DomainError, Host};

/// What is to be done with a VM that no running domain has.
#[derive(Debug, PartialEq, Eq)]
pub enum LeftOver {
    /// Its domain does not run: it was the hook that added it.
    Removed,
    /// There is no domain of ours by that name: an operator may have added it.
    Kept,
}

impl Host<'_> {
    /// Removes a VM that nobody is connected to and whose domain is attached and does
    /// not run.  Others stay: they may be an operator's.
    pub(super) fn tidy(&self, name: &str) -> Result<LeftOver, DomainError> {
        let domain = match self.find(name) {
            Err(DomainError::Virsh(error)) if error.is_no_domain() => None,
            found => Some(found?.1),
        };
        let ours = |domain: &Domain| domain.has_device() || domain.has_metadata();
        match domain {
            Some(domain) if ours(&domain) && !domain.runs() => {
                self.forget(name)?;
                // It may have been started between.
                self.follow(name)?;
                Ok(LeftOver::Removed)
            }
            _ => Ok(LeftOver::Kept),
        }
    }
}

/// VMs of the daemon's answer that nobody is connected to, but for those that run.
pub fn idle(vms: &Value, running: &BTreeSet<String>) -> Vec<String> {
    let vms = vms["vms"].as_array().into_iter().flatten();
    let idle = vms.filter(|vm| vm["connected"] == false);
    let names = idle.filter_map(|vm| vm["name"].as_str());
    names.filter(|name| !running.contains(*name)).map(str::to_owned).collect()
}
