// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sends the cross traffic into the bottleneck, from the router itself.

use std::net::UdpSocket;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, SndBufForce};
use serde_json::json;

use super::cross_packets::packets;
use crate::error::{Context, Result};
use crate::guest::clock::Clock;
use crate::guest::output;
use crate::plan::{Plan, Router, addresses};
use crate::scenario::path::Cross;

const PORT: u16 = 9;
static PAYLOAD: [u8; 1500] = [0; 1500];
/// The socket is never to wait for the queue.
const SEND_BUFFER: usize = 16 << 20;
/// What is not read is dropped soon.
const RECEIVE_BUFFER: usize = 4096;

/// Sends to the end of the run and writes what was sent.
pub fn run(plan: &Plan, router: &Router, cross: &Cross, clock: Clock) -> Result<()> {
    let what = || "sending cross traffic".to_owned();
    let socket = UdpSocket::bind("0.0.0.0:0").context(what)?;
    setsockopt(&socket, SndBufForce, &SEND_BUFFER).context(what)?;
    socket.connect((addresses::receiver(false), PORT)).context(what)?;
    let (mut sent_packets, mut sent_bytes) = (0u64, 0u64);
    let all = packets(cross, router.seed, router.rate_bit);
    for packet in all.take_while(|packet| packet.at_ns < plan.duration_ns) {
        clock.sleep_until(packet.at_ns);
        sent_bytes += socket.send(&PAYLOAD[..packet.bytes]).context(what)? as u64;
        sent_packets += 1;
    }
    let sent = json!({"sent_packets": sent_packets, "sent_bytes": sent_bytes});
    output::write_json(&plan.name, "cross.json", &sent)
}

/// Takes packets without a look, so that nobody says they are not wanted.
pub fn sink(plan: &Plan, clock: Clock) -> Result<()> {
    let what = || "receiving cross traffic".to_owned();
    let socket = UdpSocket::bind((addresses::receiver(false), PORT)).context(what)?;
    setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER).context(what)?;
    clock.sleep_until(plan.duration_ns);
    Ok(())
}
