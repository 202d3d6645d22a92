// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Findings that are known, with the reason, and how often they may be found: more is
//! a step back and fails.
use std::{io, path::Path};

use serde::Deserialize;

/// A known finding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Which invariant.
    pub invariant: String,
    /// Percent of the runs in which it may be violated.
    pub most_percent: f64,
    /// Why.
    pub reason: String,
}

/// Reads them.
pub fn load(path: &Path) -> io::Result<Vec<Known>> {
    let text = std::fs::read_to_string(path)?;
    Ok(serde_json::from_str(&text)?)
}
