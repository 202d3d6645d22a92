// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Connections of a VM, and the applications that write to them.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::field::Field;
use crate::error::Result;
use crate::units::{MS_NS, ns_of_s};

/// By how much a flow may start later than its time, if nothing else is said.
const START_SPREAD_MS: u32 = 100;
/// Most of it.
const MAX_START_SPREAD_MS: u32 = 60_000;
/// Most connections of a churn; local ports suffice for them.
const MAX_CHURN: u32 = 20_000;
/// What the kernel takes for SO_RCVBUF as it is told; more is `net.core.rmem_max`, which it cuts to.
const LEAST_RECEIVE_BUFFER: u32 = 4096;
const MOST_RECEIVE_BUFFER: u32 = 212_992;
/// Highest rate of an application that has one.
const MAX_RATE_KBIT: f64 = 200_000.0;

/// Some like connections of a VM.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// When they start, to which each adds a seeded part of `start_spread_ms`.
    #[serde(default)]
    pub start_s: f64,
    /// By how much each may start later; none: by 100 ms.
    pub start_spread_ms: Option<u32>,
    /// When they are aborted; none: they last to the end.
    pub stop_s: Option<f64>,
    /// How much each sends; none: without end.
    pub bytes: Option<u64>,
    /// SO_PRIORITY of the sockets.
    #[serde(default)]
    pub priority: u32,
    /// TCP_MAXSEG of the sockets.
    pub mss: Option<u32>,
    /// SO_RCVBUF of the receivers' sockets, which bounds the window that they offer; none: TCP's own.
    pub receive_buffer_bytes: Option<u32>,
    /// What the application writes, kbit/s; none: as much as it can.
    pub rate_kbit: Option<f64>,
    /// Changes while the flows live, in the order of their times.
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// Many short-lived connections in place of one that lasts.
    pub churn: Option<Churn>,
}

fn one() -> u32 {
    1
}

/// A change of live flows; what is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// When.
    pub at_s: f64,
    /// What the application writes from now on; null: as much as it can, 0:
    /// nothing.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-null" = "as much as it can"))]
    pub rate_kbit: Option<Option<f64>>,
    /// SO_PRIORITY.
    pub priority: Option<u32>,
    /// Congestion control.
    pub congestion_control: Option<String>,
}

/// Tells a null that was given from a field left out.
fn given<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Connections that are opened one after another from the start on, send a
/// little, are held, and are reset all at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Churn {
    /// How many.
    pub connections: u32,
    /// Seconds from the last opening to the reset.
    pub hold_s: f64,
    /// Milliseconds within which they are opened.
    #[serde(default = "default_open_ms")]
    pub open_ms: u64,
    /// What each sends.
    #[serde(default = "default_churn_bytes")]
    pub bytes: u32,
    /// Milliseconds after which each sends that again, until the reset; none:
    /// it sends once.
    pub again_ms: Option<u64>,
}

fn default_open_ms() -> u64 {
    1000
}

fn default_churn_bytes() -> u32 {
    4096
}

impl Flows {
    /// By how much each may start later than `start_s`.
    pub fn start_spread_ms(&self) -> u32 {
        self.start_spread_ms.unwrap_or(START_SPREAD_MS)
    }

    /// Whether one of them may start within these seconds.
    pub fn may_start(&self, within: &Range<f64>) -> bool {
        let latest = self.start_s + f64::from(self.start_spread_ms()) / 1e3;
        self.start_s < within.end && latest >= within.start
    }

    pub(super) fn check(&self, at: &Field, duration_s: f64) -> Result<()> {
        at.at("count").within(self.count, 1, 1000, "")?;
        at.at("start_s").within(self.start_s, 0.0, duration_s, "s")?;
        let spread = self.start_spread_ms();
        at.at("start_spread_ms").within(spread, 1, MAX_START_SPREAD_MS, "ms")?;
        if let Some(stop) = self.stop_s.filter(|s| !(*s > self.start_s && *s <= duration_s)) {
            return at.at("stop_s").refuse("after start_s, at most duration_s", stop);
        }
        if let Some(mss) = self.mss {
            at.at("mss").within(mss, 88, 1460, "bytes")?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            let at = at.at("receive_buffer_bytes");
            at.within(bytes, LEAST_RECEIVE_BUFFER, MOST_RECEIVE_BUFFER, "bytes")?;
        }
        if self.bytes == Some(0) {
            return at.at("bytes").refuse("at least 1", 0);
        }
        if let Some(rate) = self.rate_kbit {
            at.at("rate_kbit").within(rate, 0.0, MAX_RATE_KBIT, "kbit/s")?;
        }
        if let Some(churn) = &self.churn {
            churn.check(&at.at("churn"), self, duration_s)?;
        }
        at.in_order("phases", self.phases.iter().map(|phase| phase.at_s), duration_s)?;
        for (i, phase) in self.phases.iter().enumerate() {
            if let Some(Some(rate)) = phase.rate_kbit {
                let at = at.element("phases", i).at("rate_kbit");
                at.within(rate, 0.0, MAX_RATE_KBIT, "kbit/s")?;
            }
        }
        Ok(())
    }
}

impl Churn {
    /// Time in which they are opened.
    pub fn open_ns(&self) -> u64 {
        self.open_ms * MS_NS
    }

    /// Time from the last opening to the reset.
    pub fn hold_ns(&self) -> u64 {
        ns_of_s(self.hold_s)
    }

    /// Time after which each sends again.
    pub fn again_ns(&self) -> Option<u64> {
        self.again_ms.map(|ms| ms * MS_NS)
    }

    fn check(&self, at: &Field, flows: &Flows, duration_s: f64) -> Result<()> {
        at.at("connections").within(self.connections, 1, MAX_CHURN, "")?;
        at.at("bytes").within(self.bytes, 1, 65536, "bytes")?;
        at.at("hold_s").within(self.hold_s, 0.0, duration_s, "s")?;
        if let Some(again) = self.again_ms {
            at.at("again_ms").within(again, 1, u64::MAX, "ms")?;
        }
        let alone = flows.stop_s.is_none() && flows.bytes.is_none() && flows.rate_kbit.is_none();
        if !alone || !flows.phases.is_empty() || flows.count != 1 {
            return at.refuse("count 1, start_s and priority with it", "more");
        }
        Ok(())
    }
}
