// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A round over all tenants: leases are renewed, and whoever is not connected connects.
//!
//! Somebody who takes a connection and does not answer is waited for, for a second, by all.  So
//! those that are connected have their turn first, each by the clock and not by when the round
//! began, nobody waits for two in a round, and who was waited for is asked again later and later,
//! and after all others.

/// Waiting for so long is waiting: who is there, or is not, says so at once.
pub const SLOW_US: u64 = 100_000;

/// A tenant, as far as a round goes.
pub trait Tended {
    /// Takes what has come, and says until when grants hold.
    fn renew(&mut self, now_us: u64);

    /// Connects, if it is to; whether it has tried.
    fn connect(&mut self, now_us: u64) -> bool;

    /// It was waited for: unless it has connected, it tries again only after a while.
    fn put_off(&mut self, now_us: u64);
}

/// One round by a clock; `turned` is called after each tenant that may have taken time.  `first`
/// is who has the first turn to connect: whoever comes after the one that was last waited for.
pub fn tend(
    all: &mut [impl Tended],
    first: &mut usize,
    clock: impl Fn() -> u64,
    mut turned: impl FnMut(),
) {
    for one in &mut *all {
        one.renew(clock());
    }
    turned();
    for turn in 0..all.len() {
        let at = (*first + turn) % all.len();
        let one = &mut all[at];
        let began_us = clock();
        if !one.connect(began_us) {
            continue;
        }
        let now_us = clock();
        one.renew(now_us);
        turned();
        if now_us - began_us >= SLOW_US {
            one.put_off(now_us);
            *first = at + 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::back_off::BackOff;

    const SECOND: u64 = 1_000_000;

    /// One that connects in no time, or never and takes a second each time.
    struct Fake<'a> {
        clock: &'a Cell<u64>,
        hangs: bool,
        connected: bool,
        back_off: BackOff,
        tries: usize,
        renewed_us: u64,
        longest_us: u64,
    }

    impl Fake<'_> {
        fn new(clock: &Cell<u64>, hangs: bool) -> Fake<'_> {
            Fake {
                clock,
                hangs,
                connected: false,
                back_off: BackOff::default(),
                tries: 0,
                renewed_us: 0,
                longest_us: 0,
            }
        }
    }

    impl Tended for Fake<'_> {
        fn renew(&mut self, now_us: u64) {
            if self.connected {
                assert_eq!(now_us, self.clock.get(), "by the clock");
                self.longest_us = self.longest_us.max(now_us - self.renewed_us);
                self.renewed_us = now_us;
            }
        }

        fn connect(&mut self, now_us: u64) -> bool {
            if self.connected || !self.back_off.is_over(now_us) {
                return false;
            }
            self.tries += 1;
            self.connected = !self.hangs;
            self.renewed_us = now_us;
            self.clock.set(now_us + if self.hangs { SECOND } else { 0 });
            true
        }

        fn put_off(&mut self, now_us: u64) {
            self.back_off.ended(now_us);
        }
    }

    #[test]
    fn nobody_waits_for_two_in_a_round_and_who_hangs_is_asked_less_and_less_often() {
        let clock = Cell::new(7);
        let mut all = [true, true, true, true, false].map(|hangs| Fake::new(&clock, hangs));
        all[4].connect(7);
        let (mut first, mut turned) = (0, 0);
        while clock.get() < 60 * SECOND {
            tend(&mut all, &mut first, || clock.get(), || turned += 1);
            clock.set(clock.get() + SECOND / 10);
        }
        assert!(all[4].longest_us <= SECOND + SECOND / 10, "{} us", all[4].longest_us);
        let tries: Vec<usize> = all[..4].iter().map(|one| one.tries).collect();
        assert!(tries.iter().all(|tries| (3..=16).contains(tries)), "{tries:?} in a minute");
        assert!(turned > tries.iter().sum::<usize>());
    }

    #[test]
    fn who_is_there_connects_behind_any_number_that_hang() {
        let clock = Cell::new(7);
        let mut all: Vec<_> = (0..40).map(|at| Fake::new(&clock, at < 39)).collect();
        let mut first = 0;
        while !all[39].connected && clock.get() < 120 * SECOND {
            tend(&mut all, &mut first, || clock.get(), || {});
            clock.set(clock.get() + SECOND / 10);
        }
        assert!(clock.get() < 50 * SECOND, "{} us", clock.get());
    }

    #[test]
    fn all_that_are_there_connect_in_one_round() {
        let clock = Cell::new(7);
        let mut all: Vec<_> = (0..1000).map(|_| Fake::new(&clock, false)).collect();
        tend(&mut all, &mut 0, || clock.get(), || {});
        assert!(all.iter().all(|one| one.connected));
    }
}
