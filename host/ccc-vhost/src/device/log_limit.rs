// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Lines in the log that a guest or a front end can cause.
//!
//! Each VM has its own limit, so that one that causes many neither fills the
//! disk nor hides what is said of another.
use std::fmt;

use ccc_core::Micros;
use log::Level;

/// Time after which one more line may come.
const EVERY: Micros = 1_000_000;

/// Lets a number of lines through at once, and one a second after that.
#[derive(Debug)]
pub struct Limiter {
    burst: u64,
    /// When all lines that came would have come at one a second.
    even: Micros,
    left_out: u64,
}

impl Limiter {
    /// So many lines at once.
    pub const fn new(burst: u64) -> Limiter {
        Limiter { burst, even: 0, left_out: 0 }
    }

    /// Lines left out before one that may come; `None` if it may not.
    pub fn admit(&mut self, now: Micros) -> Option<u64> {
        let even = self.even.max(now);
        if even - now > (self.burst - 1) * EVERY {
            self.left_out += 1;
            return None;
        }
        self.even = even + EVERY;
        Some(std::mem::take(&mut self.left_out))
    }

    /// Says something of a VM, if it may, and how much was left out before.
    pub fn say(&mut self, level: Level, vm: &str, now: Micros, what: &dyn fmt::Display) {
        match self.admit(now) {
            None => {}
            Some(0) => log::log!(level, VM = vm; "VM {vm}: {what}"),
            Some(left_out) => {
                log::log!(level, VM = vm; "VM {vm}: {what} ({left_out} lines left out since the last)");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t8_lines_come_in_a_burst_and_then_one_a_second() {
        let mut limiter = Limiter::new(3);
        let admitted =
            |limiter: &mut Limiter, now| (0..100).filter(|_| limiter.admit(now).is_some()).count();
        assert_eq!(admitted(&mut limiter, 7), 3);
        assert_eq!(admitted(&mut limiter, 7 + EVERY), 1);
        assert_eq!(limiter.admit(7 + 2 * EVERY), Some(99), "97 were told of before");
        assert_eq!(admitted(&mut limiter, 7 + 90 * EVERY), 3, "no more for a long rest");
        assert_eq!(admitted(&mut limiter, 7), 0, "a clock that goes back does no harm");
    }
}
