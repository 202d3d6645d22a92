// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The files of a guest, in the run's working directory.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Context, Result};

/// Where a guest sees the run's working directory.
pub const WORK: &str = "/run/lab";

/// A file of the guest of this name.
pub fn output(guest: &str, kind: &str) -> PathBuf {
    Path::new(WORK).join(format!("{guest}.{kind}"))
}

/// Writes one.
pub fn write(guest: &str, kind: &str, text: &str) -> Result<()> {
    let path = output(guest, kind);
    fs::write(&path, text).on("writing", &path)
}

/// Writes one as JSON.
pub fn write_json(guest: &str, kind: &str, value: &serde_json::Value) -> Result<()> {
    write(guest, kind, &format!("{value:#}\n"))
}
