// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A tap is one VM's: what comes in at one of two would be held against the other.
use std::collections::BTreeSet;

use ccc_settings::{Fault, VmSettings};
use serde_json::json;

use super::Settings;

impl Settings {
    /// Makes sure that no other VM has the tap of these settings of the VM `name`.
    pub(super) fn check_tap(&self, name: &str, settings: &VmSettings) -> Result<(), Fault> {
        let Some(tap) = &settings.tap else { return Ok(()) };
        let has = |vm: &&super::Vm| vm.name != name && vm.settings.tap.as_ref() == Some(tap);
        let other = self.vms.values().find(has);
        other.map_or(Ok(()), |other| Err(taken(tap, &other.name)))
    }

    /// Taps that more than one VM names, as in a state file of before that was refused.
    pub fn doubled_taps(&self) -> BTreeSet<&str> {
        let mut known = BTreeSet::new();
        let taps = self.vms.values().filter_map(|vm| vm.settings.tap.as_deref());
        taps.filter(|tap| !known.insert(*tap)).collect()
    }

    /// The VMs that name a tap, as an operator reads it.
    pub fn names_at(&self, tap: &str) -> String {
        let at = self.vms.values().filter(|vm| vm.settings.tap.as_deref() == Some(tap));
        at.map(|vm| vm.name.as_str()).collect::<Vec<_>>().join(" and ")
    }
}

/// A tap that another VM has.
pub(super) fn taken(tap: &str, other: &str) -> Fault {
    let expected = format!("an interface that VM `{other}` does not have");
    let remedy = format!(
        "a tap is one VM's: name this VM's own (virsh domiflist), or give VM `{other}` another, or \
         `none`, first"
    );
    Fault::new("tap", expected, &json!(tap)).remedy(remedy)
}
