// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! State files that nobody may replace, since what is in them is not in force.
//!
//! They are put beside their place, which takes neither room nor the right to read them, and it
//! is told how to have them again.
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use super::state::State;

/// Puts a file aside, as something of now; where it is.
pub fn put_aside(path: &Path, as_what: &str) -> io::Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "people read it")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{as_what}-{}", since.as_secs()));
    let beside = path.with_file_name(name);
    fs::rename(path, &beside)?;
    Ok(beside)
}

/// Puts a file aside that holds something else than what is `known` to be in it; what is told of
/// that, if so.
pub fn put_strange_aside(path: &Path, known: &Value) -> io::Result<Option<String>> {
    let (state, damage) = State::load_readable(path);
    if !path.is_file() || damage.is_none() && state.json() == *known {
        return Ok(None);
    }
    let aside = put_aside(path, "found")?;
    let path = path.display();
    Ok(Some(format!(
        "state file {path}: another one came into its place than was read (its directory came late, \
         or another daemon wrote it), and is not in force: to have it again, stop ccc-vhost, move \
         the file as it was found to {path}, and start ccc-vhost, which loses the changes made since; \
         the file as it was found is {}",
        aside.display()
    )))
}
