// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The rates between which a VM's part of a group stays, whatever its weight.
use crate::fixed::{Micros, Window};

/// A floor and a cap of what a VM has of a group, in bytes of payload a microsecond with 32
/// fraction bits, as the split counts rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRange {
    floor: u64,
    /// `u64::MAX`: none.
    cap: u64,
}

impl Default for RateRange {
    fn default() -> RateRange {
        RateRange::ANY
    }
}

impl RateRange {
    /// No floor and no cap.
    pub const ANY: RateRange = RateRange { floor: 0, cap: u64::MAX };
    /// Smallest cap, Mbit/s: below it a few flows of two segments are more already.
    pub const CAP_MIN_MBIT: f64 = 0.1;
    /// The fastest rate that can be set, Mbit/s.
    pub const MBIT_MAX: f64 = 1e6;

    /// A floor in Mbit/s, and a cap if there is one; `None` if one is out of its range, or
    /// the cap below the floor.
    pub fn from_mbit(floor: f64, cap: Option<f64>) -> Option<RateRange> {
        let is_floor = (0.0..=RateRange::MBIT_MAX).contains(&floor);
        let is_cap = |cap: f64| {
            (RateRange::CAP_MIN_MBIT..=RateRange::MBIT_MAX).contains(&cap) && cap >= floor
        };
        let range = RateRange { floor: fixed(floor), cap: cap.map_or(u64::MAX, fixed) };
        (is_floor && cap.is_none_or(is_cap)).then_some(range)
    }

    /// What the floor is in that time.
    pub(crate) fn floor_in(self, us: Micros) -> u128 {
        u128::from(self.floor) * u128::from(us)
    }

    /// What the cap is in that time, if there is one.
    pub(crate) fn cap_in(self, us: Micros) -> Option<u128> {
        (self.cap != u64::MAX).then(|| u128::from(self.cap) * u128::from(us))
    }
}

/// Bytes a microsecond with 32 fraction bits.
fn fixed(mbit: f64) -> u64 {
    (mbit / 8.0 * 2.0_f64.powi(32)) as u64
}

/// Bytes with 32 fraction bits as a window.
pub(crate) fn window(bytes: u128) -> Window {
    Window::from_bytes(u64::try_from(bytes >> 32).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_bytes_in_a_time() {
        let range = RateRange::from_mbit(6.0, Some(8.0)).expect("in range");
        assert_eq!(window(range.floor_in(100_000)), Window::from_bytes(75_000));
        let cap = range.cap_in(100_000).expect("a cap");
        assert_eq!(window(cap), Window::from_bytes(100_000));
        assert_eq!(RateRange::ANY.cap_in(1), None);
        assert_eq!(RateRange::from_mbit(0.0, None), Some(RateRange::ANY));
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for floor in [-1.0, f64::NAN, f64::INFINITY, 1e7] {
            assert_eq!(RateRange::from_mbit(floor, None), None, "floor {floor}");
        }
        for cap in [0.0, -1.0, 0.01, f64::NAN, f64::INFINITY, 1e7] {
            assert_eq!(RateRange::from_mbit(0.0, Some(cap)), None, "cap {cap}");
        }
        assert_eq!(RateRange::from_mbit(2.0, Some(1.9)), None, "a cap below the floor");
        assert!(RateRange::from_mbit(2.0, Some(2.0)).is_some());
    }

    #[test]
    fn the_fastest_rate_overflows_nothing() {
        let range = RateRange::from_mbit(1e6, Some(1e6)).expect("in range");
        assert_eq!(window(range.floor_in(1 << 20)).bytes(), 131_072_000_000);
    }
}
