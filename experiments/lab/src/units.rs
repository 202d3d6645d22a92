// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! From the units of a scenario to those the programs count in.

/// Nanoseconds of a millisecond.
pub const MS_NS: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Seconds to nanoseconds.
pub fn ns_of_s(s: f64) -> u64 {
    (s * 1e9).round() as u64
}

/// Milliseconds to microseconds.
pub fn us_of_ms(ms: f64) -> u64 {
    (ms * 1e3).round() as u64
}

/// Mbit/s to bit/s.
pub fn bit_of_mbit(mbit: f64) -> u64 {
    (mbit * 1e6).round() as u64
}
