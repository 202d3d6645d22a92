// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tells when places may have come or gone.  A service that starts anew connects milliseconds
//! after its cgroup was made; a namespace has its name since it was mounted there.
use std::{
    collections::BTreeSet,
    fs::File,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    event::{PollFd, PollFlags},
    fs::inotify::{self, CreateFlags, WatchFlags},
};

use crate::places::Place;

/// Kinds of places, as those that may have come or gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Cgroups.
    pub cgroups: bool,
    /// Network namespaces.
    pub namespaces: bool,
}

impl Changed {
    /// Any.
    pub fn any(self) -> bool {
        self.cgroups || self.namespaces
    }

    /// Whether a place is of these.
    pub fn has(self, place: Option<&Place>) -> bool {
        match place {
            Some(Place::Cgroup(_)) => self.cgroups,
            Some(Place::Netns(_)) => self.namespaces,
            None => false,
        }
    }

    /// These, too.
    pub fn and(self, other: Changed) -> Changed {
        Changed {
            cgroups: self.cgroups || other.cgroups,
            namespaces: self.namespaces || other.namespaces,
        }
    }
}

/// Without either, places are found when they are looked for.
#[derive(Debug)]
pub struct Watch {
    inotify: Option<OwnedFd>,
    mounts: Option<File>,
    watched: BTreeSet<i32>,
}

impl Watch {
    /// One that watches mounts, and no directory yet.
    pub fn new() -> Watch {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .inspect_err(|error| {
                log::warn!("no inotify ({error}; fs.inotify.max_user_instances): services that start anew may begin uncoupled");
            })
            .ok();
        let mounts = File::open("/proc/self/mountinfo").ok();
        Watch { inotify, mounts, watched: BTreeSet::new() }
    }

    /// Watches these directories, parents before what is in them, and no others.  One that is
    /// not there is made in one that is watched.
    pub fn follow(&mut self, directories: &BTreeSet<PathBuf>) {
        let Some(inotify) = &self.inotify else { return };
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        let added = directories.iter().filter_map(|at| inotify::add_watch(inotify, at, flags).ok());
        let added: BTreeSet<i32> = added.collect();
        for gone in self.watched.difference(&added) {
            // One of a directory that was removed has gone with it.
            let _ = inotify::remove_watch(inotify, *gone);
        }
        self.watched = added;
    }

    /// What to poll; anything that is returned of them is a change ([`Watch::changed`]).
    pub fn polled(&self) -> Vec<PollFd<'_>> {
        let inotify = self.inotify.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
        inotify.chain(self.mounts.iter().map(|fd| PollFd::new(fd, PollFlags::PRI))).collect()
    }

    /// What may be another, by what was polled.
    pub fn changed(&self, polled: &[PollFd<'_>]) -> Changed {
        let (directories, mounts) = polled.split_at(usize::from(self.inotify.is_some()));
        let told = |of: &[PollFd<'_>]| of.iter().any(|fd| !fd.revents().is_empty());
        Changed { cgroups: told(directories), namespaces: told(mounts) }
    }

    /// Whether it is told of namespaces.
    pub fn sees_mounts(&self) -> bool {
        self.mounts.is_some()
    }

    /// Forgets what has been told.
    pub fn drain(&self) {
        let Some(inotify) = &self.inotify else { return };
        let mut events = [0u8; 4096];
        while rustix::io::read(inotify.as_fd(), &mut events).is_ok_and(|bytes| bytes > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::event::{Timespec, poll};

    use super::*;

    fn told(watch: &Watch) -> bool {
        let mut polled = watch.polled();
        polled.truncate(1);
        let most = Timespec { tv_sec: 0, tv_nsec: 0 };
        let told = poll(&mut polled, Some(&most)).expect("polled") > 0;
        watch.drain();
        told
    }

    #[test]
    fn what_is_made_below_a_directory_that_is_made_later_is_told() {
        let root = std::env::temp_dir().join(format!("ccc-bpf-watch-{}", std::process::id()));
        let slice = root.join("slice");
        fs::create_dir_all(&root).expect("made");
        let mut watch = Watch::new();
        let parents = BTreeSet::from([root.clone(), slice.clone()]);
        watch.follow(&parents);
        assert!(!told(&watch));
        fs::create_dir(&slice).expect("made");
        assert!(told(&watch));
        watch.follow(&parents);
        fs::create_dir(slice.join("service")).expect("made");
        assert!(told(&watch));
        watch.follow(&BTreeSet::new());
        watch.drain();
        fs::remove_dir_all(&root).expect("removed");
        assert!(!told(&watch));
    }
}
