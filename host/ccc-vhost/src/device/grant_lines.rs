// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Grant lines: what the engine grants a VM in each group, written into its memory.
use ccc_core::Grant;
use ccc_proto::{
    wire::{self, GrantLine},
    write_grant_line,
};

use crate::{
    device::engine::FlowEngine,
    virtio::chain::{Array, change},
    virtio::memory::Mapping,
    virtio::region::MemoryError,
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
}

impl GrantLines {
    /// The line of a group for one more flow; a new one if there is one left of the
    /// `offered`.
    pub fn acquire(&mut self, group: usize, offered: usize) -> Option<u16> {
        let fresh = || Used { group, flows: 0, written: None };
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
        mapping: &Mapping,
        array: &Array,
        engine: &dyn FlowEngine,
        vm: usize,
    ) -> Result<u64, MemoryError> {
        let mut count = 0;
        for (index, used) in self.used.iter_mut().enumerate() {
            let Some(address) = array.address(index) else { continue };
            let grant = engine.grant(vm, used.group);
            let line = line(used.group, &grant, engine.report_interval_us(vm));
            if used.written != Some(line) {
                change(mapping, address, |words| write_grant_line(words, &line))?;
                used.written = Some(line);
                count += 1;
            }
        }
        Ok(count)
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
    use super::*;

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
