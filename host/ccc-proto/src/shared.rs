// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that a guest and the device use at the same time.
//!
//! Everything goes through atomic 64-bit words, so that neither side can see
//! half of one, whatever the other does.  The caller finds the words in guest
//! memory; a structure's words must be in order.  A report is copied as a whole,
//! and the copy is checked before the engine takes it.
use core::mem::size_of;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicU64, Ordering, fence};

use ccc_core::CongestionState;
use thiserror::Error;
use zerocopy::transmute;

use crate::wire::{self, ExtentStatus, GrantLine, Report, SlotGrant};

const REPORT_WORDS: usize = size_of::<Report>() / 8;
/// Words of a grant line.
pub const GRANT_LINE_WORDS: usize = size_of::<GrantLine>() / 8;

/// How often a slot is read again while its driver writes it.  A driver holds
/// the odd count for a few hundred nanoseconds; one that was descheduled in
/// between sends another message anyway.
pub const READ_ATTEMPTS: u32 = 16;

/// Smallest segment: Linux accepts no smaller MSS (`TCP_MIN_MSS`).
const MSS_MIN_BYTES: u16 = 88;
/// Windows and thresholds are clamped to TCP's own largest window (RFC 7323).
const WINDOW_MAX_BYTES: u32 = 1 << 30;
/// Round-trip times are clamped to 100 s.
const RTT_MAX_US: u32 = 100_000_000;

/// The slot was being written each time it was read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "slot is being written: expected an even, unchanged sequence count within {attempts} reads, got {seq}"
)]
pub struct Torn {
    /// Reads tried.
    pub attempts: u32,
    /// Sequence count at the last of them.
    pub seq: u32,
}

/// Copies a slot under its sequence count.
pub fn read_report(words: &[AtomicU64; REPORT_WORDS], attempts: u32) -> Result<Report, Torn> {
    let mut seq = 0;
    for _ in 0..attempts {
        let first = words[0].load(Ordering::Acquire);
        seq = sequence(first);
        if seq & 1 == 1 {
            core::hint::spin_loop();
            continue;
        }
        let mut copy = [first; REPORT_WORDS];
        for (to, from) in copy.iter_mut().zip(words).skip(1) {
            *to = from.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        if sequence(words[0].load(Ordering::Relaxed)) == seq {
            return Ok(transmute!(copy));
        }
    }
    Err(Torn { attempts, seq })
}

/// Why a report is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ReportError {
    /// The slot has no flow.
    #[error("slot is free: expected a flow's state, 1 to 4, got 0")]
    Free,
    /// No such congestion state.
    #[error("invalid state: expected 1 to 4, got {0}")]
    State(u8),
    /// Outside 1 to [`wire::PRIORITY_MAX`].
    #[error("invalid priority: expected 1 to {max} (256 is priority 1), got {0}", max = wire::PRIORITY_MAX)]
    Priority(u16),
    /// Smaller than any TCP segment.
    #[error("invalid mss_bytes: expected at least {MSS_MIN_BYTES}, got {0}")]
    Mss(u16),
    /// Generation 0.
    #[error("invalid generation: expected 1 or more, got 0")]
    Generation,
    /// Neither IPv4 nor IPv6.
    #[error("invalid address family: expected 4 or 6, got {0}")]
    Family(u8),
}

/// A report that may be handed to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedReport {
    /// Use of the slot the report belongs to.
    pub generation: u32,
    /// Where the flow sends to.
    pub destination: IpAddr,
    /// What the engine takes.
    pub report: ccc_core::Report,
}

