// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Why the engine refuses a call.
use thiserror::Error;

/// Why the engine refuses a call.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum EngineError {
    /// The flow is not registered, or has left.
    #[error("unknown flow {0}: expected one that is registered")]
    UnknownFlow(u32),
    /// The VM is not there.
    #[error("unknown VM {0}: expected one that was added and not removed")]
    UnknownVm(u32),
    /// The group is not there.
    #[error("unknown group {0}: expected one that was added")]
    UnknownGroup(u32),
    /// A flow of priority 0 would have a share of nothing.
    #[error("invalid priority: expected 1 to 65535 (256 is priority 1), got 0")]
    ZeroPriority,
    /// Windows cannot be counted in segments of no size.
    #[error("invalid mss_bytes: expected 1 to 65535 bytes of payload in a full segment, got 0")]
    ZeroMss,
}
