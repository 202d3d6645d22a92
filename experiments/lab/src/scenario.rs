// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The scenario file: what a run is to simulate.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cross::Cross;
use crate::error::{Context, LabError, Result};
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
    pub aggression: Option<f64>,
    /// Whose growth the aggregate takes.
    #[serde(default)]
    pub coco: Option<String>,
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

impl Scenario {
    /// Reads and checks a scenario file.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).on("reading", path)?;
        let scenario = Self::parse(&text)?;
        scenario.check_files()?;
        Ok(scenario)
    }

    /// Parses and checks a scenario, without looking at the files it names.
    pub fn parse(text: &str) -> Result<Self> {
        let scenario: Self =
            serde_json::from_str(text).map_err(|e| bad("the file", e.to_string()))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// VMs that have a device in this run.
    pub fn has_device(&self, vm: &Vm) -> bool {
        self.coupled && vm.device
    }

    /// Whether the laboratory stands between guests and daemon.
    pub fn relays(&self) -> bool {
        let stands_between = self.relay || self.doorbell_delay_ms.is_some();
        self.coupled && (stands_between || self.actions.iter().any(|a| a.kill_daemon))
    }

    /// Whether the daemon is spoken to.
    pub fn controls(&self) -> bool {
        self.actions.iter().any(|a| a.control.is_some())
    }

    fn check(&self) -> Result<()> {
        positive("duration_s", self.duration_s, 100_000.0)?;
        positive("bottleneck.rate_mbit", self.bottleneck.rate_mbit, 100_000.0)?;
        not_negative("bottleneck.delay_ms", self.bottleneck.delay_ms, 10_000.0)?;
        at_least_one("bottleneck.limit_packets", self.bottleneck.limit_packets.into())?;
        self.bottleneck.check_marks()?;
        at_least_one("sample_ms", self.sample_ms)?;
        at_least_one("queue_sample_ms", self.queue_sample_ms)?;
        if self.coupled && self.daemon.is_none() {
            return Err(bad("daemon", "a coupled run needs the path of ccc-vhost"));
        }
        if self.vms.is_empty() || self.vms.len() > MAX_VMS {
            return Err(bad("vms", format!("needs 1 to {MAX_VMS} entries")));
        }
        self.group.check()?;
        self.check_disturbances()?;
        self.check_actions()?;
        let mut names = HashSet::new();
        for (i, vm) in self.vms.iter().enumerate() {
            vm.check(&format!("vms[{i}]"), self.duration_s)?;
            self.check_kernel_of(vm, &format!("vms[{i}]"))?;
            if !names.insert(&vm.name) {
                return Err(bad(format!("vms[{i}].name"), format!("'{}' is there twice", vm.name)));
            }
        }
        Ok(())
    }

    fn check_disturbances(&self) -> Result<()> {
        if let Some(delay) = self.doorbell_delay_ms {
            positive("doorbell_delay_ms", delay, 10_000.0)?;
        }
        if let Some(cross) = &self.cross {
            cross.check(self.bottleneck.rate_mbit)?;
        }
        for (i, fault) in self.faults.iter().enumerate() {
            fault.check(&format!("faults[{i}]"), self.duration_s)?;
        }
        if !self.faults.is_empty() && self.topology == Topology::Single {
            return Err(bad("faults", "needs the topology vms: there are no cables in single"));
        }
        Ok(())
    }

    /// What concerns a VM's kernel, which in `single` all share.
    fn check_kernel_of(&self, vm: &Vm, at: &str) -> Result<()> {
        if self.topology == Topology::Vms {
            return Ok(());
        }
        if vm.reboot_s.is_some() {
            return Err(bad(format!("{at}.reboot_s"), "needs the topology vms"));
        }
        if vm.module_options != self.vms[0].module_options {
            let reason = "differ from those of vms[0], in whose kernel it is";
            return Err(bad(format!("{at}.module_options"), reason));
        }
        Ok(())
    }

    fn check_actions(&self) -> Result<()> {
        let (mut earliest, mut running) = (0.0, true);
        for (i, action) in self.actions.iter().enumerate() {
            let at = format!("actions[{i}]");
            if !(earliest..=self.duration_s).contains(&action.at_s) {
                let reason = format!("{} is not in {earliest} to {}", action.at_s, self.duration_s);
                return Err(bad(format!("{at}.at_s"), reason));
            }
            earliest = action.at_s;
            action.check(&at, running)?;
            running = (running || action.start_daemon) && !action.kill_daemon;
        }
        if !self.actions.is_empty() && !self.coupled {
            return Err(bad("actions", "there is no daemon in a run that is not coupled"));
        }
        Ok(())
    }

    fn check_files(&self) -> Result<()> {
        let files = [
            ("kernel", Some(&self.kernel)),
            ("module", self.module.as_ref()),
            ("daemon", self.daemon.as_ref()),
        ];
        for (field, path) in files {
            if let Some(path) = path.filter(|p| !p.is_file()) {
                return Err(bad(field, format!("'{}' is not a file", path.display())));
            }
        }
        Ok(())
    }
}

