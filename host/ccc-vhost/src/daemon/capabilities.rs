// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `--print-capabilities`, by the conventions of vhost-user back ends.
use std::ffi::OsString;

use serde_json::json;

/// What `VHostUserBackendCapabilities` of QEMU's `docs/interop/vhost-user.json` has for
/// this type: its name.  There are no features that a manager of machines could ask for.
pub fn json() -> String {
    json!({"type": "ccc"}).to_string()
}

/// Whether these arguments ask for them.  All others are ignored then, by the conventions,
/// so this is no matter for the parser.
pub fn asked_for(arguments: impl IntoIterator<Item = OsString>) -> bool {
    arguments.into_iter().any(|argument| argument == "--print-capabilities")
}
