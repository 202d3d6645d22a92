// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Interfaces, addresses, namespaces and queues of a guest.
//!
//! ```text
//! tenant eth0 ── (cable or veth) ── up0 router bott ── veth ── rcv receiver
//! 10.1.n.2                     10.1.n.1      10.2.0.1      10.2.0.2
//! ```
//! The bottleneck is the queue of `bott`, the delay that of `rcv`, on the way
//! back; where VMs differ in delay, that of the router's interfaces to them.
//! Neighbours are fixed, so that no ARP crosses the bottleneck.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use super::clock::Clock;
use super::{Sysctls, ipv6, offload, queues, system};
use crate::error::{Context, LabError, Result};
use crate::plan::{Plan, Router, Sender};

/// Namespace of the receivers.
pub const RECEIVER: &str = "receiver";
/// Interface whose queue is the bottleneck.
pub const BOTTLENECK: &str = "bott";
/// The receivers' address.
pub const RECEIVER_ADDRESS: &str = "10.2.0.2";
/// The name of the guest's first namespace in the results.
const ROOT: &str = "root";

/// Set in every namespace: buffers never limit a window, and no connection
/// profits from an earlier one.
const SYSCTLS: [(&str, &str); 8] = [
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.tcp_rmem", "4096 4194304 33554432"),
    ("net.ipv4.tcp_wmem", "4096 1048576 33554432"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_timestamps", "1"),
];
const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";
const ALLOWED_CONGESTION_CONTROL: &str = "net.ipv4.tcp_allowed_congestion_control";
const DEFAULT_CONGESTION_CONTROL: &str = "reno";
const ECN: &str = "net.ipv4.tcp_ecn";
/// Values of that: for none, to ask for it, to have it when asked.
const ECN_OFF: &str = "0";
const ECN_ASK: &str = "1";
const ECN_ACCEPT: &str = "2";

/// What has been set up.
pub struct Network {
    /// Sysctls of each namespace as read back.
    pub sysctls: BTreeMap<String, Sysctls>,
    /// The queues as `tc` shows them.
    pub qdiscs: Vec<String>,
    namespaces: BTreeMap<String, File>,
}

impl Network {
    /// Moves the calling thread into a namespace.
    pub fn enter(&self, name: &str) -> Result<()> {
        let unknown = || LabError::protocol("guest", format!("there is no namespace {name}"));
        let file = self.namespaces.get(name).ok_or_else(unknown)?;
        setns(file, CloneFlags::CLONE_NEWNET).context(|| format!("entering {name}"))
    }
}

/// Sets everything up as the plan says.
pub fn set_up(plan: &Plan) -> Result<Network> {
    let mut network =
        Network { sysctls: BTreeMap::new(), qdiscs: Vec::new(), namespaces: BTreeMap::new() };
    let spaced = plan.senders.iter().filter(|s| s.namespace);
    let receiver = plan.router.iter().map(|_| RECEIVER);
    for name in spaced.clone().map(|s| s.vm.as_str()).chain(receiver) {
        network.namespaces.insert(name.to_owned(), new_namespace(name)?);
    }
    allow(plan)?;
    network.sysctls.insert(ROOT.into(), settle_root(plan)?);
    network.sysctls_in_namespaces(plan)?;
    if let Some(router) = &plan.router {
        ip(None, &router_links(router, &plan.senders))?;
        ip(Some(RECEIVER), &receiver_links())?;
    }
    for sender in &plan.senders {
        ip(sender.namespace.then_some(&sender.vm), &sender_links(sender))?;
    }
    if plan.ipv6 {
        ipv6::set_up(plan, &network)?;
    }
    offload::turn_off()?;
    for name in network.namespaces.keys() {
        network.within(name, offload::turn_off)?;
    }
    if let Some(router) = &plan.router {
        network.qdiscs.push(tc(None, &bottleneck(router))?);
        if router.delays.is_empty() {
            network.qdiscs.push(tc(Some(RECEIVER), &delay("rcv", router.delay_us))?);
        }
        for (device, delay_us) in uplink_delays(router) {
            network.qdiscs.push(tc(None, &delay(&device, delay_us))?);
        }
    }
    Ok(network)
}

impl Network {
    fn sysctls_in_namespaces(&mut self, plan: &Plan) -> Result<()> {
        for name in self.namespaces.keys() {
            let sender = plan.senders.iter().find(|s| &s.vm == name);
            let settled = self.within(name, || match sender {
                Some(sender) => settle_sender(sender),
                None => settle(receiver_control(plan), ECN_ACCEPT),
            })?;
            self.sysctls.insert(name.clone(), settled);
        }
        Ok(())
    }

    /// Does `job` in every namespace but the first.
    pub(super) fn in_each(&self, job: impl Fn() -> Result<()> + Sync) -> Result<()> {
        self.namespaces.keys().try_for_each(|name| self.within(name, &job))
    }

    /// Does `job` in a namespace, on a thread of its own.
    fn within<T: Send>(&self, name: &str, job: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            super::joined(scope.spawn(|| {
                self.enter(name)?;
                job()
            }))
        })
    }
}

