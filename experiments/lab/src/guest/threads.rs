// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Threads of a guest: a few that belong to a scope, and one for each flow.

use std::io;
use std::thread::{Builder, ScopedJoinHandle};

use crate::error::{LabError, Result};

/// Stack of a flow's thread.
const STACK: usize = 128 * 1024;

/// What a thread has returned.
pub fn joined<T>(job: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    job.join()
        .unwrap_or_else(|_| Err(LabError::protocol("guest", "a thread panicked; see the console")))
}

/// Starts one that is not waited for: it ends with the guest.
pub fn spawn(job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().stack_size(STACK).spawn(job).map(drop)
}
