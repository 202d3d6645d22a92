// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The table queue: extents of the tables, each in a chain that is held until the
//! driver asks for it back.
use std::collections::VecDeque;

use ccc_proto::{read_instance, wire, write_extent_status};
use vm_memory::GuestAddress;

use crate::{
    device::budget::Budget,
    device::counters::Kind,
    device::extents::{Extent, Refused},
    device::flow_table::{FlowTable, Scope},
    virtio::chain::{Chain, change, words},
    virtio::mapping::Mapping,
    virtio::queue::{Queue, QueueError},
};

/// Bytes of an extent's status that are written when it is refused.
const STATUS_BYTES: u32 = 8;

/// The table queue of one device.
#[derive(Debug)]
pub struct TableQueue {
    /// Number of this beginning of the device, which a driver sees change.
    instance: u32,
    /// The queue has started, and what was in it then is not all taken.
    starting: bool,
    /// Chains an earlier device held are to be looked for.
    search: bool,
    /// Those that were found.
    held: Option<Held>,
}

/// Chains an earlier device held, wherever they are in the ring.
#[derive(Debug)]
struct Held {
    /// Where they are.
    positions: VecDeque<u16>,
    /// Where the ring goes on behind them.
    end: u16,
}

impl TableQueue {
    /// The queue of a device that has begun under this number.
    pub fn new(instance: u32) -> TableQueue {
        TableQueue { instance, starting: false, search: false, held: None }
    }

    /// The queue has started, or goes on.
    pub fn start(&mut self) {
        (self.search, self.starting) = (true, true);
    }

    /// The queue has stopped: its driver sees another device after this.
    pub fn stop(&mut self) {
        *self = TableQueue::new(next_instance(self.instance));
    }

    /// Slots are still to be found again that an earlier device knew.
    pub fn is_starting(&self) -> bool {
        self.starting
    }

    /// Takes extents, and accepts them one after the other; `true` if that is more
    /// than one turn's work.
    pub fn serve(
        &mut self,
        queue: &mut Queue,
        flows: &mut FlowTable,
        budget: Budget,
        scope: &mut Scope<'_>,
    ) -> Result<bool, QueueError> {
        if std::mem::take(&mut self.search) {
            self.held = find_held(queue, scope.mapping)?;
        }
        let mut slots = budget.slots;
        for _ in 0..budget.chains {
            if let Some((extent, status)) = flows.scan_offer(&mut slots, scope) {
                let (vm, first, count) = (scope.counters.vm(), extent.start, extent.len());
                log::debug!("VM {vm}: accepted {count} slots from slot {first} on");
                self.tell(status, wire::EXTENT_ACCEPTED, scope);
            }
            if flows.extents().is_scanning() {
                return Ok(true);
            }
            let Some(chain) = self.next_chain(queue, scope.mapping)? else {
                self.starting = false;
                return Ok(false);
            };
            self.take_chain(queue, chain, flows, scope)?;
        }
        Ok(true)
    }

    /// The next chain: those that an earlier device held come first.
    fn next_chain<'m>(
        &mut self,
        queue: &mut Queue,
        mapping: &'m Mapping,
    ) -> Result<Option<Chain<'m>>, QueueError> {
        while let Some(held) = &mut self.held {
            let Some(position) = held.positions.pop_front() else {
                queue.set_next_avail(held.end);
                self.held = None;
                break;
            };
            if let Some(chain) = queue.pop_at(mapping, position)? {
                return Ok(Some(chain));
            }
        }
        queue.take_or_enable_notification(mapping, 1, |chain| chain)?.pop().transpose()
    }

    fn take_chain(
        &mut self,
        queue: &mut Queue,
        chain: Chain<'_>,
        flows: &mut FlowTable,
        scope: &mut Scope<'_>,
    ) -> Result<(), QueueError> {
        let head = chain.head_index();
        let extent = Extent::parse(scope.mapping, chain);
        match extent.and_then(|extent| self.hold(extent, flows, scope.mapping)) {
            Ok(()) => Ok(()),
            Err(refused) => self.refuse(queue, head, &refused, scope),
        }
    }

    /// Holds an extent, whose slots are then scanned.
    fn hold(
        &mut self,
        extent: Extent,
        flows: &mut FlowTable,
        mapping: &Mapping,
    ) -> Result<(), Refused> {
        let is_first = flows.extents().is_empty();
        let status = flows.hold(extent)?;
        if is_first {
            self.renew(mapping, status);
        }
        Ok(())
    }

    /// Makes sure that the driver sees another instance than the last one,
    /// which may have been a device of another process.
    fn renew(&mut self, mapping: &Mapping, status: GuestAddress) {
        let last = words::<1>(mapping, status).map(|[word]| read_instance(word));
        if last.is_ok_and(|last| last == self.instance) {
            self.instance = next_instance(self.instance);
        }
    }

    fn refuse(
        &mut self,
        queue: &mut Queue,
        head: u16,
        refused: &Refused,
        scope: &mut Scope<'_>,
    ) -> Result<(), QueueError> {
        scope.refuse(Kind::Extent, &refused.error);
        if let Some(status) = refused.status {
            self.tell(status, wire::EXTENT_REFUSED, scope);
        }
        let written_bytes = refused.status.map_or(0, |_| STATUS_BYTES);
        queue.add_used(scope.mapping, head, written_bytes)?;
        queue.interrupt_if_wanted(scope.mapping)
    }

    fn tell(&self, at: GuestAddress, status: u32, scope: &mut Scope<'_>) {
        let told = change(scope.mapping, at, |[word]| {
            write_extent_status(word, status, self.instance);
        });
        if let Err(error) = told {
            scope.refuse(Kind::Memory, &error);
        }
    }
}

fn find_held(queue: &Queue, mapping: &Mapping) -> Result<Option<Held>, QueueError> {
    let end = queue.avail_idx(mapping)?;
    let positions = queue.never_used(mapping)?;
    Ok(positions.map(|positions| Held {
        positions: positions.into_iter().filter(|position| *position < end).collect(),
        end,
    }))
}

/// Never 0, which is what memory holds that no device has written.
fn next_instance(instance: u32) -> u32 {
    instance.wrapping_add(1).max(1)
}
