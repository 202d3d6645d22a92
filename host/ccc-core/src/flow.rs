// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One flow as the engine remembers it: what it contributes to the sums over its
//! group, and what a new report adds to the last one.
use crate::{
    config::ShareOf,
    fixed::Micros,
    report::{CongestionState, Report},
};

/// A peak of demand fades by this part with each report.
const DEMAND_FADES: u64 = 4;

/// A registered flow.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Key of its VM, and of its group.
    pub(crate) vm: usize,
    pub(crate) group: usize,
    /// Key of the VM in the group.
    pub(crate) member: usize,
    /// When it was registered.
    pub(crate) joined: Micros,
    pub(crate) last: Report,
    pub(crate) contribution: Contribution,
}

/// A flow's contribution.  `Default` is that of a flow that does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contribution {
    /// Priority, 8 fraction bits; 0 for a flow that is idle.
    pub(crate) priority: u64,
    /// Priority, times srtt where shares are rates.
    pub(crate) units: u64,
    /// Its round-trip time has been measured.
    pub(crate) rtt_known: bool,
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
    pub(crate) fn new(report: &Report, share: ShareOf, before: &Contribution) -> Contribution {
        if !report.active {
            return Contribution::default();
        }
        let may_grow =
            matches!(report.state, CongestionState::SlowStart | CongestionState::Avoidance);
        Contribution {
            priority: report.priority.into(),
            units: share.units(report.priority, report.srtt_us),
            rtt_known: report.srtt_us > 0,
            growing: report.cwnd_limited && may_grow,
            demand_bytes: (!report.cwnd_limited).then(|| demand_bytes(report, before.demand_bytes)),
            timed_out: report.state == CongestionState::Loss,
            mss_bytes: report.mss_bytes.into(),
        }
    }

    pub(crate) fn active(&self) -> bool {
        self.priority > 0
    }

    pub(crate) fn growing_units(&self) -> u64 {
        if self.growing { self.units } else { 0 }
    }

    pub(crate) fn backlogged_priority(&self) -> u64 {
        if self.demand_bytes.is_none() { self.priority } else { 0 }
    }

    /// Its demand in what one of its priority counts: where shares are rates, in a
    /// microsecond; with 32 fraction bits.
    pub(crate) fn demand_rate(&self) -> u128 {
        let bytes = u128::from(self.demand_bytes.unwrap_or(0));
        (bytes << 32) * u128::from(self.priority) / u128::from(self.units.max(1))
    }
}

/// What an application-limited flow uses: its peak of bytes outstanding, with
/// room to grow by a quarter and two segments before it meets its limit.
fn demand_bytes(report: &Report, before: Option<u64>) -> u64 {
    let inflight = u64::from(report.inflight_bytes);
    let wanted = inflight + inflight / 4 + 2 * u64::from(report.mss_bytes);
    let faded = before.map_or(0, |peak| peak - peak / DEMAND_FADES);
    wanted.max(faded)
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
    /// Differences of the counters, modulo their width.  No controller grows
    /// by more than was acknowledged (that is slow start), so more is cut; of
    /// what it shrinks by, too.
    pub(crate) fn between(old: &Report, new: &Report) -> Delta {
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

/// What a flow that joins has on the path already: one that begins is in slow
/// start, and one that comes back from a pause has nothing outstanding.
pub(crate) fn on_path_bytes(report: &Report) -> u64 {
    match report.state {
        CongestionState::Avoidance => report.inflight_bytes.min(report.cwnd_bytes).into(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let delta = Delta::between(&old, &new);
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
        assert_eq!(Delta::between(&old, &new), Delta::default());
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
        let delta = Delta::between(&old, &new);
        assert_eq!((delta.growth_bytes, delta.shrink_bytes), (0, 100));
    }

    #[test]
    fn growth_is_at_most_what_was_acknowledged() {
        let new = Report {
            acked_limited_bytes: 10,
            delivered_bytes: 10,
            cwnd_growth_bytes: 5000,
            ..Report::default()
        };
        assert_eq!(Delta::between(&Report::default(), &new).growth_bytes, 10);
    }

    #[test]
    fn a_demand_is_the_peak_in_use_and_fades() {
        let report = Report { active: true, mss_bytes: 1000, ..Report::default() };
        let peak = Report { inflight_bytes: 40_000, ..report };
        let mut flow = Contribution::default();
        let demands = [peak, report, report].map(|report| {
            flow = Contribution::new(&report, ShareOf::Window, &flow);
            flow.demand_bytes
        });
        assert_eq!(demands, [Some(52_000), Some(39_000), Some(29_250)]);
    }
}
