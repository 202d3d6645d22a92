// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who may use the control socket.
//!
//! The file's mode keeps others out, but it is easily set wrong, and QEMU
//! processes run on the same host with groups of their own.  So the kernel is
//! asked who has connected (SO_PEERCRED, SO_PEERGROUPS), as polkit and D-Bus do.
use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use nix::unistd;
use rustix::{
    fs::{Gid, Mode},
    process::{geteuid, getpid},
};
use thiserror::Error;

use crate::vhost_user::listener::Manner;

/// Clients that may wait to be accepted: a host that starts has as many hooks at
/// once as it has VMs.
const BACKLOG: i32 = 4096;
/// Groups of a client that are looked at at first.
const USUAL_GROUPS: usize = 64;

/// Why nobody can be let in.
#[derive(Debug, Error)]
pub enum AuthorizationError {
    /// No such group.
    #[error(
        "the {key}' group `{name}` does not exist; create it (groupadd --system {name}), or name \
         another in [daemon] {key}"
    )]
    NoGroup {
        /// Whose group it is to be.
        key: &'static str,
        /// Its name.
        name: String,
    },
    /// The groups of the host cannot be looked up.
    #[error("cannot look up the {key}' group `{name}`")]
    LookUp {
        /// Whose group it is to be.
        key: &'static str,
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
}

/// Who has connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its process; 0 for one of another PID namespace, which has no number here.
    pub pid: i32,
    /// All its groups.
    pub groups: Vec<u32>,
}

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Look at everything.
    Read,
    /// Change it, too.
    Change,
}

/// Who may use the control socket: root, the daemon's own user, and members of
/// the operators' group, if there is one; and who may only look.
#[derive(Clone, Debug, Default)]
pub struct Authorization {
    operators: Option<Users>,
    readers: Option<Users>,
}

/// A group of users.
#[derive(Clone, Debug)]
struct Users {
    name: String,
    gid: u32,
}

impl Users {
    fn named(key: &'static str, name: Option<&str>) -> Result<Option<Users>, AuthorizationError> {
        let named = |name: &str| Ok(Users { name: name.to_owned(), gid: group(key, name)? });
        name.map(named).transpose()
    }

    fn have(&self, peer: &Peer) -> bool {
        peer.groups.contains(&self.gid)
    }
}

impl Authorization {
    /// For root, the daemon's own user and these groups.
    pub fn new(
        operators: Option<&str>,
        readers: Option<&str>,
    ) -> Result<Authorization, AuthorizationError> {
        Ok(Authorization {
            operators: Users::named("operators", operators)?,
            readers: Users::named("readers", readers)?,
        })
    }

    /// The socket's file is for the same.  It has one group: where there are readers its
    /// directory says who comes so far, and this who may what.
    pub fn manner(&self) -> Manner {
        let group = self.operators.as_ref().map(|operators| Gid::from_raw(operators.gid));
        let mode = match (&self.operators, &self.readers) {
            (_, Some(_)) => 0o666,
            (Some(_), None) => 0o660,
            (None, None) => 0o600,
        };
        Manner { mode: Mode::from_raw_mode(mode), group, backlog: BACKLOG }
    }

    /// What a client may do; if nothing, what it is told.
    pub fn check(&self, peer: &Peer) -> Result<Access, String> {
        let among = |users: &Option<Users>| users.as_ref().is_some_and(|users| users.have(peer));
        if peer.is_owner() || among(&self.operators) {
            Ok(Access::Change)
        } else if among(&self.readers) {
            Ok(Access::Read)
        } else {
            Err(format!("{peer} may not operate this daemon; {}", self.remedy()))
        }
    }

    /// Makes sure that a client may change something.
    pub fn check_change(&self, peer: &Peer) -> Result<(), String> {
        match self.check(peer)? {
            Access::Change => Ok(()),
            Access::Read => Err(format!("{peer} may look and change nothing; {}", self.remedy())),
        }
    }

    fn remedy(&self) -> String {
        match &self.operators {
            Some(Users { name, .. }) => {
                format!("become root or a member of group `{name}`, the operators of this daemon")
            }
            None => "become root, or name a group of operators in [daemon] operators".to_owned(),
        }
    }
}

impl Peer {
    /// This process, for what nobody else has asked for by name.
    pub fn own() -> Peer {
        let pid = getpid().as_raw_nonzero().get();
        Peer { uid: geteuid().as_raw(), pid, groups: Vec::new() }
    }

    /// It is root's, or of the daemon's own user.
    pub fn is_owner(&self) -> bool {
        self.uid == 0 || self.uid == geteuid().as_raw()
    }

