// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The path that all VMs share, and what disturbs their traffic on it.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field::Field;
use crate::error::Result;

/// Lowest rate of a link; `tc` refuses what it rounds to 0 bytes a second.
pub(super) const MIN_RATE_MBIT: f64 = 0.001;
/// Highest rate of a link.
pub(super) const MAX_RATE_MBIT: f64 = 100_000.0;
/// Longest delay.
pub(super) const MAX_DELAY_MS: f64 = 10_000.0;
/// Ethernet, IPv4 and UDP before the payload of a packet of cross traffic.
const CROSS_HEADERS: f64 = 42.0;
/// Payload of a packet of cross traffic.
pub const CROSS_BYTES: RangeInclusive<f64> = 64.0..=1472.0;
/// The part of the time that streams are on; more would leave none to be off.
const MOST_ON: f64 = 0.95;

/// The shared queue and the way back; the defaults are those of the papers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bottleneck {
    /// Rate in Mbit/s, of Ethernet frames.
    pub rate_mbit: f64,
    /// Length of the FIFO in packets; of each VM's with `htb`.
    pub limit_packets: u32,
    /// Delay of the way back.
    pub delay_ms: f64,
    /// Its queueing discipline.
    pub queue: Queue,
    /// Packets of flows with ECN that waited longer than this are marked.
    pub mark_ms: Option<f64>,
    /// Changes of the rate, in the order of times.
    pub rate_changes: Vec<RateChange>,
    /// What the way back loses at random, percent; none: nothing.
    pub return_loss_percent: Option<f64>,
    /// The way back's delay is evenly spread by so much to both sides, and
    /// packets that overtake others come first; none: not at all.
    pub return_jitter_ms: Option<f64>,
}

/// A change of the bottleneck's rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateChange {
    /// When.
    pub at_s: f64,
    /// Rate from then on, of what waits then too.
    pub rate_mbit: f64,
}

impl Default for Bottleneck {
    fn default() -> Self {
        Self {
            rate_mbit: 10.0,
            limit_packets: 83,
            delay_ms: 100.0,
            queue: Queue::Fifo,
            mark_ms: None,
            rate_changes: Vec::new(),
            return_loss_percent: None,
            return_jitter_ms: None,
        }
    }
}

/// A queueing discipline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// One FIFO.
    #[default]
    Fifo,
    /// FQ-CoDel.
    FqCodel,
    /// DualPI2, of RFC 9332: with flows that have no L4S one queue, which drops by PI2.
    Dualpi2,
    /// CAKE, fair to the VMs first and to their flows then.
    Cake,
    /// A FIFO for each VM, which has a rate by its weight and may borrow.
    Htb,
    /// The same with FQ-CoDel in place of each FIFO.
    HtbFqCodel,
}

/// On-off streams of UDP packets, which do not respond to congestion; the
/// defaults are those of the papers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    /// What they offer in the mean, of the bottleneck's rate.
    pub load: f64,
    /// How many.
    #[serde(default = "default_streams")]
    pub streams: u32,
    /// Hurst parameter: on-times are Pareto with shape 3 - 2H.
    #[serde(default = "default_hurst")]
    pub hurst: f64,
    /// Bounds of the streams' mean packet rates while on, each second; the
    /// times between packets are exponential.
    #[serde(default = "default_packets_s")]
    pub packets_s: [f64; 2],
    /// Mean and standard deviation of the payload.
    #[serde(default = "default_bytes")]
    pub bytes: [f64; 2],
    /// Bounds of the streams' mean off-times, which are exponential.
    #[serde(default = "default_off_s")]
    pub off_s: [f64; 2],
}

fn default_streams() -> u32 {
    11
}

fn default_hurst() -> f64 {
    0.8
}

fn default_packets_s() -> [f64; 2] {
    [50.0, 150.0]
}

fn default_bytes() -> [f64; 2] {
    [1000.0, 200.0]
}

fn default_off_s() -> [f64; 2] {
    [1.0, 2.0]
}

/// Segments of one flow that are lost: a number of them, or all for a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Name of the VM.
    pub vm: String,
    /// Number of the flow within the VM, from 0.
    pub flow: u32,
    /// From when.
    pub at_s: f64,
    /// The next so many segments with data.
    pub packets: Option<u32>,
    /// All segments for so many seconds.
    pub for_s: Option<f64>,
}

impl Bottleneck {
    pub(super) fn check(&self, at: &Field, duration_s: f64) -> Result<()> {
        check_rate(&at.at("rate_mbit"), self.rate_mbit)?;
        at.at("limit_packets").within(self.limit_packets, 1, u32::MAX, "packets")?;
        at.in_order("rate_changes", self.rate_changes.iter().map(|c| c.at_s), duration_s)?;
        for (i, change) in self.rate_changes.iter().enumerate() {
            let at = at.element("rate_changes", i);
            check_rate(&at.at("rate_mbit"), change.rate_mbit)?;
            if i > 0 && change.at_s == self.rate_changes[i - 1].at_s {
                return at
                    .at("at_s")
                    .refuse("one change at a time", format!("{} s twice", change.at_s));
            }
        }
        check_return_path(at, self.delay_ms, self.return_jitter_ms, self.return_loss_percent)?;
        let Some(mark_ms) = self.mark_ms else {
            return Ok(());
        };
        if self.queue != Queue::Fifo {
            return at.at("mark_ms").refuse("the queue fifo with it", "another queue");
        }
        at.at("mark_ms").within(mark_ms, 0.0, MAX_DELAY_MS, "ms")
    }
}