impl Report {
    /// Checks every field the engine will use, and clamps those for which any
    /// value has a meaning.
    pub fn check(&self) -> Result<CheckedReport, ReportError> {
        let state = state(self.state)?;
        let priority = self.priority.get();
        if !(1..=wire::PRIORITY_MAX).contains(&priority) {
            return Err(ReportError::Priority(priority));
        }
        let mss = self.mss_bytes.get();
        if mss < MSS_MIN_BYTES {
            return Err(ReportError::Mss(mss));
        }
        let generation = self.generation.get();
        if generation == 0 {
            return Err(ReportError::Generation);
        }
        let report = ccc_core::Report {
            state,
            active: self.flags & wire::R_ACTIVE != 0,
            cwnd_limited: self.flags & wire::R_CWND_LIMITED != 0,
            opening: self.flags & wire::R_OPENING != 0,
            priority,
            acked_limited_bytes: self.acked_limited_bytes.get(),
            delivered_bytes: self.delivered_bytes.get(),
            cwnd_growth_bytes: self.cwnd_growth_bytes.get(),
            congestion_events: self.congestion_events.get(),
            timeouts: self.timeouts.get(),
            spurious_events: self.spurious_events.get(),
            beta: self.beta.get(),
            congestion_epoch: self.congestion_epoch.get(),
            cwnd_bytes: self.cwnd_bytes.get().clamp(u32::from(mss), WINDOW_MAX_BYTES),
            ssthresh_bytes: ssthresh(self.ssthresh_bytes.get()),
            srtt_us: self.srtt_us.get().min(RTT_MAX_US),
            min_rtt_us: min_rtt(self.min_rtt_us.get()),
            rtt_us: u32::from(self.rtt_sample.get()) * wire::RTT_UNIT_US,
            inflight_bytes: self.inflight_bytes.get().min(WINDOW_MAX_BYTES),
            mss_bytes: mss,
        };
        Ok(CheckedReport { generation, destination: self.destination()?, report })
    }

    /// The same for the last report of a flow that has left: its slot may be free
    /// already, and the flow is not active whatever is written.
    pub fn check_last(&self) -> Result<CheckedReport, ReportError> {
        let state = if self.is_free() { wire::STATE_CA } else { self.state };
        Report { state, flags: self.flags & !wire::R_ACTIVE, ..*self }.check()
    }

    /// The slot has no flow.
    pub fn is_free(&self) -> bool {
        self.state == wire::STATE_FREE
    }

    fn destination(&self) -> Result<IpAddr, ReportError> {
        let [a, b, c, d, ..] = self.daddr;
        match self.family {
            4 => Ok(Ipv4Addr::new(a, b, c, d).into()),
            6 => Ok(Ipv6Addr::from(self.daddr).into()),
            other => Err(ReportError::Family(other)),
        }
    }
}

fn state(raw: u8) -> Result<CongestionState, ReportError> {
    match raw {
        wire::STATE_FREE => Err(ReportError::Free),
        wire::STATE_SS => Ok(CongestionState::SlowStart),
        wire::STATE_CA => Ok(CongestionState::Avoidance),
        wire::STATE_FR => Ok(CongestionState::Recovery),
        wire::STATE_LOSS => Ok(CongestionState::Loss),
        other => Err(ReportError::State(other)),
    }
}

fn ssthresh(raw: u32) -> Option<u32> {
    (raw != wire::SSTHRESH_UNSET).then_some(raw.min(WINDOW_MAX_BYTES))
}

/// TCP stacks begin with the largest value, meaning none measured.
fn min_rtt(raw: u32) -> u32 {
    if raw == u32::MAX { 0 } else { raw.min(RTT_MAX_US) }
}

/// Writes a grant line under its sequence count, which goes on from what the
/// memory holds; the count in `line` does not matter.
pub fn write_grant_line(words: &[AtomicU64; GRANT_LINE_WORDS], line: &GrantLine) {
    let odd = sequence(words[0].load(Ordering::Relaxed)) | 1;
    let even = odd.wrapping_add(1);
    let image: [u64; GRANT_LINE_WORDS] = transmute!(*line);
    words[0].store(with_sequence(image[0], odd), Ordering::Relaxed);
    fence(Ordering::Release);
    for word in 1..GRANT_LINE_WORDS {
        words[word].store(image[word], Ordering::Relaxed);
    }
    words[0].store(with_sequence(image[0], even), Ordering::Release);
}

/// Answers a slot.  Generation, line and flags are one word, so a driver that
/// finds its generation finds what belongs to it.
pub fn write_slot_grant(words: &[AtomicU64; 2], grant: &SlotGrant) {
    let image: [u64; 2] = transmute!(*grant);
    words[1].store(image[1], Ordering::Relaxed);
    words[0].store(image[0], Ordering::Release);
}

