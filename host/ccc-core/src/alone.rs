// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether a group has its path for itself.
//!
//! What waits in the queue of a path of one group follows from the group's window: all
//! that is above what the path holds.  So the queue at a congestion event foretells those
//! of the rounds after it, by their windows, whatever the reduction, the growth and the
//! length of the queue.  Beside others, who reduce and grow by what they see, it does not:
//! packets wait when none should, or the queue empties while the group gives up nothing.
use crate::fixed::{Micros, Window, mul_div};

/// A reduction takes effect, and is seen, in so many round-trip times.
const SETTLES_ROUNDS: Micros = 2;
/// The group shares its path if more than one half of what waits is not as foretold, and
/// has it for itself if less than a third.
const SHARED: Micros = 2;
const ALONE: Micros = 3;
/// Longer delays count as this one, so that no sum overflows.
const DELAY_MAX_US: Micros = 1 << 30;

/// A group's window, and what fills the path of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    pub(crate) aggregate: Window,
    /// What backlogged flows take of it.  What a limited VM leaves them is a rate: a smaller
    /// window, if they are nearer than it is.
    pub(crate) used: Window,
}

/// What waited in a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) queue_us: Micros,
    /// More or less than that in a part of it: a burst's queue comes and goes in a round.
    pub(crate) strays_us: Micros,
}

/// A path with a full queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub(crate) windows: Windows,
    /// Mean round-trip time of the group without a queue.
    pub(crate) base_us: Micros,
    pub(crate) queue_us: Micros,
}

impl Full {
    /// What waits of another window if nobody else has any, where what is delivered takes
    /// so long without a queue: of near and far flows now these deliver more, now those.
    fn foretells_us(&self, used: Window, base_us: Micros) -> Micros {
        self.waits_us(used, self.windows.used, base_us)
    }

    /// The same of this window, if the queue was full at that one.
    fn waits_us(&self, window: Window, full: Window, base_us: Micros) -> Micros {
        let rtt_us = self.base_us + self.queue_us;
        mul_div(rtt_us, window.raw(), full.raw().max(1)).saturating_sub(base_us).min(DELAY_MAX_US)
    }
}

/// Compares what waits with what was foretold.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    /// At the latest event that was a measure.
    full: Option<Full>,
    /// That was the latest event, and who counts is not much nearer or farther than those who
    /// filled the queue then, so rounds are foretold of it.
    foretells: bool,
    /// Rounds that begin before that say nothing.
    from: Micros,
    /// Nor do those so soon after the beginning of the round that ends next: who counts has changed.
    settles_us: Micros,
    /// Sums over rounds, halved with each event: differences, and the larger ones.
    off_us: Micros,
    all_us: Micros,
    shared: bool,
}

impl Alone {
    /// Others seem to use the path.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Other flows count from now on.  The farthest has delivered after so long.
    pub(crate) fn changed(&mut self, rtt_us: Micros) {
        let settles_us = SETTLES_ROUNDS * rtt_us.min(DELAY_MAX_US);
        self.settles_us = self.settles_us.max(settles_us);
    }

    /// They are much nearer or farther than those before.
    pub(crate) fn are_others(&mut self) {
        self.foretells = false;
    }

    /// Whether the queue was full at the latest event, by all that was on the path.
    pub(crate) fn was_full(&self) -> bool {
        self.foretells
    }

    fn known(&self) -> Option<Full> {
        self.full.filter(|_| self.foretells)
    }

    /// Where others filled the queue none is for rounds: they have left.
    pub(crate) fn others_left(&mut self) {
        *self = Alone { from: self.from, settles_us: self.settles_us, ..Alone::default() };
    }

    /// What would wait where so much is used, as far as that is known.
    pub(crate) fn foretells_us(&self, used: Window, base_us: Micros) -> Option<Micros> {
        Some(self.known()?.foretells_us(used, base_us))
    }

    /// What waits of this aggregate of flows that are so far away, if they are alone: of what was
    /// measured last, and of nothing that has been said since.
    pub(crate) fn waits_us(&self, window: Window, mean_us: Micros) -> Option<Micros> {
        let full = self.full.filter(|_| !self.shared)?;
        Some(full.waits_us(window, full.windows.aggregate, mean_us))
    }

    /// A round that began then ends, whether or not it is compared.
    pub(crate) fn round_ends(&mut self, since: Micros) {
        let settles_us = std::mem::take(&mut self.settles_us);
        if settles_us > 0 {
            self.from = self.from.max(since.saturating_add(settles_us));
        }
    }

