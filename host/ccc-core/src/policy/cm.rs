// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Congestion Manager: the host's own controller, and none in the flows.
//!
//! Source: RFC 3124 (Balakrishnan, Seshan), put behind the flows' interface as
//! Islam's dissertation (section 3.2) says: what flows' own controllers make of
//! acknowledgements and losses is ignored, and each is told its window.  The
//! controller is RFC 3124's default, that of RFC 5681 in bytes; a flow's
//! timeout is persistent congestion, and so all begin again in slow start.
use super::{
    e_tcp::ETcp,
    interface::{Ack, Aggregate, CongestionEvent, Policy},
};
use crate::fixed::{Beta, Fraction, Window};

#[derive(Debug, Default)]
pub(crate) struct Cm(ETcp);

impl Policy for Cm {
    fn ack(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        let window = aggregate.window;
        let acked = Window::from_bytes(ack.acked_limited_bytes).min(window);
        let share = Fraction::new(acked.raw().into(), window.raw().into());
        let ack = Ack { growth_bytes: ack.mss_bytes, shrink_bytes: 0, share, ..*ack };
        self.0.ack(aggregate, &ack);
    }

    fn congestion(&mut self, aggregate: &mut Aggregate, event: &CongestionEvent) {
        self.0.congestion(aggregate, &CongestionEvent { beta: Beta::HALF, ..*event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Cause, interface::testing::*};

    #[test]
    fn what_flows_would_do_is_ignored() {
        let (mut policy, mut aggregate) = (Cm::default(), steady(80));
        for _ in 0..81 {
            policy.ack(&mut aggregate, &Ack { growth_bytes: 0, ..ack(0, MSS) });
        }
        assert_eq!(aggregate.segments(), (81, Some(80)), "a segment in a round trip");
        let beta = Beta::clamped(60_000);
        let event = CongestionEvent { beta, ..event(Cause::Recovery, 0, 7) };
        policy.congestion(&mut aggregate, &event);
        assert_eq!(aggregate.segments(), (40, Some(40)));
    }

    #[test]
    fn a_timeout_is_persistent_congestion() {
        let (mut policy, mut aggregate) = (Cm::default(), steady(80));
        policy.congestion(&mut aggregate, &event(Cause::Timeout, 0, 7));
        assert_eq!(aggregate.segments(), (1, Some(40)));
    }
}
