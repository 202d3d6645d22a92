// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How long to wait before connecting again to one who takes a connection and does not serve it.

/// After the first such connection, and twice as long after each further one, up to the second.
const FIRST_US: u64 = 200_000;
const MOST_US: u64 = 6_400_000;

/// When the next connection may be tried.
#[derive(Debug, Default)]
pub struct BackOff {
    wait_us: u64,
    at_us: u64,
}

impl BackOff {
    /// Whether it may be now.
    pub fn is_over(&self, now_us: u64) -> bool {
        now_us >= self.at_us
    }

    /// What was connected serves.
    pub fn served(&mut self) {
        self.wait_us = 0;
    }

    /// None is tried before then, whatever it serves.
    pub fn rest_until(&mut self, at_us: u64) {
        self.at_us = self.at_us.max(at_us);
    }

    /// The connection has ended.
    pub fn ended(&mut self, now_us: u64) {
        self.rest_until(now_us + self.wait_us);
        self.wait_us = (2 * self.wait_us).clamp(FIRST_US, MOST_US);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many connections there are in so long, each of which ends at once.
    fn tries(back_off: &mut BackOff, seconds: u64, is_served: bool) -> usize {
        let times = (0..seconds * 10).map(|tenth| tenth * 100_000);
        let tries = times.filter(|now_us| {
            let connects = back_off.is_over(*now_us);
            if connects && is_served {
                back_off.served();
            }
            if connects {
                back_off.ended(*now_us);
            }
            connects
        });
        tries.count()
    }

    #[test]
    fn who_does_not_serve_is_asked_less_and_less_often() {
        let tried = tries(&mut BackOff::default(), 60, false);
        assert!((10..=16).contains(&tried), "{tried} times in a minute");
    }

    #[test]
    fn who_has_served_is_asked_again_at_once() {
        assert_eq!(tries(&mut BackOff::default(), 60, true), 600);
        let mut back_off = BackOff::default();
        tries(&mut back_off, 60, false);
        back_off.served();
        back_off.ended(100_000_000);
        assert!(back_off.is_over(100_000_000));
    }
}
