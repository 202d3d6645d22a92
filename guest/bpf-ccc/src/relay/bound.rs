// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A Unix socket at a path that one relay has at a time.
//!
//! Nobody connects in order to see whether another is there: that one would take it for an agent.
//! A lock on a file beside the socket says so, which the kernel lets go whatever becomes of us.
use std::{
    fs::{self, File},
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use super::directory::{Directories, Held};

/// A socket that we listen at; its file goes with it.
#[derive(Debug)]
pub struct Bound {
    listener: UnixListener,
    path: PathBuf,
    /// Which file it is: another may be at the path by now.
    file: (u64, u64),
    _lock: Lock,
    held: Held,
}

impl Bound {
    /// Listens at a path, where nobody else does and nobody can come between.
    pub fn at(path: &Path, directories: &Directories) -> Result<Bound> {
        let cannot = || format!("cannot listen at {}", path.display());
        let taken = || format!("{}: somebody else listens there", path.display());
        let held = directories.enter(path).with_context(cannot)?;
        let lock = Lock::beside(path).with_context(cannot)?;
        let lock = lock.with_context(|| format!("{}; expected one ccc-bpf relay", taken()))?;
        // One who knows nothing of the lock.
        ensure!(!is_live(path), "{}; expected a path of the relay's own", taken());
        if fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
            fs::remove_file(path).with_context(cannot)?;
        }
        let listener = UnixListener::bind(path).with_context(cannot)?;
        listener.set_nonblocking(true)?;
        let file = id(path).with_context(cannot)?;
        Ok(Bound { listener, path: path.to_owned(), file, _lock: lock, held })
    }

    /// Whether who connects to the path comes to us: the socket may have been removed.
    pub fn is_there(&self) -> bool {
        id(&self.path).is_some_and(|there| there == self.file)
    }

    /// Fails once somebody could come between: the way may be another than it was.
    pub fn check_way(&self) -> Result<()> {
        self.held.check().with_context(|| format!("cannot go on at {}", self.path.display()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where agents come in.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Which file is at a path, if one is.
fn id(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

/// Somebody listens at a path, whether or not we could connect.
fn is_live(path: &Path) -> bool {
    let connect = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    matches!(connect(), Ok(()) | Err(Errno::AGAIN | Errno::ACCESS | Errno::PROTOTYPE))
}

/// A locked file, which goes with the lock.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// That of a socket; none if another has it.
    fn beside(socket: &Path) -> Result<Option<Lock>> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        // Others may write to the directory: no link is followed, and no FIFO waited for.
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file =
            File::from(rustix::fs::open(&path, how | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => bail!("cannot lock {}: {error}", path.display()),
        }
        // Who had it before may have removed it meanwhile.
        let meta = file.metadata()?;
        let is_there = id(&path) == Some((meta.dev(), meta.ino()));
        Ok(is_there.then_some(Lock { path, file }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the lock goes, so that nobody removes another's; ours may have been removed.
        let ours = self.file.metadata().ok().map(|ours| (ours.dev(), ours.ino()));
        if ours.is_some() && id(&self.path) == ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn at(path: &Path) -> Result<Bound> {
        Bound::at(path, &Directories::default())
    }

    /// A path in a directory of its own.
    fn path(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("ccc-bpf-bound-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("a directory");
        directory.join("vm_1063")
    }

    /// What is in its directory; it is removed.
    fn left(path: &Path) -> Vec<String> {
        let directory = path.parent().expect("a directory");
        let there = fs::read_dir(directory).expect("read").flatten();
        let names = there.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        fs::remove_dir_all(directory).expect("removed");
        names
    }

    fn refused(path: &Path) -> String {
        format!("{:#}", at(path).expect_err("refused"))
    }

    #[test]
    fn a_second_one_is_refused_and_harms_nothing() {
        let path = path("second");
        let first = at(&path).expect("the first");
        assert!(
            refused(&path).ends_with("somebody else listens there; expected one ccc-bpf relay")
        );
        assert!(first.listener().accept().is_err(), "nobody has connected");
        assert!(is_live(&path));
        drop(first);
        drop(at(&path).expect("after the first"));
        assert_eq!(left(&path), [""; 0]);
    }

    #[test]
    fn a_directory_that_anybody_may_write_to_is_refused() {
        let path = path("open");
        let directory = path.parent().expect("a directory");
        let chmod = |mode| {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).expect("set");
        };
        chmod(0o1777);
        let why = refused(&path);
        assert!(
            why.contains("mode 1777") && why.contains("expected a directory of its own"),
            "{why}"
        );
        chmod(0o2770);
        drop(at(&path).expect("its VMM's group may"));
        assert_eq!(left(&path), [""; 0]);
    }

    #[test]
    fn a_socket_that_was_removed_is_missed() {
        let path = path("removed");
        let first = at(&path).expect("the first");
        assert!(first.is_there());
        // With all that is beside it.
        for file in fs::read_dir(path.parent().expect("a directory")).expect("read").flatten() {
            fs::remove_file(file.path()).expect("removed");
        }
        assert!(!first.is_there());
        let again = at(&path).expect("made again");
        drop(first);
        assert!(again.is_there() && is_live(&path), "what is dropped leaves it alone");
        drop(again);
        assert_eq!(left(&path), [""; 0]);
    }

    #[test]
    fn what_another_has_bound_stays() {
        let path = path("other");
        let first = at(&path).expect("the first");
        fs::remove_file(&path).expect("removed");
        let other = UnixListener::bind(&path).expect("another's");
        drop(first);
        assert!(is_live(&path));
        assert!(refused(&path).ends_with("expected a path of the relay's own"));
        drop(other);
        drop(at(&path).expect("one that is left over is taken away"));
        assert_eq!(left(&path), [""; 0]);
    }
}
