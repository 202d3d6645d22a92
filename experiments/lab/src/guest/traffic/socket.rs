// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sockets of flows.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::socket::sockopt::{Linger, Priority, TcpMaxSeg};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket,
};

use crate::plan::{Flow, addresses};

/// Taken at once at most.
const TAKE: usize = 64 << 20;

/// Where a flow's receiver is.
pub fn address(flow: &Flow) -> SocketAddr {
    SocketAddr::new(addresses::receiver(flow.ipv6), flow.port)
}

/// Connects a flow's socket, or begins to if it does not block.
pub fn begin(flow: &Flow, flags: SockFlag) -> io::Result<OwnedFd> {
    let family = if flow.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let fd = socket(family, SockType::Stream, flags | SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, Priority, &(flow.priority as libc::c_int))?;
    if let Some(mss) = flow.mss {
        setsockopt(&fd, TcpMaxSeg, &mss)?;
    }
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address(flow))) {
        Ok(()) | Err(nix::Error::EINPROGRESS) => Ok(fd),
        Err(e) => Err(e.into()),
    }
}

/// Lets closing the socket reset the connection: what is still in its buffer
/// is not to be sent.
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?)
}

/// Takes bytes without copying them here; 0 is the end of the stream.
pub fn drop_bytes(stream: &TcpStream) -> io::Result<u64> {
    // SAFETY: with MSG_TRUNC the kernel drops the bytes and writes nothing.
    let count =
        unsafe { libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), TAKE, libc::MSG_TRUNC) };
    u64::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Sets an option of a socket that nix does not know.
pub fn set_option(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value lives through the call and has the length said.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
