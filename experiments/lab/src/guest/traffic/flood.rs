// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Datagrams of a VM at an even rate, whatever becomes of them.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use serde_json::json;

use crate::error::{Context, Result};
use crate::guest::clock::Clock;
use crate::guest::output;
use crate::plan::{Flood, Plan, addresses};
use crate::units::SECOND_NS;

/// What a datagram carries.
const PAYLOAD_BYTES: usize = 1472;
/// Its frame, with the headers of UDP, IPv4 and Ethernet.
const FRAME_BITS: u64 = (PAYLOAD_BYTES as u64 + 8 + 20 + 14) * 8;

/// Sends to the end of the run.
pub fn run(plan: &Plan, flood: &Flood, clock: Clock) -> Result<()> {
    let what = || format!("{}: sending datagrams", flood.vm);
    let receiver = addresses::receiver(plan.ipv6);
    let socket = UdpSocket::bind((any(receiver), 0)).context(what)?;
    let interval_ns = (FRAME_BITS * SECOND_NS).div_ceil(flood.rate_bit);
    for at_ns in (0..).map(|n| n * interval_ns).take_while(|at_ns| *at_ns < plan.duration_ns) {
        clock.sleep_until(at_ns);
        // What finds no room on its way is lost, as it is behind it.
        let _ = socket.send_to(&[0; PAYLOAD_BYTES], (receiver, flood.port));
    }
    Ok(())
}

/// Counts what comes to the end of the run.
pub fn sink(plan: &Plan, flood: &Flood, clock: Clock) -> Result<()> {
    let what = || format!("{}: receiving datagrams", flood.vm);
    let socket = UdpSocket::bind((addresses::receiver(plan.ipv6), flood.port)).context(what)?;
    let mut datagram = [0; PAYLOAD_BYTES];
    let mut received_bytes = 0;
    while !clock.is_past(plan.duration_ns) {
        let left =
            Duration::from_nanos(plan.duration_ns - clock.now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).context(what)?;
        match socket.recv(&mut datagram) {
            Ok(bytes) => received_bytes += bytes as u64,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => (),
            Err(error) => return Err(error).context(what),
        }
    }
    let counted = json!({"received_bytes": received_bytes});
    output::write_json(&plan.name, &format!("{}.flood.json", flood.vm), &counted)
}

fn any(like: IpAddr) -> &'static str {
    if like.is_ipv6() { "::" } else { "0.0.0.0" }
}
