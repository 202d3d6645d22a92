// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The rings of one NIC (VIRTIO 1.3, 2.7 and 5.1): taking frames from it and
//! giving frames to it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// A frame with the virtio-net header before it.
pub type Frame = Vec<u8>;

/// The Ethernet frame behind the header.
pub fn ethernet(frame: &Frame) -> &[u8] {
    frame.get(NET_HEADER..).unwrap_or_default()
}

/// Index of the ring the guest receives from.
pub const RX: usize = 0;
/// Index of the ring the guest transmits to.
pub const TX: usize = 1;

/// Size of the virtio-net header of a modern device.
const NET_HEADER: usize = 12;
/// Where the header counts the buffers of a frame.
const NUM_BUFFERS: usize = 10;
/// Driver's flag in the available ring: no interrupts wanted.
const NO_INTERRUPT: u16 = 1;
/// Most descriptors of a ring.
const MAX_RING: u16 = 1024;

/// What went wrong with a ring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Used before its memory was given.
    #[error("ring used before SET_MEM_TABLE")]
    NoMemory,
    /// The guest's memory cannot be mapped.
    #[error("mapping guest memory: {0}")]
    Map(#[from] vm_memory::mmap::FromRangesError),
    /// An address outside the guest's memory.
    #[error("guest memory: {0}")]
    Memory(#[from] vm_memory::GuestMemoryError),
    /// A malformed ring.
    #[error("ring: {0}")]
    Queue(#[from] virtio_queue::Error),
    /// A malformed chain.
    #[error("copying a frame: {0}")]
    Copy(#[from] std::io::Error),
}

/// A region of guest memory as the front end describes it.
pub struct Region {
    /// Guest physical address.
    pub guest: u64,
    /// Bytes.
    pub size: u64,
    /// Address in the front end's own terms, used for the rings.
    pub user: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// Both rings of a NIC and the memory they are in.
pub struct Rings {
    memory: Option<GuestMemoryMmap>,
    regions: Vec<Region>,
    queues: [Queue; 2],
}

impl Rings {
    /// Rings not set up yet.
    pub fn new() -> Result<Self, RingError> {
        let queues = [Queue::new(MAX_RING)?, Queue::new(MAX_RING)?];
        Ok(Self { memory: None, regions: Vec::new(), queues })
    }

    /// Maps the guest's memory.
    pub fn set_memory(&mut self, regions: Vec<Region>, files: Vec<File>) -> Result<(), RingError> {
        let ranges = regions.iter().zip(files).map(|(region, file)| {
            let file = FileOffset::new(file, region.offset);
            (GuestAddress(region.guest), region.size as usize, Some(file))
        });
        self.memory = Some(GuestMemoryMmap::from_ranges_with_files(ranges)?);
        self.regions = regions;
        Ok(())
    }

    /// Gives ring `index` its length.
    pub fn set_size(&mut self, index: usize, size: u16) {
        self.queues[index].set_size(size);
    }

    /// Gives ring `index` its place, in the front end's addresses.
    pub fn set_addresses(&mut self, index: usize, desc: u64, used: u64, avail: u64) {
        let [desc, used, avail] = [desc, used, avail].map(|a| self.guest_address(a));
        let halves = |a: u64| (Some(a as u32), Some((a >> 32) as u32));
        let queue = &mut self.queues[index];
        let (low, high) = halves(desc);
        queue.set_desc_table_address(low, high);
        let (low, high) = halves(used);
        queue.set_used_ring_address(low, high);
        let (low, high) = halves(avail);
        queue.set_avail_ring_address(low, high);
    }

    /// Sets where ring `index` begins.
    pub fn set_base(&mut self, index: usize, base: u16) {
        self.queues[index].set_next_avail(base);
        self.queues[index].set_next_used(base);
    }

    /// Starts or stops ring `index`. The guest is not to tell of new receive
    /// buffers: they are looked for when there is a frame.
    pub fn enable(&mut self, index: usize, on: bool) -> Result<(), RingError> {
        self.queues[index].set_ready(on);
        if on && index == RX {
            let memory = self.memory.as_ref().ok_or(RingError::NoMemory)?;
            self.queues[RX].disable_notification(memory)?;
        }
        Ok(())
    }

    /// Takes every frame the guest has put out.
    pub fn transmitted(&mut self) -> Result<Vec<Frame>, RingError> {
        let memory = self.memory.as_ref().ok_or(RingError::NoMemory)?;
        let queue = &mut self.queues[TX];
        let mut frames = Vec::new();
        while let Some(chain) = queue.pop_descriptor_chain(memory) {
            let head = chain.head_index();
            let mut frame = Vec::with_capacity(2048);
            chain.reader(memory)?.read_to_end(&mut frame)?;
            queue.add_used(memory, head, 0)?;
            frames.push(frame);
        }
        Ok(frames)
    }

    /// Gives the guest frames while it has buffers; true if it got any and
    /// wants to be told. With frames left the guest tells of new buffers.
    pub fn receive(&mut self, frames: &mut VecDeque<Frame>) -> Result<bool, RingError> {
        let queue = &mut self.queues[RX];
        let Some(memory) = self.memory.as_ref().filter(|_| queue.ready()) else {
            // Nobody listens yet: as on a cable that is not plugged in.
            frames.clear();
            return Ok(false);
        };
        let mut given = false;
        while let Some(mut frame) = frames.pop_front() {
            let Some(chain) = queue.pop_descriptor_chain(memory) else {
                frames.push_front(frame);
                break;
            };
            if frame.len() < NET_HEADER {
                continue;
            }
            frame[NUM_BUFFERS..NET_HEADER].copy_from_slice(&1u16.to_le_bytes());
            let head = chain.head_index();
            chain.writer(memory)?.write_all(&frame)?;
            queue.add_used(memory, head, frame.len() as u32)?;
            given = true;
        }
        if frames.is_empty() {
            queue.disable_notification(memory)?;
        } else {
            queue.enable_notification(memory)?;
        }
        let flags: u16 = memory.load(GuestAddress(queue.avail_ring()), Ordering::Acquire)?;
        Ok(given && flags & NO_INTERRUPT == 0)
    }

    fn guest_address(&self, user: u64) -> u64 {
        let holds = |r: &&Region| (r.user..r.user.saturating_add(r.size)).contains(&user);
        self.regions.iter().find(holds).map_or(user, |r| r.guest + (user - r.user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use virtio_queue::desc::{RawDescriptor, split::Descriptor};
    use virtio_queue::mock::MockSplitQueue;

    const WRITE: u16 = 2;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10_0000)]).expect("memory")
    }

    fn rings(
        memory: &GuestMemoryMmap,
        index: usize,
        ring: &MockSplitQueue<'_, GuestMemoryMmap>,
    ) -> Rings {
        let mut rings = Rings::new().expect("rings");
        rings.memory = Some(memory.clone());
        rings.queues[index] = ring.create_queue().expect("queue");
        rings
    }

    fn buffer(address: u64, len: u32, flags: u16) -> RawDescriptor {
        RawDescriptor::from(Descriptor::new(address, len, flags, 0))
    }

    #[test]
    fn a_frame_goes_from_ring_to_ring() {
        let sender = memory();
        let tx = MockSplitQueue::new(&sender, 16);
        let sent: Vec<u8> = (0..100).collect();
        sender.write_slice(&sent, GuestAddress(0x8_0000)).expect("write");
        tx.build_desc_chain(&[buffer(0x8_0000, 100, 0)]).expect("chain");
        let mut frames = rings(&sender, TX, &tx).transmitted().expect("sent").into();

        let receiver = memory();
        let rx = MockSplitQueue::new(&receiver, 16);
        rx.build_desc_chain(&[buffer(0x9_0000, 2000, WRITE)]).expect("chain");
        assert!(rings(&receiver, RX, &rx).receive(&mut frames).expect("received"));
        let mut got = vec![0; 100];
        receiver.read_slice(&mut got, GuestAddress(0x9_0000)).expect("read");
        assert_eq!(got[..10], sent[..10]);
        assert_eq!(got[10..12], [1, 0]);
        assert_eq!(got[12..], sent[12..]);
    }

    #[test]
    fn frames_wait_for_buffers() {
        let receiver = memory();
        let rx = MockSplitQueue::new(&receiver, 16);
        let mut rings = rings(&receiver, RX, &rx);
        let mut frames = VecDeque::from([vec![0; 60]]);
        assert!(!rings.receive(&mut frames).expect("no buffers"));
        assert_eq!(frames.len(), 1);
    }

    #[test]
    fn an_unplugged_nic_loses_frames() {
        let mut frames = VecDeque::from([vec![0; 60]]);
        assert!(!Rings::new().expect("rings").receive(&mut frames).expect("nothing"));
        assert!(frames.is_empty());
    }
}
