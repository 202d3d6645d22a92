// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! For how long one looks for what comes next before one sleeps.
use ccc_core::Micros;

use super::load::Load;

/// What it begins with: the least that is more than a wake-up takes.
const BEGIN_US: Micros = 10;
/// By how much it grows.
const GROW: Micros = 2;

/// How long it is looked for the next message of a VM.
///
/// As QEMU's iothreads do by default (`poll-max-ns`, `poll-grow`, `poll-shrink`): longer where
/// that would have found it, and not at all where it comes later than the most that is allowed.
#[derive(Debug, Default)]
pub struct Window {
    length_us: Micros,
    last: Micros,
}

impl Window {
    /// A message has come; whether it is looked for the next one, at most for so long.
    pub fn take(&mut self, now: Micros, most_us: Micros) -> bool {
        let gap_us = now.saturating_sub(std::mem::replace(&mut self.last, now));
        if gap_us > most_us {
            self.length_us = 0;
        } else if gap_us > self.length_us {
            self.length_us = (self.length_us * GROW).max(BEGIN_US).min(most_us);
        }
        self.length_us > 0
    }

    /// It has been looked for long enough.
    pub fn is_over(&self, now: Micros) -> bool {
        now.saturating_sub(self.last) >= self.length_us
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Time that went to it, what was found being served in it.
    pub spent_us: Micros,
    /// Times that messages were found.
    pub found: u64,
    /// What it takes now.
    pub load: Load,
}

impl Counts {
    /// Time went to it, until now.
    pub fn spend(&mut self, now: Micros, spent_us: Micros) {
        self.spent_us += spent_us;
        self.load.spend(now, spent_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long it is looked after messages with these times between them.
    fn after(gaps: &[Micros], most_us: Micros) -> Micros {
        let (mut window, mut now) = (Window::default(), 1_000_000);
        window.take(now, most_us);
        for gap in gaps {
            now += gap;
            window.take(now, most_us);
        }
        window.length_us
    }

    #[test]
    fn the_time_grows_where_it_would_have_found_something() {
        assert_eq!(after(&[60], 100), BEGIN_US);
        assert_eq!(after(&[60; 2], 100), 20);
        assert_eq!(after(&[60; 4], 100), 80);
        assert_eq!(after(&[60; 9], 100), 80, "long enough");
        assert_eq!(after(&[90; 9], 100), 100, "as long as is allowed");
        assert_eq!(after(&[3; 9], 5), 5);
    }

    #[test]
    fn it_ends_where_nothing_comes_in_time() {
        assert_eq!(after(&[60, 60, 101], 100), 0);
        assert_eq!(after(&[101; 9], 100), 0);
        assert_eq!(after(&[0; 9], 0), 0, "off");
    }

    #[test]
    fn it_is_over_after_its_time() {
        let mut window = Window::default();
        assert!(window.is_over(0));
        assert!(!window.take(1_000_000, 100));
        assert!(window.take(1_000_050, 100));
        assert!(!window.is_over(1_000_050 + BEGIN_US - 1));
        assert!(window.is_over(1_000_050 + BEGIN_US));
    }
}
