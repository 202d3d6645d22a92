// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Ensemble-TCP: concurrent flows share one control block and are no more
//! aggressive than one TCP.
//!
//! Source: Eggert, Heidemann, Touch, "Effects of Ensemble-TCP", ACM CCR 30(1),
//! 2000, as Islam's dissertation describes it (sections 2.2 and 9.2).  Its
//! fault: a timeout of one flow sends all of them to slow start, even those
//! whose acknowledgements still arrive.
use super::interface::{Ack, Aggregate, Cause, CongestionEvent, Policy};
use crate::fixed::{Micros, Window};

/// One window for all flows, kept as one TCP keeps its own (RFC 5681).  Reuses
/// nothing when the network was idle.
#[derive(Debug, Default)]
pub(crate) struct ETcp {
    /// One TCP in recovery does not grow.
    grows_from: Micros,
}

impl Policy for ETcp {
    fn ack(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        if aggregate.in_slow_start() {
            aggregate.slow_start(Window::from_bytes(ack.acked_limited_bytes));
        } else if ack.sample.now >= self.grows_from {
            aggregate.avoid(ack);
        }
    }

    /// A loss is one reduction if its segment was sent after the latest one; a
    /// timeout of any flow is one of all.
    fn congestion(&mut self, aggregate: &mut Aggregate, event: &CongestionEvent) {
        let Aggregate { window, ssthresh, epoch } = *aggregate;
        let floor = Window::from_bytes(event.floor_bytes);
        let is_new = event.cause != Cause::LateTimeout && event.epoch == epoch;
        let reduced = match ssthresh {
            Some(ssthresh) if !is_new => ssthresh,
            _ => window.times(event.beta).max(floor).min(window),
        };
        match event.cause {
            Cause::Recovery if !is_new => return,
            Cause::Recovery => aggregate.reduce_to(reduced, reduced),
            Cause::Timeout | Cause::LateTimeout => {
                aggregate.reduce_to(floor.halved(1).min(window), reduced.max(floor));
            }
        }
        self.grows_from = event.now.saturating_add(event.srtt_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::interface::testing::*;

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
        assert_eq!(aggregate.segments(), (1, Some(40)), "a segment for one flow");
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
        assert_eq!(aggregate.segments(), (1, Some(40)));
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
