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
//! max_reports_per_s = 1000000  # of progress, of all flows together
//! poll_max_us = 0        # looks for so long for a VM's next message before it sleeps
//! max_memory_gib_per_vm = 1024  # of one guest; one with more is refused
//!
//! [group.uplink]         # its keys are those of `ccc_settings::GroupSettings`
//! policy = "ctrltcp"
//! coupled = true         # false: its flows are left alone
//! enforce = "off"        # what is done to a VM that sends above its share: observe, on
//! uplink = "eth0"        # with on: where each VM has a queue of its own
//! uplink_rate_mbit = 950.0    # and what goes through there
//!
//! [vm.web]               # its keys are those of `ccc_settings::VmSettings`
//! socket = "/run/ccc/vm/web.sock"
//! group = "uplink"       # "default" if left out; "none" for no group
//! weight = 3.0
//! tap = "vnet0"          # the interface through which its packets come
//!
//! [[rule]]               # the first rule that matches a flow decides
//! vm = "web"             # every VM if left out
//! destination = "10.0.0.0/8"  # everywhere if left out
//! group = "none"         # or the name of a group
//! ```
//!
//! All faults of a file are told at once, each with its place.
use std::fmt;

use ccc_settings::Fault;
use thiserror::Error;

use super::Settings;

mod reader;

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

#[cfg(any(test, feature = "fuzzing"))]
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
