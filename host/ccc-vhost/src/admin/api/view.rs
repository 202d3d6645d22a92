// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators are told.
use serde::Serialize;

/// What operators are told.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// The daemon as a whole.
    Status(Status),
    /// All VMs.
    Vms(Vms),
    /// One VM.
    Vm(Vm),
    /// Flows of a VM.
    Flows(Flows),
    /// All groups.
    Groups(Groups),
    /// One group.
    Group(Group),
    /// All rules.
    Rules(Rules),
}

/// The daemon as a whole.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Version of the program.
    pub version: &'static str,
    /// Groups there are.
    pub groups: usize,
    /// VMs there are.
    pub vms: usize,
    /// Flows in the slots of all VMs.
    pub flows: usize,
}

/// All VMs.
#[derive(Clone, Debug, Serialize)]
pub struct Vms {
    /// In the order of their names.
    pub vms: Vec<Vm>,
}

/// A VM.
#[derive(Clone, Debug, Serialize)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Where its front end connects.
    pub socket: String,
    /// Its share of any group.
    pub weight: f64,
    /// Its group, if it has one.
    pub group: Option<String>,
    /// Its flows are coupled.
    pub coupled: bool,
    /// What the configuration says, where an earlier change goes over it.
    pub configured: Option<Configured>,
    /// A front end is connected.
    pub connected: bool,
    /// What its guest is doing, as far as that can be seen from here.
    pub state: &'static str,
    /// Milliseconds since its driver last used a queue, if it has.
    pub heard_ms: Option<u64>,
    /// It is being migrated away: changes made here do not go with it.
    pub migrating: bool,
    /// Flows in its slots.
    pub flows: usize,
    /// Those of them that are coupled.
    pub coupled_flows: usize,
    /// What its device did and refused since the daemon's start.
    pub counters: Counters,
}

/// What the configuration says of a VM.
#[derive(Clone, Debug, Serialize)]
pub struct Configured {
    /// Its share of any group.
    pub weight: f64,
    /// Its group, if it has one.
    pub group: Option<String>,
    /// Its flows are coupled.
    pub coupled: bool,
}

/// What a device did and refused.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counters {
    /// Messages taken.
    pub messages: u64,
    /// Flows found in slots.
    pub registered: u64,
    /// Reports taken of coupled flows.
    pub updated: u64,
    /// Flows gone.
    pub left: u64,
    /// Times all slots were looked at.
    pub rescans: u64,
    /// Lines written.
    pub published: u64,
    /// Times something was refused, whatever it was.
    pub refused: u64,
    /// Flows for whose group there was no line left.
    pub no_line: u64,
    /// Times a flow was over one of the operator's limits.
    pub over_limit: u64,
}

/// All groups.
#[derive(Clone, Debug, Serialize)]
pub struct Groups {
    /// In the order of their names.
    pub groups: Vec<Group>,
}

/// A group.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Coupling algorithm.
    pub policy: &'static str,
    /// What shares are shares of.
    pub share: &'static str,
    /// How many TCPs it is worth.
    pub equivalent_tcps: f64,
    /// Whose growth it takes.
    pub growth_source: &'static str,
    /// Its flows are coupled.
    pub coupled: bool,
    /// Aggregate window, bytes.
    pub window: u64,
    /// Aggregate slow start threshold, bytes, after the first event.
    pub ssthresh: Option<u64>,
    /// Changes with every reduction.
    pub epoch: u32,
    /// Flows that count.
    pub active_flows: u64,
    /// VMs with flows in it, or whose group it is.
    pub vms: Vec<Part>,
}

/// The part of a VM in a group.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The VM.
    pub name: String,
    /// Its share.
    pub weight: f64,
    /// Its flows coupled here.
    pub flows: usize,
    /// What they are granted together, bytes.
    pub part: u64,
}

/// Flows of a VM.
#[derive(Clone, Debug, Serialize)]
pub struct Flows {
    /// In the order of their slots.
    pub flows: Vec<Flow>,
    /// First slot of what was left out, if anything was.
    pub next: Option<u32>,
}

/// A flow.
#[derive(Clone, Debug, Serialize)]
pub struct Flow {
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

/// All rules.
#[derive(Clone, Debug, Serialize)]
pub struct Rules {
    /// The first that matches a flow decides.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug, Serialize)]
pub struct Rule {
    /// The VM it is for, or all.
    pub vm: Option<String>,
    /// Where its flows go, or everywhere.
    pub destination: Option<String>,
    /// Their group, or none.
    pub group: Option<String>,
}
