// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Rates as operators write them.
use serde_json::{Value, json};

/// What settings that are rates end in: they are numbers of Mbit/s.
pub const RATE: &str = "_mbit";

/// Units of a rate, as `tc` has them, as powers of ten of a Mbit/s.
const UNITS: [(&str, i32); 5] = [("kbit", -3), ("mbit", 0), ("gbit", 3), ("tbit", 6), ("bit", -6)];

/// A rate in Mbit/s, in bytes a second.
pub fn bytes_of_mbit(mbit: f64) -> u64 {
    (mbit * 1e6 / 8.0) as u64
}

/// A rate with its unit, as a number of Mbit/s: `10gbit`.
pub(crate) fn with_unit(text: &str) -> Option<Value> {
    let text = text.to_ascii_lowercase();
    let (number, power) =
        UNITS.iter().find_map(|(unit, power)| Some((text.strip_suffix(unit)?, *power)))?;
    // No `inf`, no `nan`, and no sign that is far from its digits.
    let plain = number.trim_end();
    if !plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    // The point is moved in what was written: a product would be rounded, below the least cap
    // or to what nobody wrote.
    let (digits, own) = plain
        .split_once('e')
        .map_or(Some((plain, 0)), |(digits, own)| Some((digits, own.parse::<i32>().ok()?)))?;
    let power = power.checked_add(own)?;
    let mbit: f64 = format!("{digits}e{power}").parse().ok()?;
    // What JSON does not have would be no rate at all, which a cap may be.
    mbit.is_finite().then(|| json!(mbit))
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
            ("100000bit", 0.1),
            ("3300kbit", 3.3),
            ("1e3kbit", 1.0),
        ] {
            assert_eq!(read(text), Some(mbit), "{text}");
        }
        for text in ["10", "gbit", "-1gbit", "1gb", "1gbps", "infgbit", "nanmbit", "1,5gbit", ""] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
