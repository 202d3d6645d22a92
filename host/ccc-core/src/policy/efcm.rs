// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Ensemble Flow Congestion Management: all flows have the mean of what each
//! would have, and so together are as aggressive as they would be apart.
//!
//! Source: Savorić, Karl, Schläger, Poschwatta, Wolisz, "Analysis and
//! performance evaluation of the EFCM common congestion controller for TCP
//! connections", Computer Networks 49(2), 2005, as Islam's dissertation
//! describes it (sections 2.2, 5.1 and 9.2).  Its faults: a drop on one flow
//! takes half of that flow's window and not of the aggregate; and a new flow
//! shares its first, unbounded threshold, which moves all back to slow start.
use super::interface::{Ack, Aggregate, Cause, CongestionEvent, Joiner, Policy};
use crate::fixed::{Fraction, Window};

/// The aggregate is the sum over all flows of what they share the mean of.
#[derive(Debug)]
pub(crate) struct Efcm;

impl Policy for Efcm {
    /// The mean of anything and an unbounded threshold is unbounded.  What a flow
    /// claims to bring at most doubles the aggregate.
    fn join(&mut self, aggregate: &mut Aggregate, joiner: &Joiner) {
        let added = aggregate.ssthresh.zip(joiner.ssthresh);
        aggregate.ssthresh = added.map(|(all, own)| all.plus(own));
        let brings = joiner.on_path.min(aggregate.window);
        aggregate.window = aggregate.window.plus(joiner.initial.max(brings));
    }

    /// The means stay.
    fn leave(&mut self, aggregate: &mut Aggregate, share: Fraction) {
        aggregate.window = aggregate.window.without(share);
        aggregate.ssthresh = aggregate.ssthresh.map(|ssthresh| ssthresh.without(share));
    }

    /// Each flow's growth counts in full.
    fn ack(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        if aggregate.in_slow_start() {
            aggregate.slow_start(Window::from_bytes(ack.acked_limited_bytes));
        } else {
            aggregate.avoid(&Ack { share: Fraction::ALL, ..*ack });
        }
    }

    /// Each flow's event takes from that flow alone, whenever its segment was
    /// sent.
    fn congestion(&mut self, aggregate: &mut Aggregate, event: &CongestionEvent) {
        let Aggregate { window, ssthresh, .. } = *aggregate;
        let had = window.times(event.share);
        let halved = had.times(event.beta);
        let left = match event.cause {
            Cause::Recovery => halved,
            Cause::Timeout | Cause::LateTimeout => Window::from_bytes(event.mss_bytes).min(had),
        };
        let others = window.without(event.share);
        let reduced = others.plus(left).max(Window::from_bytes(event.floor_bytes)).min(window);
        let ssthresh = match (event.cause, ssthresh) {
            (Cause::LateTimeout, Some(ssthresh)) => ssthresh,
            (_, Some(ssthresh)) => ssthresh.without(event.share).plus(halved),
            // What the others have is taken for their thresholds.
            (_, None) => others.plus(halved),
        };
        aggregate.reduce_to(reduced, ssthresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::interface::testing::*;

    #[test]
    fn one_drop_does_not_halve_the_aggregate() {
        let mut aggregate = steady(80);
        Efcm.congestion(&mut aggregate, &event(Cause::Recovery, 0, 7));
        assert_eq!(aggregate.segments(), (60, Some(60)), "one of two flows of 40 has halved");
    }

    #[test]
    fn a_loss_counts_once_for_each_flow() {
        let mut aggregate = steady(80);
        Efcm.congestion(&mut aggregate, &event(Cause::Recovery, 0, 7));
        Efcm.congestion(&mut aggregate, &event(Cause::Recovery, 1, 7));
        assert_eq!(aggregate.segments(), (45, Some(45)));
    }

    #[test]
    fn two_flows_grow_as_two() {
        let mut aggregate = steady(80);
        for flow in 0..2 {
            Efcm.ack(&mut aggregate, &Ack { share: half(), ..ack(flow, MSS) });
        }
        assert_eq!(aggregate.segments(), (82, Some(80)));
    }

    #[test]
    fn a_timeout_takes_one_flows_window() {
        let mut aggregate = steady(80);
        Efcm.congestion(&mut aggregate, &event(Cause::Timeout, 0, 7));
        assert_eq!(aggregate.segments(), (41, Some(60)));
        Efcm.congestion(&mut aggregate, &event(Cause::LateTimeout, 1, 7));
        assert_eq!(aggregate.segments(), (21, Some(60)), "the threshold was reduced before");
    }

    #[test]
    fn a_joiner_moves_all_back_to_slow_start() {
        let mut aggregate = steady(80);
        Efcm.join(&mut aggregate, &joiner());
        assert_eq!(aggregate.segments(), (90, None));
        Efcm.leave(&mut aggregate, Fraction::new(1, 3));
        assert_eq!(aggregate.segments(), (60, None));
    }
}
