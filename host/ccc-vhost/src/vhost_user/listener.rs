// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Where front ends connect.
use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{
            fs::{FileTypeExt, MetadataExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, Gid, Mode},
    io::Errno,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt},
};
use thiserror::Error;

use crate::{event_loop::foreign::Stream, event_loop::open_files, logging::with_cause};

/// Who may open a socket's file, and how many may wait to be accepted.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Mode of the file.
    pub mode: Mode,
    /// Its group, if not the process's.
    pub group: Option<Gid>,
    /// Those that may wait; the kernel has a limit of its own
    /// (net.core.somaxconn).
    pub backlog: i32,
}

/// The socket of a VM: for QEMU, by the group of the file.
const VM: Manner = Manner { mode: Mode::from_raw_mode(0o660), group: None, backlog: 128 };

/// Of a socket that cannot be given to its group.
const OWN: Mode = Mode::from_raw_mode(0o600);

/// Why a VM cannot be served.
#[derive(Debug, Error)]
pub enum ListenError {
    #[error("{0} exists and is no socket; remove it or choose another path")]
    NoSocket(PathBuf),
    #[error("{0} is in use by a running process; stop it or choose another path")]
    InUse(PathBuf),
    #[error(
        "{0} is a socket of another user's, left over perhaps by a daemon that ran as that user; \
         remove it if nobody listens there"
    )]
    OtherUser(PathBuf),
    #[error("cannot listen on {path}: there is no directory {dir}; create it")]
    NoDirectory { path: PathBuf, dir: PathBuf },
    #[error("cannot listen on {path}: {error}{}", advice(.error))]
    Bind { path: PathBuf, error: io::Error },
    #[error(
        "no file descriptor is left for {path}: the limit is {limit} open files; raise \
         LimitNOFILE= of the daemon's unit, or its hard limit (ulimit -Hn)"
    )]
    Files { path: PathBuf, limit: u64 },
    #[error("file descriptor {0} is no Unix socket; pass a listening or connected one")]
    Descriptor(RawFd, #[source] io::Error),
    #[error(
        "its socket {0} was removed, which the service manager passed: systemctl stop ccc-vhost, \
         restart the socket's unit, and start ccc-vhost"
    )]
    PassedGone(PathBuf),
    #[error("file descriptor {0} is a connected socket; pass a listening one")]
    NotListening(RawFd),
}

impl ListenError {
    /// Makes sure that the directory of a socket is there.
    pub fn no_directory(path: &Path) -> Result<(), ListenError> {
        match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() && !dir.is_dir() => {
                Err(ListenError::NoDirectory { path: path.to_owned(), dir: dir.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// What became of listening on `path`.
    pub fn bind(path: &Path, error: io::Error) -> ListenError {
        let path = path.to_owned();
        if open_files::is_want_of_files(&error) {
            ListenError::Files { path, limit: open_files::files() }
        } else {
            ListenError::Bind { path, error }
        }
    }
}

/// What a unit or a profile is in the way of, by the error of the kernel.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; the unit lets the daemon write in /run/ccc alone: name the directory in \
             ReadWritePaths= (systemctl edit ccc-vhost), and restart it"
        }
        io::ErrorKind::PermissionDenied => {
            "; if the directory was made after the daemon had started: systemctl restart ccc-vhost; \
             else let the daemon's user make files in the directory; where AppArmor is in force, name \
             it in /etc/apparmor.d/local/ccc-vhost, too"
        }
        _ => "",
    }
}

/// Where the front end of one VM connects.
#[derive(Debug)]
pub enum Endpoint {
    /// Front ends connect, one at a time, again and again.
    Listening { listener: UnixListener, bound: Option<Bound> },
    /// There is one front end, and no other after it.
    Connected(Option<UnixStream>),
    /// Nobody can connect yet.
    Failed(ListenError),
}

/// A socket's file, removed in the end unless it is somebody else's by then.
#[derive(Debug)]
pub struct Bound {
    path: PathBuf,
    identity: (u64, u64),
}

impl Endpoint {
    /// Listens on `path`, in place of a socket nobody listens on any more.
    pub fn bind(path: &Path) -> Result<Endpoint, ListenError> {
        let (listener, bound) = bind(path, VM)?;
        Ok(Endpoint::Listening { listener, bound: Some(bound) })
    }

