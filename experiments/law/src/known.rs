// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Findings that are known, with the reason, and how often they may be found: more is
//! a step back and fails.

/// A known finding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Which invariant.
    pub invariant: &'static str,
    /// Percent of the runs in which it may be violated.
    pub most_percent: f64,
    /// Why.
    pub reason: &'static str,
}

/// All of them.
pub const KNOWN: &[Known] = &[];
