// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Grant lines: what the engine grants a VM in each group, written into its memory.
use std::sync::atomic::AtomicU64;

use ccc_core::Grant;
use ccc_proto::{
    GRANT_LINE_WORDS,
    wire::{self, GrantLine},
    write_grant_line,
};
use vm_memory::GuestAddress;

use crate::{
    device::engine::Grants,
    virtio::{chain::Location, memory::Memory, region::MemoryError},
};

/// The grant lines of one VM: the first group it uses has line 0, and so on.  A line
/// no flow uses any more is another group's when none is left.
#[derive(Debug, Default)]
pub struct GrantLines {
    used: Vec<Used>,
}

#[derive(Debug)]
struct Used {
    group: usize,
    flows: u32,
    /// What was last written.
    written: Option<GrantLine>,
    /// Where that is; who releases the extent has all lines forgotten.
    location: Option<Location<GRANT_LINE_WORDS>>,
}

impl GrantLines {
    /// The line of a group for one more flow; a new one if there is one left of the
    /// `offered`.
    pub fn acquire(&mut self, group: usize, offered: usize) -> Option<u16> {
        let fresh = || Used { group, flows: 0, written: None, location: None };
        let known = self.used.iter().position(|line| line.group == group);
        let index = match known {
            Some(index) => index,
            None if self.used.len() < offered => {
                self.used.push(fresh());
                self.used.len() - 1
            }
            None => {
                let unused = self.used.iter().position(|line| line.flows == 0)?;
                self.used[unused] = fresh();
                unused
            }
        };
        self.used[index].flows += 1;
        u16::try_from(index).ok()
    }

    /// The group of a line.
    pub fn group(&self, line: u16) -> Option<usize> {
        self.used.get(usize::from(line)).map(|used| used.group)
    }

    /// A flow uses this line no longer.
    pub fn release(&mut self, line: u16) {
        if let Some(used) = self.used.get_mut(usize::from(line)) {
            used.flows = used.flows.saturating_sub(1);
        }
    }

    /// Forgets all lines.
    pub fn clear(&mut self) {
        self.used.clear();
    }

    /// Writes the lines of a VM that differ from what its guest has; their number.
    pub fn publish(
        &mut self,
        memory: &Memory,
        address_of: impl Fn(usize) -> Option<GuestAddress>,
        grants: &dyn Grants,
    ) -> Result<u64, MemoryError> {
        let mut count = 0;
        for (index, used) in self.used.iter_mut().enumerate() {
            let grant = grants.in_group(used.group);
            let line = line(used.group, &grant, grants.report_interval_us());
            if used.written != Some(line) && used.write(memory, || address_of(index), &line)? {
                count += 1;
            }
        }
        Ok(count)
    }
}

impl Used {
    /// Writes a line, unless there is no place for it.
    fn write(
        &mut self,
        memory: &Memory,
        address: impl FnOnce() -> Option<GuestAddress>,
        line: &GrantLine,
    ) -> Result<bool, MemoryError> {
        let write = |words: &[AtomicU64; GRANT_LINE_WORDS]| write_grant_line(words, line);
        let known = self.location.as_ref().is_some_and(|location| location.change(memory, write));
        if !known {
            let Some(address) = address() else { return Ok(false) };
            let location = Location::find(memory, address)?;
            location.change(memory, write);
            self.location = Some(location);
        }
        self.written = Some(*line);
        Ok(true)
    }
}

fn line(group: usize, grant: &Grant, report_interval_us: u32) -> GrantLine {
    let flag = |set, flag| if set { flag } else { 0 };
    let flags = flag(grant.coupled, wire::L_COUPLED)
        | flag(grant.slow_start, wire::L_SLOW_START)
        | flag(grant.rate_shares, wire::L_RATE);
    GrantLine {
        seq: 0.into(),
        epoch: grant.epoch.into(),
        flags: flags.into(),
        rounding_offset: grant.rounding_offset.into(),
        level: grant.level.into(),
        ssthresh_level: grant.ssthresh_level.unwrap_or(wire::LEVEL_UNSET).into(),
        group: (group as u32).into(),
        report_interval_us: report_interval_us.into(),
        aggregate_level: grant.aggregate_level.into(),
        reserved: [0; 16],
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, GuestAddress};
    use zerocopy::FromBytes;

    use super::*;
    use crate::virtio::mapping::Mapping;

    /// Of every group the same level.
    struct Level(u64);

    impl Grants for Level {
        fn report_interval_us(&self) -> u32 {
            0
        }

        fn in_group(&self, _: usize) -> Grant {
            Grant { level: self.0, ..Grant::default() }
        }
    }

    fn memory() -> Memory {
        let mapping = Mapping::from_ranges(&[(GuestAddress(0), 0x1000)]);
        Memory::of_test(mapping.expect("memory"))
    }

    #[test]
    fn a_line_that_changes_is_written_to_the_memory_there_is() {
        const AT: GuestAddress = GuestAddress(0x40);
        let read = |memory: &Memory| {
            let mut bytes = [0; GRANT_LINE_WORDS * 8];
            memory.mapping().read_slice(&mut bytes, AT).expect("there");
            let line = GrantLine::read_from_bytes(&bytes).expect("a line");
            (line.level.get(), line.seq.get())
        };
        let mut lines = GrantLines::default();
        lines.acquire(0, 1);
        let mut publish = |memory: &Memory, level| {
            lines.publish(memory, |line| (line == 0).then_some(AT), &Level(level)).expect("written")
        };
        let (first, second) = (memory(), memory());
        assert_eq!([publish(&first, 5), publish(&first, 5), publish(&first, 6)], [1, 0, 1]);
        assert_eq!(publish(&second, 7), 1);
        assert_eq!((read(&first), read(&second)), ((6, 4), (7, 2)));
    }

    #[test]
    fn a_line_without_a_place_is_not_written() {
        let mut lines = GrantLines::default();
        lines.acquire(0, 1);
        assert_eq!(lines.publish(&memory(), |_| None, &Level(5)).expect("nothing"), 0);
        let outside = lines.publish(&memory(), |_| Some(GuestAddress(0x1000)), &Level(5));
        assert!(matches!(outside, Err(MemoryError::Outside { address: 0x1000, size: 64 })));
    }

    #[test]
    fn groups_get_lines_in_the_order_of_their_first_use() {
        let mut lines = GrantLines::default();
        assert_eq!(lines.acquire(7, 2), Some(0));
        assert_eq!(lines.acquire(3, 2), Some(1));
        assert_eq!(lines.acquire(7, 2), Some(0));
        assert_eq!(lines.acquire(4, 2), None);
        lines.release(0);
        assert_eq!(lines.acquire(4, 2), None, "one flow is left");
        lines.release(0);
        assert_eq!(lines.acquire(4, 2), Some(0));
    }

    #[test]
    fn a_grant_becomes_a_line() {
        let grant = Grant {
            epoch: 3,
            slow_start: true,
            coupled: true,
            level: 9,
            aggregate_level: 7,
            ..Grant::default()
        };
        let line = line(5, &grant, 70);
        assert_eq!((line.report_interval_us.get(), line.aggregate_level.get()), (70, 7));
        assert_eq!(line.flags.get(), wire::L_COUPLED | wire::L_SLOW_START);
        assert_eq!(line.ssthresh_level.get(), wire::LEVEL_UNSET);
        assert_eq!((line.epoch.get(), line.level.get(), line.group.get()), (3, 9, 5));
    }
}
