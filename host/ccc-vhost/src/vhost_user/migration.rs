// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! State of the device that goes with a migrating VM.
//!
//! There is next to none: flows, reports and grants lie in the VM's own memory,
//! and the device at the destination finds them there as one does that has begun
//! anew.  What goes along says what wrote that memory, so that a device which
//! would misread it refuses.
use std::{
    fs::File,
    io::{self, Read, Write},
    mem::size_of,
    os::fd::OwnedFd,
};

use ccc_proto::wire;
use rustix::{
    io::Errno,
    pipe::{PipeFlags, SpliceFlags, pipe_with, splice},
};
use thiserror::Error;
use vhost::vhost_user::message::VhostTransferStateDirection as Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, little_endian::U32};

use crate::event_loop::foreign::{self, Foreign};

const MAGIC: [u8; 8] = *b"ccc-vm\0\0";
const VERSION: u32 = 1;

/// Why the state of a VM is not taken or given.
#[derive(Debug, Error)]
pub enum MigrationError {
    #[error("state of a migrating VM: {0}")]
    Pipe(#[from] io::Error),
    #[error("state of a migrating VM: {0} bytes that are none of this device")]
    Foreign(usize),
    #[error(
        "state of a migrating VM: version {version}, tables of revision {revision}; this device \
         knows version {VERSION} and revision {}; run the same release on both hosts",
        wire::REVISION
    )]
    Version { version: u32, revision: u32 },
    #[error("state of a migrating VM: asked for the result of a transfer that was not begun")]
    NotBegun,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct State {
    magic: [u8; 8],
    version: U32,
    revision: U32,
}

/// The transfer a front end has begun.
#[derive(Debug)]
pub enum Transfer {
    /// All was written.
    Saved,
    /// The front end writes here, and closes it before it asks for the result.
    Loading(Foreign<File>),
}

impl Transfer {
    /// Begins a transfer through the front end's pipe.
    pub fn begin(direction: Direction, pipe: Foreign<File>) -> Result<Transfer, MigrationError> {
        // Moving bytes to a socket waits for its peer, whatever it is told.
        if !foreign::is_pipe(&pipe) {
            return Err(foreign::wrong_kind("the state", "pipe").into());
        }
        match direction {
            Direction::SAVE => {
                let state = State {
                    magic: MAGIC,
                    version: VERSION.into(),
                    revision: wire::REVISION.into(),
                };
                give(&pipe, state.as_bytes())?;
                Ok(Transfer::Saved)
            }
            Direction::LOAD => Ok(Transfer::Loading(pipe)),
        }
    }

    /// Whether the VM can go on with this device.
    pub fn end(self) -> Result<(), MigrationError> {
        match self {
            Transfer::Saved => Ok(()),
            Transfer::Loading(pipe) => load(pipe),
        }
    }
}

/// A pipe of our own.  The front end shares its pipe's flags, so that setting
/// `O_NONBLOCK` there promises nothing; moving bytes from one pipe to another
/// does not block when it is told not to.
fn own_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

fn give(pipe: &File, bytes: &[u8]) -> io::Result<()> {
    let (read, write) = own_pipe()?;
    File::from(write).write_all(bytes)?;
    let given = splice(&read, None, pipe, None, bytes.len(), SpliceFlags::NONBLOCK)?;
    if given == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// What a front end wrote before it closed its end, up to a length.  Where `enough` is there the
/// end may be open still: a child that the front end forks has it, too, until it executes.
fn take(pipe: &File, enough: usize, length: usize) -> io::Result<Vec<u8>> {
    let (read, write) = own_pipe()?;
    let mut left = length;
    while left > 0 {
        match splice(pipe, None, &write, None, left, SpliceFlags::NONBLOCK) {
            Ok(0) => break,
            Ok(moved) => left -= moved,
            Err(Errno::AGAIN) if length - left >= enough => break,
            Err(error) => return Err(error.into()),
        }
    }
    drop(write);
    let mut bytes = Vec::new();
    File::from(read).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn load(pipe: Foreign<File>) -> Result<(), MigrationError> {
    // One more than there should be, to see whether there is more.
    let bytes = take(&pipe, size_of::<State>(), size_of::<State>() + 1)?;
    let foreign = MigrationError::Foreign(bytes.len());
    let (state, rest) =
        State::ref_from_prefix(&bytes).map_err(|_| MigrationError::Foreign(bytes.len()))?;
    if state.magic != MAGIC {
        return Err(foreign);
    }
    let (version, revision) = (state.version.get(), state.revision.get());
    if version != VERSION || revision != wire::REVISION {
        return Err(MigrationError::Version { version, revision });
    }
    if rest.is_empty() { Ok(()) } else { Err(foreign) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (File, File) {
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        (File::from(read), File::from(write))
    }

    fn saved() -> Vec<u8> {
        let (mut read, write) = pipe();
        Transfer::begin(Direction::SAVE, Foreign::new(write)).expect("begun").end().expect("saved");
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).expect("closed");
        bytes
    }

    fn loaded(bytes: &[u8]) -> Result<(), MigrationError> {
        let (read, mut write) = pipe();
        let transfer = Transfer::begin(Direction::LOAD, Foreign::new(read))?;
        write.write_all(bytes)?;
        drop(write);
        transfer.end()
    }

    #[test]
    fn what_was_saved_is_loaded() {
        loaded(&saved()).expect("the same device");
    }

    #[test]
    fn other_states_are_refused() {
        let state = saved();
        for length in 0..state.len() {
            assert!(
                matches!(loaded(&state[..length]), Err(MigrationError::Foreign(n)) if n == length)
            );
        }
        assert!(matches!(loaded(&[&state[..], &[0]].concat()), Err(MigrationError::Foreign(17))));
        let mut foreign = state.clone();
        foreign[0] ^= 1;
        assert!(matches!(loaded(&foreign), Err(MigrationError::Foreign(16))));
        let mut newer = state.clone();
        newer[8] = 2;
        let error = loaded(&newer).expect_err("newer").to_string();
        assert!(error.contains("version 2, tables of revision 1"), "{error}");
        newer = state;
        newer[12] = 9;
        let error = loaded(&newer).expect_err("newer").to_string();
        assert!(error.contains("revision 9"), "{error}");
    }

    #[test]
    fn a_front_end_that_does_not_close_its_pipe_is_not_waited_for() {
        let (read, write) = pipe();
        let transfer = Transfer::begin(Direction::LOAD, Foreign::new(read)).expect("begun");
        assert!(matches!(transfer.end(), Err(MigrationError::Pipe(_))));
        drop(write);
    }

    #[test]
    fn a_whole_state_is_judged_though_a_child_has_the_pipe_still() {
        let judge = |state: &[u8]| {
            let (read, mut write) = pipe();
            let child = write.try_clone().expect("as by a fork");
            let transfer = Transfer::begin(Direction::LOAD, Foreign::new(read)).expect("begun");
            write.write_all(state).expect("written");
            drop(write);
            let judged = transfer.end();
            drop(child);
            judged
        };
        let mut state = saved();
        judge(&state).expect("the same device");
        assert!(matches!(judge(&state[..15]), Err(MigrationError::Pipe(_))));
        state[8] += 1;
        assert!(matches!(judge(&state), Err(MigrationError::Version { .. })));
    }
}
