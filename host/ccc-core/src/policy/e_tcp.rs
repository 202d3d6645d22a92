// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Ensemble-TCP: concurrent flows share one control block and are no more
//! aggressive than one TCP.
//!
//! Source: Eggert, Heidemann, Touch, "Effects of Ensemble-TCP", ACM CCR 30(1),
//! 2000, as Islam's dissertation describes it (sections 2.2 and 9.2).  Its
//! fault: a timeout of one flow sends all of them to slow start, even those
//! whose acknowledgements still arrive.
use super::{Ack, Aggregate, Event, Policy, single::Single};
use crate::fixed::{Micros, Window};

#[derive(Debug, Default)]
pub(crate) struct ETcp(Single);

impl Policy for ETcp {
    /// Nothing is reused when the network was idle.
    fn begin(&mut self, _now: Micros, initial: Window) {
        self.0.now.begin(initial);
    }

    fn ack(&mut self, ack: Ack) {
        if self.0.now.in_slow_start() {
            self.0.now.slow_start(Window::from_bytes(ack.acked));
        } else {
            self.0.avoid(&ack, ack.part);
        }
    }

    fn congestion(&mut self, event: Event) {
        self.0.congestion(&event, event.beta);
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
    fn one_drop_halves_the_aggregate_once() {
        let mut policy = steady(ETcp::default(), 80);
        policy.congestion(event(Cause::Recovery, 0, 7));
        policy.congestion(event(Cause::Recovery, 1, 7));
        assert_eq!(segments(&policy), (40, Some(40)));
    }

    #[test]
    fn a_timeout_of_one_flow_sends_all_to_slow_start() {
        let mut policy = steady(ETcp::default(), 80);
        policy.congestion(event(Cause::Timeout, 0, 7));
        assert_eq!(segments(&policy), (2, Some(40)), "a segment for each of two flows");
        for _ in 0..100 {
            if policy.aggregate().in_slow_start() {
                policy.ack(ack(1, MSS));
            }
        }
        assert_eq!(segments(&policy), (40, Some(40)));
    }

    #[test]
    fn a_timeout_in_recovery_keeps_the_threshold() {
        let mut policy = steady(ETcp::default(), 80);
        policy.congestion(event(Cause::Recovery, 0, 7));
        policy.congestion(event(Cause::LateTimeout, 0, 7));
        assert_eq!(segments(&policy), (2, Some(40)));
    }

    #[test]
    fn two_flows_grow_as_one() {
        let mut policy = steady(ETcp::default(), 80);
        for flow in 0..2 {
            policy.ack(Ack { part: (1, 2), ..ack(flow, MSS) });
        }
        assert_eq!(segments(&policy), (81, Some(80)));
    }
}
