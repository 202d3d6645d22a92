// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The part of a table that is lent to the daemon: one extent, as docs/virtio-ccc.md has it.
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

use ccc_proto::wire::{self, ExtentStatus, GrantLine, Report, SlotGrant};
use rustix::fs::MemfdFlags;
use zerocopy::{FromBytes, IntoBytes};

use crate::shared::Shared;

const PAGE: usize = 4096;
/// Attempts to read what is being written.
const TRIES: usize = 8;

/// How it is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Slots.
    pub slots: u32,
    /// Grant lines.
    pub lines: u32,
    /// Where the part begins that the daemon writes.
    pub grants_offset: usize,
    /// Bytes that are lent, of whole pages.
    pub bytes: usize,
}

impl Layout {
    /// The one of a table that has nothing else.
    pub fn of(slots: u32, lines: u32) -> Layout {
        let grants_offset = slots as usize * size_of::<Report>();
        let layout = Layout { slots, lines, grants_offset, bytes: 0 };
        let bytes = (grants_offset + layout.grants_bytes()).next_multiple_of(PAGE);
        Layout { bytes, ..layout }
    }

    /// Bytes of the reports.
    pub fn reports_bytes(&self) -> usize {
        self.slots as usize * size_of::<Report>()
    }

    /// Bytes of what the daemon writes.
    pub fn grants_bytes(&self) -> usize {
        self.slot_grant(self.slots) - self.grants_offset
    }

    fn report(&self, slot: u32) -> usize {
        slot as usize * size_of::<Report>()
    }

    fn line(&self, line: u32) -> usize {
        self.grants_offset + size_of::<ExtentStatus>() + line as usize * size_of::<GrantLine>()
    }

    fn slot_grant(&self, slot: u32) -> usize {
        self.line(self.lines) + slot as usize * size_of::<SlotGrant>()
    }
}

/// A table whose first part is lent.
#[derive(Debug)]
pub struct Lent {
    file: OwnedFd,
    memory: Shared,
    layout: Layout,
}

impl Lent {
    /// A new one, of zeroes.
    pub fn create(layout: Layout) -> io::Result<Lent> {
        let file = File::from(rustix::fs::memfd_create(c"ccc-table", MemfdFlags::CLOEXEC)?);
        file.set_len(layout.bytes as u64)?;
        Lent::map(file.into(), layout, layout.bytes)
    }

    /// One that is in a file, with what follows it there.
    pub fn map(file: OwnedFd, layout: Layout, bytes: usize) -> io::Result<Lent> {
        let memory = Shared::map(file.as_fd(), bytes)?;
        Ok(Lent { file, memory, layout })
    }

    /// What the daemon maps.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// All that is mapped.
    pub fn memory(&self) -> &Shared {
        &self.memory
    }

    /// How it is laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The daemon has accepted the table.
    pub fn is_accepted(&self) -> bool {
        self.status().status.get() == wire::EXTENT_ACCEPTED
    }

    /// It is offered anew: nothing is accepted.
    pub fn withdraw(&self) {
        let status = self.memory.at::<AtomicU32>(self.layout.grants_offset);
        status.store(wire::EXTENT_PENDING, Ordering::Release);
    }

    /// No grant is known any more.  The lines' counts go on: one that began anew would come to what
    /// a flow remembers, which would then take the new line for that of before.
    pub fn forget_grants(&self) {
        self.withdraw();
        for line in 0..self.layout.lines {
            self.set_line(line, &zerocopy::transmute!([0u8; size_of::<GrantLine>()]));
        }
        for slot in 0..self.layout.slots {
            self.set_slot_grant(slot, &zerocopy::transmute!([0u8; size_of::<SlotGrant>()]));
        }
    }

    /// Whether it was accepted, and by which instance of the device.
    pub fn status(&self) -> ExtentStatus {
        let mut status: ExtentStatus = zerocopy::transmute!([0u8; 64]);
        let word = self.memory.at::<AtomicU64>(self.layout.grants_offset).load(Ordering::Acquire);
        status.as_mut_bytes()[..8].copy_from_slice(&word.to_ne_bytes());
        status
    }

    /// Says what the daemon says of the table.
    pub fn set_status(&self, status: &ExtentStatus) {
        let word = word(&status.as_bytes()[..8]);
        self.memory.at::<AtomicU64>(self.layout.grants_offset).store(word, Ordering::Release);
    }

    /// A report, unless it is being written.
    pub fn report(&self, slot: u32) -> Option<Report> {
        self.read(self.layout.report(slot))
    }

    /// Puts a report into its slot.
    pub fn set_report(&self, slot: u32, report: &Report) {
        self.write(self.layout.report(slot), report.as_bytes());
    }

    /// A grant line, unless it is being written.
    pub fn line(&self, line: u32) -> Option<GrantLine> {
        self.read(self.layout.line(line))
    }

    /// Puts a grant line into its place.
    pub fn set_line(&self, number: u32, line: &GrantLine) {
        self.write(self.layout.line(number), line.as_bytes());
    }

