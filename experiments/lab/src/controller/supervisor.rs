// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the controller wants of whoever has started the programs of a run.

use super::standstill::Pulse;
use crate::error::Result;

/// Looks after the programs while the controller waits for them.
pub trait Supervisor {
    /// An error if a program has ended that should not have, or if the user
    /// wants the end.
    fn check(&mut self) -> Result<()>;
    /// What the programs are doing.
    fn pulse(&self) -> Pulse;
    /// `client` has closed its connection; an error unless it was to end now.
    fn left(&mut self, client: &str) -> Result<()>;
    /// Kills the daemon; it is gone when this returns.
    fn kill_daemon(&mut self) -> Result<()>;
    /// Starts the daemon; it joins when it is ready.
    fn start_daemon(&mut self) -> Result<()>;
    /// Kills a guest that has written its results.
    fn kill_guest(&mut self, name: &str) -> Result<()>;
    /// Starts a guest that was not there from the beginning.
    fn start_guest(&mut self, name: &str) -> Result<()>;
}
