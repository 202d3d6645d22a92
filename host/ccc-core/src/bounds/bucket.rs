// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How much of something a VM can have done: in a time, so many bytes.
use crate::fixed::{Micros, mul_div};

/// What a VM is granted, and over what time that is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) bytes: u64,
    pub(crate) rtt_us: Micros,
}

/// Bytes that may have come together since they were last told of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    bytes: u64,
    filled: Option<Micros>,
}

impl Bucket {
    /// Takes what is told, so far apart at the least; how much of it can be.  That is one part,
    /// or what is granted in between.
    pub(super) fn take(
        &mut self,
        now: Micros,
        part: Part,
        interval_us: Micros,
        told_bytes: u64,
    ) -> u64 {
        if told_bytes == 0 {
            return 0;
        }
        let in_between = |us| mul_div(part.bytes, us, part.rtt_us.max(1));
        let most_bytes = match interval_us > part.rtt_us {
            true => in_between(interval_us).max(part.bytes),
            false => part.bytes,
        };
        let elapsed_us = self.filled.map_or(part.rtt_us, |filled| now.saturating_sub(filled));
        self.bytes = self.bytes.saturating_add(in_between(elapsed_us)).min(most_bytes);
        self.filled = Some(now);
        let taken = told_bytes.min(self.bytes);
        self.bytes -= taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part { bytes: 100_000, rtt_us: 100_000 };

    #[test]
    fn what_is_granted_passes_and_no_more() {
        let mut bucket = Bucket::default();
        let told = |bucket: &mut Bucket, bytes| {
            (0..80).map(|eighth| bucket.take(12_500 * eighth, PART, 0, bytes)).sum::<u64>()
        };
        assert_eq!(told(&mut bucket, 12_500), 1_000_000);
        let taken = told(&mut Bucket::default(), u64::MAX);
        assert!((1_000_000..1_100_000).contains(&taken), "{taken} bytes in ten round trips");
    }

    #[test]
    fn what_was_not_told_for_long_is_one_part() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.take(0, PART, 0, u64::MAX), 100_000);
        assert_eq!(bucket.take(0, PART, 0, u64::MAX), 0);
        assert_eq!(bucket.take(u64::MAX, PART, 0, u64::MAX), 100_000);
    }

    #[test]
    fn who_is_to_tell_rarely_is_believed_all_that_came_together_meanwhile() {
        let mut bucket = Bucket::default();
        let every_us = 8 * PART.rtt_us;
        let told: u64 = (1..=10).map(|n| bucket.take(n * every_us, PART, every_us, 800_000)).sum();
        // Of the first time nothing is known.
        assert_eq!(told, 100_000 + 9 * 800_000);
        assert_eq!(bucket.take(100 * every_us, PART, every_us, u64::MAX), 800_000, "no more");
    }

    #[test]
    fn any_part_can_be_told() {
        let mut bucket = Bucket::default();
        for bytes in [0, 1, u64::MAX] {
            for rtt_us in [0, u64::MAX] {
                bucket.take(u64::MAX, Part { bytes, rtt_us }, u64::MAX, u64::MAX);
            }
        }
    }
}
