// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Coupling algorithms behind one interface.
//!
//! A policy owns the aggregate of one group: its window, its slow start
//! threshold and the epoch.  Who the members are and how the window is split
//! among them is not its business; it is told what happened, in shares.
//! `docs/algorithm.md` says where each comes from and what it does wrong.
mod cm;
mod ctrltcp;
mod e_tcp;
mod efcm;
mod growth_source;
mod lisa;
mod single;
mod slow_start;
mod uncoupled;

use std::fmt::Debug;

use crate::{
    fixed::{Beta, EquivalentTcps, Micros, Part, Window},
    report::Report,
};
pub use growth_source::GrowthSource;
pub(crate) use slow_start::Sample;

/// Coupling algorithm of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// ctrlTCP (Islam, Welzl et al.), with the repairs of `docs/algorithm.md`.
    #[default]
    CtrlTcp,
    /// Each flow is its own controller.
    Uncoupled,
    /// Ensemble-TCP (Eggert, Heidemann, Touch).
    ETcp,
    /// Ensemble Flow Congestion Management (Savorić, Karl, Wolisz et al.).
    Efcm,
    /// Windows are shared by flows in slow start only, after LISA (Barik,
    /// Welzl, Ferlin, Alay).
    Lisa,
    /// Congestion Manager (Balakrishnan, Seshan; RFC 3124).
    Cm,
}

impl PolicyKind {
    /// A policy for an empty group.  `equivalent_tcps` and `growth_source` are ctrlTCP's.
    pub(crate) fn build(
        self,
        equivalent_tcps: EquivalentTcps,
        growth_source: GrowthSource,
    ) -> Box<dyn Policy> {
        match self {
            PolicyKind::CtrlTcp => Box::new(ctrltcp::CtrlTcp::new(equivalent_tcps, growth_source)),
            PolicyKind::Uncoupled => Box::new(uncoupled::Uncoupled::default()),
            PolicyKind::ETcp => Box::new(e_tcp::ETcp::default()),
            PolicyKind::Efcm => Box::new(efcm::Efcm::default()),
            PolicyKind::Lisa => Box::new(lisa::Lisa::default()),
            PolicyKind::Cm => Box::new(cm::Cm::default()),
        }
    }
}

/// Acknowledged data of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) flow: usize,
    /// The flow's smoothed round-trip time; 0 if not known.
    pub(crate) srtt: Micros,
    pub(crate) mss: u64,
    /// Bytes acknowledged while window-limited.
    pub(crate) acked: u64,
    /// Bytes by which the flow's own controller grew.
    pub(crate) grown: u64,
    /// Bytes by which it closed its window, as one that watches the delay does.
    pub(crate) shrunk: u64,
    /// One segment for each active flow, bytes.
    pub(crate) floor: u64,
    /// The flow's part of the shares of all flows that can grow.
    pub(crate) part: Part,
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
    /// Its own threshold, if it has one.
    pub(crate) threshold: Option<Window>,
    pub(crate) mss: u64,
}

/// What has happened to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It recovers from a loss, or was told of congestion.
    Recovery,
    /// Its retransmission timer has expired.
    Timeout,
    /// Its timer has expired in a recovery that was an event before.
    LateTimeout,
}

/// A congestion event of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) cause: Cause,
    pub(crate) now: Micros,
    /// The flow's smoothed round-trip time; 0 if not known.
    pub(crate) srtt: Micros,
    pub(crate) flow: usize,
    /// The flow's own window factor.
    pub(crate) beta: Beta,
    /// Epoch under which the lost segment was sent.
    pub(crate) epoch: u32,
    pub(crate) mss: u64,
    /// The flow's part of the shares of all flows.
    pub(crate) part: Part,
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

impl Default for Aggregate {
    fn default() -> Aggregate {
        Aggregate { window: Window::default(), threshold: None, epoch: 1 }
    }
}

impl Aggregate {
    /// Begins anew, as any TCP.
    fn begin(&mut self, initial: Window) {
        self.window = initial;
        self.threshold = None;
    }

    /// Grows by what was acknowledged, up to the threshold; at most doubled at
    /// once, whatever a guest claims.
    fn slow_start(&mut self, acked: Window) {
        let most = self.threshold.unwrap_or(Window::MAX);
        self.window = self.window.plus(acked.min(self.window)).min(most);
    }

