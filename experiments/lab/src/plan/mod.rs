// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What each guest is told to do, worked out from the scenario.

pub mod addresses;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::random::Rng;
use crate::scenario::flows::{Churn, Flows, Phase};
use crate::scenario::path::{Bottleneck, Cross, Queue};
use crate::scenario::vm::{BOOT_S, GuestWork, Vm};
use crate::scenario::{MOST_UPLINKS, Scenario, Topology};
use crate::units::{MS_NS, bit_of_mbit, ns_of_s, us_of_ms};
use crate::workdir;

/// Wall clock of every guest when simulated time is 0 (2026-01-01 UTC).
pub const CLOCK_START_NS: u64 = 1_767_225_600_000_000_000;
/// Traffic starts this long after the guests do; all have booted by then.
pub const LEAD_NS: u64 = (BOOT_S * 1e9) as u64;
/// Starts of flows are spread over this.
/// Name of the guest that holds the bottleneck and the receivers.
pub const NETWORK_GUEST: &str = "net";
/// What the name of a kernel has more when it is the second of its VM.
const SECOND_KERNEL: &str = ".2";
/// Name of the only guest of the single topology.
pub const SINGLE_GUEST: &str = "lab";
/// First TCP port of the receivers; each flow has its own.
const FIRST_PORT: u16 = 10_000;

/// A VM is killed so long after its results are to be written.
pub const WRITING_NS: u64 = 1_000_000;

/// Work of one guest.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Host name.
    pub name: String,
    /// Wall clock of the guest at which the traffic's time is 0.
    pub epoch_ns: u64,
    /// When it has to be ready.
    pub begin_ns: u64,
    /// End of the traffic.
    pub duration_ns: u64,
    /// It is killed then, and does not end by itself.
    pub killed: bool,
    /// Interval of TCP and goodput samples.
    pub sample_ns: u64,
    /// Interval of queue samples.
    pub queue_sample_ns: u64,
    /// Its flows use IPv6.
    pub ipv6: bool,
    /// Kernel module to load.
    pub module: Option<PathBuf>,
    /// Whether that is the hostile one.
    pub hostile: bool,
    /// The module's parameters.
    pub module_options: String,
    /// The bottleneck, if it is here.
    pub router: Option<Router>,
    /// The senders that are here.
    pub senders: Vec<Sender>,
}

impl Plan {
    /// The module's file in the working directory.
    pub fn module_file(&self) -> &'static str {
        if self.hostile { workdir::HOSTILE_MODULE } else { workdir::MODULE }
    }

    /// Whether it is for the first, or only, kernel of a VM or of the network.
    pub fn is_first(&self) -> bool {
        self.begin_ns == 0
    }

    /// How many flows begin or end here.
    pub fn flows(&self) -> usize {
        let received = self.router.as_ref().map_or(0, |router| router.flows.len());
        received.max(self.senders.iter().map(|sender| sender.flows.len()).sum())
    }

    /// The kernel that follows this one when it is killed.
    pub fn successor<'a>(&self, plans: &'a [Plan]) -> Option<&'a Plan> {
        let name = format!("{}{SECOND_KERNEL}", self.name);
        plans.iter().find(|plan| plan.name == name)
    }

    /// The name the guest's NICs have.
    pub fn machine(&self) -> &str {
        self.name.strip_suffix(SECOND_KERNEL).unwrap_or(&self.name)
    }
}

/// The bottleneck and the receivers behind it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Router {
    /// Rate in bit/s.
    pub rate_bit: u64,
    /// Queue length in packets.
    pub limit_packets: u32,
    /// Queueing discipline.
    pub queue: Queue,
    /// The VMs' weights, for queues that know of VMs.
    pub weights: BTreeMap<u32, f64>,
    /// Cross traffic.
    pub cross: Option<Cross>,
    /// Its seed.
    pub seed: u64,
    /// What waited longer than this, in microseconds, is marked.
    pub mark_us: Option<u64>,
    /// The way back of all.
    pub return_path: ReturnPath,
    /// VMs with a way back of their own.
    pub own_return_paths: BTreeMap<u32, ReturnPath>,
    /// What changes, and when.
    pub changes: Vec<(u64, PathChange)>,
    /// Congestion control of the receivers.
    pub congestion_control: String,
    /// Numbers of the VMs behind NICs `eth0`, `eth1`, … in this order.
    pub uplinks: Vec<Vec<u32>>,
    /// VMs whose links go past the bottleneck.
    pub past: Vec<u32>,
    /// Every flow of the run.
    pub flows: Vec<Flow>,
    /// Datagrams of VMs.
    pub floods: Vec<Flood>,
}

