// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The doorbell queue: messages of the driver about its slots.
use std::{mem::size_of, sync::atomic::Ordering};

use ccc_proto::wire::{self, Doorbell, OP_RELEASE};
use thiserror::Error;
use vm_memory::{Bytes, GuestAddress};
use zerocopy::FromBytes;

use crate::{
    device::budget::{Budget, pay},
    device::counters::{Counters, Kind},
    device::flow_table::{FlowTable, ScanReason, Scope},
    virtio::chain::{Chain, words},
    virtio::mapping::Mapping,
    virtio::queue::{Descriptors, Queue, QueueError},
};

/// So many slots are read before the engine is told of them: with more, what was read of the
/// first is no longer near.
const STAGE: usize = 32;
const DOORBELL_BYTES: usize = size_of::<Doorbell>();

/// The doorbell queue of one device.
#[derive(Debug, Default)]
pub struct DoorbellQueue {
    /// The scan of all slots that was asked for.
    rescan: Option<Rescan>,
}

/// A scan of every slot, a slice in each turn.  A slice sees slots as they are when
/// it comes to them.  One that changes behind it has a message of its own, or a
/// request to scan all again, which then is done once more from the beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Rescan {
    next: u32,
    /// It was asked for again, when slots had been passed already.
    again: bool,
}

impl DoorbellQueue {
    /// Takes messages, and scans slots because of them; `true` if that is more than
    /// one turn's work.  Extents that are released go back to the `table` queue.
    pub fn serve(
        &mut self,
        doorbell: &mut Queue,
        table: &mut Queue,
        flows: &mut FlowTable,
        budget: Budget,
        scope: &mut Scope<'_>,
    ) -> Result<bool, QueueError> {
        let mut left = budget.messages;
        let mut more = true;
        while left > 0 {
            let (mapping, descriptors) = (scope.mapping, doorbell.descriptors());
            let take = |chain| Taken::new(mapping, descriptors, chain);
            let taken = doorbell.take_or_enable_notification(mapping, left, take)?;
            if taken.is_empty() {
                more = false;
                break;
            }
            left -= taken.len();
            let mut end = Ok(());
            let sound = taken.into_iter().map_while(|one| one.map_err(|why| end = Err(why)).ok());
            let taken: Vec<Taken> = sound.collect();
            self.serve_taken(&taken, doorbell, table, flows, scope)?;
            end?;
        }
        more |= !self.rescan_slice(budget.slots, flows, scope);
        doorbell.interrupt_if_wanted(scope.mapping)?;
        Ok(more)
    }

    /// Forgets what was asked for.
    pub fn clear(&mut self) {
        self.rescan = None;
    }

    /// Does what messages ask, in their order, and gives them back.  Messages to scan slots
    /// that follow each other are served in stages: no other may come between the reading of
    /// a slot and what is made of it, for it may take the slot away.
    fn serve_taken(
        &mut self,
        taken: &[Taken],
        doorbell: &mut Queue,
        table: &mut Queue,
        flows: &mut FlowTable,
        scope: &mut Scope<'_>,
    ) -> Result<(), QueueError> {
        for alike in taken.chunk_by(|one, next| one.scan().is_some() && next.scan().is_some()) {
            for stage in alike.chunks(STAGE) {
                scope.counters.messages += stage.len() as u64;
                match stage {
                    [one] => self.take_message(&one.message, table, flows, scope)?,
                    scans => flows.scan_all(scans.iter().filter_map(Taken::scan), scope),
                }
                doorbell.add_all_used(scope.mapping, stage.iter().map(|one| one.head))?;
            }
        }
        Ok(())
    }

    /// Does what a message asks.
    fn take_message(
        &mut self,
        message: &Result<Message, MessageError>,
        table: &mut Queue,
        flows: &mut FlowTable,
        scope: &mut Scope<'_>,
    ) -> Result<(), QueueError> {
        match *message {
            Ok(Message::Scan { slot, generation }) => {
                flows.scan_or_refuse(slot, ScanReason::Message(generation), scope);
            }
            Ok(Message::Leave { slot, generation }) => {
                flows.leave_or_refuse(slot, generation, scope);
            }
            Ok(Message::Rescan) => self.ask_for_rescan(scope.counters),
            Ok(Message::Release { slot }) => match flows.release(slot, scope) {
                Ok(heads) => {
                    for head in heads {
                        table.add_used(scope.mapping, head, 0)?;
                    }
                    table.interrupt_if_wanted(scope.mapping)?;
                }
                Err(error) => scope.refuse(Kind::Message, &error),
            },
            Err(error) => scope.refuse(Kind::Message, &error),
        }
        Ok(())
    }

    /// Every slot is to be scanned.  Asking for it again before it has begun asks
    /// for nothing more.
    fn ask_for_rescan(&mut self, counters: &mut Counters) {
        match &mut self.rescan {
            Some(rescan) => rescan.again |= rescan.next > 0,
            None => self.begin_rescan(counters),
        }
    }

    fn begin_rescan(&mut self, counters: &mut Counters) {
        counters.rescans += 1;
        self.rescan = Some(Rescan::default());
    }

