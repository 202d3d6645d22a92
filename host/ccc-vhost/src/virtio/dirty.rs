// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pages written while a VM migrates.
//!
//! A front end that migrates its VM copies memory while this device writes to
//! it, and has to be told what it must copy again: in a bitmap that it shares, a
//! bit for each page of guest addresses.
use std::{
    cell::RefCell,
    fs::File,
    rc::Rc,
    sync::atomic::{AtomicU8, Ordering},
};

use vm_memory::{
    FileOffset, MmapRegion, VolatileMemory,
    bitmap::{Bitmap, BitmapSlice, NewBitmap, WithBitmapSlice},
};

use crate::{
    event_loop::foreign::{self, Foreign},
    virtio::fault::Guard,
    virtio::region::{self, MemoryError, PAGE},
};

/// Bytes of a bitmap: enough for 32 TiB of guest addresses.
const MOST: usize = 1 << 30;

/// Where writes are noted, if the front end wants that.  All copies are one.
#[derive(Clone, Debug, Default)]
pub struct Log(Rc<RefCell<Option<Bits>>>);

/// The bitmap of a front end.
#[derive(Debug)]
struct Bits {
    // Before the mapping, for it is to go first.
    guard: Guard,
    mapped: MmapRegion<()>,
    // The last to be closed.
    _file: Foreign<File>,
}

impl Log {
    /// Notes writes in this file from now on.
    pub fn begin(&self, file: File, offset: u64, length: usize) -> Result<(), MemoryError> {
        if length > MOST {
            return Err(MemoryError::LogTooLong { size: length, most: MOST });
        }
        let page = region::page_size(&file)?;
        let held = foreign::hold(&file)?;
        let mapped = MmapRegion::from_file(FileOffset::new(file, offset), length)
            .map_err(|source| MemoryError::Map { size: length as u64, offset, source })?;
        let guard = region::guard(&mapped, page)?;
        *self.0.borrow_mut() = Some(Bits { guard, mapped, _file: held });
        Ok(())
    }

    /// Some of it was not there when a write was noted.
    pub fn faulted(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|bits| bits.guard.hit())
    }

    /// Notes no more.
    pub fn end(&self) {
        *self.0.borrow_mut() = None;
    }

    /// What is behind the end of the bitmap the front end does not migrate.
    fn mark(&self, address: u64, length: usize) {
        let bits = self.0.borrow();
        let (Some(bits), Some(last)) = (bits.as_ref(), (length as u64).checked_sub(1)) else {
            return;
        };
        for page in address / PAGE..=address.saturating_add(last) / PAGE {
            let Ok(byte) = usize::try_from(page / 8) else { return };
            let Ok(byte) = bits.mapped.get_atomic_ref::<AtomicU8>(byte) else { return };
            // The front end takes the bits before it copies the page, so what
            // was written before this is in its copy.
            byte.fetch_or(1 << (page % 8), Ordering::SeqCst);
        }
    }
}

/// A part of guest memory whose writes are noted.
#[derive(Clone, Debug, Default)]
pub struct Dirty {
    log: Log,
    start: u64,
}

impl Dirty {
    /// The part that begins at a guest address.
    pub fn new(log: &Log, start: u64) -> Dirty {
        Dirty { log: log.clone(), start }
    }

    /// What begins there within it, to be kept.
    pub fn part(&self, offset: usize) -> Dirty {
        Dirty::new(&self.log, self.start.saturating_add(offset as u64))
    }
}

impl<'a> WithBitmapSlice<'a> for Dirty {
    type S = DirtySlice<'a>;
}

impl Bitmap for Dirty {
    fn mark_dirty(&self, offset: usize, length: usize) {
        self.log.mark(self.start.saturating_add(offset as u64), length);
    }

    /// The front end takes the marks away, so nobody asks here.
    fn dirty_at(&self, _offset: usize) -> bool {
        false
    }

    fn slice_at(&self, offset: usize) -> DirtySlice<'_> {
        DirtySlice { log: &self.log, start: self.start.saturating_add(offset as u64) }
    }
}

/// The same while it is borrowed, which each access does: counting who has the log costs more
/// than the access.
#[derive(Clone, Copy, Debug)]
pub struct DirtySlice<'a> {
    log: &'a Log,
    start: u64,
}

impl WithBitmapSlice<'_> for DirtySlice<'_> {
    type S = Self;
}

impl BitmapSlice for DirtySlice<'_> {}

impl Bitmap for DirtySlice<'_> {
    fn mark_dirty(&self, offset: usize, length: usize) {
        self.log.mark(self.start.saturating_add(offset as u64), length);
    }

    fn dirty_at(&self, _offset: usize) -> bool {
        false
    }

    fn slice_at(&self, offset: usize) -> Self {
        DirtySlice { start: self.start.saturating_add(offset as u64), ..*self }
    }
}

impl NewBitmap for Dirty {
    /// Memory that no front end migrates.
    fn with_len(_length: usize) -> Dirty {
        Dirty::default()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn pages_written_are_marked_up_to_the_end_of_the_bitmap() {
        let memfd = rustix::fs::memfd_create(c"log", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(memfd.expect("file"));
        file.set_len(4096 + 8).expect("length");
        let log = Log::default();
        let region = Dirty::new(&log, 0x10_000);
        region.mark_dirty(0, 1);
        log.begin(file.try_clone().expect("file"), 4096, 8).expect("mapped");
        region.mark_dirty(0x1ff8, 16);
        region.slice_at(0x4000).slice_at(0x1000).mark_dirty(8, 1);
        region.part(0x6000).mark_dirty(8, 1);
        region.mark_dirty(0, 0);
        region.mark_dirty(0x100_0000, 8);
        region.mark_dirty(usize::MAX, usize::MAX);
        let marked = |file: &File| {
            let mut bits = [0; 8];
            file.read_exact_at(&mut bits, 4096).expect("bits");
            u64::from_le_bytes(bits)
        };
        assert_eq!(marked(&file), 1 << 0x11 | 1 << 0x12 | 1 << 0x15 | 1 << 0x16);
        log.end();
        region.mark_dirty(0, 1);
        assert_eq!(marked(&file), 1 << 0x11 | 1 << 0x12 | 1 << 0x15 | 1 << 0x16);
    }
}
