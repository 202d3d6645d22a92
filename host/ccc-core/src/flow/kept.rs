// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One flow as the engine keeps it: two lines of a processor's cache, for there may be a
//! million, and each report finds another one.
use std::num::NonZeroU16;

use super::{Contribution, Counters, Usage};
use crate::{
    fixed::Micros,
    report::{CongestionState, Report},
};

/// A registered flow.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Flow {
    /// When it was registered.
    pub(crate) joined: Micros,
    /// When it last reported while it was active.
    pub(crate) heard: Micros,
    pub(crate) usage: Usage,
    // Of its latest report.
    delivered_bytes: u64,
    acked_limited_bytes: u64,
    cwnd_growth_bytes: u32,
    cwnd_bytes: u32,
    ssthresh_bytes: u32,
    srtt_us: u32,
    min_rtt_us: u32,
    rtt_us: u32,
    congestion_events: u16,
    timeouts: u16,
    spurious_events: u16,
    mss_bytes: NonZeroU16,
    priority: NonZeroU16,
    told: Told,
    // What it contributes; the rest follows from the report and what it uses.
    counts: Counts,
    units: u64,
    claimed: u64,
    distance: u32,
    came: u32,
    vm: u32,
    group: u32,
    member: u32,
}

const _: () = assert!(size_of::<Option<Flow>>() == 128, "two lines, in a slab, too");

/// What a report says by yes or no, in bits.
#[derive(Clone, Copy, Debug, Default)]
struct Told(u8);

impl Told {
    const ACTIVE: u8 = 1;
    const CWND_LIMITED: u8 = 2;
    const HAS_SSTHRESH: u8 = 4;
    const STATE_SHIFT: u32 = 3;

    fn new(report: &Report) -> Told {
        let state = match report.state {
            CongestionState::SlowStart => 0,
            CongestionState::Avoidance => 1,
            CongestionState::Recovery => 2,
            CongestionState::Loss => 3,
        };
        Told(
            bit(report.active, Told::ACTIVE)
                | bit(report.cwnd_limited, Told::CWND_LIMITED)
                | bit(report.ssthresh_bytes.is_some(), Told::HAS_SSTHRESH)
                | state << Told::STATE_SHIFT,
        )
    }

    fn has(self, mask: u8) -> bool {
        self.0 & mask != 0
    }

    fn state(self) -> CongestionState {
        match self.0 >> Told::STATE_SHIFT {
            0 => CongestionState::SlowStart,
            1 => CongestionState::Avoidance,
            2 => CongestionState::Recovery,
            _ => CongestionState::Loss,
        }
    }
}

/// How a flow counts, in bits; none of one that does not.
#[derive(Clone, Copy, Debug, Default)]
struct Counts(u8);

impl Counts {
    const COUNTS: u8 = 1;
    const ACTIVE: u8 = 2;
    const RTT_KNOWN: u8 = 4;
    const GROWING: u8 = 8;
    const LIMITED: u8 = 16;
    const TIMED_OUT: u8 = 32;

    fn new(contribution: &Contribution) -> Counts {
        Counts(
            bit(contribution.counts(), Counts::COUNTS)
                | bit(contribution.active, Counts::ACTIVE)
                | bit(contribution.rtt_known, Counts::RTT_KNOWN)
                | bit(contribution.growing, Counts::GROWING)
                | bit(contribution.demand_bytes.is_some(), Counts::LIMITED)
                | bit(contribution.timed_out, Counts::TIMED_OUT),
        )
    }

    fn has(self, mask: u8) -> bool {
        self.0 & mask != 0
    }
}

fn bit(is: bool, mask: u8) -> u8 {
    if is { mask } else { 0 }
}

/// The engine has refused 0.
fn at_least_one(value: u16) -> NonZeroU16 {
    NonZeroU16::new(value).unwrap_or(NonZeroU16::MIN)
}