    /// Who is at the other end.
    pub fn of(stream: impl AsFd) -> io::Result<Peer> {
        let stream = stream.as_fd();
        // `struct ucred`.  That of rustix has no process 0.
        let mut credentials = [0; 3];
        option(stream, libc::SO_PEERCRED, &mut credentials).1?;
        let [pid, uid, gid] = credentials;
        let mut groups = supplementary(stream)?;
        groups.push(gid);
        Ok(Peer { uid, pid: pid as i32, groups })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => write!(f, "uid {}, a process elsewhere", self.uid),
            pid => write!(f, "uid {} pid {pid}", self.uid),
        }
    }
}

/// The number of a group, by its name or by itself.
fn group(key: &'static str, name: &str) -> Result<u32, AuthorizationError> {
    if let Ok(gid) = name.parse() {
        return Ok(gid);
    }
    match unistd::Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(AuthorizationError::NoGroup { key, name: name.to_owned() }),
        Err(error) => {
            Err(AuthorizationError::LookUp { key, name: name.to_owned(), source: error.into() })
        }
    }
}

/// Supplementary groups of the other end.  They are those it had when it
/// connected, which a look-up by its user would not tell.
fn supplementary(stream: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; USUAL_GROUPS];
    loop {
        let (count, read) = option(stream, libc::SO_PEERGROUPS, &mut groups);
        match read {
            Ok(()) => {
                groups.truncate(count);
                return Ok(groups);
            }
            // The length says how much there is.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads an option of a socket that is plain numbers; how many there are.
fn option(stream: BorrowedFd<'_>, name: i32, numbers: &mut [u32]) -> (usize, io::Result<()>) {
    let Ok(mut length) = libc::socklen_t::try_from(size_of_val(numbers)) else {
        return (0, Err(io::ErrorKind::OutOfMemory.into()));
    };
    // SAFETY: the kernel writes at most `length` bytes to `numbers`, which has that many,
    // and plain numbers may have any bits.
    let failed = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            numbers.as_mut_ptr().cast(),
            &raw mut length,
        )
    } != 0;
    let read = if failed { Err(io::Error::last_os_error()) } else { Ok(()) };
    (length as usize / size_of::<u32>(), read)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn peer(uid: u32, groups: &[u32]) -> Peer {
        Peer { uid, pid: 7, groups: groups.to_vec() }
    }

    #[test]
    fn f9_root_the_own_user_and_operators_may() {
        let users = |name: &str, gid| Some(Users { name: name.to_owned(), gid });
        let authorization =
            Authorization { operators: users("ops", 4242), readers: users("looks", 4343) };
        let check = |uid, groups| authorization.check(&peer(uid, groups)).ok();
        assert_eq!(check(0, &[]), Some(Access::Change));
        assert_eq!(check(geteuid().as_raw(), &[]), Some(Access::Change));
        assert_eq!(check(64055, &[1, 4242]), Some(Access::Change));
        assert_eq!(check(64055, &[4343, 4242]), Some(Access::Change));
        assert_eq!(check(64055, &[4343]), Some(Access::Read));
        let told = authorization.check_change(&peer(64055, &[4343])).expect_err("a reader");
        assert!(told.contains("may look and change nothing") && told.contains("`ops`"), "{told}");
        let elsewhere = Peer { pid: 0, ..peer(0, &[]) };
        assert_eq!(elsewhere.to_string(), "uid 0, a process elsewhere");
        let told = authorization.check(&peer(64055, &[107])).expect_err("QEMU");
        assert!(told.starts_with("uid 64055 pid 7 may not"), "{told}");
        assert!(told.contains("member of group `ops`"), "{told}");
        let nobody = Authorization::default().check(&peer(64055, &[0])).expect_err("no group");
        assert!(nobody.contains("[daemon] operators"), "{nobody}");
    }

    #[test]
    fn f9_a_peer_is_known_with_all_its_groups() {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        let peer = Peer::of(&ours).expect("known");
        assert_eq!(peer.uid, geteuid().as_raw());
        assert_eq!(peer.pid, rustix::process::getpid().as_raw_nonzero().get());
        assert!(peer.groups.contains(&rustix::process::getegid().as_raw()));
        drop(theirs);
    }

    #[test]
    fn f9_groups_are_known_by_name_and_by_number() {
        assert_eq!(group("operators", "root").expect("there"), 0);
        assert_eq!(group("operators", "4242").expect("a number"), 4242);
        let wrong = group("readers", "no-such-group").expect_err("not there").to_string();
        assert!(wrong.contains("groupadd --system no-such-group"), "{wrong}");
    }
}
