// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What counts at taps, and holds them.
use std::io;

use thiserror::Error;

/// Why a tap is not held.
#[derive(Debug, Error)]
pub enum HoldError {
    /// Something of others' is there.
    #[error(
        "tap {tap} has an ingress qdisc of somebody else's, and there can be only one: remove it \
         (tc qdisc del dev {tap} ingress), or set `enforce = \"observe\"`"
    )]
    Others {
        /// The tap.
        tap: String,
    },
    /// The kernel does not do it.
    #[error("cannot {what} of tap {tap}: {why}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The tap.
        tap: String,
        /// What the kernel says.
        why: io::Error,
    },
}

/// A tap that is to be held, or no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The interface.
    pub tap: String,
    /// Bytes a second; `None` for as many as it likes.
    pub rate: Option<u64>,
}

/// What has taps.
pub trait Host {
    /// Bytes that have come in at a tap so far; `None` if it is not there.
    fn received(&mut self, tap: &str) -> Option<u64>;

    /// Holds a tap to a rate, or no more.
    fn hold(&mut self, hold: &Hold) -> Result<(), HoldError>;

    /// Taps that an earlier daemon has held, and that still are.
    fn left_over(&mut self) -> Vec<String>;
}
