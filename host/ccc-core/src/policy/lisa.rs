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
use super::{Ack, Aggregate, Event, Policy};
use crate::fixed::{Micros, Window};

#[derive(Debug, Default)]
pub(crate) struct Lisa {
    now: Aggregate,
    /// A flow has left slow start.
    over: bool,
}

impl Policy for Lisa {
    fn begin(&mut self, _now: Micros, initial: Window) {
        self.now.begin(initial);
        self.over = false;
    }

    fn ack(&mut self, ack: Ack) {
        if !self.over {
            self.now.slow_start(Window::from_bytes(ack.acked));
        }
    }

    fn congestion(&mut self, _event: Event) {
        self.over = true;
    }

    fn restore(&mut self, aggregate: Aggregate) {
        self.now = aggregate;
        self.over = aggregate.threshold.is_some();
    }

    fn aggregate(&self) -> Aggregate {
        self.now
    }

    fn couples(&self) -> bool {
        !self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        Cause, Joiner,
        testing::{MSS, ack, event, segments, steady},
    };

    #[test]
    fn a_join_in_slow_start_adds_nothing() {
        let mut policy = Lisa::default();
        let initial = Window::from_bytes(10 * MSS);
        policy.begin(0, initial);
        policy.join(Joiner { initial, brings: Window::default(), threshold: None, mss: MSS });
        assert_eq!(segments(&policy), (10, None));
        policy.ack(ack(1, 10 * MSS));
        assert_eq!((segments(&policy), policy.couples()), ((20, None), true));
    }

    #[test]
    fn after_slow_start_each_is_alone_until_all_have_left() {
        let mut policy = Lisa::default();
        policy.begin(0, Window::from_bytes(10 * MSS));
        policy.congestion(event(Cause::Recovery, 0, 1));
        assert!(!policy.couples());
        policy.end(0);
        policy.begin(0, Window::from_bytes(10 * MSS));
        assert!(policy.couples());
        assert!(!steady(Lisa::default(), 80).couples(), "begun in congestion avoidance");
    }
}
