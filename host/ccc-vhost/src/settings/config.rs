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
//! [group.uplink]
//! policy = "ctrltcp"     # or "uncoupled", "e-tcp", "efcm", "lisa", "cm"
//! share = "rate"         # or "window"
//! equivalent_tcps = 1.0       # of ctrltcp, 0.1 to 64: how many TCPs the group is worth
//! growth_source = "mean"          # of ctrltcp, or "first", "shortest-rtt": whose growth counts
//! coupled = true         # false: its flows are left alone
//!
//! [vm.web]
//! socket = "/run/ccc/vm/web.sock"
//! group = "uplink"       # "default" if left out; "none" for no group
//! weight = 3.0           # 0.01 to 1000
//! coupled = true         # false: its flows are left alone
//!
//! [[rule]]               # the first rule that matches a flow decides
//! vm = "web"             # every VM if left out
//! destination = "10.0.0.0/8"  # everywhere if left out
//! group = "none"         # or the name of a group
//! ```
//!
//! The file is walked by hand rather than deserialised, so that all its faults
//! are told at once, each with its line and what to do about it.
use std::{
    fmt,
    path::{Path, PathBuf},
};

use ccc_core::Weight;
use thiserror::Error;

use crate::{
    settings::values::Given,
    settings::{DEFAULT_GROUP, Group, Settings, Vm},
};

mod reader;
#[cfg(test)]
mod tests;

/// What the daemon serves, and how it is told of changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// What the operator decides and may change.
    pub settings: Settings,
    /// Where operators connect.
    pub control: Option<PathBuf>,
    /// The group that may, beside root and the daemon's own user.
    pub operators: Option<String>,
    /// Where their changes are kept.
    pub state: Option<PathBuf>,
}

/// All faults of a file, in the order of its lines.
#[derive(Debug, Error, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    faults: Vec<Fault>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

impl ConfigError {
    /// The faults, in the order of the lines.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.faults.iter().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{}: {}; {}", self.file, fault.line, fault.reason, fault.remedy)?;
        }
        Ok(())
    }
}

impl Config {
    /// One VM at `socket`, alone in the default group.
    pub fn single(socket: &Path) -> Config {
        let vm = Vm {
            name: DEFAULT_GROUP.to_owned(),
            socket: socket.to_owned(),
            group: Some(0),
            weight: Given::<Weight>::ONE,
            coupled: true,
            added: false,
        };
        let groups = vec![Group::new(DEFAULT_GROUP)];
        Config {
            settings: Settings { groups, vms: [(0, vm)].into(), ..Settings::default() },
            ..Config::default()
        }
    }

    /// Reads a configuration; `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
        reader::read(text).map_err(|faults| ConfigError { file: file.to_owned(), faults })
    }
}
