// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! No coupling: each flow is its own controller.  What the others are compared
//! with, and what an operator turns to while one is in doubt.
use super::{Ack, Aggregate, Event, Policy};
use crate::fixed::{Micros, Window};

/// Keeps nothing but the epoch, for the policy that may follow.
#[derive(Debug, Default)]
pub(crate) struct Uncoupled(Aggregate);

impl Policy for Uncoupled {
    fn begin(&mut self, _now: Micros, _initial: Window) {}

    fn ack(&mut self, _ack: Ack) {}

    fn congestion(&mut self, _event: Event) {}

    fn restore(&mut self, aggregate: Aggregate) {
        self.0 = aggregate;
    }

    fn aggregate(&self) -> Aggregate {
        self.0
    }

    fn couples(&self) -> bool {
        false
    }
}