/// A way back from the receivers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ReturnPath {
    /// Delay in microseconds.
    pub delay_us: u64,
    /// How much it is spread.
    pub jitter_us: u64,
    /// What is lost at random, percent.
    pub loss_percent: f64,
}

/// A change of the path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PathChange {
    /// Of a VM's delay, in microseconds.
    Delay(u32, u64),
    /// Of the bottleneck's rate, in bit/s.
    Rate(u64),
}

impl Router {
    /// Whether the bottleneck's rate changes.
    pub fn changes_rate(&self) -> bool {
        self.changes.iter().any(|(_, change)| matches!(change, PathChange::Rate(_)))
    }

    /// The interface towards a VM.
    pub fn uplink_device(&self, number: u32) -> String {
        match self.uplinks.iter().position(|numbers| numbers.contains(&number)) {
            Some(index) => format!("eth{index}"),
            None => format!("up{number}"),
        }
    }
}

/// One tenant's sending side.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sender {
    /// Number of the VM, from 1: gives it its addresses.
    pub number: u32,
    /// The first VM behind the same NIC of the router, which gives that its address.
    pub gateway: u32,
    /// Name of the VM, and of its network namespace if it needs one.
    pub vm: String,
    /// Whether it shares its kernel with the router.
    pub namespace: bool,
    /// Default congestion control.
    pub congestion_control: String,
    /// Whether its flows ask for ECN.
    pub ecn: bool,
    /// Its connections.
    pub flows: Vec<Flow>,
    /// Its datagrams.
    pub flood: Option<Flood>,
    /// What is done inside its kernel, and when.
    pub work: Vec<(u64, GuestWork)>,
}

/// Datagrams of a VM.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Flood {
    /// Name of the VM.
    pub vm: String,
    /// The receiver's port.
    pub port: u16,
    /// Rate in bit/s.
    pub rate_bit: u64,
}

/// One connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Name of the VM.
    pub vm: String,
    /// Number within the VM, from 0.
    pub flow: u32,
    /// The receiver's port.
    pub port: u16,
    /// Start, from the traffic's time 0.
    pub start_ns: u64,
    /// When it is aborted.
    pub stop_ns: Option<u64>,
    /// How much it sends.
    pub bytes: Option<u64>,
    /// It uses IPv6.
    pub ipv6: bool,
    /// SO_PRIORITY.
    pub priority: u32,
    /// TCP_MAXSEG.
    pub mss: Option<u32>,
    /// SO_RCVBUF of the receiver's socket.
    pub receive_buffer_bytes: Option<u32>,
    /// Many short-lived connections in place of this one.
    pub churn: Option<Churn>,
    /// What the application does, in order; empty: it writes all it can.
    pub script: Vec<Step>,
}

/// What changes in a flow at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When.
    pub at_ns: u64,
    /// How fast the application writes from now on.
    pub pace: Option<Pace>,
    /// SO_PRIORITY.
    pub priority: Option<u32>,
    /// Congestion control.
    pub congestion_control: Option<String>,
}

/// How fast an application writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As much as it can.
    Greedy,
    /// Bytes in each second.
    Rate(u64),
}

