// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The address plan.
//!
//! ```text
//! tenant eth0 ── (cable or veth) ── up0 router bott ── veth ── rcv receiver
//! 10.1.n.2                     10.1.n.1      10.2.0.1      10.2.0.2
//! fd00:1:n::2              fd00:1:n::1     fd00:2::1     fd00:2::2
//! ```
//! Links that go past the bottleneck have an interface beside it, `past` to `rcvpast`.
//! Neighbours are fixed, so that no ARP crosses the bottleneck.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Namespace of the receivers.
pub const RECEIVER: &str = "receiver";
/// Interface whose queue is the bottleneck.
pub const BOTTLENECK: &str = "bott";
/// Interface beside it, of links that go past it.
pub const PAST: &str = "past";
/// Number of the network behind the bottleneck in MAC addresses.
const BEHIND: u32 = 2;
/// Number of the tenants' networks there.
const TENANTS: u32 = 1;

/// The receivers' address.
pub fn receiver(ipv6: bool) -> IpAddr {
    if ipv6 {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 2, 0, 2))
    }
}

/// MAC address of the receivers' interface, or of the router's towards it.
pub fn receiver_mac(router: bool) -> String {
    text(&mac(BEHIND, 0, router))
}

/// The same of the interfaces beside the bottleneck.
pub fn past_mac(router: bool) -> String {
    text(&mac(BEHIND, 1, router))
}

/// MAC address of a tenant's interface, or of the router's towards it.
pub fn tenant_mac(number: u32, router: bool) -> String {
    text(&nic_mac(number, router))
}

/// The same in bytes.
pub fn nic_mac(number: u32, router: bool) -> [u8; 6] {
    mac(TENANTS, number, router)
}

fn mac(network: u32, number: u32, router: bool) -> [u8; 6] {
    [2, 0, 0, network as u8, number as u8, if router { 1 } else { 2 }]
}

fn text(mac: &[u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_the_nics_and_the_neighbours() {
        assert_eq!(nic_mac(10, false), [2, 0, 0, 1, 10, 2]);
        assert_eq!(tenant_mac(10, false), "02:00:00:01:0a:02");
        assert_eq!(receiver_mac(true), "02:00:00:02:00:01");
        assert_eq!(receiver(true).to_string(), "fd00:2::2");
    }
}
