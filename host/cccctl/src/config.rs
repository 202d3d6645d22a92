// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's own choices, made by its operator once.
//!
//! ```toml
//! # /etc/ccc/cccctl.toml
//! require = false   # true: a domain that cannot be coupled does not start
//! patience = 2      # seconds that libvirt's hook waits for the daemon, 0.1 to 20
//! ```
use std::{fs, io, path::Path, time::Duration};

use serde::{Deserialize, Deserializer, de::Error};
use thiserror::Error;
use toml::de::DeTable;

/// Seconds that a hook may wait: libvirt, and who called it, wait for the hook.
const PATIENCE_S: std::ops::RangeInclusive<f64> = 0.1..=20.0;

/// The host's choices.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// A domain of ours that cannot be coupled does not start.
    pub require: bool,
    /// How long a hook waits for the daemon.
    #[serde(deserialize_with = "patience")]
    pub patience: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config { require: false, patience: Duration::from_secs(2) }
    }
}

fn patience<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    if PATIENCE_S.contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    let (least, most) = (PATIENCE_S.start(), PATIENCE_S.end());
    Err(Error::custom(format!(
        "invalid patience: expected {least} to {most} seconds, got {seconds}"
    )))
}

/// Why a file's choices are not known.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is there and cannot be read.
    #[error("cannot read {path}: {source}; all is as without it, and `require` is false")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It says something else.
    #[error(
        "{path}: {reason}; it has `require` (true or false) and `patience` (seconds); all is as \
         without it, but for `require`, which is {require}"
    )]
    Wrong {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
        /// What it says of that all the same.
        require: bool,
    },
}

impl Config {
    /// Reads a file, and what is wrong with it; what is not there is as usual.  What its
    /// operator requires counts, whatever else is wrong: a typing mistake does not start
    /// domains that must not start.
    pub fn load(path: &Path) -> (Config, Option<ConfigError>) {
        let name = || path.display().to_string();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Default::default(),
            Err(source) => {
                let wrong = ConfigError::Unreadable { path: name(), source };
                return (Config::default(), Some(wrong));
            }
        };
        toml::from_str(&text).map_or_else(
            |error| {
                let line = error.span().map_or(1, |span| {
                    1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count()
                });
                let (path, reason) = (format!("{}:{line}", name()), error.message().to_owned());
                let require = required(&text);
                let config = Config { require, ..Config::default() };
                (config, Some(ConfigError::Wrong { path, reason, require }))
            },
            |config| (config, None),
        )
    }
}

/// What a text says of `require`, right or wrong as the rest may be.
fn required(text: &str) -> bool {
    let (table, _) = DeTable::parse_recoverable(text);
    let said = table.get_ref().get("require");
    said.and_then(|value| value.get_ref().as_bool()).unwrap_or(Config::default().require)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_and_a_wrong_one_told() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("cccctl.toml");
        let usual = Config::default();
        let load = |path: &Path| match Config::load(path) {
            (config, None) => Ok(config),
            (_, Some(wrong)) => Err(wrong),
        };
        assert_eq!(load(&path).expect("none"), usual);
        let with = |text: &str| {
            fs::write(&path, text).expect("written");
            load(&path)
        };
        assert_eq!(with("require = true\n").expect("right"), Config { require: true, ..usual });
        assert_eq!(with("patience = 0.5").expect("right").patience, Duration::from_millis(500));
        assert_eq!(with("patience = 5").expect("right").patience, Duration::from_secs(5));
        let told = with("patience = 60").expect_err("too long").to_string();
        assert!(told.contains("expected 0.1 to 20 seconds, got 60"), "{told}");
        assert!(with("patience = nan").is_err() && with("patience = -1").is_err());
        let told = with("# a\nrequired = true\n").expect_err("no such key").to_string();
        assert!(told.contains("cccctl.toml:2: unknown field `required`"), "{told}");
        assert!(with("require = 1").is_err() && with("require").is_err());
        assert!(with("require = true\npatience = 2s").is_err());
        assert!(Config::load(&path).0.require, "which can be read");
        assert!(with("require = perhaps").is_err() && !Config::load(&path).0.require);
        assert!(matches!(load(dir.path()), Err(ConfigError::Unreadable { .. })));
    }
}
