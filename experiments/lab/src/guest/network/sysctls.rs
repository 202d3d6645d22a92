// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sysctls of a guest's namespaces.

use std::collections::{BTreeMap, BTreeSet};

use super::namespaces::Namespaces;
use crate::error::Result;
use crate::guest::system;
use crate::plan::{Plan, Sender};

/// The name of the guest's first namespace in the results.
const ROOT: &str = "root";

/// Set in every namespace: buffers never limit a window, and no connection
/// profits from an earlier one.
const EVERYWHERE: [(&str, &str); 8] = [
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

/// Sysctls as read back.
pub type Sysctls = BTreeMap<String, String>;

/// Applies them in every namespace; returns what each has then.
pub fn apply(plan: &Plan, namespaces: &Namespaces) -> Result<BTreeMap<String, Sysctls>> {
    allow(plan)?;
    let mut applied = BTreeMap::from([(ROOT.to_owned(), apply_root(plan)?)]);
    for name in namespaces.names() {
        let sender = plan.senders.iter().find(|s| s.vm == name);
        let sysctls = namespaces.within(name, || match sender {
            Some(sender) => apply_sender(sender),
            None => apply_here(receiver_control(plan), ECN_ACCEPT),
        })?;
        applied.insert(name.to_owned(), sysctls);
    }
    Ok(applied)
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

fn apply_root(plan: &Plan) -> Result<Sysctls> {
    match plan.senders.iter().find(|s| !s.namespace) {
        Some(sender) => apply_sender(sender),
        None => apply_here(DEFAULT_CONGESTION_CONTROL, ECN_OFF),
    }
}

fn apply_sender(sender: &Sender) -> Result<Sysctls> {
    apply_here(&sender.congestion_control, if sender.ecn { ECN_ASK } else { ECN_OFF })
}

fn apply_here(congestion_control: &str, ecn: &str) -> Result<Sysctls> {
    let own = [(CONGESTION_CONTROL, congestion_control), (ECN, ecn)];
    let mut applied = Sysctls::new();
    for (name, value) in EVERYWHERE.into_iter().chain(own) {
        system::set_sysctl(name, value)?;
        applied.insert(name.into(), system::sysctl(name)?);
    }
    Ok(applied)
}
