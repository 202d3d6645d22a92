// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A packet socket (packet(7)) that shows a BPF program what comes in at an interface, and is never
//! read.
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// One at the interface of that index, with that filter.
pub fn open(index: u32, filter: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // With no protocol it is shown nothing before it has its filter; a datagram begins with the
    // header of IP.
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it has just been made, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // What the host sends to the VM is none of what the VM sends.
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, filter.as_raw_fd())?;
    bind(&socket, index)?;
    Ok(socket)
}

fn set(socket: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let bytes = size_of::<i32>() as libc::socklen_t;
    let value = std::ptr::from_ref(&value).cast();
    // SAFETY: a number of that many bytes.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as _,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let address = std::ptr::from_ref(&address).cast();
    // SAFETY: an address of that many bytes.
    match unsafe { libc::bind(socket.as_raw_fd(), address, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
