// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! IPv6 addresses beside the IPv4 ones, for runs whose flows use them:
//! `fd00:1:n::2` for tenant n, `fd00:2::2` for the receivers.

use std::fmt::Write;

use super::namespaces::Namespaces;
use crate::error::Result;
use crate::guest::system::{self, batch};
use crate::plan::addresses::{BOTTLENECK, RECEIVER, receiver, receiver_mac, tenant_mac};
use crate::plan::{Plan, Router};

/// A router of every namespace asks nobody for a router.
const SYSCTLS: [(&str, &str); 3] = [
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.all.disable_ipv6", "0"),
];

/// Sets it up where IPv4 is already.
pub fn set_up(plan: &Plan, namespaces: &Namespaces) -> Result<()> {
    enable()?;
    namespaces.in_each(enable)?;
    if let Some(router) = &plan.router {
        batch("ip", None, &router_addresses(router))?;
        let own = receiver(true).to_string();
        let receiver = host("rcv", &own, "fd00:2::1", &receiver_mac(true));
        batch("ip", Some(RECEIVER), &receiver)?;
    }
    for sender in &plan.senders {
        let number = sender.number;
        let [own, gateway] = [2, 1].map(|end| format!("fd00:1:{number:x}::{end}"));
        let namespace = sender.namespace.then_some(sender.vm.as_str());
        let tenant = host("eth0", &own, &gateway, &tenant_mac(sender.gateway, true));
        batch("ip", namespace, &tenant)?;
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
         neigh replace {} lladdr {} nud permanent dev {BOTTLENECK}\n",
        receiver(true),
        receiver_mac(false),
    );
    for &number in router.weights.keys() {
        let device = router.uplink_device(number);
        // Writing to a String cannot fail.
        let _ = write!(
            batch,
            "addr add fd00:1:{number:x}::1/64 dev {device} nodad\n\
             neigh replace fd00:1:{number:x}::2 lladdr {} nud permanent dev {device}\n",
            tenant_mac(number, false),
        );
    }
    batch
}
