// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Samples of the bottleneck's queue, asked from the kernel by netlink.

use std::fmt::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use serde_json::json;

use crate::error::{Context, LabError, Result};
use crate::guest::clock::{self, Clock};
use crate::guest::output;
use crate::plan::Plan;
use crate::plan::addresses::BOTTLENECK;

const HEADER: usize = 16;
const TCMSG: usize = 20;
const ERROR: u16 = 2;
const NEW_QDISC: u16 = 36;
const GET_QDISC: u16 = 38;
/// A request whose answer, a notification, is to come to us too.
const FLAGS_REQUEST_ECHO: u16 = 1 | 8;
const ROOT: u32 = 0xffff_ffff;
const TCA_STATS2: u16 = 7;
const STATS_BASIC: u16 = 1;
const STATS_QUEUE: u16 = 3;

/// State of a queue.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stats {
    sent_bytes: u64,
    sent_packets: u32,
    queued_packets: u32,
    queued_bytes: u32,
    dropped: u32,
}

/// Samples the bottleneck to the end of the run and writes the results.
pub fn sample(plan: &Plan, clock: Clock) -> Result<()> {
    let netlink = Netlink::open(BOTTLENECK)?;
    let mut rows = String::new();
    for tick in clock::ticks(plan.queue_sample_ns, plan.duration_ns) {
        clock.sleep_until(tick);
        let stats = netlink.stats()?;
        row(&mut rows, tick, &stats);
    }
    clock.sleep_until(plan.duration_ns);
    let stats = netlink.stats()?;
    output::write(&plan.name, "queue.csv", &rows)?;
    let totals = json!({
        "sent_packets": stats.sent_packets,
        "dropped_packets": stats.dropped,
        "sent_bytes": stats.sent_bytes,
    });
    output::write_json(&plan.name, "bottleneck.json", &totals)
}

fn row(rows: &mut String, tick: u64, stats: &Stats) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        rows,
        "{},{},{},{},{}",
        clock::text(tick),
        stats.queued_packets,
        stats.queued_bytes,
        stats.sent_packets,
        stats.dropped,
    );
}

/// A socket that asks for the root queue of one interface.
struct Netlink {
    socket: OwnedFd,
    request: Vec<u8>,
}

impl Netlink {
    fn open(device: &str) -> Result<Self> {
        let route = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, route)
            .context(|| "netlink socket".into())?;
        let index =
            nix::net::if_::if_nametoindex(device).context(|| format!("looking up {device}"))?;
        let mut request = Vec::new();
        request.extend(((HEADER + TCMSG) as u32).to_ne_bytes());
        request.extend(GET_QDISC.to_ne_bytes());
        request.extend(FLAGS_REQUEST_ECHO.to_ne_bytes());
        request.extend([0; 8]);
        // Family and padding, interface, handle, parent, info.
        for word in [0, index, 0, ROOT, 0] {
            request.extend(word.to_ne_bytes());
        }
        Ok(Self { socket, request })
    }

    fn stats(&self) -> Result<Stats> {
        let what = || "asking for the queue".to_owned();
        let fd = self.socket.as_raw_fd();
        send(fd, &self.request, MsgFlags::empty()).context(what)?;
        let mut answer = [0; 4096];
        let count = recv(fd, &mut answer, MsgFlags::empty()).context(what)?;
        parse(&answer[..count]).ok_or_else(|| LabError::protocol("netlink", "no queue statistics"))
    }
}

fn parse(message: &[u8]) -> Option<Stats> {
    let kind = u16_at(message, 4)?;
    if kind == ERROR || kind != NEW_QDISC {
        return None;
    }
    let nested = attribute(message.get(HEADER + TCMSG..)?, TCA_STATS2)?;
    let basic = attribute(nested, STATS_BASIC)?;
    let queue = attribute(nested, STATS_QUEUE)?;
    Some(Stats {
        sent_bytes: u64::from(u32_at(basic, 0)?) | u64::from(u32_at(basic, 4)?) << 32,
        sent_packets: u32_at(basic, 8)?,
        queued_packets: u32_at(queue, 0)?,
        queued_bytes: u32_at(queue, 4)?,
        dropped: u32_at(queue, 8)?,
    })
}

/// The payload of the first attribute of that kind.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16_at(attributes, 0)?);
        let payload = attributes.get(4..len)?;
        if u16_at(attributes, 2)? & 0x3fff == kind {
            return Some(payload);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_of(kind: u16, payload: &[u8]) -> Vec<u8> {
        let len = 4 + payload.len();
        let mut bytes = [(len as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(payload);
        bytes.resize(len.next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn statistics_are_found_among_other_attributes() {
        let words = |list: &[u32]| list.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<_>>();
        let stats = [
            attribute_of(STATS_BASIC, &words(&[5000, 0, 7])),
            attribute_of(STATS_QUEUE, &words(&[3, 4542, 2, 0, 0])),
        ];
        let mut message = vec![0; HEADER + TCMSG];
        message[4..6].copy_from_slice(&NEW_QDISC.to_ne_bytes());
        message.extend(attribute_of(1, b"netem\0"));
        message.extend(attribute_of(TCA_STATS2, &stats.concat()));
        let expected = Stats {
            sent_bytes: 5000,
            sent_packets: 7,
            queued_packets: 3,
            queued_bytes: 4542,
            dropped: 2,
        };
        assert_eq!(parse(&message), Some(expected));
    }

    #[test]
    fn an_error_is_not_statistics() {
        let mut message = vec![0; 64];
        message[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        assert_eq!(parse(&message), None);
    }
}
