// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a policy is told.
use crate::fixed::{Beta, Fraction, Micros, Window};

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
    /// One segment for each active flow.
    pub(crate) floor_bytes: u64,
    /// The flow's share of the growth of all flows that can grow.
    pub(crate) share: Fraction,
    /// What was measured with these data.
    pub(crate) sample: PathSample,
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
    pub(crate) mss_bytes: u64,
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
    /// Epoch under which the lost segment was sent.
    pub(crate) epoch: u32,
    pub(crate) mss_bytes: u64,
    /// The flow's share of the aggregate.
    pub(crate) share: Fraction,
    /// One segment for each active flow.
    pub(crate) floor_bytes: u64,
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
            sample: PathSample { now: 0, delivered_bytes: bytes, rtt_us: 0, min_rtt_us: 0 },
        }
    }

    pub(crate) fn event(cause: Cause, flow: usize, epoch: u32) -> CongestionEvent {
        CongestionEvent {
            cause,
            now: 0,
            srtt_us: 0,
            flow,
            beta: Beta::HALF,
            epoch,
            mss_bytes: MSS,
            share: half(),
            floor_bytes: 2 * MSS,
        }
    }

    /// A flow that joins with an initial window of 10 segments.
    pub(crate) fn joiner() -> Joiner {
        let (initial, on_path) = (segments(10), Window::default());
        Joiner { initial, on_path, ssthresh: None, mss_bytes: MSS }
    }
}
