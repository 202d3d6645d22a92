// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that a guest and the device use at the same time.
//!
//! Everything goes through atomic 64-bit words, so that neither side can see
//! half of one, whatever the other does.  The caller finds the words in guest
//! memory; a structure's words must be in order.
use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use thiserror::Error;
use zerocopy::transmute;

use crate::wire::{ExtentStatus, GrantLine, Report, SlotGrant};

/// Words of a report slot.
pub const REPORT_WORDS: usize = size_of::<Report>() / 8;
/// Words of a grant line.
pub const GRANT_LINE_WORDS: usize = size_of::<GrantLine>() / 8;

/// How often a slot is read again while its driver writes it.  A driver holds
/// the odd count for a few hundred nanoseconds; one that was descheduled in
/// between sends another message anyway.
const ATTEMPTS: u32 = 16;

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
pub fn read_report(words: &[&AtomicU64; REPORT_WORDS]) -> Result<Report, Torn> {
    let mut seq = 0;
    for _ in 0..ATTEMPTS {
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
    Err(Torn { attempts: ATTEMPTS, seq })
}

/// Writes a grant line under its sequence count, which goes on from what the
/// memory holds; the count in `line` does not matter.
pub fn write_grant_line(words: &[&AtomicU64; GRANT_LINE_WORDS], line: &GrantLine) {
    let odd = sequence(words[0].load(Ordering::Relaxed)) | 1;
    let even = odd.wrapping_add(1);
    let image: [u64; GRANT_LINE_WORDS] = transmute!(*line);
    words[0].store(with_sequence(image[0], odd), Ordering::Relaxed);
    fence(Ordering::Release);
    for (to, from) in words.iter().zip(image).skip(1) {
        to.store(from, Ordering::Relaxed);
    }
    words[0].store(with_sequence(image[0], even), Ordering::Release);
}

/// Answers a slot.  Generation, line and flags are one word, so a driver that
/// finds its generation finds what belongs to it.
pub fn write_slot_grant(words: &[&AtomicU64; 2], grant: &SlotGrant) {
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

    fn words<const N: usize>(memory: &[AtomicU64; N]) -> [&AtomicU64; N] {
        std::array::from_fn(|word| &memory[word])
    }

    #[test]
    fn a_quiet_slot_is_copied() {
        let memory = memory::<REPORT_WORDS>();
        let report = Report { seq: 6.into(), state: 2, cwnd_bytes: 14480.into(), ..Report::FREE };
        let image: [u64; REPORT_WORDS] = transmute!(report);
        for (to, from) in memory.iter().zip(image) {
            to.store(from, Ordering::Relaxed);
        }
        assert_eq!(read_report(&words(&memory)), Ok(report));
    }

    #[test]
    fn a_slot_left_odd_is_torn() {
        let memory = memory::<REPORT_WORDS>();
        memory[0].store(7u64.to_le(), Ordering::Relaxed);
        assert_eq!(read_report(&words(&memory)), Err(Torn { attempts: ATTEMPTS, seq: 7 }));
    }

    #[test]
    fn a_line_is_written_with_the_next_even_count() {
        let memory = memory::<GRANT_LINE_WORDS>();
        memory[0].store(0xffff_fffd_u64.to_le(), Ordering::Relaxed);
        let line = GrantLine { epoch: 9.into(), level: 77.into(), ..transmute!([0u8; 64]) };
        for expected in [0xffff_fffe_u32, 0, 2] {
            write_grant_line(&words(&memory), &line);
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
                for seq in (0..200_000u32).step_by(2) {
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
                if let Ok(report) = read_report(&words(&memory)) {
                    let image: [u64; REPORT_WORDS] = transmute!(report);
                    assert!(image[1..].iter().all(|word| *word == image[1]), "{image:?}");
                }
            }
        });
    }
}