fn settle_sender(sender: &Sender) -> Result<Sysctls> {
    settle(&sender.congestion_control, if sender.ecn { ECN_ASK } else { ECN_OFF })
}

fn settle_root(plan: &Plan) -> Result<Sysctls> {
    match plan.senders.iter().find(|s| !s.namespace) {
        Some(sender) => settle_sender(sender),
        None => settle(DEFAULT_CONGESTION_CONTROL, ECN_OFF),
    }
}

/// Most algorithms are for the privileged, and those may be the default of the
/// first namespace only: lets the others have what the plan wants of them.
fn allow(plan: &Plan) -> Result<()> {
    let allowed = system::sysctl(ALLOWED_CONGESTION_CONTROL)?;
    let wanted = plan.senders.iter().map(|s| s.congestion_control.as_str());
    let names: BTreeSet<_> =
        allowed.split_whitespace().chain(wanted).chain([receiver_control(plan)]).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" ");
    system::set_sysctl(ALLOWED_CONGESTION_CONTROL, &names)
}

fn receiver_control(plan: &Plan) -> &str {
    plan.router.as_ref().map_or(DEFAULT_CONGESTION_CONTROL, |r| &r.congestion_control)
}

fn settle(congestion_control: &str, ecn: &str) -> Result<Sysctls> {
    let own = [(CONGESTION_CONTROL, congestion_control), (ECN, ecn)];
    let all = SYSCTLS.into_iter().chain(own);
    let mut settled = Sysctls::new();
    for (name, value) in all {
        system::set_sysctl(name, value)?;
        settled.insert(name.into(), system::sysctl(name)?);
    }
    Ok(settled)
}

/// Makes a namespace known to `ip -n`.
fn new_namespace(name: &str) -> Result<File> {
    let directory = Path::new("/run/netns");
    fs::create_dir_all(directory).on("making", directory)?;
    let path = directory.join(name);
    File::create(&path).on("creating", &path)?;
    let make = || -> Result<()> {
        unshare(CloneFlags::CLONE_NEWNET).context(|| "unshare".into())?;
        let own = Some("/proc/thread-self/ns/net");
        mount(own, &path, None::<&str>, MsFlags::MS_BIND, None::<&str>).on("mounting", &path)
    };
    thread::scope(|scope| super::joined(scope.spawn(make)))?;
    File::open(&path).on("opening", &path)
}

pub(super) fn ip(namespace: Option<&str>, batch: &str) -> Result<String> {
    batched("ip", namespace, batch)
}

fn tc(namespace: Option<&str>, batch: &str) -> Result<String> {
    batched("tc", namespace, batch)
}

fn batched(name: &str, namespace: Option<&str>, batch: &str) -> Result<String> {
    let place: &[&str] = &namespace.map_or(vec![], |n| vec!["-n", n]);
    Ok(system::program(name, &[place, &["-batch", "-"]].concat(), batch)?.trim().to_owned())
}

pub(super) fn mac(network: u32, number: u32, host: u32) -> String {
    format!("02:00:00:{network:02x}:{number:02x}:{host:02x}")
}

/// MAC address of a tenant's interface, or of the router's towards it.
pub fn uplink_mac(number: u32, router: bool) -> [u8; 6] {
    [2, 0, 0, 1, number as u8, if router { 1 } else { 2 }]
}

fn router_links(router: &Router, senders: &[Sender]) -> String {
    let mut batch = format!(
        "link add {BOTTLENECK} address {} type veth peer name rcv address {} netns {RECEIVER}\n\
         addr add 10.2.0.1/24 dev {BOTTLENECK}\n\
         link set {BOTTLENECK} up\n\
         neigh replace {RECEIVER_ADDRESS} lladdr {} nud permanent dev {BOTTLENECK}\n",
        mac(2, 0, 1),
        mac(2, 0, 2),
        mac(2, 0, 2),
    );
    for sender in senders {
        let number = sender.number;
        let _ = writeln!(
            batch,
            "link add up{number} address {} type veth peer name eth0 address {} netns {}",
            mac(1, number, 1),
            mac(1, number, 2),
            sender.vm,
        );
        batch += &uplink(&format!("up{number}"), number);
    }
    for (index, numbers) in router.uplinks.iter().enumerate() {
        for &number in numbers {
            batch += &uplink(&format!("eth{index}"), number);
        }
    }
    batch
}

fn uplink(device: &str, number: u32) -> String {
    format!(
        "addr add 10.1.{number}.1/24 dev {device}\n\
         link set {device} up\n\
         neigh replace 10.1.{number}.2 lladdr {} nud permanent dev {device}\n",
        mac(1, number, 2),
    )
}

