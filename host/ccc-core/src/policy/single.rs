// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One window for all flows, kept as one TCP keeps its own (RFC 5681): what
//! Ensemble-TCP and the Congestion Manager have in common.
use super::{Ack, Aggregate, Cause, Event};
use crate::fixed::{Beta, Micros, Part, Window};

/// An aggregate that any flow's timeout sends back to slow start.
#[derive(Debug, Default)]
pub(super) struct Single {
    pub(super) now: Aggregate,
    /// One TCP in recovery does not grow.
    grows_from: Micros,
}

impl Single {
    /// Congestion avoidance, by this part of what the flow's controller does.
    pub(super) fn avoid(&mut self, ack: &Ack, part: Part) {
        if ack.sample.now >= self.grows_from {
            self.now.avoid(ack, |bytes| bytes, part);
        }
    }

    /// A loss is one reduction if its segment was sent after the latest one; a
    /// timeout of any flow is one of all.
    pub(super) fn congestion(&mut self, event: &Event, beta: Beta) {
        let Aggregate { window, threshold, epoch } = self.now;
        let floor = Window::from_bytes(event.floor);
        let is_new = event.cause != Cause::LateTimeout && event.epoch == epoch;
        let reduced = match threshold {
            Some(threshold) if !is_new => threshold,
            _ => window.times(beta).max(floor).min(window),
        };
        match event.cause {
            Cause::Recovery if !is_new => return,
            Cause::Recovery => self.now.reduce_to(reduced, reduced),
            Cause::Timeout | Cause::LateTimeout => {
                self.now.reduce_to(floor.min(window), reduced.max(floor.plus(floor)));
            }
        }
        self.grows_from = event.now.saturating_add(event.srtt);
    }
}
