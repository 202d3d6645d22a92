// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the path holds of a group's window without a queue, and whether others use
//! the path, too.
//!
//! Packets wait when a round-trip time is above the flow's smallest.  The rest
//! of it is what the path itself takes; a window of that part of the present
//! one keeps the path as busy and leaves the queue empty.  Each flow's times
//! count by what it delivers: so near flows and far ones come to the part of
//! their sum, whatever they share.
//!
//! That is right for a group which has the path for itself.  Beside others, on
//! a short queue, who reduces by little takes more than one TCP, however slowly it
//! grows: the queue overflows by those who grow, and it is mostly them who lose
//! (Bansal, Balakrishnan, Floyd, Shenker 2001).  A group that is alone has the
//! same rate, the path's, at every event.  Beside others it changes: what they give
//! up in their reductions it takes, and loses again.  So less than the largest
//! rate of late is a sign of others.
use crate::{
    fixed::{Beta, Micros, Window, mul_div},
    policy::{Aggregate, PathSample},
};

/// A group is alone if its rate at an event is the largest but for this part of what
/// others could free: the part that the queue is of the round-trip time.
const OTHERS: u64 = 5;
/// The largest rate fades by this part of it with each event.
const FADES: u64 = 64;
/// A longer round-trip time counts as this one.
const RTT_MAX_US: u32 = 1 << 20;

/// Round-trip times of a group's latest round and the one before, and its rate.
#[derive(Debug, Default)]
pub(crate) struct Path {
    since: Micros,
    round: Round,
    before: Round,
    /// The largest in congestion avoidance: in slow start a window is ahead of its
    /// round-trip time.
    most: Rate,
}

/// Bytes a second.
type Rate = u64;

/// Sums over what was delivered in a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    delivered_bytes: u128,
    /// Bytes times smallest round-trip time.
    base: u128,
    /// Bytes times present round-trip time.
    present: u128,
}

impl Round {
    fn add(&mut self, sample: PathSample) {
        let delivered = u128::from(sample.delivered_bytes);
        let base_us = sample.min_rtt_us.min(RTT_MAX_US);
        self.delivered_bytes += delivered;
        self.base += delivered * u128::from(base_us);
        self.present += delivered * u128::from(sample.rtt_us.clamp(base_us, RTT_MAX_US));
    }

    fn plus(&self, other: &Round) -> Round {
        Round {
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            base: self.base + other.base,
            present: self.present + other.present,
        }
    }

    fn rtt_us(&self) -> Micros {
        let mean = self.present / self.delivered_bytes.max(1);
        Micros::try_from(mean).unwrap_or(Micros::MAX)
    }

    /// That of a window in this round-trip time.
    fn rate(&self, window: Window) -> Rate {
        mul_div(window.bytes(), 1_000_000, self.rtt_us())
    }

    fn holds(&self) -> Beta {
        Beta::of(self.base, self.present)
    }
}

impl Path {
    /// Takes a sample of a group that has this window.
    pub(crate) fn add(&mut self, aggregate: &Aggregate, sample: PathSample) {
        let (window, steady) = (aggregate.window, !aggregate.in_slow_start());
        if sample.rtt_us == 0 || sample.min_rtt_us == 0 {
            return;
        }
        if sample.now.saturating_sub(self.since) >= self.round.rtt_us() {
            if steady && self.round.delivered_bytes > 0 {
                self.most = self.most.max(self.round.rate(window));
            }
            self.before = std::mem::take(&mut self.round);
            self.since = sample.now;
        }
        self.round.add(sample);
    }

