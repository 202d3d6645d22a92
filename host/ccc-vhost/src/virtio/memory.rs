// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest memory, as a front end shares it.
use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::mm::{MapFlags, ProtFlags};
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestRegionMmap, mmap::MmapRegionBuilder};

use crate::{
    event_loop::foreign::Shared,
    virtio::dirty::{Dirty, Log},
    virtio::fault::Guard,
    virtio::mapping::Mapping,
    virtio::region::{MOST, MemoryError, PAGE, guard, page_size},
};

/// Bytes that are mapped.
static MAPPED: AtomicU64 = AtomicU64::new(0);
/// Memories there have been.
static MEMORIES: AtomicU64 = AtomicU64::new(0);

/// Guest memory as the front end told it: mapped, and with its own addresses.
#[derive(Debug, Default)]
pub struct Memory {
    /// No other has it; 0 where nothing is mapped.
    number: u64,
    // Before the mapping, for it is to go first.
    guards: Vec<Guard>,
    mapping: Mapping,
    /// Front end's address, guest address and size of each region.
    views: Vec<(u64, u64, u64)>,
    // The last to be closed.
    _files: Vec<Shared>,
    _room: Room,
}

/// Addresses of the daemon's that are taken.  A file of any size costs a front end
/// nothing; one that had all addresses would end the daemon for all VMs.
#[derive(Debug, Default)]
struct Room(u64);

impl Room {
    fn take(regions: &[VhostUserMemoryRegion], most: u64) -> Result<Room, MemoryError> {
        let size = regions.iter().map(|region| u128::from(region.memory_size)).sum();
        let fits = u64::try_from(size).ok().filter(|size| *size <= most);
        let size = fits.ok_or(MemoryError::TooMuch { size, most })?;
        let room = Room(size);
        // A failure gives back what was taken.
        if MAPPED.fetch_add(size, Ordering::Relaxed).saturating_add(size) > MOST {
            return Err(MemoryError::NoRoom { size });
        }
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        MAPPED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Memory {
    /// Maps the regions a front end sent, of at most so many bytes; writes are
    /// noted in `log`.
    pub fn map(
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        log: &Log,
        most: u64,
    ) -> Result<Memory, MemoryError> {
        let room = Room::take(regions, most)?;
        let files: Vec<_> = files.into_iter().map(Arc::new).collect();
        // Before those who use them, for it is to go after them where one cannot be mapped.
        let held = files.iter().cloned().map(Shared::new).collect();
        let mut mapped = Vec::with_capacity(regions.len());
        let mut guards = Vec::with_capacity(regions.len());
        let mut views = Vec::with_capacity(regions.len());
        for (region, file) in regions.iter().zip(files) {
            let (guard, memory) = map_region(region, file, log)?;
            guards.push(guard);
            mapped.push(memory);
            views.push((region.user_addr, region.guest_phys_addr, region.memory_size));
        }
        mapped.sort_by_key(vm_memory::GuestMemoryRegion::start_addr);
        Ok(Memory {
            number: next_number(),
            guards,
            mapping: Mapping::from_regions(mapped)?,
            views,
            _files: held,
            _room: room,
        })
    }

    /// Memory that no front end has given.
    #[cfg(test)]
    pub fn of_test(mapping: Mapping) -> Memory {
        Memory { number: next_number(), mapping, ..Memory::default() }
    }

    /// What tells it from all others there have been.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Some of it was not there when it was accessed.
    pub fn faulted(&self) -> bool {
        self.guards.iter().any(Guard::hit)
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

fn next_number() -> u64 {
    MEMORIES.fetch_add(1, Ordering::Relaxed) + 1
}

fn map_region(
    region: &VhostUserMemoryRegion,
    file: Arc<File>,
    log: &Log,
) -> Result<(Guard, GuestRegionMmap<Dirty>), MemoryError> {
    let (start, size, offset) = (region.guest_phys_addr, region.memory_size, region.mmap_offset);
    let overflow = || MemoryError::Overflow(start);
    let page = page_size(&file)?;
    if page > PAGE && (size % page != 0 || offset % page != 0) {
        return Err(MemoryError::Pages { size, offset, page });
    }
    let length = usize::try_from(size).map_err(|_| overflow())?;
    let mapped = MmapRegionBuilder::new_with_bitmap(length, Dirty::new(log, start))
        .with_file_offset(FileOffset::from_arc(file, offset))
        .with_mmap_prot((ProtFlags::READ | ProtFlags::WRITE).bits() as i32)
        .with_mmap_flags((MapFlags::SHARED | MapFlags::NORESERVE).bits() as i32)
        .build()
        .map_err(|source| MemoryError::Map { size, offset, source })?;
    let guard = guard(&mapped, page)?;
    let mapped = GuestRegionMmap::new(mapped, GuestAddress(start)).ok_or_else(overflow)?;
    Ok((guard, mapped))
}
