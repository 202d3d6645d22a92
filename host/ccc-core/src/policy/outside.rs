// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether others who fill the queue share a bottleneck with a group.
//!
//! Alone, and beside traffic that does not respond, a group that keeps a target finds
//! the queue back at it within a few looks.  A TCP outside fills what the group gives
//! up, and the queue does not come back: Copa's test (Arun, Balakrishnan, NSDI 2018).
//! Then the group competes, as one TCP.
//!
//! Whether the other has gone is tried: the window is cut by what waits.  Alone that is
//! all there is in the queue; of two with equal windows it is a half.
//!
//! A path that has become longer looks like a queue that does not come back, too, and the
//! group would give up a path of its own.  So before it competes the window is halved for
//! a round: a queue is shorter then by what that took, less what others add to it in a
//! round; of a longer path nothing goes.
use crate::fixed::{Fraction, Window};

/// So many looks in a row above the target and a half, and someone fills the queue.
const LOOKS: u32 = 8;
/// Rounds between two trials, and at least that much of the target in the queue then:
/// of less, half would be hard to tell from all.
const ROUNDS: u32 = 40;
const FULL: u64 = 4;
/// A queue that does not hold so much is tried after so many times as many rounds, and so
/// is any in the end: with each trial that finds others the next is later, since in each
/// the group yields.
const PATIENCE: u32 = 4;
/// Of what waited above the target, a part less than this may be left.
const LEFT: u64 = 4;

/// A path is longer if less than this part of what half of the window took has gone, where
/// that can be told from noise.
const GONE: u64 = 8;
const TOLD_US: u64 = 2_000;
/// Who fills the queue is taken for a longer path once in so many looks.
const LOOKS_BETWEEN: u32 = 256;

/// What the group does about others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Keeps the target.
    #[default]
    Keep,
    /// Competes as one TCP, for so many rounds.
    Compete(u32),
    /// Had this window and so much queue, and has cut it.
    Trial(Window, u64),
    /// Goes back to this window, and has halved another, at so much queue, of which so much
    /// is to go.
    Probe(Window, u64, u64),
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nobody, so far: the target is kept.
    Nobody,
    /// Others, or somebody who may be: the window is this one.
    Others(Window),
    /// All that stands in the queue is a part of the path: the window is this one.
    Longer(Window),
}

/// Watches a queue.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) mode: Mode,
    /// Looks in a row that found more than the target, and the window before.
    looks: u32,
    before: Window,
    /// Trials in a row that have found others.
    found: u32,
    /// Looks to come before the path may be longer again.
    longer: u32,
}

impl Outside {
    /// Takes what a look found while the window was that, half of which takes `half_us` on
    /// the path.
    pub(super) fn look(
        &mut self,
        window: Window,
        queue_us: u64,
        target_us: u64,
        half_us: u64,
    ) -> Found {
        self.longer = self.longer.saturating_sub(1);
        match self.mode {
            Mode::Trial(before, waited_us) => {
                let gone = queue_us <= target_us + waited_us.saturating_sub(target_us) / LEFT;
                self.found = if gone { 0 } else { self.found.saturating_add(1) };
                self.answered(gone, if gone { Found::Nobody } else { Found::Others(before) })
            }
            Mode::Probe(before, waited_us, to_go_us) => {
                let is_longer = waited_us.saturating_sub(queue_us) < to_go_us / GONE;
                self.answered(
                    is_longer,
                    match is_longer {
                        true => Found::Longer(before),
                        false => Found::Others(before),
                    },
                )
            }
            _ => self.keeps(window, queue_us, target_us, half_us),
        }
    }

    fn answered(&mut self, keeps: bool, found: Found) -> Found {
        self.mode = if keeps { Mode::Keep } else { Mode::Compete(0) };
        self.looks = 0;
        found
    }

    /// A look while the target is kept.
    fn keeps(&mut self, window: Window, queue_us: u64, target_us: u64, half_us: u64) -> Found {
        if 2 * queue_us <= 3 * target_us {
            self.looks = 0;
            return Found::Nobody;
        }
        if self.looks == 0 {
            self.before = window;
        }
        self.looks += 1;
        if self.looks < LOOKS {
            return Found::Nobody;
        }
        let before = self.before.max(window);
        let to_go_us = half_us.min(queue_us);
        if self.longer == 0 && to_go_us >= TOLD_US {
            self.longer = LOOKS_BETWEEN;
            self.mode = Mode::Probe(before, queue_us, to_go_us);
            return Found::Others(window.halved(1));
        }
        self.answered(false, Found::Others(before))
    }

