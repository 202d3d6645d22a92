// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tells the service manager that a loop turns, which ends and starts again one that does not.
//!
//! Who hangs renews no lease, so flows go on alone; they would do so for ever.
use sd_notify::NotifyState;

/// What there is to tell, if the service manager wants to hear of us.
#[derive(Debug)]
pub struct Watchdog {
    every_us: Option<u64>,
    next_us: u64,
}

impl Watchdog {
    /// All is ready; from now on it is told twice as often as it wants to hear.
    pub fn start() -> Watchdog {
        say(NotifyState::Ready);
        let wanted = sd_notify::watchdog_enabled();
        let every_us = wanted.map(|wanted| wanted.as_micros() as u64 / 2);
        Watchdog { every_us, next_us: 0 }
    }

    /// The loop has come round again.
    pub fn turn(&mut self, now_us: u64) {
        let Some(every_us) = self.every_us.filter(|_| now_us >= self.next_us) else { return };
        self.next_us = now_us + every_us;
        say(NotifyState::Watchdog);
    }
}

fn say(what: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[what]) {
        log::debug!("cannot tell the service manager: {error}");
    }
}
