// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A device's flows, for operators to look at.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ccc_core::{Grant, Micros};
use ccc_proto::wire::{self, Report};
use serde::Serialize;

use crate::device::{Device, engine::FlowEngine, slot::SlotState};

/// Time after which a guest that has data under way is called silent: many
/// times that of a retransmission.
const SILENT_AFTER: Micros = 5_000_000;
/// What it is called then.
pub const SILENT: &str = "silent";
const STATES: [&str; 5] = ["free", "slow start", "avoidance", "recovery", "loss"];

/// Flows in slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All of them.
    pub all: usize,
    /// Those that are coupled.
    pub coupled: usize,
    /// Those that have data under way or to send.
    pub active: usize,
}

/// What the flows of a VM have of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Those coupled there.
    pub flows: usize,
    /// What they are granted together, bytes.
    pub bytes: u64,
    /// Mean round-trip time of those that have something to send.
    pub srtt_us: Option<u64>,
}

/// Flows of a VM, as operators see them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowPage {
    /// In the order of their slots.
    pub flows: Vec<FlowView>,
    /// First slot of what was left out, if anything was.
    pub next: Option<u32>,
}

/// A flow, as operators see it.
#[derive(Clone, Debug, Serialize)]
pub struct FlowView {
    /// Its slot.
    pub slot: u32,
    /// Which use of the slot it is.
    pub generation: u32,
    /// Source address.
    pub source: String,
    /// Destination address.
    pub destination: String,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Its own congestion controller.
    pub algorithm: String,
    /// Congestion state.
    pub state: &'static str,
    /// Has data outstanding or to send.
    pub active: bool,
    /// Share within the VM.
    pub priority: f64,
    /// The group it is coupled in, if it is.
    pub group: Option<String>,
    /// What it is granted, bytes; `None` if it is not coupled.
    pub granted: Option<u64>,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow start threshold, bytes, after the first event.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time, microseconds; 0 if not known.
    pub srtt_us: u32,
    /// Bytes acknowledged.
    pub delivered: u64,
    /// Congestion events.
    pub events: u16,
}

impl Device {
    /// Its flows, counted.
    pub fn count_flows(&self, engine: &dyn FlowEngine) -> Count {
        let mut count = Count::default();
        for (_, state) in self.flows.from(0) {
            count.all += 1;
            count.coupled += usize::from(state.member().is_some());
            count.active += usize::from(state.is_active(engine));
        }
        count
    }

    /// Flows there are.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// When its driver last used a queue.
    pub fn heard(&self) -> Option<Micros> {
        self.heard
    }

    /// What its guest is doing, as far as that can be seen from here.
    pub fn life(&self, count: &Count, now: Micros) -> &'static str {
        // A driver offers tables before anything else; a guest that has none,
        // or has not come so far, leaves the device alone.
        if self.flows.extents().is_empty() {
            return "no driver";
        }
        // A flow that becomes idle says so.
        let silent = self.heard.is_none_or(|heard| now.saturating_sub(heard) >= SILENT_AFTER);
        match (count.active, silent) {
            (0, _) => "idle",
            (_, true) => SILENT,
            (_, false) => "active",
        }
    }

    /// What its flows have of a group.
    pub fn part_of(&self, group: usize, grant: &Grant, engine: &dyn FlowEngine) -> Part {
        let (mut part, mut units, mut rtts, mut sending) = (Part::default(), 0u64, 0u64, 0u64);
        for (_, state) in self.flows.from(0) {
            let SlotState::Coupled(member) = state else { continue };
            if self.flows.group(member) != Some(group) {
                continue;
            }
            part.flows += 1;
            let report = engine.last_report(member.flow);
            if let Some(report) = report.filter(|report| report.active) {
                units = units.saturating_add(grant.units(report.priority, report.srtt_us));
                rtts += u64::from(report.srtt_us);
                sending += u64::from(report.srtt_us > 0);
            }
        }
        part.bytes = if grant.coupled { grant.cwnd_bytes(units) } else { 0 };
        part.srtt_us = rtts.checked_div(sending);
        part
    }

    /// What each of its coupled flows is granted that has something to send, by slot, bytes.
    pub fn granted(&self, engine: &dyn FlowEngine) -> Vec<(u32, u64)> {
        let granted = |(slot, state): (u32, &SlotState)| {
            let SlotState::Coupled(member) = state else { return None };
            let report = engine.last_report(member.flow).filter(|report| report.active)?;
            let grant = engine.grant(self.flows.vm(), self.flows.group(member)?);
            let units = grant.units(report.priority, report.srtt_us);
            Some((slot, grant.cwnd_bytes(units)))
        };
        self.flows.from(0).filter_map(granted).collect()
    }

    /// Flows from slot `from` on, at most `limit` of them, as their slots are now.
    /// A slot that is just being written is not shown.
    pub fn list_flows(&self, from: u32, limit: usize, engine: &dyn FlowEngine) -> FlowPage {
        let slots = || self.flows.from(from).map(|(slot, _)| slot);
        let views = slots().take(limit).filter_map(|slot| self.view(slot, engine));
        FlowPage { flows: views.collect(), next: slots().nth(limit) }
    }

    /// A flow as its slot is now, if there is one.
    pub fn view(&self, slot: u32, engine: &dyn FlowEngine) -> Option<FlowView> {
        let (report, state) = self.flows.read(slot, self.memory.mapping()).ok()?;
        let generation = state.generation()?;
        let checked = report.check().ok().filter(|now| now.generation == generation)?;
        let group = state.member().and_then(|member| self.flows.group(&member));
        Some(FlowView {
            slot,
            generation,
            source: source(&report).to_string(),
            destination: checked.destination.to_string(),
            source_port: report.sport.get(),
            destination_port: report.dport.get(),
            algorithm: name(&report.algorithm),
            state: STATES.get(usize::from(report.state)).copied().unwrap_or("unknown"),
            active: checked.report.active,
            priority: f64::from(checked.report.priority) / f64::from(wire::PRIORITY_ONE),
            group: group.map(|group| engine.group_info(group).name.to_owned()),
            granted: group.map(|group| {
                let grant = engine.grant(self.flows.vm(), group);
                grant.cwnd_bytes(grant.units(checked.report.priority, checked.report.srtt_us))
            }),
            cwnd: checked.report.cwnd_bytes,
            ssthresh: checked.report.ssthresh_bytes,
            srtt_us: checked.report.srtt_us,
            delivered: checked.report.delivered_bytes,
            events: checked.report.congestion_events,
        })
    }
}

fn source(report: &Report) -> IpAddr {
    let [a, b, c, d, ..] = report.saddr;
    if report.family == 4 {
        Ipv4Addr::new(a, b, c, d).into()
    } else {
        Ipv6Addr::from(report.saddr).into()
    }
}

/// Printable letters of a name that a guest wrote.
fn name(bytes: &[u8]) -> String {
    let letters = bytes.iter().take_while(|byte| **byte != 0);
    letters.map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_guests_are_made_printable() {
        assert_eq!(super::name(b"cubic\0xx"), "cubic");
        assert_eq!(super::name(b"a\n\x1b[1m"), "a??[1m");
    }
}
