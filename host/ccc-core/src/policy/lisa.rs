// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! LISA-like sharing at joins: a flow that joins others in slow start is given
//! of the window that they have, and no initial window of its own.
//!
//! Source: Barik, Welzl, Ferlin, Alay, "LISA: A Linked Slow-Start Algorithm for
//! MPTCP", IEEE ICC 2016, draft-barik-mptcp-lisa-01, and what Islam's
//! dissertation (section 3.2) makes of it over this interface.  LISA takes from
//! the flow with the largest window, once, when another joins; here all flows
//! have equal parts as long as they are in slow start.  Their sum is the same:
//! what each has acknowledged is added, and a join adds nothing.
//!
//! With the first congestion event sharing is over, and each flow is its own
//! controller, until all have left.
use super::interface::{Ack, Aggregate, CongestionEvent, Policy};
use crate::fixed::{Micros, Window};

#[derive(Debug, Default)]
pub(crate) struct Lisa {
    /// A flow has left slow start.
    over: bool,
}

impl Policy for Lisa {
    fn begin(&mut self, aggregate: &mut Aggregate, _now: Micros, initial: Window) {
        aggregate.begin(initial);
        self.over = false;
    }

    fn ack(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        if !self.over {
            aggregate.slow_start(Window::from_bytes(ack.acked_limited_bytes));
        }
    }

    fn congestion(&mut self, _aggregate: &mut Aggregate, _event: &CongestionEvent) {
        self.over = true;
    }

    fn resume(&mut self, aggregate: &Aggregate) {
        self.over = aggregate.ssthresh.is_some();
    }

    fn couples(&self) -> bool {
        !self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Cause, interface::testing::*};

    #[test]
    fn a_join_in_slow_start_adds_nothing() {
        let (mut policy, mut aggregate) = (Lisa::default(), Aggregate::default());
        policy.begin(&mut aggregate, 0, segments(10));
        policy.join(&mut aggregate, &joiner());
        assert_eq!(aggregate.segments(), (10, None));
        policy.ack(&mut aggregate, &ack(1, 10 * MSS));
        assert_eq!((aggregate.segments(), policy.couples()), ((20, None), true));
    }

    #[test]
    fn after_slow_start_each_is_alone_until_all_have_left() {
        let (mut policy, mut aggregate) = (Lisa::default(), Aggregate::default());
        policy.begin(&mut aggregate, 0, segments(10));
        policy.congestion(&mut aggregate, &event(Cause::Recovery, 0, 1));
        assert!(!policy.couples());
        policy.end(0);
        policy.begin(&mut aggregate, 0, segments(10));
        assert!(policy.couples());
        policy.resume(&steady(80));
        assert!(!policy.couples(), "begun in congestion avoidance");
    }
}
