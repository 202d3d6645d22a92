// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How many files the daemon may have open.
use std::{io, os::fd::BorrowedFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that a new VM has to leave: for front ends of those that are there,
/// and for operators, who could not remove a VM any more otherwise.
const RESERVE: usize = 16;

/// Raises the limit of open files as far as it goes: every VM needs some, and
/// the usual limit of 1024 is meant for programs that use select().
pub fn raise_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::warn!("cannot raise the limit of open files from {}: {error}", files());
    }
}

/// Files that may be open at once.
pub fn files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Makes sure that some more files can be opened.
pub fn reserve(any: BorrowedFd<'_>) -> io::Result<()> {
    let opened: Result<Vec<_>, _> = (0..RESERVE).map(|_| any.try_clone_to_owned()).collect();
    opened.map(drop)
}

/// There are too many open files, here or in the whole system.
pub fn is_want_of_files(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let want = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| want.contains(&errno))
}
