// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! IPv6 addresses beside the IPv4 ones, for runs whose flows use them:
//! `fd00:1:n::2` for tenant n, `fd00:2::2` for the receivers.

use std::fmt::Write;

use super::network::{BOTTLENECK, Network, RECEIVER, ip, mac, uplink_device};
use super::system;
use crate::error::Result;
use crate::plan::{Plan, Router};

/// The receivers' address.
pub const RECEIVER_ADDRESS: &str = "fd00:2::2";

/// A router of every namespace asks nobody for a router.
const SYSCTLS: [(&str, &str); 3] = [
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.all.disable_ipv6", "0"),
];

/// Sets it up where IPv4 is already.
pub fn set_up(plan: &Plan, network: &Network) -> Result<()> {
    enable()?;
    network.in_each(enable)?;
    if let Some(router) = &plan.router {
        ip(None, &router_addresses(router))?;
        ip(Some(RECEIVER), &host("rcv", RECEIVER_ADDRESS, "fd00:2::1", &mac(2, 0, 1)))?;
    }
    for sender in &plan.senders {
        let number = sender.number;
        let [own, gateway] = [2, 1].map(|end| format!("fd00:1:{number:x}::{end}"));
        let namespace = sender.namespace.then_some(sender.vm.as_str());
        ip(namespace, &host("eth0", &own, &gateway, &mac(1, sender.gateway, 1)))?;
    }
    Ok(())
}

fn enable() -> Result<()> {
    SYSCTLS.into_iter().try_for_each(|(name, value)| system::set_sysctl(name, value))
}

/// An address, and everything else by way of a neighbour.
fn host(device: &str, address: &str, gateway: &str, gateway_mac: &str) -> String {
    format!(
        "addr add {address}/64 dev {device} nodad\n\
         neigh replace {gateway} lladdr {gateway_mac} nud permanent dev {device}\n\
         route add default via {gateway} dev {device}\n"
    )
}

fn router_addresses(router: &Router) -> String {
    let mut batch = format!(
        "addr add fd00:2::1/64 dev {BOTTLENECK} nodad\n\
         neigh replace {RECEIVER_ADDRESS} lladdr {} nud permanent dev {BOTTLENECK}\n",
        mac(2, 0, 2),
    );
    for &number in router.weights.keys() {
        let device = uplink_device(router, number);
        // Writing to a String cannot fail.
        let _ = write!(
            batch,
            "addr add fd00:1:{number:x}::1/64 dev {device} nodad\n\
             neigh replace fd00:1:{number:x}::2 lladdr {} nud permanent dev {device}\n",
            mac(1, number, 2),
        );
    }
    batch
}
