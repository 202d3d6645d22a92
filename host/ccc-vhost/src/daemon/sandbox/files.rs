// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Files, by landlock: sockets of VMs, the state file, and what the kernel says of our own
//! descriptors.  What is open stays open, and what front ends hand over is theirs.
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    PathFd, PathFdError, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope,
};
use thiserror::Error;

/// What landlock of the newest kernel that we know of can take.  Of an older one it takes less.
const KNOWN: ABI = ABI::V6;

/// What stays.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'a> {
    /// Directories in which, and below which, sockets are made and removed.
    pub sockets: &'a [PathBuf],
    /// The directory of the state file.
    pub state: Option<&'a Path>,
    /// Where monitoring systems connect.
    pub port: Option<u16>,
}

/// How much of it could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confined {
    /// All.
    Fully,
    /// What this kernel can.
    Partly,
    /// Nothing.
    Not,
}

/// Why nothing could be done.
#[derive(Debug, Error)]
pub enum FilesError {
    /// A directory that has to stay cannot be opened.
    #[error(transparent)]
    Directory(#[from] PathFdError),
    /// The kernel refuses.
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
}

/// Takes all other files from this thread, and from those it starts from now on.
pub fn confine(needs: &Needs<'_>) -> Result<Confined, FilesError> {
    let sockets = AccessFs::MakeSock | AccessFs::RemoveFile;
    // Written beside its place and renamed, then its directory is synced.
    let state = AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::WriteFile | AccessFs::Truncate;
    let state = state | AccessFs::ReadFile | AccessFs::ReadDir;
    let own = AccessFs::ReadFile | AccessFs::ReadDir;
    let beneath = |path: &Path, rights: BitFlags<AccessFs>| {
        Ok::<_, PathFdError>(PathBeneath::new(PathFd::new(path)?, rights))
    };
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::Signal)?
        .create()?;
    for directory in needs.sockets {
        rules = rules.add_rule(beneath(directory, sockets)?)?;
    }
    if let Some(directory) = needs.state {
        let named = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        rules = rules.add_rule(beneath(named, state)?)?;
    }
    if let Some(port) = needs.port {
        rules = rules.add_rule(NetPort::new(port, AccessNet::BindTcp))?;
    }
    let status = rules.add_rule(beneath(Path::new("/proc/self"), own)?)?.restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Confined::Fully,
        RulesetStatus::PartiallyEnforced => Confined::Partly,
        RulesetStatus::NotEnforced => Confined::Not,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::ErrorKind,
        net::{TcpListener, TcpStream},
        os::unix::net::UnixListener,
        thread,
    };

    use super::*;

    #[test]
    fn a_confined_thread_has_its_sockets_and_its_state_and_no_other_file() {
        let ours = tempfile::tempdir().expect("a directory");
        let state = tempfile::tempdir().expect("a directory");
        let other = tempfile::tempdir().expect("a directory");
        fs::write(other.path().join("secret"), "").expect("written");
        let free = TcpListener::bind("127.0.0.1:0").expect("free").local_addr().expect("its own");
        let denied = |kind: Result<(), std::io::Error>| {
            assert_eq!(kind.expect_err("not ours").kind(), ErrorKind::PermissionDenied);
        };
        let confined = || {
            let sockets = [ours.path().to_owned()];
            let needs =
                Needs { sockets: &sockets, state: Some(state.path()), port: Some(free.port()) };
            let confined = confine(&needs).expect("confined");
            if confined == Confined::Not {
                eprintln!("not run: this kernel has no landlock");
                return;
            }
            let socket = ours.path().join("s");
            drop(UnixListener::bind(&socket).expect("bound"));
            fs::remove_file(&socket).expect("removed");
            let beside = state.path().join("beside");
            fs::write(&beside, "{}").expect("written");
            fs::rename(&beside, state.path().join("state")).expect("renamed");
            File::open(state.path()).and_then(|it| it.sync_all()).expect("synced");
            fs::read("/proc/self/status").expect("read");
            denied(fs::read(other.path().join("secret")).map(drop));
            denied(fs::read("/etc/passwd").map(drop));
            denied(fs::write(other.path().join("new"), ""));
            denied(UnixListener::bind(other.path().join("s")).map(drop));
            denied(fs::write(ours.path().join("no-socket"), ""));
            if confined == Confined::Fully {
                drop(TcpListener::bind(free).expect("its own port"));
                denied(TcpListener::bind("127.0.0.1:0").map(drop));
                denied(TcpStream::connect(free).map(drop));
            }
        };
        thread::scope(|scope| scope.spawn(confined).join().expect("as it is to be"));
        fs::read(other.path().join("secret")).expect("other threads are as they were");
    }
}
