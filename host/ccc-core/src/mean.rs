// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The mean of what the flows of a group count.
use crate::{fixed::Fraction, flow::Contribution};

/// The mean of all VMs' units for one of priority, by their weights: where shares are
/// rates, the mean round-trip time in microseconds, and 1 where they are windows.  So
/// the aggregate window over it is the sum of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MeanUnits {
    /// Sum of the VMs' means times their weights, and of these.
    pub(crate) effective: u64,
    pub(crate) weight: u64,
}

impl MeanUnits {
    /// Where shares are rates, microseconds.
    pub(crate) fn us(self) -> u64 {
        self.effective / self.weight.max(1)
    }

    /// So much more for each.
    pub(crate) fn plus(self, units: u64) -> MeanUnits {
        let more = units.saturating_mul(self.weight);
        MeanUnits { effective: self.effective.saturating_add(more), ..self }
    }

    /// This mean as a multiple of what a flow counts for its priority.
    pub(crate) fn over_own(self, flow: &Contribution) -> Fraction {
        self.over(MeanUnits { effective: flow.units, weight: flow.priority })
    }

    /// This mean as a multiple of `other`.
    pub(crate) fn over(self, other: MeanUnits) -> Fraction {
        let wide = |a, b| u128::from(a) * u128::from(b);
        Fraction::new(wide(self.effective, other.weight), wide(other.effective, self.weight))
    }
}
