// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What of this host a tenant is: by which number the kernel knows a cgroup or a network
//! namespace.
use std::{
    ffi::c_int,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result};
use rustix::{
    fs::{CWD, FsWord, Mode, OFlags, ResolveFlags},
    io::Errno,
    net::{AddressFamily, SocketType},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::{hopeless::Hopeless, mounts};

/// Socket option: the cookie of a socket's namespace.
const SO_NETNS_COOKIE: c_int = 71;
/// The file system of namespaces (NSFS_MAGIC).
const NSFS: FsWord = 0x6e73_6673;
/// Where `ip netns` keeps them.
const NETNS: &str = "/run/netns";

/// A part of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A cgroup of the second kind, by its path from their root.
    Cgroup(String),
    /// A network namespace, by its name or a path.
    Netns(String),
}

/// A place that is there, by a number that no later one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The number of a cgroup: the kernel counts up, on machines of 64 bits.
    Cgroup(u64),
    /// The cookie of a namespace, and not its file's inode, which the next one may have.
    Netns(u64),
}

impl Place {
    /// As the daemon's settings have it: `cgroup:PATH` or `netns:NAME`.
    pub fn parse(text: &str) -> Option<Place> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            "cgroup" => Some(Place::Cgroup(name.to_owned())),
            "netns" => Some(Place::Netns(name.to_owned())),
            _ => None,
        }
    }

    /// The directories in which it, and what it is in, are made.  Of a namespace there is none:
    /// it is mounted.
    pub fn parents(&self, cgroup_root: &Path) -> Vec<PathBuf> {
        let Place::Cgroup(path) = self else { return Vec::new() };
        let place = cgroup_root.join(path.trim_start_matches('/'));
        let parents = place.ancestors().skip(1).take_while(|at| at.starts_with(cgroup_root));
        parents.map(Path::to_owned).collect()
    }

    /// The place, if it is there now.
    ///
    /// # Errors
    /// If that cannot be told, as for want of descriptors.
    pub fn find(&self, cgroup_root: &Path) -> Result<Option<Found>> {
        match self {
            Place::Cgroup(path) => {
                let path = cgroup_root.join(path.trim_start_matches('/'));
                match fs::metadata(&path) {
                    Err(error) if is_none(error.kind()) => Ok(None),
                    there => {
                        let there = there.with_context(|| path.display().to_string())?;
                        // A file in a cgroup has a number, too.
                        Ok(there.is_dir().then(|| Found::Cgroup(there.ino())))
                    }
                }
            }
            Place::Netns(name) => {
                // An absolute path stays as it is.
                let there = namespace(&Path::new(NETNS).join(name))?;
                there.map(|there| Ok(Found::Netns(cookie(&there)?))).transpose()
            }
        }
    }
}

/// There is nothing of that name.
fn is_none(error: io::ErrorKind) -> bool {
    matches!(error, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The file of a namespace, if it is one, without opening it: who may set a tenant's place could name a
/// device, or a FIFO that nobody writes to.  A process's own, `/proc/PID/ns/net`, is none: that
/// number is another process's later, and the place of a tenant would be the host's.
fn namespace(path: &Path) -> Result<Option<File>> {
    let (how, lasts) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_MAGICLINKS);
    let there = match rustix::fs::openat2(CWD, path, how, Mode::empty(), lasts) {
        Err(Errno::LOOP) => return Ok(None),
        Err(error) if is_none(error.kind()) => return Ok(None),
        there => File::from(there.with_context(|| path.display().to_string())?),
    };
    Ok((rustix::fs::fstatfs(&there)?.f_type == NSFS).then_some(there))
}

/// The cookie of a namespace: only a socket in it can be asked.
fn cookie(there: &File) -> Result<u64> {
    let file = File::open(format!("/proc/self/fd/{}", there.as_raw_fd()))?;
    let ask = move || -> Result<u64> {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), kind).context("not a network namespace")?;
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        let (mut cookie, mut length) = (0u64, size_of::<u64>() as libc::socklen_t);
        // SAFETY: the option has eight bytes, and both places live as long as the call.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &mut length,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error().into());
        }
        Ok(cookie)
    };
    // A thread of its own: it stays in the namespace.
    let asked = thread::Builder::new().spawn(ask)?;
    asked.join().unwrap_or_else(|_| anyhow::bail!("thread ended"))
}

/// Where the second kind of cgroups is mounted.
pub fn cgroup_root() -> Result<PathBuf> {
    let root = mounts::of_type("cgroup2")?.into_iter().next();
    let none = "no cgroup2 is mounted; expected one, as systemd does at /sys/fs/cgroup";
    root.ok_or_else(|| Hopeless(none.to_owned()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_set() {
        assert_eq!(Place::parse("cgroup:a/b"), Some(Place::Cgroup("a/b".to_owned())));
        assert_eq!(Place::parse("netns:web"), Some(Place::Netns("web".to_owned())));
        assert_eq!(Place::parse("vm"), None);
    }

    #[test]
    fn a_namespace_is_found_and_a_fifo_is_neither_found_nor_waited_for() {
        let lasting = std::env::temp_dir().join(format!("ccc-bpf-netns-{}", std::process::id()));
        std::os::unix::fs::symlink("/proc/self/ns/net", &lasting).expect("a link");
        for process_s in [Path::new("/proc/self/ns/net"), &lasting] {
            let found = namespace(process_s).expect("an answer");
            assert!(found.is_none(), "{}", process_s.display());
        }
        fs::remove_file(&lasting).expect("removed");
        let fifo = std::env::temp_dir().join(format!("ccc-bpf-fifo-{}", std::process::id()));
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).expect("a FIFO");
        let place = Place::Netns(fifo.display().to_string());
        let found = place.find(Path::new("/"));
        fs::remove_file(&fifo).expect("removed");
        assert_eq!(found.expect("an answer"), None);
    }

    #[test]
    fn a_cgroup_is_made_in_its_parents() {
        let (root, place) = (Path::new("/cg"), Place::Cgroup("/a/b".to_owned()));
        assert_eq!(place.parents(root), [Path::new("/cg/a"), Path::new("/cg")]);
        assert!(Place::Cgroup("/".to_owned()).parents(root).is_empty());
        assert!(Place::Netns("web".to_owned()).parents(root).is_empty());
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let place = Place::Cgroup("/of-nobody".to_owned());
        assert_eq!(place.find(Path::new("/proc")).expect("an answer"), None);
        let place = Place::Cgroup("/self/status".to_owned());
        assert_eq!(place.find(Path::new("/proc")).expect("an answer"), None, "a file");
        let place = Place::Netns("/proc/self/nobody".to_owned());
        assert_eq!(place.find(Path::new("/")).expect("an answer"), None);
    }

    #[test]
    fn what_cannot_be_looked_for_is_not_said_to_be_gone() {
        let long = "x".repeat(5000);
        assert!(Place::Cgroup(long.clone()).find(Path::new("/proc")).is_err());
        assert!(Place::Netns(long).find(Path::new("/")).is_err());
    }
}
