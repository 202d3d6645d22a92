// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a flow that its application limits uses of its share.
use crate::{
    fixed::{Micros, mul_div},
    report::Report,
};

/// What a flow uses is an average over so many round-trip times, and this at the least:
/// an application that writes now and then is to have one demand, not one for each write.
const USAGE_ROUNDS: u32 = 4;
const USAGE_MIN_US: u32 = 100_000;
/// Until then nothing of that is known, and a flow that begins may use so many times what is
/// outstanding a round trip later: its receiver's window opens as a window in slow start does.
const OPENS: u64 = 2;

/// What was delivered of a flow, the older the less.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    bytes: u64,
    until: Micros,
    /// Of that time, until the latest report.
    span_us: u32,
    /// What was outstanding then, and not 0, of a flow that has just begun and goes on to send.
    opening: u32,
}

impl Usage {
    /// With a new report, before which so much was delivered.
    pub(crate) fn with(self, now: Micros, new: &Report, delivered_bytes: u64) -> Usage {
        let over_us = new.srtt_us.saturating_mul(USAGE_ROUNDS).max(USAGE_MIN_US);
        // Nothing is known of the time before the first report.
        let passed_us = match self.until {
            0 => new.srtt_us.into(),
            until => now.saturating_sub(until),
        };
        let span_us = passed_us.saturating_add(self.span_us.into());
        let beyond_us = span_us.saturating_sub(over_us.into()).min(over_us.into());
        let faded = mul_div(self.bytes, beyond_us, over_us.into());
        let begins = self.opens() && beyond_us == 0;
        Usage {
            bytes: (self.bytes - faded).saturating_add(delivered_bytes),
            until: now,
            span_us: span_us.min(over_us.into()) as u32,
            opening: if begins { self.opening(new, delivered_bytes) } else { 0 },
        }
    }

    /// It has not reported yet, or has sent whenever it has.
    fn opens(self) -> bool {
        self.until == 0 || self.opening > 0
    }

    /// Who has sent all it had, does not open: what is outstanding then is what is not
    /// delivered of that.
    fn opening(self, new: &Report, delivered_bytes: u64) -> u32 {
        let outstanding = new.inflight_bytes.min(new.cwnd_bytes).max(1);
        let sends = u64::from(outstanding) + delivered_bytes > self.opening.into();
        if delivered_bytes == 0 || sends { outstanding } else { 0 }
    }

    /// In a round-trip time as it is now: one of a full queue would be a part that nobody
    /// uses once a reduction has emptied it.
    pub(super) fn demand_bytes(&self, rtt_us: u32, srtt_us: u32) -> u64 {
        let rtt_us: Micros = if rtt_us > 0 { rtt_us } else { srtt_us }.into();
        let used = mul_div(self.bytes, rtt_us, Micros::from(self.span_us).max(rtt_us).max(1));
        used.max(OPENS * u64::from(self.opening))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow that delivers so much every so many microseconds, for a second.
    fn used(bytes: u64, every_us: Micros, srtt_us: u32) -> Usage {
        let (mut usage, report) = (Usage::default(), Report { srtt_us, ..Report::default() });
        for now in (1..1_000_000 / every_us).map(|i| i * every_us) {
            usage = usage.with(now, &report, bytes);
        }
        usage
    }

    #[test]
    fn a_demand_is_what_is_used_in_a_round_trip() {
        for (bytes, every_us, srtt_us) in
            [(10_000, 10_000, 100_000), (100, 100, 300), (10_000, 10_000, 300)]
        {
            let demand = used(bytes, every_us, srtt_us).demand_bytes(0, srtt_us);
            let wanted = bytes * u64::from(srtt_us) / every_us;
            assert!(demand.abs_diff(wanted) <= wanted / 16, "{demand} bytes of {wanted}");
        }
    }

    #[test]
    fn who_begins_may_use_twice_what_is_outstanding() {
        let report = |inflight_bytes| Report {
            active: true,
            srtt_us: 100_000,
            rtt_us: 50_000,
            cwnd_bytes: 150_000,
            inflight_bytes,
            ..Report::default()
        };
        // Nothing but what its receiver's first window lets leave, in its first round trip.
        let mut usage = Usage::default().with(1, &report(60_000), 0);
        assert_eq!(usage.demand_bytes(50_000, 100_000), 120_000);
        // It goes on so: after some round trips that is all it is taken to use.
        for round in 1..40 {
            usage = usage.with(1 + round * 50_000, &report(60_000), 60_000);
        }
        let demand = usage.demand_bytes(50_000, 100_000);
        assert!(demand.abs_diff(60_000) < 3_000, "{demand}");
        // It cannot have more outstanding than its window.
        let lies = Report { inflight_bytes: u32::MAX, ..report(0) };
        let usage = Usage::default().with(1, &lies, 0);
        assert_eq!(usage.demand_bytes(50_000, 100_000), 300_000);
    }

    #[test]
    fn who_has_sent_all_it_had_does_not_open() {
        let report = |inflight_bytes| Report {
            active: true,
            srtt_us: 100_000,
            cwnd_bytes: 150_000,
            inflight_bytes,
            ..Report::default()
        };
        let demand = |usage: Usage| usage.demand_bytes(0, 100_000);
        let usage = Usage::default().with(1, &report(0), 0);
        assert_eq!(demand(usage), 2, "nothing has left yet");
        let usage = usage.with(100_001, &report(18_000), 2_000);
        assert_eq!(demand(usage), 36_000);
        let usage = usage.with(100_002, &report(18_000), 0);
        assert_eq!(demand(usage), 36_000, "nothing has come of which to tell");
        let usage = usage.with(110_001, &report(15_000), 3_000);
        assert!(demand(usage) < 5_000, "what was delivered in two round trips");
    }
}
