// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One window for all flows, kept as one TCP keeps its own (RFC 5681): what
//! Ensemble-TCP and the Congestion Manager have in common.
use super::interface::{Ack, Aggregate, Cause, CongestionEvent};
use crate::fixed::{Beta, Fraction, Micros, Window};

/// Sends an aggregate back to slow start at any flow's timeout.
#[derive(Debug, Default)]
pub(super) struct Single {
    /// One TCP in recovery does not grow.
    grows_from: Micros,
}

impl Single {
    /// Slow start, or congestion avoidance by this share of what the flow's
    /// controller does.
    pub(super) fn ack(&self, aggregate: &mut Aggregate, ack: &Ack, share: Fraction) {
        if aggregate.in_slow_start() {
            aggregate.slow_start(Window::from_bytes(ack.acked_limited_bytes));
        } else if ack.sample.now >= self.grows_from {
            aggregate.avoid(ack, share);
        }
    }

    /// A loss is one reduction if its segment was sent after the latest one; a
    /// timeout of any flow is one of all.
    pub(super) fn congestion(
        &mut self,
        aggregate: &mut Aggregate,
        event: &CongestionEvent,
        beta: Beta,
    ) {
        let Aggregate { window, ssthresh, epoch } = *aggregate;
        let floor = Window::from_bytes(event.floor_bytes);
        let is_new = event.cause != Cause::LateTimeout && event.epoch == epoch;
        let reduced = match ssthresh {
            Some(ssthresh) if !is_new => ssthresh,
            _ => window.times(beta).max(floor).min(window),
        };
        match event.cause {
            Cause::Recovery if !is_new => return,
            Cause::Recovery => aggregate.reduce_to(reduced, reduced),
            Cause::Timeout | Cause::LateTimeout => {
                aggregate.reduce_to(floor.min(window), reduced.max(floor.plus(floor)));
            }
        }
        self.grows_from = event.now.saturating_add(event.srtt_us);
    }
}
