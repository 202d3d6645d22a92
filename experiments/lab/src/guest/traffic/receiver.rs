// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The far end of every flow: takes the bytes and counts them.

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;

use super::churn_receiver::{self, Count};
use super::overload;
use super::socket::{address, drop_bytes, set_option};
use super::tcp_info::TcpInfo;
use crate::error::{Context, Result};
use crate::guest::clock::{self, Clock};
use crate::guest::{output, threads};
use crate::plan::{Flow, Plan, Router};
use crate::scenario::flows::Churn;

/// What the readers of a guest leave in its memory together, waiting for more.
/// TCP takes no more than some 20 MB of 256, with its overhead, and drops the rest.
const WAITING: usize = 8 << 20;
/// A reader is woken only for so much, or the end.
const MOST_WAITING: usize = 256 * 1024;

/// What is known of a flow at the receiver.
#[derive(Default)]
struct Arrival {
    stream: Option<TcpStream>,
    /// What came, once the stream is gone.
    received: Received,
    end_ns: Option<u64>,
    /// In place of all that, what is known of a churn.
    churn: Option<Arc<Count>>,
}

/// What has come of a flow so far.
#[derive(Clone, Copy, Default)]
struct Received {
    /// Payload in order.
    bytes: u64,
    /// Segments with payload, in order or not.
    segments: u32,
}

type Slot = Arc<Mutex<Arrival>>;

/// Receives all flows to the end of the run and writes the results.
pub fn run(plan: &Plan, router: &Router, clock: Clock) -> Result<()> {
    let mut slots = Vec::new();
    let low_water = low_water(router.flows.len());
    for flow in &router.flows {
        let address = address(flow);
        let listener = listening(flow, address).context(|| format!("listening on {address}"))?;
        let slot = Slot::default();
        slots.push(slot.clone());
        // The threads of endless flows block for ever: they end with the guest.
        let churn = flow.churn.as_ref().map(|_| Arc::new(Count::default()));
        lock(&slot).churn = churn.clone();
        // Of a small buffer all is read at once, or its window would open in halves.
        let low_water = flow.receive_buffer_bytes.map_or(low_water, |_| 1);
        let job = move || {
            let outcome = match churn {
                Some(count) => churn_receiver::receive(&listener, &count, clock),
                None => receive(&listener, &slot, low_water, clock),
            };
            if let Err(e) = outcome {
                println!("ccc-lab-guest: receiving on {address}: {e}");
            }
        };
        threads::spawn(job).context(|| "starting a receiver's thread".into())?;
    }
    let rows = sample(plan, &router.flows, &slots, clock);
    output::write(&plan.name, "goodput.csv", &rows)?;
    let flows: Vec<_> = router.flows.iter().zip(&slots).map(|(f, s)| summary(plan, f, s)).collect();
    output::write_json(&plan.name, "flows.json", &json!(flows))?;
    overload::refuse()
}

fn listening(flow: &Flow, address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    if let Some(bytes) = flow.receive_buffer_bytes {
        // Before a connection is there: its scale of windows is of this.
        set_option(&listener, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes as libc::c_int)?;
    }
    Ok(listener)
}

fn receive(
    listener: &TcpListener,
    slot: &Slot,
    low_water: libc::c_int,
    clock: Clock,
) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    set_option(&stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, low_water)?;
    lock(slot).stream = Some(stream.try_clone()?);
    let (bytes, outcome) = drain(&stream);
    let end = clock.now();
    let segments = TcpInfo::of(&stream).map_or(0, |info| info.data_segments_in());
    let received = Received { bytes, segments };
    let mut arrival = lock(slot);
    *arrival = Arrival { received, end_ns: Some(end), ..Arrival::default() };
    match outcome {
        // The sender's way to stop.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        other => other,
    }
}

fn low_water(flows: usize) -> libc::c_int {
    (WAITING / flows.max(1)).min(MOST_WAITING) as libc::c_int
}

/// Takes bytes to the end of the stream, without copying them here.
fn drain(stream: &TcpStream) -> (u64, io::Result<()>) {
    let mut total = 0;
    loop {
        match drop_bytes(stream) {
            Ok(0) => return (total, Ok(())),
            Ok(count) => total += count,
            Err(e) => return (total, Err(e)),
        }
    }
}

fn sample(plan: &Plan, flows: &[Flow], slots: &[Slot], clock: Clock) -> String {
    let mut rows = String::new();
    for tick in clock::ticks(plan.sample_ns, plan.duration_ns) {
        clock.sleep_until(tick);
        for (flow, slot) in flows.iter().zip(slots) {
            if let Some(Received { bytes, segments }) = received(&lock(slot), flow) {
                let time = clock::text(tick);
                // Writing to a String cannot fail.
                let _ = writeln!(rows, "{time},{},{},{bytes},{segments}", flow.vm, flow.flow);
            }
        }
    }
    rows
}

/// What came so far; none before the connection.
fn received(arrival: &Arrival, flow: &Flow) -> Option<Received> {
    if let Some(count) = &arrival.churn {
        let bytes = count.bytes.load(Relaxed);
        // Nobody asks for the segments of connections that are reset.
        return (count.accepted.load(Relaxed) > 0).then_some(Received { bytes, segments: 0 });
    }
    let Some(stream) = &arrival.stream else {
        return arrival.end_ns.map(|_| arrival.received);
    };
    let info = TcpInfo::of(stream).ok()?;
    // The kernel counts the FIN as a byte.
    let bytes = info.bytes_received().min(flow.bytes.unwrap_or(u64::MAX));
    Some(Received { bytes, segments: info.data_segments_in() })
}

fn summary(plan: &Plan, flow: &Flow, slot: &Slot) -> serde_json::Value {
    let arrival = lock(slot);
    let bytes = received(&arrival, flow).unwrap_or_default().bytes;
    let end = arrival.end_ns.unwrap_or(plan.duration_ns);
    if let (Some(count), Some(churn)) = (&arrival.churn, &flow.churn) {
        return churned(flow, churn, count, bytes);
    }
    json!({
        "vm": flow.vm,
        "flow": flow.flow,
        "start_s": flow.start_ns as f64 / 1e9,
        "end_s": end as f64 / 1e9,
        "bytes_received": bytes,
        "completed": arrival.end_ns.is_some() && flow.bytes == Some(bytes),
    })
}

fn churned(flow: &Flow, churn: &Churn, count: &Count, bytes: u64) -> serde_json::Value {
    let accepted = count.accepted.load(Relaxed);
    json!({
        "vm": flow.vm,
        "flow": flow.flow,
        "start_s": flow.start_ns as f64 / 1e9,
        "end_s": count.end_ns.load(Relaxed) as f64 / 1e9,
        "bytes_received": bytes,
        "completed": bytes == u64::from(churn.connections) * u64::from(churn.bytes),
        "connections": churn.connections,
        "accepted": accepted,
        "reset": count.reset.load(Relaxed),
    })
}

fn lock(slot: &Slot) -> MutexGuard<'_, Arrival> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
