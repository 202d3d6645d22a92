// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The calendar all clients share: who wants to run when, and who runs.
//!
//! Layout and rules are those of the kernel's `um_timetravel.h`. The
//! controller owns slot 0 and never asks for run time; the clients' slots
//! begin at 1. Each side writes only while the other is known to wait, so
//! relaxed order suffices: the messages on the sockets are the fences.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{Context, Result};

const VERSION: u32 = 2;
const HEADER: usize = 4096;
const SLOT: usize = 128;
/// Capability: the client reads and writes the calendar itself.
const CAP_TIME_SHARE: u32 = 1;
/// Flag: `req_time` holds a request.
const REQ_RUN: u32 = 1;

#[repr(C)]
struct Header {
    version: AtomicU32,
    len: AtomicU32,
    free_until: AtomicU64,
    current_time: AtomicU64,
    running_id: AtomicU16,
    max_clients: AtomicU16,
}

#[repr(C)]
struct Slot {
    capa: AtomicU32,
    flags: AtomicU32,
    req_time: AtomicU64,
    name: AtomicU64,
}

/// The controller's side of the shared memory.
pub struct Calendar {
    map: NonNull<u8>,
    len: usize,
    file: OwnedFd,
    clients: u16,
}

impl Calendar {
    /// Makes a calendar for clients 1 to `clients`; time is 0.
    pub fn new(clients: u16) -> Result<Self> {
        let len = HEADER + SLOT * (usize::from(clients) + 1);
        let file =
            memfd_create(c"calendar", MFdFlags::MFD_CLOEXEC).context(|| "memfd_create".into())?;
        nix::unistd::ftruncate(&file, len as i64).context(|| "sizing the calendar".into())?;
        let size = NonZeroUsize::new(len).expect("the header is not empty");
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping of our own file; nothing else is there.
        let map = unsafe { mmap(None, size, prot, MapFlags::MAP_SHARED, &file, 0) }
            .context(|| "mapping the calendar".into())?
            .cast();
        let calendar = Self { map, len, file, clients };
        let header = calendar.header();
        header.version.store(VERSION, Relaxed);
        header.len.store(len as u32, Relaxed);
        header.max_clients.store(clients + 1, Relaxed);
        calendar.slot(0).capa.store(CAP_TIME_SHARE, Relaxed);
        Ok(calendar)
    }

    /// The file clients map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Simulated time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.header().current_time.load(Relaxed)
    }

    /// Makes the running client stop before anything later than now.
    pub fn hold(&self) {
        self.header().free_until.store(self.now(), Relaxed);
    }

    /// Makes the running client stop at `time`, if it would run longer.
    pub fn stop_at(&self, time: u64) {
        self.header().free_until.fetch_min(time, Relaxed);
    }

    /// Lets time go on to `time` while nobody runs.
    pub fn advance(&self, time: u64) {
        self.header().current_time.fetch_max(time, Relaxed);
        self.hold();
    }

    /// Notes who a client says it is.
    pub fn set_name(&self, id: u16, name: u64) {
        self.slot(id).name.store(name, Relaxed);
    }

    /// Enters a request a client sent as a message.
    pub fn request(&self, id: u16, time: u64) {
        let slot = self.slot(id);
        slot.req_time.store(time, Relaxed);
        slot.flags.fetch_or(REQ_RUN, Relaxed);
        self.header().free_until.fetch_min(time, Relaxed);
    }

    /// Forgets a client that is gone.
    pub fn withdraw(&self, id: u16) {
        self.slot(id).flags.fetch_and(!REQ_RUN, Relaxed);
    }

    /// The earliest request; of equal ones the lowest id's.
    pub fn next(&self) -> Option<(u64, u16)> {
        (1..=self.clients).filter_map(|id| Some((self.requested(id)?, id))).min()
    }

    /// Grants `id` the time from `time` to the others' next request, at most
    /// to `limit`.
    pub fn grant(&self, id: u16, time: u64, limit: u64) {
        self.withdraw(id);
        let others = (1..=self.clients).filter_map(|other| self.requested(other)).min();
        let header = self.header();
        header.current_time.store(time, Relaxed);
        header.free_until.store(others.map_or(limit, |t| t.min(limit)), Relaxed);
        header.running_id.store(id, Relaxed);
    }

    fn requested(&self, id: u16) -> Option<u64> {
        let slot = self.slot(id);
        let asked = slot.flags.load(Relaxed) & REQ_RUN != 0;
        asked.then(|| slot.req_time.load(Relaxed))
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, at least HEADER bytes long,
        // lives as long as self, and is only read and written atomically.
        unsafe { self.map.cast().as_ref() }
    }

    fn slot(&self, id: u16) -> &Slot {
        assert!(id <= self.clients);
        // SAFETY: slot `id` is inside the mapping (checked above) and aligned;
        // for the rest see header().
        unsafe { self.map.add(HEADER + SLOT * usize::from(id)).cast().as_ref() }
    }
}

impl Drop for Calendar {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference outlives self. A
        // failure would only leak it.
        let _ = unsafe { munmap(self.map.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_request_is_next_and_ties_go_to_the_lowest_id() {
        let calendar = Calendar::new(3).expect("calendar");
        assert_eq!(calendar.next(), None);
        calendar.request(3, 50);
        calendar.request(2, 50);
        assert_eq!(calendar.next(), Some((50, 2)));
        calendar.request(1, 70);
        assert_eq!(calendar.next(), Some((50, 2)));
        calendar.withdraw(2);
        assert_eq!(calendar.next(), Some((50, 3)));
    }

    #[test]
    fn a_grant_lasts_to_the_others_next_request() {
        let calendar = Calendar::new(2).expect("calendar");
        calendar.request(1, 10);
        calendar.request(2, 40);
        calendar.grant(1, 10, 1000);
        assert_eq!(calendar.now(), 10);
        assert_eq!(calendar.header().free_until.load(Relaxed), 40);
        assert_eq!(calendar.header().running_id.load(Relaxed), 1);
        assert_eq!(calendar.next(), Some((40, 2)));
    }

    #[test]
    fn a_grant_ends_at_the_limit() {
        let calendar = Calendar::new(2).expect("calendar");
        calendar.request(2, u64::MAX / 2);
        calendar.grant(1, 10, 1000);
        assert_eq!(calendar.header().free_until.load(Relaxed), 1000);
        calendar.hold();
        assert_eq!(calendar.header().free_until.load(Relaxed), 10);
    }

    #[test]
    fn a_new_request_shortens_the_grant() {
        let calendar = Calendar::new(2).expect("calendar");
        calendar.grant(1, 10, 1000);
        calendar.request(2, 30);
        assert_eq!(calendar.header().free_until.load(Relaxed), 30);
    }
}
