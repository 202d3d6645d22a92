// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A tenant's connections, and the samples of their TCP state.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::str::FromStr;
use std::sync::mpsc::{Sender as Report, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::sys::socket::sockopt::{Linger, Priority, TcpMaxSeg};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket,
};

use super::churn;
use super::clock::{self, Clock};
use super::tcp_info::TcpInfo;
use super::writer;
use super::{ipv6, network};
use crate::error::{Context, LabError, Result};
use crate::plan::{Flow, Plan, Sender};

/// Stack of a flow's thread.
const STACK: usize = 128 * 1024;

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
    let thread = thread::Builder::new().stack_size(STACK).spawn(job);
    thread.map(drop).context(|| "starting a flow's thread".into())
}

fn send(flow: &Flow, slot: &Slot, clock: Clock) -> io::Result<()> {
    if let Some(churn) = &flow.churn {
        return churn::run(flow, churn, clock);
    }
    clock.sleep_until(flow.start_ns);
    let mut stream = open(flow)?;
    *lock(slot) = Some(stream.try_clone()?);
    let finished = writer::write(&mut stream, flow, clock)?;
    if finished {
        // The receiver closes once it has everything.
        stream.shutdown(Shutdown::Write)?;
        stream.set_write_timeout(None)?;
        stream.read_to_end(&mut Vec::new())?;
    } else {
        // Abort: what is still in the buffer is not to be sent.
        setsockopt(&stream, Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    }
    *lock(slot) = None;
    Ok(())
}

fn open(flow: &Flow) -> io::Result<TcpStream> {
    let fd = socket(family(flow), SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, Priority, &(flow.priority as libc::c_int))?;
    if let Some(mss) = flow.mss {
        setsockopt(&fd, TcpMaxSeg, &mss)?;
    }
    connect(fd.as_raw_fd(), &SockaddrStorage::from(address(flow)?))?;
    Ok(TcpStream::from(fd))
}

/// Where a flow's receiver is.
pub fn address(flow: &Flow) -> io::Result<SocketAddr> {
    let host = if flow.ipv6 { ipv6::RECEIVER_ADDRESS } else { network::RECEIVER_ADDRESS };
    let host = IpAddr::from_str(host).map_err(io::Error::other)?;
    Ok(SocketAddr::new(host, flow.port))
}

/// The address family of a flow.
pub fn family(flow: &Flow) -> AddressFamily {
    if flow.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
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
