// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A split virtqueue, as its device uses it.
use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{Ordering, fence},
};

use thiserror::Error;
use virtio_queue::{Queue as Rings, QueueOwnedT, QueueT};
use vm_memory::{Address, Bytes, GuestAddress, VolatileMemory};

use crate::{
    virtio::chain::{Chain, MAX_SIZE, words},
    virtio::mapping::Mapping,
};

/// The driver wants no notification, without event index (2.7.7.1).
const AVAIL_F_NO_INTERRUPT: u16 = 1;

/// Why a queue cannot be used.
#[derive(Debug, Error)]
pub enum QueueError {
    #[error("rings of queue {0} are not in guest memory; they have to be, as a whole")]
    Rings(usize),
    #[error("ring contradicts itself: {0}")]
    Ring(#[from] virtio_queue::Error),
    #[error("position {0} of the available ring is not in guest memory")]
    Available(u16),
    #[error("it is being served; its {0} can change only after it was stopped")]
    Served(&'static str),
    #[error("chain begins at descriptor {head}; expected one of 0 to {size} - 1")]
    Head { head: u16, size: u16 },
}

/// Where the three parts of a queue are (2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The descriptors.
    pub descriptors: GuestAddress,
    /// What the driver makes available.
    pub available: GuestAddress,
    /// What the device has used.
    pub used: GuestAddress,
}

/// A split virtqueue (2.7).
#[derive(Debug)]
pub struct Queue {
    rings: Rings,
    /// The used index when it was last asked whether the driver wants to be told of that.
    asked_at: u16,
    /// The driver is to be told of used buffers, and was not yet.
    interrupt_due: bool,
    /// It is looked at without notifications.
    polled: bool,
}

impl Queue {
    /// A queue nobody has said anything of.
    pub fn new() -> Result<Queue, virtio_queue::Error> {
        let rings = Rings::new(MAX_SIZE)?;
        Ok(Queue { rings, asked_at: 0, interrupt_due: false, polled: false })
    }

    /// Has so many descriptors: a power of 2 (2.7), at most [`MAX_SIZE`].  What is being served
    /// stays as it is.
    pub fn set_size(&mut self, size: u16) -> Result<(), QueueError> {
        if self.is_ready() && size != self.rings.size() {
            return Err(QueueError::Served("size"));
        }
        Ok(self.rings.try_set_size(size)?)
    }

    /// Has its three parts at these addresses, aligned as 2.7 has it, or stays where it is as a whole.
    /// A front end may say where it is while it is served: that what is written be noted.
    pub fn set_addresses(&mut self, to: Addresses) -> Result<(), QueueError> {
        let before = self.addresses();
        if self.is_ready() && to != before {
            return Err(QueueError::Served("rings"));
        }
        let moved = self.try_set_addresses(to);
        if moved.is_err() {
            // They were right.
            self.try_set_addresses(before)?;
        }
        Ok(moved?)
    }

    fn try_set_addresses(&mut self, to: Addresses) -> Result<(), virtio_queue::Error> {
        self.rings.try_set_desc_table_address(to.descriptors)?;
        self.rings.try_set_avail_ring_address(to.available)?;
        self.rings.try_set_used_ring_address(to.used)
    }

    fn addresses(&self) -> Addresses {
        Addresses {
            descriptors: GuestAddress(self.rings.desc_table()),
            available: GuestAddress(self.rings.avail_ring()),
            used: GuestAddress(self.rings.used_ring()),
        }
    }

    /// Notifications are suppressed by event index (2.7.7, 2.7.10), or by flags.
    pub fn set_event_idx(&mut self, enabled: bool) {
        self.rings.set_event_idx(enabled);
    }

    /// Goes on from this position of the available ring once it is served, as its front end wants it.
    pub fn set_base(&mut self, position: u16) -> Result<(), QueueError> {
        if self.is_ready() && position != self.next_avail() {
            return Err(QueueError::Served("position"));
        }
        self.set_next_avail(position);
        Ok(())
    }

    /// Takes chains from this position of the available ring on (2.7.6).
    pub fn set_next_avail(&mut self, position: u16) {
        self.rings.set_next_avail(position);
    }

    /// Position of the next chain in the available ring.
    pub fn next_avail(&self) -> u16 {
        self.rings.next_avail()
    }

    /// The queue is being served.
    pub fn is_ready(&self) -> bool {
        self.rings.ready()
    }

