// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Ensemble-TCP: concurrent flows share one control block and are no more
//! aggressive than one TCP.
//!
//! Source: Eggert, Heidemann, Touch, "Effects of Ensemble-TCP", ACM CCR 30(1),
//! 2000, as Islam's dissertation describes it (sections 2.2 and 9.2).  Its
//! fault: a timeout of one flow sends all of them to slow start, even those
//! whose acknowledgements still arrive.
use super::{
    interface::{Ack, Aggregate, CongestionEvent, Policy},
    single::Single,
};

/// Reuses nothing when the network was idle.
#[derive(Debug, Default)]
pub(crate) struct ETcp(Single);

impl Policy for ETcp {
    fn ack(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        self.0.ack(aggregate, ack, ack.share);
    }

    fn congestion(&mut self, aggregate: &mut Aggregate, event: &CongestionEvent) {
        self.0.congestion(aggregate, event, event.beta);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Cause, interface::testing::*};

    #[test]
    fn one_drop_halves_the_aggregate_once() {
        let (mut policy, mut aggregate) = (ETcp::default(), steady(80));
        policy.congestion(&mut aggregate, &event(Cause::Recovery, 0, 7));
        policy.congestion(&mut aggregate, &event(Cause::Recovery, 1, 7));
        assert_eq!(aggregate.segments(), (40, Some(40)));
    }

    #[test]
    fn a_timeout_of_one_flow_sends_all_to_slow_start() {
        let (mut policy, mut aggregate) = (ETcp::default(), steady(80));
        policy.congestion(&mut aggregate, &event(Cause::Timeout, 0, 7));
        assert_eq!(aggregate.segments(), (2, Some(40)), "a segment for each of two flows");
        for _ in 0..100 {
            if aggregate.in_slow_start() {
                policy.ack(&mut aggregate, &ack(1, MSS));
            }
        }
        assert_eq!(aggregate.segments(), (40, Some(40)));
    }

    #[test]
    fn a_timeout_in_recovery_keeps_the_threshold() {
        let (mut policy, mut aggregate) = (ETcp::default(), steady(80));
        policy.congestion(&mut aggregate, &event(Cause::Recovery, 0, 7));
        policy.congestion(&mut aggregate, &event(Cause::LateTimeout, 0, 7));
        assert_eq!(aggregate.segments(), (2, Some(40)));
    }

    #[test]
    fn two_flows_grow_as_one() {
        let (mut policy, mut aggregate) = (ETcp::default(), steady(80));
        for flow in 0..2 {
            policy.ack(&mut aggregate, &Ack { share: half(), ..ack(flow, MSS) });
        }
        assert_eq!(aggregate.segments(), (81, Some(80)));
    }
}
