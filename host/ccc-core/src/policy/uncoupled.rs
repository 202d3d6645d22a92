// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! No coupling: each flow is its own controller.  What the others are compared
//! with, and what an operator turns to while one is in doubt.
use super::interface::{Aggregate, Policy};
use crate::fixed::{Micros, Window};

/// Leaves the aggregate as it is, for the policy that may follow.
#[derive(Debug)]
pub(crate) struct Uncoupled;

impl Policy for Uncoupled {
    fn begin(&mut self, _aggregate: &mut Aggregate, _now: Micros, _initial: Window) {}

    fn couples(&self) -> bool {
        false
    }
}
