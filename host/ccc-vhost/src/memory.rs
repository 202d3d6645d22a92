// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest memory.
use std::{fs::File, sync::atomic::AtomicU64};

use rustix::mm::{MapFlags, ProtFlags};
use thiserror::Error;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap, MmapRegion,
    VolatileMemory, bitmap::Bitmap, mmap::MmapRegionBuilder,
};

use crate::dirty::{Dirty, Log};

/// A VM's memory, by guest physical address.
pub type Mapping = GuestMemoryMmap<Dirty>;

/// Why guest memory cannot be used.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The file could not be mapped.
    #[error("cannot map {size} bytes of guest memory at offset {offset} of its file")]
    Map {
        /// Bytes.
        size: u64,
        /// Offset in the file.
        offset: u64,
        /// Why.
        source: vm_memory::mmap::MmapRegionError,
    },
    /// The region lies outside of what addresses can say.
    #[error("memory region at {0:#x} overflows")]
    Overflow(u64),
    /// The regions do not fit beside each other.
    #[error("memory regions overlap or are none")]
    Regions(#[from] vm_memory::GuestRegionCollectionError),
    /// No region has the front end's address.
    #[error("address {0:#x} of the front end lies in no memory region")]
    Unmapped(u64),
    /// The structure is not wholly in one region.
    #[error("{size} bytes at guest address {address:#x} are not in one memory region")]
    Outside {
        /// Guest physical address.
        address: u64,
        /// Bytes.
        size: usize,
    },
    /// Structures start at multiples of 8.
    #[error("guest address {0:#x} is no multiple of 8")]
    Misaligned(u64),
}

/// Guest memory as the front end told it: mapped, and with its own addresses.
#[derive(Debug, Default)]
pub struct Memory {
    mapping: Mapping,
    /// Front end's address, guest address and size of each region.
    views: Vec<(u64, u64, u64)>,
}

impl Memory {
    /// Maps the regions a front end sent; writes are noted in `log`.
    pub fn map(
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        log: &Log,
    ) -> Result<Memory, MemoryError> {
        let mut mapped = Vec::with_capacity(regions.len());
        let mut views = Vec::with_capacity(regions.len());
        for (region, file) in regions.iter().zip(files) {
            mapped.push(map_region(region, file, log)?);
            views.push((region.user_addr, region.guest_phys_addr, region.memory_size));
        }
        mapped.sort_by_key(vm_memory::GuestMemoryRegion::start_addr);
        Ok(Memory { mapping: Mapping::from_regions(mapped)?, views })
    }

    /// The mapped memory.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Guest address of an address of the front end.
    pub fn guest_address(&self, user: u64) -> Result<GuestAddress, MemoryError> {
        self.views
            .iter()
            .find_map(|(start, guest, size)| {
                let offset = user.checked_sub(*start).filter(|offset| offset < size)?;
                guest.checked_add(offset).map(GuestAddress)
            })
            .ok_or(MemoryError::Unmapped(user))
    }
}

fn map_region(
    region: &VhostUserMemoryRegion,
    file: File,
    log: &Log,
) -> Result<GuestRegionMmap<Dirty>, MemoryError> {
    let (start, size, offset) = (region.guest_phys_addr, region.memory_size, region.mmap_offset);
    let overflow = || MemoryError::Overflow(start);
    let length = usize::try_from(size).map_err(|_| overflow())?;
    let mapped = MmapRegionBuilder::new_with_bitmap(length, Dirty::new(log, start))
        .with_file_offset(FileOffset::new(file, offset))
        .with_mmap_prot((ProtFlags::READ | ProtFlags::WRITE).bits() as i32)
        .with_mmap_flags((MapFlags::SHARED | MapFlags::NORESERVE).bits() as i32)
        .build()
        .map_err(|source| MemoryError::Map { size, offset, source })?;
    GuestRegionMmap::new(mapped, GuestAddress(start)).ok_or_else(overflow)
}

/// Writes to `N` words of guest memory, and notes that.
pub fn change<const N: usize>(
    mapping: &Mapping,
    address: GuestAddress,
    write: impl FnOnce(&[&AtomicU64; N]),
) -> Result<(), MemoryError> {
    write(&words(mapping, address)?);
    // Found a moment ago.
    if let Some((region, start)) = mapping.to_region_addr(address) {
        let region: &MmapRegion<Dirty> = region;
        region.bitmap().mark_dirty(start.0 as usize, N * 8);
    }
    Ok(())
}

/// `N` words of guest memory, shared with the guest, to be read.
pub fn words<const N: usize>(
    mapping: &Mapping,
    address: GuestAddress,
) -> Result<[&AtomicU64; N], MemoryError> {
    let outside = || MemoryError::Outside { address: address.0, size: N * 8 };
    let (region, start) = mapping.to_region_addr(address).ok_or_else(outside)?;
    let region: &MmapRegion<Dirty> = region;
    let start = start.0 as usize;
    let word = |index: usize| region.get_atomic_ref::<AtomicU64>(start + index * 8);
    if address.0 % 8 != 0 {
        return Err(MemoryError::Misaligned(address.0));
    }
    let first = word(0).map_err(|_| outside())?;
    let mut words = [first; N];
    for (index, place) in words.iter_mut().enumerate() {
        *place = word(index).map_err(|_| outside())?;
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_outside_or_askew_are_refused() {
        let mapping = Mapping::from_ranges(&[(GuestAddress(0x1000), 0x1000)]).expect("memory");
        assert!(words::<16>(&mapping, GuestAddress(0x1f80)).is_ok());
        let outside = words::<16>(&mapping, GuestAddress(0x1f88));
        assert!(matches!(outside, Err(MemoryError::Outside { address: 0x1f88, size: 128 })));
        let askew = words::<16>(&mapping, GuestAddress(0x1004));
        assert!(matches!(askew, Err(MemoryError::Misaligned(0x1004))));
    }
}
