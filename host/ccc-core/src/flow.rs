// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One flow: what it contributes to the sums over its group, and what a new report adds to
//! the last one.
mod kept;
mod usage;

use crate::{
    bounds::Distance,
    config::ShareOf,
    fixed::{Window, div_wide},
    policy::Cause,
    report::{CongestionState, Report},
};
pub(crate) use kept::Flow;
pub(crate) use usage::Usage;

/// Largest window an empty group starts with, in segments (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;
/// No frame on a path to others is longer.
pub(crate) const JUMBO_BYTES: u64 = 9_000;

/// Of a round-trip time so much is distance, whatever packets are said to wait: of less
/// no mean is made.
const DISTANCE_PART: u64 = 8;

/// A round-trip time counts up to so many times what it was as the flow came, or is with what
/// packets wait now.  An honest one is longer only after its path has become longer.
const DRIFT: u64 = 2;
/// By this part of its distance a flow's shortest round-trip time may be longer for other reasons
/// than a queue that has stood since it began.  A half and more hid queues shorter than the
/// distance: short flows to far clients told of none, and a near one whose RTT that queue is
/// counted as too near, until it was alone and had three times the window that the path holds.
const LATE_PART: u64 = 8;

/// What says how far away a flow is, in what it counts for one of priority.
pub(crate) struct Whereabouts<M: Fn() -> u64, W: Fn() -> u64> {
    /// So much at the most are packets that wait in a queue,
    pub(crate) most_waits: M,
    /// and so much it is more likely; both are asked where they are needed.
    pub(crate) waits: W,
    /// What it says that it would be on an empty path; 0: nothing.
    pub(crate) empty: u64,
}

/// A flow's contribution.  `Default` is that of a flow that has not counted.  One that
/// falls idle counts on for a while, with no demand: it is likely to come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contribution {
    /// Priority, 8 fraction bits; 0 for a flow that does not count.
    pub(crate) priority: u64,
    /// Has data outstanding or to send.
    pub(crate) active: bool,
    /// Priority, times srtt where shares are rates.
    pub(crate) units: u64,
    /// The same as its guest says, which multiplies by that.
    pub(crate) claimed: u64,
    /// Its round-trip time has been measured.
    pub(crate) rtt_known: bool,
    /// What one of its priority counted as it came, less what packets waited then: where
    /// shares are rates, how far away it is, microseconds.
    pub(crate) distance: u64,
    /// That, or the shortest that it said then itself.
    pub(crate) came: u64,
    /// Its growth counts: cwnd-limited and not in recovery.
    pub(crate) growing: bool,
    /// What an application-limited flow uses; `None` for a backlogged one, which
    /// takes all it is given.
    pub(crate) demand_bytes: Option<u64>,
    /// In a timeout episode.
    pub(crate) timed_out: bool,
    /// Segment size.
    pub(crate) mss_bytes: u64,
}

impl Contribution {
    /// That of a flow with this report, which contributed `before` until now.
    pub(crate) fn new(
        report: &Report,
        share: ShareOf,
        usage: &Usage,
        before: &Contribution,
    ) -> Contribution {
        let counted = Contribution {
            priority: report.priority.into(),
            units: share.units(report.priority, report.srtt_us),
            rtt_known: report.srtt_us > 0,
            ..Contribution::default()
        };
        let counted = if before.rtt_known { counted.known_before(before) } else { counted };
        let counted = Contribution { claimed: counted.units, ..counted };
        match (report.active, before.counts()) {
            (true, _) => counted.in_use(report, usage, before.is_idle()),
            (false, true) => Contribution { demand_bytes: Some(0), ..counted },
            (false, false) => Contribution::gone(before.distance),
        }
    }

    /// That of a flow that counts no more: how far away it was is known when it comes back.
    fn gone(distance: u64) -> Contribution {
        Contribution { distance, ..Contribution::default() }
    }

    /// That of a flow of which a round-trip time was known: that one, if it has none now.
    fn known_before(self, before: &Contribution) -> Contribution {
        let units = if self.rtt_known { self.units } else { before.each() * self.priority };
        Contribution { units, rtt_known: true, ..self }
    }

    /// It is no farther away than it can be.
    pub(crate) fn up_to(self, distance: Distance) -> Contribution {
        Contribution { units: distance.of(self.priority, self.units), ..self }
    }

