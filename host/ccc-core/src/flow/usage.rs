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
    outstanding: Packed,
}

/// What a flow has had outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outstanding {
    /// At the latest report, of one that has just begun and goes on to send; or what it says that
    /// it has to send.
    Opening(u32),
    /// At the most since it began, or came back.
    Sending(u32),
    /// It has just come back: what it had before, or what it says that it has to send.
    Back(u32),
}

/// The same, in the four bytes that there are for it in two lines of a cache.
#[derive(Clone, Copy, Debug, Default)]
struct Packed(u32);

impl Packed {
    const SENDING: u32 = 1 << 31;
    const BACK: u32 = 1 << 30;
    const BYTES: u32 = Packed::BACK - 1;

    fn unpack(self) -> Outstanding {
        let bytes = self.0 & Packed::BYTES;
        match self.0 & !Packed::BYTES {
            0 => Outstanding::Opening(bytes),
            Packed::SENDING => Outstanding::Sending(bytes),
            _ => Outstanding::Back(bytes),
        }
    }
}

impl From<Outstanding> for Packed {
    fn from(outstanding: Outstanding) -> Packed {
        let (kind, bytes) = match outstanding {
            Outstanding::Opening(bytes) => (0, bytes),
            Outstanding::Sending(bytes) => (Packed::SENDING, bytes),
            Outstanding::Back(bytes) => (Packed::BACK, bytes),
        };
        Packed(kind | bytes.min(Packed::BYTES))
    }
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
        Usage {
            bytes: (self.bytes - faded).saturating_add(delivered_bytes),
            until: now,
            span_us: span_us.min(over_us.into()) as u32,
            outstanding: self.outstanding(new, delivered_bytes, beyond_us == 0).into(),
        }
    }

    /// The flow was idle before the latest report, and is no longer.
    pub(crate) fn back(self) -> Usage {
        let outstanding = match self.outstanding.unpack() {
            Outstanding::Sending(most) => Outstanding::Back(most),
            other => other,
        };
        Usage { outstanding: outstanding.into(), ..self }
    }

    fn outstanding(self, new: &Report, delivered_bytes: u64, is_new: bool) -> Outstanding {
        if new.opening && new.active {
            return self.opening(new.inflight_bytes, delivered_bytes, is_new);
        }
        let now = if new.active { new.inflight_bytes.min(new.cwnd_bytes) } else { 0 };
        // Who has sent all it had, does not open: what is outstanding then is what is not
        // delivered of that.
        let goes_on = |before: u32| u64::from(now) + delivered_bytes > before.into();
        match self.outstanding.unpack() {
            Outstanding::Opening(before) if is_new && (delivered_bytes == 0 || goes_on(before)) => {
                Outstanding::Opening(now)
            }
            Outstanding::Back(_) if new.active => Outstanding::Sending(now),
            Outstanding::Opening(most) | Outstanding::Sending(most) | Outstanding::Back(most) => {
                Outstanding::Sending(most.max(now))
            }
        }
    }

    /// Of one that says what it has to send: that may be more than a window that is yet to be
    /// granted, and counts until its ACKs tell.
    #[cold]
    fn opening(self, to_send: u32, delivered_bytes: u64, is_new: bool) -> Outstanding {
        match self.outstanding.unpack() {
            Outstanding::Opening(_) if is_new => Outstanding::Opening(to_send),
            Outstanding::Back(most) if delivered_bytes == 0 => Outstanding::Back(most.max(to_send)),
            Outstanding::Back(_) => Outstanding::Sending(to_send),
            Outstanding::Opening(most) | Outstanding::Sending(most) => {
                Outstanding::Sending(most.max(to_send))
            }
        }
    }

    /// In a round-trip time as it is now: one of a full queue would be a part that nobody
    /// uses once a reduction has emptied it.
    pub(crate) fn demand_bytes(&self, rtt_us: u32, srtt_us: u32) -> u64 {
        let rtt_us: Micros = if rtt_us > 0 { rtt_us } else { srtt_us }.into();
        let used = mul_div(self.bytes, rtt_us, Micros::from(self.span_us).max(rtt_us).max(1));
        match self.outstanding.unpack() {
            Outstanding::Opening(now) => used.max(OPENS * u64::from(now)),
            // As much again, it seems, which the others have to give up before it is sent.
            Outstanding::Back(most) => used.max(most.into()),
            Outstanding::Sending(_) => used,
        }
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
        assert_eq!(demand(usage), 0, "nothing has left yet");
        let usage = usage.with(100_001, &report(18_000), 2_000);
        assert_eq!(demand(usage), 36_000);
        let usage = usage.with(100_002, &report(18_000), 0);
        assert_eq!(demand(usage), 36_000, "nothing has come of which to tell");
        let usage = usage.with(110_001, &report(15_000), 3_000);
        assert!(demand(usage) < 5_000, "what was delivered in two round trips");
    }

    #[test]
    fn who_comes_back_wants_what_it_had_on_the_path_before() {
        let report = |active, inflight_bytes| Report {
            active,
            srtt_us: 100_000,
            cwnd_bytes: 150_000,
            inflight_bytes,
            ..Report::default()
        };
        let idle = |usage: Usage, now| usage.with(now, &report(false, 0), 0);
        let back = |usage: Usage, now| usage.with(now, &report(true, 1_000), 0).back();
        let demand = |usage: Usage| usage.demand_bytes(0, 100_000);
        let mut usage = Usage::default();
        for (i, inflight_bytes) in [10_000, 60_000, 20_000].into_iter().enumerate() {
            usage = usage.with(1 + i as Micros * 400_000, &report(true, inflight_bytes), 20_000);
        }
        assert!(demand(usage) < 10_000, "while it sends, what it uses: {}", demand(usage));
        usage = back(idle(usage, 1_200_000), 1_800_000);
        assert_eq!(demand(usage), 60_000, "at the most");
        // A write that was acknowledged at once, so that nothing was told of it.
        usage = back(idle(usage, 1_900_000), 2_400_000);
        assert_eq!(demand(usage), 60_000);
        // It has less this time.
        usage = usage.with(2_500_000, &report(true, 5_000), 0);
        assert!(demand(usage) < 10_000);
        usage = back(idle(usage, 2_600_000), 3_200_000);
        assert_eq!(demand(usage), 5_000.max(demand(idle(usage, 3_200_000))));
    }

    #[test]
    fn who_says_what_it_has_to_send_wants_that() {
        let report = |opening, inflight_bytes| Report {
            active: true,
            opening,
            srtt_us: 100_000,
            cwnd_bytes: 14_480,
            inflight_bytes,
            ..Report::default()
        };
        let demand = |usage: Usage| usage.demand_bytes(0, 100_000);
        // Of a new flow, before a larger window is granted; it writes more.
        let mut usage = Usage::default().with(1, &report(true, 40_000), 0);
        assert_eq!(demand(usage), 80_000);
        usage = usage.with(2, &report(true, 90_000), 0);
        assert_eq!(demand(usage), 180_000);
        // A part is sent in its first window, and the rest is yet to be.
        usage = usage.with(100_001, &report(true, 75_000), 15_000);
        assert_eq!(demand(usage), 150_000);
        // Not for longer than another that begins, whatever it says.
        let mut ever = usage;
        for round in 2..10 {
            ever = ever.with(1 + round * 100_000, &report(true, 75_000), 15_000);
        }
        assert!(demand(ever) < 20_000, "{}", demand(ever));
        usage = usage.with(200_001, &report(false, 0), 75_000);
        assert!(demand(usage) < 60_000, "what was delivered: {}", demand(usage));
        // Of one that comes back.
        usage = usage.with(900_000, &report(true, 200_000), 0).back();
        assert_eq!(demand(usage), 200_000);
        usage = usage.with(900_001, &report(true, 100_000), 0);
        assert_eq!(demand(usage), 200_000, "what it had before, until it says more");
        usage = usage.with(900_002, &report(true, 300_000), 0);
        assert_eq!(demand(usage), 300_000);
        usage = usage.with(1_000_001, &report(true, 250_000), 50_000);
        assert!(demand(usage) < 60_000, "its ACKs tell: {}", demand(usage));
    }

    #[test]
    fn what_is_outstanding_is_kept_in_four_bytes() {
        for bytes in [0, 1, Packed::BYTES] {
            for outstanding in
                [Outstanding::Opening(bytes), Outstanding::Sending(bytes), Outstanding::Back(bytes)]
            {
                assert_eq!(Packed::from(outstanding).unpack(), outstanding);
            }
        }
        for bytes in [Packed::BACK, Packed::SENDING, u32::MAX] {
            let most = Packed::from(Outstanding::Back(bytes)).unpack();
            assert_eq!(most, Outstanding::Back(Packed::BYTES));
        }
    }
}
