// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Ends the first slow start of an aggregate before it overshoots.
//!
//! One TCP in slow start finds out that the path is full when it has lost half
//! a window; an aggregate does that to all its flows at once.  HyStart++ (RFC
//! 9406) looks for a rising delay instead, but flows that send in bursts see
//! that before the path is full, and flows that double see it a round-trip
//! time late.  An aggregate knows more: the rate at which all its flows
//! deliver.  A window above that rate times the smallest round-trip time,
//! while packets are seen to wait, is more than the path holds.
//!
//! What waits is seen a round-trip time late, in which a doubling aggregate
//! fills the queue.  So growth is halved already when the window is a quarter
//! above that product.  Where the path is not what limits delivery, bursts show
//! a rate that no window comes near.
//!
//! When packets do wait, slow start grows at an eighth of its rate (HyStart++'s
//! conservative slow start, which takes a quarter, would overshoot a queue of
//! one bandwidth-delay product in its five rounds).  It ends after five rounds,
//! and is itself again if for a whole round there is no sign of a full path.
use super::interface::{Others, PathSample};
use crate::fixed::{Fraction, Micros, Window};

/// Delay that counts as waiting (RFC 9406, section 4.3).
const MIN_RTT_THRESH_US: u64 = 4_000;
const MAX_RTT_THRESH_US: u64 = 16_000;
const MIN_RTT_DIVISOR: u64 = 8;
/// A round-trip time doubled is waiting, too: where it is well below 4 ms, as in a
/// data centre, no queue may hold that much.  Not less than eight units of what is
/// reported.
const MIN_DOUBLED_US: u64 = 256;
/// A longer round-trip time counts as this one.
const RTT_MAX_US: u32 = 1 << 20;
/// Growth in conservative slow start, as a shift.
const CSS_SHIFT: u32 = 3;
/// So many rounds of it end slow start (RFC 9406, section 4.3).
const CSS_ROUNDS: u64 = 5;
/// Growth while the window is [`AHEAD`] of what delivery has shown, as a shift.
const AHEAD_SHIFT: u32 = 1;
/// In quarters.
const AHEAD: u64 = 5;
/// What is acknowledged was sent by a window half as large: one that is larger by more has not been
/// used, and grows at an eighth.
const DOUBLED: u64 = 2;
/// The delivery rate is measured over two of so many intervals of a round: short
/// enough to see the rate of a burst, which is the path's.
const INTERVALS: u64 = 8;

/// Others wait too from this part of that on.
const OTHERS: u64 = 4;

/// What slow start may do with acknowledged bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Grow by all of them.
    Full,
    /// Grow by the bytes shifted right by this.
    Slower(u32),
    /// The path is full: leave slow start.
    Over,
}

/// Conservative slow start: the path seems full.
#[derive(Clone, Copy, Debug)]
struct Css {
    since: Micros,
    until: Micros,
}

/// Watches one slow start.
#[derive(Debug, Default)]
pub(crate) struct Exit {
    delivery: Delivery,
    css: Option<Css>,
}

impl Exit {
    /// Others share the path: at its rate it holds so many times the window.
    pub(crate) fn scale(&mut self, factor: Fraction) {
        self.delivery.bdp_bytes =
            self.delivery.bdp_bytes.map(|bdp| Window::from_bytes(bdp).times(factor).bytes());
    }

    /// Whether the path has been seen to hold no more than this window.
    pub(crate) fn is_full(&self, window_bytes: u64) -> bool {
        self.css.is_some() || self.delivery.exceeded_by(window_bytes)
    }

    /// Takes a sample while the window is this large; says how to go on.
    pub(crate) fn pace(&mut self, window_bytes: u64, sample: PathSample, others: Others) -> Pace {
        if sample.min_rtt_us == 0 {
            return Pace::Full;
        }
        self.delivery.add(window_bytes, sample);
        let full =
            may_wait(&sample) && self.delivery.exceeded_by(window_bytes) && waits(sample, others);
        // The flow's own: while a far flow's five rounds last, near ones lose.
        let round = u64::from(sample.rtt_us.max(sample.min_rtt_us).min(RTT_MAX_US));
        let now = sample.now;
        self.css = match self.css.filter(|css| full || now < css.until) {
            Some(css) if full => Some(Css { until: now + round, ..css }),
            None if full => Some(Css { since: now, until: now + round }),
            unchanged => unchanged,
        };
        match self.css {
            None if self.delivery.exceeded_by(window_bytes / DOUBLED) => Pace::Slower(CSS_SHIFT),
            None if self.delivery.exceeded_by(window_bytes / AHEAD * 4) => {
                Pace::Slower(AHEAD_SHIFT)
            }
            None => Pace::Full,
            Some(css) if now - css.since >= CSS_ROUNDS * round => Pace::Over,
            Some(_) => Pace::Slower(CSS_SHIFT),
        }
    }
}

