// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Wakes the event loop from another thread.
//!
//! Who hands something over notifies after that, and who takes clears before that: in
//! another order something could wait for a loop that sleeps.
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::event::{EventfdFlags, eventfd};

/// A counter of the kernel's that can be read once somebody has notified; one for all copies.
#[derive(Clone, Debug)]
pub struct Wake(Arc<OwnedFd>);

impl Wake {
    /// One of which nobody was notified.
    pub fn new() -> io::Result<Wake> {
        Ok(Wake(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// What to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Has the loop look.
    pub fn notify(&self) {
        others_may_run();
        // It can only fail because it was notified 2^64 times before.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        others_may_run();
    }

    /// The loop looks from now on.
    pub fn clear(&self) {
        others_may_run();
        // How often it was notified does not matter, nor whether at all.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
        others_may_run();
    }
}

/// A place between two steps, where shuttle may have another thread go on.
fn others_may_run() {
    #[cfg(all(test, feature = "shuttle"))]
    shuttle::thread::yield_now();
}

#[cfg(all(test, feature = "shuttle"))]
pub mod interleavings {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Orders of threads that a test tries.
    pub const RUNS: usize = 1000;
    /// Looks of a thread that has all others run meanwhile; what has not come then never does.
    const LOOKS: usize = 10_000;

    /// Waits as the event loop does.
    pub fn wait(fd: BorrowedFd<'_>) {
        for _ in 0..LOOKS {
            let mut all = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            if poll(&mut all, Some(&Timespec::default())).expect("asked") == 1 {
                return;
            }
            others_may_run();
        }
        panic!("the loop is not woken");
    }
}
