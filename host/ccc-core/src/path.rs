// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the path holds of a group's window without a queue.
//!
//! Packets wait when a round-trip time is above the flow's smallest.  The rest
//! of it is what the path itself takes; a window of that part of the present
//! one keeps the path as busy and leaves the queue empty.  Each flow's times
//! count by what it delivers: so near flows and far ones come to the part of
//! their sum, whatever they share.
use crate::{
    fixed::{Beta, Micros},
    policy::PathSample,
};

/// A longer round-trip time counts as this one.
const RTT_MAX_US: u32 = 1 << 20;

/// Round-trip times of a group's latest round and the one before.
#[derive(Debug, Default)]
pub(crate) struct Path {
    since: Micros,
    round: Round,
    before: Round,
}

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

    fn rtt_us(&self) -> Micros {
        let mean = self.present / self.delivered_bytes.max(1);
        Micros::try_from(mean).unwrap_or(Micros::MAX)
    }
}

impl Path {
    pub(crate) fn add(&mut self, sample: PathSample) {
        if sample.rtt_us == 0 || sample.min_rtt_us == 0 {
            return;
        }
        if sample.now.saturating_sub(self.since) >= self.round.rtt_us() {
            self.before = std::mem::take(&mut self.round);
            self.since = sample.now;
        }
        self.round.add(sample);
    }

    /// The part of the window that the path holds; `None` if nobody has
    /// measured it.
    pub(crate) fn holds(&self) -> Option<Beta> {
        let base = self.before.base + self.round.base;
        let present = self.before.present + self.round.present;
        (present > 0).then(|| Beta::of(base, present))
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

    /// A path on which packets wait so long, after a while in which they did not.
    fn waiting(wait_us: u32) -> Path {
        let mut path = Path::default();
        for i in 0..1_000 {
            let wait_us = if i < 500 { 0 } else { wait_us };
            path.add(sample(i * 1_000, RTT_US + wait_us, RTT_US));
        }
        path
    }

    #[test]
    fn what_nobody_has_measured_is_not_known() {
        let mut path = Path::default();
        assert_eq!(path.holds(), None);
        path.add(sample(0, 0, RTT_US));
        path.add(sample(0, RTT_US, 0));
        assert_eq!(path.holds(), None);
    }

    #[test]
    fn a_path_holds_its_smallest_time_of_the_present_one() {
        assert_eq!(waiting(RTT_US).holds(), Some(Beta::HALF));
        assert_eq!(waiting(RTT_US / 4).holds(), Some(Beta::of(4, 5)));
    }

    #[test]
    fn bounds_are_those_of_any_reduction() {
        assert_eq!(waiting(0).holds(), Some(Beta::clamped(u16::MAX)));
        assert_eq!(waiting(u32::MAX - RTT_US).holds(), Some(Beta::clamped(0)));
    }

    #[test]
    fn near_and_far_flows_count_by_what_they_deliver() {
        let mut path = Path::default();
        // 20 ms of queue for both: 20 + 20, and 140 + 20 three times as fast.
        for i in 0..1_000 {
            let base_us = if i % 4 == 0 { 20_000 } else { 140_000 };
            path.add(sample(i * 1_000, base_us + 20_000, base_us));
        }
        let sums = (20 + 3 * 140, 40 + 3 * 160);
        let (holds, expected) = (path.holds().expect("measured"), Beta::of(sums.0, sums.1));
        assert_eq!(holds.max(expected), expected);
        assert!(holds.max(Beta::of(sums.0, sums.1 + 10)) == holds, "{holds:?}");
    }
}