/// Works out the guests of a run; the network guest, if any, is the last.
pub fn plans(scenario: &Scenario) -> Vec<Plan> {
    let senders = senders(scenario);
    let flows = senders.iter().flat_map(|s| s.flows.clone()).collect();
    let floods = senders.iter().filter_map(|s| s.flood.clone()).collect();
    let blank = Plan {
        epoch_ns: CLOCK_START_NS + LEAD_NS,
        duration_ns: ns_of_s(scenario.duration_s),
        ipv6: scenario.ipv6,
        sample_ns: scenario.sample_ms * MS_NS,
        queue_sample_ns: scenario.queue_sample_ms * MS_NS,
        ..Plan::default()
    };
    let router = |uplinks| {
        Some(Router {
            rate_bit: bit_of_mbit(scenario.bottleneck.rate_mbit),
            limit_packets: scenario.bottleneck.limit_packets,
            queue: scenario.bottleneck.queue,
            weights: (1..).zip(scenario.vms.iter().map(|vm| vm.weight)).collect(),
            cross: scenario.cross.clone(),
            seed: scenario.seed,
            mark_us: scenario.bottleneck.mark_ms.map(us_of_ms),
            return_path: return_path(&scenario.bottleneck, None),
            own_return_paths: own_return_paths(scenario),
            changes: path_changes(scenario),
            congestion_control: scenario.receiver_congestion_control.clone(),
            uplinks,
            past: past(scenario),
            flows,
            floods,
        })
    };
    if scenario.topology == Topology::Single {
        return vec![Plan {
            name: SINGLE_GUEST.into(),
            module: scenario.module.clone(),
            // Its VMs are namespaces, whose flows the module leaves alone unless asked.
            module_options: format!("containers=1 {}", scenario.vms[0].module_options),
            router: router(Vec::new()),
            senders,
            ..blank
        }];
    }
    let uplinks = uplinks(senders.len());
    let net = Plan { name: NETWORK_GUEST.into(), router: router(uplinks), ..blank.clone() };
    let tenant = |(sender, vm): (Sender, &Vm)| {
        let plan = Plan {
            name: sender.vm.clone(),
            module: module_of(vm, scenario),
            hostile: vm.hostile,
            module_options: vm.module_options.clone(),
            senders: vec![sender],
            ..blank.clone()
        };
        split_at_reboot(plan, vm.reboot_s.map(ns_of_s))
    };
    senders.into_iter().zip(&scenario.vms).flat_map(tenant).chain([net]).collect()
}

fn module_of(vm: &Vm, scenario: &Scenario) -> Option<PathBuf> {
    if vm.hostile { scenario.hostile_module.clone() } else { scenario.module.clone() }
}

/// Numbers of the VMs whose links go past the bottleneck.
fn past(scenario: &Scenario) -> Vec<u32> {
    let goes_past = |vm: &Vm| vm.link.as_ref().is_some_and(|link| link.past_bottleneck);
    let numbered = (1..).zip(&scenario.vms);
    numbered.filter(|(_, vm)| goes_past(vm)).map(|(number, _)| number).collect()
}

/// The plan of a VM's kernel, or of the two it has one after the other.
fn split_at_reboot(whole: Plan, reboot_ns: Option<u64>) -> Vec<Plan> {
    let Some(reboot_ns) = reboot_ns else {
        return vec![whole];
    };
    let (mut first, mut second) = (whole.clone(), whole);
    (first.duration_ns, first.killed) = (reboot_ns, true);
    // No VM can be called so.
    second.name += SECOND_KERNEL;
    second.begin_ns = reboot_ns + LEAD_NS;
    for (kernel, later) in [(&mut first, false), (&mut second, true)] {
        for sender in &mut kernel.senders {
            sender.flows.retain(|flow| (flow.start_ns >= reboot_ns) == later);
            sender.work.retain(|(at_ns, _)| (*at_ns >= reboot_ns) == later);
        }
    }
    vec![first, second]
}

/// The way back of a VM, or the common one.
fn return_path(common: &Bottleneck, vm: Option<&Vm>) -> ReturnPath {
    let own = |of: fn(&Vm) -> Option<f64>| vm.and_then(of);
    let jitter_ms = own(|vm| vm.return_jitter_ms).or(common.return_jitter_ms);
    let loss_percent = own(|vm| vm.return_loss_percent).or(common.return_loss_percent);
    ReturnPath {
        delay_us: us_of_ms(own(|vm| vm.delay_ms).unwrap_or(common.delay_ms)),
        jitter_us: us_of_ms(jitter_ms.unwrap_or(0.0)),
        loss_percent: loss_percent.unwrap_or(0.0),
    }
}

/// Those of all VMs if one has its own: the common one would add to it.
fn own_return_paths(scenario: &Scenario) -> BTreeMap<u32, ReturnPath> {
    if !scenario.vms.iter().any(Vm::has_own_return_path) {
        return BTreeMap::new();
    }
    let all = scenario.vms.iter().map(|vm| return_path(&scenario.bottleneck, Some(vm)));
    (1..).zip(all).collect()
}

