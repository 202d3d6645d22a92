// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The scenario file: what a run is to simulate. These types are its only
//! description; `ccc-lab schema` prints them as a JSON Schema, of which
//! Python's types are made (`experiments/ccc_experiments/schema.py`).

pub mod daemon;
pub mod field;
pub mod flows;
pub mod path;
pub mod stalls;
pub mod vm;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Context, Result};
use daemon::{Action, Group};
use field::Field;
use path::{Bottleneck, Cross, Fault, MAX_DELAY_MS};
use vm::Vm;

/// Most VMs of one run; bounded by the address plan (one /24 each).
pub const MAX_VMS: usize = 200;
/// The network's kernel has interrupts for 52 NICs; with more VMs than this,
/// several share one.
pub const MOST_UPLINKS: usize = 48;

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the run, for people.
    pub name: String,
    /// The tenants.
    pub vms: Vec<Vm>,
    /// Seed of everything random: the same seed gives the same run.
    pub seed: u64,
    /// Simulated seconds of traffic.
    pub duration_s: f64,
    /// Whether `ccc-vhost` runs and devices are attached.
    #[serde(default)]
    pub coupled: bool,
    /// Where the senders live.
    #[serde(default)]
    pub topology: Topology,
    /// The shared queue and the way back.
    #[serde(default)]
    pub bottleneck: Bottleneck,
    /// Interval of the TCP and goodput samples.
    #[serde(default = "default_sample_ms")]
    pub sample_ms: u64,
    /// Interval of the queue samples.
    #[serde(default = "default_queue_sample_ms")]
    pub queue_sample_ms: u64,
    /// The User Mode Linux kernel.
    pub kernel: Option<PathBuf>,
    /// Kernel module loaded in every guest that sends.
    pub module: Option<PathBuf>,
    /// The one of VMs that are hostile.
    pub hostile_module: Option<PathBuf>,
    /// The `ccc-vhost` program.
    pub daemon: Option<PathBuf>,
    /// Congestion control of the receivers, which decides how they echo marks.
    #[serde(default = "default_receiver_control")]
    pub receiver_congestion_control: String,
    /// Settings of the bottleneck group, by their names in the daemon's configuration.
    #[serde(default)]
    pub group: Group,
    /// Whether the laboratory stands between guests and daemon, so that a
    /// daemon can come back; given when one is killed.
    #[serde(default)]
    pub relay: bool,
    /// How long doorbells take to the daemon; those rung meanwhile go along.
    pub doorbell_delay_ms: Option<f64>,
    /// What is done from outside, in the order of times.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// Whether the tenants' flows use IPv6.
    #[serde(default)]
    pub ipv6: bool,
    /// Traffic beside the tenants' that does not respond.
    pub cross: Option<Cross>,
    /// Segments that are lost on purpose.
    #[serde(default)]
    pub faults: Vec<Fault>,
}

