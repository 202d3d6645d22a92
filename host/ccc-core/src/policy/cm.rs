// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Congestion Manager: the host's own controller, and none in the flows.
//!
//! Source: RFC 3124 (Balakrishnan, Seshan), put behind the flows' interface as
//! Islam's dissertation (section 3.2) says: what flows' own controllers make of
//! acknowledgements and losses is ignored, and each is told its window.  The
//! controller is RFC 3124's default, that of RFC 5681 in bytes; a flow's
//! timeout is persistent congestion, and so all begin again in slow start.
use super::{Ack, Aggregate, Event, Policy, single::Single};
use crate::fixed::{Beta, Micros, Window};

#[derive(Debug, Default)]
pub(crate) struct Cm(Single);

impl Policy for Cm {
    fn begin(&mut self, _now: Micros, initial: Window) {
        self.0.now.begin(initial);
    }

    fn ack(&mut self, ack: Ack) {
        if self.0.now.in_slow_start() {
            self.0.now.slow_start(Window::from_bytes(ack.acked));
        } else {
            let window = self.0.now.window;
            let acked = Window::from_bytes(ack.acked).min(window);
            let part = (acked.raw().into(), window.raw().into());
            self.0.avoid(&Ack { grown: ack.mss, shrunk: 0, ..ack }, part);
        }
    }

    fn congestion(&mut self, event: Event) {
        self.0.congestion(&event, Beta::HALF);
    }

    fn restore(&mut self, aggregate: Aggregate) {
        self.0.now = aggregate;
    }

    fn aggregate(&self) -> Aggregate {
        self.0.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        Cause,
        testing::{MSS, ack, event, segments, steady},
    };

    #[test]
    fn what_flows_would_do_is_ignored() {
        let mut policy = steady(Cm::default(), 80);
        for _ in 0..81 {
            policy.ack(Ack { grown: 0, ..ack(0, MSS) });
        }
        assert_eq!(segments(&policy), (81, Some(80)), "a segment in a round trip");
        let beta = Beta::clamped(60_000);
        policy.congestion(Event { beta, ..event(Cause::Recovery, 0, 7) });
        assert_eq!(segments(&policy), (40, Some(40)));
    }

    #[test]
    fn a_timeout_is_persistent_congestion() {
        let mut policy = steady(Cm::default(), 80);
        policy.congestion(event(Cause::Timeout, 0, 7));
        assert_eq!(segments(&policy), (2, Some(40)));
    }
}
