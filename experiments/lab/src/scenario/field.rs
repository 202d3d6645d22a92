// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A field of a scenario file: its path, and how a bad value of it is refused.

use std::fmt::Display;

use crate::error::{LabError, Result};

/// The path of a field, such as `vms[1].flows[0].count`.
#[derive(Debug, Clone, Default)]
pub struct Field(String);

impl Field {
    /// The file itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// A field of this one.
    pub fn at(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{self}.{name}")) }
    }

    /// An element of a list in this field.
    pub fn element(&self, list: &str, index: usize) -> Self {
        Self(format!("{}[{index}]", self.at(list)))
    }

    /// Refuses a value.
    pub fn refuse<T>(&self, expected: impl Display, got: impl Display) -> Result<T> {
        self.because(format!("expected {expected}, got {got}"))
    }

    /// Refuses a value for a reason that says both what was expected and got.
    pub fn because<T>(&self, reason: String) -> Result<T> {
        Err(LabError::Scenario { field: self.0.clone(), reason })
    }

    /// Refuses what is not in a range; `unit` may be empty.
    pub fn within<T>(&self, value: T, least: T, most: T, unit: &str) -> Result<()>
    where
        T: PartialOrd + Display,
    {
        // Written so that not-a-number is refused too.
        if value >= least && value <= most {
            return Ok(());
        }
        let space = if unit.is_empty() { "" } else { " " };
        self.refuse(format!("{least} to {most}{space}{unit}"), value)
    }

    /// Refuses what is not above 0, or too much.
    pub fn above_zero(&self, value: f64, most: f64, unit: &str) -> Result<()> {
        if value > 0.0 && value <= most {
            return Ok(());
        }
        let space = if unit.is_empty() { "" } else { " " };
        self.refuse(format!("above 0, at most {most}{space}{unit}"), value)
    }

    /// Refuses a list whose times are not in order and within the run.
    pub fn in_order(
        &self,
        list: &str,
        times_s: impl Iterator<Item = f64>,
        duration_s: f64,
    ) -> Result<()> {
        let mut earliest = 0.0;
        for (i, at_s) in times_s.enumerate() {
            self.element(list, i).at("at_s").within(at_s, earliest, duration_s, "s")?;
            earliest = at_s;
        }
        Ok(())
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
