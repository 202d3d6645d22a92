// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a measurement is told.

/// Numbers by name.
pub struct Options(Vec<String>);

impl Options {
    pub fn new(words: impl IntoIterator<Item = String>) -> Options {
        Options(words.into_iter().collect())
    }

    /// The number after `NAME=`.
    pub fn number(&self, name: &str) -> usize {
        let value = self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let number = value.and_then(|value| value.parse().ok());
        number.unwrap_or_else(|| panic!("invalid {name}: expected {name}=NUMBER, got {value:?}"))
    }
}
