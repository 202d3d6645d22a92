// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sends the cross traffic into the bottleneck, from the router itself.

use std::fs;
use std::net::UdpSocket;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, SndBufForce};
use serde_json::json;

use super::clock::Clock;
use super::network::RECEIVER_ADDRESS;
use crate::cross::Cross;
use crate::error::{Context, Result};
use crate::plan::{Plan, Router};

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
    socket.connect((RECEIVER_ADDRESS, PORT)).context(what)?;
    let (mut packets, mut bytes) = (0u64, 0u64);
    let all = cross.packets(router.seed, router.rate_bit);
    for packet in all.take_while(|packet| packet.at_ns < plan.duration_ns) {
        clock.sleep_until(packet.at_ns);
        bytes += socket.send(&PAYLOAD[..packet.bytes]).context(what)? as u64;
        packets += 1;
    }
    let path = super::output(&plan.name, "cross.json");
    let sent = json!({"sent_packets": packets, "sent_bytes": bytes});
    fs::write(&path, format!("{sent:#}\n")).on("writing", &path)
}

/// Takes packets without a look, so that nobody says they are not wanted.
pub fn sink(plan: &Plan, clock: Clock) -> Result<()> {
    let what = || "receiving cross traffic".to_owned();
    let socket = UdpSocket::bind((RECEIVER_ADDRESS, PORT)).context(what)?;
    setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER).context(what)?;
    clock.sleep_until(plan.duration_ns);
    Ok(())
}
