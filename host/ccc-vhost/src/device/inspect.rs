// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A device's flows, for operators to look at.
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    rc::Rc,
};

use ccc_core::{Grant, Micros};
use ccc_proto::{
    read_report,
    wire::{self, Report},
};

use serde::Serialize;

use crate::{
    coupling::Coupling,
    device::Device,
    device::table::{Held, Units},
    vhost_user::handler::F_LOG_ALL,
    virtio::memory::words,
};

/// Time after which a guest that has data under way is called silent: many
/// times that of a retransmission.
const SILENT_AFTER: Micros = 5_000_000;
const STATES: [&str; 5] = ["free", "slow start", "avoidance", "recovery", "loss"];

/// Flows of a VM.
#[derive(Clone, Debug, Serialize)]
pub struct FlowPage {
    /// In the order of their slots.
    pub flows: Vec<FlowView>,
    /// First slot of what was left out, if anything was.
    pub next: Option<u32>,
}

/// A flow.
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

impl Device {
    /// Its flows, counted.
    pub fn count_flows(&self) -> Count {
        let mut count = Count::default();
        for (_, held) in self.tables.held() {
            count.all += 1;
            count.coupled += usize::from(held.group().is_some());
            count.active += usize::from(held.units.active);
        }
        count
    }

    /// What its guest is doing, as far as that can be seen from here.
    pub fn life(&self, count: &Count, now: Micros) -> &'static str {
        // A driver lends tables before anything else; a guest that has none,
        // or has not come so far, leaves the device alone.
        if self.tables.ranges().is_empty() {
            return "no driver";
        }
        // A flow that becomes idle says so.
        let silent = self.heard.is_none_or(|heard| now.saturating_sub(heard) >= SILENT_AFTER);
        match (count.active, silent) {
            (0, _) => "idle",
            (_, true) => "silent",
            (_, false) => "active",
        }
    }

    /// Its front end has what is written noted, as it does to migrate the VM.
    pub fn is_migrating(&self) -> bool {
        self.features & F_LOG_ALL != 0
    }

    /// Flows coupled in a group, and what they are granted together, bytes.
    pub fn part_of(&self, group: usize, grant: &Grant) -> (usize, u64) {
        let (mut count, mut units) = (0, 0u64);
        for (_, held) in self.tables.held().filter(|(_, held)| held.group() == Some(group)) {
            count += 1;
            if held.units.active {
                units = units.saturating_add(held.units.count(grant.rate_shares));
            }
        }
        (count, if grant.coupled { grant.cwnd_bytes(units) } else { 0 })
    }

    /// Flows from slot `from` on, at most `limit` of them, as their slots are
    /// now.  A slot that is just being written is left out.
    pub fn list_flows(&mut self, from: u32, limit: usize, coupling: &Coupling) -> FlowPage {
        let held = self.tables.held().filter(|(slot, _)| *slot >= from);
        // One more says where the next page begins.
        let page = held.take(limit.saturating_add(1)).map(|(slot, held)| (slot, *held));
        let mut there: Vec<(u32, Held)> = page.collect();
        let next = there.get(limit).map(|(slot, _)| *slot);
        there.truncate(limit);
        let flows = there.iter().filter_map(|(slot, held)| self.view(*slot, held, coupling));
        FlowPage { flows: flows.collect(), next }
    }

    fn view(&mut self, slot: u32, held: &Held, coupling: &Coupling) -> Option<FlowView> {
        let memory = Rc::clone(&self.memory);
        let place = self.tables.slot(slot)?.report;
        let report = read_report(&words(memory.mapping(), place).ok()?).ok()?;
        let checked =
            report.check().ok().filter(|checked| checked.generation == held.generation)?;
        let group = held.group();
        Some(FlowView {
            slot,
            generation: held.generation,
            source: source(&report).to_string(),
            destination: held.destination.to_string(),
            source_port: report.sport.get(),
            destination_port: report.dport.get(),
            algorithm: name(&report.algorithm),
            state: STATES.get(usize::from(report.state)).copied().unwrap_or("unknown"),
            active: checked.report.active,
            priority: f64::from(checked.report.priority) / f64::from(wire::PRIORITY_ONE),
            group: group.map(|group| coupling.settings().groups[group].name.clone()),
            granted: group.map(|group| {
                let grant = coupling.grant(self.vm, group);
                grant.cwnd_bytes(Units::of(&checked.report).count(grant.rate_shares))
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
