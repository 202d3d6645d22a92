// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a coupling algorithm works with: the aggregate, which it changes, and what it
//! is told.
use std::fmt::Debug;

use crate::{
    fixed::{Beta, Fraction, Micros, Window},
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

    /// Congestion avoidance: grows and shrinks by the flow's share of what its own
    /// controller does; at most doubled at once, whatever a guest claims.
    pub(super) fn avoid(&mut self, ack: &Ack) {
        self.change(ack.growth_bytes, ack.shrink_bytes, ack.share, ack.floor_bytes);
    }

    /// The same of what a policy makes of that.
    // In each report: a call would cost about as much.
    #[inline(always)]
    pub(super) fn change(
        &mut self,
        growth_bytes: u64,
        shrink_bytes: u64,
        share: Fraction,
        floor_bytes: u64,
    ) {
        let part = |bytes| match bytes {
            0 => Window::default(),
            _ => Window::from_bytes(bytes).min(self.window).times(share),
        };
        let floor = Window::from_bytes(floor_bytes).min(self.window);
        self.window = self.window.plus(part(growth_bytes)).minus(part(shrink_bytes)).max(floor);
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

    /// Makes it so many times what it is.
    pub(crate) fn scale(&mut self, factor: Fraction) {
        self.window = self.window.times(factor);
        self.ssthresh = self.ssthresh.map(|ssthresh| ssthresh.times(factor));
    }

    /// Slow start goes on up to there.
    pub(crate) fn slow_start_to(&mut self, most: Window) {
        self.ssthresh = self.ssthresh.map(|ssthresh| ssthresh.max(most));
    }
}

/// What a report says of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSample {
    pub(crate) now: Micros,
    /// Bytes delivered since the flow's report before.
    pub(crate) delivered_bytes: u64,
    /// Least round-trip time since then; 0 if not measured.
    pub(crate) rtt_us: u32,
    /// The flow's smallest round-trip time; 0 if not known.
    pub(crate) min_rtt_us: u32,
    /// When the flow was registered.
    pub(crate) joined: Micros,
    /// It took all that it was given.
    pub(crate) backlogged: bool,
}

impl PathSample {
    /// How long its packets waited, if that was measured.
    pub(crate) fn waited_us(&self) -> Option<Micros> {
        let measured = self.rtt_us > 0 && self.min_rtt_us > 0;
        measured.then(|| self.rtt_us.saturating_sub(self.min_rtt_us).into())
    }
}

/// What is known of the path besides a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    /// The group's mean round-trip time, without what waits; 0 if not known.
    pub(crate) mean_us: Micros,
    /// What packets of other VMs wait, as they said lately; `None` if they said nothing.
    pub(crate) wait_us: Option<Micros>,
}

/// Acknowledged data of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) flow: usize,
    /// The flow's smoothed round-trip time; 0 if not known.
    pub(crate) srtt_us: Micros,
    pub(crate) mss_bytes: u64,
    /// Bytes acknowledged while cwnd-limited.
    pub(crate) acked_limited_bytes: u64,
    /// Bytes by which the flow's own controller grew.
    pub(crate) growth_bytes: u64,
    /// Bytes by which it closed its window, as one that watches the delay does.
    pub(crate) shrink_bytes: u64,
    /// Two segments for each active flow.
    pub(crate) floor_bytes: u64,
    /// The flow's share of the growth of all flows that can grow.
    pub(crate) share: Fraction,
    /// Hardly a packet of the group has waited for some round trips.
    pub(crate) path_is_idle: bool,
    /// No others seem to use it.
    pub(crate) is_alone: bool,
    /// As many flows would grow on an idle path: one if others may be on it.
    pub(crate) growers: u64,
    /// What was measured with these data.
    pub(crate) sample: PathSample,
    /// What others see of the path, while the first slow start lasts.
    pub(crate) others: Others,
}

