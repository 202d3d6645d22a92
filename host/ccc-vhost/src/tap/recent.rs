// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What was counted in the latest second.
use std::collections::VecDeque;

use ccc_core::Micros;

/// The span of an average.
pub const SPAN_US: Micros = 1_000_000;

/// What was counted in a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How long it was.
    pub time_us: Micros,
    /// Bytes that came from the VM.
    pub sent_bytes: u64,
    /// Bytes that its reports say were delivered.
    pub claimed_bytes: u64,
}

impl Count {
    /// Bytes a second, of so many.
    pub fn rate(&self, bytes: u64) -> u64 {
        let wide = u128::from(bytes) * u128::from(SPAN_US) / u128::from(self.time_us.max(1));
        u64::try_from(wide).unwrap_or(u64::MAX)
    }

    fn with(self, other: &Count) -> Count {
        Count {
            time_us: self.time_us + other.time_us,
            sent_bytes: self.sent_bytes.saturating_add(other.sent_bytes),
            claimed_bytes: self.claimed_bytes.saturating_add(other.claimed_bytes),
        }
    }

    fn without(self, other: &Count) -> Count {
        Count {
            time_us: self.time_us - other.time_us,
            sent_bytes: self.sent_bytes.saturating_sub(other.sent_bytes),
            claimed_bytes: self.claimed_bytes.saturating_sub(other.claimed_bytes),
        }
    }
}

/// The counts of the latest second, and their sum.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    counts: VecDeque<Count>,
    sum: Count,
}

impl Recent {
    /// Adds a count; what is older than a second goes.
    pub fn add(&mut self, count: Count) {
        self.counts.push_back(count);
        self.sum = self.sum.with(&count);
        while let Some(oldest) = self.counts.front().copied() {
            if self.sum.time_us - oldest.time_us < SPAN_US {
                return;
            }
            self.sum = self.sum.without(&oldest);
            self.counts.pop_front();
        }
    }

    /// All of them together.
    pub fn sum(&self) -> Count {
        self.sum
    }

    /// Bytes a second that the VM sent.
    pub fn sent_rate(&self) -> u64 {
        self.sum.rate(self.sum.sent_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_remembered() {
        let mut recent = Recent::default();
        for number in 0..40 {
            let sent_bytes = if number < 20 { 100 } else { 300 };
            recent.add(Count { time_us: 50_000, sent_bytes, claimed_bytes: 10 });
        }
        let sum = Count { time_us: SPAN_US, sent_bytes: 6000, claimed_bytes: 200 };
        assert_eq!((recent.sum(), recent.sent_rate()), (sum, 6000));
        recent.add(Count { time_us: 2 * SPAN_US, sent_bytes: 1000, claimed_bytes: 0 });
        assert_eq!(recent.sent_rate(), 500, "however long a period was");
    }
}
