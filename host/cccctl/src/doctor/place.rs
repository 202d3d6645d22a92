// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether the place of a tenant without a device is on this host: a cgroup, a network namespace,
//! or the socket of a VMM.
use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::Finding;
use crate::{mounts, netns, sockets, views::word};

/// A tenant's place is not there: it may be mistyped, or what makes it has not started.
pub fn gone(vm: &Value) -> Option<Finding> {
    let (place, cgroups) = (vm["tenant"].as_str()?, cgroups());
    let file = place.strip_prefix("netns:").map(netns::file);
    if let Some((file, of)) =
        file.as_ref().and_then(|file| Some((file, netns::of_a_process(file)?)))
    {
        return Some(of_a_process(vm, file, &of));
    }
    let what = match missing(place, cgroups.as_deref()) {
        Some(place) => format!("its place is not there: no {}", place.display()),
        None => not_one(place, cgroups.as_deref())?,
    };
    let name = word(&vm["name"]);
    let correct = match is_configured(vm) {
        true => format!("correct it in [vm.{name}] of the configuration, then restart ccc-vhost"),
        false => format!(
            "cccctl tenant remove {name}, then cccctl tenant add {name} with the right one and all \
             that was set of it"
        ),
    };
    Some(Finding::new(vm, what, format!("start what makes it; if it is mistyped: {correct}")))
}

/// It is of the daemon's configuration, and cannot be removed.  An older daemon does not say.
pub fn is_configured(vm: &Value) -> bool {
    vm["added"] == false
}

/// How a tenant is removed.
fn removal(vm: &Value) -> String {
    let name = word(&vm["name"]);
    match is_configured(vm) {
        true => format!("take [vm.{name}] out of the configuration and restart ccc-vhost"),
        false => format!("cccctl tenant remove {name}"),
    }
}

/// It is a process's namespace, as an earlier release let it be, or a link to one: ccc-bpf looks at
/// none.
fn of_a_process(vm: &Value, file: &Path, of: &Path) -> Finding {
    let (name, path) = (word(&vm["name"]), file.display());
    if file != of {
        return Finding::new(
            vm,
            format!(
                "{path} is a link to a process's namespace ({}): ccc-bpf takes none",
                of.display()
            ),
            format!(
                "remove the link, then ip netns attach {} PID: it is found within a second; again \
                 after each restart of what is in it",
                file.file_name().unwrap_or_default().to_string_lossy()
            ),
        );
    }
    Finding::new(
        vm,
        format!(
            "{path} is a process's namespace, whose number is another's later: ccc-bpf takes none"
        ),
        format!(
            "give its namespace a name (ip netns attach NAME PID); then cccctl tenant remove {name}, \
             and cccctl tenant add {name} --netns NAME with all that was set of it; of one of the \
             configuration: tenant = \"netns:NAME\" there"
        ),
    )
}

/// What ccc-bpf.service does not see of the host (`PrivateTmp=`, `ProtectHome=`, `PrivateDevices=`).
const HIDDEN: [&str; 6] = ["/tmp", "/var/tmp", "/home", "/root", "/run/user", "/dev"];

/// A namespace is there for everybody but the unit that looks for it.
pub fn hidden(vm: &Value) -> Option<Finding> {
    let name = vm["tenant"].as_str()?.strip_prefix("netns:")?;
    let file = netns::file(name).canonicalize().ok().filter(|_| vm["connected"] == false)?;
    let directory = HIDDEN.iter().find(|directory| file.starts_with(directory))?;
    Some(Finding::new(
        vm,
        format!(
            "{} is not seen by ccc-bpf.service, which has no {directory} of the host's",
            file.display()
        ),
        format!(
            "give it a name: mkdir -p /run/netns, touch /run/netns/NAME, mount --bind {} \
             /run/netns/NAME; then make it netns:NAME: cccctl tenant remove {}, and add it with all that \
             was set of it; of one in the configuration: that tenant there, and restart ccc-vhost",
            file.display(),
            word(&vm["name"])
        ),
    ))
}

/// What is there is something else than a tenant says.
fn not_one(place: &str, cgroups: Option<&Path>) -> Option<String> {
    let file = file(place, cgroups)?;
    let (is_one, kind) = match place.split_once(':')?.0 {
        "cgroup" => (fs::metadata(&file).ok()?.is_dir(), "cgroup"),
        "netns" => (netns::is_one(&file)?, "network namespace"),
        _ => return None,
    };
    (!is_one).then(|| format!("{} is no {kind}", file.display()))
}

/// Others than the daemon's user may connect as a tenant: as a VM's QEMU, where its socket is.
pub fn open(vm: &Value) -> Option<Finding> {
    let socket = vm["tenant"].as_str().and(vm["socket"].as_str())?;
    Some(open_to(vm, socket, &sockets::open_to(Path::new(socket))?))
}

