// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Structures in guest memory: where a descriptor chain has them, and the words that
//! they are read and written by.
use std::{ptr::NonNull, sync::atomic::AtomicU64};

use thiserror::Error;
use virtio_queue::DescriptorChain;
use vm_memory::{GuestAddress, MmapRegion, bitmap::Bitmap};

use crate::virtio::{dirty::Dirty, mapping::Mapping, memory::Memory, region::MemoryError};

/// A chain of this VM.
pub type Chain<'m> = DescriptorChain<&'m Mapping>;

/// Largest queue the device takes, descriptors.
pub const MAX_SIZE: u16 = 1024;
/// Descriptors a chain may have: no queue is longer, and no chain may be longer
/// than its queue (VIRTIO 1.3, 2.7.5.3.1), even if its table is an indirect one.
const MAX_DESCRIPTORS: usize = MAX_SIZE as usize;

/// Why a chain does not hold what it should.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ChainError {
    #[error("chain of more than {MAX_DESCRIPTORS} descriptors")]
    Long,
    #[error("readable descriptor behind a writable one")]
    Order,
    #[error("chain ends {missing} structures of {size} bytes too early")]
    Short { missing: usize, size: usize },
    #[error("descriptor ends {left} bytes into a structure of {size}")]
    Split { left: usize, size: usize },
    #[error("no memory for {length} bytes at guest address {address:#x}")]
    Outside { address: u64, length: usize },
    #[error("structure at guest address {0:#x}, no multiple of 8")]
    Misaligned(u64),
    #[error("{0} bytes behind the last structure")]
    Trailing(usize),
}

/// Contiguous structures.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: usize,
    count: usize,
    address: u64,
}

/// An array that may be scattered over guest memory.
#[derive(Clone, Debug, Default)]
pub struct Array {
    size: usize,
    runs: Vec<Run>,
}

impl Array {
    /// Number of structures.
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| run.first + run.count)
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Structures one behind the other.
    #[cfg(test)]
    pub fn of_test(size: usize, count: usize, address: u64) -> Array {
        let runs = if count == 0 { Vec::new() } else { vec![Run { first: 0, count, address }] };
        Array { size, runs }
    }

    /// Where the structure with this index is.
    pub fn address(&self, index: usize) -> Option<GuestAddress> {
        let run = self.runs[..self.runs.partition_point(|run| run.first <= index)].last()?;
        let offset = index - run.first;
        (offset < run.count).then(|| GuestAddress(run.address + (offset * self.size) as u64))
    }
}

/// The readable and the writable part of a chain.
#[derive(Debug, Default)]
pub struct Parts {
    readable: Vec<(u64, usize)>,
    writable: Vec<(u64, usize)>,
}

impl Parts {
    /// Splits a chain.
    pub fn of(chain: Chain<'_>) -> Result<Parts, ChainError> {
        let mut parts = Parts::default();
        for (number, descriptor) in chain.enumerate() {
            if number == MAX_DESCRIPTORS {
                return Err(ChainError::Long);
            }
            let piece = (descriptor.addr().0, descriptor.len() as usize);
            if descriptor.is_write_only() {
                parts.writable.push(piece);
            } else if parts.writable.is_empty() {
                parts.readable.push(piece);
            } else {
                return Err(ChainError::Order);
            }
        }
        Ok(parts)
    }

    /// What the device may read.
    pub fn readable<'a>(&'a self, mapping: &'a Mapping) -> Part<'a> {
        Part { mapping, pieces: &self.readable, address: 0, left: 0 }
    }

    /// What the device may write.
    pub fn writable<'a>(&'a self, mapping: &'a Mapping) -> Part<'a> {
        Part { mapping, pieces: &self.writable, address: 0, left: 0 }
    }
}

/// One part of a chain, read from its front.
#[derive(Debug)]
pub struct Part<'a> {
    mapping: &'a Mapping,
    pieces: &'a [(u64, usize)],
    address: u64,
    left: usize,
}

