// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The congestion control coupling device of one VM (`docs/virtio-ccc.md`).
//!
//! The driver offers [`extents`] of the tables on the [`table_queue`], and says on
//! the [`doorbell_queue`] which slots have changed.  The [`flow_table`] reads them,
//! hands flows to the [`engine`], and answers in the slots and in [`grant_lines`].
pub mod budget;
pub mod counters;
mod doorbell_queue;
pub mod engine;
pub mod extents;
mod flow_table;
mod grant_lines;
pub mod inspect;
pub mod log_limit;
mod slot;
mod slots;
mod strangers;
mod table_queue;

use ccc_core::{FlowId, Micros};
use ccc_proto::{
    MAX_GRANT_LINES,
    wire::{self, Config, VQ_COUNT, VQ_DOORBELL, VQ_TABLE},
};

pub use engine::{Context, RemapReason};

use crate::{
    device::budget::Budget,
    device::counters::{Counters, Kind},
    device::doorbell_queue::DoorbellQueue,
    device::engine::Grants,
    device::extents::MAX_SLOTS,
    device::flow_table::{FlowTable, Scope},
    device::table_queue::TableQueue,
    virtio::memory::Memory,
    virtio::queue::{Queue, QueueError},
};

/// Age at which an unanswered driver goes on alone.
const STALE_US: u32 = 1_000_000;
// Reserved feature bits (VIRTIO 1.3, 6).
const F_RING_INDIRECT_DESC: u64 = 1 << 28;
const F_RING_EVENT_IDX: u64 = 1 << 29;
const F_VERSION_1: u64 = 1 << 32;

/// The device of one VM, for the life of one connection.
#[derive(Debug)]
pub struct Device {
    budget: Budget,
    memory: Memory,
    queues: [Queue; VQ_COUNT],
    table: TableQueue,
    doorbell: DoorbellQueue,
    flows: FlowTable,
    /// Queues started since the last turn.
    started: Vec<usize>,
    /// Flows whose tables are gone, for the engine to forget.
    orphans: Vec<FlowId>,
    /// When its driver last used a queue.
    heard: Option<Micros>,
    counters: Counters,
}

/// What a device is made for.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Number of its VM.
    pub vm: usize,
    /// Number of this beginning of the device.
    pub instance: u32,
    /// What it may do in one turn.
    pub budget: Budget,
}

impl Device {
    /// Features offered.  Caps of slot grants are not in use yet.
    pub const FEATURES: u64 =
        1 << wire::F_RATE_SHARE | F_RING_INDIRECT_DESC | F_RING_EVENT_IDX | F_VERSION_1;

    /// A device no driver has spoken to.
    pub fn new(identity: Identity, counters: Counters) -> Result<Device, virtio_queue::Error> {
        Ok(Device {
            budget: identity.budget,
            memory: Memory::default(),
            queues: [Queue::new()?, Queue::new()?, Queue::new()?],
            table: TableQueue::new(identity.instance),
            doorbell: DoorbellQueue::default(),
            flows: FlowTable::new(identity.vm),
            started: Vec::new(),
            orphans: Vec::new(),
            heard: None,
            counters,
        })
    }

    /// The device configuration space (2.5).
    pub fn config() -> Config {
        Config {
            revision: wire::REVISION.into(),
            max_slots: MAX_SLOTS.into(),
            max_grant_lines: MAX_GRANT_LINES.into(),
            stale_us: STALE_US.into(),
        }
    }

    /// What is counted of it.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The same, to count and to say more.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Its guest's memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Has this memory from now on; what it had.
    pub fn set_memory(&mut self, memory: Memory) -> Memory {
        std::mem::replace(&mut self.memory, memory)
    }

    /// Takes what driver and device have agreed on (2.2).
    pub fn set_features(&mut self, features: u64) {
        self.flows.set_features(features);
        for queue in &mut self.queues {
            queue.set_event_idx(features & F_RING_EVENT_IDX != 0);
        }
    }

    /// A queue, to be set up.
    pub fn queue(&mut self, index: usize) -> Option<&mut Queue> {
        self.queues.get_mut(index)
    }

    /// A queue starts, or goes on: whatever is in it is looked at in the next turn.
    pub fn start_queue(&mut self, index: usize) -> Result<(), QueueError> {
        let queue = &mut self.queues[index];
        if queue.is_ready() {
            return Ok(());
        }
        queue.start(index, self.memory.mapping())?;
        let (vm, position) = (self.counters.vm(), queue.next_avail());
        log::debug!("VM {vm}: queue {index} starts at {position}");
        self.started.push(index);
        if index == VQ_TABLE {
            self.table.start();
        }
        Ok(())
    }

