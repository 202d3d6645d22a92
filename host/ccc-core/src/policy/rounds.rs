// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a group's flows measure of the path, round trip by round trip.
use super::interface::PathSample;
use crate::fixed::Micros;

/// A longer round-trip time counts as this one.
const RTT_MAX_US: u32 = 1 << 21;
/// What one report can weigh: as much as a window can be.
const BYTES_MAX: u64 = 1 << 40;

/// Means over the bytes delivered in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Round-trip time.
    pub(super) rtt_us: u64,
    /// What of it is waiting.
    pub(super) queue_us: u64,
    /// Bytes delivered a second.
    pub(super) rate_bytes: u64,
}

/// Sums over the present round.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    since: Micros,
    length_us: u64,
    bytes: u128,
    rtt: u128,
    queue: u128,
    longest_us: u64,
}

impl Rounds {
    /// Takes a sample; returns the round that it ends, if it ends one.  A round lasts
    /// as long as the longest round-trip time in the one before, or twice the mean
    /// where that is less, so that far flows have answered too.
    pub(super) fn add(&mut self, sample: PathSample) -> Option<Round> {
        let PathSample { now, delivered_bytes, rtt_us, min_rtt_us } = sample;
        let rtt_us = u64::from(rtt_us.min(RTT_MAX_US));
        let waits_us = rtt_us.saturating_sub(min_rtt_us.into());
        if rtt_us > 0 && min_rtt_us > 0 {
            let bytes = u128::from(delivered_bytes.min(BYTES_MAX));
            self.bytes += bytes;
            self.rtt += bytes * u128::from(rtt_us);
            self.queue += bytes * u128::from(waits_us);
            self.longest_us = self.longest_us.max(rtt_us);
        }
        let over = self.bytes > 0 && now.saturating_sub(self.since) >= self.length_us;
        over.then(|| self.next(now))
    }

    fn next(&mut self, now: Micros) -> Round {
        let mean = |sum: u128| u64::try_from(sum / self.bytes).unwrap_or(u64::MAX);
        let (rtt_us, queue_us) = (mean(self.rtt).max(1), mean(self.queue));
        let lasted_us = u128::from(now.saturating_sub(self.since).max(1));
        let rate_bytes = u64::try_from(self.bytes * 1_000_000 / lasted_us).unwrap_or(u64::MAX);
        let length_us = self.longest_us.min(2 * rtt_us);
        *self = Rounds { since: now, length_us, ..Rounds::default() };
        Round { rtt_us, queue_us, rate_bytes }
    }
}
