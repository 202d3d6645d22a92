// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What flows and VMs take of the daemon's host.
use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, Member},
    options::Options,
    support::daemon::Daemon,
};

/// What a flow that says nothing leaves to be done is done by then.
const FORGOTTEN: Duration = Duration::from_secs(15);
/// How long one looks on.
const WATCHED: Duration = Duration::from_secs(5);

/// Bytes of its own for each flow, of flows whose slots are so far apart; all that is its own
/// while they are there, and when they have left.
pub fn flows(options: &Options) -> Value {
    let [flows, vms, apart] = ["flows", "vms", "apart"].map(|name| options.number(name));
    let each = flows / vms;
    let limits = format!("[daemon]\nmax_flows_per_vm = {each}\nmax_flows = {flows}\n");
    let fleet = Fleet::empty(vms, &limits);
    let names = fleet.names();
    let connect = |name: &String| Member::connect_for(&fleet.daemon, name, each * apart);
    let mut members: Vec<Member> = names.iter().map(connect).collect();
    let before = own_bytes(&fleet.daemon);
    members.iter_mut().for_each(|member| member.begin_apart(each, apart));
    let with_flows = own_bytes(&fleet.daemon);
    members.iter_mut().for_each(Member::end);
    json!({
        "bytes_per_flow": (with_flows - before) / (each * vms) as f64,
        "flows_mib": with_flows / f64::from(1 << 20),
        "left_mib": own_bytes(&fleet.daemon) / f64::from(1 << 20),
    })
}

/// VMs that are attached, with a flow each that has nothing to send: what the daemon takes.
pub fn idle(options: &Options) -> Value {
    let mut fleet = Fleet::start(options.number("vms"), 1);
    fleet.members.iter_mut().for_each(Member::rest);
    std::thread::sleep(FORGOTTEN);
    let (woken, worked) = (wakes(&fleet.daemon), fleet.daemon.worked());
    std::thread::sleep(WATCHED);
    json!({
        "wakes": wakes(&fleet.daemon) - woken,
        "cpu_us": (fleet.daemon.worked() - worked).as_secs_f64() * 1e6,
        "own_mib": own_bytes(&fleet.daemon) / f64::from(1 << 20),
        "descriptors": open_files(&fleet.daemon),
    })
}

/// Times that a thread of the daemon has waited for something.
fn wakes(daemon: &Daemon) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let waited = threads.map(|thread| {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    });
    waited.sum()
}

/// Descriptors of each attached VM.
pub fn descriptors(options: &Options) -> Value {
    let vms = options.number("vms");
    let mut fleet = Fleet::empty(vms, "");
    let before = open_files(&fleet.daemon);
    let names = fleet.names();
    let connect = |name: &String| Member::connect_for(&fleet.daemon, name, 1);
    fleet.members = names.iter().map(connect).collect();
    fleet.members.iter_mut().for_each(|member| member.begin(1));
    // Each VM has a listening socket besides, attached or not.
    let each = (open_files(&fleet.daemon) - before) as f64 / vms as f64 + 1.0;
    json!({ "descriptors_per_vm": each })
}

fn own_bytes(daemon: &Daemon) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

fn open_files(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}
