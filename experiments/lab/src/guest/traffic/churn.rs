// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The sending side of thousands of short-lived connections, which a thread for
//! each would not bear: it waits for all at once, without a time limit.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{MsgFlags, SockFlag, send};

use super::socket::{begin, reset_on_close};
use crate::guest::clock::Clock;
use crate::guest::threads;
use crate::plan::Flow;
use crate::scenario::flows::Churn;

/// Events taken at once.
const EVENTS: usize = 256;

/// The connections of the sending side, by number.
type Connections = Arc<Mutex<Vec<OwnedFd>>>;

/// Opens the connections, holds them, and resets them.
pub fn run(flow: &Flow, churn: &Churn, clock: Clock) -> io::Result<()> {
    let connections = Connections::default();
    let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
    let bytes = vec![0; churn.bytes as usize];
    let once_more = bytes.clone();
    let (theirs, events) = (connections.clone(), epoll.clone());
    // It waits for ever in the end, and ends with the guest.
    threads::spawn(move || {
        if let Err(e) = send_on_all(&events, &theirs, &bytes) {
            println!("ccc-lab-guest: churn: {e}");
        }
    })?;
    for number in 0..u64::from(churn.connections) {
        clock.sleep_until(flow.start_ns + churn.open_ns() * number / u64::from(churn.connections));
        let fd = begin(flow, SockFlag::SOCK_NONBLOCK)?;
        let event = EpollEvent::new(EpollFlags::EPOLLOUT | EpollFlags::EPOLLONESHOT, number);
        let mut connections = lock(&connections);
        epoll.add(&fd, event)?;
        connections.push(fd);
    }
    let end = flow.start_ns + churn.open_ns() + churn.hold_ns();
    let mut next = flow.start_ns + churn.open_ns();
    while let Some(at) = churn.again_ns().map(|again| next + again).filter(|at| *at < end) {
        clock.sleep_until(at);
        for fd in lock(&connections).iter() {
            // As above.
            let _ = send(fd.as_raw_fd(), &once_more, MsgFlags::MSG_NOSIGNAL);
        }
        next = at;
    }
    clock.sleep_until(end);
    for fd in lock(&connections).drain(..) {
        reset_on_close(&fd)?;
    }
    Ok(())
}

/// Sends on each connection once it is there; the socket takes all at once.
fn send_on_all(epoll: &Epoll, connections: &Connections, bytes: &[u8]) -> io::Result<()> {
    let mut events = [EpollEvent::empty(); EVENTS];
    loop {
        let count = epoll.wait(&mut events, EpollTimeout::NONE)?;
        let connections = lock(connections);
        for event in &events[..count] {
            // None: it was reset meanwhile. A connection that failed stays
            // among those held, and is missing at the receiver.
            if let Some(fd) = connections.get(event.data() as usize) {
                let _ = send(fd.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL);
            }
        }
    }
}

fn lock(connections: &Connections) -> std::sync::MutexGuard<'_, Vec<OwnedFd>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}
