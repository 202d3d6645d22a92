// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Lines in the log that the other side can cause, as the daemon has them: each side has its own
//! limit, so that one that causes many neither fills the disk nor hides what is said of another.
use std::fmt;

use log::Level;

use crate::serve::now_us;

/// Time after which one more line may come.
const EVERY_US: u64 = 1_000_000;
/// Lines at once: what an agent that comes and goes causes in good order.
const BURST: u64 = 4;

/// Lets a few lines through at once, and one a second after that.
#[derive(Debug, Default)]
pub struct Limited {
    /// When all lines that came would have come at one a second.
    even_us: u64,
    left_out: u64,
}

impl Limited {
    /// Lines left out before one that may come; `None` if it may not.
    fn admit(&mut self, now_us: u64) -> Option<u64> {
        let even_us = self.even_us.max(now_us);
        if even_us - now_us > (BURST - 1) * EVERY_US {
            self.left_out += 1;
            return None;
        }
        self.even_us = even_us + EVERY_US;
        Some(std::mem::take(&mut self.left_out))
    }

    /// Says something, if it may be said, and how much was left out before; whether it was said.
    pub fn say(&mut self, level: Level, what: fmt::Arguments<'_>) -> bool {
        let admitted = self.admit(now_us());
        match admitted {
            None => {}
            Some(0) => log::log!(level, "{what}"),
            Some(left_out) => {
                log::log!(level, "{what} ({left_out} lines left out since the last)");
            }
        }
        admitted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_a_burst_and_then_one_a_second() {
        let mut limited = Limited::default();
        let admitted =
            |limited: &mut Limited, now| (0..100).filter(|_| limited.admit(now).is_some()).count();
        assert_eq!(admitted(&mut limited, 7), 4);
        assert_eq!(admitted(&mut limited, 7 + EVERY_US), 1);
        assert_eq!(limited.admit(7 + 2 * EVERY_US), Some(99), "96 were told of before");
        assert_eq!(admitted(&mut limited, 7 + 90 * EVERY_US), 4, "no more for a long rest");
    }
}
