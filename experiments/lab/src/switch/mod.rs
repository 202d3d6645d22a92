// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cables between the guests' NICs.
//!
//! A frame crosses in no time: it is in the receiver's ring before the sender's
//! kick is answered, and the receiver is interrupted before time goes on. Only
//! before a [`link`], and at a guest that [stands still](stalls), it may have to
//! wait.

pub mod capture;
pub mod faults;
pub mod link;
pub mod nic;
pub mod rings;
pub mod stalls;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use capture::Capture;
use faults::Faults;
use link::{Counters, Link};
use nic::{Kick, Nic, Socket};
use rings::{Frame, RX, TX, ethernet};
use stalls::Stalls;

use crate::error::Result;
use crate::ipc::poller::{Poller, Stream};
use crate::scenario::{self, vm};
use crate::time::calendar::Calendar;

/// A NIC and the cable at it, or the switch that a cable with more ends is.
struct Port {
    nic: Nic,
    /// The NICs at the other end.
    peers: Range<usize>,
    frames: VecDeque<Frame>,
    /// What the NIC's own frames have to pass first.
    link: Option<Link>,
    /// When the guest stands still.
    stalls: Option<Stalls>,
    /// What it would have sent meanwhile.
    stalled: Vec<Frame>,
    /// When frames that wait for the end of a stall go on, in both directions.
    goes_on_at: Option<u64>,
    call_due: bool,
    calls_open: usize,
    /// Bytes of the NIC's own frames so far.
    sent_bytes: u64,
    /// Its link is a shaper of the daemon's.
    held: bool,
}

impl Port {
    fn new(nic: Nic, peers: Range<usize>) -> Self {
        Self {
            nic,
            peers,
            frames: VecDeque::new(),
            link: None,
            stalls: None,
            stalled: Vec::new(),
            goes_on_at: None,
            call_due: false,
            calls_open: 0,
            sent_bytes: 0,
            held: false,
        }
    }

    /// When something here goes on by itself.
    fn due(&self) -> Option<u64> {
        self.link.as_ref().and_then(Link::due).into_iter().chain(self.goes_on_at).min()
    }

    /// Whether the guest stands still, so that frames have to wait until it goes on.
    fn stands_still(&mut self, calendar: &Calendar) -> bool {
        let until = self.stalls.as_mut().and_then(|stalls| stalls.until(calendar.now()));
        let Some(until) = until else {
            return false;
        };
        self.goes_on_at = Some(until);
        calendar.stop_at(until);
        true
    }
}

/// All NICs of a run and the cables between them.
#[derive(Default)]
pub struct Switch {
    ports: Vec<Port>,
    faults: Faults,
    capture: Option<Capture>,
}

impl Switch {
    /// Nothing is connected; frames are lost as the faults say, and the others captured.
    pub fn new(faults: Faults, capture: Option<Capture>) -> Self {
        Self { ports: Vec::new(), faults, capture }
    }

    /// Nothing more is captured.
    pub fn end_capture(&mut self) -> Result<()> {
        self.capture.take().map_or(Ok(()), Capture::finish)
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
        self.ports.push(Port::new(nic, peers));
        Ok(())
    }

    /// Puts a link behind a guest's NIC.
    pub fn limit(&mut self, guest: &str, link: &vm::Link) {
        for port in self.ports.iter_mut().filter(|port| port.nic.guest == guest) {
            port.link = Some(Link::new(link));
        }
    }

    /// Bytes that have come from a guest so far; none if it has no cable.
    pub fn sent_bytes(&self, guest: &str) -> Option<u64> {
        self.ports.iter().find(|port| port.nic.guest == guest).map(|port| port.sent_bytes)
    }

    /// Holds a guest to a rate, bytes a second, or no more.
    pub fn hold(&mut self, guest: &str, rate: Option<u64>, calendar: &Calendar) -> Result<()> {
        let Some(index) = self.ports.iter().position(|port| port.nic.guest == guest) else {
            return Ok(());
        };
        let (now, port) = (calendar.now(), &mut self.ports[index]);
        port.held = rate.is_some();
        match (rate, port.link.take()) {
            (Some(rate), None) => port.link = Some(Link::shaper(now, rate)),
            (Some(rate), Some(mut link)) => {
                link.set_rate(now, rate);
                link.due().into_iter().for_each(|due| calendar.stop_at(due));
                port.link = Some(link);
            }
            (None, Some(mut link)) => return self.forward(index, link.empty(), calendar),
            (None, None) => {}
        }
        Ok(())
    }