    /// Serves the queue from now on.  What the used ring says counts: chains
    /// taken but not used before are offered anew.
    pub fn start(&mut self, index: usize, mapping: &Mapping) -> Result<(), QueueError> {
        self.rings.set_ready(true);
        if !self.rings.is_valid(mapping) {
            self.rings.set_ready(false);
            return Err(QueueError::Rings(index));
        }
        let used = self.rings.used_idx(mapping, Ordering::Acquire)?;
        self.rings.set_next_used(used.0);
        self.asked_at = used.0;
        Ok(())
    }

    /// Serves the queue no longer.  Where it would go on, held chains included.
    pub fn stop(&mut self) -> u16 {
        if self.rings.ready() {
            self.rings.set_ready(false);
            self.rings.set_next_avail(self.rings.next_used());
        }
        self.interrupt_due = false;
        self.rings.next_avail()
    }

    /// Forgets all that was said of it.
    pub fn reset(&mut self) {
        self.rings.reset();
        self.interrupt_due = false;
    }

    /// The next chain the driver made available (2.7.13).
    pub fn pop<'m>(&mut self, mapping: &'m Mapping) -> Result<Option<Chain<'m>>, QueueError> {
        let size = self.rings.size();
        self.rings.iter(mapping)?.next().map(|chain| checked(chain, size)).transpose()
    }

    /// The chain at a position of the available ring, after which the queue
    /// goes on.
    pub fn pop_at<'m>(
        &mut self,
        mapping: &'m Mapping,
        position: u16,
    ) -> Result<Option<Chain<'m>>, QueueError> {
        self.rings.set_next_avail(position);
        self.pop(mapping)
    }

    /// The driver need not notify while the queue is being worked on (2.7.10.2).
    pub fn disable_notification(&mut self, mapping: &Mapping) -> Result<(), QueueError> {
        Ok(self.rings.disable_notification(mapping)?)
    }

    /// The driver need not notify from now on, for one looks; whether it had to until now.
    pub fn begin_poll(&mut self) -> bool {
        !std::mem::replace(&mut self.polled, true)
    }

    /// The driver is to notify from now on; whether it has made something available before it
    /// could know.
    pub fn end_poll(&mut self, mapping: &Mapping) -> Result<bool, QueueError> {
        self.polled = false;
        Ok(self.rings.ready() && self.rings.enable_notification(mapping)?)
    }

    /// The driver has made something available.
    pub fn has_more(&self, mapping: &Mapping) -> Result<bool, QueueError> {
        Ok(self.avail_idx(mapping)? != self.next_avail())
    }

    /// Where its descriptors are.
    pub fn descriptors(&self) -> Descriptors {
        Descriptors(self.rings.desc_table())
    }

    /// What is taken from the next chains of a queue that is being worked on, at most so many;
    /// if there is none, the driver is to notify from now on (2.7.10.2), but for a queue that is
    /// polled.  For all of them the driver's index is read once.
    pub fn take_or_enable_notification<'m, T>(
        &mut self,
        mapping: &'m Mapping,
        most: usize,
        take: impl Fn(Chain<'m>) -> T,
    ) -> Result<Vec<Result<T, QueueError>>, QueueError> {
        let size = self.rings.size();
        loop {
            let has_more = self.has_more(mapping)?;
            let chains = self.rings.iter(mapping)?.take(most);
            let taken: Vec<_> = chains.map(|chain| checked(chain, size).map(&take)).collect();
            // What cannot be read would be there to be taken for ever.
            if taken.is_empty() && has_more && most > 0 {
                return Err(QueueError::Available(self.next_avail()));
            }
            // One may have come before the driver saw that it is to notify
            // (2.7.13.4.1: it looks after it has written the index).
            if self.polled || !taken.is_empty() || !self.rings.enable_notification(mapping)? {
                return Ok(taken);
            }
            self.disable_notification(mapping)?;
        }
    }

    /// Gives a chain back, of which so many bytes were written (2.7.8.2).
    pub fn add_used(
        &mut self,
        mapping: &Mapping,
        head: u16,
        written_bytes: u32,
    ) -> Result<(), QueueError> {
        Ok(self.rings.add_used(mapping, head, written_bytes)?)
    }

    /// Gives chains back into which nothing was written; the driver sees all of them at once.
    /// One by one, each would find the ring and its index anew.
    pub fn add_all_used(
        &mut self,
        mapping: &Mapping,
        mut heads: impl Iterator<Item = u16>,
    ) -> Result<(), QueueError> {
        let size = usize::from(self.rings.size());
        // `struct virtq_used`: flags and index, then 8 bytes a chain: its head, and so many
        // bytes (2.7.8).
        let ring = mapping.slice(within(self.rings.used_ring(), 4)?, size * size_of::<u64>());
        let Some(ring) = ring.as_ref().and_then(|ring| ring.get_array_ref(0, size).ok()) else {
            return heads.try_for_each(|head| self.add_used(mapping, head, 0));
        };
        let mut next = self.rings.next_used();
        for head in heads {
            ring.store(usize::from(next) % size, u64::from(head).to_le());
            next = next.wrapping_add(1);
        }
        self.rings.set_next_used(next);
        let index = within(self.rings.used_ring(), 2)?;
        let stored = mapping.store(next.to_le(), index, Ordering::Release);
        stored.map_err(|error| virtio_queue::Error::GuestMemory(error).into())
    }

    /// Notes that the driver is to be told of used buffers, if it wants that
    /// (2.7.7.2).
    pub fn interrupt_if_wanted(&mut self, mapping: &Mapping) -> Result<(), QueueError> {
        // It looks at the used index after it has said what it wants.
        fence(Ordering::SeqCst);
        let used = self.rings.next_used();
        let since = used.wrapping_sub(std::mem::replace(&mut self.asked_at, used));
        self.interrupt_due |= if self.rings.event_idx_enabled() {
            // `used_event`, behind the available ring (2.7.6).
            let event = 4 + 2 * u64::from(self.rings.size());
            let event = load(mapping, within(self.rings.avail_ring(), event)?)?;
            used.wrapping_sub(event).wrapping_sub(1) < since
        } else {
            load(mapping, GuestAddress(self.rings.avail_ring()))? & AVAIL_F_NO_INTERRUPT == 0
        };
        Ok(())
    }

    /// Whether the driver is to be told, which is done now.
    pub fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.interrupt_due)
    }

    /// Position behind the last chain the driver made available (2.7.6).
    pub fn avail_idx(&self, mapping: &Mapping) -> Result<u16, QueueError> {
        Ok(self.rings.avail_idx(mapping, Ordering::Acquire)?.0)
    }

    /// Positions of chains that were made available and never used, if the ring
    /// has not gone round, so that this can be told.  A front end that offers
    /// held chains again goes back to the used index, which counts chains and
    /// does not say which: it passes over held ones that are older than one used
    /// since, and offers that one again.
    pub fn never_used(&self, mapping: &Mapping) -> Result<Option<Vec<u16>>, QueueError> {
        let available = self.avail_idx(mapping)?;
        let used = self.rings.next_used();
        if available > self.rings.size() || used > available {
            return Ok(None);
        }
        let mut open: HashMap<u16, VecDeque<u16>> = HashMap::new();
        for position in 0..available {
            // `struct virtq_avail`: flags and index, then 2 bytes a chain (2.7.6).
            let at = within(self.rings.avail_ring(), 4 + u64::from(position) * 2)?;
            let head = load(mapping, at)?;
            open.entry(head).or_default().push_back(position);
        }
        for position in 0..used {
            // `struct virtq_used`: flags and index, then 8 bytes a chain (2.7.8).
            let at = within(self.rings.used_ring(), 4 + u64::from(position) * 8)?;
            let head = load(mapping, at)?;
            // A head is used as often as it was available before, in this order.
            open.get_mut(&head).map(VecDeque::pop_front);
        }
        let mut never: Vec<u16> = open.into_values().flatten().collect();
        never.sort_unstable();
        Ok(Some(never))
    }
}

