// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A coordinating connection, whose growth ctrlTCP's aggregate takes in congestion
//! avoidance where that is not the mean of all.
//!
//! The papers elect a coordinating connection (CoCo): the dissertation's
//! section 9.2 the first one, the ctrlTCP paper the one with the shortest
//! round-trip time.  Neither says who follows one that is idle, limited or in
//! recovery (B2, B11, B19); here it is the next of which data is acknowledged.
use super::interface::Ack;
use crate::{
    config::GrowthSource,
    fixed::{Fraction, Micros},
};

/// A coordinating connection of which nothing is acknowledged for two of its
/// round-trip times, and at least this long, is one no more.
const SILENCE_MIN_US: Micros = 200_000;
/// Another's round-trip time is shorter if it is by this part of it, or else
/// two equal flows would take turns.
const SHORTER: Micros = 16;

/// Elects the coordinating connection.
#[derive(Debug)]
pub(super) struct Coordinator {
    /// The one with the shortest round-trip time is elected, not the first.
    by_rtt: bool,
    elected: Option<Elected>,
}

#[derive(Clone, Copy, Debug)]
struct Elected {
    flow: usize,
    srtt_us: Micros,
    acked_at: Micros,
}

impl Coordinator {
    /// One that is elected as an operator wants it; `None` for the mean of all.
    pub(super) fn new(source: GrowthSource) -> Option<Coordinator> {
        let by_rtt = match source {
            GrowthSource::Mean => return None,
            GrowthSource::First => false,
            GrowthSource::ShortestRtt => true,
        };
        Some(Coordinator { by_rtt, elected: None })
    }

    /// All flows have left.
    pub(super) fn clear(&mut self) {
        self.elected = None;
    }

    /// Which share of a flow's growth is the aggregate's: all or nothing.  To be
    /// asked at every acknowledgement.
    pub(super) fn share(&mut self, ack: &Ack) -> Fraction {
        let now = ack.sample.now;
        let takes = self.elected.is_none_or(|elected| {
            elected.flow == ack.flow
                || elected.is_silent(now)
                || self.by_rtt && elected.is_farther_than(ack.srtt_us)
        });
        if takes {
            self.elected = Some(Elected { flow: ack.flow, srtt_us: ack.srtt_us, acked_at: now });
        }
        if takes { Fraction::ALL } else { Fraction::NONE }
    }
}

impl Elected {
    fn is_silent(&self, now: Micros) -> bool {
        now.saturating_sub(self.acked_at) > (2 * self.srtt_us).max(SILENCE_MIN_US)
    }

    fn is_farther_than(&self, srtt_us: Micros) -> bool {
        srtt_us > 0 && srtt_us + srtt_us / SHORTER < self.srtt_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::interface::testing::*;

    const ALL: Fraction = Fraction::ALL;
    const NONE: Fraction = Fraction::NONE;

    /// What is taken of the growth of one of two flows.
    fn share(coordinator: &mut Coordinator, flow: usize, srtt_us: Micros, now: Micros) -> Fraction {
        let mut ack = Ack { srtt_us, ..ack(flow, MSS) };
        ack.sample.now = now;
        coordinator.share(&ack)
    }

    #[test]
    fn the_mean_of_all_needs_none() {
        assert!(Coordinator::new(GrowthSource::Mean).is_none());
    }

    #[test]
    fn the_first_alone_drives_the_aggregate_until_it_is_silent() {
        let mut first = Coordinator::new(GrowthSource::First).expect("one is elected");
        assert_eq!(share(&mut first, 0, 200_000, 0), ALL);
        assert_eq!(share(&mut first, 1, 20_000, 10), NONE, "whatever its round-trip time");
        assert_eq!(
            share(&mut first, 1, 20_000, 400_000),
            NONE,
            "two round-trip times are not over"
        );
        assert_eq!(share(&mut first, 1, 20_000, 400_001), ALL);
        assert_eq!(share(&mut first, 0, 200_000, 400_002), NONE);
    }

    #[test]
    fn e12_a_near_coordinator_is_silent_after_a_while_only() {
        let mut first = Coordinator::new(GrowthSource::First).expect("one is elected");
        assert_eq!(share(&mut first, 0, 1_000, 0), ALL);
        assert_eq!(share(&mut first, 1, 1_000, 200_000), NONE);
        assert_eq!(share(&mut first, 1, 1_000, 200_001), ALL);
    }

    #[test]
    fn the_shortest_round_trip_time_takes_over() {
        let mut shortest = Coordinator::new(GrowthSource::ShortestRtt).expect("one is elected");
        assert_eq!(share(&mut shortest, 0, 200_000, 0), ALL);
        assert_eq!(share(&mut shortest, 1, 195_000, 1), NONE, "hardly shorter");
        assert_eq!(share(&mut shortest, 1, 20_000, 2), ALL);
        assert_eq!(share(&mut shortest, 0, 200_000, 3), NONE);
    }
}
