// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is pinned in a bpffs: whose it is, who may use it, and how it is removed.
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use libbpf_rs::{MapCore, MapHandle, MapType, libbpf_sys};
use rustix::{
    fs::{FlockOperation, FsWord, flock, statfs},
    io::Errno,
};

use crate::{alone, hopeless::Hopeless, mounts};

// Names of what is pinned.
pub const RENO: &str = "reno";
pub const CUBIC: &str = "cubic";
pub const CHOOSE: &str = "choose";
pub const TABLES: &str = "tables";
pub const CGROUPS: &str = "cgroups";
pub const NETNS: &str = "netns";
pub const MESSAGES: &str = "messages";
/// What is there once all else is.
pub const COMPLETE: &str = "complete";

/// The file system of pins (BPF_FS_MAGIC).
const BPFFS: FsWord = 0xcafe_4a11;
/// Mode of the pins' directory: who may open it could hold its lock.
pub const OWNERS_ALONE: u32 = 0o700;
/// Others may put something there.
const OTHERS_WRITE: u32 = 0o022;

/// Before anything is made: elsewhere nothing can be pinned.
pub fn in_bpffs(pins: &Path) -> Result<()> {
    let there = pins.ancestors().find(|at| at.exists()).unwrap_or(Path::new("."));
    ensure!(statfs(there)?.f_type == BPFFS, Hopeless(no_bpffs(pins)));
    Ok(())
}

/// Why nothing can be made there.
pub fn no_bpffs(directory: &Path) -> String {
    format!(
        "cannot make {}; it has to be in a bpffs (mount -t bpf -o mode=0700 bpf /sys/fs/bpf), and this needs \
         CAP_BPF and CAP_NET_ADMIN",
        directory.display()
    )
}

/// Ends a registration that is its map's and not a link's, unless it has ended: who was killed then
/// has left the pin.
fn unregister(pin: &Path) -> Result<()> {
    let name = pin.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if ![RENO, CUBIC].contains(&name) {
        return Ok(());
    }
    match MapHandle::from_pinned_path(pin) {
        Ok(map) if map.map_type() == MapType::StructOps => {
            let (map, key) = (map.as_fd().as_raw_fd(), 0u32);
            // SAFETY: the map is open, and its keys are as long as this one, which is only read.
            ended(unsafe { libbpf_sys::bpf_map_delete_elem(map, (&raw const key).cast()) })
        }
        _ => Ok(()),
    }
}

fn ended(result: i32) -> Result<()> {
    match -result {
        0 | libc::ENOENT | libc::EINPROGRESS => Ok(()),
        error => Err(io::Error::from_raw_os_error(error).into()),
    }
}

/// Whether a directory's name is one that a program of ours has: a digest.
fn is_ours(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What others could have put there is not trusted; what they could only read is closed.
fn keep_others_out(pins: &File, user: u32) -> Result<()> {
    let meta = pins.metadata()?;
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    let told = || {
        Hopeless(format!(
            "is of user {owner} with mode {mode:04o}; expected user {user}, and nobody else to write; \
             remove it"
        ))
    };
    ensure!(owner == user && mode & OTHERS_WRITE == 0, told());
    Ok(pins.set_permissions(Permissions::from_mode(OWNERS_ALONE))?)
}

/// Two would give out the same tables.
pub fn lock(pins: &Path) -> Result<File> {
    let file = File::open(pins).with_context(|| format!("cannot open {}", pins.display()))?;
    let user = rustix::process::geteuid().as_raw();
    keep_others_out(&file, user).with_context(|| pins.display().to_string())?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            bail!("another ccc-bpf (run or agent) uses {}; stop it first", pins.display())
        }
        result => result.with_context(|| format!("cannot lock {}", pins.display()))?,
    }
    Ok(file)
}

