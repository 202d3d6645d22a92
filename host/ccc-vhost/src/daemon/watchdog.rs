// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tells the service manager that the event loop turns.
//!
//! QEMU's main loop waits for a back end that does not answer, as with every
//! vhost-user device: a daemon that hangs would hold the VMs that are suspended or
//! migrated.  systemd ends one that is not heard of (`WatchdogSec=`) and starts
//! another, which the VMs connect to again.
use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer, if the service manager wants to hear of us.
#[derive(Debug)]
pub struct Watchdog(File);

impl Watchdog {
    /// Tells it twice as often as it wants to hear, from now on.
    pub fn start() -> io::Result<Option<Watchdog>> {
        sd_notify::watchdog_enabled().map(|wanted| Watchdog::every(wanted / 2)).transpose()
    }

    fn every(period: Duration) -> io::Result<Watchdog> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // A timer of no time is one that stands still.
        let period = period.max(Duration::from_millis(1));
        let period = Timespec {
            tv_sec: i64::try_from(period.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: period.subsec_nanos().into(),
        };
        let times = Itimerspec { it_interval: period, it_value: period };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
        Ok(Watchdog(timer.into()))
    }

    /// What to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The loop has come round again.
    pub fn tell(&self) {
        // How often the time was up says nothing here.
        let _ = (&self.0).read(&mut [0; 8]);
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]) {
            log::debug!("cannot tell the service manager: {error}");
        }
    }
}