    /// Scans slots if that was asked for, at most `left` of them; whether nothing
    /// is left of it.
    fn rescan_slice(
        &mut self,
        mut left: u32,
        flows: &mut FlowTable,
        scope: &mut Scope<'_>,
    ) -> bool {
        while let Some(rescan) = self.rescan {
            // Slots of an offer are scanned for that, which says more.
            if flows.extents().is_scanning() || left == 0 {
                return false;
            }
            let Some(slots) = flows.extents().slots_from(rescan.next) else {
                self.rescan = None;
                if rescan.again {
                    self.begin_rescan(scope.counters);
                }
                continue;
            };
            let slots = pay(slots, &mut left);
            self.rescan = Some(Rescan { next: slots.end, ..rescan });
            for slot in slots {
                flows.scan_or_refuse(slot, ScanReason::Rescan, scope);
            }
        }
        true
    }
}

/// A message, and the head of its chain.
#[derive(Debug)]
struct Taken {
    head: u16,
    message: Result<Message, MessageError>,
}

impl Taken {
    fn new(mapping: &Mapping, descriptors: Descriptors, chain: Chain<'_>) -> Taken {
        let head = chain.head_index();
        let only = descriptors.only_readable(mapping, head);
        let buffer = only.map_or_else(|| only_buffer(chain), Ok);
        Taken { head, message: buffer.and_then(|buffer| Message::read(mapping, buffer)) }
    }

    /// Slot and generation, if it is a message to scan that.
    fn scan(&self) -> Option<(u32, u32)> {
        match self.message {
            Ok(Message::Scan { slot, generation }) => Some((slot, generation)),
            _ => None,
        }
    }
}

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// Scan a slot, for a flow that began or changed.
    Scan { slot: u32, generation: u32 },
    /// The flow of a slot has ended.
    Leave { slot: u32, generation: u32 },
    /// Scan every slot.
    Rescan,
    /// Release the extent that begins at a slot.
    Release { slot: u32 },
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
enum MessageError {
    #[error("message of 0 descriptors; expected 1")]
    Nothing,
    /// How many there are is not counted: a chain may loop.
    #[error("message of more than one descriptor; expected 1")]
    Descriptors,
    #[error("message in a device-writable descriptor; expected a device-readable one")]
    Writable,
    #[error("message of {0} bytes; expected {DOORBELL_BYTES}")]
    Length(u32),
    #[error("message at guest address {0:#x}, where there is no memory")]
    Outside(u64),
    #[error("message with operation {0}; expected 1 to {OP_RELEASE}")]
    Op(u16),
}

impl Message {
    /// Reads the message in a buffer.
    fn read(
        mapping: &Mapping,
        (address, length): (GuestAddress, u32),
    ) -> Result<Message, MessageError> {
        if length as usize != DOORBELL_BYTES {
            return Err(MessageError::Length(length));
        }
        let outside = MessageError::Outside(address.0);
        let bytes = message_bytes(mapping, address).ok_or(outside)?;
        decode(&Doorbell::read_from_bytes(&bytes).map_err(|_| outside)?)
    }
}

/// The only buffer of a chain, which is to be read.
fn only_buffer(mut chain: Chain<'_>) -> Result<(GuestAddress, u32), MessageError> {
    let descriptor = chain.next().ok_or(MessageError::Nothing)?;
    if chain.next().is_some() {
        return Err(MessageError::Descriptors);
    }
    if descriptor.is_write_only() {
        return Err(MessageError::Writable);
    }
    Ok((descriptor.addr(), descriptor.len()))
}

/// The bytes of a message; the words where it is aligned, which is the faster way.
fn message_bytes(mapping: &Mapping, at: GuestAddress) -> Option<[u8; DOORBELL_BYTES]> {
    let mut bytes = [0; DOORBELL_BYTES];
    match words::<{ DOORBELL_BYTES / 8 }>(mapping, at) {
        Ok(words) => {
            for (word, bytes) in words.iter().zip(bytes.chunks_exact_mut(8)) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
        }
        Err(_) => mapping.read_slice(&mut bytes, at).ok()?,
    }
    Some(bytes)
}

fn decode(message: &Doorbell) -> Result<Message, MessageError> {
    let (slot, generation) = (message.slot.get(), message.generation.get());
    match message.op.get() {
        // Either may be lost or merged with the other, so both mean the same.
        wire::OP_REGISTER | wire::OP_UPDATE => Ok(Message::Scan { slot, generation }),
        wire::OP_LEAVE => Ok(Message::Leave { slot, generation }),
        wire::OP_RESCAN => Ok(Message::Rescan),
        OP_RELEASE => Ok(Message::Release { slot }),
        other => Err(MessageError::Op(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_told_apart() {
        let with = |op: u16| {
            decode(&Doorbell {
                op: op.into(),
                reserved0: 0.into(),
                slot: 3.into(),
                generation: 9.into(),
                reserved1: 0.into(),
            })
        };
        let scan = Message::Scan { slot: 3, generation: 9 };
        assert_eq!((with(1), with(2)), (Ok(scan), Ok(scan)));
        assert_eq!(with(3), Ok(Message::Leave { slot: 3, generation: 9 }));
        assert_eq!(with(4), Ok(Message::Rescan));
        assert_eq!(with(5), Ok(Message::Release { slot: 3 }));
        assert_eq!((with(0), with(6)), (Err(MessageError::Op(0)), Err(MessageError::Op(6))));
    }
}
