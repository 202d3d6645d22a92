// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a group's flows measure of the queue, round trip by round trip.
//!
//! All of them wait in the same queue, but a round-trip time has more in it: an
//! acknowledgement that its receiver held back, or the flow's own burst.  So of all
//! samples of a short time the least counts, and their mean over a round.
use super::interface::PathSample;
use crate::fixed::{Micros, mul_div};

/// A longer round-trip time counts as this one.
const RTT_MAX_US: u32 = 1 << 21;
/// What one report can weigh: as much as a window can be.
const BYTES_MAX: u64 = 1 << 40;
/// Of so many parts of a round the least sample counts each.
const PARTS: u64 = 8;

/// What a round has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Mean round-trip time over the bytes delivered.
    pub(super) rtt_us: u64,
    /// Mean of what packets waited.
    pub(super) queue_us: u64,
    /// The least that they waited: what stands in the queue, whatever bursts there are.
    pub(super) stands_us: u64,
    /// The most that they waited.
    pub(super) most_us: u64,
    /// Bytes delivered a second.
    pub(super) rate_bytes: u64,
}

impl Round {
    /// What was on the path, by Little's law: of each flow what it delivered, as long as
    /// that took, so none makes it less.
    pub(super) fn on_path_bytes(&self) -> u64 {
        mul_div(self.rate_bytes, self.rtt_us, 1_000_000)
    }
}

/// The present round.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    since: Micros,
    length_us: u64,
    bytes: u128,
    rtt: u128,
    longest_us: u64,
    /// The present part, and the least sample in it: of flows whose smallest
    /// round-trip time is trusted, and of all.
    part: u64,
    trusted_us: Option<u64>,
    any_us: Option<u64>,
    /// Sum over the parts before, and how many had a sample.
    waits_us: u64,
    parts: u64,
    stands_us: Option<u64>,
    most_us: u64,
    before_us: u64,
    /// The path is longer than guests know by so much.
    longer_us: u64,
}

impl Rounds {
    /// Takes a sample; returns the round that it ends, if it ends one.  A round lasts
    /// as long as the longest round-trip time in the one before, or twice the mean
    /// where that is less, so that far flows have answered too.
    pub(super) fn add(&mut self, sample: PathSample, trusted: bool) -> Option<Round> {
        let elapsed_us = sample.now.saturating_sub(self.since);
        let part = elapsed_us / (self.length_us / PARTS).max(1);
        if part != self.part {
            self.end_part();
            self.part = part;
        }
        let over = self.bytes > 0 && self.parts > 0 && elapsed_us >= self.length_us;
        let round = over.then(|| self.next(sample.now));
        if sample.rtt_us > 0 && sample.min_rtt_us > 0 {
            self.count(sample, trusted);
        }
        round
    }

    /// The most that packets waited in this round and the one before.
    pub(super) fn most_us(&self) -> u64 {
        self.most_us.max(self.before_us)
    }

    /// How much longer the path is than guests know.
    pub(super) fn longer_us(&self) -> u64 {
        self.longer_us
    }

    /// What stands in the queue is a part of the path, until a packet needs less time.
    pub(super) fn lengthen(&mut self, stands_us: u64) {
        self.longer_us = self.longer_us.saturating_add(stands_us);
    }

    fn count(&mut self, sample: PathSample, trusted: bool) {
        let rtt_us = u64::from(sample.rtt_us.min(RTT_MAX_US));
        let bytes = u128::from(sample.delivered_bytes.min(BYTES_MAX));
        self.bytes += bytes;
        self.rtt += bytes * u128::from(rtt_us);
        self.longest_us = self.longest_us.max(rtt_us);
        let above_us = rtt_us.saturating_sub(sample.min_rtt_us.into());
        if trusted {
            self.longer_us = self.longer_us.min(above_us);
        }
        let waits_us = above_us.saturating_sub(self.longer_us);
        let least = |before: Option<u64>| Some(before.map_or(waits_us, |us| us.min(waits_us)));
        self.any_us = least(self.any_us);
        if trusted {
            self.trusted_us = least(self.trusted_us);
        }
    }

    fn end_part(&mut self) {
        if let Some(us) = self.trusted_us.take().or(self.any_us) {
            self.waits_us += us;
            self.parts += 1;
            self.most_us = self.most_us.max(us);
            self.stands_us = Some(self.stands_us.map_or(us, |least| least.min(us)));
        }
        self.any_us = None;
    }

    fn next(&mut self, now: Micros) -> Round {
        let elapsed_us = u128::from(now.saturating_sub(self.since).max(1));
        let narrow = |wide: u128| u64::try_from(wide).unwrap_or(u64::MAX);
        let rtt_us = narrow(self.rtt / self.bytes).max(1);
        let round = Round {
            rtt_us,
            queue_us: (self.waits_us / self.parts).min(rtt_us - 1),
            stands_us: self.stands_us.unwrap_or(0),
            most_us: self.most_us,
            rate_bytes: narrow(self.bytes * 1_000_000 / elapsed_us),
        };
        let length_us = self.longest_us.min(2 * rtt_us);
        *self = Rounds {
            since: now,
            length_us,
            before_us: self.most_us,
            longer_us: self.longer_us,
            ..Rounds::default()
        };
        round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(now: Micros, rtt_us: u32, min_rtt_us: u32) -> PathSample {
        PathSample { now, delivered_bytes: 1000, rtt_us, min_rtt_us, joined: 0, backlogged: true }
    }

    /// The round after a first one of 80 ms, with the flows' samples in each part.
    fn round(samples: &[(u32, u32, bool)]) -> Round {
        let mut rounds = Rounds::default();
        rounds.add(sample(1_000_000, 80_000, 80_000), true);
        rounds.add(sample(1_000_001, 0, 0), true);
        let ended = (1..=80).find_map(|ms| {
            samples.iter().find_map(|&(rtt_us, min_rtt_us, trusted)| {
                rounds.add(sample(1_000_001 + ms * 1_000, rtt_us, min_rtt_us), trusted)
            })
        });
        ended.expect("a round of 80 ms")
    }

    #[test]
    fn the_least_of_a_part_counts() {
        let round = round(&[(125_000, 80_000, true), (85_000, 80_000, true)]);
        assert_eq!((round.queue_us, round.most_us), (5_000, 5_000));
    }

    #[test]
    fn trusted_flows_count_before_others() {
        let late = (85_000, 84_000, false);
        assert_eq!(round(&[late, (85_000, 80_000, true)]).queue_us, 5_000);
        assert_eq!(round(&[late]).queue_us, 1_000, "there is nobody else");
    }

    #[test]
    fn what_no_path_has_overflows_nothing() {
        let mut rounds = Rounds::default();
        for now in 0..100 {
            let claims = PathSample { delivered_bytes: u64::MAX, ..sample(now << 20, u32::MAX, 1) };
            let round = rounds.add(claims, true).unwrap_or_default();
            assert!(round.rtt_us <= u64::from(RTT_MAX_US) && round.queue_us <= round.rtt_us);
        }
    }
}