    /// It is as far away as before, or as its units say if it has just come, its round-trip
    /// time has come to be known, or its path has become longer.
    ///
    /// Units that rise are others' windows that shrink, and they get back at its end what its
    /// distance took when it came.  So units are no more than [`DRIFT`] times those it came
    /// with, unless it comes anew from farther away.
    pub(crate) fn at_distance(
        self,
        before: &Contribution,
        whereabouts: Whereabouts<impl Fn() -> u64, impl Fn() -> u64>,
    ) -> Contribution {
        if !self.counts() {
            return self;
        }
        let Whereabouts { most_waits, waits, empty } = whereabouts;
        let goes_on = before.counts() && before.rtt_known == self.rtt_known;
        let Contribution { distance, came, .. } = *before;
        if goes_on && self.units <= self.priority * DRIFT * came {
            return Contribution { distance, came, ..self };
        }
        let most_waits = most_waits();
        let near = came.max(distance.saturating_add(most_waits));
        let is_longer = empty > DRIFT * came && self.each() > DRIFT * near;
        if goes_on && !is_longer {
            return Contribution { distance, came, ..self.up_to_drift(near) };
        }
        let most = empty.saturating_add(most_waits);
        let comes = if empty > 0 { self.up_to_drift(most) } else { self };
        let each = comes.each();
        // Who comes back after a while tells of a time at which others waited less.  It is no
        // farther away than its shortest time.
        let nearest = if empty > 0 { empty.min(each) } else { each };
        let was = if before.counts() { 0 } else { before.distance.min(nearest) };
        let distance = each.saturating_sub(waits()).max(each.div_ceil(DISTANCE_PART)).max(was);
        // What is said to wait may be a lie of others.
        let came = distance.max(empty.min(each));
        Contribution { distance, came, ..comes }
    }

    /// Even its shortest round-trip time is longer than it is away: it has never seen its path
    /// without a queue.
    pub(crate) fn is_late(&self, min_rtt_us: u32) -> bool {
        self.rtt_known && u64::from(min_rtt_us) > self.distance + self.distance / LATE_PART
    }

    /// It counts at the most [`DRIFT`] times this.
    fn up_to_drift(self, each: u64) -> Contribution {
        let most = self.priority.saturating_mul(DRIFT.saturating_mul(each));
        Contribution { units: self.units.min(most), ..self }
    }

    /// What one of its priority counts.
    fn each(&self) -> u64 {
        self.units / self.priority.max(1)
    }

    /// That of an active flow.  What one that comes back wants is not known until its
    /// ACKs tell: it counts with what it used, or had on the path before.
    fn in_use(self, report: &Report, usage: &Usage, comes_back: bool) -> Contribution {
        let may_grow =
            matches!(report.state, CongestionState::SlowStart | CongestionState::Avoidance);
        let limited = comes_back || !report.cwnd_limited;
        Contribution {
            active: true,
            growing: !limited && may_grow,
            demand_bytes: limited.then(|| usage.demand_bytes(report.rtt_us, report.srtt_us)),
            timed_out: report.state == CongestionState::Loss,
            mss_bytes: report.mss_bytes.into(),
            ..self
        }
    }

    pub(crate) fn counts(&self) -> bool {
        self.priority > 0
    }

    /// It counts, and has nothing to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.counts() && !self.active
    }

    /// Its distance times its priority.
    pub(crate) fn distances(&self) -> u64 {
        self.distance * self.priority
    }

    pub(crate) fn growing_units(&self) -> u64 {
        if self.growing { self.units } else { 0 }
    }

    pub(crate) fn backlogged_units(&self) -> u64 {
        if self.demand_bytes.is_none() { self.units } else { 0 }
    }

    pub(crate) fn backlogged_priority(&self) -> u64 {
        if self.demand_bytes.is_none() { self.priority } else { 0 }
    }

    /// Its demand in what one of its priority counts: where shares are rates, in a
    /// microsecond; with 32 fraction bits.
    pub(crate) fn demand_rate(&self) -> u128 {
        let Some(bytes) = self.demand_bytes.filter(|bytes| *bytes > 0) else { return 0 };
        div_wide((u128::from(bytes) << 32) * u128::from(self.priority), self.units.max(1))
    }
}

/// What a flow has counted since it was registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    delivered_bytes: u64,
    acked_limited_bytes: u64,
    cwnd_growth_bytes: u32,
    congestion_events: u16,
    timeouts: u16,
    spurious_events: u16,
}

/// What happened to a flow between two reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Bytes acknowledged.
    pub(crate) delivered_bytes: u64,
    /// Bytes acknowledged while cwnd-limited.
    pub(crate) acked_limited_bytes: u64,
    /// Bytes the flow's own controller grew by.
    pub(crate) growth_bytes: u64,
    /// Bytes it closed its window by, without a congestion event.
    pub(crate) shrink_bytes: u64,
    /// New congestion events, whatever their number: one charge at most.
    pub(crate) congestion: bool,
    /// A new timeout episode.
    pub(crate) timeout: bool,
    /// The latest congestion event was found spurious.
    pub(crate) spurious: bool,
}