impl Action {
    fn check(&self, at: &str, running: bool) -> Result<()> {
        let kinds = [self.control.is_some(), self.kill_daemon, self.start_daemon];
        if kinds.iter().filter(|&&kind| kind).count() != 1 {
            return Err(bad(at, "needs one of control, kill_daemon and start_daemon"));
        }
        if running == self.start_daemon {
            let state = if running { "runs already" } else { "does not run then" };
            return Err(bad(at, format!("the daemon {state}")));
        }
        self.control.as_ref().map_or(Ok(()), |request| request.check(at))
    }
}

impl Request {
    fn check(&self, at: &str) -> Result<()> {
        if self.method.is_empty() || !self.method.chars().all(|c| c.is_ascii_uppercase()) {
            return Err(bad(format!("{at}.control.method"), "needs capital letters"));
        }
        if !self.path.starts_with('/') || !self.path.chars().all(|c| c.is_ascii_graphic()) {
            return Err(bad(format!("{at}.control.path"), "needs to begin with '/'"));
        }
        Ok(())
    }
}

impl Bottleneck {
    fn check_marks(&self) -> Result<()> {
        let Some(mark_ms) = self.mark_ms else {
            return Ok(());
        };
        if self.queue != Queue::Fifo {
            return Err(bad("bottleneck.mark_ms", "goes with the queue fifo only"));
        }
        not_negative("bottleneck.mark_ms", mark_ms, 10_000.0)
    }
}

impl Group {
    fn check(&self) -> Result<()> {
        let named = [
            ("group.policy", &self.policy),
            ("group.share", &self.share),
            ("group.coco", &self.coco),
        ];
        for (field, value) in named {
            // They are written into the daemon's configuration as they are.
            let plain = |v: &&String| v.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            if let Some(value) = value.as_ref().filter(|v| !plain(v)) {
                return Err(bad(field, format!("'{value}' is not a plain word")));
            }
        }
        self.aggression.map_or(Ok(()), |n| positive("group.aggression", n, 1000.0))
    }
}

