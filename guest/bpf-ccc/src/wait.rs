// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Waits for descriptors.
use std::{os::fd::BorrowedFd, time::Duration};

use anyhow::Result;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Waits until one of these is readable, or so long; which are, in their order.
pub fn wait<'a>(what: impl Iterator<Item = BorrowedFd<'a>>, most: Duration) -> Result<Vec<bool>> {
    let mut all: Vec<_> = what.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)).collect();
    let most = Timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as _ };
    match poll(&mut all, Some(&most)) {
        Err(error) if error != Errno::INTR => Err(error.into()),
        _ => Ok(all.iter().map(|one| !one.revents().is_empty()).collect()),
    }
}