    /// A queue stops: its memory may be the driver's for something else next.
    /// Where the queue would go on.
    pub fn stop_queue(&mut self, index: usize) -> u16 {
        if index == VQ_TABLE {
            self.orphans.extend(self.flows.clear(&mut self.counters));
            self.table.stop();
            self.doorbell.clear();
        }
        self.started.retain(|started| *started != index);
        self.queues[index].stop()
    }

    /// All queues stop, and nothing is known of them (2.4).
    pub fn reset(&mut self) {
        for index in 0..VQ_COUNT {
            self.stop_queue(index);
            self.queues[index].reset();
        }
    }

    /// Serves a queue, if one has something in it, and does what stopped and started
    /// queues leave to do; queues with more in them than one turn takes.
    pub fn turn(&mut self, queue: Option<usize>, context: &mut Context<'_>) -> Vec<usize> {
        let mut more: Vec<usize> =
            queue.into_iter().filter(|queue| self.serve(*queue, context)).collect();
        // They go on alone: what they have of the path is not the others'.
        context.engine.detach(context.now, &std::mem::take(&mut self.orphans));
        let started = std::mem::take(&mut self.started);
        more.extend(started.into_iter().filter(|queue| self.serve(*queue, context)));
        more
    }

    /// Serves a queue; `true` if there is more in it than one turn takes.
    fn serve(&mut self, index: usize, context: &mut Context<'_>) -> bool {
        if self.queues.get(index).is_none_or(|queue| !queue.is_ready()) {
            return false;
        }
        self.heard = Some(context.now);
        let served = self.serve_ready(index, context);
        served.unwrap_or_else(|error| {
            self.counters.refuse(context.now, Kind::Queue, &error);
            // Nothing in it can be trusted before the driver begins it anew.
            self.stop_queue(index);
            false
        })
    }

    fn serve_ready(&mut self, index: usize, context: &mut Context<'_>) -> Result<bool, QueueError> {
        let (mapping, flows) = (self.memory.mapping(), &mut self.flows);
        let [table, doorbell, _] = &mut self.queues;
        let scope = &mut Scope::new(mapping, &mut self.counters, context);
        match index {
            VQ_TABLE => {
                table.disable_notification(mapping)?;
                self.table.serve(table, flows, self.budget, scope)
            }
            VQ_DOORBELL => {
                doorbell.disable_notification(mapping)?;
                // Messages are about slots, which are to be found again first.
                if self.table.is_starting() {
                    return Ok(true);
                }
                self.doorbell.serve(doorbell, table, flows, self.budget, scope)
            }
            _ => Ok(false),
        }
    }

    /// Messages are there that were not taken.  A queue that is not as it has to be shows that
    /// when it is served.
    pub fn has_messages(&self) -> bool {
        let doorbell = &self.queues[VQ_DOORBELL];
        doorbell.is_ready() && doorbell.has_more(self.memory.mapping()).unwrap_or(true)
    }

    /// Its driver need not tell of messages, for one looks for them, until [`Device::end_poll`];
    /// whether it had to until now.
    pub fn begin_poll(&mut self) -> bool {
        self.queues[VQ_DOORBELL].begin_poll()
    }

    /// Its driver is to tell of messages from now on; whether some have come that it may not
    /// have told of.
    pub fn end_poll(&mut self) -> bool {
        self.queues[VQ_DOORBELL].end_poll(self.memory.mapping()).unwrap_or(true)
    }

    /// Takes flows to where the operator wants them by now.
    pub fn remap(&mut self, reason: RemapReason, context: &mut Context<'_>) {
        self.flows
            .remap(reason, &mut Scope::new(self.memory.mapping(), &mut self.counters, context));
    }

    /// Writes the grant lines that have changed.
    pub fn publish(&mut self, grants: &dyn Grants) {
        match self.flows.publish(&self.memory, grants) {
            Ok(count) => self.counters.published += count,
            Err(error) => {
                self.counters.warn(&format_args!("cannot write its grant lines: {error}"));
            }
        }
    }

    /// Queues whose driver is to be told of used buffers, which is done now (2.7.7.2).
    pub fn take_interrupts(&mut self) -> Vec<usize> {
        let queues = self.queues.iter_mut().enumerate();
        queues.filter_map(|(index, queue)| queue.take_interrupt().then_some(index)).collect()
    }
}