    /// Takes over a socket the parent process opened.
    pub fn inherited(fd: RawFd) -> Result<Endpoint, ListenError> {
        // SAFETY: the number is only looked at here, and a file descriptor that
        // is not open is refused with an error by the system call.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd.max(0)) };
        let wrong = |error: rustix::io::Errno| ListenError::Descriptor(fd, error.into());
        let listens = sockopt::socket_acceptconn(borrowed).map_err(wrong)?;
        if sockopt::socket_domain(borrowed).map_err(wrong)? != AddressFamily::UNIX {
            return Err(wrong(rustix::io::Errno::AFNOSUPPORT));
        }
        // SAFETY: the caller passed the descriptor on to this process for this
        // use, it is open, and nothing else here uses it.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        if !listens {
            return Ok(Endpoint::Connected(Some(UnixStream::from(owned))));
        }
        let listener = UnixListener::from(owned);
        listener.set_nonblocking(true).map_err(|error| ListenError::Descriptor(fd, error))?;
        Ok(Endpoint::Listening { listener, bound: None })
    }

    /// What to wait for, if front ends are still to come.
    pub fn listening(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Endpoint::Listening { listener, .. } => Some(listener.as_fd()),
            Endpoint::Connected(_) | Endpoint::Failed(_) => None,
        }
    }

    /// Why nobody can connect, if nobody can.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Endpoint::Failed(error) => Some(with_cause(error)),
            _ => None,
        }
    }

    /// The same, also of a socket that was passed: whoever has made it is to make it again.
    pub fn unserved(&self) -> Option<String> {
        match self {
            Endpoint::Listening { listener, bound: None } => {
                Some(ListenError::PassedGone(passed_gone(listener)?).to_string())
            }
            _ => self.trouble(),
        }
    }

    /// The socket's file is there no more, or is somebody else's, so nobody can come.
    pub fn is_gone(&self) -> bool {
        matches!(self, Endpoint::Listening { bound: Some(bound), .. } if bound.is_gone())
    }

    /// The next front end, if there is one.
    pub fn accept(&mut self) -> io::Result<Option<Stream>> {
        match self {
            Endpoint::Listening { listener, .. } => match listener.accept() {
                Ok((stream, _)) => Ok(Some(Stream::new(stream))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(error),
            },
            Endpoint::Connected(stream) => Ok(stream.take().map(Stream::new)),
            Endpoint::Failed(_) => Ok(None),
        }
    }
}

/// Takes over a listening socket the parent process opened, with as many that may wait as its
/// own would have.
pub fn inherited(fd: RawFd, backlog: i32) -> Result<UnixListener, ListenError> {
    let Endpoint::Listening { listener, .. } = Endpoint::inherited(fd)? else {
        return Err(ListenError::NotListening(fd));
    };
    // To who connects the kernel names the process that has called this last: by that clients
    // know one daemon from the next.
    net::listen(&listener, backlog).map_err(|error| ListenError::Descriptor(fd, error.into()))?;
    Ok(listener)
}

/// Listens on `path`, in place of a socket nobody listens on any more.
pub fn bind(path: &Path, manner: Manner) -> Result<(UnixListener, Bound), ListenError> {
    ListenError::no_directory(path)?;
    clear(path)?;
    let failed = |error| ListenError::bind(path, error);
    let listener = listen(path, manner).map_err(failed)?;
    let identity = identity(path).map_err(failed)?;
    Ok((listener, Bound { path: path.to_owned(), identity }))
}

/// A socket that those may open whom its mode lets, and nobody else at any time.
/// The mask for new files cannot see to that: it is the process's, of which
/// other threads create files.
fn listen(path: &Path, manner: Manner) -> io::Result<UnixListener> {
    let Manner { mode, group, backlog } = manner;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets the socket's mode less the mask, and then all of it.
    fs::fchmod(&socket, mode)?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let mode = if give(path, group) { mode } else { OWN };
    let opened = fs::chmod(path, mode).and_then(|()| net::listen(&socket, backlog));
    if let Err(error) = opened {
        // Nobody can use it; what is wrong is more than that it stays.
        drop(std::fs::remove_file(path));
        return Err(error.into());
    }
    Ok(UnixListener::from(socket))
}

/// Gives a socket to its group; whether that went.  A daemon that ended for it would couple
/// nobody, and would end as often as it is started again.
fn give(path: &Path, group: Option<Gid>) -> bool {
    let Some(gid) = group else { return true };
    let Err(error) = fs::chown(path, None, group) else { return true };
    log::warn!(
        "{} cannot be given to group {}: {error}; only root and the daemon's own user may use it; \
         give its directory that group and the set-group-ID bit (chmod g+s), or make the daemon's \
         user a member of the group, and restart the daemon",
        path.display(),
        gid.as_raw()
    );
    false
}

impl Bound {
    /// The file is the one that was made.
    fn is_there(&self) -> bool {
        identity(&self.path).is_ok_and(|now| now == self.identity)
    }

