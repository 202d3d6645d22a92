// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether the place of a tenant without a device is on this host: a cgroup, a network namespace,
//! or the socket of a VMM.
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::Finding;
use crate::views::word;

/// What is mounted where.
const MOUNTS: &str = "/proc/self/mounts";
/// Where `ip netns` keeps them.
const NETNS: &str = "/run/netns";
/// A namespace, as all others on the file system of namespaces.
const OWN_NETNS: &str = "/proc/self/ns/net";

/// A tenant's place is not there: it may be mistyped, or what makes it has not started.
pub fn gone(vm: &Value) -> Option<Finding> {
    let cgroups = cgroups(&fs::read_to_string(MOUNTS).unwrap_or_default());
    let place = vm["tenant"].as_str()?;
    let missing = missing(place, cgroups.as_deref(), Path::new(NETNS));
    let what = match missing {
        Some(place) => format!("its place is not there: no {}", place.display()),
        None => format!("{} is no network namespace", not_one(place)?.display()),
    };
    let name = word(&vm["name"]);
    Some(Finding::new(
        vm,
        what,
        format!(
            "start what makes it; if it is mistyped: cccctl tenant remove {name}, then \
             cccctl tenant add {name} with the right one"
        ),
    ))
}

/// The file that a tenant has for its namespace and that is none.
fn not_one(place: &str) -> Option<PathBuf> {
    let path = Path::new(NETNS).join(place.strip_prefix("netns:")?);
    let device = |path: &Path| fs::metadata(path).ok().map(|there| there.dev());
    let (its, of_namespaces) = (device(&path)?, device(Path::new(OWN_NETNS))?);
    (its != of_namespaces).then_some(path)
}

/// Another tenant has a tenant's place: a place is that of the first.
pub fn taken(vm: &Value, vms: &[Value]) -> Option<Finding> {
    let place = vm["tenant"].as_str().filter(|_| vm["connected"] == false)?;
    let has_it = |other: &&Value| other["tenant"] == place && other["connected"] == true;
    let (name, first) = (word(&vm["name"]), word(&vms.iter().find(has_it)?["name"]));
    Some(Finding::new(
        vm,
        format!("{first} has its place, {place}: it waits until that one is removed"),
        format!("cccctl tenant remove {name}, or {first}: then it has the place within a second"),
    ))
}

/// Where the second kind of cgroups is mounted, as ccc-bpf looks for it.
fn cgroups(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (path, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then(|| path.into())
    })
}

/// The directory or file that a place is and is not there.
fn missing(place: &str, cgroups: Option<&Path>, netns: &Path) -> Option<PathBuf> {
    let path = match place.split_once(':')? {
        ("cgroup", path) => cgroups?.join(path.trim_start_matches('/')),
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
        let missing = |place: &str| missing(place, Some(&cgroups), &netns);
        fs::create_dir_all(cgroups.join("system.slice/web.service")).expect("made");
        assert_eq!(super::missing("cgroup:sytem.slice", None, &netns), None, "nobody can tell");
        assert_eq!(missing("cgroup:system.slice/web.service"), None);
        assert_eq!(missing("cgroup:/system.slice"), None, "below the root, however it is written");
        assert_eq!(missing("cgroup:sytem.slice"), Some(cgroups.join("sytem.slice")));
        assert_eq!(missing("netns:web"), Some(netns.join("web")));
        assert_eq!(missing("of another release"), None);
    }

    #[test]
    fn a_file_that_is_no_namespace_is_told() {
        let file = gone(&json!({"name": "web", "tenant": "netns:/etc/passwd"}));
        assert_eq!(file.expect("a finding").what, "/etc/passwd is no network namespace");
        assert_eq!(gone(&json!({"name": "web", "tenant": "netns:/proc/self/ns/net"})), None);
        assert_eq!(gone(&json!({"name": "web", "tenant": "vsock:7"})), None);
    }

    #[test]
    fn cgroups_are_found_wherever_they_are_mounted() {
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(cgroups(hybrid), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(cgroups("proc /proc proc rw 0 0\n"), None);
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
