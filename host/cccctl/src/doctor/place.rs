// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether the place of a tenant without a device is on this host: a cgroup, a network namespace,
//! or the socket of a VMM.
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Finding;
use crate::views::word;

const CGROUPS: &str = "/sys/fs/cgroup";
/// Where `ip netns` keeps them.
const NETNS: &str = "/run/netns";

/// A tenant's place is not there: it may be mistyped, or what makes it has not started.
pub fn gone(vm: &Value) -> Option<Finding> {
    missing(vm["tenant"].as_str()?, Path::new(CGROUPS), Path::new(NETNS)).map(|place| {
        let name = word(&vm["name"]);
        Finding::new(
            vm,
            format!("its place is not there: no {}", place.display()),
            format!(
                "start what makes it; if it is mistyped: cccctl tenant remove {name}, then \
                 cccctl tenant add {name} with the right one"
            ),
        )
    })
}

/// The directory or file that a place is and is not there.
fn missing(place: &str, cgroups: &Path, netns: &Path) -> Option<PathBuf> {
    let path = match place.split_once(':')? {
        // Where something else is mounted, nothing can be told.
        ("cgroup", path) if cgroups.join("cgroup.controllers").exists() => cgroups.join(path),
        ("netns", name) => netns.join(name),
        // Its own socket; the relay's beside it has _PORT behind the name.
        ("vsock", path) if path.starts_with('/') => path.into(),
        _ => return None,
    };
    // One that may not be looked at is there for all we know.
    matches!(path.try_exists(), Ok(false)).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_mistyped_place_is_told() {
        let dir = tempfile::tempdir().expect("directory");
        let (cgroups, netns) = (dir.path().join("cgroup"), dir.path().join("netns"));
        let missing = |place: &str| missing(place, &cgroups, &netns);
        fs::create_dir_all(cgroups.join("system.slice/web.service")).expect("made");
        assert_eq!(missing("cgroup:sytem.slice"), None, "it is no cgroup2");
        fs::write(cgroups.join("cgroup.controllers"), "").expect("written");
        assert_eq!(missing("cgroup:system.slice/web.service"), None);
        assert_eq!(missing("cgroup:sytem.slice"), Some(cgroups.join("sytem.slice")));
        assert_eq!(missing("netns:web"), Some(netns.join("web")));
        assert_eq!(missing("of another release"), None);
    }

    #[test]
    fn a_vm_has_no_place_and_a_tenant_without_one_is_found() {
        assert_eq!(gone(&json!({"name": "web"})), None);
        let web = json!({"name": "web", "tenant": "netns:ccc-test-nowhere"});
        let found = gone(&web).expect("a finding");
        assert!(found.what.ends_with("no /run/netns/ccc-test-nowhere"), "{found:?}");
        assert!(found.remedy.contains("cccctl tenant remove web"), "{found:?}");
    }
}
