// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Files that a front end gives to be mapped: guest memory, and logs of it.
use std::{fs::File, io};

use thiserror::Error;
use vm_memory::{MmapRegion, bitmap::NewBitmap};

use crate::{event_loop::foreign, virtio::fault::Guard};

/// Bytes that all VMs together may have mapped.  A process has 128 TiB of
/// addresses on the common machines, and the rest is the daemon's own.
pub const MOST: u64 = 96 << 40;
/// The file system of huge pages.
const HUGETLBFS: u64 = 0x9584_58f6;

/// Bytes of an ordinary page.
pub const PAGE: u64 = 4096;

/// Why guest memory cannot be used.
#[derive(Debug, Error)]
pub enum MemoryError {
    #[error("cannot map {size} bytes of guest memory at offset {offset} of its file")]
    Map { size: u64, offset: u64, source: vm_memory::mmap::MmapRegionError },
    #[error(
        "memory in a file that is not in memory; use memfd, tmpfs, hugetlbfs or a BPF \
             array"
    )]
    NotMemory,
    #[error("{size} bytes of memory; a VM may have {most} ([daemon] max_memory_gib_per_vm)")]
    TooMuch { size: u128, most: u64 },
    #[error("log of {size} bytes; it may have {most}")]
    LogTooLong { size: usize, most: usize },
    #[error("{size} bytes of memory do not fit beside other VMs' into the daemon's {MOST}")]
    NoRoom { size: u64 },
    #[error("memory region cannot be used: {0}")]
    File(#[from] io::Error),
    #[error("{size} bytes at offset {offset} are no whole pages of {page} bytes")]
    Pages { size: u64, offset: u64, page: u64 },
    #[error("memory region at {0:#x} overflows")]
    Overflow(u64),
    #[error("invalid memory regions: expected at least one, and none that overlaps another: {0}")]
    Regions(#[from] vm_memory::GuestRegionCollectionError),
    #[error("address {0:#x} of the front end lies in no memory region")]
    Unmapped(u64),
    #[error("{size} bytes at guest address {address:#x} are not in one memory region")]
    Outside { address: u64, size: usize },
    #[error("guest address {0:#x} is no multiple of 8")]
    Misaligned(u64),
}

/// Bytes of a page of a file, if that is in memory: any other could wait for a
/// disk, or for whoever serves it (FUSE, NFS), when it is touched.
pub fn page_size(file: &File) -> Result<u64, MemoryError> {
    if !foreign::is_memory(file) {
        return Err(MemoryError::NotMemory);
    }
    let there = rustix::fs::fstatfs(file).map_err(io::Error::from)?;
    // The number has 32 bits, whatever the kernel's type for it.
    let huge = u64::from(there.f_type as u32) == HUGETLBFS;
    Ok(if huge { there.f_bsize as u64 } else { PAGE })
}

/// Faults in a mapping of the front end's are its VM's trouble.
pub fn guard<B: NewBitmap>(mapped: &MmapRegion<B>, page: u64) -> io::Result<Guard> {
    let start = mapped.as_ptr() as usize;
    Guard::new(start..start + mapped.size(), page as usize)
}