    /// A congestion event of a group that has this window: the part of it that the
    /// path holds for this group alone; `None` if others seem to use the path, or
    /// nobody has measured it.
    pub(crate) fn event(&mut self, window: Window) -> Option<Beta> {
        let rounds = self.before.plus(&self.round);
        let holds = rounds.holds();
        let least = self.most - holds.reduction_of(self.most) / OTHERS;
        self.most -= self.most / FADES;
        let alone = rounds.present > 0 && rounds.rate(window) >= least;
        alone.then_some(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    const RTT_US: u32 = 80_000;

    fn sample(now: Micros, rtt_us: u32, min_rtt_us: u32) -> PathSample {
        PathSample { now, delivered_bytes: MSS, rtt_us, min_rtt_us, joined: 0 }
    }

    fn segments(count: u64) -> Window {
        Window::from_bytes(count * MSS)
    }

    fn steady(count: u64) -> Aggregate {
        let window = segments(count);
        Aggregate { window, ssthresh: Some(window), epoch: 1 }
    }

    impl Path {
        /// A second with this window, in which packets wait so long; at first it is less.
        fn second(&mut self, from: Micros, window: u64, wait_us: u32) {
            for i in 0..1_000 {
                let window = if i < 200 { window / 2 } else { window };
                self.add(&steady(window), sample(from + i * 1_000, RTT_US + wait_us, RTT_US));
            }
        }
    }

    /// What a path holds of 100 segments, on which packets wait so long after a time
    /// in which they did not.
    fn holds(wait_us: u32) -> Option<Beta> {
        let mut path = Path::default();
        path.second(0, 10, 0);
        path.second(1_000_000, 100, wait_us);
        path.event(segments(100))
    }

    #[test]
    fn what_nobody_has_measured_is_not_known() {
        let mut path = Path::default();
        assert_eq!(path.event(segments(1)), None);
        path.add(&steady(1), sample(0, 0, RTT_US));
        path.add(&steady(1), sample(0, RTT_US, 0));
        assert_eq!(path.event(segments(1)), None);
    }

    #[test]
    fn a_path_holds_its_smallest_time_of_the_present_one() {
        assert_eq!(holds(RTT_US), Some(Beta::HALF));
        assert_eq!(holds(RTT_US / 4), Some(Beta::of(4, 5)));
    }

    #[test]
    fn bounds_are_those_of_any_reduction() {
        assert_eq!(holds(0), Some(Beta::clamped(u16::MAX)));
        assert_eq!(holds(10 * RTT_US), Some(Beta::clamped(0)));
    }

    #[test]
    fn near_and_far_flows_count_by_what_they_deliver() {
        let mut path = Path::default();
        // 20 ms of queue for both: 20 + 20, and 140 + 20 three times as fast.
        for i in 0..1_000 {
            let base_us = if i % 4 == 0 { 20_000 } else { 140_000 };
            path.add(&steady(100), sample(i * 1_000, base_us + 20_000, base_us));
        }
        let holds = path.event(segments(100)).expect("alone");
        let (least, most) = (Beta::of(84, 100), Beta::of(86, 100));
        assert_eq!(holds.max(least), holds, "0.846 of it");
        assert_eq!(holds.max(most), most);
    }

    /// At one event, and at another after a second with this window in this wait.
    fn second_event(window: u64, wait_us: u32) -> Option<Beta> {
        let mut path = Path::default();
        path.second(0, 100, RTT_US / 4);
        assert!(path.event(segments(100)).is_some());
        path.second(1_000_000, window, wait_us);
        path.event(segments(window))
    }

    #[test]
    fn who_has_the_same_rate_at_each_event_is_alone() {
        assert!(second_event(100, RTT_US / 4).is_some());
        assert!(second_event(97, RTT_US / 4).is_some());
        assert!(second_event(130, RTT_US / 2).is_some(), "a longer queue, the same rate");
    }

    #[test]
    fn who_had_more_shares_the_path() {
        assert!(second_event(90, RTT_US / 4).is_none());
        assert!(second_event(100, RTT_US / 2).is_none());
    }

    #[test]
    fn a_path_that_has_less_than_before_is_learnt() {
        let mut path = Path::default();
        path.second(0, 100, RTT_US / 4);
        let events = (1..100).find(|i| {
            path.second(i * 1_000_000, 50, RTT_US / 4);
            path.event(segments(50)).is_some()
        });
        assert_eq!(events, Some(43), "half the rate, which fades by a 64th each time");
    }

    #[test]
    fn slow_start_shows_no_rate() {
        let mut path = Path::default();
        let starts = Aggregate { ssthresh: None, ..steady(200) };
        for i in 0..1_000 {
            path.add(&starts, sample(i * 1_000, RTT_US, RTT_US));
        }
        path.second(1_000_000, 100, RTT_US / 4);
        assert!(path.event(segments(100)).is_some());
    }
}
