// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A field of a scenario file: its path, and how a bad value of it is refused.

use std::fmt::Display;

use crate::error::{LabError, Result};

/// The path of a field, such as `vms[1].flows[0].count`.
#[derive(Debug, Clone, Default)]
pub struct Field(String);

impl Field {
    /// The scenario itself.
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
        let field = if self.0.is_empty() { "scenario".to_owned() } else { self.0.clone() };
        Err(LabError::Scenario { field, reason: format!("expected {expected}, got {got}") })
    }

    /// Refuses what cannot be read here. serde says what it got before what it
    /// expected, and names some of it as Rust does.
    pub fn refuse_unread<T>(&self, error: &serde_json::Error) -> Result<T> {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let told = error.to_string();
        let told = told.strip_suffix(&place).unwrap_or(&told);
        if !error.is_data() {
            return self.refuse("JSON", format!("{told}{place}"));
        }
        if let Some(missing) = told.strip_prefix("missing field ") {
            return self.refuse(format!("the field {missing}"), format!("none{place}"));
        }
        let (got, expected) = told.rsplit_once(", expected ").unwrap_or((told, "each field once"));
        let kinds = ["invalid type: ", "invalid value: ", "invalid "];
        let got = kinds.iter().find_map(|kind| got.strip_prefix(kind)).unwrap_or(got);
        self.refuse(plain(expected), format!("{got}{place}"))
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

/// What serde expects, in words for those who write scenarios.
fn plain(expected: &str) -> String {
    match expected {
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" => "a whole number from 0".to_owned(),
        "f64" => "a number".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        other if other.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