impl Flow {
    /// A flow of this VM, group and member of it, which does not count yet.
    pub(crate) fn new(
        (vm, group, member): (usize, usize, usize),
        joined: Micros,
        report: &Report,
    ) -> Flow {
        Flow {
            joined,
            heard: joined,
            usage: Usage::default(),
            delivered_bytes: report.delivered_bytes,
            acked_limited_bytes: report.acked_limited_bytes,
            cwnd_growth_bytes: report.cwnd_growth_bytes,
            cwnd_bytes: report.cwnd_bytes,
            ssthresh_bytes: report.ssthresh_bytes.unwrap_or(0),
            srtt_us: report.srtt_us,
            min_rtt_us: report.min_rtt_us,
            rtt_us: report.rtt_us,
            congestion_events: report.congestion_events,
            timeouts: report.timeouts,
            spurious_events: report.spurious_events,
            mss_bytes: at_least_one(report.mss_bytes),
            priority: at_least_one(report.priority),
            told: Told::new(report),
            counts: Counts::default(),
            units: 0,
            claimed: 0,
            distance: 0,
            came: 0,
            vm: vm as u32,
            group: group as u32,
            member: member as u32,
        }
    }

    /// Key of its VM.
    pub(crate) fn vm(&self) -> usize {
        self.vm as usize
    }

    /// Key of its group.
    pub(crate) fn group(&self) -> usize {
        self.group as usize
    }

