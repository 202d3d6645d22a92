// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The lies of a hostile guest: those of `guest/tests/hostile`, by the names of its parameters.
use ccc_core::{CongestionState, Report};

use crate::{
    path::{MSS_BYTES, Nanos},
    setup::SetupError,
};

/// What an empty slot has for a window, if nothing in flight is claimed.
const LEAST_WINDOW_BYTES: u32 = 14_480;
/// What it has for a round-trip time.
const RTT_US: u32 = 100_000;
/// Most slots without a flow.
const MOST_SLOTS: u32 = 4096;

/// What is said, and whether the guest does as it is told; flags are 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lies {
    /// Segment size; 0: the true one.
    pub mss: u32,
    /// Round-trip time; 0: the true one.
    pub rtt_us: u32,
    /// The least round-trip time, whatever the others are; 0: the least of these.
    pub min_rtt_us: u32,
    /// Factor of what was acknowledged.
    pub acked: u32,
    /// Always in slow start.
    pub slow_start: u32,
    /// No loss is reported.
    pub mute: u32,
    /// Grants are ignored.
    pub deaf: u32,
    /// Slots without a flow.
    pub slots: u32,
    /// Period of what they say.
    pub ms: u32,
    /// A congestion event in each.
    pub loss: u32,
    /// Its factor, of 65536.
    pub beta: u32,
    /// It is undone a period later.
    pub undo: u32,
    /// Growth in each period.
    pub growth_bytes: u32,
    /// What each slot says it has in flight.
    pub inflight_bytes: u32,
    /// Priority of the slots.
    pub priority: u32,
    /// They are idle in every other period.
    pub returns: u32,
    /// Their applications limit them.
    pub limited: u32,
}

impl Default for Lies {
    fn default() -> Lies {
        Lies {
            mss: 0,
            rtt_us: 0,
            min_rtt_us: 0,
            acked: 1,
            slow_start: 0,
            mute: 0,
            deaf: 0,
            slots: 0,
            ms: 100,
            loss: 0,
            beta: 1 << 15,
            undo: 0,
            growth_bytes: 0,
            inflight_bytes: 0,
            priority: 1,
            returns: 0,
            limited: 0,
        }
    }
}

impl Lies {
    /// Those among a module's parameters.
    pub fn of(options: &str) -> Result<Lies, SetupError> {
        let mut lies = Lies::default();
        for option in options.split_whitespace().filter_map(|word| word.strip_prefix("lie_")) {
            let (name, value) = option.split_once('=').unwrap_or((option, "1"));
            let field = lies.field(name).ok_or(SetupError::NotModelled("lie of this name"))?;
            *field = value.parse().map_err(|_| SetupError::Invalid {
                at: format!("module_options: lie_{name}"),
                expected: "a whole number",
                got: value.into(),
            })?;
        }
        Ok(lies)
    }

    /// The lie of that name.
    pub fn field(&mut self, name: &str) -> Option<&mut u32> {
        let (_, field) = self.fields().into_iter().find(|(known, _)| *known == name)?;
        Some(field)
    }