/// Changes of the path in the order of times.
fn path_changes(scenario: &Scenario) -> Vec<(u64, PathChange)> {
    let rates = scenario.bottleneck.rate_changes.iter();
    let rates = rates.map(|c| (ns_of_s(c.at_s), PathChange::Rate(bit_of_mbit(c.rate_mbit))));
    let delays = (1..).zip(&scenario.vms).flat_map(|(number, vm)| {
        let all = vm.delay_changes.iter();
        all.map(move |c| (ns_of_s(c.at_s), PathChange::Delay(number, us_of_ms(c.delay_ms))))
    });
    let mut changes: Vec<_> = rates.chain(delays).collect();
    changes.sort_by_key(|(at_ns, _)| *at_ns);
    changes
}

/// The VMs behind each NIC of the router.
fn uplinks(vms: usize) -> Vec<Vec<u32>> {
    let numbers: Vec<_> = (1..=vms as u32).collect();
    numbers.chunks(vms_of_an_uplink(vms)).map(<[u32]>::to_vec).collect()
}

fn vms_of_an_uplink(vms: usize) -> usize {
    vms.div_ceil(MOST_UPLINKS)
}

fn senders(scenario: &Scenario) -> Vec<Sender> {
    let mut rng = Rng(scenario.seed);
    let mut ports = FIRST_PORT..;
    let together = match scenario.topology {
        Topology::Vms => vms_of_an_uplink(scenario.vms.len()),
        Topology::Single => 1,
    };
    let sender = |(index, vm): (usize, &Vm)| Sender {
        number: index as u32 + 1,
        gateway: (index - index % together) as u32 + 1,
        vm: vm.name.clone(),
        namespace: scenario.topology == Topology::Single,
        congestion_control: vm.congestion_control.clone(),
        ecn: vm.ecn,
        flows: flows(vm, scenario.ipv6, &mut rng, &mut ports),
        flood: vm.udp_mbit.map(|rate_mbit| flood(index, vm, rate_mbit)),
        work: vm
            .guest_actions
            .iter()
            .flat_map(|action| action.kinds().into_iter().map(|work| (ns_of_s(action.at_s), work)))
            .collect(),
    };
    scenario.vms.iter().enumerate().map(sender).collect()
}

/// Ports of UDP are none of the flows'.
fn flood(index: usize, vm: &Vm, rate_mbit: f64) -> Flood {
    let port = FIRST_PORT + index as u16;
    Flood { vm: vm.name.clone(), port, rate_bit: bit_of_mbit(rate_mbit) }
}

fn flows(vm: &Vm, ipv6: bool, rng: &mut Rng, ports: &mut impl Iterator<Item = u16>) -> Vec<Flow> {
    let each = vm.flows.iter().flat_map(|group| (0..group.count).map(move |_| group));
    each.zip(ports)
        .enumerate()
        .map(|(number, (group, port))| Flow {
            vm: vm.name.clone(),
            flow: number as u32,
            port,
            start_ns: ns_of_s(group.start_s) + rng.next_u64() % spread_ns(group),
            stop_ns: group.stop_s.map(ns_of_s),
            bytes: group.bytes,
            ipv6,
            priority: group.priority,
            mss: group.mss,
            receive_buffer_bytes: group.receive_buffer_bytes,
            churn: group.churn.clone(),
            script: script(group),
        })
        .collect()
}

fn spread_ns(group: &Flows) -> u64 {
    u64::from(group.start_spread_ms()) * MS_NS
}