    /// The answer to a slot.
    pub fn slot_grant(&self, slot: u32) -> SlotGrant {
        let at = self.layout.slot_grant(slot);
        let mut grant: SlotGrant = zerocopy::transmute!([0u8; 16]);
        // Generation, line and flags are one word.
        for offset in [0, 8] {
            let word = self.memory.at::<AtomicU64>(at + offset).load(Ordering::Acquire);
            grant.as_mut_bytes()[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
        }
        grant
    }

    /// Puts an answer into its place.
    pub fn set_slot_grant(&self, slot: u32, grant: &SlotGrant) {
        let at = self.layout.slot_grant(slot);
        for offset in [8, 0] {
            let word = word(&grant.as_bytes()[offset..offset + 8]);
            self.memory.at::<AtomicU64>(at + offset).store(word, Ordering::Release);
        }
    }

    /// What is behind a sequence count, in one piece.
    fn read<T: FromBytes + IntoBytes>(&self, at: usize) -> Option<T> {
        let count = self.memory.at::<AtomicU32>(at);
        for _ in 0..TRIES {
            let before = u32::from_le(count.load(Ordering::Acquire));
            let mut read = T::new_zeroed();
            for (index, bytes) in read.as_mut_bytes().chunks_exact_mut(8).enumerate() {
                let word = self.memory.at::<AtomicU64>(at + 8 * index).load(Ordering::Relaxed);
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
            fence(Ordering::Acquire);
            let after = u32::from_le(count.load(Ordering::Relaxed));
            if before & 1 == 0 && before == after {
                return Some(read);
            }
        }
        None
    }

    /// Writes what is behind a sequence count, with a count of its own.
    fn write(&self, at: usize, bytes: &[u8]) {
        let count = self.memory.at::<AtomicU32>(at);
        let odd = u32::from_le(count.load(Ordering::Relaxed)) | 1;
        count.store(odd.to_le(), Ordering::Relaxed);
        fence(Ordering::Release);
        let first = u32::from_ne_bytes(bytes[4..8].try_into().unwrap_or_default());
        self.memory.at::<AtomicU32>(at + 4).store(first, Ordering::Relaxed);
        for (index, bytes) in bytes.chunks_exact(8).enumerate().skip(1) {
            self.memory.at::<AtomicU64>(at + 8 * index).store(word(bytes), Ordering::Relaxed);
        }
        count.store(odd.wrapping_add(1).to_le(), Ordering::Release);
    }
}

/// Eight bytes, as they are in memory.
fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent() -> Lent {
        Lent::create(Layout::of(64, 4)).expect("memory")
    }

    #[test]
    fn what_is_put_is_there_and_nothing_else() {
        let lent = lent();
        let mut report = Report::FREE;
        (report.generation, report.state) = (7.into(), wire::STATE_CA);
        lent.set_report(3, &report);
        let read = lent.report(3).expect("a report");
        assert_eq!((read.generation, read.state, read.seq.get()), (7.into(), wire::STATE_CA, 2));
        let mut line: GrantLine = zerocopy::transmute!([0u8; 64]);
        (line.level, line.seq) = (9.into(), 77.into());
        lent.set_line(3, &line);
        let read = lent.line(3).expect("a line");
        assert_eq!((read.level.get(), read.seq.get()), (9, 2), "it counts by itself");
        let mut grant: SlotGrant = zerocopy::transmute!([0u8; 16]);
        (grant.generation, grant.cap_bytes) = (7.into(), wire::CAP_NONE.into());
        lent.set_slot_grant(63, &grant);
        assert_eq!(lent.slot_grant(63), grant);
        assert_eq!(lent.report(2), Some(Report::FREE));
        assert_eq!(lent.slot_grant(62), zerocopy::transmute!([0u8; 16]));
    }

    #[test]
    fn what_is_being_written_is_not_read() {
        let lent = lent();
        lent.memory.at::<AtomicU32>(0).store(1u32.to_le(), Ordering::Relaxed);
        assert_eq!(lent.report(0), None);
    }

    #[test]
    fn grants_are_forgotten() {
        let lent = lent();
        let mut status = lent.status();
        status.status = wire::EXTENT_ACCEPTED.into();
        lent.set_status(&status);
        let mut line: GrantLine = zerocopy::transmute!([0u8; 64]);
        line.level = 9.into();
        lent.set_line(0, &line);
        let mut grant: SlotGrant = zerocopy::transmute!([0u8; 16]);
        grant.generation = 7.into();
        lent.set_slot_grant(63, &grant);
        assert!(lent.is_accepted());
        lent.forget_grants();
        assert!(!lent.is_accepted());
        let forgotten = lent.line(0).expect("a line");
        assert_eq!((forgotten.level.get(), forgotten.flags.get()), (0, 0));
        assert_eq!(lent.slot_grant(63), zerocopy::transmute!([0u8; 16]));
    }

    #[test]
    fn a_line_after_a_reconnect_has_no_count_of_before() {
        let lent = lent();
        let line: GrantLine = zerocopy::transmute!([0u8; 64]);
        let count = || lent.line(0).expect("a line").seq.get();
        lent.set_line(0, &line);
        let before = count();
        lent.forget_grants();
        let forgotten = count();
        lent.set_line(0, &line);
        assert!(before < forgotten && forgotten < count());
    }
}