    /// A round of competing is over; says whether to try if the other has gone.
    pub(super) fn is_trial_due(&mut self, window: Window, queue_us: u64, target_us: u64) -> bool {
        let Mode::Compete(rounds) = self.mode else { return false };
        let times = if queue_us >= FULL * target_us { self.found + 1 } else { PATIENCE };
        let due = ROUNDS * times.min(PATIENCE);
        let is_due = rounds >= due && queue_us > target_us;
        self.mode = if is_due { Mode::Trial(window, queue_us) } else { Mode::Compete(rounds + 1) };
        is_due
    }

    /// Windows of before are so many times what they were.
    pub(super) fn scale(&mut self, factor: Fraction) {
        self.before = self.before.times(factor);
        if let Mode::Trial(window, _) | Mode::Probe(window, ..) = &mut self.mode {
            *window = window.times(factor);
        }
    }

    /// A loss in a trial is an answer.
    pub(super) fn lost(&mut self) {
        if matches!(self.mode, Mode::Trial(..) | Mode::Probe(..)) {
            self.found = self.found.saturating_add(1);
            self.mode = Mode::Compete(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 5_000;

    fn window(bytes: u64) -> Window {
        Window::from_bytes(bytes)
    }

    #[test]
    fn a_queue_that_comes_back_to_its_target_is_nobodys() {
        let mut outside = Outside::default();
        for look in 1..100_u32 {
            let queue_us = if look % LOOKS == 0 { TARGET } else { 20 * TARGET };
            let found = outside.look(window(9), queue_us, TARGET, 0);
            assert_eq!(found, Found::Nobody, "look {look}");
        }
    }

    #[test]
    fn who_begins_to_compete_takes_back_what_was_given_up() {
        let mut outside = Outside::default();
        let windows = (0..u64::from(LOOKS))
            .map(|look| outside.look(window(1000 - look), 2 * TARGET, TARGET, 0));
        assert_eq!(windows.last(), Some(Found::Others(window(1000))));
        assert_eq!(outside.mode, Mode::Compete(0));
    }

    #[test]
    fn a_trial_finds_out_who_is_there() {
        for (left_us, mode) in [(TARGET, Mode::Keep), (5 * TARGET, Mode::Compete(0))] {
            let mut outside = Outside { mode: Mode::Compete(ROUNDS), ..Outside::default() };
            assert!(outside.is_trial_due(window(1000), 9 * TARGET, TARGET));
            let found = outside.look(window(500), left_us, TARGET, 0);
            assert_eq!(outside.mode, mode);
            let nobody = mode == Mode::Keep;
            assert_eq!(found, if nobody { Found::Nobody } else { Found::Others(window(1000)) });
        }
    }

    #[test]
    fn a_longer_path_is_told_from_others_once_in_a_while() {
        // Of what the half took all, a part or nothing goes.
        let half_us = 3 * TARGET;
        for (left_us, is_longer) in [(9, false), (11, false), (12, true)] {
            let mut outside = Outside::default();
            let mut look = |queue: u64| outside.look(window(800), queue * TARGET, TARGET, half_us);
            let looks: Vec<Found> = (0..LOOKS).map(|_| look(12)).collect();
            assert_eq!(looks.last(), Some(&Found::Others(window(400))));
            let then = if is_longer { Found::Longer } else { Found::Others };
            assert_eq!(look(left_us), then(window(800)), "{left_us} left");
            if is_longer {
                assert_eq!(outside.mode, Mode::Keep);
                let again =
                    (0..LOOKS).map(|_| outside.look(window(9), 9 * TARGET, TARGET, half_us));
                assert_eq!(again.last(), Some(Found::Others(window(9))), "not at once again");
            }
            assert!(matches!(outside.mode, Mode::Compete(_)));
        }
    }

    #[test]
    fn a_short_queue_is_tried_less_often() {
        let due = |queue_us| {
            let mut outside = Outside { mode: Mode::Compete(0), ..Outside::default() };
            (0..1000).position(|_| outside.is_trial_due(window(9), queue_us, TARGET))
        };
        assert_eq!(due(FULL * TARGET), Some(40));
        assert_eq!(due(2 * TARGET), Some(160));
        assert_eq!(due(TARGET), None, "nothing to cut");
    }

    #[test]
    fn each_trial_that_finds_others_makes_the_next_later() {
        let mut outside = Outside { mode: Mode::Compete(0), ..Outside::default() };
        let mut due = || {
            let due = (0..1000).position(|_| outside.is_trial_due(window(9), 9 * TARGET, TARGET));
            outside.look(window(5), 9 * TARGET, TARGET, 0);
            due
        };
        assert_eq!([due(), due(), due(), due(), due()], [40, 80, 120, 160, 160].map(Some));
    }

    #[test]
    fn a_loss_in_a_trial_goes_on_competing() {
        let mut outside = Outside { mode: Mode::Trial(window(9), TARGET), ..Outside::default() };
        outside.lost();
        assert_eq!(outside.mode, Mode::Compete(0));
    }
}
