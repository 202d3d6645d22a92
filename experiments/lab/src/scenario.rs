// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The scenario file: what a run is to simulate.

mod check;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cross::Cross;
use crate::faults::Fault;

/// Most VMs of one run; bounded by the address plan (one /24 each).
pub const MAX_VMS: usize = 200;

/// What a kernel may take to boot, simulated.
pub const BOOT_S: f64 = 5.0;
/// By how much a flow may start later than its time.
pub const JITTER_S: f64 = 0.1;

/// Most connections of a churn; local ports suffice for them.
const MAX_CHURN: u32 = 20_000;
/// Highest rate of an application that has one.
const MAX_RATE_KBIT: f64 = 200_000.0;

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the run, for people.
    pub name: String,
    /// Seed of everything random: the same seed gives the same run.
    pub seed: u64,
    /// Simulated seconds of traffic.
    pub duration_s: f64,
    /// Where the senders live.
    pub topology: Topology,
    /// Whether `ccc-vhost` runs and devices are attached.
    #[serde(default)]
    pub coupled: bool,
    /// The shared queue and the way back.
    pub bottleneck: Bottleneck,
    /// Interval of the TCP and goodput samples.
    #[serde(default = "default_sample_ms")]
    pub sample_ms: u64,
    /// Interval of the queue samples.
    #[serde(default = "default_queue_sample_ms")]
    pub queue_sample_ms: u64,
    /// The User Mode Linux kernel.
    pub kernel: PathBuf,
    /// Kernel module loaded in every guest that sends.
    #[serde(default)]
    pub module: Option<PathBuf>,
    /// The `ccc-vhost` program.
    #[serde(default)]
    pub daemon: Option<PathBuf>,
    /// Congestion control of the receivers, which decides how they echo marks.
    #[serde(default = "default_receiver_control")]
    pub receiver_congestion_control: String,
    /// Settings of the bottleneck group, for the daemon's configuration.
    #[serde(default)]
    pub group: Group,
    /// Whether the laboratory stands between guests and daemon, so that a
    /// daemon can come back; given when one is killed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub relay: bool,
    /// How long doorbells take to the daemon; those rung meanwhile go along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doorbell_delay_ms: Option<f64>,
    /// What is done from outside, in the order of times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// Whether the tenants' flows use IPv6.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ipv6: bool,
    /// Traffic beside the tenants' that does not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross: Option<Cross>,
    /// Segments that are lost on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// The tenants.
    pub vms: Vec<Vm>,
}

/// Something done from outside while nobody runs: one of its kinds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// When.
    pub at_s: f64,
    /// A request on the daemon's control socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Request>,
    /// The status of its answer; none: any of 200 to 299.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u16>,
    /// SIGKILL for the daemon.
    #[serde(default, skip_serializing_if = "is_false")]
    pub kill_daemon: bool,
    /// Start of the daemon after it was killed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub start_daemon: bool,
}

/// A request on the control socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// `GET`, `PATCH`, …
    pub method: String,
    /// Path of the resource.
    pub path: String,
    /// JSON document sent with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<serde_json::Value>,
}

/// Settings of the bottleneck group; what is left out is the daemon's default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Coupling algorithm.
    #[serde(default)]
    pub policy: Option<String>,
    /// What is shared by weight: `window` or `rate`.
    #[serde(default)]
    pub share: Option<String>,
    /// How many TCPs the aggregate acts as.
    #[serde(default)]
    pub equivalent_tcps: Option<f64>,
    /// Whose growth the aggregate takes.
    #[serde(default)]
    pub growth_source: Option<String>,
}

/// Where the senders live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// A kernel for each VM and one for the network.
    Vms,
    /// One kernel holds everything in network namespaces.
    Single,
}

/// The shared queue and the way back.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bottleneck {
    /// Rate in Mbit/s, of Ethernet frames.
    pub rate_mbit: f64,
    /// Length of the FIFO in packets; of each VM's with `htb`.
    pub limit_packets: u32,
    /// Its queueing discipline.
    #[serde(default)]
    pub queue: Queue,
    /// Delay of the way back.
    pub delay_ms: f64,
    /// Packets of flows with ECN that waited longer than this are marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_ms: Option<f64>,
}

