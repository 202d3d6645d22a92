// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Signals that end the daemon, as events.
use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    low_level::pipe,
};

/// Readable once SIGTERM or SIGINT has come.
#[derive(Debug)]
pub struct Signals(UnixStream);

impl Signals {
    /// Catches the signals from now on.
    pub fn catch() -> io::Result<Signals> {
        let (ours, theirs) = UnixStream::pair()?;
        pipe::register(SIGTERM, theirs.try_clone()?)?;
        pipe::register(SIGINT, theirs)?;
        Ok(Signals(ours))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
