// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What one flow contributes to the sums over its group.
use crate::{
    config::ShareOf,
    report::{CongestionState, Report},
};

/// A peak of demand fades by this part with each report.
const DEMAND_FADES: u64 = 16;

/// A flow's contribution.  `Default` is that of a flow that does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contribution {
    /// Priority, 8 fraction bits; 0 for a flow that is idle.
    pub(crate) priority: u64,
    /// Priority, times srtt where shares are rates.
    pub(crate) units: u64,
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
        let app_limited = !report.cwnd_limited && may_grow;
        Contribution {
            priority: report.priority.into(),
            units: share.units(report.priority, report.srtt_us),
            growing: report.cwnd_limited && may_grow,
            demand_bytes: app_limited.then(|| demand_bytes(report, before.demand_bytes)),
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

    pub(crate) fn backlogged_units(&self) -> u64 {
        if self.demand_bytes.is_none() { self.units } else { 0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demand_is_the_peak_in_use_and_fades() {
        let report = Report { active: true, mss_bytes: 1000, ..Report::default() };
        let peak = Report { inflight_bytes: 40_000, ..report };
        let mut flow = Contribution::default();
        let demands = [peak, report, report].map(|report| {
            flow = Contribution::new(&report, ShareOf::Window, &flow);
            flow.demand_bytes
        });
        assert_eq!(demands, [Some(52_000), Some(48_750), Some(45_704)]);
    }
}
