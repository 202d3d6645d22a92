// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Interfaces of a guest, their addresses and neighbours: batches of `ip`.

use std::fmt::Write;

use crate::plan::addresses::{
    BOTTLENECK, PAST, RECEIVER, past_mac, receiver, receiver_mac, tenant_mac,
};
use crate::plan::{Router, Sender};

/// Routing table of the VMs whose links go past the bottleneck.
const PAST_TABLE: u32 = 100;

/// The router's: the bottleneck, and one towards each tenant.
pub fn of_router(router: &Router, senders: &[Sender]) -> String {
    let (router_mac, far_mac, receiver) =
        (receiver_mac(true), receiver_mac(false), receiver(false));
    let mut batch = format!(
        "link add {BOTTLENECK} address {router_mac} type veth peer name rcv address {far_mac} netns {RECEIVER}\n\
         addr add 10.2.0.1/24 dev {BOTTLENECK}\n\
         link set {BOTTLENECK} up\n\
         neigh replace {receiver} lladdr {far_mac} nud permanent dev {BOTTLENECK}\n",
    );
    for sender in senders {
        let number = sender.number;
        // Writing to a String cannot fail.
        let _ = writeln!(
            batch,
            "link add up{number} address {} type veth peer name eth0 address {} netns {}",
            tenant_mac(number, true),
            tenant_mac(number, false),
            sender.vm,
        );
        batch += &uplink(&format!("up{number}"), number);
    }
    for (index, numbers) in router.uplinks.iter().enumerate() {
        for &number in numbers {
            batch += &uplink(&format!("eth{index}"), number);
        }
    }
    if !router.past.is_empty() {
        batch += &past(&router.past);
    }
    batch
}

/// An interface beside the bottleneck, which some VMs' packets take.
fn past(vms: &[u32]) -> String {
    let (router_mac, far_mac, receiver) = (past_mac(true), past_mac(false), receiver(false));
    let mut batch = format!(
        "link add {PAST} address {router_mac} type veth peer name rcv{PAST} address {far_mac} netns {RECEIVER}\n\
         link set {PAST} up\n\
         neigh replace {receiver} lladdr {far_mac} nud permanent dev {PAST}\n\
         route add {receiver} dev {PAST} table {PAST_TABLE}\n",
    );
    for number in vms {
        // Writing to a String cannot fail.
        let _ = writeln!(batch, "rule add from 10.1.{number}.0/24 table {PAST_TABLE}");
    }
    batch
}

fn uplink(device: &str, number: u32) -> String {
    format!(
        "addr add 10.1.{number}.1/24 dev {device}\n\
         link set {device} up\n\
         neigh replace 10.1.{number}.2 lladdr {} nud permanent dev {device}\n",
        tenant_mac(number, false),
    )
}

/// The receivers'.
pub fn of_receiver(router: &Router) -> String {
    let past =
        if router.past.is_empty() { String::new() } else { format!("link set rcv{PAST} up\n") };
    past + &format!(
        "addr add {}/24 dev rcv\n\
         link set rcv up\n\
         neigh replace 10.2.0.1 lladdr {} nud permanent dev rcv\n\
         route add default via 10.2.0.1\n",
        receiver(false),
        receiver_mac(true),
    )
}

/// A tenant's.
pub fn of_sender(sender: &Sender) -> String {
    let number = sender.number;
    format!(
        "addr add 10.1.{number}.2/24 dev eth0\n\
         link set eth0 up\n\
         neigh replace 10.1.{number}.1 lladdr {} nud permanent dev eth0\n\
         route add default via 10.1.{number}.1\n",
        tenant_mac(sender.gateway, true),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(uplinks: Vec<Vec<u32>>) -> Router {
        Router { uplinks, ..Router::default() }
    }

    #[test]
    fn the_router_has_an_interface_for_each_uplink() {
        let batch = of_router(&router(vec![vec![1], vec![2]]), &[]);
        assert!(batch.contains("addr add 10.1.1.1/24 dev eth0\n"));
        assert!(batch.contains("addr add 10.1.2.1/24 dev eth1\n"));
        assert!(!batch.contains("up1"));
        let shared = of_router(&router(vec![vec![1, 2]]), &[]);
        assert!(shared.contains("addr add 10.1.2.1/24 dev eth0\n"));
    }

    #[test]
    fn some_vms_go_past_the_bottleneck() {
        let none = router(vec![vec![1], vec![2]]);
        assert!(!of_router(&none, &[]).contains(PAST) && !of_receiver(&none).contains(PAST));
        let second = Router { past: vec![2], ..none };
        assert!(of_router(&second, &[]).contains("rule add from 10.1.2.0/24 table 100\n"));
        assert!(of_receiver(&second).starts_with("link set rcvpast up\n"));
    }
}
