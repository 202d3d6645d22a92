// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What comes in at a tap, counted by the filter of a packet socket.  All of it goes with this
//! process, and with the tap.
use std::{
    collections::HashMap,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle,
    skel::{OpenSkel, SkelBuilder},
};

use super::{flow::Flow, socket};
use crate::{hopeless::Hopeless, program};

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/tap.skel.rs"));
}

/// Flows taken from the kernel at once.
const BATCH: u32 = 512;
/// Where the filter counts data of TCP's, and all else (`bpf/tap.h`).
const TCP: u32 = 0;
const OTHER: u32 = 1;

/// What an operator can do where the kernel refuses.
const REMEDY: &str = "expected root, or CAP_BPF and CAP_NET_RAW, and a kernel that is not locked down \
    (Linux 5.8 or newer); the daemon counts bytes of each tap without it";

/// What has come in between two looks, in bytes of IP packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// In what time.
    pub time: Duration,
    /// With data of TCP's.
    pub tcp: u64,
    /// All else.
    pub other: u64,
    /// TCP's by its flows, as far as the map had room.
    pub flows: HashMap<Flow, u64>,
}

impl Counted {
    /// And what has come in after that.
    pub fn add(&mut self, after: Counted) {
        self.time += after.time;
        self.tcp += after.tcp;
        self.other += after.other;
        for (flow, bytes) in after.flows {
            *self.flows.entry(flow).or_default() += bytes;
        }
    }
}

/// A tap at which is counted.
#[derive(Debug)]
pub struct Tap {
    name: String,
    index: u32,
    flows: MapHandle,
    totals: MapHandle,
    /// What was counted until the look before, and when that was.
    told: [u64; 2],
    looked_at: Instant,
    /// Has the filter.
    _socket: OwnedFd,
}

impl Tap {
    /// Begins to count at an interface.
    pub fn open(name: &str) -> Result<Tap> {
        let index = index(name)?;
        program::quiet();
        let mut storage = MaybeUninit::uninit();
        let open = skeleton::TapSkelBuilder::default().open(&mut storage)?;
        let loaded = open.load().map_err(refused)?;
        let socket = socket::open(index, loaded.progs.count_tap.as_fd()).map_err(refused)?;
        Ok(Tap {
            name: name.to_owned(),
            index,
            flows: MapHandle::try_from(&loaded.maps.flows)?,
            totals: MapHandle::try_from(&loaded.maps.totals)?,
            told: [0; 2],
            looked_at: Instant::now(),
            _socket: socket,
        })
    }

    /// Whether it is the interface that has this name now.
    pub fn is(&self, name: &str) -> bool {
        self.name == name && index(name).is_ok_and(|index| index == self.index)
    }

    /// What has come in since the look before.
    pub fn take(&mut self) -> Result<Counted> {
        let mut flows = HashMap::new();
        for (key, value) in
            self.flows.lookup_and_delete_batch(BATCH, MapFlags::ANY, MapFlags::ANY)?
        {
            if let Some(flow) = Flow::of_key(&key) {
                *flows.entry(flow).or_default() += number(&value)?;
            }
        }
        let [tcp, other] = [self.since(TCP)?, self.since(OTHER)?];
        let before = std::mem::replace(&mut self.looked_at, Instant::now());
        Ok(Counted { time: self.looked_at - before, tcp, other, flows })
    }

    /// By how much a sum has grown.
    fn since(&mut self, kind: u32) -> Result<u64> {
        let value = self.totals.lookup(&kind.to_ne_bytes(), MapFlags::ANY)?;
        let now = number(&value.context("the filter has no such sum")?)?;
        let before = std::mem::replace(&mut self.told[kind as usize], now);
        Ok(now - before)
    }
}

/// With what to do where the kernel refuses it to this process, or does not know it; all else, such
/// as a tap that has just gone, may be otherwise the next time.
fn refused(error: impl Into<libbpf_rs::Error>) -> anyhow::Error {
    let error: libbpf_rs::Error = error.into();
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::InvalidInput => {
            anyhow::Error::new(error).context(Hopeless(REMEDY.to_owned()))
        }
        _ => error.into(),
    }
}

/// Whether there is an interface of that name.
pub fn is_there(name: &str) -> bool {
    index(name).is_ok()
}

fn index(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: a string that ends with a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

fn number(value: &[u8]) -> Result<u64> {
    Ok(u64::from_ne_bytes(value.try_into().context("no number")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_refuses_is_hopeless() {
        let is_hopeless = |error| refused(io::Error::from_raw_os_error(error)).is::<Hopeless>();
        assert!([libc::EPERM, libc::EACCES, libc::EINVAL].into_iter().all(is_hopeless));
        let may_pass = [libc::ENODEV, libc::ENETDOWN, libc::ENOMEM, libc::EMFILE];
        assert!(!may_pass.into_iter().any(is_hopeless));
    }
}
