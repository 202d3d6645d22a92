// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A tenant's connections, and the samples of their TCP state.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Sender as Report, channel};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::socket::SockFlag;

use super::socket::{begin, reset_on_close};
use super::tcp_info::TcpInfo;
use super::{churn, writer};
use crate::error::{Context, LabError, Result};
use crate::guest::clock::{self, Clock};
use crate::guest::threads;
use crate::plan::{Flow, Plan, Sender};

/// A flow's socket while it lives.
type Slot = Arc<Mutex<Option<TcpStream>>>;

/// Runs a tenant's flows to the end of the run; returns the sample rows.
pub fn run(plan: &Plan, sender: &Sender, clock: Clock) -> Result<String> {
    let slots: Vec<Slot> = sender.flows.iter().map(|_| Slot::default()).collect();
    let (report, errors) = channel();
    for (flow, slot) in sender.flows.iter().zip(&slots) {
        start(flow.clone(), slot.clone(), clock, report.clone())?;
    }
    let rows = sample(plan, sender, &slots, clock)?;
    // Endless flows still block in write(): they end with the guest.
    errors.try_recv().map_or(Ok(rows), Err)
}

fn start(flow: Flow, slot: Slot, clock: Clock, report: Report<LabError>) -> Result<()> {
    let job = move || {
        let outcome = send(&flow, &slot, clock);
        if let Err(e) = outcome.context(|| format!("{}, flow {}", flow.vm, flow.flow)) {
            // The run may be over: then nobody wants to know.
            let _ = report.send(e);
        }
    };
    threads::spawn(job).context(|| "starting a flow's thread".into())
}

fn send(flow: &Flow, slot: &Slot, clock: Clock) -> io::Result<()> {
    if let Some(churn) = &flow.churn {
        return churn::run(flow, churn, clock);
    }
    clock.sleep_until(flow.start_ns);
    let mut stream = TcpStream::from(begin(flow, SockFlag::empty())?);
    *lock(slot) = Some(stream.try_clone()?);
    let finished = writer::write(&mut stream, flow, clock)?;
    if finished {
        // The receiver closes once it has everything.
        stream.shutdown(Shutdown::Write)?;
        stream.set_write_timeout(None)?;
        stream.read_to_end(&mut Vec::new())?;
    } else {
        reset_on_close(&stream)?;
    }
    *lock(slot) = None;
    Ok(())
}

fn sample(plan: &Plan, sender: &Sender, slots: &[Slot], clock: Clock) -> Result<String> {
    let mut rows = String::new();
    for tick in clock::ticks(plan.sample_ns, plan.duration_ns) {
        clock.sleep_until(tick);
        for (flow, slot) in sender.flows.iter().zip(slots) {
            if let Some(stream) = &*lock(slot) {
                let info = TcpInfo::of(stream).context(|| "TCP_INFO".into())?;
                row(&mut rows, tick, flow, &info);
            }
        }
    }
    Ok(rows)
}

fn row(rows: &mut String, tick: u64, flow: &Flow, info: &TcpInfo) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        rows,
        "{},{},{},{},{},{},{},{},{}",
        clock::text(tick),
        flow.vm,
        flow.flow,
        info.cwnd(),
        info.ssthresh(),
        info.srtt_us(),
        info.bytes_acked(),
        info.retransmits(),
        info.state(),
    );
}

fn lock(slot: &Slot) -> std::sync::MutexGuard<'_, Option<TcpStream>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
