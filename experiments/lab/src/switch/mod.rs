// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cables between the guests' NICs.
//!
//! A frame crosses in no time: it is in the receiver's ring before the sender's
//! kick is answered, and the receiver is interrupted before time goes on.

pub mod faults;
pub mod nic;
pub mod rings;

use std::collections::VecDeque;
use std::ops::Range;

use faults::Faults;
use nic::{Kick, Nic, Socket};
use rings::{Frame, RX, TX, ethernet};

use crate::error::Result;
use crate::ipc::poller::{Poller, Stream};
use crate::time::calendar::Calendar;

/// A NIC and the cable at it, or the switch that a cable with more ends is.
struct Port {
    nic: Nic,
    /// The NICs at the other end.
    peers: Range<usize>,
    frames: VecDeque<Frame>,
    call_due: bool,
    calls_open: usize,
}

/// All NICs of a run and the cables between them.
#[derive(Default)]
pub struct Switch {
    ports: Vec<Port>,
    faults: Faults,
}

impl Switch {
    /// Nothing is connected; frames are lost as the faults say.
    pub fn new(faults: Faults) -> Self {
        Self { ports: Vec::new(), faults }
    }

    /// Joins NICs with one by cables without delay or loss.
    pub fn connect(&mut self, ends: Vec<Socket>, one: Socket, poller: &Poller) -> Result<()> {
        let first = self.ports.len();
        let last = first + ends.len();
        for end in ends {
            self.plug(end, last..last + 1, poller)?;
        }
        self.plug(one, first..last, poller)
    }

    fn plug(&mut self, socket: Socket, peers: Range<usize>, poller: &Poller) -> Result<()> {
        let nic = Nic::new(socket, self.ports.len(), poller)?;
        let frames = VecDeque::new();
        self.ports.push(Port { nic, peers, frames, call_due: false, calls_open: 0 });
        Ok(())
    }

    /// The faults and what came of them.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Handles a readable descriptor of a NIC. Where a guest is to be
    /// interrupted, the one that runs is held.
    pub fn readable(&mut self, index: usize, stream: Stream, calendar: &Calendar) -> Result<()> {
        let port = &mut self.ports[index];
        let received = port.nic.readable(stream)?;
        port.calls_open = port.calls_open.saturating_sub(received.calls_done);
        if received.closed {
            (port.call_due, port.calls_open) = (false, 0);
        }
        received.kicks.iter().try_for_each(|kick| self.kicked(index, kick, calendar))
    }

    /// Interrupts the guests that have frames to take.
    pub fn interrupt(&mut self) -> Result<()> {
        for port in self.ports.iter_mut().filter(|p| p.call_due) {
            port.call_due = false;
            port.nic.call(RX)?;
            port.calls_open += 1;
        }
        Ok(())
    }

    /// The guest that has not taken its interrupt yet, if there is one.
    pub fn interrupted(&self) -> Option<&str> {
        self.ports.iter().find(|p| p.calls_open > 0).map(|p| p.nic.guest.as_str())
    }

    /// Unplugs a guest that was killed.
    pub fn guest_gone(&mut self, guest: &str) -> Result<()> {
        for port in self.ports.iter_mut().filter(|p| p.nic.guest == guest) {
            port.nic.close()?;
            port.frames.clear();
            (port.call_due, port.calls_open) = (false, 0);
        }
        Ok(())
    }

    /// A guest stands in a kick: moves frames, then lets it go on, but not
    /// beyond now, so that the peer can run at this very time.
    fn kicked(&mut self, index: usize, kick: &Kick, calendar: &Calendar) -> Result<()> {
        if kick.ring == TX {
            let port = &mut self.ports[index];
            let peers = port.peers.clone();
            let frames = port.nic.rings.transmitted();
            let mut frames = frames.map_err(|e| port.nic.ring_error(&e))?;
            frames.retain(|frame| !self.faults.take(calendar.now(), ethernet(frame)));
            self.forward(peers.clone(), frames);
            peers.into_iter().try_for_each(|peer| self.deliver(peer, calendar))?;
        } else {
            self.deliver(index, calendar)?;
        }
        self.ports[index].nic.answer(kick)
    }

    /// Puts frames on the cable of the NIC they are for, of several; what is
    /// for all goes to none: the guests know their neighbours.
    fn forward(&mut self, peers: Range<usize>, frames: Vec<Frame>) {
        if peers.len() == 1 {
            return self.ports[peers.start].frames.extend(frames);
        }
        for frame in frames {
            let is_for = |port: &&mut Port| ethernet(&frame).starts_with(&port.nic.mac);
            if let Some(port) = self.ports[peers.clone()].iter_mut().find(is_for) {
                port.frames.push_back(frame);
            }
        }
    }

    fn deliver(&mut self, index: usize, calendar: &Calendar) -> Result<()> {
        let Port { nic, frames, call_due, .. } = &mut self.ports[index];
        if nic.rings.receive(frames).map_err(|e| nic.ring_error(&e))? {
            *call_due = true;
            calendar.hold();
        }
        Ok(())
    }
}
