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

/// What signals make readable.
#[derive(Debug)]
pub struct Signals {
    ends: UnixStream,
    hangups: UnixStream,
}

impl Signals {
    /// Catches the signals from now on.
    pub fn catch() -> io::Result<Signals> {
        let (ends, theirs) = UnixStream::pair()?;
        pipe::register(SIGTERM, theirs.try_clone()?)?;
        pipe::register(SIGINT, theirs)?;
        let (hangups, theirs) = UnixStream::pair()?;
        pipe::register(SIGHUP, theirs)?;
        hangups.set_nonblocking(true)?;
        Ok(Signals { ends, hangups })
    }

    /// Readable once SIGTERM or SIGINT has come.
    pub fn ends(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }

    /// Readable when SIGHUP has come.
    pub fn hangups(&self) -> BorrowedFd<'_> {
        self.hangups.as_fd()
    }

    /// Takes those that have come.
    pub fn take_hangups(&self) {
        let mut some = [0; 64];
        while (&self.hangups).read(&mut some).is_ok_and(|taken| taken == some.len()) {}
    }
}
