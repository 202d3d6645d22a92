// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whose the directory of a VMM's socket is: whoever may write there can take the socket's place,
//! and so a VM's, or that of the relay's own socket beside it.
use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::VSOCK;

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// Only its owner may remove what is in it.
const STICKY: u32 = 0o1000;

/// The directory of a tenant's socket, if it has one.
pub fn of_socket(place: &str) -> Option<PathBuf> {
    let path = Path::new(place.strip_prefix(VSOCK)?);
    fs::canonicalize(path.parent().filter(|_| path.is_absolute())?).ok()
}

/// Whether a group, as its VMM's, may write to a directory: then it is to be of one VM.
pub fn group_writes(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|meta| meta.mode() & GROUP_WRITES != 0)
}

/// Fails if anybody may write to a socket's directory, or replace it.
pub fn keeps_others_out(socket: &Path) -> Result<()> {
    let directory = socket.parent().context("no directory")?;
    let directory = fs::canonicalize(directory).with_context(|| directory.display().to_string())?;
    for (depth, at) in directory.ancestors().enumerate() {
        let meta = fs::metadata(at).with_context(|| at.display().to_string())?;
        ensure!(
            !is_open(&meta, depth == 0),
            "anybody may write to {} (mode {:04o}) and so take a VM's place; expected a directory of \
             its own, such as install -d -m 2770 -o ccc -g GROUP_OF_ITS_VMM {}",
            at.display(),
            meta.mode() & 0o7777,
            directory.display()
        );
    }
    Ok(())
}

/// What is in a sticky directory nobody else can replace, but anybody can be there first.
fn is_open(meta: &Metadata, is_its_own: bool) -> bool {
    meta.mode() & OTHERS_WRITE != 0 && (is_its_own || meta.mode() & STICKY == 0)
}
