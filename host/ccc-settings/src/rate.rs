// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Rates as operators write them.
use serde_json::{Value, json};

/// What settings that are rates end in: they are numbers of Mbit/s.
pub const RATE: &str = "_mbit";

/// Units of a rate, as `tc` has them, in Mbit/s.
const UNITS: [(&str, f64); 5] =
    [("kbit", 1e-3), ("mbit", 1.0), ("gbit", 1e3), ("tbit", 1e6), ("bit", 1e-6)];

/// A rate with its unit, as a number of Mbit/s: `10gbit`.
pub(crate) fn with_unit(text: &str) -> Option<Value> {
    let text = text.to_ascii_lowercase();
    let (number, unit) =
        UNITS.iter().find_map(|(unit, mbit)| Some((text.strip_suffix(unit)?, *mbit)))?;
    // No `inf`, no `nan`, and no sign that is far from its digits.
    let plain = number.trim_end();
    let is_number = plain.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let mbit = is_number.then(|| plain.parse::<f64>().ok())??;
    Some(json!(mbit * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_tc() {
        let read = |text: &str| with_unit(text).and_then(|value| value.as_f64());
        for (text, mbit) in [
            ("10gbit", 10_000.0),
            ("1.5Mbit", 1.5),
            ("500 kbit", 0.5),
            ("1tbit", 1e6),
            ("250000bit", 0.25),
        ] {
            assert_eq!(read(text), Some(mbit), "{text}");
        }
        for text in ["10", "gbit", "-1gbit", "1gb", "1gbps", "infgbit", "nanmbit", "1,5gbit", ""] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