/// Tells the driver what became of an extent; status and instance are one word.
pub fn write_extent_status(word: &AtomicU64, status: u32, instance: u32) {
    let answer =
        ExtentStatus { status: status.into(), instance: instance.into(), reserved: [0; 56] };
    let image: [u64; 8] = transmute!(answer);
    word.store(image[0], Ordering::Release);
}

/// The instance that was last written beside a status.
pub fn read_instance(word: &AtomicU64) -> u32 {
    let image = [word.load(Ordering::Relaxed), 0, 0, 0, 0, 0, 0, 0];
    let answer: ExtentStatus = transmute!(image);
    answer.instance.get()
}

/// The first four bytes in memory are the sequence count.
fn sequence(word: u64) -> u32 {
    u64::from_le(word) as u32
}

fn with_sequence(word: u64, seq: u32) -> u64 {
    let rest = u64::from_le(word) & !u64::from(u32::MAX);
    (rest | u64::from(seq)).to_le()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn memory<const N: usize>() -> [AtomicU64; N] {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    #[test]
    fn a_quiet_slot_is_copied() {
        let memory = memory::<REPORT_WORDS>();
        let report = Report { seq: 6.into(), state: 2, cwnd_bytes: 14480.into(), ..Report::FREE };
        let image: [u64; REPORT_WORDS] = transmute!(report);
        for (to, from) in memory.iter().zip(image) {
            to.store(from, Ordering::Relaxed);
        }
        assert_eq!(read_report(&memory, READ_ATTEMPTS), Ok(report));
    }

    #[test]
    fn a_slot_left_odd_is_torn() {
        let memory = memory::<REPORT_WORDS>();
        memory[0].store(7u64.to_le(), Ordering::Relaxed);
        for attempts in [1, READ_ATTEMPTS] {
            assert_eq!(read_report(&memory, attempts), Err(Torn { attempts, seq: 7 }));
        }
    }

    #[test]
    fn a_line_is_written_with_the_next_even_count() {
        let memory = memory::<GRANT_LINE_WORDS>();
        memory[0].store(0xffff_fffd_u64.to_le(), Ordering::Relaxed);
        let line = GrantLine { epoch: 9.into(), level: 77.into(), ..transmute!([0u8; 64]) };
        for expected in [0xffff_fffe_u32, 0, 2] {
            write_grant_line(&memory, &line);
            let image: [u64; GRANT_LINE_WORDS] =
                std::array::from_fn(|word| memory[word].load(Ordering::Relaxed));
            let read: GrantLine = transmute!(image);
            assert_eq!(read, GrantLine { seq: expected.into(), ..line });
        }
    }

    #[test]
    fn the_instance_is_read_as_it_was_written() {
        let word = AtomicU64::new(0);
        write_extent_status(&word, 1, 0xdead_beef);
        assert_eq!(read_instance(&word), 0xdead_beef);
    }

    #[test]
    fn a_reader_beside_a_writer_sees_whole_reports_or_none() {
        let memory = memory::<REPORT_WORDS>();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Miri tries orders of a few writes, and each of them takes its time.
                let last = if cfg!(miri) { 60 } else { 200_000u32 };
                for seq in (0..last).step_by(2) {
                    memory[0].store(u64::from(seq + 1).to_le(), Ordering::Relaxed);
                    fence(Ordering::Release);
                    for word in &memory[1..] {
                        word.store(u64::from(seq), Ordering::Relaxed);
                    }
                    memory[0].store(u64::from(seq + 2).to_le(), Ordering::Release);
                }
                stop.store(true, Ordering::Relaxed);
            });
            while !stop.load(Ordering::Relaxed) {
                if let Ok(report) = read_report(&memory, READ_ATTEMPTS) {
                    let image: [u64; REPORT_WORDS] = transmute!(report);
                    assert!(image[1..].iter().all(|word| *word == image[1]), "{image:?}");
                }
            }
        });
    }

    fn sound() -> Report {
        Report {
            state: wire::STATE_CA,
            flags: wire::R_ACTIVE,
            priority: wire::PRIORITY_ONE.into(),
            cwnd_bytes: 14480.into(),
            ssthresh_bytes: wire::SSTHRESH_UNSET.into(),
            srtt_us: 100_000.into(),
            min_rtt_us: u32::MAX.into(),
            mss_bytes: 1448.into(),
            generation: 7.into(),
            family: 4,
            daddr: *b"\x0a\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0",
            ..Report::FREE
        }
    }

    #[test]
    fn a_sound_report_is_taken_as_it_is() {
        let checked = sound().check().expect("sound");
        assert_eq!(checked.generation, 7);
        assert_eq!(checked.destination, IpAddr::from([10, 0, 0, 1]));
        let report = checked.report;
        assert_eq!(
            (report.state, report.active, report.cwnd_limited),
            (CongestionState::Avoidance, true, false)
        );
        assert_eq!((report.cwnd_bytes, report.ssthresh_bytes, report.min_rtt_us), (14480, None, 0));
    }

    #[test]
    fn each_flag_is_its_own() {
        let told = |flags| {
            let report = Report { flags, ..sound() }.check().expect("sound").report;
            (report.active, report.cwnd_limited, report.opening)
        };
        assert_eq!(told(wire::R_ACTIVE), (true, false, false));
        assert_eq!(told(wire::R_CWND_LIMITED), (false, true, false));
        assert_eq!(told(wire::R_OPENING), (false, false, true));
        assert_eq!(told(!7), (false, false, false), "bits that are nobody's yet");
    }

    #[test]
    fn f8_a_last_report_is_that_of_an_idle_flow() {
        let free = Report { state: wire::STATE_FREE, acked_limited_bytes: 9.into(), ..sound() };
        let last = free.check_last().expect("sound but for its state").report;
        assert_eq!((last.active, last.acked_limited_bytes), (false, 9));
        assert!(!sound().check_last().expect("sound").report.active);
        let wrong = Report { mss_bytes: 0.into(), ..free };
        assert_eq!(wrong.check_last(), Err(ReportError::Mss(0)));
    }

    #[test]
    fn every_wrong_field_is_refused_with_its_value() {
        let cases = [
            (Report { state: 0, ..sound() }, ReportError::Free),
            (Report { state: 5, ..sound() }, ReportError::State(5)),
            (Report { priority: 0.into(), ..sound() }, ReportError::Priority(0)),
            (Report { priority: 2561.into(), ..sound() }, ReportError::Priority(2561)),
            (Report { mss_bytes: 0.into(), ..sound() }, ReportError::Mss(0)),
            (Report { mss_bytes: 87.into(), ..sound() }, ReportError::Mss(87)),
            (Report { generation: 0.into(), ..sound() }, ReportError::Generation),
            (Report { family: 5, ..sound() }, ReportError::Family(5)),
        ];
        for (report, error) in cases {
            assert_eq!(report.check(), Err(error));
            assert!(error.to_string().contains(": expected "), "{error}");
        }
    }

    #[test]
    fn the_engine_counts_units_as_the_guest_does() {
        let units = |rate_shares, srtt_us| {
            ccc_core::Grant { rate_shares, ..Default::default() }.units(512, srtt_us)
        };
        assert_eq!((units(false, 9), units(true, 9)), (512, 512 * 9));
        assert_eq!(units(true, 0), 512 * u64::from(wire::UNIT_RTT_UNKNOWN_US));
        assert_eq!(units(true, u32::MAX), 512 * u64::from(wire::UNIT_RTT_MAX_US));
    }

    #[test]
    fn extreme_numbers_are_clamped() {
        let extreme = Report {
            cwnd_bytes: 0.into(),
            ssthresh_bytes: (u32::MAX - 1).into(),
            srtt_us: u32::MAX.into(),
            inflight_bytes: u32::MAX.into(),
            ..sound()
        };
        let report = extreme.check().expect("clamped").report;
        assert_eq!(report.cwnd_bytes, 1448);
        assert_eq!(report.ssthresh_bytes, Some(WINDOW_MAX_BYTES));
        assert_eq!(report.srtt_us, RTT_MAX_US);
        assert_eq!(report.inflight_bytes, WINDOW_MAX_BYTES);
    }
}