impl Vm {
    fn check(&self, at: &str, duration_s: f64) -> Result<()> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 12 || !self.name.chars().all(plain) {
            return Err(bad(format!("{at}.name"), "needs 1 to 12 of a-z, 0-9 and '-'"));
        }
        if ["net", "lab", "receiver", "daemon"].contains(&self.name.as_str()) {
            return Err(bad(
                format!("{at}.name"),
                format!("'{}' is the laboratory's own", self.name),
            ));
        }
        if self.congestion_control.is_empty() {
            return Err(bad(format!("{at}.congestion_control"), "is empty"));
        }
        positive(&format!("{at}.weight"), self.weight, 1000.0)?;
        if let Some(delay) = self.delay_ms {
            not_negative(&format!("{at}.delay_ms"), delay, 10_000.0)?;
        }
        let mut earliest = 0.0;
        for (i, change) in self.delay_changes.iter().enumerate() {
            change.check(&format!("{at}.delay_changes[{i}]"), earliest, duration_s)?;
            earliest = change.at_s;
        }
        let mut earliest = 0.0;
        for (i, action) in self.guest_actions.iter().enumerate() {
            action.check(&format!("{at}.guest_actions[{i}]"), earliest, duration_s)?;
            earliest = action.at_s;
        }
        for (i, flows) in self.flows.iter().enumerate() {
            flows.check(&format!("{at}.flows[{i}]"), duration_s)?;
        }
        self.reboot_s.map_or(Ok(()), |reboot| self.check_reboot(reboot, at, duration_s))
    }

    /// Nothing may begin while the kernel is not there.
    fn check_reboot(&self, reboot_s: f64, at: &str, duration_s: f64) -> Result<()> {
        if !(reboot_s > 0.0 && reboot_s + BOOT_S < duration_s) {
            let reason = format!("{reboot_s} is not in 0 to duration_s less {BOOT_S} s to boot");
            return Err(bad(format!("{at}.reboot_s"), reason));
        }
        let away = reboot_s..reboot_s + BOOT_S;
        let until = away.end;
        let flows = self.flows.iter().map(|flows| flows.start_s);
        if let Some(i) = flows.clone().position(|start| away.contains(&(start + JITTER_S))) {
            let reason = format!("starts while the VM boots, up to {until} s");
            return Err(bad(format!("{at}.flows[{i}].start_s"), reason));
        }
        let mut actions = self.guest_actions.iter();
        if let Some(i) = actions.position(|action| away.contains(&action.at_s)) {
            let reason = format!("is while the VM boots, up to {until} s");
            return Err(bad(format!("{at}.guest_actions[{i}].at_s"), reason));
        }
        Ok(())
    }
}

impl Flows {
    fn check(&self, at: &str, duration_s: f64) -> Result<()> {
        if self.count == 0 || self.count > 1000 {
            return Err(bad(format!("{at}.count"), "needs 1 to 1000"));
        }
        not_negative(&format!("{at}.start_s"), self.start_s, duration_s)?;
        if let Some(stop) = self.stop_s {
            if !(stop > self.start_s && stop <= duration_s) {
                let reason = format!("{stop} is not after start_s and within duration_s");
                return Err(bad(format!("{at}.stop_s"), reason));
            }
        }
        if let Some(mss) = self.mss.filter(|mss| !(88..=1460).contains(mss)) {
            return Err(bad(format!("{at}.mss"), format!("{mss} is not in 88 to 1460")));
        }
        if self.bytes == Some(0) {
            return Err(bad(format!("{at}.bytes"), "must not be 0"));
        }
        if let Some(rate) = self.rate_kbit {
            not_negative(&format!("{at}.rate_kbit"), rate, MAX_RATE_KBIT)?;
        }
        if let Some(churn) = &self.churn {
            churn.check(&format!("{at}.churn"), self, duration_s)?;
        }
        let mut earliest = 0.0;
        for (i, phase) in self.phases.iter().enumerate() {
            phase.check(&format!("{at}.phases[{i}]"), earliest, duration_s)?;
            earliest = phase.at_s;
        }
        Ok(())
    }
}

impl Churn {
    fn check(&self, at: &str, flows: &Flows, duration_s: f64) -> Result<()> {
        if self.connections == 0 || self.connections > MAX_CHURN {
            return Err(bad(format!("{at}.connections"), format!("needs 1 to {MAX_CHURN}")));
        }
        if self.bytes == 0 || self.bytes > 65536 {
            return Err(bad(format!("{at}.bytes"), "needs 1 to 65536"));
        }
        not_negative(&format!("{at}.hold_s"), self.hold_s, duration_s)?;
        self.again_ms.map_or(Ok(()), |again| at_least_one(&format!("{at}.again_ms"), again))?;
        let alone = flows.stop_s.is_none() && flows.bytes.is_none() && flows.rate_kbit.is_none();
        if !alone || !flows.phases.is_empty() || flows.count != 1 {
            return Err(bad(at, "goes with count 1, start_s and priority only"));
        }
        Ok(())
    }
}

