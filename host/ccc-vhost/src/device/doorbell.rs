// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Messages of the driver: "look at slot n".
use std::mem::size_of;

use ccc_proto::wire::{self, Doorbell};
use thiserror::Error;
use vm_memory::Bytes;
use zerocopy::FromBytes;

use crate::{virtio::chain::Chain, virtio::memory::Mapping};

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Look at a slot, for a flow that began or changed.
    Look {
        /// The slot.
        slot: u32,
        /// Its use.
        generation: u32,
    },
    /// The flow of a slot has ended.
    Leave {
        /// The slot.
        slot: u32,
        /// Its use.
        generation: u32,
    },
    /// Look at every slot.
    Rescan,
    /// Give back the chunk that begins at a slot.
    Release {
        /// The slot.
        slot: u32,
    },
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MessageError {
    /// A message is one readable descriptor.
    #[error("message without a descriptor; it is one")]
    Nothing,
    /// The same.  How many there are is not counted: a chain may loop.
    #[error("message of more than one descriptor; it is one")]
    Descriptors,
    /// It has to be readable.
    #[error("message in a writable descriptor")]
    Writable,
    /// It has 16 bytes.
    #[error("message of {0} bytes; it has 16")]
    Length(u32),
    /// There is no memory there.
    #[error("message at guest address {0:#x}, where there is no memory")]
    Outside(u64),
    /// No such operation.
    #[error("message with unknown operation {0}")]
    Op(u16),
}

/// Reads the message of a chain.
pub fn read(mapping: &Mapping, mut chain: Chain<'_>) -> Result<Message, MessageError> {
    let descriptor = chain.next().ok_or(MessageError::Nothing)?;
    if chain.next().is_some() {
        return Err(MessageError::Descriptors);
    }
    if descriptor.is_write_only() {
        return Err(MessageError::Writable);
    }
    let mut bytes = [0u8; size_of::<Doorbell>()];
    if descriptor.len() as usize != bytes.len() {
        return Err(MessageError::Length(descriptor.len()));
    }
    let outside = MessageError::Outside(descriptor.addr().0);
    mapping.read_slice(&mut bytes, descriptor.addr()).map_err(|_| outside)?;
    decode(&Doorbell::read_from_bytes(&bytes).map_err(|_| outside)?)
}

fn decode(message: &Doorbell) -> Result<Message, MessageError> {
    let (slot, generation) = (message.slot.get(), message.generation.get());
    match message.op.get() {
        // Either may be lost or merged with the other, so both mean the same.
        wire::OP_REGISTER | wire::OP_UPDATE => Ok(Message::Look { slot, generation }),
        wire::OP_LEAVE => Ok(Message::Leave { slot, generation }),
        wire::OP_RESCAN => Ok(Message::Rescan),
        wire::OP_RELEASE => Ok(Message::Release { slot }),
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
        let look = Message::Look { slot: 3, generation: 9 };
        assert_eq!((with(1), with(2)), (Ok(look), Ok(look)));
        assert_eq!(with(3), Ok(Message::Leave { slot: 3, generation: 9 }));
        assert_eq!(with(4), Ok(Message::Rescan));
        assert_eq!(with(5), Ok(Message::Release { slot: 3 }));
        assert_eq!((with(0), with(6)), (Err(MessageError::Op(0)), Err(MessageError::Op(6))));
    }
}
