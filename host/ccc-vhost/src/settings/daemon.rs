// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What cannot be changed while the daemon runs.
use std::{fmt, net::SocketAddr, path::PathBuf};

use ccc_settings::{FilePath, SocketPath};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// The table `[daemon]`.
///
/// Flows take the daemon's memory: those coupled that of the engine, all of a VM that of its
/// device.  All of a guest's memory takes addresses of it.
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
    /// The group that may look at everything and change nothing
    #[schemars(title = "the name of a group of users")]
    #[serde(deserialize_with = "not_empty")]
    pub readers: Option<String>,
    /// Where monitoring systems find /metrics over TCP; it is on the control socket, too
    #[schemars(with = "String", title = "an address and a port, such as 127.0.0.1:9170")]
    pub metrics: Option<SocketAddr>,
    /// Where their changes are kept
    #[schemars(with = "FilePath")]
    #[serde(deserialize_with = "file_path")]
    pub state: Option<PathBuf>,
    /// Coupled flows of all VMs together
    #[schemars(range(min = 1, max = 1 << 20))]
    pub max_flows: usize,
    /// Flows of one VM
    #[schemars(range(min = 1, max = 1 << 16))]
    pub max_flows_per_vm: usize,
    /// Reports of progress a second, of all flows together; events come at once
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub max_reports_per_s: u32,
    /// Longest time to look for a VM's next message before sleeping, us; 0 is not at all
    #[schemars(range(max = 1000))]
    pub poll_max_us: u64,
    /// Guest memory of one VM, in GiB; at most half of what all may have
    #[schemars(range(min = 1, max = 48 << 10))]
    pub max_memory_gib_per_vm: u64,
    /// Whether taps that are held stay so when the daemon ends
    pub keep_holds: bool,
    /// Whether the daemon takes files and system calls from itself that it does not need
    pub sandbox: Sandbox,
}

/// What the daemon takes from itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// All it does not need.
    #[default]
    On,
    /// Nothing; calls that it would refuse are in the kernel's audit log.
    Log,
    /// Nothing.
    Off,
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sandbox::On => "on",
            Sandbox::Log => "log",
            Sandbox::Off => "off",
        })
    }
}

ccc_settings::table!(DaemonSettings);

impl Default for DaemonSettings {
    fn default() -> DaemonSettings {
        DaemonSettings {
            control: None,
            operators: None,
            readers: None,
            metrics: None,
            state: None,
            max_flows: 131_072,
            max_flows_per_vm: 16_384,
            max_reports_per_s: 1_000_000,
            poll_max_us: 0,
            max_memory_gib_per_vm: 1024,
            keep_holds: false,
            sandbox: Sandbox::default(),
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
