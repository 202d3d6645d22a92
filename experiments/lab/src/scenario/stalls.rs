// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VM whose processor stands still at times, as those of a busy host do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field::Field;
use super::path::MAX_DELAY_MS;
use crate::error::Result;

/// Times at which a VM stands still by turns with times at which it runs, each
/// evenly between two bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stalls {
    /// Milliseconds from the end of one to the beginning of the next.
    pub every_ms: [f64; 2],
    /// Milliseconds that each lasts.
    pub for_ms: [f64; 2],
}

impl Stalls {
    pub(super) fn check(&self, at: &Field) -> Result<()> {
        for (name, [low, high]) in [("every_ms", self.every_ms), ("for_ms", self.for_ms)] {
            at.element(name, 0).above_zero(low, MAX_DELAY_MS, "ms")?;
            at.element(name, 1).within(high, low, MAX_DELAY_MS, "ms")?;
        }
        Ok(())
    }
}