/// Where the senders live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// A kernel for each VM and one for the network.
    #[default]
    Vms,
    /// One kernel holds everything in network namespaces.
    Single,
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
        let mut json = serde_json::Deserializer::from_str(text);
        let scenario: std::result::Result<Self, _> = serde_path_to_error::deserialize(&mut json);
        let mut scenario = scenario.or_else(|error| {
            let path = error.path().to_string();
            // The path of the whole is a dot.
            let at = if path == "." { Field::root() } else { Field::root().at(&path) };
            at.refuse_unread(error.inner())
        })?;
        json.end().or_else(|error| Field::root().refuse_unread(&error))?;
        for (number, vm) in (1..).zip(&mut scenario.vms) {
            if vm.name.is_empty() {
                vm.name = format!("vm{number}");
            }
        }
        scenario.check()?;
        Ok(scenario)
    }

    /// The description of the file: a JSON Schema.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
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

    /// Whether the daemon looks at the VMs' taps, which are the cables to their NICs.
    pub fn watches_taps(&self) -> bool {
        let enforce = self.group.get("enforce").and_then(Value::as_str);
        self.coupled && enforce.is_some_and(|word| word != "off")
    }

    /// Whether the daemon is spoken to.
    pub fn controls(&self) -> bool {
        self.actions.iter().any(|a| a.control.is_some())
    }

    fn check(&self) -> Result<()> {
        let at = Field::root();
        at.at("duration_s").above_zero(self.duration_s, 100_000.0, "s")?;
        at.at("sample_ms").within(self.sample_ms, 1, u64::MAX, "ms")?;
        at.at("queue_sample_ms").within(self.queue_sample_ms, 1, u64::MAX, "ms")?;
        self.bottleneck.check(&at.at("bottleneck"), self.duration_s)?;
        if self.coupled && self.daemon.is_none() {
            return at.at("daemon").refuse("the path of ccc-vhost in a coupled run", "none");
        }
        daemon::check_group(&self.group, &at.at("group"))?;
        self.check_disturbances(&at)?;
        self.check_actions(&at)?;
        at.at("vms").within(self.vms.len(), 1, MAX_VMS, "VMs")?;
        let mut names = HashSet::new();
        for (i, vm) in self.vms.iter().enumerate() {
            let at = at.element("vms", i);
            vm.check(&at, self.duration_s)?;
            self.check_kernel_of(vm, &at)?;
            if !names.insert(&vm.name) {
                return at
                    .at("name")
                    .refuse("another name for each", format!("'{}' twice", vm.name));
            }
        }
        Ok(())
    }

    fn check_disturbances(&self, at: &Field) -> Result<()> {
        if let Some(delay) = self.doorbell_delay_ms {
            at.at("doorbell_delay_ms").above_zero(delay, MAX_DELAY_MS, "ms")?;
        }
        if let Some(cross) = &self.cross {
            cross.check(&at.at("cross"), self.bottleneck.rate_mbit)?;
        }
        for (i, fault) in self.faults.iter().enumerate() {
            fault.check(&at.element("faults", i), self.duration_s)?;
        }
        if !self.faults.is_empty() {
            self.needs_cables(&at.at("faults"))?;
        }
        Ok(())
    }

    /// Refuses an option that needs the VMs' cables where there are none.
    pub fn check_cables(&self, option: &str) -> Result<()> {
        self.needs_cables(&Field::root().at(option))
    }

    /// What is done at a VM's cable needs one.
    fn needs_cables(&self, at: &Field) -> Result<()> {
        match self.topology {
            Topology::Vms => Ok(()),
            Topology::Single => at.refuse("the topology vms with it", "single"),
        }
    }

    /// What concerns a VM's kernel, which in `single` all share.
    fn check_kernel_of(&self, vm: &Vm, at: &Field) -> Result<()> {
        if vm.reboot_s.is_some() {
            self.needs_cables(&at.at("reboot_s"))?;
        }
        if vm.link.is_some() {
            self.needs_cables(&at.at("link"))?;
        }
        if self.watches_taps() {
            self.needs_cables(&Field::root().at("group.enforce"))?;
            if vm.link.is_some() {
                return at.at("link").refuse("none where taps are looked at", "one");
            }
        }
        if vm.hostile {
            self.needs_cables(&at.at("hostile"))?;
        }
        if self.ipv6 && vm.link.as_ref().is_some_and(|link| link.past_bottleneck) {
            return at.at("link.past_bottleneck").refuse("IPv4 with it", "ipv6: true");
        }
        if vm.stalls.is_some() {
            self.needs_cables(&at.at("stalls"))?;
        }
        let crowded = self.topology == Topology::Vms && self.vms.len() > MOST_UPLINKS;
        if crowded && vm.has_own_return_path() {
            let got = format!("{} VMs", self.vms.len());
            let expected =
                format!("at most {MOST_UPLINKS} VMs where one has a way back of its own");
            return at.at("delay_ms").refuse(expected, got);
        }
        let common = &self.bottleneck;
        let jitter_ms = vm.return_jitter_ms.or(common.return_jitter_ms);
        let delays = vm.delay_changes.iter().map(|change| change.delay_ms);
        let least_ms = delays.fold(vm.delay_ms.unwrap_or(common.delay_ms), f64::min);
        let loss = vm.return_loss_percent.or(common.return_loss_percent);
        path::check_return_path(at, least_ms, jitter_ms, loss)?;
        let first = &self.vms[0].module_options;
        if self.topology == Topology::Single && vm.module_options != *first {
            let expected = format!("those of vms[0], in whose kernel it is ('{first}')");
            return at.at("module_options").refuse(expected, format!("'{}'", vm.module_options));
        }
        Ok(())
    }

    fn check_actions(&self, at: &Field) -> Result<()> {
        if !self.actions.is_empty() && !self.coupled {
            return at.at("actions").refuse("a coupled run, which has a daemon", "another");
        }
        at.in_order("actions", self.actions.iter().map(|a| a.at_s), self.duration_s)?;
        let mut daemon_runs = true;
        for (i, action) in self.actions.iter().enumerate() {
            action.check(&at.element("actions", i), daemon_runs)?;
            daemon_runs = (daemon_runs || action.start_daemon) && !action.kill_daemon;
        }
        Ok(())
    }

    fn check_files(&self) -> Result<()> {
        if self.kernel.is_none() {
            return Field::root().at("kernel").refuse("the path of a User Mode Linux", "none");
        }
        if self.vms.iter().any(|vm| vm.hostile) && self.hostile_module.is_none() {
            let expected = "the path of a hostile module, as a VM is hostile";
            return Field::root().at("hostile_module").refuse(expected, "none");
        }
        let files = [
            ("kernel", &self.kernel),
            ("module", &self.module),
            ("hostile_module", &self.hostile_module),
            ("daemon", &self.daemon),
        ];
        for (name, path) in files {
            if let Some(path) = path.as_ref().filter(|p| !p.is_file()) {
                let got = format!("'{}', which is none", path.display());
                return Field::root().at(name).refuse("the path of a file", got);
            }
        }
        Ok(())
    }
}
