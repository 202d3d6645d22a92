// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whose the way to a socket is: whoever may change it can take the socket's place, and so a VM's.
//!
//! As sshd does for its files, each directory and link on the way is looked at as it was written:
//! what is behind a link may be closed and the link itself another's.
use std::{
    collections::{HashMap, VecDeque},
    ffi::OsString,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, bail, ensure};

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// Only its owner may remove what is in it.
const STICKY: u32 = 0o1000;
/// As the kernel follows.
const LINKS_MAX: usize = 40;

/// Which directory it is, however it is written.
type Id = (u64, u64);

/// The directory of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    id: Id,
    /// A group, as its VMM's, or an owner may write there who is neither root nor this user.
    others_write: bool,
}

/// Fails if anybody can take a socket's place who may not write to its directory itself, or if
/// anybody may do that.
pub fn of_socket(socket: &Path) -> Result<Directory> {
    let written = socket.parent().filter(|_| socket.is_absolute());
    let written = written.context("no directory; expected a path from the root")?;
    let (at, meta) = walk(written)?;
    ensure!(
        meta.mode() & OTHERS_WRITE == 0,
        "anybody may write to {} (mode {:04o}) and so take a VM's place; {}",
        at.display(),
        meta.mode() & 0o7777,
        remedy(&at)
    );
    let others_write = meta.mode() & GROUP_WRITES != 0 || !is_trusted(&meta);
    Ok(Directory { id: (meta.dev(), meta.ino()), others_write })
}

/// Follows a path from the root: where it leads, if nobody else can lead it elsewhere.
fn walk(written: &Path) -> Result<(PathBuf, Metadata)> {
    let mut at = PathBuf::from("/");
    let mut rest = parts(written);
    let mut links = 0;
    let mut meta = look(&at)?;
    while let Some(part) = rest.pop_front() {
        keeps_others_out(&at, &meta)?;
        if part == ".." {
            at.pop();
            meta = look(&at)?;
            continue;
        }
        let next = at.join(&part);
        let found = look(&next)?;
        if !found.is_symlink() {
            (at, meta) = (next, found);
            continue;
        }
        links += 1;
        ensure!(links <= LINKS_MAX, "{}: too many links", written.display());
        ensure!(
            is_trusted(&found),
            "{} is a link of user {}; {}",
            next.display(),
            found.uid(),
            MINE
        );
        let target = fs::read_link(&next).with_context(|| next.display().to_string())?;
        if target.is_absolute() {
            at = PathBuf::from("/");
            meta = look(&at)?;
        }
        let mut before = parts(&target);
        before.append(&mut rest);
        rest = before;
    }
    if !meta.is_dir() {
        bail!("{} is no directory", at.display());
    }
    Ok((at, meta))
}

const MINE: &str = "expected root's, or this user's";

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

fn look(at: &Path) -> Result<Metadata> {
    fs::symlink_metadata(at).with_context(|| at.display().to_string())
}

fn is_trusted(meta: &Metadata) -> bool {
    meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw()
}

/// Fails if others may replace what is in a directory on the way.
fn keeps_others_out(at: &Path, meta: &Metadata) -> Result<()> {
    let mode = meta.mode() & 0o7777;
    ensure!(is_trusted(meta), "{} on its way is of user {}; {MINE}", at.display(), meta.uid());
    let open = mode & (GROUP_WRITES | OTHERS_WRITE) & if mode & STICKY == 0 { !0 } else { 0 };
    if open == 0 {
        return Ok(());
    }
    let who = if open & OTHERS_WRITE != 0 { "anybody" } else { "a group" };
    bail!(
        "{who} may write to {} on its way (mode {mode:04o}) and so take a VM's place; expected \
         root's alone: chmod go-w {0}",
        at.display()
    )
}

fn remedy(at: &Path) -> String {
    format!(
        "expected a directory of its own, such as install -d -m 2770 -o ccc -g GROUP_OF_ITS_VMM {}",
        at.display()
    )
}

/// Who has which directory, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Directories(Arc<Mutex<HashMap<Id, Vec<PathBuf>>>>);

impl Directories {
    /// Has a socket be one of its directory's for as long as there is what is returned.
    pub fn enter(&self, socket: &Path) -> Result<Held> {
        let directory = of_socket(socket)?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(directory.id).or_default().push(socket.to_owned());
        drop(all);
        let held = Held { all: self.clone(), socket: socket.to_owned(), id: directory.id };
        held.is_alone(directory)?;
        Ok(held)
    }
}

/// A socket's part in its directory.
#[derive(Debug)]
pub struct Held {
    all: Directories,
    socket: PathBuf,
    id: Id,
}

impl Held {
    /// Fails if the way to the socket is not what it was, or others can come between by now.
    pub fn check(&self) -> Result<()> {
        let directory = of_socket(&self.socket)?;
        ensure!(directory.id == self.id, "its directory is another");
        self.is_alone(directory)
    }

