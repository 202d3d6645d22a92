// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the daemon is told, by its configuration and at times of the run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field::Field;
use crate::error::Result;

/// Settings of the bottleneck group; what is left out is the daemon's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// Coupling algorithm.
    pub policy: Option<String>,
    /// What is shared by weight: `window` or `rate`.
    pub share: Option<String>,
    /// How many TCPs the aggregate acts as.
    pub equivalent_tcps: Option<f64>,
    /// Whose growth the aggregate takes.
    pub growth_source: Option<String>,
}

/// Something done to the daemon while nobody runs: one of its kinds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// When.
    pub at_s: f64,
    /// A request on the daemon's control socket.
    pub control: Option<Request>,
    /// The status of its answer; none: any of 200 to 299.
    pub expect: Option<u16>,
    /// SIGKILL for the daemon.
    #[serde(default)]
    pub kill_daemon: bool,
    /// Start of the daemon after it was killed.
    #[serde(default)]
    pub start_daemon: bool,
}

/// A request on the control socket.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// `GET`, `PATCH`, …
    pub method: String,
    /// Path of the resource.
    pub path: String,
    /// JSON document sent with it.
    pub body: Option<serde_json::Value>,
}

impl Group {
    pub(super) fn check(&self, at: &Field) -> Result<()> {
        let words = [("policy", &self.policy), ("share", &self.share), ("growth_source", &self.growth_source)];
        words.iter().try_for_each(|(name, word)| at.at(name).plain_word(word.as_ref()))?;
        self.equivalent_tcps.map_or(Ok(()), |n| at.at("equivalent_tcps").above_zero(n, 1000.0, "TCPs"))
    }
}

impl Action {
    pub(super) fn check(&self, at: &Field, daemon_runs: bool) -> Result<()> {
        let kinds = [self.control.is_some(), self.kill_daemon, self.start_daemon];
        let kinds = kinds.iter().filter(|&&kind| kind).count();
        if kinds != 1 {
            return at.refuse("one of control, kill_daemon and start_daemon", kinds);
        }
        if daemon_runs && self.start_daemon {
            return at.refuse("start_daemon after kill_daemon", "a daemon that runs already");
        }
        if !daemon_runs && !self.start_daemon {
            return at.refuse("start_daemon first", "a daemon that does not run then");
        }
        self.control.as_ref().map_or(Ok(()), |request| request.check(&at.at("control")))
    }
}

impl Request {
    fn check(&self, at: &Field) -> Result<()> {
        if self.method.is_empty() || !self.method.chars().all(|c| c.is_ascii_uppercase()) {
            return at.at("method").refuse("capital letters", format!("'{}'", self.method));
        }
        if !self.path.starts_with('/') || !self.path.chars().all(|c| c.is_ascii_graphic()) {
            return at.at("path").refuse("a path that begins with '/'", format!("'{}'", self.path));
        }
        Ok(())
    }
}