impl DelayChange {
    fn check(&self, at: &str, earliest: f64, duration_s: f64) -> Result<()> {
        if !(earliest..=duration_s).contains(&self.at_s) {
            let reason = format!("{} is not in {earliest} to {duration_s}", self.at_s);
            return Err(bad(format!("{at}.at_s"), reason));
        }
        not_negative(&format!("{at}.delay_ms"), self.delay_ms, 10_000.0)
    }
}

impl GuestAction {
    /// What is done, and an error if that is not one thing.
    pub fn kind(&self) -> Result<GuestWork> {
        let flags = [
            (self.unload_module, GuestWork::UnloadModule),
            (self.reload_module, GuestWork::ReloadModule),
            (self.unbind_device, GuestWork::UnbindDevice),
            (self.bind_device, GuestWork::BindDevice),
        ];
        let flags = flags.into_iter().filter(|(given, _)| *given).map(|(_, work)| work);
        let control = self.congestion_control.clone().map(GuestWork::CongestionControl);
        let mut kinds: Vec<_> = flags.chain(control).collect();
        match (kinds.pop(), kinds.is_empty()) {
            (Some(kind), true) => Ok(kind),
            _ => Err(bad("guest_actions", "each needs one thing to do")),
        }
    }

    fn check(&self, at: &str, earliest: f64, duration_s: f64) -> Result<()> {
        if !(earliest..=duration_s).contains(&self.at_s) {
            let reason = format!("{} is not in {earliest} to {duration_s}", self.at_s);
            return Err(bad(format!("{at}.at_s"), reason));
        }
        self.kind().map(drop).map_err(|_| bad(at, "needs one thing to do"))
    }
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

impl Phase {
    fn check(&self, at: &str, earliest: f64, duration_s: f64) -> Result<()> {
        if !(earliest..=duration_s).contains(&self.at_s) {
            let reason = format!("{} is not in {earliest} to {duration_s}", self.at_s);
            return Err(bad(format!("{at}.at_s"), reason));
        }
        match self.rate_kbit {
            Some(Some(rate)) => not_negative(&format!("{at}.rate_kbit"), rate, MAX_RATE_KBIT),
            _ => Ok(()),
        }
    }
}

fn bad(field: impl Into<String>, reason: impl Into<String>) -> LabError {
    LabError::Scenario { field: field.into(), reason: reason.into() }
}

fn positive(field: &str, value: f64, most: f64) -> Result<()> {
    if value > 0.0 && value <= most {
        return Ok(());
    }
    Err(bad(field, format!("{value} is not above 0 and at most {most}")))
}

fn not_negative(field: &str, value: f64, most: f64) -> Result<()> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    Err(bad(field, format!("{value} is not in 0 to {most}")))
}

