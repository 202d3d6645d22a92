// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Connections over vsock from a port that only a privileged process can have, by which the
//! relay knows the guest's agent from any other process of the guest.
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::{Context, Result, bail};

/// Ports that are tried, from the last privileged one.
const PORTS: std::ops::RangeInclusive<u32> = 512..=1023;

/// Connects to a port of a CID.
pub fn connect(cid: u32, port: u32) -> Result<OwnedFd> {
    let socket = bound()?;
    let to = address(cid, port);
    with(&to, |to, bytes| {
        // SAFETY: an address of that many bytes.
        unsafe { libc::connect(socket.as_raw_fd(), to, bytes) }
    })?;
    Ok(socket)
}

/// A socket with a port of ours.
fn bound() -> Result<OwnedFd> {
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error()).context("no socket of vsock");
    }
    // SAFETY: it has just been made, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    for port in PORTS.rev() {
        let from = address(libc::VMADDR_CID_ANY, port);
        let bound = with(&from, |from, bytes| {
            // SAFETY: an address of that many bytes.
            unsafe { libc::bind(socket.as_raw_fd(), from, bytes) }
        });
        match bound {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                return Err(error)
                    .context("no privileged port of vsock; needs CAP_NET_BIND_SERVICE");
            }
            Ok(()) => return Ok(socket),
        }
    }
    bail!("all of {} privileged ports of vsock are in use", PORTS.count())
}

fn address(cid: u32, port: u32) -> libc::sockaddr_vm {
    libc::sockaddr_vm {
        svm_family: libc::AF_VSOCK as _,
        svm_reserved1: 0,
        svm_port: port,
        svm_cid: cid,
        svm_zero: [0; 4],
    }
}

/// What a call says to an address.
fn with(
    address: &libc::sockaddr_vm,
    call: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> i32,
) -> io::Result<()> {
    let bytes = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
    match call(std::ptr::from_ref(address).cast(), bytes) {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_port_is_privileged() {
        // SAFETY: no pointers.
        let is_root = unsafe { libc::geteuid() } == 0;
        if !is_root || !std::path::Path::new("/dev/vsock").exists() {
            return;
        }
        let socket = bound().expect("a port");
        let mut address = address(0, 0);
        let mut bytes = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
        let to = std::ptr::from_mut(&mut address).cast();
        // SAFETY: room for an address of that many bytes.
        let told = unsafe { libc::getsockname(socket.as_raw_fd(), to, &raw mut bytes) };
        assert_eq!(told, 0);
        assert!(PORTS.contains(&address.svm_port), "{}", address.svm_port);
    }
}
