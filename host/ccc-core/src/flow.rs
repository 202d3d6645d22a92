// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One flow as the engine remembers it, and what a new report adds to it.
use crate::{
    fixed::{Beta, Micros},
    group::ShareOf,
    members::Standing,
    quiet::Link,
    report::{CongestionState, Report},
};

/// A flow that reports nothing for this long while it claims to have data
/// outstanding is taken for idle until its next report, so that a guest that
/// hangs or dies takes no share with it (B11).
pub const IDLE_AFTER_US: Micros = 1_000_000;

/// A peak of demand fades by this part with each report.
const DEMAND_FADES: u64 = 16;

/// A registered flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) vm: usize,
    pub(crate) group: usize,
    pub(crate) tenant: usize,
    pub(crate) last: Report,
    pub(crate) standing: Standing,
    pub(crate) link: Link,
}

/// What happened to a flow between two reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Bytes acknowledged.
    pub(crate) delivered: u64,
    /// Bytes acknowledged while window-limited.
    pub(crate) acked: u64,
    /// Bytes the flow's own controller grew by.
    pub(crate) grown: u64,
    /// Bytes it closed its window by, without an event.
    pub(crate) shrunk: u64,
    /// New congestion events, whatever their number: one charge at most.
    pub(crate) event: bool,
    /// A new timeout episode.
    pub(crate) timeout: bool,
    /// The latest event was found spurious.
    pub(crate) undo: bool,
}

impl Delta {
    /// Differences of the counters, modulo their width.  No controller grows
    /// by more than was acknowledged (that is slow start), so more is cut; of
    /// what it shrinks by, too.
    pub(crate) fn between(old: &Report, new: &Report) -> Delta {
        let delivered = forward(old.delivered_bytes, new.delivered_bytes);
        let acked = forward(old.acked_limited_bytes, new.acked_limited_bytes).min(delivered);
        let grown = new.cwnd_growth_bytes.wrapping_sub(old.cwnd_growth_bytes);
        Delta {
            delivered,
            acked,
            grown: forward32(grown).min(acked),
            shrunk: forward32(grown.wrapping_neg()).min(acked),
            event: forward16(new.congestion_events.wrapping_sub(old.congestion_events)),
            timeout: forward16(new.timeouts.wrapping_sub(old.timeouts)),
            undo: forward16(new.spurious_events.wrapping_sub(old.spurious_events)),
        }
    }
}

/// A counter's advance; 0 if it went back, as an old report read late does.
fn forward(old: u64, new: u64) -> u64 {
    let step = new.wrapping_sub(old);
    if step > u64::MAX / 2 { 0 } else { step }
}

fn forward32(step: u32) -> u64 {
    if step > u32::MAX / 2 { 0 } else { u64::from(step) }
}

fn forward16(step: u16) -> bool {
    (1..=u16::MAX / 2).contains(&step)
}

/// How `report` makes its flow count in the group's sums, if it counted as
/// `before` until now.
pub(crate) fn standing(report: &Report, share: ShareOf, before: &Standing) -> Standing {
    if !report.active {
        return Standing::default();
    }
    let priority = u64::from(report.priority);
    let growing_state =
        matches!(report.state, CongestionState::SlowStart | CongestionState::Avoidance);
    Standing {
        priority,
        units: priority * share.factor(report.srtt_us),
        growing: report.cwnd_limited && growing_state,
        demand: (!report.cwnd_limited && growing_state).then(|| demand(report, before.demand)),
        lost: report.state == CongestionState::Loss,
        mss: u64::from(report.mss_bytes),
    }
}

/// What an application-limited flow uses: its peak of bytes outstanding, with
/// room to grow by a quarter and two segments before it meets its limit.
fn demand(report: &Report, before: Option<u64>) -> u64 {
    let inflight = u64::from(report.inflight_bytes);
    let wanted = inflight + inflight / 4 + 2 * u64::from(report.mss_bytes);
    let faded = before.map_or(0, |peak| peak - peak / DEMAND_FADES);
    wanted.max(faded)
}

/// What a flow that joins has on the path already: one that begins is in slow
/// start, and one that comes back from a pause has nothing outstanding.
pub(crate) fn brings(report: &Report) -> u64 {
    match report.state {
        CongestionState::Avoidance => report.inflight_bytes.min(report.cwnd_bytes).into(),
        _ => 0,
    }
}

/// The window factor the flow's own controller applied.
pub(crate) fn beta(report: &Report) -> Beta {
    Beta::clamped(report.beta)
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
        assert_eq!((delta.grown, delta.event), (100, true));
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
        let nothing = Delta {
            delivered: 0,
            acked: 0,
            grown: 0,
            shrunk: 0,
            event: false,
            timeout: false,
            undo: false,
        };
        assert_eq!(Delta::between(&old, &new), nothing);
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
        assert_eq!((delta.grown, delta.shrunk), (0, 100));
    }

    #[test]
    fn growth_is_at_most_what_was_acknowledged() {
        let new = Report {
            acked_limited_bytes: 10,
            delivered_bytes: 10,
            cwnd_growth_bytes: 5000,
            ..Report::default()
        };
        assert_eq!(Delta::between(&Report::default(), &new).grown, 10);
    }
}