    /// It is not: of a file that cannot be looked at that is not known.
    fn is_gone(&self) -> bool {
        match identity(&self.path) {
            Ok(now) => now != self.identity,
            Err(error) => is_none(&error),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if !self.is_there() {
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            log::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Where a socket was made that is there no more.  Which file it is cannot be told from it.
fn passed_gone(listener: &UnixListener) -> Option<PathBuf> {
    let address = listener.local_addr().ok()?;
    let path = address.as_pathname()?;
    path.symlink_metadata().is_err_and(|error| is_none(&error)).then(|| path.to_owned())
}

/// There is no such file.
fn is_none(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let there = path.symlink_metadata()?;
    Ok((there.dev(), there.ino()))
}

/// Connects to a socket, to see whether somebody listens.  Whoever does may be too
/// busy to accept, which is not waited for.
fn probe(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let address = SocketAddrUnix::new(path)?;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(socket, &address)
}

/// Somebody listens on a socket.
pub fn is_served(path: &Path) -> bool {
    !matches!(probe(path), Err(Errno::CONNREFUSED | Errno::NOENT))
}

/// Removes a socket nobody listens on.
fn clear(path: &Path) -> Result<(), ListenError> {
    let Ok(there) = path.symlink_metadata() else { return Ok(()) };
    if !there.file_type().is_socket() {
        return Err(ListenError::NoSocket(path.to_owned()));
    }
    match probe(path) {
        Err(Errno::CONNREFUSED) => {}
        Err(Errno::ACCESS) => return Err(ListenError::OtherUser(path.to_owned())),
        _ => return Err(ListenError::InUse(path.to_owned())),
    }
    log::info!("replacing {}, on which nobody listens", path.display());
    std::fs::remove_file(path).map_err(|error| ListenError::bind(path, error))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_the_own_one_removed() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).expect("bound"));
        let endpoint = Endpoint::bind(&path).expect("replaced");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        drop(endpoint);
        assert!(!path.exists());
    }

    #[test]
    fn a_live_socket_and_a_file_are_left_alone() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("s");
        let _live = UnixListener::bind(&path).expect("bound");
        assert!(matches!(Endpoint::bind(&path), Err(ListenError::InUse(_))));
        let file = dir.path().join("f");
        fs::write(&file, "").expect("written");
        assert!(matches!(Endpoint::bind(&file), Err(ListenError::NoSocket(_))));
        assert!(file.exists() && path.exists());
    }

    #[test]
    fn a_socket_that_is_somebody_elses_by_now_stays() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("s");
        let endpoint = Endpoint::bind(&path).expect("bound");
        fs::rename(&path, dir.path().join("old")).expect("moved");
        fs::write(&path, "").expect("written");
        drop(endpoint);
        assert!(path.exists());
    }

    #[test]
    fn a_socket_that_cannot_be_looked_at_is_not_gone() {
        let dir = tempfile::tempdir().expect("directory");
        let (vms, away) = (dir.path().join("vms"), dir.path().join("away"));
        fs::create_dir(&vms).expect("made");
        let endpoint = Endpoint::bind(&vms.join("s")).expect("bound");
        assert!(!endpoint.is_gone());
        fs::rename(&vms, &away).expect("moved");
        assert!(endpoint.is_gone(), "nothing is there");
        fs::write(&vms, "").expect("written");
        assert!(endpoint.is_gone(), "no directory is");
        fs::remove_file(&vms).expect("removed");
        std::os::unix::fs::symlink(&vms, &vms).expect("a way that does not end");
        assert!(!endpoint.is_gone(), "for all one knows");
        fs::remove_file(&vms).and_then(|()| fs::rename(&away, &vms)).expect("there again");
        assert!(!endpoint.is_gone());
    }

    #[test]
    fn who_is_in_the_way_is_told_with_what_helps() {
        let of = |code| {
            let error = io::Error::from_raw_os_error(code);
            ListenError::bind(Path::new("/srv/vms/s"), error).to_string()
        };
        let told = of(libc::EROFS);
        assert!(told.starts_with("cannot listen on /srv/vms/s: Read-only"), "{told}");
        assert!(told.contains("ReadWritePaths= (systemctl edit ccc-vhost)"), "{told}");
        let told = of(libc::EACCES);
        let first = "Permission denied (os error 13); if the directory was made after the daemon had started:";
        assert!(told.contains(first), "{told}");
        assert!(told.contains("/etc/apparmor.d/local/ccc-vhost"), "{told}");
    }

    #[test]
    fn descriptors_that_are_no_sockets_are_refused() {
        for fd in [-1, 9999] {
            assert!(matches!(Endpoint::inherited(fd), Err(ListenError::Descriptor(..))));
        }
    }
}