    /// Key of the VM in the group.
    pub(crate) fn member(&self) -> usize {
        self.member as usize
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            delivered_bytes: self.delivered_bytes,
            acked_limited_bytes: self.acked_limited_bytes,
            cwnd_growth_bytes: self.cwnd_growth_bytes,
            congestion_events: self.congestion_events,
            timeouts: self.timeouts,
            spurious_events: self.spurious_events,
        }
    }

    /// Its latest report, but for what is of a single event, and what is outstanding.
    pub(crate) fn last(&self) -> Report {
        let has_ssthresh = self.told.has(Told::HAS_SSTHRESH);
        Report {
            state: self.told.state(),
            active: self.told.has(Told::ACTIVE),
            cwnd_limited: self.told.has(Told::CWND_LIMITED),
            priority: self.priority.get(),
            acked_limited_bytes: self.acked_limited_bytes,
            delivered_bytes: self.delivered_bytes,
            cwnd_growth_bytes: self.cwnd_growth_bytes,
            congestion_events: self.congestion_events,
            timeouts: self.timeouts,
            spurious_events: self.spurious_events,
            cwnd_bytes: self.cwnd_bytes,
            ssthresh_bytes: has_ssthresh.then_some(self.ssthresh_bytes),
            srtt_us: self.srtt_us,
            min_rtt_us: self.min_rtt_us,
            rtt_us: self.rtt_us,
            mss_bytes: self.mss_bytes.get(),
            ..Report::default()
        }
    }

    /// It has reported this, and uses so much now.
    pub(crate) fn reported(&mut self, report: &Report, usage: Usage) {
        self.usage = usage;
        self.delivered_bytes = report.delivered_bytes;
        self.acked_limited_bytes = report.acked_limited_bytes;
        self.cwnd_growth_bytes = report.cwnd_growth_bytes;
        self.cwnd_bytes = report.cwnd_bytes;
        self.ssthresh_bytes = report.ssthresh_bytes.unwrap_or(0);
        self.srtt_us = report.srtt_us;
        self.min_rtt_us = report.min_rtt_us;
        self.rtt_us = report.rtt_us;
        self.congestion_events = report.congestion_events;
        self.timeouts = report.timeouts;
        self.spurious_events = report.spurious_events;
        self.mss_bytes = at_least_one(report.mss_bytes);
        self.priority = at_least_one(report.priority);
        self.told = Told::new(report);
    }

    /// It contributes.
    pub(crate) fn counts(&self) -> bool {
        self.counts.has(Counts::COUNTS)
    }

    /// It contributes and is active.
    pub(crate) fn is_active(&self) -> bool {
        self.counts.has(Counts::ACTIVE)
    }

    /// What it contributes.
    pub(crate) fn contribution(&self) -> Contribution {
        if !self.counts() {
            return Contribution::gone(self.distance.into());
        }
        let active = self.is_active();
        let demand_bytes = || match active {
            true => self.usage.demand_bytes(self.rtt_us, self.srtt_us),
            false => 0,
        };
        Contribution {
            priority: self.priority.get().into(),
            active,
            units: self.units,
            claimed: self.claimed,
            rtt_known: self.counts.has(Counts::RTT_KNOWN),
            distance: self.distance.into(),
            came: self.came.into(),
            growing: self.counts.has(Counts::GROWING),
            demand_bytes: self.counts.has(Counts::LIMITED).then(demand_bytes),
            timed_out: self.counts.has(Counts::TIMED_OUT),
            mss_bytes: if active { self.mss_bytes.get().into() } else { 0 },
        }
    }

    /// It contributes that, by its latest report.
    pub(crate) fn set_contribution(&mut self, contribution: &Contribution) {
        self.counts = Counts::new(contribution);
        self.units = contribution.units;
        self.claimed = contribution.claimed;
        // No round-trip time counts as one longer than 2^20 us.
        self.distance = contribution.distance as u32;
        self.came = contribution.came as u32;
        debug_assert_eq!(self.contribution(), *contribution);
    }

    /// It counts no more, and what it used is forgotten.
    pub(crate) fn forget(&mut self) {
        self.usage = Usage::default();
        if !self.counts.has(Counts::RTT_KNOWN) {
            self.distance = 0;
        }
        self.counts = Counts::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::ShareOf, flow::Whereabouts};

    #[test]
    fn each_state_is_kept_as_it_is() {
        use CongestionState::{Avoidance, Loss, Recovery, SlowStart};
        for state in [SlowStart, Avoidance, Recovery, Loss] {
            assert_eq!(Told::new(&Report { state, ..Report::default() }).state(), state);
        }
    }

    #[test]
    fn all_that_a_group_asks_for_is_kept() {
        let report = Report {
            state: CongestionState::Loss,
            active: true,
            cwnd_limited: true,
            priority: 77,
            acked_limited_bytes: u64::MAX,
            delivered_bytes: u64::MAX - 1,
            cwnd_growth_bytes: u32::MAX,
            congestion_events: 1,
            timeouts: 2,
            spurious_events: 3,
            cwnd_bytes: u32::MAX,
            ssthresh_bytes: Some(0),
            srtt_us: u32::MAX,
            min_rtt_us: 5,
            rtt_us: 6,
            mss_bytes: u16::MAX,
            ..Report::default()
        };
        assert_eq!(Flow::new((0, 0, 0), 1, &report).last(), report);
        let mut flow = Flow::new((1, 2, 3), 1, &Report::default());
        flow.reported(&report, Usage::default());
        assert_eq!(flow.last(), report);
    }

    #[test]
    fn what_any_flow_contributes_is_kept() {
        let nothing = Contribution::default();
        for state in [CongestionState::SlowStart, CongestionState::Loss] {
            for (active, cwnd_limited) in [(true, true), (true, false), (false, false)] {
                let srtt_us = u32::MAX;
                let report = Report { state, active, cwnd_limited, srtt_us, ..Report::default() };
                let usage = Usage::default().with(9, &report, 40_000);
                let new = |before| {
                    Contribution::new(&report, ShareOf::Rate, &usage, before).at_distance(
                        before,
                        Whereabouts { most_waits: || 9, waits: || 9, empty: u64::from(u32::MAX) },
                    )
                };
                for contribution in [new(&nothing), new(&new(&nothing))] {
                    let mut flow = Flow::new((0, 0, 0), 1, &Report::default());
                    flow.reported(&report, usage);
                    flow.set_contribution(&contribution);
                    assert_eq!(flow.contribution(), contribution);
                    flow.forget();
                    assert_eq!(flow.contribution(), Contribution::gone(contribution.distance));
                }
            }
        }
    }
}
