// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The virtio device of one VM: its queues, tables, flows and lines.
pub mod counters;
pub mod doorbell;
pub mod flows;
pub mod inspect;
pub mod lines;
pub mod scan;
pub mod table;

use std::{collections::VecDeque, mem::size_of, rc::Rc, sync::atomic::Ordering};

use ccc_core::{FlowId, Micros};
use ccc_proto::{
    shared::{read_instance, write_extent_status},
    wire::{self, Config, Event, VQ_COUNT, VQ_DOORBELL, VQ_EVENT, VQ_TABLE},
};
use virtio_queue::QueueT;
use vm_memory::Bytes;
use zerocopy::IntoBytes;

use crate::{
    coupling::{Coupling, Turn},
    device::counters::{Counters, Kind},
    device::doorbell::Message,
    device::flows::Look,
    device::lines::Lines,
    device::scan::{Adoption, Rescan},
    device::table::{Chunk, MAX_LINES, MAX_SLOTS, Refused, Tables},
    event_loop::poll::Poller,
    vhost_user::dirty::Log,
    vhost_user::migration::Transfer,
    virtio::chain::Chain,
    virtio::memory::{Mapping, Memory, change, words},
    virtio::vring::{Vring, VringError},
};

/// Age at which an unanswered driver goes on alone.
const STALE_US: u32 = 1_000_000;

/// The device of one VM, for the life of one connection.
#[derive(Debug)]
pub struct Device {
    pub(crate) name: String,
    /// Index of the VM.
    pub(crate) vm: usize,
    /// Where its kicks are waited for, and its number there.
    pub(crate) poller: Poller,
    pub(crate) index: usize,
    pub(crate) features: u64,
    pub(crate) protocol: u64,
    pub(crate) memory: Rc<Memory>,
    pub(crate) max_memory: u64,
    /// Where the front end wants to see what is written.
    pub(crate) log: Log,
    /// The transfer of state the front end has begun.
    pub(crate) transfer: Option<Transfer>,
    pub(crate) vrings: [Vring; VQ_COUNT],
    /// Queues begun since the last look.
    pub(crate) begun: Vec<usize>,
    pub(crate) tables: Tables,
    pub(crate) lines: Lines,
    /// The chunk that is being adopted.
    pub(crate) adopting: Option<Adoption>,
    /// The look at all slots that was asked for.
    pub(crate) rescan: Option<Rescan>,
    /// Chunks an earlier device held are to be looked for.
    search: bool,
    /// Those that were found.
    found: Option<Found>,
    /// The table queue has begun, and what was in it then is not all taken.
    beginning: bool,
    instance: u32,
    /// Flows whose tables are gone, for the engine to forget.
    orphans: Vec<FlowId>,
    /// When its driver last used a queue.
    pub(crate) heard: Option<Micros>,
    pub(crate) counters: Counters,
}

/// Chains an earlier device held, wherever they are in the ring.
#[derive(Debug)]
struct Found {
    /// Where they are.
    positions: VecDeque<u16>,
    /// Where the ring goes on behind them.
    end: u16,
}

/// What a device is made for.
#[derive(Debug)]
pub struct Identity {
    /// Name of the VM.
    pub name: String,
    /// Its index among all VMs.
    pub index: usize,
    /// Number of this beginning of the device.
    pub instance: u32,
    /// Bytes of memory it may have.
    pub max_memory: u64,
}

impl Device {
    /// A device no driver has spoken to.
    pub fn new(
        identity: Identity,
        poller: Poller,
        counters: Counters,
    ) -> Result<Device, virtio_queue::Error> {
        Ok(Device {
            name: identity.name,
            vm: identity.index,
            poller,
            index: identity.index,
            features: 0,
            protocol: 0,
            memory: Rc::default(),
            max_memory: identity.max_memory,
            log: Log::default(),
            transfer: None,
            vrings: [Vring::new()?, Vring::new()?, Vring::new()?],
            begun: Vec::new(),
            tables: Tables::default(),
            lines: Lines::default(),
            adopting: None,
            rescan: None,
            search: false,
            found: None,
            beginning: false,
            instance: identity.instance,
            orphans: Vec::new(),
            heard: None,
            counters,
        })
    }

    /// The device configuration space.
    pub fn config() -> Config {
        Config {
            revision: wire::REVISION.into(),
            max_slots: MAX_SLOTS.into(),
            max_grant_lines: MAX_LINES.into(),
            stale_us: STALE_US.into(),
        }
    }