    /// Congestion avoidance: grows and shrinks by a part of what a flow's own
    /// controller does, scaled; at most doubled at once, whatever a guest claims.
    fn avoid(&mut self, ack: &Ack, scale: impl Fn(u64) -> u64, whole: Part) {
        let part = |bytes| Window::from_bytes(scale(bytes)).min(self.window).part(whole);
        let least = Window::from_bytes(ack.floor).min(self.window);
        self.window = self.window.plus(part(ack.grown)).minus(part(ack.shrunk)).max(least);
        // No way back to slow start.
        self.threshold = self.threshold.map(|threshold| threshold.min(self.window));
    }

    fn reduce_to(&mut self, window: Window, threshold: Window) {
        self.window = window;
        self.threshold = Some(threshold);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// For what was sent before the latest reduction, too.
    fn reduce_again(&mut self, window: Window) {
        self.window = window;
        self.threshold = Some(window);
    }

    /// Adds a flow's own window and threshold.
    pub(crate) fn absorb(&mut self, report: &Report) {
        let window = Window::from_bytes(report.cwnd_bytes.into());
        // A flow that has no threshold yet adds its window to one there is.
        let threshold = report.ssthresh_bytes.map(|bytes| Window::from_bytes(bytes.into()));
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

/// A coupling algorithm.  What one has no rule for changes nothing.
pub(crate) trait Policy: Debug + Send {
    /// The group has its first active flow, whose own window is `initial`.
    fn begin(&mut self, now: Micros, initial: Window);
    /// A flow has joined others.
    fn join(&mut self, _joiner: Joiner) {}
    /// A flow that had this part of the shares has left the others.
    fn leave(&mut self, _part: Part) {}
    /// The group's last active flow has left or fallen idle.
    fn end(&mut self, _now: Micros) {}
    /// Data of a flow was acknowledged.
    fn ack(&mut self, ack: Ack);
    /// A flow entered recovery or a timeout episode.
    fn congestion(&mut self, event: Event);
    /// A timeout episode begins while no other flow is in one; its
    /// [`Policy::congestion`] follows.
    fn first_timeout(&mut self) {}
    /// Every active flow is in a timeout episode.
    fn all_timed_out(&mut self, _event: Event) {}
    /// `flow` found its latest event spurious.
    fn undo(&mut self, _flow: usize, _now: Micros) {}
    /// Goes on from an aggregate that is given.
    fn restore(&mut self, aggregate: Aggregate);
    /// The aggregate as it is now.
    fn aggregate(&self) -> Aggregate;
    /// Whether flows take their windows from the aggregate; if not, each is its
    /// own controller.
    fn couples(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod testing {
    //! What happens to policies in their tests: two equal Reno flows.
    use super::*;

    pub(super) const MSS: u64 = 1000;

    /// `bytes` of a flow acknowledged, and its window grown by as much.
    pub(super) fn ack(flow: usize, bytes: u64) -> Ack {
        let sample = Sample { now: 0, delivered: bytes, rtt_us: 0, min_rtt_us: 0 };
        Ack {
            flow,
            srtt: 0,
            mss: MSS,
            acked: bytes,
            grown: bytes,
            shrunk: 0,
            floor: 2 * MSS,
            part: (1, 1),
            sample,
        }
    }

    pub(super) fn event(cause: Cause, flow: usize, epoch: u32) -> Event {
        Event {
            cause,
            now: 0,
            srtt: 0,
            flow,
            beta: Beta::HALF,
            epoch,
            mss: MSS,
            part: (1, 2),
            floor: 2 * MSS,
        }
    }

    /// A policy in congestion avoidance with a window of that many segments.
    pub(super) fn steady(mut policy: impl Policy, segments: u64) -> impl Policy {
        let window = Window::from_bytes(segments * MSS);
        policy.restore(Aggregate { window, threshold: Some(window), epoch: 7 });
        policy
    }

    /// Window and threshold, in segments.
    pub(super) fn segments(policy: &impl Policy) -> (u64, Option<u64>) {
        let Aggregate { window, threshold, .. } = policy.aggregate();
        (window.bytes() / MSS, threshold.map(|t| t.bytes() / MSS))
    }
}