impl Delta {
    /// What a policy is told of, if anything.
    pub(crate) fn cause(&self) -> Option<Cause> {
        match (self.congestion, self.timeout) {
            (true, false) => Some(Cause::Recovery),
            (true, true) => Some(Cause::Timeout),
            (false, true) => Some(Cause::LateTimeout),
            (false, false) => None,
        }
    }

    /// Differences of the counters, modulo their width.  No controller grows
    /// by more than was acknowledged (that is slow start), so more is cut; of
    /// what it shrinks by, too.
    pub(crate) fn between(old: &Counters, new: &Report) -> Delta {
        let delivered_bytes = advance(old.delivered_bytes, new.delivered_bytes);
        let acked_limited_bytes =
            advance(old.acked_limited_bytes, new.acked_limited_bytes).min(delivered_bytes);
        let growth = new.cwnd_growth_bytes.wrapping_sub(old.cwnd_growth_bytes) as i32;
        let cut = |bytes: i32| u64::try_from(bytes).unwrap_or(0).min(acked_limited_bytes);
        Delta {
            delivered_bytes,
            acked_limited_bytes,
            growth_bytes: cut(growth),
            shrink_bytes: cut(growth.wrapping_neg()),
            congestion: advanced(old.congestion_events, new.congestion_events),
            timeout: advanced(old.timeouts, new.timeouts),
            spurious: advanced(old.spurious_events, new.spurious_events),
        }
    }
}

/// A counter's advance; 0 if it went back, as an old report read late does.
fn advance(old: u64, new: u64) -> u64 {
    u64::try_from(new.wrapping_sub(old) as i64).unwrap_or(0)
}

fn advanced(old: u16, new: u16) -> bool {
    new.wrapping_sub(old) as i16 > 0
}

/// What a flow begins with, at most the initial window.
pub(crate) fn initial(report: &Report) -> Window {
    let mss_bytes = u64::from(report.mss_bytes).min(JUMBO_BYTES);
    let own = u64::from(report.cwnd_bytes);
    Window::from_bytes(own.min(INITIAL_SEGMENTS * mss_bytes).max(mss_bytes))
}