fn open_to(vm: &Value, socket: &str, group: &str) -> Finding {
    let name = word(&vm["name"]);
    Finding::new(
        vm,
        format!("whoever is of the group {group} may connect to {socket} and take its place"),
        format!(
            "cccctl tenant remove {name}, then cccctl tenant add {name} with all that was set of it: \
             it is in /run/ccc/tenant then; of one of the configuration: another socket there"
        ),
    )
}

/// What a place is: a file, which the kernel knows by device and inode whatever its name, or what
/// is written where none is there.
#[derive(PartialEq, Eq, Hash)]
enum Is<'a> {
    File(u64, u64),
    Written(&'a str),
}

/// Whose the places of tenants are, each looked at once: there may be a thousand.
pub struct Places<'a> {
    cgroups: Option<PathBuf>,
    connected: HashMap<Is<'a>, Vec<&'a Value>>,
}

impl<'a> Places<'a> {
    /// Those of the tenants among these VMs.
    pub fn of(vms: &'a [Value]) -> Places<'a> {
        let mut places = Places { cgroups: cgroups(), connected: HashMap::new() };
        for vm in vms.iter().filter(|vm| vm["connected"] == true) {
            if let Some(place) = vm["tenant"].as_str() {
                places.connected.entry(places.what_is(place)).or_default().push(vm);
            }
        }
        places
    }

    fn what_is<'b>(&self, place: &'b str) -> Is<'b> {
        let there = file(place, self.cgroups.as_deref()).and_then(|file| fs::metadata(file).ok());
        there.map_or(Is::Written(place), |there| Is::File(there.dev(), there.ino()))
    }

    /// Another tenant has a tenant's place: a place is that of the first, of which only ccc-bpf
    /// knows which it is where both are connected, as when one namespace was bound over the
    /// other's name.
    pub fn taken(&self, vm: &Value) -> Option<Finding> {
        let place = vm["tenant"].as_str()?;
        let there = self.connected.get(&self.what_is(place))?;
        let other = there.iter().find(|other| other["name"] != vm["name"])?;
        let (name, removals) = (word(&other["name"]), [removal(vm), removal(other)].join(", or "));
        let (what, remedy) = match vm["connected"] == true {
            true => (
                format!("{name} has its place, {place}, too: flows there are all of one tenant"),
                format!(
                    "make one of the two places anew, as it was; or {removals}, and add that one \
                     elsewhere with all that was set of it"
                ),
            ),
            false => (
                format!("{name} has its place, {place}: it waits until that one is removed"),
                format!("{removals}: then it has the place within a second"),
            ),
        };
        Some(Finding::new(vm, what, remedy))
    }
}

/// Where the second kind of cgroups is mounted, as ccc-bpf looks for it.
fn cgroups() -> Option<PathBuf> {
    mounts::of_type("cgroup2").ok()?.into_iter().next()
}

/// The directory or file that a place is.
fn file(place: &str, cgroups: Option<&Path>) -> Option<PathBuf> {
    match place.split_once(':')? {
        ("cgroup", path) => Some(cgroups?.join(path.trim_start_matches('/'))),
        ("netns", name) => Some(netns::file(name)),
        // Its own socket; the relay's beside it has _PORT behind the name.
        ("vsock", path) if path.starts_with('/') => Some(path.into()),
        _ => None,
    }
}

