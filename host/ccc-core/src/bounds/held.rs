// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How long packets of a VM hold their places in its window, by Little's law.
//!
//! What is on the path is the rate times the round-trip time.  So who claims a long time
//! to have a large window, and has it acknowledged sooner, is nearer than it says.
use crate::{
    engine::IDLE_AFTER_US,
    fixed::{Fraction, Micros},
};

/// A mean is over this time at the least, and over twice as long at the most.
const MEAN_OVER_US: Micros = 1 << 21;
/// A time may be longer than what was measured by this part: windows change meanwhile.  Of
/// honest VMs 99.6 % of reports are within it, of liars it is what they win.
const SLACK: u128 = 16;

/// A VM's window over time, and what was delivered of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    window: u128,
    delivered_bytes: u64,
    /// Each byte that was delivered, times the time that was told then: after the path has
    /// become slower, bytes of before took the time of before.
    told: u128,
    /// The time that is told now.
    told_us: Micros,
    span_us: Micros,
    heard: Option<Micros>,
}

impl Held {
    /// From now on it says that it is so far away.
    pub(super) fn hear(&mut self, told_us: Micros) {
        self.told_us = told_us;
    }

    /// A VM of this window has had so much delivered since it was heard.
    pub(super) fn add(&mut self, now: Micros, window_bytes: u64, delivered_bytes: u64) {
        let elapsed_us = self.heard.map_or(0, |heard| now.saturating_sub(heard));
        // Who is silent for longer is idle.
        let elapsed_us = elapsed_us.min(IDLE_AFTER_US);
        self.heard = Some(now);
        self.window += u128::from(window_bytes) * u128::from(elapsed_us);
        let told = u128::from(self.told_us) * u128::from(delivered_bytes);
        self.told = self.told.saturating_add(told);
        self.delivered_bytes = self.delivered_bytes.saturating_add(delivered_bytes);
        self.span_us += elapsed_us;
        if self.span_us >= 2 * MEAN_OVER_US {
            self.window /= 2;
            self.told /= 2;
            self.delivered_bytes /= 2;
            self.span_us /= 2;
        }
    }

    /// The part of a time that is believed, if not all.  Who claims a long time no more is
    /// believed at once.
    pub(super) fn believed(&self) -> Option<Fraction> {
        let now = u128::from(self.told_us) * u128::from(self.delivered_bytes);
        let told = self.told.min(now);
        // Most are within it without the slack.
        if self.span_us < MEAN_OVER_US || told <= self.window {
            return None;
        }
        let most = self.window.saturating_add(self.window / SLACK);
        (told > most).then(|| Fraction::new(most, told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_US: Micros = 100_000;

    /// A VM of this window that is [`RTT_US`] away and tells so much, for some round trips.
    fn held(window_bytes: u64, told_us: Micros, rounds: u64) -> Held {
        let mut held = Held::default();
        held.hear(told_us);
        for eighth in 0..8 * rounds {
            held.add(eighth * RTT_US / 8, window_bytes, window_bytes / 8);
        }
        held
    }

    fn believed_us(held: &Held) -> Micros {
        held.believed().map_or(held.told_us, |part| part.of(held.told_us))
    }

    #[test]
    fn who_has_its_window_acknowledged_sooner_than_it_says_is_nearer() {
        for told_us in [RTT_US, RTT_US * 21 / 20] {
            assert_eq!(believed_us(&held(80_000, told_us, 100)), told_us);
        }
        let found = believed_us(&held(80_000, 10_000_000, 100));
        assert!((RTT_US..=RTT_US * 11 / 10).contains(&found), "{found} us");
    }

    #[test]
    fn nothing_is_said_of_the_first_two_seconds() {
        assert_eq!(believed_us(&held(80_000, 10_000_000, 20)), 10_000_000);
        assert!(believed_us(&held(80_000, 10_000_000, 22)) < 10_000_000);
    }

    #[test]
    fn a_reduction_is_no_shorter_time() {
        let mut held = held(80_000, RTT_US, 100);
        let at = 100 * RTT_US;
        // What was on the path is acknowledged after it.
        held.add(at, 40_000, 80_000);
        assert_eq!(believed_us(&held), RTT_US);
    }

    #[test]
    fn a_path_that_becomes_slower_makes_nobody_nearer() {
        let mut held = held(80_000, RTT_US, 100);
        for round in 0..40 {
            held.hear(5 * RTT_US);
            held.add((105 + 5 * round) * RTT_US, 80_000, 80_000);
            assert_eq!(believed_us(&held), 5 * RTT_US, "after {round} round trips");
        }
    }

    #[test]
    fn who_uses_a_part_of_its_window_is_as_far_as_it_says() {
        let mut held = Held::default();
        held.hear(10 * RTT_US);
        (0..100).for_each(|round| held.add(round * RTT_US, 80_000, 8_000));
        assert_eq!(believed_us(&held), 10 * RTT_US);
    }

    #[test]
    fn any_report_can_be_added() {
        let mut held = Held::default();
        for now in [0, 1, u64::MAX] {
            held.hear(u64::MAX);
            held.add(now, 1 << 40, u64::MAX);
            held.believed();
        }
    }
}