/// Refuses a rate that a link cannot have.
pub(super) fn check_rate(at: &Field, rate_mbit: f64) -> Result<()> {
    at.within(rate_mbit, MIN_RATE_MBIT, MAX_RATE_MBIT, "Mbit/s")
}

/// Refuses a way back that cannot be.
pub(super) fn check_return_path(
    at: &Field,
    delay_ms: f64,
    jitter_ms: Option<f64>,
    loss_percent: Option<f64>,
) -> Result<()> {
    at.at("delay_ms").within(delay_ms, 0.0, MAX_DELAY_MS, "ms")?;
    at.at("return_jitter_ms").within(jitter_ms.unwrap_or(0.0), 0.0, delay_ms, "ms (delay_ms)")?;
    at.at("return_loss_percent").within(loss_percent.unwrap_or(0.0), 0.0, 100.0, "%")
}

impl Cross {
    /// An error if the streams cannot be, or cannot offer so much.
    pub fn check(&self, at: &Field, rate_mbit: f64) -> Result<()> {
        at.at("streams").within(self.streams, 1, 1000, "")?;
        if !(self.hurst > 0.5 && self.hurst < 1.0) {
            return at.at("hurst").refuse("more than 0.5, less than 1", self.hurst);
        }
        let ranges = [("packets_s", self.packets_s, 1e6), ("off_s", self.off_s, 1e4)];
        for (name, [low, high], most) in ranges {
            if !(low > 0.0 && low <= high && high <= most) {
                let expected = format!("two bounds in order, above 0, at most {most}");
                return at.at(name).refuse(expected, format!("[{low}, {high}]"));
            }
        }
        let [mean, deviation] = self.bytes;
        if !(CROSS_BYTES.contains(&mean) && (0.0..=mean).contains(&deviation)) {
            let (least, most) = (CROSS_BYTES.start(), CROSS_BYTES.end());
            let expected = format!("a mean of {least} to {most} bytes and a deviation up to it");
            return at.at("bytes").refuse(expected, format!("[{mean}, {deviation}]"));
        }
        let most = self.most_bit_s() * MOST_ON / (rate_mbit * 1e6);
        if !(self.load > 0.0 && self.load <= most) {
            return at.at("load").refuse(format!("above 0, at most {most:.2}"), self.load);
        }
        Ok(())
    }

    /// The part of the time each stream is on.
    pub fn on(&self, rate_bit: u64) -> f64 {
        (self.load * rate_bit as f64 / self.most_bit_s()).min(MOST_ON)
    }

    /// What the streams would offer in the mean if they were always on.
    fn most_bit_s(&self) -> f64 {
        let rate = (self.packets_s[0] + self.packets_s[1]) / 2.0;
        f64::from(self.streams) * rate * (self.bytes[0] + CROSS_HEADERS) * 8.0
    }
}

impl Fault {
    /// An error if it is not one thing, within the run.
    pub fn check(&self, at: &Field, duration_s: f64) -> Result<()> {
        at.at("at_s").within(self.at_s, 0.0, duration_s, "s")?;
        match (self.packets, self.for_s) {
            (Some(packets), None) => at.at("packets").within(packets, 1, u32::MAX, "segments"),
            (None, Some(time)) => at.at("for_s").above_zero(time, duration_s, "s"),
            (None, None) => at.refuse("one of packets and for_s", "neither"),
            (Some(_), Some(_)) => at.refuse("one of packets and for_s", "both"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cross() -> Cross {
        serde_json::from_str(r#"{"load": 0.5}"#).expect("valid")
    }

    #[test]
    fn cross_traffic_that_cannot_be_is_refused() {
        let at = Field::root().at("cross");
        let told = |cross: Cross| cross.check(&at, 10.0).expect_err("refused").to_string();
        assert!(cross().check(&at, 10.0).is_ok());
        assert!(told(Cross { load: 1.5, ..cross() }).contains("cross.load: expected above 0, at"));
        assert!(told(Cross { hurst: 1.0, ..cross() }).contains("cross.hurst"));
        assert!(told(Cross { off_s: [2.0, 1.0], ..cross() }).contains("cross.off_s"));
        assert!(told(Cross { bytes: [9000.0, 1.0], ..cross() }).contains("cross.bytes"));
        assert!(told(Cross { streams: 0, ..cross() }).contains("cross.streams"));
    }

    #[test]
    fn a_fault_is_one_thing_within_the_run() {
        let fault = |packets, for_s| Fault { vm: "vm1".into(), flow: 1, at_s: 2.0, packets, for_s };
        let at = Field::root().element("faults", 0);
        assert!(fault(Some(1), None).check(&at, 9.0).is_ok());
        assert!(fault(Some(0), None).check(&at, 9.0).is_err());
        for wrong in [fault(None, None), fault(Some(1), Some(1.0))] {
            let told = wrong.check(&at, 9.0).expect_err("refused").to_string();
            assert!(told.contains("faults[0]: expected one of packets and for_s, got"), "{told}");
        }
        assert!(fault(Some(1), None).check(&at, 1.0).is_err());
    }
}