fn receiver_links() -> String {
    format!(
        "addr add {RECEIVER_ADDRESS}/24 dev rcv\n\
         link set rcv up\n\
         neigh replace 10.2.0.1 lladdr {} nud permanent dev rcv\n\
         route add default via 10.2.0.1\n",
        mac(2, 0, 1),
    )
}

fn sender_links(sender: &Sender) -> String {
    let number = sender.number;
    format!(
        "addr add 10.1.{number}.2/24 dev eth0\n\
         link set eth0 up\n\
         neigh replace 10.1.{number}.1 lladdr {} nud permanent dev eth0\n\
         route add default via 10.1.{number}.1\n",
        mac(1, sender.gateway, 1),
    )
}

fn bottleneck(router: &Router) -> String {
    let queue = queues::commands(router).unwrap_or_else(|| fifo(router));
    format!("{queue}qdisc show dev {BOTTLENECK}\n")
}

fn fifo(router: &Router) -> String {
    let Router { rate_bit, limit_packets, .. } = router;
    format!("qdisc add dev {BOTTLENECK} root netem rate {rate_bit}bit limit {limit_packets}\n")
}

fn delay(device: &str, delay_us: u64) -> String {
    format!(
        "qdisc add dev {device} root netem delay {delay_us}us limit 1000000\n\
         qdisc show dev {device}\n"
    )
}

/// Changes delays when their time has come.
pub fn change_delays(router: &Router, clock: Clock) -> Result<()> {
    for &(at_ns, number, delay_us) in &router.delay_changes {
        clock.sleep_until(at_ns);
        let device = uplink_device(router, number);
        tc(None, &delay(&device, delay_us).replacen("qdisc add", "qdisc change", 1))?;
    }
    Ok(())
}

/// The router's interface towards a VM.
pub(super) fn uplink_device(router: &Router, number: u32) -> String {
    match router.uplinks.iter().position(|numbers| numbers.contains(&number)) {
        Some(index) => format!("eth{index}"),
        None => format!("up{number}"),
    }
}

/// The router's interface towards each VM that has a delay of its own.
fn uplink_delays(router: &Router) -> Vec<(String, u64)> {
    let all = router.delays.iter();
    all.map(|(&number, &delay)| (uplink_device(router, number), delay)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Queue;

    fn router(uplinks: Vec<Vec<u32>>) -> Router {
        Router {
            rate_bit: 10_000_000,
            limit_packets: 83,
            queue: Queue::Fifo,
            weights: [(1, 3.0), (2, 1.0)].into(),
            cross: None,
            seed: 1,
            delay_us: 100_000,
            delays: [(2, 20_000)].into(),
            delay_changes: vec![],
            mark_us: None,
            congestion_control: "reno".into(),
            uplinks,
            flows: vec![],
        }
    }

    #[test]
    fn the_router_has_an_interface_for_each_uplink() {
        let batch = router_links(&router(vec![vec![1], vec![2]]), &[]);
        assert!(batch.contains("addr add 10.1.1.1/24 dev eth0\n"));
        assert!(batch.contains("addr add 10.1.2.1/24 dev eth1\n"));
        assert!(!batch.contains("up1"));
        let shared = router_links(&router(vec![vec![1, 2]]), &[]);
        assert!(shared.contains("addr add 10.1.2.1/24 dev eth0\n"));
    }

    #[test]
    fn the_bottleneck_has_rate_and_limit() {
        assert!(bottleneck(&router(vec![])).contains("netem rate 10000000bit limit 83\n"));
        let marking = Router { mark_us: Some(30_000), ..router(vec![]) };
        assert!(bottleneck(&marking).contains("flows 1 limit 83 drop_batch 1 target"));
        assert!(bottleneck(&marking).contains("ce_threshold 30000us"));
        assert!(delay("rcv", 100_000).contains("dev rcv root netem delay 100000us "));
        assert_eq!(uplink_delays(&router(vec![vec![1], vec![2]])), [("eth1".to_owned(), 20_000)]);
        assert_eq!(uplink_delays(&router(vec![])), [("up2".to_owned(), 20_000)]);
    }

    #[test]
    fn a_vms_class_has_its_part_and_may_have_all() {
        let batch = bottleneck(&Router { queue: Queue::Htb, ..router(vec![]) });
        assert!(batch.contains("classid 1:1 htb rate 7500000bit ceil 10000000bit "));
        assert!(batch.contains("match ip src 10.1.2.0/24 flowid 1:2\n"));
        let batch = bottleneck(&Router { queue: Queue::Cake, ..router(vec![]) });
        assert!(batch.contains("root cake bandwidth 10000000bit besteffort dual-srchost\n"));
    }

    #[test]
    fn mac_addresses_agree_with_the_nics() {
        let bytes = uplink_mac(10, false).map(|b| format!("{b:02x}")).join(":");
        assert_eq!(bytes, mac(1, 10, 2));
    }
}