    /// All of them, by their parameters' names.
    pub fn fields(&mut self) -> [(&'static str, &mut u32); 17] {
        [
            ("mss", &mut self.mss),
            ("rtt_us", &mut self.rtt_us),
            ("min_rtt_us", &mut self.min_rtt_us),
            ("acked", &mut self.acked),
            ("slow_start", &mut self.slow_start),
            ("mute", &mut self.mute),
            ("deaf", &mut self.deaf),
            ("slots", &mut self.slots),
            ("ms", &mut self.ms),
            ("loss", &mut self.loss),
            ("beta", &mut self.beta),
            ("undo", &mut self.undo),
            ("growth_bytes", &mut self.growth_bytes),
            ("inflight_bytes", &mut self.inflight_bytes),
            ("priority", &mut self.priority),
            ("return", &mut self.returns),
            ("limited", &mut self.limited),
        ]
    }

    /// The parameters that tell them.
    pub fn options(&self) -> String {
        let (mut own, mut none) = (self.clone(), Lies::default());
        let told = own.fields().into_iter().zip(none.fields());
        let told = told.filter(|((_, value), (_, default))| value != default);
        let words: Vec<_> = told.map(|((name, value), _)| format!("lie_{name}={value}")).collect();
        words.join(" ")
    }

    /// Slots without a flow.
    pub fn slot_count(&self) -> usize {
        self.slots.min(MOST_SLOTS) as usize
    }

    /// Their period.
    pub fn period_ns(&self) -> Nanos {
        Nanos::from(self.ms.max(1)) * 1_000_000
    }

    /// What is said in place of what is true.
    pub fn falsify(&self, report: &mut Report) {
        if self.mute != 0 {
            (report.congestion_events, report.timeouts, report.spurious_events) = (0, 0, 0);
            if matches!(report.state, CongestionState::Recovery | CongestionState::Loss) {
                report.state = CongestionState::Avoidance;
            }
        }
        if self.slow_start != 0 {
            if report.state == CongestionState::Avoidance {
                report.state = CongestionState::SlowStart;
            }
            report.ssthresh_bytes = None;
        }
        if self.rtt_us != 0 {
            report.srtt_us = self.rtt_us;
            report.min_rtt_us = report.min_rtt_us.min(self.rtt_us);
            report.rtt_us = self.rtt_us;
        }
        if self.min_rtt_us != 0 {
            report.min_rtt_us = self.min_rtt_us;
        }
        if self.mss != 0 {
            report.mss_bytes = self.mss.min(u16::MAX.into()) as u16;
        }
        let factor = u64::from(self.acked.max(1));
        report.acked_limited_bytes = report.acked_limited_bytes.saturating_mul(factor);
        report.delivered_bytes = report.delivered_bytes.saturating_mul(factor);
    }
}

/// The slots of a VM that have no flow.
#[derive(Clone, Debug, Default)]
pub struct EmptySlots {
    period: u32,
    events: u16,
    spurious: u16,
    growth_bytes: u64,
}

impl EmptySlots {
    /// The next period begins.
    pub fn next_period(&mut self, lies: &Lies) {
        self.period = self.period.wrapping_add(1);
        if lies.undo != 0 && self.period % 2 == 1 {
            self.spurious = self.events;
        } else if lies.loss != 0 {
            self.events = self.events.wrapping_add(1);
        }
        self.growth_bytes += u64::from(lies.growth_bytes);
    }

    /// Whether nothing was said so far.
    pub fn is_first(&self) -> bool {
        self.period <= 1
    }

    /// What the slot of a number says; only the first one has events.
    pub fn report(&self, lies: &Lies, number: usize, epoch: u32) -> Report {
        let mut report = Report {
            state: CongestionState::Avoidance,
            active: lies.returns == 0 || self.period % 2 == 1,
            cwnd_limited: lies.limited == 0,
            priority: lies.priority.clamp(1, 2560) as u16,
            cwnd_bytes: lies.inflight_bytes.max(LEAST_WINDOW_BYTES),
            inflight_bytes: lies.inflight_bytes,
            srtt_us: RTT_US,
            min_rtt_us: RTT_US,
            mss_bytes: MSS_BYTES as u16,
            ..Report::default()
        };
        lies.falsify(&mut report);
        if number == 0 {
            report.congestion_events = self.events;
            report.spurious_events = self.spurious;
            report.beta = lies.beta.min(u16::MAX.into()) as u16;
            report.congestion_epoch = epoch;
            // Nobody grows by more than was acknowledged.
            report.acked_limited_bytes = self.growth_bytes;
            report.delivered_bytes = self.growth_bytes;
            report.cwnd_growth_bytes = self.growth_bytes as u32;
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies_are_told_by_the_modules_parameters() {
        let told = "inner=reno lie_loss=1 lie_ms=150 lie_slots=2 slots=256";
        let lies = Lies::of(told).expect("known");
        assert_eq!((lies.loss, lies.ms, lies.slots, lies.acked), (1, 150, 2, 1));
        assert_eq!(lies.options(), "lie_slots=2 lie_ms=150 lie_loss=1");
        assert!(Lies::of("lie_reset=1").is_err(), "the model has no device");
        assert!(Lies::of("lie_ms=soon").is_err());
    }

    #[test]
    fn an_event_is_undone_a_period_later() {
        let lies = Lies::of("lie_loss=1 lie_undo=1").expect("known");
        let mut slots = EmptySlots::default();
        let mut said = || {
            slots.next_period(&lies);
            let report = slots.report(&lies, 0, 7);
            (report.congestion_events, report.spurious_events)
        };
        assert_eq!([said(), said(), said()], [(0, 0), (1, 0), (1, 1)]);
    }
}
