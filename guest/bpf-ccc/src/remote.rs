// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A guest's way to the daemon: over vsock to the relay on its host.
use std::{
    fmt,
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use ccc_proto::wire::{self, Doorbell, Extent};

use crate::{
    frames::{Frame, Frames},
    front::Front,
    lent::Lent,
    privileged,
};

/// How often the relay hears of us.
const ALIVE_US: u64 = 100_000;
/// Grants hold for no longer, whatever the relay says.
const HOLD_MAX_US: u64 = 10_000_000;
const RESCAN: Doorbell = {
    let mut bytes = [0u8; 16];
    bytes[0] = wire::OP_RESCAN as u8;
    zerocopy::transmute!(bytes)
};

/// Where a relay is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// On the host of this guest.
    Vsock {
        /// The host's, as a rule 2.
        cid: u32,
        /// Where it listens.
        port: u32,
    },
    /// On this machine.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Vsock { cid, port } => write!(f, "port {port} of CID {cid}"),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    fn connect(&self) -> Result<OwnedFd> {
        Ok(match self {
            Address::Vsock { cid, port } => privileged::connect(*cid, *port)?,
            Address::Unix(path) => UnixStream::connect(path)?.into(),
        })
    }
}

/// A connection to the relay.
#[derive(Debug)]
pub struct Remote {
    frames: Frames<File>,
    hold_until_us: u64,
    alive_at_us: u64,
    /// Messages were lost for want of room.
    lost: bool,
}

impl Remote {
    /// Connects, and says what there is.
    pub fn connect(address: &Address, table: &Lent, now_us: u64) -> Result<Remote> {
        let stream = address.connect().with_context(|| {
            format!(
                "no relay at {address}; expected ccc-bpf relay on the host, and this VM its tenant"
            )
        })?;
        let frames = Frames::over(stream)?;
        let mut remote = Remote { frames, hold_until_us: 0, alive_at_us: now_us, lost: false };
        table.forget_grants();
        let layout = table.layout();
        let extent = Extent {
            first_slot: 0.into(),
            slots: layout.slots.into(),
            grant_lines: layout.lines.into(),
            reserved: 0.into(),
        };
        remote.frames.send(&Frame::Hello(wire::REVISION, extent));
        remote.rescan(now_us, table);
        Ok(remote)
    }

    /// Sends all slots that are in use; whether there was room.
    fn send_all(&mut self, table: &Lent) -> bool {
        let in_use = |slot| table.report(slot).filter(|report| report.state != wire::STATE_FREE);
        let reports = (0..table.layout().slots).filter_map(|slot| Some((slot, in_use(slot)?)));
        let mut sent = true;
        for (slot, report) in reports {
            sent = sent && self.frames.send(&Frame::Report(slot, report));
        }
        sent && self.frames.send(&Frame::Message(RESCAN))
    }

    /// Who was never answered was not wanted.
    fn why_it_closed(&self, error: anyhow::Error) -> anyhow::Error {
        if self.hold_until_us > 0 {
            return error;
        }
        error.context(
            "the relay does not take this agent: another one of this VM is connected, it is of another \
             release, or the VM is no tenant; the relay's log says which",
        )
    }

    fn take(&mut self, now_us: u64, table: &Lent, frame: &Frame) -> Result<()> {
        let layout = table.layout();
        match frame {
            Frame::Alive(hold_us) => {
                self.hold_until_us = now_us + u64::from(*hold_us).min(HOLD_MAX_US);
            }
            Frame::Status(status) => table.set_status(status),
            Frame::Line(line, grant) if *line < layout.lines => table.set_line(*line, grant),
            Frame::Slot(slot, grant) if *slot < layout.slots => table.set_slot_grant(*slot, grant),
            other => bail!("the relay sends what is not expected: {other:?}"),
        }
        Ok(())
    }
}

impl Front for Remote {
    fn send(&mut self, now_us: u64, table: &Lent, message: &Doorbell) {
        if self.lost {
            self.rescan(now_us, table);
        }
        let slot = message.slot.get();
        let report = Some(slot).filter(|slot| *slot < table.layout().slots);
        // One that is being written is told of by another message.
        let Some(report) = report.and_then(|slot| table.report(slot)) else { return };
        let sent = self.frames.send(&Frame::Report(slot, report));
        self.lost |= !(sent && self.frames.send(&Frame::Message(*message)));
    }

    fn rescan(&mut self, _: u64, table: &Lent) {
        self.lost = !self.send_all(table);
    }

    fn flush(&mut self) {
        // If the relay has gone, it is seen where its frames are taken.
        let _ = self.frames.flush();
    }

    fn lease(&mut self, now_us: u64) -> u64 {
        if now_us >= self.alive_at_us {
            self.alive_at_us = now_us + ALIVE_US;
            self.frames.send(&Frame::Alive(0));
            self.flush();
        }
        self.hold_until_us
    }

    fn receive(&mut self, now_us: u64, table: &Lent) -> Result<()> {
        self.frames.receive().map_err(|error| self.why_it_closed(error))?;
        while let Some(frame) = self.frames.next()? {
            self.take(now_us, table, &frame)?;
        }
        if self.lost && !self.frames.waits() {
            self.rescan(now_us, table);
        }
        Ok(())
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        Some(self.frames.stream().as_fd())
    }
}
