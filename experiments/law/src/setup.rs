// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a scenario of the laboratory is for the model.
use std::ops::Range;

use ccc_core::{EquivalentTcps, GroupConfig, Weight};
use ccc_lab::{
    random::Rng,
    scenario::{
        Scenario,
        daemon::Action,
        flows::Flows,
        path::Queue,
        vm::{Link, Vm},
    },
    units::{bit_of_mbit, ns_of_s},
};
use serde_json::Value;

use crate::{
    inner::Inner,
    lies::Lies,
    path::{FRAME_BYTES, LinkSetup, MSS_BYTES, Nanos},
};

/// Most segments of a burst: six of the 64 KB that segmentation offload sends at a time.
const MOST_BURST: u64 = 256;
/// A path that holds more bursts than this is modelled in larger ones.
const PATH_BURSTS: u64 = 1500;
/// The start of each flow is spread over that, as in the laboratory.
const JITTER_NS: u64 = 100_000_000;

/// Why the model cannot run a scenario.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// It has something that the model has not.
    #[error("invalid {0}: expected none, which the model has not, got one: use ccc-lab")]
    NotModelled(&'static str),
    /// A value that cannot be.
    #[error("invalid {at}: expected {expected}, got {got}")]
    Invalid {
        /// Where.
        at: String,
        /// What could be there.
        expected: &'static str,
        /// What is there.
        got: String,
    },
    /// An algorithm that the model has not.
    #[error(transparent)]
    Inner(#[from] crate::inner::UnknownInner),
}

/// A VM.
#[derive(Clone, Debug)]
pub struct VmSetup {
    /// Its name.
    pub name: String,
    /// Its weight, which a [`Weight`] can be.
    pub weight: f64,
    /// The way back's delay.
    pub delay_ns: Nanos,
    /// Changes of that delay.
    pub delay_changes: Vec<(Nanos, Nanos)>,
    /// It has a device where flows are coupled.
    pub has_device: bool,
    /// A link of its own before the bottleneck, or past it.
    pub link: Option<LinkSetup>,
    /// What it lies, if it is hostile.
    pub lies: Option<Lies>,
}

/// A flow.
#[derive(Clone, Debug)]
pub struct FlowSetup {
    /// Number of its VM.
    pub vm: usize,
    /// Its algorithm.
    pub inner: Inner,
    /// Its priority, of 256.
    pub priority: u16,
    /// When it connects.
    pub start_ns: Nanos,
    /// When it is aborted.
    pub stop_ns: Option<Nanos>,
    /// What it sends in all.
    pub segments: Option<u64>,
    /// What its application writes, from when on; none: all it can.
    pub rates_bit: Vec<(Nanos, Option<u64>)>,
}

/// The daemon dies, and another one begins.
#[derive(Clone, Copy, Debug)]
pub struct Restart {
    /// When it is killed.
    pub killed_ns: Nanos,
    /// When the next one has begun.
    pub started_ns: Nanos,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the scenario.
    pub name: String,
    /// How long it lasts.
    pub duration_ns: Nanos,
    /// The bottleneck's rate.
    pub rate_bit: u64,
    /// Changes of it.
    pub rate_changes: Vec<(Nanos, u64)>,
    /// Its queue.
    pub limit_segments: u64,
    /// Segments sent at a time.
    pub burst_segments: u32,
    /// How the VMs are coupled.
    pub group: GroupConfig,
    /// How long doorbells take.
    pub doorbell_ns: Nanos,
    /// Changes of weights: when, whose, to what, which a [`Weight`] can be.
    pub weight_changes: Vec<(Nanos, usize, f64)>,
    /// Lives of the daemon that end.
    pub restarts: Vec<Restart>,
    /// The VMs.
    pub vms: Vec<VmSetup>,
    /// Their flows.
    pub flows: Vec<FlowSetup>,
}

impl Setup {
    /// What a scenario says.
    pub fn of(scenario: &Scenario) -> Result<Setup, SetupError> {
        refuse_what_is_not_modelled(scenario)?;
        let path = &scenario.bottleneck;
        let mut rng = Rng(scenario.seed);
        let mut flows = Vec::new();
        for (number, vm) in scenario.vms.iter().enumerate() {
            for group in &vm.flows {
                let inner = inner_of(vm)?;
                flows.extend((0..group.count).map(|_| flow_of(number, group, inner, &mut rng)));
            }
        }
        let vms = scenario.vms.iter().enumerate();
        let mut setup = Setup {
            name: scenario.name.clone(),
            duration_ns: ns_of_s(scenario.duration_s),
            rate_bit: bit_of_mbit(path.rate_mbit),
            rate_changes: path
                .rate_changes
                .iter()
                .map(|change| (ns_of_s(change.at_s), bit_of_mbit(change.rate_mbit)))
                .collect(),
            limit_segments: path.limit_packets.into(),
            burst_segments: 1,
            group: group_of(scenario)?,
            doorbell_ns: ns_of_s(scenario.doorbell_delay_ms.unwrap_or(0.0) / 1e3),
            weight_changes: scenario
                .actions
                .iter()
                .map(|action| weight_change(scenario, action))
                .collect::<Result<_, _>>()?,
            restarts: Vec::new(),
            vms: vms.map(|(number, vm)| vm_of(scenario, number, vm)).collect::<Result<_, _>>()?,
            flows,
        };
        setup.burst_segments = setup.burst();
        Ok(setup)
    }

    /// Number of the VM that is outside the group, if there is one among others.
    pub fn outside(&self) -> Option<usize> {
        let outside = self.vms.iter().position(|vm| !vm.has_device);
        outside.filter(|_| self.vms.iter().any(|vm| vm.has_device))
    }

    /// The same with one flow instead of the group's, beside the flow outside it.
    pub fn as_one(&self) -> Option<Setup> {
        let outside = self.outside()?;
        let (others, mut flows): (Vec<_>, Vec<_>) =
            self.flows.iter().cloned().partition(|flow| flow.vm == outside);
        flows.truncate(1);
        flows.extend(others);
        Some(Setup { flows, ..self.clone() })
    }

    /// Smallest and largest delay of a VM's path without its queue.
    pub fn delays_ns(&self) -> (Nanos, Nanos) {
        let delays = self.vms.iter().map(|vm| vm.delay_ns);
        (delays.clone().min().unwrap_or(0), delays.max().unwrap_or(0))
    }

    /// Payload that the bottleneck carries in a second, if all segments are full.
    pub fn payload_bytes_per_s(&self) -> f64 {
        self.rate_bit as f64 / 8.0 * f64::from(MSS_BYTES) / FRAME_BYTES as f64
    }

    /// Slots of all flows, and after them those that have none.
    pub fn slots(&self) -> usize {
        self.empty_slots(self.vms.len()).start
    }

    /// The slots of a VM that have no flow.
    pub fn empty_slots(&self, vm: usize) -> Range<usize> {
        let count = |vm: &VmSetup| vm.lies.as_ref().map_or(0, Lies::slot_count);
        let first = self.flows.len() + self.vms[..vm].iter().map(count).sum::<usize>();
        first..first + self.vms.get(vm).map_or(0, count)
    }

    /// Segments on the longest path and in its queue.
    pub fn path_segments(&self) -> u64 {
        let (_, delay_ns) = self.delays_ns();
        let bits = u128::from(self.rate_bit) * u128::from(delay_ns) / 1_000_000_000;
        (bits as u64) / (8 * FRAME_BYTES) + self.limit_segments
    }

    /// One segment, or more where the path holds so many that it would take too long; a
    /// flow's part of the path and the queue hold a number of bursts even so.
    fn burst(&self) -> u32 {
        let flows = self.flows.len().max(1) as u64;
        let coarse = self.path_segments() / PATH_BURSTS;
        let finest = (self.path_segments() / flows / 16).min(self.limit_segments / 16);
        coarse.min(finest).clamp(1, MOST_BURST) as u32
    }
}

fn refuse_what_is_not_modelled(scenario: &Scenario) -> Result<(), SetupError> {
    let path = &scenario.bottleneck;
    let vms = &scenario.vms;
    let narrow = |flows: &Flows| flows.receive_buffer_bytes.is_some();
    let phased = |flows: &Flows| {
        flows.phases.iter().any(|p| p.priority.is_some() || p.congestion_control.is_some())
    };
    let unknown = [
        ("bottleneck.queue", path.queue != Queue::Fifo),
        ("bottleneck.mark_ms", path.mark_ms.is_some()),
        ("return_loss_percent", path.return_loss_percent.is_some()),
        ("return_jitter_ms", path.return_jitter_ms.is_some()),
        ("cross", scenario.cross.is_some()),
        ("faults", !scenario.faults.is_empty()),
        ("vms[].udp_mbit", vms.iter().any(|vm| vm.udp_mbit.is_some())),
        ("vms[].ecn", vms.iter().any(|vm| vm.ecn)),
        ("vms[].reboot_s", vms.iter().any(|vm| vm.reboot_s.is_some())),
        ("vms[].guest_actions", vms.iter().any(|vm| !vm.guest_actions.is_empty())),
        ("flows[].churn", vms.iter().flat_map(|vm| &vm.flows).any(|f| f.churn.is_some())),
        ("flows[].mss", vms.iter().flat_map(|vm| &vm.flows).any(|f| f.mss.is_some())),
        ("flows[].phases", vms.iter().flat_map(|vm| &vm.flows).any(phased)),
        ("flows[].receive_buffer_bytes", vms.iter().flat_map(|vm| &vm.flows).any(narrow)),
    ];
    match unknown.iter().find(|(_, there)| *there) {
        Some((name, _)) => Err(SetupError::NotModelled(name)),
        None => Ok(()),
    }
}

/// The algorithm inside `ccc` is an option of the module.
fn inner_of(vm: &Vm) -> Result<Inner, SetupError> {
    let option = vm.module_options.split_whitespace().find_map(|o| o.strip_prefix("inner="));
    let name = if vm.congestion_control == "ccc" {
        option.unwrap_or("reno")
    } else {
        &vm.congestion_control
    };
    Ok(name.parse()?)
}

fn flow_of(vm: usize, flows: &Flows, inner: Inner, rng: &mut Rng) -> FlowSetup {
    let jitter_ns = rng.next_u64() % JITTER_NS;
    let bit = |kbit: f64| (kbit * 1e3) as u64;
    let mut rates_bit = vec![(0, flows.rate_kbit.map(bit))];
    for phase in &flows.phases {
        let rate = phase.rate_kbit.map(|rate| (ns_of_s(phase.at_s), rate.map(bit)));
        rates_bit.extend(rate);
    }
    FlowSetup {
        vm,
        inner,
        priority: 256 * flows.priority.clamp(1, 10) as u16,
        start_ns: ns_of_s(flows.start_s) + jitter_ns,
        stop_ns: flows.stop_s.map(ns_of_s),
        segments: flows.bytes.map(|bytes| bytes.div_ceil(MSS_BYTES.into())),
        rates_bit,
    }
}

fn vm_of(scenario: &Scenario, number: usize, vm: &Vm) -> Result<VmSetup, SetupError> {
    let change = |change: &ccc_lab::scenario::vm::DelayChange| {
        (ns_of_s(change.at_s), ns_of_s(change.delay_ms / 1e3))
    };
    let delay_ms = vm.delay_ms.unwrap_or(scenario.bottleneck.delay_ms);
    Ok(VmSetup {
        name: vm.name.clone(),
        weight: weight(vm.weight, &format!("vms[{number}].weight")).map(|_| vm.weight)?,
        delay_ns: ns_of_s(delay_ms / 1e3),
        delay_changes: vm.delay_changes.iter().map(change).collect(),
        has_device: vm.device && vm.congestion_control == "ccc",
        link: vm.link.as_ref().map(link_of),
        lies: vm.hostile.then(|| Lies::of(&vm.module_options)).transpose()?,
    })
}

fn link_of(link: &Link) -> LinkSetup {
    LinkSetup {
        rate_bit: bit_of_mbit(link.rate_mbit),
        limit_segments: link.limit_packets.into(),
        past_bottleneck: link.past_bottleneck,
    }
}

fn weight(value: f64, at: &str) -> Result<Weight, SetupError> {
    Weight::from_f64(value).ok_or_else(|| SetupError::Invalid {
        at: at.into(),
        expected: "0.01 to 1000",
        got: value.to_string(),
    })
}

/// The one action of a daemon that the model has: a new weight of a VM.
fn weight_change(scenario: &Scenario, action: &Action) -> Result<(Nanos, usize, f64), SetupError> {
    let not_modelled = || SetupError::NotModelled("actions but a PATCH of a VM's weight");
    let request = action.control.as_ref().ok_or_else(not_modelled)?;
    let name = request.path.strip_prefix("/v1/vms/").ok_or_else(not_modelled)?;
    let body = request.body.as_ref().and_then(|body| body.get("weight"));
    let value = body.and_then(Value::as_f64).ok_or_else(not_modelled)?;
    let vm = scenario.vms.iter().position(|vm| vm.name == name).ok_or_else(not_modelled)?;
    weight(value, "actions[].control.body.weight")?;
    Ok((ns_of_s(action.at_s), vm, value))
}

fn group_of(scenario: &Scenario) -> Result<GroupConfig, SetupError> {
    let mut group = GroupConfig::default();
    for (name, value) in &scenario.group {
        let invalid = |expected| SetupError::Invalid {
            at: format!("group.{name}"),
            expected,
            got: value.to_string(),
        };
        let word = value.clone();
        match name.as_str() {
            "policy" => group.policy = parsed(word).ok_or_else(|| invalid("a policy"))?,
            "share" => group.share = parsed(word).ok_or_else(|| invalid("rate or window"))?,
            "growth_source" => {
                group.growth_source = parsed(word).ok_or_else(|| invalid("a source"))?;
            }
            "equivalent_tcps" => {
                let tcps = value.as_f64().and_then(EquivalentTcps::from_f64);
                group.equivalent_tcps = tcps.ok_or_else(|| invalid("0.1 to 64"))?;
            }
            _ => return Err(invalid("policy, share, growth_source or equivalent_tcps")),
        }
    }
    Ok(group)
}

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}
