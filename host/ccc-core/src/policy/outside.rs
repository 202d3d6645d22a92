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
use crate::fixed::Window;

/// So many looks in a row above the target and a half, and someone fills the queue.
const LOOKS: u32 = 10;
/// Rounds between two trials, and at least that much of the target in the queue then:
/// of less, half would be hard to tell from all.
const ROUNDS: u32 = 30;
const FULL: u64 = 4;
/// A queue that does not hold so much is tried after so many times as many rounds.
const PATIENCE: u32 = 4;
/// Of what waited above the target, a part less than this may be left.
const LEFT: u64 = 4;

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
}

/// Watches a queue.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) mode: Mode,
    /// Looks in a row that found more than the target, and the window before.
    looks: u32,
    before: Window,
}

impl Outside {
    /// Takes what a look found while the window was that; returns a window if
    /// competing begins, or goes on, with it.
    pub(super) fn look(&mut self, window: Window, queue_us: u64, target_us: u64) -> Option<Window> {
        if let Mode::Trial(before, waited_us) = self.mode {
            let gone = queue_us <= target_us + waited_us.saturating_sub(target_us) / LEFT;
            self.mode = if gone { Mode::Keep } else { Mode::Compete(0) };
            self.looks = 0;
            return (!gone).then_some(before);
        }
        if 2 * queue_us <= 3 * target_us {
            self.looks = 0;
            return None;
        }
        if self.looks == 0 {
            self.before = window;
        }
        self.looks += 1;
        if self.looks < LOOKS {
            return None;
        }
        self.mode = Mode::Compete(0);
        Some(self.before.max(window))
    }

    /// A round of competing is over; says whether to try if the other has gone.
    pub(super) fn is_trial_due(&mut self, window: Window, queue_us: u64, target_us: u64) -> bool {
        let Mode::Compete(rounds) = self.mode else { return false };
        let due = if queue_us >= FULL * target_us { ROUNDS } else { PATIENCE * ROUNDS };
        let is_due = rounds >= due && queue_us > target_us;
        self.mode = if is_due { Mode::Trial(window, queue_us) } else { Mode::Compete(rounds + 1) };
        is_due
    }

    /// A loss in a trial is an answer.
    pub(super) fn lost(&mut self) {
        if matches!(self.mode, Mode::Trial(..)) {
            self.mode = Mode::Compete(0);
        }
    }
}