    /// Name of the VM.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts, for the next device of this VM.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.counters)
    }

    /// Counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Says what its front end caused, but not as often as that likes.
    pub fn warn(&mut self, what: &dyn std::fmt::Display) {
        self.counters.warn(&self.name, what);
    }

    /// Some of the memory its front end has given was not there.
    pub fn faulted(&self) -> bool {
        self.memory.faulted() || self.log.faulted()
    }

    /// Flows registered.
    pub fn flows(&self) -> usize {
        self.tables.flows()
    }

    /// A queue has begun, or goes on: whatever is in it is to be looked at.
    pub(crate) fn begin_if_ready(&mut self, index: usize) -> Result<(), VringError> {
        let vring = &mut self.vrings[index];
        if vring.queue.ready() || !(vring.enabled && vring.placed && vring.kickable) {
            return Ok(());
        }
        vring.start(index, self.memory.mapping())?;
        log::debug!(
            "VM {}: queue {index} of {} begins at {}",
            self.name,
            vring.queue.size(),
            vring.queue.next_avail()
        );
        self.begun.push(index);
        if index == VQ_TABLE {
            (self.search, self.beginning) = (true, true);
        }
        Ok(())
    }

    /// A queue ends: its memory may be the driver's for something else next.
    /// Where the queue would go on.
    pub(crate) fn end_queue(&mut self, index: usize) -> u16 {
        if index == VQ_TABLE {
            self.counters.left += self.tables.flows() as u64;
            self.orphans.extend(self.tables.clear());
            self.lines.clear();
            (self.adopting, self.rescan, self.found) = (None, None, None);
            (self.search, self.beginning) = (false, false);
            self.instance = self.instance.wrapping_add(1).max(1);
        }
        self.begun.retain(|begun| *begun != index);
        self.vrings[index].stop()
    }

    /// All queues end.
    pub(crate) fn end(&mut self) {
        for index in 0..VQ_COUNT {
            self.end_queue(index);
            self.vrings[index].reset();
        }
    }

    /// Does what ended and began queues leave to do; queues with work left.
    pub fn settle(&mut self, turn: &mut Turn<'_>) -> Vec<usize> {
        // They go on alone: what they have of the path is not the others'.
        let orphans = std::mem::take(&mut self.orphans);
        turn.coupling.engine.detach(turn.now, &orphans);
        let begun = std::mem::take(&mut self.begun);
        begun.into_iter().filter(|index| self.process(*index, turn)).collect()
    }

    /// Serves a queue; `true` if there is more in it than one turn takes.
    pub fn process(&mut self, index: usize, turn: &mut Turn<'_>) -> bool {
        if self.vrings.get(index).is_none_or(|vring| !vring.queue.ready()) {
            return false;
        }
        self.heard = Some(turn.now);
        let memory = Rc::clone(&self.memory);
        let done = match index {
            VQ_TABLE => self.take_chunks(memory.mapping(), turn),
            VQ_DOORBELL => self.take_messages(memory.mapping(), turn),
            _ => Ok(false),
        };
        done.unwrap_or_else(|error| {
            self.counters.refuse(&self.name, turn.now, Kind::Queue, &error);
            // Nothing in it can be trusted before the driver begins it anew.
            self.end_queue(index);
            false
        })
    }

    /// Writes the lines that have changed.
    pub fn publish(&mut self, coupling: &Coupling) {
        let Some(array) = self.tables.lines() else { return };
        match self.lines.publish(self.memory.mapping(), array, coupling, self.vm) {
            Ok(count) => self.counters.published += count,
            Err(error) => {
                self.warn(&format_args!("cannot write its lines: {error}"));
            }
        }
    }

    /// Calls the driver where that is due; the queues for in-band calls.
    pub fn call(&mut self) -> Vec<usize> {
        let vrings = self.vrings.iter_mut().enumerate();
        vrings.filter_map(|(index, vring)| vring.call().then_some(index)).collect()
    }

    /// Sends the driver an event, if it has left a buffer for it.
    pub fn send_event(&mut self, kind: u16, value: u32, turn: &Turn<'_>) -> bool {
        let memory = Rc::clone(&self.memory);
        match self.try_event(memory.mapping(), kind, value) {
            Ok(true) => true,
            Ok(false) => {
                let why = format!("no buffer for event {kind}");
                self.counters.refuse(&self.name, turn.now, Kind::Event, &why);
                false
            }
            Err(error) => {
                self.counters.refuse(&self.name, turn.now, Kind::Queue, &error);
                false
            }
        }
    }

    fn try_event(&mut self, mapping: &Mapping, kind: u16, value: u32) -> Result<bool, VringError> {
        let vring = &mut self.vrings[VQ_EVENT];
        if !vring.queue.ready() {
            return Ok(false);
        }
        let Some(mut chain) = vring.pop(mapping)? else { return Ok(false) };
        let head = chain.head_index();
        let event = Event { kind: kind.into(), reserved: 0.into(), value: value.into() };
        let size = size_of::<Event>() as u32;
        let fits = chain.next().filter(|buffer| buffer.is_write_only() && buffer.len() >= size);
        let written =
            fits.is_some_and(|buffer| mapping.write_slice(event.as_bytes(), buffer.addr()).is_ok());
        vring.give_back(mapping, head, if written { size } else { 0 })?;
        vring.call_if_wanted(mapping)?;
        Ok(written)
    }

    /// Takes chunks, and adopts them one after the other; `true` if that is more
    /// than one turn's work.
    fn take_chunks(&mut self, mapping: &Mapping, turn: &mut Turn<'_>) -> Result<bool, VringError> {
        self.vrings[VQ_TABLE].queue.disable_notification(mapping)?;
        if std::mem::take(&mut self.search) {
            self.found = self.find_held_chunks(mapping)?;
        }
        let mut slots = turn.coupling.budget.slots;
        for _ in 0..turn.coupling.budget.chains {
            if let Some(adoption) = self.go_on_adopting(mapping, &mut slots, turn) {
                self.end_adoption(mapping, &adoption, turn);
            }
            if self.adopting.is_some() {
                return Ok(true);
            }
            let Some(chain) = self.next_chunk(mapping)? else {
                self.beginning = false;
                return Ok(false);
            };
            self.take_chunk(mapping, chain, turn)?;
        }
        Ok(true)
    }

    /// The next chain with a chunk: those that an earlier device held come first.
    fn next_chunk<'m>(&mut self, mapping: &'m Mapping) -> Result<Option<Chain<'m>>, VringError> {
        let vring = &mut self.vrings[VQ_TABLE];
        while let Some(found) = &mut self.found {
            let Some(position) = found.positions.pop_front() else {
                vring.queue.set_next_avail(found.end);
                self.found = None;
                break;
            };
            if let Some(chain) = vring.pop_at(mapping, position)? {
                return Ok(Some(chain));
            }
        }
        vring.pop_or_rest(mapping)
    }

    fn find_held_chunks(&mut self, mapping: &Mapping) -> Result<Option<Found>, VringError> {
        let end = self.vrings[VQ_TABLE].queue.avail_idx(mapping, Ordering::Acquire)?.0;
        let positions = self.vrings[VQ_TABLE].never_used(mapping)?;
        Ok(positions.map(|positions| Found {
            positions: positions.into_iter().filter(|position| *position < end).collect(),
            end,
        }))
    }

    fn take_chunk(
        &mut self,
        mapping: &Mapping,
        chain: Chain<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<(), VringError> {
        let head = chain.head_index();
        match Chunk::parse(mapping, chain).and_then(|chunk| self.adopt(mapping, chunk)) {
            Ok(()) => Ok(()),
            Err(refused) => self.refuse_chunk(mapping, head, &refused, turn),
        }
    }

    /// Takes a chunk, whose slots are then looked at.
    fn adopt(&mut self, mapping: &Mapping, chunk: Chunk) -> Result<(), Refused> {
        let (status, slots) = (chunk.status, chunk.first()..chunk.end());
        let begins = self.tables.is_empty();
        self.tables.adopt(chunk)?;
        if begins {
            self.renew(mapping, status);
        }
        self.adopting = Some(Adoption { next: slots.start, chunk: slots, status });
        Ok(())
    }

    /// All slots of a chunk were looked at: the driver may use it.
    fn end_adoption(&mut self, mapping: &Mapping, adoption: &Adoption, turn: &Turn<'_>) {
        let Adoption { chunk, status, .. } = adoption;
        log::debug!("VM {}: slots {} to {} lent", self.name, chunk.start, chunk.end);
        self.tell(mapping, *status, wire::EXTENT_ACCEPTED, turn);
    }

    /// Makes sure that the driver sees another instance than the last one,
    /// which may have been a device of another process.
    fn renew(&mut self, mapping: &Mapping, status: vm_memory::GuestAddress) {
        let last = words::<1>(mapping, status).map(|[word]| read_instance(word));
        if last.is_ok_and(|last| last == self.instance) {
            self.instance = self.instance.wrapping_add(1).max(1);
        }
    }

    fn refuse_chunk(
        &mut self,
        mapping: &Mapping,
        head: u16,
        refused: &Refused,
        turn: &mut Turn<'_>,
    ) -> Result<(), VringError> {
        self.counters.refuse(&self.name, turn.now, Kind::Chunk, &refused.error);
        if let Some(status) = refused.status {
            self.tell(mapping, status, wire::EXTENT_REFUSED, turn);
        }
        let vring = &mut self.vrings[VQ_TABLE];
        vring.give_back(mapping, head, if refused.status.is_some() { 8 } else { 0 })?;
        vring.call_if_wanted(mapping)
    }

    fn tell(
        &mut self,
        mapping: &Mapping,
        at: vm_memory::GuestAddress,
        status: u32,
        turn: &Turn<'_>,
    ) {
        let told = change(mapping, at, |[word]| write_extent_status(word, status, self.instance));
        if let Err(error) = told {
            self.counters.refuse(&self.name, turn.now, Kind::Memory, &error);
        }
    }

    /// Takes messages, and looks at slots because of them; `true` if that is more
    /// than one turn's work.
    fn take_messages(
        &mut self,
        mapping: &Mapping,
        turn: &mut Turn<'_>,
    ) -> Result<bool, VringError> {
        self.vrings[VQ_DOORBELL].queue.disable_notification(mapping)?;
        // Messages are about slots, which are to be found again first.
        if self.beginning {
            return Ok(true);
        }
        let mut more = true;
        for _ in 0..turn.coupling.budget.messages {
            let Some(chain) = self.vrings[VQ_DOORBELL].pop_or_rest(mapping)? else {
                more = false;
                break;
            };
            let head = chain.head_index();
            self.take_message(mapping, chain, turn)?;
            self.vrings[VQ_DOORBELL].give_back(mapping, head, 0)?;
        }
        let mut slots = turn.coupling.budget.slots;
        more |= !self.go_on_rescanning(mapping, &mut slots, turn);
        self.vrings[VQ_DOORBELL].call_if_wanted(mapping)?;
        Ok(more)
    }

    /// Does what a message asks.
    fn take_message(
        &mut self,
        mapping: &Mapping,
        chain: Chain<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<(), VringError> {
        self.counters.messages += 1;
        let done = match doorbell::read(mapping, chain) {
            Ok(Message::Look { slot, generation }) => {
                self.look(mapping, slot, Look::Message(generation), turn)
            }
            Ok(Message::Leave { slot, generation }) => self.leave(mapping, slot, generation, turn),
            Ok(Message::Rescan) => {
                self.ask_for_rescan();
                Ok(())
            }
            Ok(Message::Release { slot }) => {
                self.release(mapping, slot, turn)?;
                Ok(())
            }
            Err(error) => {
                self.counters.refuse(&self.name, turn.now, Kind::Message, &error);
                Ok(())
            }
        };
        if let Err(error) = done {
            self.counters.refuse(&self.name, turn.now, error.kind(), &error);
        }
        Ok(())
    }

    fn release(
        &mut self,
        mapping: &Mapping,
        slot: u32,
        turn: &mut Turn<'_>,
    ) -> Result<(), VringError> {
        let released = match self.tables.release(slot) {
            Ok(released) => released,
            Err(error) => {
                self.counters.refuse(&self.name, turn.now, Kind::Message, &error);
                return Ok(());
            }
        };
        self.counters.left += released.flows.len() as u64;
        self.detach(released.flows.into_iter(), turn);
        self.stop_adopting_gone();
        if self.tables.lines().is_none() {
            self.lines.clear();
        }
        let vring = &mut self.vrings[VQ_TABLE];
        for head in released.heads {
            vring.give_back(mapping, head, 0)?;
        }
        vring.call_if_wanted(mapping)
    }
}
