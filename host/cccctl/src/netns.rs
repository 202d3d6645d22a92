// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Files of network namespaces, by which tenants are named.
use std::path::{Path, PathBuf};

/// Where `ip netns` keeps them.
const NAMED: &str = "/run/netns";

/// The file of a namespace, by its name or its path.
pub fn file(name: &str) -> PathBuf {
    Path::new(NAMED).join(name)
}

/// Whether it is a process's: its number is another's later, which may have the host's namespace.
pub fn is_of_a_process(file: &Path) -> bool {
    file.starts_with("/proc")
}