/// The directory or file that a place is and is not there.
fn missing(place: &str, cgroups: Option<&Path>) -> Option<PathBuf> {
    let path = file(place, cgroups)?;
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
        let cgroups = dir.path().join("cgroup");
        let missing = |place: &str| missing(place, Some(&cgroups));
        fs::create_dir_all(cgroups.join("system.slice/web.service")).expect("made");
        assert_eq!(super::missing("cgroup:sytem.slice", None), None, "nobody can tell");
        assert_eq!(missing("cgroup:system.slice/web.service"), None);
        assert_eq!(missing("cgroup:/system.slice"), None, "below the root, however it is written");
        assert_eq!(missing("cgroup:sytem.slice"), Some(cgroups.join("sytem.slice")));
        assert_eq!(missing("of another release"), None);
        fs::write(cgroups.join("cgroup.procs"), "").expect("written");
        let not_one = |place: &str| not_one(place, Some(&cgroups));
        let told = format!("{} is no cgroup", cgroups.join("cgroup.procs").display());
        assert_eq!(not_one("cgroup:/cgroup.procs"), Some(told));
        assert_eq!(not_one("cgroup:system.slice"), None);
        let other = not_one("netns:/proc/self/ns/uts").expect("another kind");
        assert_eq!(other, "/proc/self/ns/uts is no network namespace");
        assert_eq!(not_one("netns:/proc/self/ns/net"), None);
    }

    #[test]
    fn a_file_that_is_no_namespace_is_told() {
        let file = gone(&json!({"name": "web", "tenant": "netns:/etc/passwd"}));
        assert_eq!(file.expect("a finding").what, "/etc/passwd is no network namespace");
        assert_eq!(gone(&json!({"name": "web", "tenant": "vsock:7"})), None);
    }

    #[test]
    fn what_the_unit_does_not_see_is_told() {
        let file = tempfile::NamedTempFile::new_in("/tmp").expect("a file");
        let place = format!("netns:{}", file.path().display());
        let tenant = |connected| json!({"name": "web", "tenant": place, "connected": connected});
        let found = hidden(&tenant(false)).expect("a finding");
        assert!(found.what.contains("ccc-bpf.service, which has no /tmp"), "{found:?}");
        assert!(found.remedy.contains("cccctl tenant remove web"), "{found:?}");
        assert_eq!(hidden(&tenant(true)), None, "whoever runs by hand");
        let elsewhere = json!({"name": "web", "tenant": "netns:/etc/passwd", "connected": false});
        assert_eq!(hidden(&elsewhere), None);
    }

    #[test]
    fn a_process_s_namespace_is_told_whether_it_is_there_or_not() {
        for of in ["self", "0"] {
            let place = format!("/proc/{of}/ns/net");
            let found = gone(&json!({"name": "web", "tenant": format!("netns:{place}")}));
            let Finding { what, remedy, .. } = found.expect("a finding");
            assert!(what.starts_with(&format!("{place} is a process's")), "{what}");
            assert!(remedy.contains("(ip netns attach NAME PID); then cccctl tenant remove web"));
        }
        let dir = tempfile::tempdir().expect("directory");
        let link = dir.path().join("docker");
        std::os::unix::fs::symlink("/proc/self/ns/net", &link).expect("a link");
        let tenant = format!("netns:{}", link.display());
        let found = gone(&json!({"name": "web", "tenant": tenant})).expect("a finding");
        assert!(found.what.contains("is a link to a process's namespace (/proc/self/ns/net)"));
        assert!(found.remedy.starts_with("remove the link, then ip netns attach docker PID"));
    }

    #[test]
    fn a_tenant_whose_socket_is_others_too_is_told_and_no_vm() {
        let web = json!({"name": "web", "tenant": "netns:web", "socket": "/run/ccc/vm/web.sock"});
        let found = open_to(&web, "/run/ccc/vm/web.sock", "libvirt-qemu");
        assert!(found.what.starts_with("whoever is of the group libvirt-qemu may connect to"));
        assert!(found.remedy.starts_with("cccctl tenant remove web, then cccctl tenant add web"));
        assert_eq!(open(&json!({"name": "web", "tenant": null, "socket": "/run/s"})), None);
    }

    #[test]
    fn a_place_is_known_by_another_name() {
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        let place = |name: &str| format!("netns:{}", at(name).display());
        fs::write(at("a"), "").expect("written");
        fs::write(at("other"), "").expect("written");
        fs::hard_link(at("a"), at("b")).expect("a second name, as a second mount gives it");
        let tenant = |name: &str, connected: bool| json!({"name": name, "tenant": place(name), "connected": connected});
        let first = tenant("a", true);
        let found =
            Places::of(std::slice::from_ref(&first)).taken(&tenant("b", false)).expect("told");
        let told = format!("a has its place, {}: it waits until that one is removed", place("b"));
        assert_eq!(found.what, told);
        // One that was connected before its name became the other's.
        let both = [first.clone(), tenant("b", true)];
        for (vm, place, other) in [(&both[0], place("a"), "b"), (&both[1], place("b"), "a")] {
            let what = Places::of(&both).taken(vm).expect("told").what;
            assert!(what.starts_with(&format!("{other} has its place, {place}, too")));
        }
        for free in ["other", "nowhere"] {
            assert_eq!(
                Places::of(std::slice::from_ref(&first)).taken(&tenant(free, false)),
                None,
                "{free}"
            );
        }
        let both = [tenant("nowhere", true), first];
        assert_eq!(
            Places::of(&both).taken(&tenant("gone", false)),
            None,
            "none of two that are not there"
        );
    }

    #[test]
    fn a_vm_has_no_place_and_a_tenant_without_one_is_found() {
        assert_eq!(gone(&json!({"name": "web"})), None);
        let web = json!({"name": "web", "tenant": "netns:ccc-test-nowhere"});
        let found = gone(&web).expect("a finding");
        assert!(found.what.ends_with("no /run/netns/ccc-test-nowhere"), "{found:?}");
        assert!(found.remedy.contains("cccctl tenant remove web"), "{found:?}");
        assert!(found.remedy.ends_with("and all that was set of it"), "{found:?}");
        let mut configured = web.clone();
        configured["added"] = json!(false);
        let found = gone(&configured).expect("a finding");
        assert!(found.remedy.contains("correct it in [vm.web]"), "{found:?}");
        assert!(!found.remedy.contains("tenant remove"), "it is refused: {found:?}");
        assert!(removal(&configured).starts_with("take [vm.web] out of the configuration"));
    }
}
