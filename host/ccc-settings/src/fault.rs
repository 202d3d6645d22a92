// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is wrong with a value that an operator wrote.
use std::fmt;

use serde_json::Value;
use thiserror::Error;

/// A value that cannot be used: what it is of, what was expected, what was got and, where
/// that does not say it all, what to do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field, such as `rules[1].group`; `body` for the whole.
    pub field: String,
    /// What can stand there, with its range.
    pub expected: String,
    /// What stands there, as JSON; `nothing` if the field is missing.
    pub got: String,
    /// What to do about it, if the rest does not say so.
    pub remedy: Option<String>,
}

impl Fault {
    /// What was got where nobody knows the field.
    pub(crate) const UNKNOWN: &str = "an unknown key";

    /// A value that is not what was expected.
    pub fn new(field: &str, expected: impl Into<String>, got: &Value) -> Fault {
        Fault {
            field: field.to_owned(),
            expected: expected.into(),
            got: got.to_string(),
            remedy: None,
        }
    }

    /// A field that is not there.
    pub fn missing(field: &str, expected: impl Into<String>) -> Fault {
        Fault { got: "nothing".to_owned(), ..Fault::new(field, expected, &Value::Null) }
    }

    /// A field that nobody knows.
    pub fn unknown(field: &str, expected: impl Into<String>) -> Fault {
        Fault { got: Fault::UNKNOWN.to_owned(), ..Fault::missing(field, expected) }
    }

    /// The same, and what to do about it.
    pub fn remedy(self, remedy: impl Into<String>) -> Fault {
        Fault { remedy: Some(remedy.into()), ..self }
    }

    /// The same, of a field below `place`.
    pub fn below(self, place: &str) -> Fault {
        let field =
            if self.field == "body" { place.to_owned() } else { format!("{place}.{}", self.field) };
        Fault { field, ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { field, expected, got, remedy } = self;
        write!(f, "invalid {field}: expected {expected}, got {got}")?;
        remedy.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}