/// A queueing discipline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// One FIFO.
    #[default]
    Fifo,
    /// FQ-CoDel.
    FqCodel,
    /// CAKE, fair to the VMs first and to their flows then.
    Cake,
    /// A FIFO for each VM, which has a rate by its weight and may borrow.
    Htb,
}

/// One tenant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// Its name in the results, and its host name.
    pub name: String,
    /// The operator's weight, for the daemon's configuration.
    #[serde(default = "unit")]
    pub weight: f64,
    /// Whether a coupled run gives it a device.
    #[serde(default = "yes")]
    pub device: bool,
    /// Delay of its way back, in place of the bottleneck's.
    #[serde(default)]
    pub delay_ms: Option<f64>,
    /// Changes of that delay, in the order of times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delay_changes: Vec<DelayChange>,
    /// Parameters of the module in its kernel.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module_options: String,
    /// Whether its flows ask for ECN.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ecn: bool,
    /// When its kernel is killed, and started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot_s: Option<f64>,
    /// Default congestion control of its sockets.
    pub congestion_control: String,
    /// Its connections.
    pub flows: Vec<Flows>,
    /// What is done inside its kernel, in the order of times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guest_actions: Vec<GuestAction>,
}

/// A change of the delay of a VM's way back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayChange {
    /// When.
    pub at_s: f64,
    /// Delay from then on.
    pub delay_ms: f64,
}

/// Something done inside a VM's kernel: one of its kinds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestAction {
    /// When.
    pub at_s: f64,
    /// The module is unloaded, if it is not in use.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unload_module: bool,
    /// The module is loaded again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reload_module: bool,
    /// The driver lets go of its device.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unbind_device: bool,
    /// The driver takes its device again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bind_device: bool,
    /// Default congestion control of new sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
}

/// Some like connections of a VM.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// When they start; a seeded 0..100 ms is added to each.
    #[serde(default)]
    pub start_s: f64,
    /// When they are aborted; none: they last to the end.
    #[serde(default)]
    pub stop_s: Option<f64>,
    /// How much each sends; none: without end.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// SO_PRIORITY of the sockets.
    #[serde(default)]
    pub priority: u32,
    /// TCP_MAXSEG of the sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// What the application writes, kbit/s; none: as much as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_kbit: Option<f64>,
    /// Many short-lived connections in place of one that lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub churn: Option<Churn>,
    /// Changes while the flows live, in the order of their times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
}

/// Connections that are opened one after another from the start on, send a
/// little, are held, and are reset all at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Churn {
    /// How many.
    pub connections: u32,
    /// Milliseconds within which they are opened.
    #[serde(default = "default_open_ms")]
    pub open_ms: u64,
    /// Seconds from the last opening to the reset.
    pub hold_s: f64,
    /// What each sends.
    #[serde(default = "default_churn_bytes")]
    pub bytes: u32,
    /// Milliseconds after which each sends that again, until the reset; none:
    /// it sends once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_ms: Option<u64>,
}

/// A change of live flows; what is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// When.
    pub at_s: f64,
    /// What the application writes from now on; null: as much as it can, 0:
    /// nothing.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub rate_kbit: Option<Option<f64>>,
    /// SO_PRIORITY.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
}

/// Tells a null that was given from a field left out.
fn given<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

fn default_open_ms() -> u64 {
    1000
}

fn default_churn_bytes() -> u32 {
    4096
}

fn default_receiver_control() -> String {
    "reno".into()
}

fn default_sample_ms() -> u64 {
    100
}

fn default_queue_sample_ms() -> u64 {
    10
}

fn one() -> u32 {
    1
}

fn is_false(value: &bool) -> bool {
    !value
}

fn unit() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// A kind of [`GuestAction`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestWork {
    /// The module is unloaded.
    UnloadModule,
    /// The module is loaded.
    ReloadModule,
    /// The driver lets go of its device.
    UnbindDevice,
    /// The driver takes its device.
    BindDevice,
    /// Default congestion control of new sockets.
    CongestionControl(String),
}
