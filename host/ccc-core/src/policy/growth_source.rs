// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whose growth ctrlTCP's aggregate takes in congestion avoidance.
//!
//! The papers elect a coordinating connection (CoCo): the dissertation's
//! section 9.2 the first one, the ctrlTCP paper the one with the shortest
//! round-trip time.  Neither says who follows one that is idle, limited or in
//! recovery (B2, B11, B19); here it is the next of which data is acknowledged.
use super::Ack;
use crate::fixed::{Micros, Part};

/// A coordinating connection of which nothing is acknowledged for two of its
/// round-trip times, and at least this long, is one no more.
const LEAST_SILENCE: Micros = 200_000;
/// Another's round-trip time is shorter if it is by this part of it, or else
/// two equal flows would take turns.
const SHORTER: Micros = 16;

/// Whose growth the aggregate takes in congestion avoidance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrowthSource {
    /// The share-weighted mean of all.
    #[default]
    Mean,
    /// The first flow's.
    First,
    /// That of the flow with the shortest round-trip time.
    ShortestRtt,
}

/// Elects the coordinating connection.
#[derive(Debug)]
pub(super) struct Coordinator {
    rule: GrowthSource,
    seat: Option<Seat>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    flow: usize,
    srtt: Micros,
    heard: Micros,
}

impl Coordinator {
    pub(super) fn new(rule: GrowthSource) -> Coordinator {
        Coordinator { rule, seat: None }
    }

    /// All flows have left.
    pub(super) fn clear(&mut self) {
        self.seat = None;
    }

    /// Which part of a flow's growth is the aggregate's.  To be asked at every
    /// acknowledgement.
    pub(super) fn part(&mut self, ack: &Ack) -> Part {
        match (self.rule, self.takes(ack)) {
            (GrowthSource::Mean, _) => ack.part,
            (_, takes) => (u128::from(takes), 1),
        }
    }

    fn takes(&mut self, ack: &Ack) -> bool {
        let now = ack.sample.now;
        let by_rtt = self.rule == GrowthSource::ShortestRtt;
        let takes = self.seat.is_none_or(|seat| {
            seat.flow == ack.flow || seat.is_silent(now) || by_rtt && seat.is_longer(ack.srtt)
        });
        if takes {
            self.seat = Some(Seat { flow: ack.flow, srtt: ack.srtt, heard: now });
        }
        takes
    }
}

impl Seat {
    fn is_silent(&self, now: Micros) -> bool {
        now.saturating_sub(self.heard) > (2 * self.srtt).max(LEAST_SILENCE)
    }

    fn is_longer(&self, srtt: Micros) -> bool {
        srtt > 0 && srtt + srtt / SHORTER < self.srtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{MSS, ack};

    const ALL: Part = (1, 1);
    const NONE: Part = (0, 1);

    /// What is taken of the growth of one of two equal flows.
    fn part(coordinator: &mut Coordinator, flow: usize, srtt: Micros, now: Micros) -> Part {
        let mut ack = Ack { srtt, part: (1, 2), ..ack(flow, MSS) };
        ack.sample.now = now;
        coordinator.part(&ack)
    }

    #[test]
    fn the_mean_takes_of_each_its_part() {
        let mut mean = Coordinator::new(GrowthSource::Mean);
        let parts = [0, 1].map(|flow| part(&mut mean, flow, 100_000, 0));
        assert_eq!(parts, [(1, 2); 2]);
    }

    #[test]
    fn the_first_alone_drives_the_aggregate_until_it_is_silent() {
        let mut first = Coordinator::new(GrowthSource::First);
        assert_eq!(part(&mut first, 0, 200_000, 0), ALL);
        assert_eq!(part(&mut first, 1, 20_000, 10), NONE, "whatever its round-trip time");
        assert_eq!(part(&mut first, 1, 20_000, 400_000), NONE, "two round-trip times are not over");
        assert_eq!(part(&mut first, 1, 20_000, 400_001), ALL);
        assert_eq!(part(&mut first, 0, 200_000, 400_002), NONE);
    }

    #[test]
    fn e12_a_near_coordinator_is_silent_after_a_while_only() {
        let mut first = Coordinator::new(GrowthSource::First);
        assert_eq!(part(&mut first, 0, 1_000, 0), ALL);
        assert_eq!(part(&mut first, 1, 1_000, 200_000), NONE);
        assert_eq!(part(&mut first, 1, 1_000, 200_001), ALL);
    }

    #[test]
    fn the_shortest_round_trip_time_takes_over() {
        let mut shortest = Coordinator::new(GrowthSource::ShortestRtt);
        assert_eq!(part(&mut shortest, 0, 200_000, 0), ALL);
        assert_eq!(part(&mut shortest, 1, 195_000, 1), NONE, "hardly shorter");
        assert_eq!(part(&mut shortest, 1, 20_000, 2), ALL);
        assert_eq!(part(&mut shortest, 0, 200_000, 3), NONE);
    }
}