/// Removes all that earlier ones of us have pinned, unless one runs, and says what that was.
/// Connections go on as the kernel's own algorithm does.
pub fn unload(pins: &Path, to: &mut impl io::Write) -> Result<()> {
    let at = pins.display();
    let is_there = pins.try_exists().with_context(|| cannot_look(pins))?;
    let removed = if is_there {
        let elsewhere = format!("{at} is not in a bpffs; expected the --pins of run or agent");
        ensure!(statfs(pins)?.f_type == BPFFS, Hopeless(elsewhere));
        remove_all(pins)?
    } else {
        0
    };
    match removed {
        0 => writeln!(to, "no program of ccc-bpf at {at}: nothing was removed")?,
        _ => writeln!(to, "removed the program of ccc-bpf at {at}")?,
    }
    Ok(())
}

/// How many programs there were.
fn remove_all(pins: &Path) -> Result<usize> {
    let _alone = lock(pins)?;
    let ours = ours(pins)?;
    ours.iter().try_for_each(|ours| remove(ours))?;
    alone::forget(pins)?;
    match fs::remove_dir(pins) {
        // What others have there stays, and so does where a bpffs is mounted.
        Err(error)
            if ![io::ErrorKind::DirectoryNotEmpty, io::ErrorKind::ResourceBusy]
                .contains(&error.kind()) =>
        {
            bail!("cannot remove {}: {error}", pins.display())
        }
        _ => Ok(ours.len()),
    }
}

/// The same wherever earlier ones of us have pinned: their `--pins` are not known.
pub fn unload_all(to: &mut impl io::Write) -> Result<()> {
    let (mut all, mut left) = (BTreeMap::new(), 0);
    let mut failed = |error| {
        log::error!("{error:#}");
        left += 1;
    };
    for at in mounts::of_type("bpf")? {
        // What is mounted over one is another's.
        if !statfs(&at).is_ok_and(|there| there.f_type == BPFFS) {
            log::warn!(
                "the bpffs at {} cannot be looked at, or is hidden by another mount",
                at.display()
            );
            continue;
        }
        for looked in pins_below(&at) {
            match looked {
                Ok(pins) => {
                    all.insert(pins, at.clone());
                }
                Err(error) => failed(error),
            }
        }
    }
    for (pins, at) in &all {
        match unload(pins, to).with_context(|| pins.display().to_string()) {
            Ok(()) => remove_parents(pins, at),
            Err(error) => failed(error),
        }
    }
    ensure!(left == 0, "what is pinned there stays until the next boot");
    if all.is_empty() {
        writeln!(to, "no program of ccc-bpf in any bpffs: nothing was removed")?;
    }
    Ok(())
}

/// Directories in a bpffs that were made for pins, and have nothing else.
fn remove_parents(pins: &Path, at: &Path) {
    let mut parents = pins.ancestors().skip(1).take_while(|parent| *parent != at);
    parents.all(|parent| fs::remove_dir(parent).is_ok());
}

fn cannot_look(at: &Path) -> String {
    format!("cannot look at {}; expected root", at.display())
}

/// Others may call theirs by such a name.
fn is_of_this_user(directory: &Path) -> bool {
    let Ok(there) = fs::symlink_metadata(directory) else { return false };
    let is_ours = there.uid() == rustix::process::geteuid().as_raw();
    if !is_ours {
        log::warn!("{} is of user {}: it is left alone", directory.display(), there.uid());
    }
    is_ours
}

/// Directories in which there are programs of ours, and where it cannot be told.
fn pins_below(at: &Path) -> Vec<Result<PathBuf>> {
    let look = || -> io::Result<Vec<PathBuf>> {
        let (device, mut inside) = (fs::metadata(at)?.dev(), Vec::new());
        for entry in fs::read_dir(at)? {
            let entry = entry?;
            // A bpffs that is mounted there is one of the mounts.
            match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                meta => {
                    let meta = meta?;
                    if meta.is_dir() && meta.dev() == device {
                        inside.push(entry.path());
                    }
                }
            }
        }
        Ok(inside)
    };
    let below = |path: PathBuf| match is_ours(&path) && path.join(TABLES).exists() {
        true if is_of_this_user(&path) => vec![Ok(at.to_owned())],
        true => Vec::new(),
        false => pins_below(&path),
    };
    match look() {
        Ok(inside) => inside.into_iter().flat_map(below).collect(),
        // It has gone meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => vec![Err(error).with_context(|| cannot_look(at))],
    }
}

