// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Paths that name one place, whatever directory a program runs in.
//!
//! They go down only, so that two that differ are two places, and are one line of a log.
use std::{ops::Deref, path::Path};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Fault;

/// A path of at most `MAX` bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub struct PlainPath<const MAX: usize>(String);

/// Where a Unix socket can be (`sun_path` of unix(7), without its last zero).
pub type SocketPath = PlainPath<107>;
/// Where a file can be (`PATH_MAX` without its last zero).
pub type FilePath = PlainPath<4095>;

impl<const MAX: usize> PlainPath<MAX> {
    /// What it has to be.
    pub fn expected() -> String {
        format!(
            "an absolute path of at most {MAX} bytes, without `.`, `..`, empty parts and control \
             characters"
        )
    }

    /// Reads the path of a field.
    pub fn read(field: &str, value: Option<Value>) -> Result<PlainPath<MAX>, Fault> {
        let expected = PlainPath::<MAX>::expected;
        let value = value.ok_or_else(|| Fault::missing(field, expected()))?;
        serde_json::from_value(value.clone()).map_err(|_| Fault::new(field, expected(), &value))
    }
}

impl<const MAX: usize> TryFrom<String> for PlainPath<MAX> {
    type Error = String;

    fn try_from(path: String) -> Result<PlainPath<MAX>, String> {
        let goes_down = |path: &str| path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let plain = path.len() <= MAX
            && !path.chars().any(char::is_control)
            && path.strip_prefix('/').is_some_and(goes_down);
        if plain { Ok(PlainPath(path)) } else { Err(PlainPath::<MAX>::expected()) }
    }
}

impl<const MAX: usize> Deref for PlainPath<MAX> {
    type Target = Path;

    fn deref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl<const MAX: usize> JsonSchema for PlainPath<MAX> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Path{MAX}").into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let title = PlainPath::<MAX>::expected();
        schemars::json_schema!({"type": "string", "maxLength": MAX, "title": title})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_one_place() {
        let is = |path: &str| SocketPath::try_from(path.to_owned()).is_ok();
        let long = format!("/{}", "s".repeat(107));
        assert!(is("/run/a,b,,c") && is(&long[..107]));
        for path in
            ["", "s", "./s", "/", "/run/", "/run/../s", "/run/./s", "/run//s", "/a\nb", &long]
        {
            assert!(!is(path), "{path:?}");
        }
        assert!(FilePath::try_from(long).is_ok());
    }
}
