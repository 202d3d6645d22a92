// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The window of a group's flows together, and what one TCP does with it.
use super::signal::Ack;
use crate::{
    fixed::{EquivalentTcps, Fraction, Window},
    report::Report,
};

/// What a group's flows have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aggregate {
    pub(crate) window: Window,
    pub(crate) ssthresh: Option<Window>,
    /// Number of the latest reduction.
    pub(crate) epoch: u32,
}

impl Default for Aggregate {
    fn default() -> Aggregate {
        Aggregate { window: Window::default(), ssthresh: None, epoch: 1 }
    }
}

impl Aggregate {
    /// Begins anew, as any TCP.
    pub(crate) fn begin(&mut self, initial: Window) {
        self.window = initial;
        self.ssthresh = None;
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.ssthresh.is_none_or(|ssthresh| self.window < ssthresh)
    }

    /// Grows by what was acknowledged, up to the threshold; at most doubled at
    /// once, whatever a guest claims.
    pub(super) fn slow_start(&mut self, acked: Window) {
        let most = self.ssthresh.unwrap_or(Window::MAX);
        self.window = self.window.plus(acked.min(self.window)).min(most);
    }

    /// Congestion avoidance: grows and shrinks by a share of what a flow's own
    /// controller does, times `tcps`; at most doubled at once, whatever a guest
    /// claims.
    pub(super) fn avoid(&mut self, ack: &Ack, tcps: EquivalentTcps, share: Fraction) {
        let part = |bytes| Window::from_bytes(tcps.scale(bytes)).min(self.window).times(share);
        let floor = Window::from_bytes(ack.floor_bytes).min(self.window);
        self.window =
            self.window.plus(part(ack.growth_bytes)).minus(part(ack.shrink_bytes)).max(floor);
        // No way back to slow start.
        self.ssthresh = self.ssthresh.map(|ssthresh| ssthresh.min(self.window));
    }

    pub(super) fn reduce_to(&mut self, window: Window, ssthresh: Window) {
        self.window = window;
        self.ssthresh = Some(ssthresh);
        self.begin_epoch();
    }

    /// From here on, losses of segments that were sent before charge nothing.
    pub(crate) fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Adds a flow's own window and threshold.
    pub(crate) fn add(&mut self, report: &Report) {
        let window = Window::from_bytes(report.cwnd_bytes.into());
        // A flow that has no threshold yet adds its window to one there is.
        let ssthresh = report.ssthresh_bytes.map(|bytes| Window::from_bytes(bytes.into()));
        if self.ssthresh.is_some() || ssthresh.is_some() {
            let before = self.ssthresh.unwrap_or(self.window);
            self.ssthresh = Some(before.plus(ssthresh.unwrap_or(window)));
        }
        self.window = self.window.plus(window);
    }

    /// Keeps a part of it.
    pub(crate) fn keep(&mut self, part: Fraction) {
        self.window = self.window.times(part);
        self.ssthresh = self.ssthresh.map(|ssthresh| ssthresh.times(part));
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::{super::signal::testing::*, *};

    /// In congestion avoidance, with a window of that many segments.
    pub(crate) fn steady(count: u64) -> Aggregate {
        let window = segments(count);
        Aggregate { window, ssthresh: Some(window), epoch: 7 }
    }

    impl Aggregate {
        /// Window and threshold, in segments.
        pub(crate) fn segments(&self) -> (u64, Option<u64>) {
            (self.window.bytes() / MSS, self.ssthresh.map(|ssthresh| ssthresh.bytes() / MSS))
        }
    }
}
