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
use crate::fixed::Micros;

/// Delay that counts as waiting (RFC 9406, section 4.3).
const LEAST_THRESHOLD_US: u64 = 4_000;
const MOST_THRESHOLD_US: u64 = 16_000;
const THRESHOLD_DIVISOR: u64 = 8;
/// Growth while the path seems full, as a shift.
const SLOWER: u32 = 3;
/// Growth while the window is [`AHEAD`] of what delivery has shown, as a shift.
const WARY: u32 = 1;
/// In quarters.
const AHEAD: u64 = 5;
/// So many rounds of it end slow start (RFC 9406, section 4.3).
const ROUNDS: u64 = 5;
/// The delivery rate is measured over two of so many parts of a round: short
/// enough to see the rate of a burst, which is the path's.
const PARTS: u64 = 8;

/// What a report says of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) now: Micros,
    /// Bytes delivered since the flow's report before.
    pub(crate) delivered: u64,
    /// Least round-trip time since then; 0 if not measured.
    pub(crate) rtt_us: u32,
    /// The flow's smallest round-trip time; 0 if not known.
    pub(crate) min_rtt_us: u32,
}

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

/// The path has seemed full.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    since: Micros,
    until: Micros,
}

/// Watches one slow start.
#[derive(Debug, Default)]
pub(crate) struct Exit {
    delivery: Delivery,
    suspicion: Option<Suspicion>,
}

impl Exit {
    /// Takes a sample while the window is `window` bytes; says how to go on.
    pub(crate) fn pace(&mut self, window: u64, sample: Sample) -> Pace {
        if sample.min_rtt_us == 0 {
            return Pace::Full;
        }
        self.delivery.add(sample);
        let full = self.delivery.exceeded_by(window) && waits(sample);
        let round = u64::from(sample.rtt_us.max(sample.min_rtt_us));
        let now = sample.now;
        self.suspicion = match self.suspicion.filter(|s| full || now < s.until) {
            Some(s) if full => Some(Suspicion { until: now + round, ..s }),
            None if full => Some(Suspicion { since: now, until: now + round }),
            unchanged => unchanged,
        };
        match self.suspicion {
            None if self.delivery.exceeded_by(window / AHEAD * 4) => Pace::Slower(WARY),
            None => Pace::Full,
            Some(s) if now - s.since >= ROUNDS * round => Pace::Over,
            Some(_) => Pace::Slower(SLOWER),
        }
    }
}

fn waits(sample: Sample) -> bool {
    let least = u64::from(sample.min_rtt_us);
    let threshold = (least / THRESHOLD_DIVISOR).clamp(LEAST_THRESHOLD_US, MOST_THRESHOLD_US);
    u64::from(sample.rtt_us) >= least + threshold
}

/// Largest bandwidth-delay product that delivery has shown.
#[derive(Debug, Default)]
struct Delivery {
    /// Part of the time, numbered from 0; its length is that of the first flow's
    /// smallest round-trip time over [`PARTS`].
    part: u64,
    length_us: u64,
    /// Bytes times smallest round-trip time, in this part and the one before.
    product: u128,
    before: u128,
    /// Bytes; `None` before two parts are over.
    most: Option<u64>,
}

impl Delivery {
    fn exceeded_by(&self, window: u64) -> bool {
        self.most.is_some_and(|most| window >= most)
    }

    fn add(&mut self, sample: Sample) {
        if self.length_us == 0 {
            self.length_us = (u64::from(sample.min_rtt_us) / PARTS).max(1);
            self.part = sample.now / self.length_us;
        }
        let part = sample.now / self.length_us;
        if part != self.part {
            self.turn(part);
        }
        self.product += u128::from(sample.delivered) * u128::from(sample.min_rtt_us);
    }

    fn turn(&mut self, part: u64) {
        let shown = (self.before + self.product) / u128::from(2 * self.length_us);
        let shown = u64::try_from(shown).unwrap_or(u64::MAX);
        self.most = self.most.max((self.before > 0).then_some(shown));
        self.before = if part == self.part + 1 { self.product } else { 0 };
        self.product = 0;
        self.part = part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    const RTT_US: u32 = 80_000;
    /// One segment a millisecond: 80 segments fill the path.
    const SPACING_US: u64 = 1_000;

    /// Segments are delivered each millisecond for `count` milliseconds.
    fn deliver(exit: &mut Exit, from: Micros, count: u64, window: u64, wait_us: u32) -> Pace {
        let mut pace = Pace::Full;
        for i in 0..count {
            let now = from + i * SPACING_US;
            let rtt_us = RTT_US + wait_us;
            let sample = Sample { now, delivered: MSS, rtt_us, min_rtt_us: RTT_US };
            pace = exit.pace(window * MSS, sample);
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
        assert_eq!(deliver(&mut exit, 1_080_000, 80, 82, 12_000), Pace::Slower(SLOWER));
        assert_eq!(deliver(&mut exit, 1_160_000, 500, 90, 12_000), Pace::Over);
    }

    #[test]
    fn without_waiting_a_window_ahead_of_delivery_halves_growth() {
        let mut exit = Exit::default();
        assert_eq!(deliver(&mut exit, 1_000_000, 500, 90, 3_000), Pace::Full);
        assert_eq!(deliver(&mut exit, 1_500_000, 500, 101, 3_000), Pace::Slower(WARY));
    }

    #[test]
    fn suspicion_ends_with_its_signs() {
        let mut exit = Exit::default();
        deliver(&mut exit, 1_000_000, 80, 40, 0);
        deliver(&mut exit, 1_080_000, 80, 82, 12_000);
        assert_eq!(deliver(&mut exit, 1_160_000, 100, 82, 0), Pace::Full);
    }

    #[test]
    fn a_flow_without_a_measured_time_says_nothing() {
        let sample = Sample { now: 0, delivered: MSS, rtt_us: 0, min_rtt_us: 0 };
        assert_eq!(Exit::default().pace(u64::MAX, sample), Pace::Full);
    }
}