fn at_least_one(field: &str, value: u64) -> Result<()> {
    if value > 0 { Ok(()) } else { Err(bad(field, "must be at least 1")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(edit: impl FnOnce(&mut serde_json::Value)) -> Result<Scenario> {
        let mut json = serde_json::json!({
            "name": "test", "seed": 7, "duration_s": 60, "topology": "vms",
            "bottleneck": {"rate_mbit": 10, "limit_packets": 83, "delay_ms": 100},
            "kernel": "linux",
            "vms": [{"name": "vm1", "congestion_control": "reno", "flows": [{"count": 4}]}]
        });
        edit(&mut json);
        Scenario::parse(&json.to_string())
    }

    fn message(edit: impl FnOnce(&mut serde_json::Value)) -> String {
        with(edit).expect_err("must be refused").to_string()
    }

    #[test]
    fn defaults_fill_what_is_left_out() {
        let s = with(|_| ()).expect("valid");
        assert_eq!((s.sample_ms, s.queue_sample_ms, s.coupled), (100, 10, false));
        assert_eq!((s.vms[0].weight, s.vms[0].device), (1.0, true));
        assert!(!s.has_device(&s.vms[0]));
    }

    #[test]
    fn an_unknown_field_is_named() {
        assert!(message(|j| j["vms"][0]["wieght"] = 3.into()).contains("wieght"));
    }

    #[test]
    fn bad_values_are_named_with_their_place() {
        assert!(message(|j| j["duration_s"] = 0.into()).contains("duration_s: 0 is not above 0"));
        assert!(message(|j| j["vms"][0]["weight"] = 0.into()).contains("vms[0].weight"));
        assert!(
            message(|j| j["vms"][0]["flows"][0]["count"] = 0.into())
                .contains("vms[0].flows[0].count")
        );
        assert!(message(|j| j["vms"][0]["flows"][0]["stop_s"] = 99.into()).contains("stop_s: 99"));
        assert!(message(|j| j["vms"][0]["name"] = "net".into()).contains("the laboratory's own"));
    }

    #[test]
    fn weights_may_be_fractions_and_words_are_plain() {
        let s = with(|j| j["vms"][0]["weight"] = 0.5.into()).expect("valid");
        assert_eq!(s.vms[0].weight, 0.5);
        assert!(message(|j| j["group"]["share"] = "a\"".into()).contains("group.share"));
        assert!(message(|j| j["vms"][0]["delay_ms"] = (-1).into()).contains("vms[0].delay_ms"));
    }

    #[test]
    fn a_phase_tells_null_from_nothing() {
        let phases = serde_json::json!([
            {"at_s": 2, "rate_kbit": 2000}, {"at_s": 4, "rate_kbit": null}, {"at_s": 5, "priority": 4}
        ]);
        let s = with(|j| j["vms"][0]["flows"][0]["phases"] = phases).expect("valid");
        let phases = &s.vms[0].flows[0].phases;
        assert_eq!(phases[0].rate_kbit, Some(Some(2000.0)));
        assert_eq!((phases[1].rate_kbit, phases[2].rate_kbit), (Some(None), None));
        let again = serde_json::to_string(&s).expect("JSON");
        assert_eq!(&Scenario::parse(&again).expect("valid").vms[0].flows[0].phases, phases);
    }

    #[test]
    fn phases_are_in_order() {
        let phases = serde_json::json!([{"at_s": 9}, {"at_s": 8}]);
        let told = message(|j| j["vms"][0]["flows"][0]["phases"] = phases);
        assert!(told.contains("vms[0].flows[0].phases[1].at_s: 8 is not in 9"), "{told}");
    }

    #[test]
    fn actions_are_checked() {
        let actions = |list: serde_json::Value| {
            message(|j| {
                (j["coupled"], j["daemon"]) = (true.into(), "ccc-vhost".into());
                j["actions"] = list;
            })
        };
        let told = actions(serde_json::json!([{"at_s": 1, "start_daemon": true}]));
        assert!(told.contains("actions[0]: the daemon runs already"), "{told}");
        let told = actions(serde_json::json!([{"at_s": 1}]));
        assert!(told.contains("actions[0]: needs one of"), "{told}");
        let kill = serde_json::json!({"at_s": 1, "kill_daemon": true});
        let request = serde_json::json!({"at_s": 2, "control": {"method": "GET", "path": "/"}});
        let told = actions(serde_json::json!([kill, request]));
        assert!(told.contains("actions[1]: the daemon does not run then"), "{told}");
    }

    #[test]
    fn a_guest_action_is_one_thing() {
        let actions = |list: serde_json::Value| with(|j| j["vms"][0]["guest_actions"] = list);
        let unload = serde_json::json!([{"at_s": 1, "unload_module": true}]);
        let s = actions(unload).expect("valid");
        assert_eq!(s.vms[0].guest_actions[0].kind().expect("one"), GuestWork::UnloadModule);
        let two = serde_json::json!([{"at_s": 1, "unload_module": true, "bind_device": true}]);
        let told = actions(two).expect_err("refused").to_string();
        assert!(told.contains("vms[0].guest_actions[0]: needs one thing"), "{told}");
        assert!(actions(serde_json::json!([{"at_s": 1}])).is_err());
    }

    #[test]
    fn nothing_begins_while_a_vm_boots() {
        let flows = |start_s: f64| {
            with(|j| {
                j["vms"][0]["reboot_s"] = 20.into();
                j["vms"][0]["flows"] = serde_json::json!([{}, {"start_s": start_s}]);
            })
        };
        assert!(flows(25.0).is_ok() && flows(19.8).is_ok());
        for start_s in [19.95, 22.0] {
            let told = flows(start_s).expect_err("refused").to_string();
            assert!(told.contains("vms[0].flows[1].start_s: starts while the VM boots"), "{told}");
        }
        assert!(message(|j| j["vms"][0]["reboot_s"] = 58.into()).contains("58 is not in 0 to"));
        let told = message(|j| {
            j["topology"] = "single".into();
            j["vms"][0]["reboot_s"] = 20.into();
        });
        assert!(told.contains("vms[0].reboot_s: needs the topology vms"), "{told}");
    }

    #[test]
    fn one_kernel_has_one_set_of_module_options() {
        let told = message(|j| {
            j["topology"] = "single".into();
            let mut vm = j["vms"][0].clone();
            (vm["name"], vm["module_options"]) = ("vm2".into(), "inner=cubic".into());
            j["vms"].as_array_mut().expect("array").push(vm);
        });
        assert!(told.contains("vms[1].module_options: differ"), "{told}");
    }

    #[test]
    fn a_churn_has_defaults_and_stands_alone() {
        let churn = serde_json::json!({"connections": 4096, "hold_s": 5});
        let s = with(|j| j["vms"][0]["flows"][0] = serde_json::json!({"churn": churn}));
        let churn = s.expect("valid").vms[0].flows[0].churn.clone().expect("there");
        assert_eq!((churn.open_ms, churn.bytes), (1000, 4096));
        let churn = serde_json::json!({"connections": 1, "hold_s": 5});
        assert!(
            message(|j| j["vms"][0]["flows"][0]["churn"] = churn).contains(".churn: goes with")
        );
    }

    #[test]
    fn disturbances_are_checked() {
        let s = with(|j| j["bottleneck"]["queue"] = "fq_codel".into()).expect("valid");
        assert_eq!(s.bottleneck.queue, Queue::FqCodel);
        assert!(message(|j| j["doorbell_delay_ms"] = 0.into()).contains("doorbell_delay_ms: 0"));
        assert!(message(|j| j["cross"] = serde_json::json!({"load": 2})).contains("cross.load: 2"));
        let faults = serde_json::json!([{"vm": "vm1", "flow": 0, "at_s": 5, "packets": 1}]);
        assert!(with(|j| j["faults"] = faults.clone()).is_ok());
        let told = message(|j| (j["faults"], j["topology"]) = (faults.clone(), "single".into()));
        assert!(told.contains("faults: needs the topology vms"), "{told}");
        assert!(message(|j| j["vms"][0]["flows"][0]["mss"] = 9.into()).contains("flows[0].mss: 9"));
    }

    #[test]
    fn a_coupled_run_needs_the_daemon() {
        assert!(message(|j| j["coupled"] = true.into()).contains("daemon:"));
    }

    #[test]
    fn names_are_unique() {
        let twice = |j: &mut serde_json::Value| {
            let vm = j["vms"][0].clone();
            j["vms"].as_array_mut().expect("array").push(vm);
        };
        assert!(message(twice).contains("'vm1' is there twice"));
    }
}
