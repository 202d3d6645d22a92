// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the daemon is told, by its configuration and at times of the run.

use std::{collections::BTreeMap, ops::Not};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::field::Field;
use crate::error::Result;

/// Settings of the bottleneck group by the names that they have in the daemon's
/// configuration; what is left out is its default.
pub type Group = BTreeMap<String, Value>;

/// Something done to the daemon while nobody runs: one of its kinds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// When.
    pub at_s: f64,
    /// A request on the daemon's control socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<Request>,
    /// The status of its answer; none: any of 200 to 299.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<u16>,
    /// SIGKILL for the daemon.
    #[serde(default, skip_serializing_if = "Not::not")]
    #[schemars(extend("default" = false))]
    pub kill_daemon: bool,
    /// Start of the daemon after it was killed.
    #[serde(default, skip_serializing_if = "Not::not")]
    #[schemars(extend("default" = false))]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// Refuses what cannot stand in the daemon's configuration. What a setting may
/// be, the daemon knows.
pub(super) fn check_group(group: &Group, at: &Field) -> Result<()> {
    let plain = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    for (name, value) in group {
        let is_plain = match value {
            Value::String(word) => plain(word),
            other => !other.is_array() && !other.is_object(),
        };
        if !plain(name) || !is_plain {
            let expected = "a plain word, a number, true, false or null";
            return at.at(name).refuse(expected, value);
        }
    }
    Ok(())
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
