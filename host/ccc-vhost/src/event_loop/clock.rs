// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The time the engine lives in.
use std::{
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd},
};

use ccc_core::Micros;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use thiserror::Error;

use crate::event_loop::timetravel::{Client, TimeTravelError};

/// Why time stands still.
#[derive(Debug, Error)]
pub enum ClockError {
    #[error("timer failed")]
    Timer(#[from] io::Error),
    #[error("virtual time failed")]
    TimeTravel(#[from] TimeTravelError),
}

/// Real or virtual time.
#[derive(Debug)]
pub enum Clock {
    /// The machine's.
    Monotonic(Timer),
    /// That of a controller.
    TimeTravel(Client),
}

/// A timer of the kernel.
#[derive(Debug)]
pub struct Timer {
    file: std::fs::File,
    armed: Option<Micros>,
}

impl Clock {
    /// Real time.
    pub fn monotonic() -> io::Result<Clock> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Clock::Monotonic(Timer { file: fd.into(), armed: None }))
    }

    /// Time stands still while a message is served, and front ends answer calls.
    pub fn is_virtual(&self) -> bool {
        matches!(self, Clock::TimeTravel(_))
    }

    /// What to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Clock::Monotonic(timer) => timer.file.as_fd(),
            Clock::TimeTravel(client) => client.fd(),
        }
    }

    /// The time.
    pub fn now(&self) -> Micros {
        match self {
            Clock::Monotonic(_) => monotonic(),
            Clock::TimeTravel(client) => client.now(),
        }
    }

    /// Number of a beginning of a device.  In real time it is unlike that of
    /// any other beginning, in this life of the daemon or another; in virtual
    /// time runs have to be repeatable, so it is only unlike the others of this
    /// life.  A device looks at what is in its memory besides.
    pub fn instance(&self, count: u32) -> u32 {
        let life = match self {
            Clock::Monotonic(_) => spread(),
            Clock::TimeTravel(_) => 0,
        };
        life.wrapping_add(count).max(1)
    }

    /// Takes what the clock has to say; `true` if the engine is to run.
    pub fn take(&mut self) -> Result<bool, ClockError> {
        match self {
            Clock::Monotonic(timer) => {
                timer.armed = None;
                let fired = timer.file.read(&mut [0; 8]);
                Ok(fired.is_ok())
            }
            Clock::TimeTravel(client) => Ok(client.take()?),
        }
    }

    /// A turn was given while something else was waited for.
    pub fn pending(&self) -> bool {
        match self {
            Clock::Monotonic(_) => false,
            Clock::TimeTravel(client) => client.pending(),
        }
    }

    /// Wakes the engine at `deadline`.  In real time that may be too early,
    /// after which it is asked again: deadlines move with every report, the
    /// kernel's timer need not.
    pub fn wake_at(&mut self, deadline: Option<Micros>) -> Result<(), ClockError> {
        match self {
            Clock::Monotonic(timer) => Ok(timer.arm(deadline)?),
            Clock::TimeTravel(client) => Ok(client.request(deadline)?),
        }
    }

    /// The engine has run, and its wishes are known.
    pub fn rest(&mut self) -> Result<(), ClockError> {
        match self {
            Clock::Monotonic(_) => Ok(()),
            Clock::TimeTravel(client) => Ok(client.wait()?),
        }
    }
}

impl Timer {
    fn arm(&mut self, deadline: Option<Micros>) -> io::Result<()> {
        if let (Some(armed), Some(deadline)) = (self.armed, deadline) {
            if armed <= deadline {
                return Ok(());
            }
        }
        if self.armed == deadline {
            return Ok(());
        }
        // 0 would disarm the timer.
        let value = deadline.map_or(0, |deadline| deadline.max(1));
        let setting = Itimerspec { it_interval: timespec(0), it_value: timespec(value) };
        timerfd_settime(self.file.as_fd(), TimerfdTimerFlags::ABSTIME, &setting)?;
        self.armed = deadline;
        Ok(())
    }
}

fn timespec(micros: Micros) -> Timespec {
    // Deadlines beyond what the kernel can count are as good as never.
    let seconds = i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: (micros % 1_000_000 * 1000) as _ }
}

/// A number that is seldom the same: the nanoseconds since 1970 and the process,
/// spread over all bits.
fn spread() -> u32 {
    #[expect(clippy::disallowed_methods, reason = "any number will do")]
    let time = clock_gettime(ClockId::Realtime);
    let nanos = (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64);
    let mixed = (nanos ^ u64::from(std::process::id()) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// The machine's time.
pub fn monotonic() -> Micros {
    #[expect(clippy::disallowed_methods, reason = "nobody sets this one")]
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