/// What a flow that joins has on the path already: one that begins is in slow
/// start, and one that comes back from a pause has nothing outstanding.
pub(crate) fn on_path_bytes(report: &Report) -> u64 {
    match report.state {
        CongestionState::Avoidance if !report.opening => {
            report.inflight_bytes.min(report.cwnd_bytes).into()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(old: &Report, new: &Report) -> Delta {
        Delta::between(&Flow::new((0, 0, 0), 0, old).counters(), new)
    }

    #[test]
    fn counters_may_wrap() {
        let old = Report {
            cwnd_growth_bytes: u32::MAX - 9,
            congestion_events: u16::MAX,
            ..Report::default()
        };
        let new = Report {
            cwnd_growth_bytes: 90,
            congestion_events: 0,
            acked_limited_bytes: 500,
            delivered_bytes: 500,
            ..old
        };
        let delta = between(&old, &new);
        assert_eq!((delta.growth_bytes, delta.congestion), (100, true));
    }

    #[test]
    fn a_report_older_than_the_last_changes_nothing() {
        let old = Report {
            acked_limited_bytes: 100,
            delivered_bytes: 100,
            congestion_events: 1,
            ..Report::default()
        };
        let new =
            Report { acked_limited_bytes: 90, delivered_bytes: 90, congestion_events: 0, ..old };
        assert_eq!(between(&old, &new), Delta::default());
    }

    #[test]
    fn a_controller_may_close_its_window() {
        let old = Report { cwnd_growth_bytes: 500, ..Report::default() };
        let new = Report {
            cwnd_growth_bytes: 400,
            acked_limited_bytes: 1000,
            delivered_bytes: 1000,
            ..old
        };
        let delta = between(&old, &new);
        assert_eq!((delta.growth_bytes, delta.shrink_bytes), (0, 100));
    }

    /// A flow that is so far away, of which `before` was known.
    fn away(rtt_us: u32, before: &Contribution, waits: u64, empty: u64) -> Contribution {
        let report = Report { active: true, priority: 256, srtt_us: rtt_us, ..Report::default() };
        Contribution::new(&report, ShareOf::Rate, &Usage::default(), before)
            .at_distance(before, Whereabouts { most_waits: || waits, waits: || waits, empty })
    }

    #[test]
    fn who_says_to_be_ever_farther_counts_twice_what_it_came_with() {
        let came = away(100_000, &Contribution::default(), 10_000, 0);
        for (waits, counts) in [(0, 180_000), (10_000, 200_000), (40_000, 260_000)] {
            let later = away(1_000_000, &came, waits, 100_000);
            assert_eq!((later.each(), later.distance), (counts, came.distance));
        }
        let queued = away(190_000, &came, 100_000, 100_000);
        assert_eq!((queued.each(), queued.distance), (190_000, came.distance));
    }

    #[test]
    fn a_path_that_became_longer_is_told_by_its_shortest_times() {
        let came = away(100_000, &Contribution::default(), 10_000, 90_000);
        let longer = away(300_000, &came, 10_000, 290_000);
        assert_eq!((longer.each(), longer.distance), (300_000, 290_000));
    }

    #[test]
    fn who_comes_counts_no_more_than_its_shortest_times_let_it() {
        let came = away(1_000_000, &Contribution::default(), 10_000, 90_000);
        assert_eq!((came.each(), came.distance), (200_000, 190_000));
    }

    #[test]
    fn who_comes_back_is_as_far_away_as_it_was() {
        let came = away(100_000, &Contribution::default(), 0, 100_000);
        let gone = Contribution::gone(came.distance);
        // The queue has grown since: its time is of before that.
        let back = away(140_000, &gone, 90_000, 100_000);
        assert_eq!((back.distance, back.each()), (100_000, 140_000));
        let nearer = away(60_000, &gone, 0, 60_000);
        assert_eq!(nearer.distance, 60_000, "its path has become shorter");
        let queued = away(140_000, &gone, 90_000, 60_000);
        assert_eq!(queued.distance, 60_000, "shorter, and packets wait there");
        let unknown = Contribution { rtt_known: false, ..came };
        assert_eq!(away(140_000, &unknown, 90_000, 140_000).distance, 50_000, "it was not known");
        let farther = away(300_000, &gone, 50_000, 290_000);
        assert_eq!(farther.distance, 250_000, "or longer");
        let anew = away(140_000, &Contribution::default(), 90_000, 100_000);
        assert_eq!(anew.distance, 50_000, "of one that comes nothing else is known");
    }

    #[test]
    fn who_came_to_a_queue_shorter_than_its_distance_knows_no_path_without() {
        let flow = away(52_000, &Contribution::default(), 22_000, 52_000);
        assert_eq!(flow.distance, 30_000);
        assert!(flow.is_late(52_000) && !flow.is_late(33_000), "an eighth may be anything");
        assert!(!Contribution { rtt_known: false, ..flow }.is_late(52_000));
    }

    #[test]
    fn growth_is_at_most_what_was_acknowledged() {
        let new = Report {
            acked_limited_bytes: 10,
            delivered_bytes: 10,
            cwnd_growth_bytes: 5000,
            ..Report::default()
        };
        assert_eq!(between(&Report::default(), &new).growth_bytes, 10);
    }

    #[test]
    fn what_is_yet_to_be_sent_is_not_on_the_path() {
        let report = |state, opening| Report {
            state,
            opening,
            cwnd_bytes: 30_000,
            inflight_bytes: 20_000,
            ..Report::default()
        };
        assert_eq!(on_path_bytes(&report(CongestionState::Avoidance, false)), 20_000);
        assert_eq!(on_path_bytes(&report(CongestionState::Avoidance, true)), 0);
        assert_eq!(on_path_bytes(&report(CongestionState::SlowStart, false)), 0);
    }

    #[test]
    fn what_a_flow_uses_is_known_after_its_first_round_trips() {
        let report = |active| Report { active, srtt_us: 100_000, ..Report::default() };
        let usage = Usage::default().with(1, &report(true), 0);
        let usage = usage.with(100_001, &report(true), 40_000);
        assert_eq!(usage.demand_bytes(0, 100_000), 20_000, "over two round trips");
        assert_eq!(usage.demand_bytes(50_000, 100_000), 10_000, "at the present round-trip time");
        let flow =
            Contribution::new(&report(true), ShareOf::Window, &usage, &Contribution::default());
        let idle = Contribution::new(&report(false), ShareOf::Window, &usage, &flow);
        assert_eq!((idle.active, idle.demand_bytes), (false, Some(0)));
        let limited = Report { cwnd_limited: true, ..report(true) };
        let back = Contribution::new(&limited, ShareOf::Window, &usage, &idle);
        assert_eq!(back.demand_bytes, Some(20_000), "not all it can have");
        let backlogged = Contribution::new(&limited, ShareOf::Window, &usage, &back);
        assert_eq!(backlogged.demand_bytes, None);
    }
}
