// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The parts of TCP_INFO the samples need.
//!
//! The C library's structure ends before the byte counters, so the answer is
//! read by the offsets of the kernel's `linux/tcp.h`, which never change.

use std::io;
use std::os::fd::AsRawFd;

const CA_STATE: usize = 1;
const RTT: usize = 68;
const SND_SSTHRESH: usize = 76;
const SND_CWND: usize = 80;
const TOTAL_RETRANS: usize = 100;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const DATA_SEGS_IN: usize = 152;
const LEN: usize = 160;

/// A TCP_INFO answer.
pub struct TcpInfo([u8; LEN]);

impl TcpInfo {
    /// Asks for it.
    pub fn of(socket: &impl AsRawFd) -> io::Result<Self> {
        let mut info = [0u8; LEN];
        let mut len = LEN as libc::socklen_t;
        // SAFETY: the buffer is as long as said and lives through the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(info)) }
    }

    /// Congestion state.
    pub fn state(&self) -> &'static str {
        ["open", "disorder", "cwr", "recovery", "loss"]
            .get(usize::from(self.0[CA_STATE]))
            .unwrap_or(&"unknown")
    }

    /// Smoothed round-trip time in microseconds.
    pub fn srtt_us(&self) -> u32 {
        self.u32(RTT)
    }

    /// Slow-start threshold in packets.
    pub fn ssthresh(&self) -> u32 {
        self.u32(SND_SSTHRESH)
    }

    /// Congestion window in packets.
    pub fn cwnd(&self) -> u32 {
        self.u32(SND_CWND)
    }

    /// Segments sent again.
    pub fn retransmits(&self) -> u32 {
        self.u32(TOTAL_RETRANS)
    }

    /// Payload bytes the peer has acknowledged.
    pub fn bytes_acked(&self) -> u64 {
        self.u64(BYTES_ACKED)
    }

    /// Payload bytes received in order.
    pub fn bytes_received(&self) -> u64 {
        self.u64(BYTES_RECEIVED)
    }

    /// Segments with data that have arrived, in order or not, again or not.
    pub fn data_segments_in(&self) -> u32 {
        self.u32(DATA_SEGS_IN)
    }

    fn u32(&self, at: usize) -> u32 {
        self.0[at..at + 4].iter().rev().fold(0, |sum, &b| sum << 8 | u32::from(b))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }
}
