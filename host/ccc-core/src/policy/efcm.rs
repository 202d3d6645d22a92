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
use super::{Ack, Aggregate, Cause, Event, Joiner, Policy};
use crate::fixed::{Micros, Part, Window};

/// The sums over all flows of what the flows share the means of.
#[derive(Debug, Default)]
pub(crate) struct Efcm(Aggregate);

impl Policy for Efcm {
    fn begin(&mut self, _now: Micros, initial: Window) {
        self.0.begin(initial);
    }

    /// The mean of anything and an unbounded threshold is unbounded.  What a flow
    /// claims to bring at most doubles the aggregate.
    fn join(&mut self, joiner: Joiner) {
        let added = self.0.threshold.zip(joiner.threshold);
        self.0.threshold = added.map(|(all, own)| all.plus(own));
        let brings = joiner.brings.min(self.0.window);
        self.0.window = self.0.window.plus(joiner.initial.max(brings));
    }

    /// The means stay.
    fn leave(&mut self, share: Part) {
        let Aggregate { window, threshold, .. } = self.0;
        self.0.window = window.minus(part(window, share));
        self.0.threshold = threshold.map(|t| t.minus(part(t, share)));
    }

    /// Each flow's growth counts in full.
    fn ack(&mut self, ack: Ack) {
        if self.0.in_slow_start() {
            self.0.slow_start(Window::from_bytes(ack.acked));
        } else {
            self.0.avoid(&ack, |bytes| bytes, (1, 1));
        }
    }

    /// Each flow's event takes from that flow alone, whenever its segment was
    /// sent.
    fn congestion(&mut self, event: Event) {
        let Aggregate { window, threshold, .. } = self.0;
        let share = event.part;
        let had = part(window, share);
        let halved = had.times(event.beta);
        let left = match event.cause {
            Cause::Recovery => halved,
            Cause::Timeout | Cause::LateTimeout => Window::from_bytes(event.mss).min(had),
        };
        let others = window.minus(had);
        let reduced = others.plus(left).max(Window::from_bytes(event.floor)).min(window);
        let threshold = match (event.cause, threshold) {
            (Cause::LateTimeout, Some(threshold)) => threshold,
            (_, Some(threshold)) => threshold.minus(part(threshold, share)).plus(halved),
            // What the others have is taken for their thresholds.
            (_, None) => others.plus(halved),
        };
        self.0.reduce_to(reduced, threshold);
    }

    fn restore(&mut self, aggregate: Aggregate) {
        self.0 = aggregate;
    }

    fn aggregate(&self) -> Aggregate {
        self.0
    }
}

/// A flow's part; none of one that does not count.
fn part(all: Window, share: Part) -> Window {
    if share.0 == 0 { Window::default() } else { all.part(share) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{MSS, ack, event, segments, steady};

    #[test]
    fn one_drop_does_not_halve_the_aggregate() {
        let mut policy = steady(Efcm::default(), 80);
        policy.congestion(event(Cause::Recovery, 0, 7));
        assert_eq!(segments(&policy), (60, Some(60)), "one of two flows of 40 has halved");
    }

    #[test]
    fn a_loss_counts_once_for_each_flow() {
        let mut policy = steady(Efcm::default(), 80);
        policy.congestion(event(Cause::Recovery, 0, 7));
        policy.congestion(event(Cause::Recovery, 1, 7));
        assert_eq!(segments(&policy), (45, Some(45)));
    }

    #[test]
    fn two_flows_grow_as_two() {
        let mut policy = steady(Efcm::default(), 80);
        for flow in 0..2 {
            policy.ack(Ack { part: (1, 2), ..ack(flow, MSS) });
        }
        assert_eq!(segments(&policy), (82, Some(80)));
    }

    #[test]
    fn a_timeout_takes_one_flows_window() {
        let mut policy = steady(Efcm::default(), 80);
        policy.congestion(event(Cause::Timeout, 0, 7));
        assert_eq!(segments(&policy), (41, Some(60)));
        policy.congestion(event(Cause::LateTimeout, 1, 7));
        assert_eq!(segments(&policy), (21, Some(60)), "the threshold was reduced before");
    }

    #[test]
    fn a_joiner_moves_all_back_to_slow_start() {
        let mut policy = steady(Efcm::default(), 80);
        let initial = Window::from_bytes(10 * MSS);
        let joiner = Joiner { initial, brings: Window::default(), threshold: None, mss: MSS };
        policy.join(joiner);
        assert_eq!(segments(&policy), (90, None));
        policy.leave((1, 3));
        assert_eq!(segments(&policy), (60, None));
    }
}