    /// In one that began then, where so much was used, this was seen.
    pub(crate) fn compare(&mut self, since: Micros, used: Window, base_us: Micros, seen: Seen) {
        let Some(full) = self.known().filter(|_| since >= self.from) else { return };
        let (told, waited) = (full.foretells_us(used, base_us), seen.queue_us.min(DELAY_MAX_US));
        // Of near and far flows so much is not known of the queue, nor where it comes and goes.
        let unsure_us = full.base_us.abs_diff(base_us).saturating_add(seen.strays_us);
        self.off_us = self.off_us.saturating_add(told.abs_diff(waited).saturating_sub(unsure_us));
        self.all_us = self.all_us.saturating_add(told.max(waited));
    }

    /// A congestion event at a mean round-trip time, of a queue that was full, if it was.
    pub(crate) fn event(&mut self, now: Micros, rtt_us: Micros, full: Option<Full>) {
        if self.off_us > self.all_us / SHARED {
            self.shared = true;
        } else if self.off_us <= self.all_us / ALONE {
            // Or all that was seen is forgotten.
            self.shared = false;
        }
        self.off_us /= 2;
        self.all_us /= 2;
        // So soon after another reduction not all of the window is on the path, nor was it
        // after that one; and once who counts has changed, the window is not of these.
        let full = full.filter(|_| now >= self.from && self.settles_us == 0);
        self.foretells = full.is_some();
        self.full = full.or(self.full);
        self.from = now.saturating_add(SETTLES_ROUNDS * rtt_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE_US: Micros = 40_000;
    const QUEUE_US: Micros = 10_000;
    const RTT_US: Micros = BASE_US + QUEUE_US;

    fn segments(count: u64) -> Window {
        Window::from_bytes(count * 1000)
    }

    /// A queue that is full at 100 segments.
    fn full() -> Full {
        full_at(100)
    }

    fn full_at(count: u64) -> Full {
        let window = segments(count);
        let windows = Windows { aggregate: window, used: window };
        Full { windows, base_us: BASE_US, queue_us: QUEUE_US }
    }

    /// Events with such a queue each ten seconds, and between them rounds of these windows
    /// with what waits.
    struct Group {
        alone: Alone,
        now: Micros,
        base_us: Micros,
    }

    impl Group {
        fn new() -> Group {
            let mut group = Group { alone: Alone::default(), now: 0, base_us: BASE_US };
            group.event();
            group
        }

        fn event(&mut self) -> bool {
            self.now += 1;
            self.alone.event(self.now, RTT_US, Some(full()));
            self.now += SETTLES_ROUNDS * RTT_US;
            self.alone.is_shared()
        }

        fn round(&mut self, used: Window, queue_us: Micros) {
            self.alone.round_ends(self.now);
            let seen = Seen { queue_us, ..Seen::default() };
            self.alone.compare(self.now, used, self.base_us, seen);
        }

        fn epoch(&mut self, rounds: impl IntoIterator<Item = (u64, Micros)>) -> bool {
            for (count, queue_us) in rounds {
                self.round(segments(count), queue_us);
                self.now += RTT_US;
            }
            self.event()
        }
    }

    /// The path holds 80 segments.
    fn by_itself(from: u64) -> impl Iterator<Item = (u64, Micros)> {
        (from..100).map(|count| (count, count.saturating_sub(80) * 500))
    }

    #[test]
    fn what_waits_is_what_the_path_does_not_hold() {
        let waits =
            [50, 80, 90, 100, 120].map(|count| full().foretells_us(segments(count), BASE_US));
        assert_eq!(waits, [0, 0, 5_000, 10_000, 20_000]);
    }

    #[test]
    fn rounds_are_foretold_by_what_is_used_and_who_comes_by_the_aggregate() {
        // A limited VM that is far away leaves the others four fifths of the aggregate.
        let windows = Windows { aggregate: segments(125), used: segments(100) };
        let mut alone = Alone::default();
        alone.event(1, RTT_US, Some(Full { windows, ..full() }));
        assert_eq!(alone.foretells_us(segments(90), BASE_US), Some(5_000));
        assert_eq!(alone.waits_us(segments(125), BASE_US), Some(QUEUE_US));
    }

    #[test]
    fn who_sees_what_its_window_makes_wait_is_alone_whatever_it_gives_up() {
        for from in [50, 80] {
            let mut group = Group::new();
            assert!((0..8).all(|_| !group.epoch(by_itself(from))), "to {from}");
        }
    }

    #[test]
    fn a_queue_that_is_a_part_longer_is_no_sign_of_others() {
        let mut group = Group::new();
        let longer = || by_itself(80).map(|(count, queue_us)| (count, queue_us + 2_000));
        assert!((0..8).all(|_| !group.epoch(longer())));
    }

    #[test]
    fn who_sees_a_queue_that_is_not_its_own_shares_the_path() {
        let mut group = Group::new();
        // Others fill it sooner.
        assert!(group.epoch((50..70).map(|count| (count, (count - 50) * 500))));
    }

    #[test]
    fn who_sees_no_queue_of_a_window_that_made_one_shares_the_path() {
        let mut group = Group::new();
        assert!(group.epoch((80..120).map(|count| (count, 0))));
    }

    #[test]
    fn who_is_alone_again_is_found_out_in_some_epochs() {
        let mut group = Group::new();
        assert!(group.epoch((50..70).map(|count| (count, (count - 50) * 500))));
        let shared: Vec<_> = (0..4).map(|_| group.epoch(by_itself(50))).collect();
        assert_eq!(shared, [false; 4]);
    }

    #[test]
    fn a_verdict_for_which_nothing_speaks_any_more_is_forgotten() {
        let mut group = Group::new();
        assert!(group.epoch((50..70).map(|count| (count, (count - 50) * 500))));
        let forgotten = (1..100).find(|_| !group.event());
        assert_eq!(forgotten, Some(17));
    }

    #[test]
    fn no_round_is_judged_before_a_reduction_has_settled() {
        let mut group = Group::new();
        group.now -= 1;
        assert!(!group.epoch([(50, 10_000)]));
        assert!(group.epoch([(50, 10_000)]));
    }

    #[test]
    fn a_queue_that_comes_and_goes_in_a_round_says_less_of_others() {
        let shared_after = |strays_us| {
            let mut group = Group::new();
            for _ in 0..10 {
                let seen = Seen { queue_us: 10_000, strays_us };
                group.alone.compare(group.now, segments(50), BASE_US, seen);
                group.now += RTT_US;
            }
            group.event()
        };
        assert_eq!([0, 4_900, 5_100].map(shared_after), [true, true, false]);
    }

    #[test]
    fn losses_in_a_row_are_no_measure() {
        let mut group = Group::new();
        // What was lost is not on the path: 50 segments fill it, it seems.
        let few = Some(full_at(50));
        group.alone.event(group.now, RTT_US, few);
        group.alone.event(group.now + 1, RTT_US, few);
        group.now += 1 + SETTLES_ROUNDS * RTT_US;
        assert!(!group.epoch(by_itself(50)));
    }

    #[test]
    fn who_joins_from_afar_changes_what_is_foretold() {
        let mut group = Group::new();
        group.alone.changed(2 * BASE_US);
        // It has not delivered yet.
        group.round(segments(180), 0);
        group.now += 4 * BASE_US - 1;
        group.round(segments(180), 0);
        group.now += 1;
        // From twice as far, 160 segments fill the path.
        group.base_us = 2 * BASE_US;
        let rounds = (160..200_u64).map(|count| (count, (count - 160) * 500));
        assert!(!group.epoch(rounds));
    }

    #[test]
    fn a_window_of_before_a_change_is_no_measure_of_who_counts_now() {
        let others = |group: &mut Group| group.epoch((50..70).map(|count| (count, 0)));
        let mut group = Group::new();
        assert!(!group.epoch((100..120).map(|count| (count, (count - 80) * 500))));
        group.alone.changed(BASE_US);
        group.event();
        assert!(!others(&mut group), "as it was full before others came");
        let mut group = Group::new();
        group.alone.are_others();
        assert!(!group.epoch((50..70).map(|count| (count, 50_000))), "nothing is foretold of them");
        assert!(group.epoch((50..70).map(|count| (count, 50_000))), "but from the next event on");
    }

    #[test]
    fn who_is_far_away_takes_its_own_round_trips_to_come() {
        let shared_after = |rounds| {
            let mut group = Group::new();
            group.alone.changed(10 * RTT_US);
            group.alone.changed(RTT_US);
            group.epoch(std::iter::repeat_n((50, 50_000), rounds))
        };
        let settles = 10 * SETTLES_ROUNDS as usize;
        assert!(!shared_after(settles));
        assert!(shared_after(settles + 1));
    }

    #[test]
    fn no_claim_of_a_guest_overflows_a_sum() {
        let mut alone = Alone::default();
        let far = Full { base_us: DELAY_MAX_US, queue_us: DELAY_MAX_US, ..full_at(1) };
        alone.event(1, Micros::MAX / 4, Some(far));
        for _ in 0..1_000 {
            alone.changed(DELAY_MAX_US);
            alone.round_ends(Micros::MAX);
            let seen = Seen { queue_us: Micros::MAX, strays_us: 0 };
            alone.compare(Micros::MAX, Window::MAX, 0, seen);
            alone.compare(Micros::MAX, Window::MAX, 0, Seen { strays_us: Micros::MAX, ..seen });
        }
        alone.event(Micros::MAX, DELAY_MAX_US, None);
    }
}