/// Whether a sample's packets waited as long as the least that counts anywhere.
pub(crate) fn may_wait(sample: &PathSample) -> bool {
    sample.waited_us().is_some_and(|waited_us| waited_us >= MIN_DOUBLED_US)
}

/// Whether a sample's packets waited, and others' do: all wait as long in one queue.  What is long
/// for who is near is not for the aggregate, whose window is on the path for its mean time.
fn waits(sample: PathSample, others: Others) -> bool {
    let least = u64::from(sample.min_rtt_us).max(others.mean_us);
    let threshold = (least / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
    let threshold = threshold.min(least.max(MIN_DOUBLED_US));
    // Theirs may be a little older.
    sample.waited_us().is_some_and(|waited| waited >= threshold)
        && others.wait_us.is_none_or(|waited| waited >= threshold / OTHERS)
}

/// Largest bandwidth-delay product that delivery has shown: the sum over all flows
/// of what they deliver in a time, times their smallest round-trip times, over that
/// time.
#[derive(Debug, Default)]
struct Delivery {
    /// The present interval, numbered from 0.
    interval: u64,
    /// Its length: the smallest round-trip time of a far flow over [`INTERVALS`].  In
    /// a shorter time a burst of a far flow would show a rate that is not its own.
    length_us: u64,
    /// Bytes times smallest round-trip time, in this interval and the one before.
    product: u128,
    before: u128,
    /// `None` before two intervals are over.
    bdp_bytes: Option<u64>,
}

impl Delivery {
    fn exceeded_by(&self, window_bytes: u64) -> bool {
        self.bdp_bytes.is_some_and(|bdp| window_bytes >= bdp)
    }

    /// A report is about less than a round-trip time.  One of more than the window
    /// says nothing of the path: a counter was cleared, or reports were merged.
    fn add(&mut self, window_bytes: u64, sample: PathSample) {
        let min_rtt_us = u64::from(sample.min_rtt_us.min(RTT_MAX_US));
        let length_us = (min_rtt_us / INTERVALS).max(1);
        // Flows that are about as far all the same measure on.
        if length_us >= 2 * self.length_us {
            *self = Delivery { length_us, ..Delivery::default() };
        }
        let interval = sample.now / self.length_us;
        if interval != self.interval {
            self.begin(interval);
        }
        if sample.delivered_bytes <= window_bytes {
            self.product += u128::from(sample.delivered_bytes) * u128::from(min_rtt_us);
        }
    }

    fn begin(&mut self, interval: u64) {
        let shown = (self.before + self.product) / u128::from(2 * self.length_us);
        let shown = u64::try_from(shown).unwrap_or(u64::MAX);
        self.bdp_bytes = self.bdp_bytes.max((self.before > 0).then_some(shown));
        self.before = if interval == self.interval + 1 { self.product } else { 0 };
        self.product = 0;
        self.interval = interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    const RTT_US: u32 = 80_000;
    /// One segment a millisecond: 80 segments fill the path.
    const SPACING_US: u64 = 1_000;

    const ALONE: Others = Others { mean_us: 0, wait_us: None };

    /// A segment delivered.
    fn sample(now: Micros, rtt_us: u32, min_rtt_us: u32) -> PathSample {
        PathSample { now, delivered_bytes: MSS, rtt_us, min_rtt_us, joined: 0, backlogged: true }
    }

    /// Segments are delivered each millisecond for `count` milliseconds.
    fn deliver(exit: &mut Exit, from: Micros, count: u64, window: u64, wait_us: u32) -> Pace {
        let mut pace = Pace::Full;
        for i in 0..count {
            let now = from + i * SPACING_US;
            pace = exit.pace(window * MSS, sample(now, RTT_US + wait_us, RTT_US), ALONE);
        }
        pace
    }

    #[test]
    fn a_burst_that_waits_in_an_empty_path_slows_nothing() {
        let mut exit = Exit::default();
        assert_eq!(deliver(&mut exit, 1_000_000, 40, 70, 20_000), Pace::Full);
    }

    #[test]
    fn a_window_above_what_the_path_holds_slows_growth_then_ends_it() {
        let mut exit = Exit::default();
        deliver(&mut exit, 1_000_000, 80, 40, 0);
        assert_eq!(deliver(&mut exit, 1_080_000, 80, 82, 12_000), Pace::Slower(CSS_SHIFT));
        assert_eq!(deliver(&mut exit, 1_160_000, 500, 90, 12_000), Pace::Over);
    }

    #[test]
    fn without_waiting_a_window_ahead_of_delivery_halves_growth() {
        let mut exit = Exit::default();
        assert_eq!(deliver(&mut exit, 1_000_000, 500, 90, 3_000), Pace::Full);
        assert_eq!(deliver(&mut exit, 1_500_000, 500, 101, 3_000), Pace::Slower(AHEAD_SHIFT));
    }

    #[test]
    fn conservative_slow_start_ends_with_its_signs() {
        let mut exit = Exit::default();
        deliver(&mut exit, 1_000_000, 80, 40, 0);
        deliver(&mut exit, 1_080_000, 80, 82, 12_000);
        assert_eq!(deliver(&mut exit, 1_160_000, 100, 82, 0), Pace::Full);
    }

    #[test]
    fn e8_a_near_flow_that_comes_first_does_not_set_the_measure_for_far_ones() {
        let mut exit = Exit::default();
        // A segment in a LAN, then far flows that send in bursts of 20.
        let near = sample(1_000_000, 200, 200);
        assert_eq!(exit.pace(80 * MSS, near, ALONE), Pace::Full);
        let mut pace = Pace::Full;
        for i in 0..800 {
            let now = 1_000_000 + i * SPACING_US;
            let far = sample(now, RTT_US + 20_000, RTT_US);
            for _ in 0..if i % 20 == 0 { 20 } else { 0 } {
                pace = exit.pace(120 * MSS, far, ALONE);
            }
            exit.pace(120 * MSS, PathSample { now, delivered_bytes: 0, ..near }, ALONE);
        }
        assert_eq!(pace, Pace::Over, "80 segments fill the path");
    }

    #[test]
    fn near_flows_beside_a_far_one_end_slow_start_after_their_own_rounds() {
        let mut exit = Exit::default();
        deliver(&mut exit, 1_000_000, 80, 40, 0);
        let near = |now| sample(now, 20_000, 10_000);
        let paces = [1_080_000, 1_100_000, 1_120_000, 1_140_000, 1_160_000, 1_180_000]
            .map(|now| exit.pace(90 * MSS, near(now), ALONE));
        assert_eq!(paces[..5], [Pace::Slower(CSS_SHIFT); 5]);
        assert_eq!(paces[5], Pace::Over, "five rounds of 20 ms, not of 80");
    }

    #[test]
    fn e8_a_queue_in_a_data_centre_ends_slow_start() {
        for rtt_us in [100, 500, 2_000] {
            let mut exit = Exit::default();
            let mut paces = Vec::new();
            for i in 0..2_000 {
                // A segment in each tenth of the round-trip time, so ten fill the path.
                let now = 1_000_000 + i * u64::from(rtt_us) / 10;
                let wait_us = if i < 20 { 0 } else { rtt_us.max(256) };
                let sample = sample(now, rtt_us + wait_us, rtt_us);
                paces.push(exit.pace(if i < 20 { 5 } else { 20 } * MSS, sample, ALONE));
            }
            assert_eq!(paces[19], Pace::Full);
            assert_eq!(paces[1_999], Pace::Over, "with a smallest time of {rtt_us} us");
        }
    }

    #[test]
    fn f8_what_no_flow_can_have_delivered_shows_nothing() {
        // A counter that TCP has cleared, as the guest's difference wraps; and just
        // more than the window.
        for delivered_bytes in [u64::from(u32::MAX) * MSS, 82 * MSS + 1] {
            let mut exit = Exit::default();
            deliver(&mut exit, 1_000_000, 80, 40, 0);
            let claims = PathSample { delivered_bytes, ..sample(1_080_000, RTT_US, RTT_US) };
            exit.pace(82 * MSS, claims, ALONE);
            assert_eq!(
                deliver(&mut exit, 1_080_000, 700, 90, 12_000),
                Pace::Over,
                "80 segments fill the path, whatever one report of {delivered_bytes} bytes says"
            );
        }
    }

    #[test]
    fn a_burst_of_the_window_is_believed() {
        let mut exit = Exit::default();
        deliver(&mut exit, 1_000_000, 80, 40, 0);
        let all = PathSample { delivered_bytes: 82 * MSS, ..sample(1_080_000, RTT_US, RTT_US) };
        exit.pace(82 * MSS, all, ALONE);
        assert_eq!(deliver(&mut exit, 1_080_000, 700, 90, 12_000), Pace::Full);
    }

    #[test]
    fn a_round_that_no_path_has_is_not_waited_for() {
        let mut exit = Exit::default();
        deliver(&mut exit, 1_000_000, 80, 40, 0);
        let claims = sample(1_080_000, u32::MAX, RTT_US);
        assert_eq!(exit.pace(82 * MSS, claims, ALONE), Pace::Slower(CSS_SHIFT));
        assert_eq!(deliver(&mut exit, 3_000_000, 1, 70, 0), Pace::Full, "not after an hour");
    }

    #[test]
    fn a_time_that_nobody_can_measure_in_is_not_waited_for() {
        let mut exit = Exit::default();
        let claims = PathSample { min_rtt_us: 100_000_000, ..sample(0, 0, 0) };
        let claims = PathSample { delivered_bytes: 0, ..claims };
        exit.pace(40 * MSS, claims, ALONE);
        deliver(&mut exit, 1_000_000, 1_000, 40, 0);
        assert_eq!(deliver(&mut exit, 2_000_000, 7_000, 90, 12_000), Pace::Over);
    }

    /// A segment in each of these eighths of a round.
    fn intervals(delivery: &mut Delivery, intervals: impl IntoIterator<Item = u64>) {
        for interval in intervals {
            let now = interval * u64::from(RTT_US) / INTERVALS;
            let sample = sample(now, RTT_US, RTT_US);
            delivery.add(100 * MSS, sample);
        }
    }

    #[test]
    fn e12_intervals_are_numbered_from_the_first_sample_on() {
        let mut delivery = Delivery::default();
        intervals(&mut delivery, 100..103);
        assert_eq!(delivery.bdp_bytes, Some(8 * MSS));
    }

    #[test]
    fn what_was_before_a_pause_is_no_part_of_the_rate_after_it() {
        let mut delivery = Delivery::default();
        intervals(&mut delivery, [100, 110, 111]);
        assert_eq!(delivery.bdp_bytes, None, "there were no two intervals in a row");
    }

    #[test]
    fn only_a_flow_twice_as_far_restarts_the_measurement() {
        for (min_rtt_us, length_us) in
            [(2 * RTT_US - 8, RTT_US), (2 * RTT_US, 2 * RTT_US), (RTT_US / 2, RTT_US)]
        {
            let mut delivery = Delivery::default();
            intervals(&mut delivery, 100..103);
            let now = 103 * u64::from(RTT_US) / INTERVALS;
            delivery
                .add(100 * MSS, PathSample { delivered_bytes: 0, ..sample(now, 0, min_rtt_us) });
            assert_eq!(delivery.length_us * INTERVALS, u64::from(length_us), "{min_rtt_us} us");
            assert_eq!(delivery.bdp_bytes.is_none(), length_us > RTT_US, "{min_rtt_us} us");
        }
    }

    #[test]
    fn less_than_eight_units_of_what_is_reported_is_no_waiting() {
        assert!(!waits(sample(0, 355, 100), ALONE));
        assert!(waits(sample(0, 356, 100), ALONE));
    }

    #[test]
    fn what_one_waits_is_nothing_where_others_do_not_or_the_mean_is_far() {
        let waits =
            |mean_us, wait_us| waits(sample(0, 20_000, 10_000), Others { mean_us, wait_us });
        assert!(waits(0, None) && waits(10_000, Some(1_000)), "4 ms, and a quarter of that");
        assert!(!waits(10_000, Some(999)), "others wait less");
        assert!(waits(80_000, None) && !waits(80_008, None), "an eighth of 80 ms");
    }

    #[test]
    fn a_flow_without_a_measured_time_says_nothing() {
        assert_eq!(Exit::default().pace(u64::MAX, sample(0, 0, 0), ALONE), Pace::Full);
    }
}
