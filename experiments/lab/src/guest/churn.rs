// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Thousands of short-lived connections, which a thread for each would not
//! bear: both sides wait for all of theirs at once, without a time limit.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::sockopt::{Linger, Priority};
use nix::sys::socket::{
    Backlog, MsgFlags, SockFlag, SockType, SockaddrStorage, connect, listen, send, setsockopt,
    socket,
};

use super::clock::Clock;
use super::receiver::drop_bytes;
use super::sender::{address, family};
use crate::plan::{Churn, Flow};

/// Events taken at once.
const EVENTS: usize = 256;
/// Stack of the thread that sends.
const STACK: usize = 128 * 1024;
/// The listening socket among the receiver's events.
const LISTENER: u64 = u64::MAX;

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
    thread::Builder::new().stack_size(STACK).spawn(move || {
        if let Err(e) = send_on_all(&events, &theirs, &bytes) {
            println!("ccc-lab-guest: churn: {e}");
        }
    })?;
    for number in 0..u64::from(churn.connections) {
        clock.sleep_until(flow.start_ns + churn.open_ns * number / u64::from(churn.connections));
        let fd = begin(flow)?;
        let event = EpollEvent::new(EpollFlags::EPOLLOUT | EpollFlags::EPOLLONESHOT, number);
        let mut connections = lock(&connections);
        epoll.add(&fd, event)?;
        connections.push(fd);
    }
    let end = flow.start_ns + churn.open_ns + churn.hold_ns;
    let mut next = flow.start_ns + churn.open_ns;
    while let Some(at) = churn.again_ns.map(|again| next + again).filter(|at| *at < end) {
        clock.sleep_until(at);
        for fd in lock(&connections).iter() {
            // As above.
            let _ = send(fd.as_raw_fd(), &once_more, MsgFlags::MSG_NOSIGNAL);
        }
        next = at;
    }
    clock.sleep_until(end);
    for fd in lock(&connections).drain(..) {
        setsockopt(&fd, Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    }
    Ok(())
}

/// A connection under way.
fn begin(flow: &Flow) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family(flow), SockType::Stream, flags, None)?;
    setsockopt(&fd, Priority, &(flow.priority as libc::c_int))?;
    let address = SockaddrStorage::from(address(flow)?);
    match connect(fd.as_raw_fd(), &address) {
        Ok(()) | Err(nix::Error::EINPROGRESS) => Ok(fd),
        Err(e) => Err(e.into()),
    }
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

/// What a churn's receiver has counted.
#[derive(Default)]
pub struct Count {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Of these, those that were reset.
    pub reset: AtomicU64,
    /// Bytes of all.
    pub bytes: AtomicU64,
    /// When the latest one ended.
    pub end_ns: AtomicU64,
}

/// Receives all connections of a churn; does not return.
pub fn receive(listener: &TcpListener, count: &Count, clock: Clock) -> io::Result<()> {
    listen(listener, Backlog::MAXALLOWABLE)?;
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut events = [EpollEvent::empty(); EVENTS];
    loop {
        let ready = epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..ready] {
            if event.data() == LISTENER {
                accept(listener, &epoll, &mut streams)?;
                count.accepted.store(streams.len() as u64, Relaxed);
            } else if let Some(slot) = streams.get_mut(event.data() as usize) {
                take(slot, count, clock);
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    epoll: &Epoll,
    streams: &mut Vec<Option<TcpStream>>,
) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                let event = EpollEvent::new(EpollFlags::EPOLLIN, streams.len() as u64);
                epoll.add(stream.as_fd(), event)?;
                streams.push(Some(stream));
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            // Reset before it was accepted.
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => (),
            Err(e) => return Err(e),
        }
    }
}

/// Takes what a connection has; drops it at its end.
fn take(slot: &mut Option<TcpStream>, count: &Count, clock: Clock) {
    let Some(stream) = slot else {
        return;
    };
    match drop_bytes(stream) {
        Ok(bytes @ 1..) => {
            count.bytes.fetch_add(bytes, Relaxed);
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => (),
        outcome => {
            count.reset.fetch_add(outcome.is_err().into(), Relaxed);
            count.end_ns.store(clock.now(), Relaxed);
            *slot = None;
        }
    }
}

fn lock(connections: &Connections) -> std::sync::MutexGuard<'_, Vec<OwnedFd>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}
