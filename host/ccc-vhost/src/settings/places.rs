// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A part of the host, or a guest, is one tenant: two front ends would take turns with it.
//!
//! No new tenant is a process's namespace.  Files of before have some: they are read, for all other
//! VMs' sake, and nobody finds their place.
use std::path::Path;

use ccc_settings::{Fault, VmSettings, is_same_place};
use serde_json::json;

use super::{Settings, SettingsError};

impl Settings {
    /// Makes sure that no other tenant than `name` is what these settings say that it is, and that
    /// it stays that.
    pub(super) fn check_place(
        &self,
        name: &str,
        settings: &VmSettings,
    ) -> Result<(), SettingsError> {
        let Some(place) = &settings.tenant else { return Ok(()) };
        if is_of_a_process(place) && !self.has_place(name, place) {
            let expected = "a place that stays what it is";
            return Err(Fault::new("tenant", expected, &json!(place)).remedy(ATTACH).into());
        }
        let has = |vm: &&super::Vm| {
            let its = vm.settings.tenant.as_ref();
            vm.name != name && its.is_some_and(|its| is_same_place(its, place))
        };
        self.vms.values().find(has).map_or(Ok(()), |other| {
            Err(SettingsError::PlaceTaken { place: place.clone(), other: other.name.clone() })
        })
    }

    /// Whether that is what the tenant is already, or was by the configuration.
    fn has_place(&self, name: &str, place: &str) -> bool {
        let of = |settings: &VmSettings| settings.tenant.as_deref() == Some(place);
        self.vms
            .values()
            .filter(|vm| vm.name == name)
            .any(|vm| of(&vm.settings) || vm.configured.as_ref().is_some_and(of))
    }

    /// Tenants that nobody finds, as an operator reads it.
    pub fn never_found(&self) -> impl Iterator<Item = String> {
        self.vms.values().filter_map(|vm| {
            let place = vm.settings.tenant.as_deref().filter(|place| is_of_a_process(place))?;
            Some(format!("VM {}: its tenant {place} is never found: {ATTACH}", vm.name))
        })
    }
}

/// What to do about a process's namespace.
const ATTACH: &str = "a process's number is another's later; give its namespace a name (ip netns \
                      attach NAME PID) and take netns:NAME";

/// Whether a place is a process's, by its number.
fn is_of_a_process(place: &str) -> bool {
    place.strip_prefix("netns:").is_some_and(|path| Path::new(path).starts_with("/proc"))
}

/// A place in the configuration that another tenant there has.
pub(super) fn taken(place: &str, other: &str) -> Fault {
    let expected = format!("a place that tenant `{other}` does not have");
    Fault::new("tenant", expected, &json!(place)).remedy("a place is one tenant's: remove one")
}
