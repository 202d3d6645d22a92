// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Files of network namespaces, by which tenants are named.
use std::{
    fs::{self, File},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

/// Where `ip netns` keeps them.
const NAMED: &str = "/run/netns";
/// A namespace, as all others on the file system of namespaces.
const OWN: &str = "/proc/self/ns/net";
/// The kernel follows no more links than that (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// The file of a namespace, by its name or its path.
pub fn file(name: &str) -> PathBuf {
    Path::new(NAMED).join(name)
}

mod kind {
    // NS_GET_NSTYPE of ioctl_ns(2).
    nix::ioctl_none!(of, 0xb7, 0x3);
}

/// Whether a file is a network namespace, and no other one, if that can be told.
pub fn is_one(file: &Path) -> Option<bool> {
    let device = |file: &Path| fs::metadata(file).ok().map(|there| there.dev());
    // No other file is opened: it may be a FIFO.
    if device(file)? != device(Path::new(OWN))? {
        return Some(false);
    }
    let file = File::open(file).ok()?;
    // SAFETY: the descriptor is open, and the request takes nothing.
    let kind = unsafe { kind::of(file.as_raw_fd()) }.ok()?;
    Some(kind == nix::libc::CLONE_NEWNET)
}

/// A process's file, if it is one or a link to one: its number is another's later, which may have
/// the host's namespace.
pub fn of_a_process(file: &Path) -> Option<PathBuf> {
    // Links of /proc itself lead to no path, so each is followed by what it says.
    let files = std::iter::successors(Some(real(file)), |file| {
        let to = fs::read_link(file).ok()?;
        Some(real(&file.parent()?.join(to)))
    });
    files.take(LINKS_MAX).find(|file| file.starts_with("/proc"))
}

/// A file by the real path of its directory, where there is one.
fn real(file: &Path) -> PathBuf {
    let directory = file.parent().and_then(|directory| directory.canonicalize().ok());
    match (directory, file.file_name()) {
        (Some(directory), Some(name)) if !file.starts_with("/proc") => directory.join(name),
        _ => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_namespace_of_another_kind_is_none() {
        let is_one = |file: &str| is_one(Path::new(file));
        for kind in ["uts", "mnt", "ipc"] {
            assert_eq!(is_one(&format!("/proc/self/ns/{kind}")), Some(false), "{kind}");
        }
        assert_eq!((is_one(OWN), is_one("/etc/passwd")), (Some(true), Some(false)));
        assert_eq!(is_one("/nowhere"), None);
    }

    #[test]
    fn a_process_s_is_known_behind_links() {
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        let link = |to: &str, name: &str| symlink(to, at(name)).expect("a link");
        fs::write(at("named"), "").expect("written");
        link("/proc/self/ns/net", "docker");
        link("docker", "by_link");
        link("/proc/0/ns/net", "ended");
        link("/proc/self/ns", "ns");
        link("named", "other");
        link("round", "round");
        for name in ["docker", "by_link", "ended", "ns/net"] {
            let file = of_a_process(&at(name));
            assert!(file.is_some_and(|file| file.starts_with("/proc")), "{name}");
        }
        for name in ["named", "other", "round", "nowhere", "nowhere/at/all"] {
            assert_eq!(of_a_process(&at(name)), None, "{name}");
        }
        assert!(of_a_process(Path::new("/proc/self/ns/net")).is_some());
        assert_eq!(of_a_process(Path::new("/")), None);
    }
}
