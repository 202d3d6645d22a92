// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM is granted in a group.
use crate::config::ShareOf;

/// A VM's grant in a group: every flow derives its window from it, so one
/// change of the aggregate is one grant a VM, not one a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Changes with every reduction of the aggregate.
    pub epoch: u32,
    /// The grant is in force: the VM has an active flow in the group.
    pub coupled: bool,
    /// The aggregate is in slow start.
    pub slow_start: bool,
    /// Shares are rates: units count the smoothed round-trip time.
    pub rate_shares: bool,
    /// Where the VM's rounding begins, of 2^32.
    pub rounding_offset: u32,
    /// Window bytes for one unit, with 32 fraction bits.
    pub level: u64,
    /// The same for the slow start threshold; `None` before the first event.
    pub ssthresh_level: Option<u64>,
    /// The same as `level`, of one flow of priority 1 in the place of all.
    pub aggregate_level: u64,
}

impl Grant {
    /// What a flow's window is counted in, by its priority (8 fraction bits) and
    /// smoothed round-trip time.
    pub fn units(&self, priority: u16, srtt_us: u32) -> u64 {
        let share = if self.rate_shares { ShareOf::Rate } else { ShareOf::Window };
        share.units(priority, srtt_us)
    }

    /// Window of a flow that holds `units`, in bytes.
    pub fn cwnd_bytes(&self, units: u64) -> u64 {
        let wide = (u128::from(self.level) * u128::from(units)) >> 32;
        u64::try_from(wide).unwrap_or(u64::MAX)
    }
}

/// Where member number `member` begins to round under `epoch`.  Flows add the
/// bit-reversed number of their slot (van der Corput's sequence) before they
/// round down, so that the windows of any VM sum to its part within about one
/// segment, each flow in O(1).  VMs begin at places spread the same way, and
/// the golden ratio moves all of them with each epoch so that no flow keeps
/// the larger part for ever (B13).
pub(crate) fn rounding_offset(member: usize, epoch: u32) -> u32 {
    const GOLDEN: u32 = 0x9e37_79b9;
    (member as u32).reverse_bits().wrapping_add(epoch.wrapping_mul(GOLDEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guest's side of the rounding, as docs/virtio-ccc.md gives it.
    fn segments(grant_level: u64, units: u64, mss: u64, slot: u32, rounding_offset: u32) -> u64 {
        let bytes = (u128::from(grant_level) * u128::from(units)) >> 16;
        let segments = (bytes / u128::from(mss)) as u64;
        let offset = slot.reverse_bits().wrapping_add(rounding_offset) >> 16;
        (segments + u64::from(offset)) >> 16
    }

    #[test]
    fn windows_of_a_vm_sum_to_its_part_within_a_segment_or_two() {
        let mss = 1448;
        for flows in 1..=64_u64 {
            for tenths in 10..=60 {
                let part = flows * mss * tenths / 10;
                let level = (part << 32) / (flows * 256);
                for epoch in 0..8 {
                    let start = rounding_offset(1, epoch);
                    let sum: u64 =
                        (0..flows).map(|slot| segments(level, 256, mss, slot as u32, start)).sum();
                    let off = sum.abs_diff(part / mss);
                    assert!(off <= 2, "{flows} flows of {tenths}/10: off by {off}");
                }
            }
        }
    }

    #[test]
    fn an_enormous_level_saturates() {
        let grant = Grant { level: u64::MAX - 1, ..Grant::default() };
        assert_eq!(grant.cwnd_bytes(u64::MAX), u64::MAX);
    }
}