impl Part<'_> {
    /// Takes `count` structures of `size` bytes each.
    pub fn take(&mut self, size: usize, count: usize) -> Result<Array, ChainError> {
        let mut array = Array { size, runs: Vec::new() };
        let mut first = 0;
        while first < count {
            self.refill(count - first, size)?;
            let fit = (self.left / size).min(count - first);
            if fit == 0 {
                return Err(ChainError::Split { left: self.left, size });
            }
            array.runs.push(self.run(first, fit, size)?);
            first += fit;
        }
        Ok(array)
    }

    /// Makes sure that nothing is left.
    pub fn end(&self) -> Result<(), ChainError> {
        let rest: usize = self.pieces.iter().map(|(_, length)| length).sum();
        if self.left + rest > 0 {
            return Err(ChainError::Trailing(self.left + rest));
        }
        Ok(())
    }

    fn refill(&mut self, missing: usize, size: usize) -> Result<(), ChainError> {
        while self.left == 0 {
            let Some(((address, length), rest)) = self.pieces.split_first() else {
                return Err(ChainError::Short { missing, size });
            };
            (self.address, self.left, self.pieces) = (*address, *length, rest);
        }
        Ok(())
    }

    fn run(&mut self, first: usize, count: usize, size: usize) -> Result<Run, ChainError> {
        let (address, length) = (self.address, size * count);
        if address % 8 != 0 {
            return Err(ChainError::Misaligned(address));
        }
        if self.mapping.slice(GuestAddress(address), length).is_none() {
            return Err(ChainError::Outside { address, length });
        }
        // Cannot overflow: the whole of it is in memory.
        self.address += length as u64;
        self.left -= length;
        Ok(Run { first, count, address })
    }
}

/// Writes to `N` words of guest memory, and notes that.
pub fn change<const N: usize>(
    mapping: &Mapping,
    address: GuestAddress,
    write: impl FnOnce(&[AtomicU64; N]),
) -> Result<(), MemoryError> {
    let (region, start) = locate::<N>(mapping, address)?;
    write(words_at(region, start, address)?);
    region.bitmap().mark_dirty(start, N * 8);
    Ok(())
}

/// `N` words of guest memory, shared with the guest, to be read.
pub fn words<const N: usize>(
    mapping: &Mapping,
    address: GuestAddress,
) -> Result<&[AtomicU64; N], MemoryError> {
    let (region, start) = locate::<N>(mapping, address)?;
    words_at(region, start, address)
}

/// Where `N` words are that are written often; in one memory, and to be found again in another.
#[derive(Debug)]
pub struct Location<const N: usize> {
    /// Number of the memory.
    memory: u64,
    words: NonNull<[AtomicU64; N]>,
    /// Where writes to them are noted.
    dirty: Dirty,
}

impl<const N: usize> Location<N> {
    /// Finds the words at an address.
    pub fn find(memory: &Memory, address: GuestAddress) -> Result<Location<N>, MemoryError> {
        let (region, start) = locate::<N>(memory.mapping(), address)?;
        let words = NonNull::from(words_at(region, start, address)?);
        Ok(Location { memory: memory.number(), words, dirty: region.bitmap().part(start) })
    }

    /// Writes to the words, and notes that; `false` if they are not in this memory.
    pub fn change(&self, memory: &Memory, write: impl FnOnce(&[AtomicU64; N])) -> bool {
        if self.memory != memory.number() {
            return false;
        }
        // SAFETY: the words were found in the memory of this number, which no other has and
        // which is mapped for as long as it is borrowed.
        let words = unsafe { self.words.as_ref() };
        write(words);
        self.dirty.mark_dirty(0, N * 8);
        true
    }
}

/// The region that an address is in, and where.
fn locate<const N: usize>(
    mapping: &Mapping,
    address: GuestAddress,
) -> Result<(&MmapRegion<Dirty>, usize), MemoryError> {
    let outside = || MemoryError::Outside { address: address.0, size: N * 8 };
    mapping.region(address).map(|(region, start)| (&**region, start)).ok_or_else(outside)
}

