// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators decide, described once.
//!
//! A setting is a field of [`GroupSettings`], [`VmSettings`] or [`RuleSettings`], with its
//! documentation, range and default.  The configuration file, the API, the state file, the
//! command line and the metadata of libvirt domains follow from these types: all of them
//! read [`Changes`] of them, field by field, and say what is wrong as a [`Fault`].
mod changes;
mod fault;
mod field;
mod level;
mod path;
mod place;
mod rate;
mod types;

pub use changes::{Changes, difference, text};
pub use fault::Fault;
pub use field::{Field, Table};
pub use level::{Level, Want, dues};
pub use path::{FilePath, SocketPath};
pub use place::is_same_place;
pub use rate::{RATE, bytes_of_mbit};
pub use types::{
    DEFAULT_GROUP, Enforce, GroupSettings, LogLevel, LogSettings, NO_GROUP, RuleSettings,
    VmSettings, VmSpec, check_name,
};

/// What the programs say of their version: that of the package they are built for, if any.
pub const VERSION: &str = match option_env!("CCC_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};
