// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a coupling algorithm has to say.
use std::fmt::Debug;

use super::{
    aggregate::Aggregate,
    signal::{Ack, CongestionEvent, Joiner},
};
use crate::fixed::{Fraction, Micros, Window};

/// A coupling algorithm.  It keeps what it needs beside the aggregate, which is
/// the group's; what it has no rule for changes nothing.
pub(crate) trait Policy: Debug + Send {
    /// The group has its first active flow, whose own window is `initial`.
    fn begin(&mut self, aggregate: &mut Aggregate, _now: Micros, initial: Window) {
        aggregate.begin(initial);
    }
    /// A flow has joined others.
    fn join(&mut self, _aggregate: &mut Aggregate, _joiner: &Joiner) {}
    /// A flow that had this share has left the others.
    fn leave(&mut self, _aggregate: &mut Aggregate, _share: Fraction) {}
    /// The group's last active flow has left or fallen idle.
    fn end(&mut self, _now: Micros) {}
    /// Data of a flow was acknowledged.
    fn ack(&mut self, _aggregate: &mut Aggregate, _ack: &Ack) {}
    /// A flow entered recovery or a timeout episode.
    fn congestion(&mut self, _aggregate: &mut Aggregate, _event: &CongestionEvent) {}
    /// A timeout episode begins while no other flow is in one; its
    /// [`Policy::congestion`] follows.
    fn first_timeout(&mut self, _aggregate: &Aggregate) {}
    /// Every active flow is in a timeout episode.
    fn all_timed_out(&mut self, _aggregate: &mut Aggregate, _event: &CongestionEvent) {}
    /// `flow` found its latest event spurious.
    fn undo(&mut self, _aggregate: &mut Aggregate, _flow: usize, _now: Micros) {}
    /// The aggregate was changed from outside: goes on from there.
    fn resume(&mut self, _aggregate: &Aggregate) {}
    /// Whether flows take their windows from the aggregate; if not, each is its
    /// own controller.
    fn couples(&self) -> bool {
        true
    }
}
