// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One daemon to a state file.
//!
//! The state file itself is replaced with every change, so a file beside it is
//! locked.  The kernel lets go of the lock when the daemon ends, however that
//! may be, and the file stays: removing it would let two daemons lock two files
//! of that name.
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use thiserror::Error;

use super::state::{State, StateError};

/// Why the state file is not ours.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error(
        "state file {path} is in use by {by}; stop that ccc-vhost, or name another `state` in \
         [daemon]"
    )]
    InUse {
        /// The state file.
        path: PathBuf,
        /// Who has it.
        by: String,
    },
    /// There is no place for either.
    #[error(transparent)]
    NoDirectory(#[from] StateError),
    /// It cannot be locked.
    #[error("cannot lock {0}")]
    Failed(PathBuf, #[source] io::Error),
}

/// The right to write a state file, for as long as this lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
    beside: PathBuf,
}

impl Lock {
    /// Takes the right to write the state file at `path`.
    pub fn take(path: &Path) -> Result<Lock, LockError> {
        State::check_directory(path)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".lock");
        let beside = path.with_file_name(name);
        let failed = |error: io::Error| LockError::Failed(beside.clone(), error);
        let mut open = OpenOptions::new();
        let open = open.read(true).write(true).create(true).truncate(false);
        let mut file = open.open(&beside).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::InUse { path: path.to_owned(), by: holder(&mut file) });
            }
            Err(error) => return Err(failed(error.into())),
        }
        // Who it is helps to find it; without room for that the lock holds too.
        let told = file.set_len(0).and_then(|()| file.rewind());
        if let Err(error) = told.and_then(|()| writeln!(file, "{}", std::process::id())) {
            log::debug!("cannot write to {}: {error}", beside.display());
        }
        Ok(Lock { file, beside })
    }

    /// Whoever wants to write the state file finds it locked: not so once its directory is another
    /// one, of a disk that came over it say.
    pub fn holds(&self) -> bool {
        let ours = self.file.metadata().map(|ours| (ours.dev(), ours.ino()));
        match self.beside.symlink_metadata() {
            Ok(there) => ours.is_ok_and(|ours| ours == (there.dev(), there.ino())),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

/// Who wrote its number into the file.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(16).read_to_string(&mut text);
    let pid = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o2_a_state_file_is_locked_while_the_lock_lives() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("state.json");
        let lock = Lock::take(&path).expect("free");
        let told = Lock::take(&path).expect_err("taken").to_string();
        assert!(told.contains(&format!("in use by process {}", std::process::id())), "{told}");
        assert!(lock.holds());
        std::fs::rename(dir.path().join("state.json.lock"), dir.path().join("old")).expect("moved");
        assert!(!lock.holds(), "nobody finds it");
        let another = Lock::take(&path).expect("another one");
        assert!(another.holds() && !lock.holds());
        drop((lock, another));
        Lock::take(&path).expect("free again");
        let nowhere = Lock::take(&dir.path().join("no/state"));
        assert!(matches!(nowhere, Err(LockError::NoDirectory(_))));
    }
}
