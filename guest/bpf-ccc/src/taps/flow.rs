// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Which flow is which: addresses and ports, as the filter and the daemon's slots have them.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::Value;

/// A flow, as its sender has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// The VM's own end.
    pub source: SocketAddr,
    /// The other.
    pub destination: SocketAddr,
}

impl Flow {
    /// That of a key of the filter's map (`struct tap_flow`).
    pub fn of_key(key: &[u8]) -> Option<Flow> {
        let address = |at: usize| <[u8; 16]>::try_from(key.get(at..at + 16)?).ok();
        let port = |at: usize| Some(u16::from_be_bytes(key.get(at..at + 2)?.try_into().ok()?));
        let family = u16::from_ne_bytes(key.get(36..38)?.try_into().ok()?);
        Some(Flow {
            source: SocketAddr::new(ip(family, address(0)?), port(32)?),
            destination: SocketAddr::new(ip(family, address(16)?), port(34)?),
        })
    }

    /// That of a slot, as the daemon tells it.
    pub fn of_slot(flow: &Value) -> Option<Flow> {
        let end = |address: &str, port: &str| {
            let ip: IpAddr = flow[address].as_str()?.parse().ok()?;
            // A socket of IPv6 that speaks IPv4 has addresses of both.
            Some(SocketAddr::new(ip.to_canonical(), flow[port].as_u64()?.try_into().ok()?))
        };
        Some(Flow {
            source: end("source", "source_port")?,
            destination: end("destination", "destination_port")?,
        })
    }
}

fn ip(family: u16, bytes: [u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = bytes;
    match family {
        4 => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(bytes).into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_filter_and_the_daemon_mean_the_same_flow() {
        let mut key = [0; 40];
        key[..4].copy_from_slice(&[10, 9, 0, 12]);
        key[16..20].copy_from_slice(&[10, 9, 0, 2]);
        key[32..36].copy_from_slice(&[0x80, 0, 0x14, 0x51]);
        key[36..38].copy_from_slice(&4u16.to_ne_bytes());
        let told = json!({"source": "10.9.0.12", "source_port": 32768,
            "destination": "10.9.0.2", "destination_port": 5201});
        let mapped = json!({"source": "::ffff:10.9.0.12", "source_port": 32768,
            "destination": "::ffff:10.9.0.2", "destination_port": 5201});
        let flow = Flow::of_key(&key).expect("a flow");
        assert_eq!(Some(flow), Flow::of_slot(&told));
        assert_eq!(Some(flow), Flow::of_slot(&mapped));
        key[36..38].copy_from_slice(&6u16.to_ne_bytes());
        assert_ne!(Some(flow), Flow::of_key(&key));
        assert_eq!(Flow::of_key(&key[..39 - 2]), None);
        assert_eq!(Flow::of_slot(&json!({"source": "x"})), None);
    }
}
