// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Other users than the one who runs the tests.
use std::{fs, os::unix::fs::PermissionsExt};

use tempfile::TempDir;

/// Does something as another user, of this thread only.
pub fn as_user<T: Send>(uid: u32, groups: &[u32], does: impl FnOnce() -> T + Send) -> T {
    use rustix::{
        fs::{Gid, Uid},
        thread::{set_thread_gid, set_thread_groups, set_thread_uid},
    };
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let run = || {
        set_thread_groups(&groups).unwrap();
        set_thread_gid(Gid::from_raw(uid)).unwrap();
        set_thread_uid(Uid::from_raw(uid)).unwrap();
        does()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not run: only root can be another user");
    }
    root
}

/// A directory that they may enter.
pub fn dir_for_all() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}
