// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The sum of rates that a group carries on while those who are far away come and go.
//!
//! While only near flows count, the aggregate is a small window.  Some growth makes it a large
//! rate, which nobody has sent, or which only a liar says it has.  Times the round-trip time of
//! far flows that is a window which no path holds.  So who comes back finds no more than the sum
//! of rates of when it left, or what has been delivered since.
use crate::{
    fixed::{Fraction, Micros, Window},
    mean::MeanUnits,
};

/// A mean that changes at once by so many times.
const MUCH: u64 = 2;

/// With a mean of so large a part of what it was, those of then are there again.
const BACK: u64 = 4;

/// What flows count in the mean, without and with what `waits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mean {
    empty: MeanUnits,
    present: MeanUnits,
}

impl Mean {
    pub(super) fn new(empty: MeanUnits, waits: u64) -> Mean {
        Mean { empty, present: empty.plus(waits) }
    }

    pub(super) fn us(&self) -> Micros {
        self.present.us()
    }
}

/// A sum of rates, and what has been delivered since.
#[derive(Clone, Copy, Debug)]
struct Rate {
    window: Window,
    mean: Mean,
    since: Option<Micros>,
    until: Micros,
    bytes: u64,
}

impl Rate {
    fn new(window: Window, mean: Mean) -> Rate {
        Rate { window, mean, since: None, until: 0, bytes: 0 }
    }

    fn count_delivered(&mut self, now: Micros, bytes: u64) {
        self.until = now;
        if self.since.is_some() {
            self.bytes = self.bytes.saturating_add(bytes);
        } else {
            self.since = Some(now);
        }
    }

    fn window_at(&self, mean: Mean) -> Window {
        self.window.times(mean.present.over(self.mean.present))
    }

    /// What was delivered in a round trip; of less than one nothing is known.
    fn delivered_at(&self, mean: Mean) -> Window {
        let elapsed_us = self.since.map_or(0, |since| self.until.saturating_sub(since));
        if elapsed_us < mean.us() {
            return Window::default();
        }
        Window::from_bytes(self.bytes).times(Fraction::new(mean.us().into(), elapsed_us.into()))
    }
}

/// The sum of rates when those who are far away have left.
#[derive(Debug, Default)]
pub(super) struct Carried {
    far: Option<Rate>,
}

impl Carried {
    /// So much has been delivered.
    pub(super) fn count_delivered(&mut self, now: Micros, bytes: u64) {
        if let Some(far) = &mut self.far {
            far.count_delivered(now, bytes);
        }
    }

    /// Who counts has changed, and with that the mean; returns what the window, which was so
    /// large, is to be multiplied by.
    pub(super) fn carry(&mut self, window: Window, before: Mean, after: Mean) -> Fraction {
        let factor = after.present.over(before.present);
        let (before_us, after_us) = (before.empty.us(), after.empty.us());
        if after_us.saturating_mul(MUCH) <= before_us {
            self.far.get_or_insert(Rate::new(window, before));
            return factor;
        }
        if before_us.saturating_mul(MUCH) > after_us {
            return factor;
        }
        match self.most_at(after) {
            Some(most) if most < window.times(factor) => window.to(most),
            _ => factor,
        }
    }

    /// The most that there is with such a mean, for those who come back.
    fn most_at(&mut self, after: Mean) -> Option<Window> {
        let far = self.far?;
        if after.empty.us().saturating_mul(BACK) >= far.mean.empty.us() {
            self.far = None;
        }
        Some(far.window_at(after).max(far.delivered_at(after)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: u64 = 1_000;
    const FAR: u64 = 50_000;

    fn mean(us: u64, waits: u64) -> Mean {
        Mean::new(MeanUnits { effective: 2 * us, weight: 2 }, waits)
    }

    fn bytes(count: u64) -> Window {
        Window::from_bytes(count)
    }

    /// After who is far has left a window of 51,000 bytes.
    fn left(waits: u64) -> (Carried, Window) {
        let mut carried = Carried::default();
        let window = bytes(51_000);
        let factor = carried.carry(window, mean(FAR, waits), mean(NEAR, waits));
        (carried, window.times(factor))
    }

    fn back(carried: &mut Carried, window: Window, waits: u64) -> u64 {
        let factor = carried.carry(window, mean(NEAR, waits), mean(FAR, waits));
        window.times(factor).bytes()
    }

    #[test]
    fn who_comes_back_finds_the_rate_of_when_it_left() {
        for grown in [1, 2, 1_000] {
            let (mut carried, window) = left(0);
            assert_eq!(window.bytes(), 1_020);
            let window = bytes(window.bytes() * grown);
            assert_eq!(back(&mut carried, window, 0), 51_000, "grown to {grown} times");
        }
    }

    #[test]
    fn a_rate_that_has_become_less_is_carried() {
        let (mut carried, _) = left(0);
        assert_eq!(back(&mut carried, bytes(100), 0), 5_000);
    }

    #[test]
    fn a_queue_that_has_drained_makes_no_rate() {
        let (mut carried, window) = left(49_000);
        assert_eq!(window.bytes(), 25_757, "beside a queue the near ones' part is large");
        assert_eq!(back(&mut carried, window, 0), 25_757, "51,000 in 99 ms are that in 50");
    }

    #[test]
    fn what_was_delivered_since_is_there() {
        let (mut carried, window) = left(0);
        for i in 0..=100 {
            carried.count_delivered(10_000 * i, 100_000);
        }
        assert_eq!(back(&mut carried, window.plus(bytes(100_000)), 0), 500_000, "10 MB/s in 50 ms");
        let (mut carried, window) = left(0);
        carried.count_delivered(0, 100_000);
        carried.count_delivered(1_000, 100_000);
        assert_eq!(back(&mut carried, window.plus(bytes(100_000)), 0), 51_000, "no round trip");
    }

    #[test]
    fn who_comes_a_part_of_the_way_forgets_nothing() {
        let (mut carried, window) = left(0);
        let most = bytes(1_000_000);
        let factor = carried.carry(window.plus(most), mean(NEAR, 0), mean(2 * NEAR, 0));
        assert_eq!(window.plus(most).times(factor).bytes(), 2_040);
        assert_eq!(back(&mut carried, most, 0), 51_000);
        assert_eq!(back(&mut carried, most, 0), 50_000_000, "and then they were there");
    }
}
