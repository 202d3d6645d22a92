// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What flows and VMs take of the daemon's host.
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, Member},
    options::Options,
    support::daemon::Daemon,
};

/// Bytes of its own for each flow, of flows in two VMs.
pub fn flows(options: &Options) -> Value {
    let flows = options.number("flows");
    let limits = format!("[daemon]\nmax_flows_per_vm = {}\nmax_flows = {flows}\n", flows / 2);
    let fleet = Fleet::empty(2, &limits);
    let names = fleet.names();
    let connect = |name: &String| Member::connect_for(&fleet.daemon, name, flows / 2);
    let mut members: Vec<Member> = names.iter().map(connect).collect();
    let before = own_bytes(&fleet.daemon);
    members.iter_mut().for_each(|member| member.begin(flows / 2));
    let bytes = own_bytes(&fleet.daemon) - before;
    json!({ "bytes_per_flow": bytes / flows as f64 })
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