/// A flow that joins others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joiner {
    /// Its own window, if it begins now.
    pub(crate) initial: Window,
    /// What it has on the path already, if it ran uncoupled before.
    pub(crate) on_path: Window,
    /// Its own slow start threshold, if it has one.
    pub(crate) ssthresh: Option<Window>,
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
pub(crate) struct CongestionEvent {
    pub(crate) cause: Cause,
    pub(crate) now: Micros,
    /// The flow's smoothed round-trip time; 0 if not known.
    pub(crate) srtt_us: Micros,
    pub(crate) flow: usize,
    /// The flow's own window factor.
    pub(crate) beta: Beta,
    /// The part of the aggregate that the path holds without a queue; `None` if
    /// it is not known.
    pub(crate) holds: Option<Beta>,
    /// It was of a full queue.
    pub(crate) is_full: bool,
    /// Epoch under which the lost segment was sent.
    pub(crate) epoch: u32,
    pub(crate) mss_bytes: u64,
    /// The flow's share of the aggregate.
    pub(crate) share: Fraction,
    /// Two segments for each active flow.
    pub(crate) floor_bytes: u64,
}

/// What a policy that keeps a target does about others who fill the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMode {
    /// It keeps the target.
    Target,
    /// It competes as one TCP.
    Competing,
    /// It finds out whether they have gone.
    Trial,
}

/// A coupling algorithm.  It keeps what it needs beside the aggregate, which is
/// the group's; what it has no rule for changes nothing.
pub(crate) trait Policy: Debug + Send {
    /// The group has its first active flow, whose own window is `initial`.
    fn begin(&mut self, aggregate: &mut Aggregate, _now: Micros, initial: Window) {
        aggregate.begin(initial);
    }
    /// Who counts has changed: so many times the window is the same sum of rates.  What
    /// is remembered as a window is scaled too.
    fn scale(&mut self, aggregate: &mut Aggregate, factor: Fraction) {
        aggregate.scale(factor);
    }
    /// Nothing is known of the path's rate: a flow that joins brings a window, and does
    /// not keep the rate.
    fn is_cold(&self, aggregate: &Aggregate) -> bool {
        aggregate.ssthresh.is_none()
    }
    /// A flow has joined others.
    fn join(&mut self, _aggregate: &mut Aggregate, _joiner: &Joiner) {}
    /// A flow that had this share of the rate has left the others.
    fn leave(&mut self, _aggregate: &mut Aggregate, _share: Fraction) {}
    /// The group's last active flow has left or fallen idle.
    fn end(&mut self, _now: Micros) {}
    /// Data of a flow was acknowledged.
    fn ack(&mut self, _aggregate: &mut Aggregate, _ack: &Ack) {}
    /// For some time of the first slow start no more than this was used.
    fn leave_unused(&mut self, _aggregate: &mut Aggregate, _used: Window) {}
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
    /// Whether a VM that loses where nobody else does reduces only what it has; not where
    /// a policy is there to be compared with as it was published.
    fn bounds_events(&self) -> bool {
        false
    }
    /// Whether flows take their windows from the aggregate; if not, each is its
    /// own controller.
    fn couples(&self) -> bool {
        true
    }
    /// What it does about others, if it has several ways.
    fn mode(&self) -> Option<QueueMode> {
        None
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! What happens to policies in their tests: two equal Reno flows.
    use super::*;

    pub(crate) const MSS: u64 = 1000;

    pub(crate) fn segments(count: u64) -> Window {
        Window::from_bytes(count * MSS)
    }

    pub(crate) fn half() -> Fraction {
        Fraction::new(1, 2)
    }

    /// `bytes` of a flow acknowledged, and its window grown by as much.
    pub(crate) fn ack(flow: usize, bytes: u64) -> Ack {
        Ack {
            flow,
            srtt_us: 0,
            mss_bytes: MSS,
            acked_limited_bytes: bytes,
            growth_bytes: bytes,
            shrink_bytes: 0,
            floor_bytes: 2 * MSS,
            share: Fraction::ALL,
            path_is_idle: false,
            is_alone: false,
            growers: 1,
            others: Others::default(),
            sample: PathSample {
                now: 0,
                delivered_bytes: bytes,
                rtt_us: 0,
                min_rtt_us: 0,
                joined: 0,
                backlogged: true,
            },
        }
    }

    pub(crate) fn event(cause: Cause, flow: usize, epoch: u32) -> CongestionEvent {
        CongestionEvent {
            cause,
            now: 0,
            srtt_us: 0,
            flow,
            beta: Beta::HALF,
            holds: None,
            is_full: false,
            epoch,
            mss_bytes: MSS,
            share: half(),
            floor_bytes: 2 * MSS,
        }
    }

    /// A flow that joins with an initial window of 10 segments.
    pub(crate) fn joiner() -> Joiner {
        let (initial, on_path) = (segments(10), Window::default());
        Joiner { initial, on_path, ssthresh: None }
    }

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
