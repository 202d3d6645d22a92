// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What part of a processor something takes now.
use ccc_core::Micros;

/// It is told of the span that goes on, and of the one before.
const SPAN_US: Micros = 5_000_000;

/// Time that was spent in these two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    began: Micros,
    spent_us: Micros,
    before_us: Micros,
}

impl Load {
    /// Time was spent until now.
    pub fn spend(&mut self, now: Micros, spent_us: Micros) {
        self.turn(now);
        self.spent_us += spent_us;
    }

    /// Its part of the last five to ten seconds.
    pub fn ratio(mut self, now: Micros) -> f64 {
        self.turn(now);
        let time_us = SPAN_US + now.saturating_sub(self.began);
        (self.before_us + self.spent_us) as f64 / time_us as f64
    }

    fn turn(&mut self, now: Micros) {
        let over = now.saturating_sub(self.began) / SPAN_US;
        if over > 0 {
            self.began += over * SPAN_US;
            let spent_us = std::mem::take(&mut self.spent_us);
            self.before_us = if over == 1 { spent_us } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_was_spent_of_late() {
        let (mut load, begun) = (Load::default(), 7_000_000_000);
        for at in (0..20 * SPAN_US).step_by(1000) {
            load.spend(begun + at, 250);
        }
        let end = begun + 20 * SPAN_US;
        assert!((load.ratio(end) - 0.25).abs() < 0.001, "{}", load.ratio(end));
        let half = load.ratio(end + SPAN_US / 2);
        assert!((half - 0.25 * 2.0 / 3.0).abs() < 0.001, "nothing since: {half}");
        assert_eq!(load.ratio(end + 2 * SPAN_US), 0.0);
    }
}
