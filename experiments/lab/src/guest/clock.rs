// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Time of the traffic: nanoseconds since the moment all guests agreed on.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

const SECOND: u64 = 1_000_000_000;

/// The traffic's clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    epoch_ns: u64,
}

impl Clock {
    /// A clock that is 0 when the guest's wall clock says `epoch_ns`.
    pub fn new(epoch_ns: u64) -> Self {
        Self { epoch_ns }
    }

    /// Nanoseconds since the epoch; 0 before it.
    pub fn now(self) -> u64 {
        wall().saturating_sub(self.epoch_ns)
    }

    /// Whether `at` is over.
    pub fn is_past(self, at: u64) -> bool {
        wall() >= self.epoch_ns + at
    }

    /// Sleeps until `at`.
    pub fn sleep_until(self, at: u64) {
        let wall = self.epoch_ns + at;
        let when = TimeSpec::new((wall / SECOND) as i64, (wall % SECOND) as i64);
        let flags = ClockNanosleepFlags::TIMER_ABSTIME;
        // Only a signal can end it early, and nobody sends any.
        while clock_nanosleep(ClockId::CLOCK_REALTIME, flags, &when) == Err(nix::Error::EINTR) {}
    }
}

fn wall() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).expect("the wall clock can be read");
    now.tv_sec() as u64 * SECOND + now.tv_nsec() as u64
}

/// Sample times from 0 to `duration` inclusive.
pub fn ticks(interval: u64, duration: u64) -> impl Iterator<Item = u64> {
    (0..=duration / interval).map(move |n| n * interval)
}

/// Nanoseconds as seconds, for tables.
pub fn text(ns: u64) -> String {
    format!("{}.{:03}", ns / SECOND, ns % SECOND / 1_000_000)
}