/// The descriptors of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors(u64);

impl Descriptors {
    /// Address and length of the buffer of a chain that has no other and may only be read, as
    /// most have: then there is nothing to follow.
    pub fn only_readable(self, mapping: &Mapping, head: u16) -> Option<(GuestAddress, u32)> {
        // `struct virtq_desc`: the address, then length, flags and the next one (2.7.5).
        let at = self.0.checked_add(u64::from(head) * 16)?;
        let [address, rest] = words::<2>(mapping, GuestAddress(at)).ok()?;
        let rest = u64::from_le(rest.load(Ordering::Relaxed));
        let flags = (rest >> 32) as u16;
        let address = u64::from_le(address.load(Ordering::Relaxed));
        (flags == 0).then_some((GuestAddress(address), rest as u32))
    }
}

fn checked(chain: Chain<'_>, size: u16) -> Result<Chain<'_>, QueueError> {
    let head = chain.head_index();
    if head >= size { Err(QueueError::Head { head, size }) } else { Ok(chain) }
}

/// So many bytes into a ring.  A front end may move it while it is served.
fn within(ring: u64, offset: u64) -> Result<GuestAddress, QueueError> {
    let address = GuestAddress(ring).checked_add(offset);
    address.ok_or_else(|| virtio_queue::Error::AddressOverflow.into())
}

fn load(mapping: &Mapping, address: GuestAddress) -> Result<u16, QueueError> {
    let word: u16 =
        mapping.load(address, Ordering::Relaxed).map_err(virtio_queue::Error::GuestMemory)?;
    Ok(u16::from_le(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTORS: GuestAddress = GuestAddress(0x1000);
    const AVAILABLE: GuestAddress = GuestAddress(0x2000);
    const USED: GuestAddress = GuestAddress(0x3000);
    const THERE: Addresses =
        Addresses { descriptors: DESCRIPTORS, available: AVAILABLE, used: USED };
    const SIZE: u16 = 16;

    /// Makes chains available up to a position.
    fn offer(mapping: &Mapping, position: u16) {
        mapping.write_obj(position, GuestAddress(AVAILABLE.0 + 2)).expect("index");
    }

    /// The position at which the driver is to notify.
    fn wanted_at(mapping: &Mapping) -> u16 {
        let event = USED.0 + 4 + 8 * u64::from(SIZE);
        mapping.read_obj(GuestAddress(event)).expect("event index")
    }

    /// A queue of this memory, with event index, that is served.
    fn started(mapping: &Mapping) -> Queue {
        let mut queue = Queue::new().expect("queue");
        queue.set_event_idx(true);
        queue.set_size(SIZE).expect("size");
        queue.set_addresses(THERE).expect("addresses");
        queue.start(0, mapping).expect("rings");
        queue
    }

    #[test]
    fn chains_that_are_given_back_together_are_seen_as_if_one_by_one() {
        // The second time another region begins within the used ring.
        let whole = [(DESCRIPTORS, 0x3000)];
        let parts = [(DESCRIPTORS, 0x2040), (GuestAddress(0x3040), 0xfc0)];
        for ranges in [&whole[..], &parts] {
            let mapping = Mapping::from_ranges(ranges).expect("memory");
            let write = |value: u16, at| mapping.write_obj(value, GuestAddress(at)).expect("there");
            let index = USED.0 + 2;
            write(0xfffd, index);
            let mut queue = started(&mapping);
            let event = AVAILABLE.0 + 4 + 2 * u64::from(SIZE);
            write(0xffff, event);
            let mut is_told = |heads: &[u16]| {
                queue.add_all_used(&mapping, heads.iter().copied()).expect("there");
                queue.interrupt_if_wanted(&mapping).expect("there");
                queue.take_interrupt()
            };
            assert!(!is_told(&[7, 2]), "not there yet");
            assert!(is_told(&[3, 9]));
            assert!(!is_told(&[]) && !is_told(&[5]), "told before");
            let element = |position: u64| {
                let at = GuestAddress(USED.0 + 4 + 8 * position);
                mapping.read_obj::<[u32; 2]>(at).expect("there")
            };
            assert_eq!([13, 14, 15, 0, 1].map(element), [7, 2, 3, 9, 5].map(|head| [head, 0]));
            assert_eq!(mapping.read_obj::<u16>(GuestAddress(index)).expect("there"), 2);
        }
    }

    #[test]
    fn a_queue_that_begins_anew_asks_for_interrupts_anew() {
        let mapping = Mapping::from_ranges(&[(DESCRIPTORS, 0x3000)]).expect("memory");
        let write = |value: u16, at| mapping.write_obj(value, GuestAddress(at)).expect("there");
        let mut queue = started(&mapping);
        let tells_of = |queue: &mut Queue, heads: &[u16]| {
            queue.add_all_used(&mapping, heads.iter().copied()).expect("there");
            queue.interrupt_if_wanted(&mapping).expect("there");
            queue.take_interrupt()
        };
        assert!(tells_of(&mut queue, &[0, 1, 2]), "the first one was to be told of");
        queue.stop();
        write(0, USED.0 + 2);
        queue.start(0, &mapping).expect("rings");
        assert!(tells_of(&mut queue, &[0, 1, 2, 3]), "and is after a reset");
    }

    #[test]
    fn without_event_index_the_flag_says_who_is_told() {
        let mapping = Mapping::from_ranges(&[(DESCRIPTORS, 0x3000)]).expect("memory");
        let mut queue = started(&mapping);
        queue.set_event_idx(false);
        for (flags, is_told) in [(0, true), (AVAIL_F_NO_INTERRUPT, false)] {
            mapping.write_obj(flags, AVAILABLE).expect("there");
            queue.add_all_used(&mapping, [0].into_iter()).expect("there");
            queue.interrupt_if_wanted(&mapping).expect("there");
            assert_eq!(queue.take_interrupt(), is_told, "flags {flags}");
        }
    }

    #[test]
    fn a_queue_that_is_served_stays_where_it_is_and_one_that_is_not_moves_as_a_whole() {
        let mapping = Mapping::from_ranges(&[(DESCRIPTORS, 0x4000)]).expect("memory");
        let mut queue = started(&mapping);
        let elsewhere = Addresses { used: GuestAddress(0x3800), ..THERE };
        queue.set_addresses(THERE).expect("as it is");
        queue.set_size(SIZE).expect("as it is");
        queue.set_base(0).expect("as it is");
        let moved = queue.set_addresses(elsewhere);
        assert!(matches!(moved, Err(QueueError::Served("rings"))), "{moved:?}");
        let resized = queue.set_size(SIZE / 2);
        assert!(matches!(resized, Err(QueueError::Served("size"))), "{resized:?}");
        let set = queue.set_base(7);
        assert!(matches!(set, Err(QueueError::Served("position"))), "{set:?}");
        assert_eq!(queue.next_avail(), 0);
        queue.stop();
        queue.set_base(7).expect("stopped");
        assert_eq!(queue.next_avail(), 7);
        // Only what is last is not aligned.
        let odd = Addresses { descriptors: GuestAddress(0x1010), used: GuestAddress(1), ..THERE };
        queue.set_addresses(odd).expect_err("not aligned");
        assert_eq!(queue.addresses(), THERE);
        queue.set_addresses(elsewhere).expect("stopped");
        queue.set_size(SIZE / 2).expect("stopped");
        assert_eq!(queue.addresses(), elsewhere);
    }

    #[test]
    fn what_cannot_be_read_of_a_ring_is_waited_for_by_nobody() {
        // Flags and index are the last that there is.
        let mapping = Mapping::from_ranges(&[(DESCRIPTORS, 0x3000)]).expect("memory");
        for is_polled in [false, true] {
            let mut queue = started(&mapping);
            // Nobody can have it moved there: memory has gone.
            let last = GuestAddress(0x3ffc);
            queue.rings.try_set_avail_ring_address(last).expect("aligned");
            mapping.write_obj([0_u16, 1], last).expect("there");
            if is_polled {
                queue.begin_poll();
            }
            let taken = queue.take_or_enable_notification(&mapping, usize::MAX, drop);
            assert!(matches!(taken, Err(QueueError::Available(0))), "{taken:?}");
        }
    }

    #[test]
    fn only_a_buffer_that_is_alone_and_to_be_read_needs_no_following() {
        let mapping = Mapping::from_ranges(&[(DESCRIPTORS, 0x3000)]).expect("memory");
        let descriptors = started(&mapping).descriptors();
        let with = |flags: u64| {
            let at = GuestAddress(DESCRIPTORS.0 + 3 * 16);
            mapping.write_obj([0x5000, 7 << 48 | flags << 32 | 24], at).expect("there");
            descriptors.only_readable(&mapping, 3)
        };
        assert_eq!(with(0), Some((GuestAddress(0x5000), 24)));
        // With another behind it, to be written, or where others are described.
        assert_eq!([1, 2, 4].map(with), [None; 3]);
        for outside in [0x4000, u64::MAX - 47] {
            assert_eq!(Descriptors(outside).only_readable(&mapping, 3), None);
        }
    }

    #[test]
    fn a_driver_notifies_again_after_a_poll_and_what_came_before_is_seen() {
        let mapping = Mapping::from_ranges(&[(DESCRIPTORS, 0x3000)]).expect("memory");
        let mut queue = started(&mapping);
        let take = |queue: &mut Queue| {
            queue.take_or_enable_notification(&mapping, usize::MAX, drop).expect("rings").len()
        };

        assert!(queue.begin_poll() && !queue.begin_poll());
        offer(&mapping, 3);
        assert!(queue.has_more(&mapping).expect("index"));
        assert_eq!((take(&mut queue), take(&mut queue)), (3, 0));
        assert_eq!(wanted_at(&mapping), 0, "it need not notify");
        // It could not know that it has to, and did not.
        offer(&mapping, 4);
        assert!(queue.end_poll(&mapping).expect("rings"));
        assert_eq!((take(&mut queue), take(&mut queue)), (1, 0));
        assert_eq!(wanted_at(&mapping), 4);

        queue.begin_poll();
        assert!(!queue.end_poll(&mapping).expect("rings"));
        queue.begin_poll();
        queue.stop();
        offer(&mapping, 5);
        assert!(!queue.end_poll(&mapping).expect("rings"), "it is not served");
    }
}
