// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! When a guest stands still.

use crate::plan::LEAD_NS;
use crate::random::Rng;
use crate::scenario::stalls;
use crate::units::ns_of_s;

/// The stalls of one guest, drawn one after another from the traffic's start on.
pub struct Stalls {
    bounds: stalls::Stalls,
    rng: Rng,
    begins: u64,
    ends: u64,
}

impl Stalls {
    /// The seed decides them all.
    pub fn new(bounds: &stalls::Stalls, seed: u64) -> Self {
        let mut stalls =
            Self { bounds: bounds.clone(), rng: Rng(seed), begins: LEAD_NS, ends: LEAD_NS };
        stalls.draw();
        stalls
    }

    /// When the stall of this time ends, if there is one; time never goes back.
    pub fn until(&mut self, now: u64) -> Option<u64> {
        while self.ends <= now {
            self.draw();
        }
        (self.begins <= now).then_some(self.ends)
    }

    fn draw(&mut self) {
        let mut between = |bounds| ns_of_s(self.rng.between(bounds) / 1e3);
        self.begins = self.ends + between(self.bounds.every_ms);
        self.ends = self.begins + between(self.bounds.for_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MS_NS;

    fn stalls(every_ms: [f64; 2], for_ms: [f64; 2], seed: u64) -> Stalls {
        Stalls::new(&stalls::Stalls { every_ms, for_ms }, seed)
    }

    /// The milliseconds of the first second in which the guest stands still.
    fn still(mut stalls: Stalls) -> Vec<u64> {
        (0..1000).filter(|ms| stalls.until(LEAD_NS + ms * MS_NS).is_some()).collect()
    }

    #[test]
    fn a_guest_runs_and_stands_still_by_turns() {
        let mut even = stalls([200.0; 2], [50.0; 2], 1);
        let ends = [0, 199, 200, 249, 250, 449, 450].map(|ms| even.until(LEAD_NS + ms * MS_NS));
        let at = |ms: u64| Some(LEAD_NS + ms * MS_NS);
        assert_eq!(ends, [None, None, at(250), at(250), None, None, at(500)]);
    }

    #[test]
    fn the_seed_decides_when() {
        let drawn = |seed| still(stalls([50.0, 150.0], [5.0, 50.0], seed));
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert!((20..=500).contains(&drawn(1).len()), "{}", drawn(1).len());
    }
}
