// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The receiving side of thousands of short-lived connections: like the sending
//! one it waits for all at once.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{Backlog, listen};

use super::socket::drop_bytes;
use crate::guest::clock::Clock;

/// Events taken at once.
const EVENTS: usize = 256;
/// The listening socket among the events.
const LISTENER: u64 = u64::MAX;

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