/// Where earlier ones of us have pinned, and nothing else that is there.
pub fn ours(pins: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(pins)?.map(|entry| Ok(entry?.path()));
    paths.filter(|path| path.as_ref().map_or(true, |path| is_ours(path))).collect()
}

/// All that is pinned in such a directory.
pub fn remove(directory: &Path) -> Result<()> {
    for pin in fs::read_dir(directory)? {
        let pin = pin?;
        match pin.file_type()?.is_dir() {
            true => fs::remove_dir(pin.path())?,
            false => {
                unregister(&pin.path())?;
                fs::remove_file(pin.path())?;
            }
        }
    }
    Ok(fs::remove_dir(directory)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Where a program of ours has its pins.
    fn directory(pins: &Path) -> PathBuf {
        pins.join("fedcba9876543210")
    }

    #[test]
    fn pins_are_the_owners_alone() {
        let pins = std::env::temp_dir().join(format!("ccc-bpf-own-{}", std::process::id()));
        fs::create_dir(&pins).expect("made");
        let chmod = |mode| fs::set_permissions(&pins, Permissions::from_mode(mode)).expect("done");
        chmod(0o755);
        let running = lock(&pins).expect("ours");
        assert_eq!(running.metadata().expect("there").mode() & 0o7777, OWNERS_ALONE);
        let other = running.metadata().expect("there").uid() + 1;
        assert!(keep_others_out(&running, other).is_err(), "another's");
        drop(running);
        chmod(0o1777);
        assert!(lock(&pins).is_err(), "others may write");
        fs::remove_dir(&pins).expect("removed");
    }

    #[test]
    fn a_registration_that_has_ended_is_no_error() {
        for done in [0, libc::ENOENT, libc::EINPROGRESS] {
            assert!(ended(-done).is_ok());
        }
        assert!(ended(-libc::EPERM).is_err());
    }

    #[test]
    fn pins_are_found_wherever_they_are() {
        let bpffs = std::env::temp_dir().join(format!("ccc-bpf-all-{}", std::process::id()));
        let (here, there) = (bpffs.clone(), bpffs.join("a/b"));
        for pins in [&here, &there] {
            fs::create_dir_all(directory(pins).join(TABLES)).expect("made");
        }
        // One of others, who call theirs by such numbers, too.
        fs::create_dir_all(bpffs.join("c/0123456789abcdef/map")).expect("made");
        let found: Result<BTreeSet<PathBuf>> = pins_below(&bpffs).into_iter().collect();
        assert_eq!(found.expect("read"), BTreeSet::from([here, there]));
        fs::remove_dir_all(&bpffs).expect("removed");
    }

    #[test]
    fn what_others_have_pinned_stays() {
        let pins = std::env::temp_dir().join(format!("ccc-bpf-pins-{}", std::process::id()));
        let (ours, others) = (directory(&pins), pins.join("snap"));
        for directory in [&ours, &others] {
            fs::create_dir_all(directory).expect("done");
            fs::write(directory.join("map"), "").expect("done");
        }
        assert_eq!(remove_all(&pins).expect("done"), 1);
        assert!(!ours.exists() && others.join("map").exists());
        fs::remove_dir_all(&others).expect("done");
        let running = lock(&pins).expect("alone");
        assert!(remove_all(&pins).is_err() && pins.exists());
        drop(running);
        assert_eq!(remove_all(&pins).expect("done"), 0);
        assert!(!pins.exists());
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_said_to_be_gone() {
        let long = PathBuf::from("x".repeat(5000));
        assert!(unload(&long, &mut io::sink()).is_err());
        assert!(pins_below(&long).iter().any(Result::is_err));
    }
}
