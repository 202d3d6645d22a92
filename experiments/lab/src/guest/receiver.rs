// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The far end of every flow: takes the bytes and counts them.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::json;

use super::clock::{self, Clock};
use super::network::RECEIVER_ADDRESS;
use super::tcp_info::TcpInfo;
use crate::error::{Context, Result};
use crate::plan::{Flow, Plan, Router};

/// The reader is woken only for so much, or the end.
static LOW_WATER: libc::c_int = 256 * 1024;
/// Taken at once at most.
const TAKE: usize = 64 << 20;
/// Stack of a flow's thread.
const STACK: usize = 128 * 1024;

/// What is known of a flow at the receiver.
#[derive(Default)]
struct Arrival {
    stream: Option<TcpStream>,
    /// Bytes, once the stream is gone.
    bytes: u64,
    end_ns: Option<u64>,
}

type Slot = Arc<Mutex<Arrival>>;

/// Receives all flows to the end of the run and writes the results.
pub fn run(plan: &Plan, router: &Router, clock: Clock) -> Result<()> {
    let mut slots = Vec::new();
    for flow in &router.flows {
        let address = format!("{RECEIVER_ADDRESS}:{}", flow.port);
        let listener = TcpListener::bind(&address).context(|| format!("listening on {address}"))?;
        let slot = Slot::default();
        slots.push(slot.clone());
        // The threads of endless flows block for ever: they end with the guest.
        let job = move || {
            if let Err(e) = receive(&listener, &slot, clock) {
                println!("ccc-lab-guest: receiving on {address}: {e}");
            }
        };
        let thread = thread::Builder::new().stack_size(STACK).spawn(job);
        thread.context(|| "starting a receiver's thread".into())?;
    }
    let rows = sample(plan, &router.flows, &slots, clock);
    let goodput = super::output(&plan.name, "goodput.csv");
    fs::write(&goodput, rows).on("writing", &goodput)?;
    let flows: Vec<_> = router.flows.iter().zip(&slots).map(|(f, s)| summary(plan, f, s)).collect();
    super::write_json(&super::output(&plan.name, "flows.json"), &json!(flows))
}

fn receive(listener: &TcpListener, slot: &Slot, clock: Clock) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    set_low_water(&stream)?;
    lock(slot).stream = Some(stream.try_clone()?);
    let (bytes, outcome) = drain(&stream);
    let end = clock.now();
    let mut arrival = lock(slot);
    *arrival = Arrival { stream: None, bytes, end_ns: Some(end) };
    match outcome {
        // The sender's way to stop.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        other => other,
    }
}

fn set_low_water(stream: &TcpStream) -> io::Result<()> {
    // SAFETY: the value lives through the call and has the length said.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const LOW_WATER).cast(),
            size_of_val(&LOW_WATER) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes bytes to the end of the stream, without copying them here.
fn drain(stream: &TcpStream) -> (u64, io::Result<()>) {
    let mut total = 0;
    loop {
        // SAFETY: with MSG_TRUNC the kernel drops the bytes and writes nothing.
        let count =
            unsafe { libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), TAKE, libc::MSG_TRUNC) };
        match count {
            0 => return (total, Ok(())),
            1.. => total += count as u64,
            _ => return (total, Err(io::Error::last_os_error())),
        }
    }
}

fn sample(plan: &Plan, flows: &[Flow], slots: &[Slot], clock: Clock) -> String {
    let mut rows = String::new();
    for tick in clock::ticks(plan.sample_ns, plan.duration_ns) {
        clock.sleep_until(tick);
        for (flow, slot) in flows.iter().zip(slots) {
            if let Some(bytes) = received(&lock(slot), flow) {
                // Writing to a String cannot fail.
                let _ = writeln!(rows, "{},{},{},{bytes}", clock::text(tick), flow.vm, flow.flow);
            }
        }
    }
    rows
}

/// Bytes so far; none before the connection.
fn received(arrival: &Arrival, flow: &Flow) -> Option<u64> {
    let Some(stream) = &arrival.stream else {
        return arrival.end_ns.map(|_| arrival.bytes);
    };
    let bytes = TcpInfo::of(stream).ok()?.bytes_received();
    // The kernel counts the FIN as a byte.
    Some(bytes.min(flow.bytes.unwrap_or(u64::MAX)))
}

fn summary(plan: &Plan, flow: &Flow, slot: &Slot) -> serde_json::Value {
    let arrival = lock(slot);
    let bytes = received(&arrival, flow).unwrap_or(0);
    let end = arrival.end_ns.unwrap_or(plan.duration_ns);
    json!({
        "vm": flow.vm,
        "flow": flow.flow,
        "start_s": flow.start_ns as f64 / 1e9,
        "end_s": end as f64 / 1e9,
        "bytes_received": bytes,
        "completed": arrival.end_ns.is_some() && flow.bytes == Some(bytes),
    })
}

fn lock(slot: &Slot) -> MutexGuard<'_, Arrival> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
