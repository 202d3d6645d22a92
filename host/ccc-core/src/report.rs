// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a guest says of one flow.
/// Congestion state of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionState {
    /// Slow start.
    #[default]
    SlowStart,
    /// Congestion avoidance.
    Avoidance,
    /// Fast recovery, or reducing after ECN.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// State of a flow and its cumulative counters since registration.  Counters
/// wrap; the engine takes differences against what it saw last, so reports may
/// be merged, lost or repeated.  `Default` is a silent Reno flow of priority 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Congestion state.
    pub state: CongestionState,
    /// Has data outstanding or to send.
    pub active: bool,
    /// Limited by its window rather than by its application.
    pub cwnd_limited: bool,
    /// It has begun, or come back, and has no more to send than it is granted:
    /// `inflight_bytes` is all of that, sent or not.
    pub opening: bool,
    /// Share within the VM, 8 fraction bits (256 is priority 1), at least 1.
    pub priority: u16,
    /// Bytes acknowledged while cwnd-limited.
    pub acked_limited_bytes: u64,
    /// Bytes acknowledged.
    pub delivered_bytes: u64,
    /// Bytes by which the flow's own controller raised its window, less those by
    /// which it lowered it without an event.
    pub cwnd_growth_bytes: u32,
    /// Congestion events.
    pub congestion_events: u16,
    /// Timeout episodes.
    pub timeouts: u16,
    /// Latest events found spurious.
    pub spurious_events: u16,
    /// Window factor of the latest event, of 65536.
    pub beta: u16,
    /// Epoch under which the segment lost in the latest event was sent.
    pub congestion_epoch: u32,
    /// Congestion window, bytes.
    pub cwnd_bytes: u32,
    /// Slow start threshold, bytes; `None` before the first event.
    pub ssthresh_bytes: Option<u32>,
    /// Smoothed round-trip time, microseconds; 0 if not known.
    pub srtt_us: u32,
    /// Smallest round-trip time seen, microseconds; 0 if not known.
    pub min_rtt_us: u32,
    /// Least round-trip sample since the report before, microseconds; 0 if
    /// there is none.
    pub rtt_us: u32,
    /// Bytes outstanding.
    pub inflight_bytes: u32,
    /// Payload bytes of a full segment, at least 1.
    pub mss_bytes: u16,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            state: CongestionState::SlowStart,
            active: false,
            cwnd_limited: false,
            opening: false,
            priority: 256,
            acked_limited_bytes: 0,
            delivered_bytes: 0,
            cwnd_growth_bytes: 0,
            congestion_events: 0,
            timeouts: 0,
            spurious_events: 0,
            beta: 1 << 15,
            congestion_epoch: 0,
            cwnd_bytes: 0,
            ssthresh_bytes: None,
            srtt_us: 0,
            min_rtt_us: 0,
            rtt_us: 0,
            inflight_bytes: 0,
            mss_bytes: 1448,
        }
    }
}
