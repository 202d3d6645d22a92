// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The configuration file.
//!
//! ```toml
//! [daemon]
//! control = "/run/ccc/control/control.sock"  # where operators connect
//! operators = "ccc"      # a group that may, beside root and the daemon's user
//! state = "/var/lib/ccc/state.json"  # what they changed, for the next start
//! max_flows = 131072     # coupled at a time; one more is left alone
//! max_flows_per_vm = 16384  # of one VM
//! max_memory_gib_per_vm = 1024  # of one guest; one with more is refused
//!
//! [group.uplink]         # its keys are those of `ccc_settings::GroupSettings`
//! policy = "ctrltcp"
//! coupled = true         # false: its flows are left alone
//!
//! [vm.web]               # its keys are those of `ccc_settings::VmSettings`
//! socket = "/run/ccc/vm/web.sock"
//! group = "uplink"       # "default" if left out; "none" for no group
//! weight = 3.0
//!
//! [[rule]]               # the first rule that matches a flow decides
//! vm = "web"             # every VM if left out
//! destination = "10.0.0.0/8"  # everywhere if left out
//! group = "none"         # or the name of a group
//! ```
//!
//! All faults of a file are told at once, each with its place.
use std::{fmt, path::PathBuf};

use ccc_settings::{Fault, FilePath, SocketPath};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use super::Settings;
use crate::device::table::MAX_SLOTS;

mod reader;

/// The table `[daemon]`.
///
/// A flow takes 300 to 600 bytes of the daemon's memory, and all of a guest's memory takes
/// addresses of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonSettings {
    /// Where operators connect
    #[schemars(with = "SocketPath")]
    #[serde(deserialize_with = "socket_path")]
    pub control: Option<PathBuf>,
    /// The group that may, beside root and the daemon's own user
    #[schemars(title = "the name of a group of users")]
    #[serde(deserialize_with = "not_empty")]
    pub operators: Option<String>,
    /// Where their changes are kept
    #[schemars(with = "FilePath")]
    #[serde(deserialize_with = "file_path")]
    pub state: Option<PathBuf>,
    /// Coupled flows of all VMs together
    #[schemars(range(min = 1, max = 1 << 20))]
    pub max_flows: usize,
    /// Flows of one VM
    #[schemars(range(min = 1, max = MAX_SLOTS))]
    pub max_flows_per_vm: usize,
    /// Guest memory of one VM, in GiB; at most half of what all may have
    #[schemars(range(min = 1, max = 48 << 10))]
    pub max_memory_gib_per_vm: u64,
}

impl Default for DaemonSettings {
    fn default() -> DaemonSettings {
        DaemonSettings {
            control: None,
            operators: None,
            state: None,
            max_flows: 131_072,
            max_flows_per_vm: 16_384,
            max_memory_gib_per_vm: 1024,
        }
    }
}

impl DaemonSettings {
    /// Guest memory of one VM, in bytes.
    pub fn max_memory_bytes_per_vm(&self) -> u64 {
        self.max_memory_gib_per_vm << 30
    }
}

fn socket_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<SocketPath>::deserialize(from)?.map(|path| path.to_path_buf()))
}

fn file_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<FilePath>::deserialize(from)?.map(|path| path.to_path_buf()))
}

fn not_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    if name.as_deref() == Some("") { Err(serde::de::Error::custom("empty")) } else { Ok(name) }
}

/// All faults of a file, in the order of their places.
#[derive(Debug, Error, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    faults: Vec<Located>,
}

/// One fault, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub fault: Fault,
}

impl ConfigError {
    /// The faults, in the order of their places.
    pub fn faults(&self) -> &[Located] {
        &self.faults
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Located { line, column, fault }) in self.faults.iter().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{line}:{column}: {fault}", self.file)?;
        }
        Ok(())
    }
}

/// Reads a configuration; `file` is its name in messages.
pub fn parse(file: &str, text: &str) -> Result<Settings, ConfigError> {
    reader::read(text).map_err(|faults| ConfigError { file: file.to_owned(), faults })
}
