// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest memory that is no longer there.
//!
//! The files behind guest memory are the front end's.  It can shrink them while
//! they are mapped here, punch holes in a tmpfs that is full, or hand over a
//! hugetlbfs that has no pages; the machine can lose a page to a memory error.
//! The access gets SIGBUS then, which would end the daemon for all VMs.  So the
//! addresses of all mappings of front ends are kept here, and a fault in one of
//! them gets a page of zeroes in place of what is not there: the access
//! completes, and the VM is disconnected when its turn is over.  Any other fault
//! is ours, and ends the daemon as ever.
//!
//! Why not `signal-hook`, which the daemon has for SIGTERM: it calls the handler
//! of Rust's runtime first, and that gives SIGBUS its default action back.
use std::{
    io,
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::mm::{MapFlags, ProtFlags};

/// Mappings there can be at once: memory regions and logs of all VMs.
const ENTRIES: usize = 1 << 14;

/// A mapping, in a form that can be read in a signal handler.
struct Entry {
    start: AtomicUsize,
    /// 0 if there is none.
    end: AtomicUsize,
    /// Bytes of a page of its file.
    page: AtomicUsize,
    hit: AtomicBool,
}

static TABLE: [Entry; ENTRIES] = [const {
    Entry {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        hit: AtomicBool::new(false),
    }
}; ENTRIES];
/// Entries in use lie below this.
static BOUND: AtomicUsize = AtomicUsize::new(0);
/// There was a fault since the last look.
static ANY: AtomicBool = AtomicBool::new(false);
/// Entries below the bound that are in use no longer.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A mapping in which a fault is its VM's trouble, for as long as this lives.
/// It has to go before the mapping does.
#[derive(Debug)]
pub struct Guard(usize);

impl Guard {
    /// Guards the addresses of a mapping whose file has pages of so many bytes.
    pub fn new(addresses: Range<usize>, page: usize) -> io::Result<Guard> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match free.pop() {
            Some(number) => number,
            None => {
                let number = BOUND.load(Ordering::Relaxed);
                if number == ENTRIES {
                    let why = format!("{ENTRIES} memory regions are mapped, and no more can be");
                    return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
                }
                BOUND.store(number + 1, Ordering::Release);
                number
            }
        };
        let entry = &TABLE[number];
        entry.start.store(addresses.start, Ordering::Relaxed);
        entry.page.store(page, Ordering::Relaxed);
        entry.hit.store(false, Ordering::Relaxed);
        entry.end.store(addresses.end, Ordering::Release);
        Ok(Guard(number))
    }

    /// Something in it was not there.
    pub fn hit(&self) -> bool {
        TABLE[self.0].hit.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        TABLE[self.0].end.store(0, Ordering::Release);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// There was a fault in guarded memory since this was last asked.
pub fn taken() -> bool {
    ANY.load(Ordering::Relaxed) && ANY.swap(false, Ordering::Relaxed)
}

/// Catches faults from now on, in all threads.
pub fn catch() -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the action is initialized, its mask is empty, and the handler does
    // only what is allowed in one; the old action is not asked for.
    let done = unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`; it has an address if it was
    // the kernel that sent the signal, which a positive code says.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 && mend(address) {
        return;
    }
    // SAFETY: both calls are async-signal-safe.  A fault happens again when this
    // returns, and a signal somebody sent is raised again; both end the process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

/// Puts a page of zeroes where a mapping of a front end has nothing.  Called in
/// a signal handler: it takes no lock, allocates nothing, and makes one system
/// call, which leaves `errno` alone.
fn mend(address: usize) -> bool {
    let entries = &TABLE[..BOUND.load(Ordering::Acquire).min(ENTRIES)];
    let inside = |entry: &&Entry| {
        let end = entry.end.load(Ordering::Acquire);
        (entry.start.load(Ordering::Relaxed)..end).contains(&address)
    };
    let Some(entry) = entries.iter().find(inside) else { return false };
    let page = entry.page.load(Ordering::Relaxed);
    let start = address / page * page;
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
    // SAFETY: the page is part of a mapping of a front end's file that is in
    // place as long as its guard is, and that is accessed only as memory another
    // process may change at any time, so other bytes may be there.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(start as *mut _, page, access, flags | MapFlags::NORESERVE)
    };
    entry.hit.store(true, Ordering::Relaxed);
    ANY.store(true, Ordering::Relaxed);
    mapped.is_ok()
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

    use super::*;

    #[test]
    fn f3_faults_are_mended_in_guarded_memory_only() {
        catch().expect("handler");
        let file = tempfile::tempfile().expect("file");
        file.set_len(0x3000).expect("length");
        let region: MmapRegion<()> =
            MmapRegion::from_file(FileOffset::new(file.try_clone().expect("file"), 0), 0x3000)
                .expect("mapped");
        let start = region.as_ptr() as usize;
        let guard = Guard::new(start..start + 0x3000, 0x1000).expect("guarded");
        let slice = region.as_volatile_slice();
        slice.write_obj(7u64, 0x2ff8).expect("written");
        assert!(!guard.hit());
        file.set_len(0).expect("truncated");
        assert_eq!(slice.read_obj::<u64>(0x2ff8).expect("mended"), 0);
        assert!(guard.hit() && taken());
        slice.write_obj(9u64, 0x1000).expect("mended");
        assert_eq!(slice.read_obj::<u64>(0x1000).expect("there"), 9);
        assert!(!mend(start + 0x3000), "behind the end");
        drop(guard);
        assert!(!mend(start), "no longer guarded");
        // An entry is used again, and knows nothing of what was there.
        let again = Guard::new(start..start + 0x3000, 0x1000).expect("guarded");
        assert!(!again.hit());
    }
}
