// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's own choices, made by its operator once.
//!
//! ```toml
//! # /etc/ccc/cccctl.toml
//! require = false   # true: a domain that cannot be coupled does not start
//! ```
use std::{fs, io, path::Path};

use serde::Deserialize;
use thiserror::Error;

/// The host's choices.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A domain of ours that cannot be coupled does not start.
    #[serde(default)]
    pub require: bool,
}

/// Why a file's choices are not known.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is there and cannot be read.
    #[error("cannot read {path}: {source}; taken as `require = false`")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It says something else.
    #[error("{path}: {reason}; it has `require = true` or `false`, taken as false")]
    Wrong {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

impl Config {
    /// Reads a file; what is not there is as usual.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let name = || path.display().to_string();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(source) => return Err(ConfigError::Unreadable { path: name(), source }),
        };
        toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count()
            });
            ConfigError::Wrong {
                path: format!("{}:{line}", name()),
                reason: error.message().to_owned(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_and_a_wrong_one_told() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("cccctl.toml");
        assert_eq!(Config::load(&path).expect("none"), Config { require: false });
        let with = |text: &str| {
            fs::write(&path, text).expect("written");
            Config::load(&path)
        };
        assert_eq!(with("require = true\n").expect("right"), Config { require: true });
        let told = with("# a\nrequired = true\n").expect_err("no such key").to_string();
        assert!(told.contains("cccctl.toml:2: unknown field `required`"), "{told}");
        assert!(with("require = 1").is_err() && with("require").is_err());
        assert!(matches!(Config::load(dir.path()), Err(ConfigError::Unreadable { .. })));
    }
}
