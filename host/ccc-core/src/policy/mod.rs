// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Coupling algorithms behind one interface.
//!
//! A policy owns the aggregate of one group: its window, its slow start
//! threshold and the epoch.  Who the members are and how the window is split
//! among them is not its business; it is told what happened, in shares.
mod ctrltcp;
mod slow_start;

use std::fmt::Debug;

use crate::{
    fixed::{Aggression, Beta, Micros, Window},
    report::Report,
};
pub(crate) use slow_start::Sample;

/// Coupling algorithm of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// ctrlTCP (Islam, Welzl et al.), with the repairs of `docs/algorithm.md`.
    #[default]
    CtrlTcp,
}

impl PolicyKind {
    pub(crate) fn build(self, aggression: Aggression) -> Box<dyn Policy> {
        match self {
            PolicyKind::CtrlTcp => Box::new(ctrltcp::CtrlTcp::new(aggression)),
        }
    }
}

/// Acknowledged data of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    /// Bytes acknowledged while window-limited.
    pub(crate) acked: u64,
    /// Bytes by which the flow's own controller grew.
    pub(crate) grown: u64,
    /// The flow's part of the shares of all flows that can grow.
    pub(crate) part: (u64, u64),
    /// What was measured with these data.
    pub(crate) sample: Sample,
}

/// A flow that joins others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joiner {
    /// Its own window, if it begins now.
    pub(crate) initial: Window,
    /// What it has on the path already, if it ran uncoupled before.
    pub(crate) brings: Window,
    pub(crate) mss: u64,
}

/// A congestion event of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) now: Micros,
    /// The flow's smoothed round-trip time; 0 if not known.
    pub(crate) srtt: Micros,
    pub(crate) flow: usize,
    /// The flow's own window factor.
    pub(crate) beta: Beta,
    /// Epoch under which the lost segment was sent.
    pub(crate) epoch: u32,
    /// One segment for each active flow, bytes.
    pub(crate) floor: u64,
}

/// What a policy makes of the aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aggregate {
    pub(crate) window: Window,
    pub(crate) threshold: Option<Window>,
    pub(crate) epoch: u32,
}

impl Aggregate {
    /// Adds a flow's own window and threshold.
    pub(crate) fn absorb(&mut self, report: &Report) {
        let window = Window::from_bytes(report.cwnd.into());
        // A flow that has no threshold yet adds its window to one there is.
        let threshold = report.ssthresh.map(|bytes| Window::from_bytes(bytes.into()));
        if self.threshold.is_some() || threshold.is_some() {
            let before = self.threshold.unwrap_or(self.window);
            self.threshold = Some(before.plus(threshold.unwrap_or(window)));
        }
        self.window = self.window.plus(window);
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.threshold.is_none_or(|threshold| self.window < threshold)
    }
}

/// A coupling algorithm.
pub(crate) trait Policy: Debug + Send {
    /// The group has its first active flow, whose own window is `initial`.
    fn begin(&mut self, now: Micros, initial: Window);
    /// A flow has joined others.
    fn join(&mut self, joiner: Joiner);
    /// The group's last active flow has left or fallen idle.
    fn end(&mut self, now: Micros);
    /// Data of a flow was acknowledged.
    fn ack(&mut self, ack: Ack);
    /// A flow entered recovery or a timeout episode.
    fn congestion(&mut self, event: Event);
    /// A timeout episode begins while no other flow is in one.
    fn first_timeout(&mut self);
    /// Every active flow is in a timeout episode.
    fn all_timed_out(&mut self, event: Event);
    /// `flow` found its latest event spurious.
    fn undo(&mut self, flow: usize);
    /// Goes on from an aggregate that is given.
    fn restore(&mut self, aggregate: Aggregate);
    /// The aggregate as it is now.
    fn aggregate(&self) -> Aggregate;
}
