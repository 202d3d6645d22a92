// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How long the segments are that a VM says it sends.
//!
//! A VM may grow by a segment in a round trip, however small its window is.  Jumbo frames make
//! that nine thousand bytes, on a path on which nobody else may have them: what others send in the
//! middle bounds it.
use crate::{
    fixed::Weight,
    flow::JUMBO_BYTES,
    median::{Entry, Median, OfTwo},
};

/// Whatever others say: an Ethernet frame.
const FRAME_BYTES: u64 = 1_500;

/// What one VM says, and how it counts for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    bytes: u64,
    weight: Weight,
    entry: Entry,
}

/// What the VMs of a group say.
#[derive(Debug, Default)]
pub(super) struct Segments {
    vms: Vec<Option<Told>>,
    median: Median,
}

impl Segments {
    /// A VM of this number comes, or has gone.
    pub(super) fn forget(&mut self, member: usize) {
        if member >= self.vms.len() {
            self.vms.resize(member + 1, None);
        }
        self.median.moved(self.entry(member), None);
        self.vms[member] = None;
    }

    /// A VM of this weight says that, as it mostly did before.
    // In each report: a call would cost as much.
    #[inline(always)]
    pub(super) fn hear(&mut self, member: usize, weight: Weight, told_bytes: u64) {
        let is_known = |told: Told| (told.bytes, told.weight) == (told_bytes, weight);
        if !self.vms[member].is_some_and(is_known) {
            self.hear_another(member, weight, told_bytes);
        }
    }

    #[cold]
    fn hear_another(&mut self, member: usize, weight: Weight, bytes: u64) {
        let entry = Entry::new(bytes.min(JUMBO_BYTES), weight);
        self.median.moved(self.entry(member), Some(entry));
        self.vms[member] = Some(Told { bytes, weight, entry });
    }

    fn entry(&self, member: usize) -> Option<Entry> {
        self.vms[member].map(|told| told.entry)
    }

    /// How long a VM's segments are, as far as the others make it likely.
    pub(super) fn likely_bytes(&self, member: usize, told_bytes: u64) -> u64 {
        if told_bytes <= FRAME_BYTES {
            return told_bytes;
        }
        // Of two others who disagree the one who sends longer ones: nobody grows slower by one's
        // saying that he sends short ones.
        let others = self.median.us_without(self.entry(member), OfTwo::Upper);
        told_bytes.min(others.unwrap_or(JUMBO_BYTES).clamp(FRAME_BYTES, JUMBO_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likely(of: &[u64], member: usize) -> u64 {
        let mut segments = Segments::default();
        for (member, bytes) in of.iter().enumerate() {
            segments.forget(member);
            segments.hear(member, Weight::ONE, *bytes);
        }
        segments.likely_bytes(member, of[member])
    }

    #[test]
    fn segments_of_65535_bytes_are_as_long_as_others_are() {
        assert_eq!(likely(&[1_448, 1_448, 65_535], 2), 1_500);
        assert_eq!(likely(&[1_448, 1_448, 65_535], 0), 1_448);
        assert_eq!(likely(&[65_535], 0), JUMBO_BYTES);
    }

    #[test]
    fn jumbo_frames_are_believed_where_others_have_them() {
        let of = [8_948, 8_948, 1_448, 8_948];
        assert!(likely(&of, 0) > 8_600, "{}", likely(&of, 0));
        assert_eq!(likely(&of, 2), 1_448);
    }

    #[test]
    fn who_has_gone_says_nothing() {
        let mut segments = Segments::default();
        (0..2).for_each(|member| segments.forget(member));
        segments.hear(0, Weight::ONE, 1_448);
        segments.hear(1, Weight::ONE, 8_948);
        assert_eq!(segments.likely_bytes(1, 8_948), 1_500);
        segments.forget(0);
        assert_eq!(segments.likely_bytes(1, 8_948), 8_948);
    }
}
