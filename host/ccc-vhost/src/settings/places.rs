// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A part of the host, or a guest, is one tenant: two front ends would take turns with it.
use std::path::Path;

use ccc_settings::{Fault, VmSettings};
use serde_json::json;

use super::{Settings, SettingsError};

impl Settings {
    /// Makes sure that no other tenant than `name` is what these settings say that it is.
    pub(super) fn check_place(
        &self,
        name: &str,
        settings: &VmSettings,
    ) -> Result<(), SettingsError> {
        let Some(place) = &settings.tenant else { return Ok(()) };
        let has = |vm: &&super::Vm| {
            let its = vm.settings.tenant.as_ref();
            vm.name != name && its.is_some_and(|its| is_same(its, place))
        };
        self.vms.values().find(has).map_or(Ok(()), |other| {
            Err(SettingsError::PlaceTaken { place: place.clone(), other: other.name.clone() })
        })
    }
}

/// A place in the configuration that another tenant there has.
pub(super) fn taken(place: &str, other: &str) -> Fault {
    let expected = format!("a place that tenant `{other}` does not have");
    Fault::new("tenant", expected, &json!(place)).remedy("a place is one tenant's: remove one")
}

/// Whether these are one place, however they are written.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let parts = |place: &str| {
        let (kind, at) = place.split_once(':').unwrap_or_default();
        let at = match kind {
            // Its path begins at the root in any case.
            "cgroup" => at.trim_start_matches('/').to_owned(),
            "netns" => at.strip_prefix("/run/netns/").unwrap_or(at).to_owned(),
            // A CID, or a socket.
            _ => at.parse::<u32>().map_or(at.to_owned(), |cid| cid.to_string()),
        };
        (kind.to_owned(), at)
    };
    let ((kind, at), (its_kind, its_at)) = (parts(one), parts(other));
    kind == its_kind && Path::new(&at) == Path::new(&its_at)
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn a_place_is_the_same_however_it_is_written() {
        for (one, other) in [
            ("vsock:7", "vsock:07"),
            ("vsock:/run/vm1", "vsock:/run//vm1/"),
            ("cgroup:/web.slice", "cgroup:web.slice"),
            ("netns:a", "netns:a"),
            ("netns:a", "netns:/run/netns/a"),
        ] {
            assert!(is_same(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("vsock:7", "vsock:70"),
            ("netns:a", "cgroup:a"),
            ("netns:7", "netns:07"),
            ("cgroup:1", "cgroup:001"),
            ("vsock:/run/a", "vsock:/run/b"),
        ] {
            assert!(!is_same(one, other), "{one} {other}");
        }
    }
}
