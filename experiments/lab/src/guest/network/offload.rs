// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Turns segmentation and receive offloads off: the bottleneck's packets are
//! to be those of the wire.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{Context, Result};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// Commands that read and set an offload: TSO, GSO, GRO.
const OFFLOADS: [(u32, u32); 3] = [(0x1e, 0x1f), (0x23, 0x24), (0x2b, 0x2c)];

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Does so for every interface of the calling thread's namespace.
pub fn turn_off() -> Result<()> {
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .context(|| "socket".into())?;
    let names = nix::net::if_::if_nameindex().context(|| "listing interfaces".into())?;
    for name in &names {
        let name = name.name().to_bytes();
        if name != b"lo" {
            OFFLOADS
                .into_iter()
                .try_for_each(|(get, set)| off(&any, name, get, set))
                .context(|| format!("offloads of {}", String::from_utf8_lossy(name)))?;
        }
    }
    Ok(())
}

/// A device without an offload refuses even to turn it off: look first.
fn off(socket: &OwnedFd, name: &[u8], get: u32, set: u32) -> nix::Result<()> {
    if ethtool(socket, name, get)? != 0 {
        ethtool(socket, name, set)?;
    }
    Ok(())
}

/// Does a command with the value 0; returns the value it leaves.
fn ethtool(socket: &OwnedFd, name: &[u8], command: u32) -> nix::Result<u32> {
    let mut value = Value { command, data: 0 };
    // SAFETY: all fields of ifreq may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: request and value live until the call returns, and the commands
    // used read and write no more than an ethtool_value.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    nix::Error::result(result)?;
    Ok(value.data)
}
