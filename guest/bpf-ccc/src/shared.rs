// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that others use at the same time: the program's tables, and queues.
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64},
};

use rustix::mm::{MapFlags, ProtFlags};

/// A mapping of a file, for reading and writing.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<u8>,
    bytes: usize,
}

/// A number that others may read and write at any time.
pub trait Word {}
impl Word for AtomicU8 {}
impl Word for AtomicU16 {}
impl Word for AtomicU32 {}
impl Word for AtomicU64 {}

impl Shared {
    /// Maps the beginning of a file.
    pub fn map(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Shared> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the addresses, so nothing else is there.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, flags, file.as_fd(), 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Shared { start, bytes })
    }

    /// The word at an offset.
    ///
    /// # Panics
    /// If it is not in the mapping, or not aligned: offsets are ours.
    pub fn at<T: Word>(&self, offset: usize) -> &T {
        let end = offset.checked_add(size_of::<T>());
        assert!(end.is_some_and(|end| end <= self.bytes) && offset % align_of::<T>() == 0);
        // SAFETY: it lies in the mapping, which lives as long as the borrow, is aligned as
        // pages are, and every bit pattern of an atomic integer is one.
        unsafe { self.start.add(offset).cast::<T>().as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped by us, and borrows of it have ended.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