fn words_at<const N: usize>(
    region: &MmapRegion<Dirty>,
    start: usize,
    address: GuestAddress,
) -> Result<&[AtomicU64; N], MemoryError> {
    let outside = || MemoryError::Outside { address: address.0, size: N * 8 };
    if address.0 % 8 != 0 {
        return Err(MemoryError::Misaligned(address.0));
    }
    let end = start.checked_add(N * 8).ok_or_else(outside)?;
    let first: *mut u8 = region.as_ptr().wrapping_add(start);
    if end > region.size() || !first.cast::<AtomicU64>().is_aligned() {
        return Err(outside());
    }
    // SAFETY: all `N` words lie in the mapping, as was just seen, which lives as long as the
    // borrow of its region; `first` is aligned for them.  Whoever else writes there, in this
    // process or the guest, does so behind atomics' back only as hardware does, and any bits
    // are a valid word.
    Ok(unsafe { &*first.cast::<[AtomicU64; N]>() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn mapping() -> Mapping {
        Mapping::from_ranges(&[(GuestAddress(0x1000), 0x2000)]).expect("memory")
    }

    fn part<'a>(mapping: &'a Mapping, pieces: &'a [(u64, usize)]) -> Part<'a> {
        Part { mapping, pieces, address: 0, left: 0 }
    }

    #[test]
    fn arrays_go_over_several_descriptors() {
        let mapping = mapping();
        let pieces = [(0x1000, 64), (0x1100, 0), (0x1200, 32), (0x1300, 16)];
        let mut part = part(&mapping, &pieces);
        let head = part.take(16, 1).expect("there");
        let array = part.take(16, 6).expect("there");
        assert_eq!(part.end(), Ok(()));
        assert_eq!((head.len(), array.len()), (1, 6));
        let addresses: Vec<_> = (0..7).map(|i| array.address(i).map(|a| a.0)).collect();
        let expected = [0x1010, 0x1020, 0x1030, 0x1200, 0x1210, 0x1300];
        assert_eq!(addresses[..6], expected.map(Some));
        assert_eq!(addresses[6], None);
    }

    #[test]
    fn wrong_chains_are_refused() {
        let mapping = mapping();
        let take = |pieces: &[(u64, usize)]| {
            let mut part = part(&mapping, pieces);
            part.take(16, 2).and_then(|_| part.end())
        };
        assert_eq!(take(&[(0x1000, 16)]), Err(ChainError::Short { missing: 1, size: 16 }));
        assert_eq!(take(&[(0x1000, 24)]), Err(ChainError::Split { left: 8, size: 16 }));
        assert_eq!(take(&[(0x1004, 32)]), Err(ChainError::Misaligned(0x1004)));
        assert_eq!(take(&[(0x1000, 40)]), Err(ChainError::Trailing(8)));
        let outside = ChainError::Outside { address: 0x2ff0, length: 32 };
        assert_eq!(take(&[(0x2ff0, 32)]), Err(outside));
        let end = ChainError::Outside { address: u64::MAX - 7, length: 32 };
        assert_eq!(take(&[(u64::MAX - 7, 32)]), Err(end));
    }

    #[test]
    fn words_outside_or_askew_are_refused() {
        let mapping = mapping();
        assert!(words::<16>(&mapping, GuestAddress(0x2f80)).is_ok());
        let outside = words::<16>(&mapping, GuestAddress(0x2f88));
        assert!(matches!(outside, Err(MemoryError::Outside { address: 0x2f88, size: 128 })));
        let askew = words::<16>(&mapping, GuestAddress(0x1004));
        assert!(matches!(askew, Err(MemoryError::Misaligned(0x1004))));
    }

    #[test]
    fn words_are_written_in_their_own_memory_only() {
        let memory = || Memory::of_test(mapping());
        let (first, second) = (memory(), memory());
        let at = GuestAddress(0x1008);
        let location = Location::<2>::find(&first, at).expect("there");
        let write = |words: &[AtomicU64; 2]| words[1].store(7, Ordering::Relaxed);
        assert!(location.change(&first, write));
        assert!(!location.change(&second, write), "another memory");
        drop(first);
        assert!(!location.change(&memory(), write), "mapped where the first one was");
        let read = |memory: &Memory| {
            words::<2>(memory.mapping(), at).expect("there")[1].load(Ordering::Relaxed)
        };
        assert_eq!(read(&second), 0);
        let location = Location::<2>::find(&second, at).expect("there");
        assert!(location.change(&second, write));
        assert_eq!(read(&second), 7);
        assert!(Location::<2>::find(&second, GuestAddress(0x2ff8)).is_err(), "beyond the end");
    }
}
