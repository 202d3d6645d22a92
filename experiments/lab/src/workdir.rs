// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The directory in which all programs of a run meet.
//!
//! Every program has it as its current directory and names files in it by
//! relative paths: command lines are then the same wherever the results go
//! (they are part of a kernel's random seed), and socket paths are short.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::error::{Context, Result};

/// Socket of the controller.
pub const TIME: &str = "time";
/// The guests' init.
pub const INIT: &str = "init";
/// The preload shim.
pub const SHIM: &str = "seed.so";
/// The kernel module.
pub const MODULE: &str = "module.ko";
/// The kernel module of hostile VMs.
pub const HOSTILE_MODULE: &str = "hostile.ko";
/// The daemon's configuration.
pub const DAEMON_CONFIG: &str = "daemon.toml";

/// The daemon's control socket.
pub const CONTROL: &str = "control";

/// Where the daemon asks of taps.
pub const TAPS: &str = "taps";

/// A run's working directory.
pub struct Workdir {
    path: PathBuf,
    handle: File,
}

impl Workdir {
    /// Makes `out/work` anew.
    pub fn create(out: &Path) -> Result<Self> {
        fs::create_dir_all(out).on("making", out)?;
        let path = out.join("work");
        if path.exists() {
            fs::remove_dir_all(&path).on("removing", &path)?;
        }
        fs::create_dir(&path).on("making", &path)?;
        let path = path.canonicalize().on("resolving", &path)?;
        let handle = File::open(&path).on("opening", &path)?;
        Ok(Self { path, handle })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A socket in it, by a path short enough for bind() and connect()
    /// wherever the directory is.
    pub fn socket(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()))
    }

    /// Writes a file into it.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = self.join(name);
        fs::write(&path, contents).on("writing", &path)
    }

    /// Removes it.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.path).on("removing", &self.path)
    }
}

/// Socket of the NIC at which guest `name` has its interface `index`.
pub fn nic_socket(name: &str, index: usize) -> String {
    format!("{name}.nic{index}")
}

/// Socket of the CCC device of `vm`.
pub fn device_socket(vm: &str) -> String {
    format!("{vm}.ccc")
}

/// Socket at which the daemon serves the CCC device of `vm` to the relay.
pub fn relayed_socket(vm: &str) -> String {
    format!("{vm}.ccc.daemon")
}