    /// Makes a guest stand still at times, which the seed decides.
    pub fn stall(&mut self, guest: &str, bounds: &scenario::stalls::Stalls, seed: u64) {
        for port in self.ports.iter_mut().filter(|port| port.nic.guest == guest) {
            port.stalls = Some(Stalls::new(bounds, seed));
        }
    }

    /// What the links have done, by guest.
    pub fn links(&self) -> BTreeMap<&str, &Counters> {
        let links = self.ports.iter().filter(|port| !port.held);
        let links = links.filter_map(|port| Some((port, port.link.as_ref()?)));
        links.map(|(port, link)| (port.nic.guest.as_str(), link.counters())).collect()
    }

    /// When the next frame leaves a link, or a guest that stood still goes on.
    pub fn due(&self) -> Option<u64> {
        self.ports.iter().filter_map(Port::due).min()
    }

    /// Delivers the frames that leave a link now, or waited for a guest.
    pub fn deliver_due(&mut self, calendar: &Calendar) -> Result<()> {
        for index in 0..self.ports.len() {
            let now = calendar.now();
            if self.ports[index].goes_on_at.take_if(|at| *at <= now).is_some() {
                let stalled = std::mem::take(&mut self.ports[index].stalled);
                self.send(index, stalled, calendar)?;
                self.deliver(index, calendar)?;
            }
            let leaving = self.ports[index].link.as_mut().map(|link| link.leaving(now));
            if let Some(frames) = leaving.filter(|frames| !frames.is_empty()) {
                self.forward(index, frames, calendar)?;
            }
        }
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
            port.stalled.clear();
            port.goes_on_at = None;
            (port.call_due, port.calls_open) = (false, 0);
        }
        Ok(())
    }

    /// A guest stands in a kick: moves frames, then lets it go on, but not
    /// beyond now, so that the peer can run at this very time.
    fn kicked(&mut self, index: usize, kick: &Kick, calendar: &Calendar) -> Result<()> {
        if kick.ring == TX {
            let (now, port) = (calendar.now(), &mut self.ports[index]);
            let frames = port.nic.rings.transmitted();
            let mut frames = frames.map_err(|e| port.nic.ring_error(&e))?;
            frames.retain(|frame| !self.faults.take(now, ethernet(frame)));
            self.send(index, frames, calendar)?;
        } else {
            self.deliver(index, calendar)?;
        }
        self.ports[index].nic.answer(kick)
    }

    /// Lets a guest's frames leave its NIC, unless it stands still.
    fn send(&mut self, index: usize, frames: Vec<Frame>, calendar: &Calendar) -> Result<()> {
        let (now, port) = (calendar.now(), &mut self.ports[index]);
        if port.stands_still(calendar) {
            port.stalled.extend(frames);
            return Ok(());
        }
        port.sent_bytes += frames.iter().map(|frame| ethernet(frame).len() as u64).sum::<u64>();
        if let Some(link) = &mut port.link {
            frames.into_iter().for_each(|frame| link.push(now, frame));
            link.due().into_iter().for_each(|due| calendar.stop_at(due));
            return Ok(());
        }
        self.forward(index, frames, calendar)
    }

    /// Gives frames to the NIC they are for, of several; what is for all goes
    /// to none: the guests know their neighbours.
    fn forward(&mut self, from: usize, frames: Vec<Frame>, calendar: &Calendar) -> Result<()> {
        if let Some(capture) = &mut self.capture {
            capture.note(calendar.now(), &frames)?;
        }
        let mut peers = self.ports[from].peers.clone();
        if peers.len() == 1 {
            self.ports[peers.start].frames.extend(frames);
            return self.deliver(peers.start, calendar);
        }
        for frame in frames {
            let is_for = |port: &&mut Port| ethernet(&frame).starts_with(&port.nic.mac);
            if let Some(port) = self.ports[peers.clone()].iter_mut().find(is_for) {
                port.frames.push_back(frame);
            }
        }
        peers.try_for_each(|peer| self.deliver(peer, calendar))
    }

    fn deliver(&mut self, index: usize, calendar: &Calendar) -> Result<()> {
        let port = &mut self.ports[index];
        if !port.frames.is_empty() && port.stands_still(calendar) {
            return Ok(());
        }
        let Port { nic, frames, call_due, .. } = port;
        if nic.rings.receive(frames).map_err(|e| nic.ring_error(&e))? {
            *call_due = true;
            calendar.hold();
        }
        Ok(())
    }
}