fn script(group: &Flows) -> Vec<Step> {
    let pace = |kbit: Option<f64>| match kbit {
        Some(kbit) => Pace::Rate((kbit * 125.0).round() as u64),
        None => Pace::Greedy,
    };
    let from_start = group.rate_kbit.map(|kbit| Step {
        at_ns: 0,
        pace: Some(pace(Some(kbit))),
        ..Step::default()
    });
    let change = |phase: &Phase| Step {
        at_ns: ns_of_s(phase.at_s),
        pace: phase.rate_kbit.map(pace),
        priority: phase.priority,
        congestion_control: phase.congestion_control.clone(),
    };
    from_start.into_iter().chain(group.phases.iter().map(change)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::vm::DelayChange;

    fn scenario(seed: u64, topology: &str) -> Scenario {
        let json = serde_json::json!({
            "name": "test", "seed": seed, "duration_s": 60, "topology": topology,
            "bottleneck": {"rate_mbit": 10, "limit_packets": 83, "delay_ms": 100},
            "kernel": "linux",
            "vms": [
                {"name": "vm1", "congestion_control": "reno", "flows": [{"count": 1}]},
                {"name": "vm2", "congestion_control": "reno", "flows": [{"count": 2}, {"start_s": 3}]}
            ]
        });
        Scenario::parse(&json.to_string()).expect("valid")
    }

    #[test]
    fn the_network_guest_is_last_and_knows_every_flow() {
        let plans = plans(&scenario(1, "vms"));
        let names: Vec<_> = plans.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["vm1", "vm2", "net"]);
        let router = plans[2].router.as_ref().expect("router");
        assert_eq!(router.uplinks, [[1], [2]]);
        let ports: Vec<_> = router.flows.iter().map(|f| f.port).collect();
        assert_eq!(ports, [10_000, 10_001, 10_002, 10_003]);
    }

    #[test]
    fn a_vm_that_reboots_has_two_kernels() {
        let mut scenario = scenario(1, "vms");
        scenario.vms[1].flows[1].start_s = 30.0;
        scenario.vms[1].reboot_s = Some(20.0);
        let plans = plans(&scenario);
        let names: Vec<_> = plans.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["vm1", "vm2", "vm2.2", "net"]);
        let flows = |n: usize| plans[n].senders[0].flows.iter().map(|f| f.flow).collect::<Vec<_>>();
        assert_eq!((flows(1), flows(2)), (vec![0, 1], vec![2]));
        assert_eq!((plans[1].duration_ns, plans[1].killed), (20_000_000_000, true));
        assert_eq!((plans[2].begin_ns, plans[2].killed), (25_000_000_000, false));
        assert_eq!(plans[3].router.as_ref().expect("router").uplinks, [[1], [2]]);
    }

    #[test]
    fn many_vms_share_nics_of_the_router() {
        assert_eq!(uplinks(48).len(), 48);
        let shared = uplinks(49);
        assert_eq!((shared.len(), &shared[0][..], &shared[24][..]), (25, &[1, 2][..], &[49][..]));
        let mut many = scenario(1, "vms");
        many.vms = vec![many.vms[0].clone(); 64];
        let gateways: Vec<_> = senders(&many).iter().map(|s| s.gateway).collect();
        assert_eq!(gateways[..4], [1, 1, 3, 3]);
    }

    #[test]
    fn a_way_back_of_ones_own_replaces_the_common_one() {
        let mut scenario = scenario(1, "vms");
        let delay = |delay_us| ReturnPath { delay_us, ..ReturnPath::default() };
        assert!(own_return_paths(&scenario).is_empty());
        scenario.vms[1].delay_ms = Some(20.0);
        let own = BTreeMap::from([(1, delay(100_000)), (2, delay(20_000))]);
        assert_eq!(own_return_paths(&scenario), own);
        scenario.vms[1].delay_ms = None;
        scenario.vms[0].delay_changes = vec![DelayChange { at_s: 2.0, delay_ms: 5.0 }];
        scenario.bottleneck.return_loss_percent = Some(1.0);
        let lossy = ReturnPath { loss_percent: 1.0, ..delay(100_000) };
        assert_eq!(own_return_paths(&scenario), BTreeMap::from([(1, lossy), (2, lossy)]));
        assert_eq!(path_changes(&scenario), [(2_000_000_000, PathChange::Delay(1, 5000))]);
    }

    #[test]
    fn starts_are_the_seeds_and_within_their_spread() {
        let starts = |seed, spread_ms| -> Vec<u64> {
            let mut scenario = scenario(seed, "single");
            scenario.vms[1].flows[1].start_spread_ms = spread_ms;
            let plans = plans(&scenario);
            plans[0].router.as_ref().expect("router").flows.iter().map(|f| f.start_ns).collect()
        };
        let usual = starts(1, None);
        assert_eq!(usual, starts(1, None));
        assert_ne!(usual, starts(2, None));
        assert!(usual[..3].iter().all(|&s| s < 100 * MS_NS));
        let later = |seed, spread_ms| starts(seed, spread_ms)[3] - 3000 * MS_NS;
        assert!((1..20).all(|seed| later(seed, None) < 100 * MS_NS));
        let second: Vec<_> = (1..20).map(|seed| later(seed, Some(1000))).collect();
        assert!(second.iter().all(|&ns| ns < 1000 * MS_NS));
        assert!(second.iter().any(|&ns| ns > 900 * MS_NS));
        assert_eq!(starts(1, Some(1000))[..3], usual[..3]);
    }
}
