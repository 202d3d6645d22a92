// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How much of the aggregate is used.
//!
//! One TCP whose application does not use its window gives up half of what it did not use
//! in each retransmission timeout (RFC 2861, section 3): of that the path was not shown to
//! hold it.  Where all flows of a group are limited by their applications, nobody would find
//! out otherwise what grew too large, until somebody takes all of it at once.
use crate::fixed::{Micros, Window};

/// Twice the smallest retransmission timeout of common stacks, and so many round trips.
const PERIOD_US: Micros = 400_000;
const PERIOD_ROUNDS: Micros = 8;

/// A period, and the most that has been used in a round trip of it.
#[derive(Debug, Default)]
pub(super) struct Used {
    since: Micros,
    most: Window,
    /// Less than half of the window was used in the latest round trip.
    is_doubtful: bool,
    /// Somebody who takes all it is given has done so.
    is_proven: bool,
}

impl Used {
    /// Whether somebody who takes all it is given is asked for, and none has been found.
    pub(super) fn needs_proof(&self) -> bool {
        self.is_doubtful && !self.is_proven
    }

    /// A backlogged flow uses so much of what it is granted.  Most of a part of the window is proof
    /// of all of it: who uses no more than its part would lose it for others who use none of theirs.
    pub(super) fn prove(&mut self, used_bytes: u64, granted_bytes: u64) {
        self.is_proven |= used_bytes >= granted_bytes / 2;
    }

    /// So much of a window was used in a round trip that has lasted so long; at the end of a period
    /// that proves nothing the most of it.
    pub(super) fn round(
        &mut self,
        now: Micros,
        lasted_us: Micros,
        used: Window,
        window: Window,
    ) -> Option<Window> {
        let most = self.most.max(used);
        self.is_doubtful = used.plus(used) < window;
        self.is_proven |= !self.is_doubtful;
        let period_us = PERIOD_US.max(PERIOD_ROUNDS * lasted_us);
        let passed_us = now.saturating_sub(self.since);
        if passed_us < period_us {
            self.most = most;
            return None;
        }
        // Of a pause nothing is known.
        let is_unused = !self.is_proven && passed_us < 2 * period_us;
        *self = Used { since: now, is_doubtful: self.is_doubtful, ..Used::default() };
        is_unused.then_some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_US: Micros = 20_000;
    const WINDOW: Window = Window::MAX;

    /// What is found in two seconds in which so much is used in each round.
    fn found(used: &mut Used, from: Micros, bytes: u64, proof: Option<u64>) -> Vec<u64> {
        let rounds = (1..=100).map(|i| from + i * ROUND_US);
        rounds
            .filter_map(|now| {
                proof.into_iter().for_each(|own| used.prove(own, 100));
                used.round(now, ROUND_US, Window::from_bytes(bytes), WINDOW)
            })
            .map(Window::bytes)
            .collect()
    }

    #[test]
    fn the_most_of_a_period_is_what_is_used() {
        let mut used = Used::default();
        assert_eq!(found(&mut used, 1_000_000, 50, None), [50; 4], "not of the pause before");
        used.round(3_010_000, 10_000, Window::from_bytes(70), WINDOW);
        assert_eq!(found(&mut used, 3_010_000, 50, None)[..2], [70, 50]);
    }

    #[test]
    fn who_uses_what_it_is_granted_proves_the_window() {
        assert_eq!(found(&mut Used::default(), 1_000_000, 50, Some(50)), [0; 0]);
        assert_eq!(found(&mut Used::default(), 1_000_000, 50, Some(49)), [50; 4]);
    }

    #[test]
    fn no_proof_is_asked_for_where_most_is_used() {
        let mut used = Used::default();
        let window = Window::from_bytes(100);
        for (bytes, asks) in [(49, true), (50, false)] {
            used.round(1_000_000, ROUND_US, Window::from_bytes(bytes), window);
            assert_eq!(used.needs_proof(), asks, "{bytes} of 100");
        }
    }

    #[test]
    fn far_flows_have_eight_round_trips() {
        let mut used = Used::default();
        used.round(1_000_000, 1, Window::default(), WINDOW);
        assert_eq!(used.round(2_600_000 - 1, 200_000, Window::default(), WINDOW), None);
        assert!(used.round(2_600_000, 200_000, Window::default(), WINDOW).is_some());
    }
}
