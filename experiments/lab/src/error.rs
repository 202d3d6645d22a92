// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What can end a run early.

use std::io;
use std::path::Path;

/// Result of the laboratory's functions.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why a run did not happen or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The scenario file says something that cannot be run.
    #[error("invalid {field}: {reason}")]
    Scenario {
        /// Path of the field, for example `vms[1].weight`; `scenario` is the whole.
        field: String,
        /// What was expected of its value, and what it is.
        reason: String,
    },
    /// A system call or file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program of the run ended or failed when it should not have.
    #[error("{name}: {reason}{tail}")]
    Process {
        /// Name of the guest, or `daemon`.
        name: String,
        /// What happened.
        reason: String,
        /// The end of its log, or empty.
        tail: String,
    },
    /// Simulated time no longer advances.
    #[error("simulated time stands still at {at_s:.6} s: {reason}")]
    Stalled {
        /// Simulated seconds since the guests' start.
        at_s: f64,
        /// Who is waited for.
        reason: String,
    },
    /// A guest or the daemon broke one of the two protocols.
    #[error("{name}: protocol error: {reason}")]
    Protocol {
        /// Who.
        name: String,
        /// How.
        reason: String,
    },
    /// The receivers threw away what the path had delivered.
    #[error(
        "the receivers' kernel dropped {lost} segments for want of memory, so this run says nothing of the senders: simulate fewer flows"
    )]
    Overload {
        /// How many.
        lost: u64,
    },
    /// The user asked for the end.
    #[error("interrupted by a signal")]
    Interrupted,
}

impl LabError {
    /// A protocol error of `name`.
    pub fn protocol(name: &str, reason: impl Into<String>) -> Self {
        Self::Protocol { name: name.to_owned(), reason: reason.into() }
    }
}

/// Adds what was being done to a system error.
pub trait Context<T> {
    /// Names the operation.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;

    /// Names the operation and the file it was done to.
    fn on(self, what: &str, path: &Path) -> Result<T>
    where
        Self: Sized,
    {
        self.context(|| format!("{what} {}", path.display()))
    }
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| LabError::Io { what: what(), source: e.into() })
    }
}
