// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Signals as events: those that end the daemon, and the one that is to do nothing.
use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    low_level::pipe,
};

/// What signals that end the daemon make readable.
#[derive(Debug)]
pub struct Signals(UnixStream);

impl Signals {
    /// Catches them from now on.
    pub fn catch() -> io::Result<Signals> {
        let (ends, theirs) = UnixStream::pair()?;
        pipe::register(SIGTERM, theirs.try_clone()?)?;
        pipe::register(SIGINT, theirs)?;
        Ok(Signals(ends))
    }

    /// Readable once SIGTERM or SIGINT has come.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What SIGHUP makes readable.
#[derive(Debug)]
pub struct Hangups(UnixStream);

impl Hangups {
    /// Catches it from now on.
    pub fn catch() -> io::Result<Hangups> {
        let (hangups, theirs) = UnixStream::pair()?;
        pipe::register(SIGHUP, theirs)?;
        hangups.set_nonblocking(true)?;
        Ok(Hangups(hangups))
    }

    /// Readable when it has come.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes those that have come.
    pub fn take(&self) {
        let mut some = [0; 64];
        while (&self.0).read(&mut some).is_ok_and(|taken| taken == some.len()) {}
    }
}