    /// Fails if another was there before, and one VMM could take the other's socket.
    fn is_alone(&self, directory: Directory) -> Result<()> {
        let all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = all.get(&self.id).and_then(|sockets| sockets.first());
        match first.filter(|first| directory.others_write && **first != self.socket) {
            None => Ok(()),
            Some(first) => bail!(
                "{} is in the same directory, and others than this user may write there: one VMM \
                 could take the other's; expected a directory each",
                first.display()
            ),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sockets) = all.get_mut(&self.id) else { return };
        if let Some(ours) = sockets.iter().position(|socket| *socket == self.socket) {
            sockets.remove(ours);
        }
        if sockets.is_empty() {
            all.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// A directory of its own, which goes with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().join(format!("ccc-way-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).expect("made");
            Place(fs::canonicalize(path).expect("there"))
        }

        fn make(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(&path).expect("made");
            chmod(&path, mode);
            path
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    }

    fn refused(socket: &Path) -> String {
        format!("{:#}", of_socket(socket).expect_err("refused"))
    }

    #[test]
    fn a_directory_below_one_that_others_may_write_to_is_refused() {
        let place = Place::new("below");
        for (mode, who) in [(0o777, "anybody may write to"), (0o2770, "a group may write to")] {
            place.make("shared", 0o755);
            let own = place.make("shared/vm", 0o2770);
            chmod(&place.0.join("shared"), mode);
            let why = refused(&own.join("vm_1063"));
            assert!(why.starts_with(who) && why.contains("chmod go-w"), "{why}");
            chmod(&place.0.join("shared"), mode | STICKY);
            of_socket(&own.join("vm_1063")).expect("nobody else may rename it");
        }
    }

    #[test]
    fn a_link_is_looked_at_where_it_is_and_where_it_leads() {
        let place = Place::new("link");
        let own = place.make("own", 0o2770);
        let shared = place.make("shared", 0o777);
        symlink(&own, shared.join("vm")).expect("made");
        symlink(&own, place.0.join("vm")).expect("made");
        symlink("../own", shared.join("near")).expect("made");
        let why = refused(&shared.join("vm/vm_1063"));
        assert!(why.contains(&format!("anybody may write to {}", shared.display())), "{why}");
        let way = of_socket(&place.0.join("vm/vm_1063")).expect("root's, or ours");
        assert_eq!(way, of_socket(&own.join("vm_1063")).expect("the same"));
        chmod(&shared, 0o1777);
        assert_eq!(way, of_socket(&shared.join("near/vm_1063")).expect("the same"));
        symlink(place.0.join("round"), place.0.join("round")).expect("made");
        assert!(refused(&place.0.join("round/vm")).ends_with("too many links"));
    }

    #[test]
    fn what_is_another_user_s_is_refused_on_the_way_and_shared_with_nobody_at_its_end() {
        // Only root can give away.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = Place::new("owner");
        let vm = place.make("other/vm", 0o755);
        chown(vm.parent().expect("one"), Some(1), None).expect("given");
        assert!(refused(&vm.join("vm_1063")).contains("on its way is of user 1; expected root's"));
        let all = Directories::default();
        let first = all.enter(&place.0.join("other/a_1063")).expect("alone");
        all.enter(&place.0.join("other/b_1063")).expect_err("it could take the first's");
        first.check().expect("it was the first");
        place.make("sticky", 0o1777);
        symlink(&place.0, place.0.join("sticky/link")).expect("made");
        std::os::unix::fs::lchown(place.0.join("sticky/link"), Some(1), None).expect("given");
        assert!(refused(&place.0.join("sticky/link/vm")).contains("is a link of user 1"));
    }

    #[test]
    fn two_sockets_share_a_directory_only_while_nobody_else_may_write_there() {
        let place = Place::new("two");
        let own = place.make("own", 0o755);
        let all = Directories::default();
        let first = all.enter(&own.join("a_1063")).expect("the first");
        let second = all.enter(&own.join("b_1063")).expect("nobody else may write there");
        chmod(&own, 0o2770);
        first.check().expect("it was the first");
        let why = second.check().expect_err("refused by now").to_string();
        assert!(why.contains("a_1063") && why.ends_with("expected a directory each"), "{why}");
        drop(first);
        second.check().expect("it is the first now");
        chmod(&own, 0o777);
        assert!(second.check().is_err(), "anybody may write there by now");
        drop(second);
        assert!(all.0.lock().expect("whole").is_empty(), "nothing is left");
    }

    #[test]
    fn another_directory_in_the_place_of_the_first_is_seen() {
        let place = Place::new("swapped");
        let own = place.make("own", 0o755);
        let held = Directories::default().enter(&own.join("a_1063")).expect("there");
        fs::rename(&own, place.0.join("before")).expect("renamed");
        assert!(held.check().is_err(), "there is none");
        place.make("own", 0o755);
        assert_eq!(held.check().expect_err("another").to_string(), "its directory is another");
    }
}
