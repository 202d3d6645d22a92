// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A driver that writes what it likes into its slots and rings what it likes,
//! beside a guest that behaves: the other's grant stays sound, the flows the
//! device counts are those in its slots, and all are gone when it ends.
#![no_main]
use std::{cell::RefCell, fs::File, os::fd::AsFd};

use ccc_core::{GroupConfig, Report};
use ccc_proto::wire;
use ccc_vhost::fuzzing::{
    Backend, Budget, Context, Counters, Coupling, FEATURES, FlowEngine, Identity, Memory, Poller,
    RemapReason, Settings, config,
};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use vhost::vhost_user::{
    VhostUserBackendReqHandlerMut,
    message::{VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserVringAddrFlags},
};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

const MEMORY: usize = 0x6000;
const QUEUE: u16 = 64;
const SLOTS: u32 = 16;
const LINES: u32 = 2;
/// A queue's rings, and where in them its available and used ones are.
const RINGS: u64 = 0x1000;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
const EXTENT: u64 = 0x3000;
const GRANTS: u64 = 0x4000;
const BELLS: u64 = 0x5000;
const CONFIG: &str = "[group.g]\n[group.h]\n[vm.a]\nsocket = \"/a\"\ngroup = \"g\"\n\
                      [vm.b]\nsocket = \"/b\"\ngroup = \"g\"\n\
                      [[rule]]\ndestination = \"10.0.0.0/8\"\ngroup = \"h\"\n";

#[derive(Arbitrary, Debug)]
enum Step {
    /// A slot that may be sound, but for what `change` does to it.
    Slot { slot: u8, report: SoundReport, change: Option<(u8, u8)> },
    /// A message.
    Ring { op: u8, slot: u8, generation: u8 },
    /// A message of any form.
    RingRaw { at: u16, length: u8, writable: bool },
    /// Time goes by.
    Wait { micros: u32 },
    /// The other guest's flow reports.
    Other { acked: u16, event: bool },
    /// The table queue ends and begins.
    Again,
    /// The operator switches coupling.
    Couple { on: bool },
    /// Its messages are looked for, or it is to tell of them.
    Poll { on: bool },
    /// A queue is to have its rings at another place, or another size, stopped before or not.
    Move { queue: u8, place: u16, size: u16, stopped: bool },
}

#[derive(Arbitrary, Debug)]
struct SoundReport {
    state: u8,
    flags: u8,
    priority: u16,
    acked: u64,
    grown: u32,
    events: u16,
    timeouts: u16,
    undos: u16,
    beta: u16,
    epoch: u32,
    cwnd: u32,
    ssthresh: u32,
    srtt: u32,
    mss: u16,
    generation: u8,
    far: bool,
}

/// What costs system calls, and no input changes: made once.
struct Lasting {
    settings: Settings,
    poller: Poller,
    /// The guest's memory as it sees it, and as its front end has given it.
    guest: GuestMemoryMmap<()>,
    given: Memory,
}

thread_local! {
    static LASTING: RefCell<Lasting> = RefCell::new(Lasting::new());
}

impl Lasting {
    fn new() -> Lasting {
        let fd = rustix::fs::memfd_create(c"guest", rustix::fs::MemfdFlags::CLOEXEC).expect("fd");
        let file = File::from(fd);
        file.set_len(MEMORY as u64).expect("memory");
        let ours = file.as_fd().try_clone_to_owned().expect("fd");
        let region = (GuestAddress(0), MEMORY, Some(FileOffset::new(ours.into(), 0)));
        let guest = GuestMemoryMmap::from_ranges_with_files([region]).expect("memory");
        let settings = config::parse("fuzz.toml", CONFIG).expect("right");
        let poller = Poller::new().expect("poller");
        let mut backend = back_end(&poller);
        let memory = VhostUserMemoryRegion::new(0, MEMORY as u64, 0, 0);
        backend.set_mem_table(&[memory], vec![file], None).expect("memory");
        let given = backend.device_mut().set_memory(Memory::default());
        Lasting { settings, poller, guest, given }
    }
}

fn back_end(poller: &Poller) -> Backend {
    let identity = Identity { vm: 0, instance: 1, budget: Budget::TURN };
    Backend::new(identity, Counters::new("a"), poller.clone(), MEMORY as u64).expect("back end")
}

/// Has the rings of a queue at an address; whether that is taken.
fn set_rings(backend: &mut Backend, queue: u32, at: u64) -> bool {
    let (flags, used, available) = (VhostUserVringAddrFlags::empty(), at + USED, at + AVAILABLE);
    backend.set_vring_addr(queue, flags, at, used, available, 0).is_ok()
}

/// All that an input finds and changes.
struct World<'a> {
    guest: &'a GuestMemoryMmap<()>,
    backend: Backend,
    coupling: Coupling,
    now: u64,
    offered: [u16; 3],
    next: [u16; 3],
    /// Where the rings of its queues are.
    rings: [u64; 3],
}

impl World<'_> {
    /// Everything anew, but memory of zeroes in place of new memory.
    fn new(lasting: &mut Lasting) -> World<'_> {
        let Lasting { settings, poller, guest, given } = lasting;
        guest.write_slice(&[0; MEMORY], GuestAddress(0)).expect("all of it");
        let mut backend = back_end(poller);
        backend.set_features(FEATURES).expect("features");
        let protocol = VhostUserProtocolFeatures::INBAND_NOTIFICATIONS.bits();
        backend.set_protocol_features(protocol).expect("features");
        backend.device_mut().set_memory(std::mem::take(given));
        for queue in 0..3u32 {
            backend.set_vring_num(queue, QUEUE.into()).expect("size");
            assert!(set_rings(&mut backend, queue, RINGS * u64::from(queue)));
            backend.set_vring_enable(queue, true).expect("enabled");
        }
        let coupling = Coupling::new(settings.clone());
        let rings = std::array::from_fn(|queue| RINGS * queue as u64);
        World { guest, backend, coupling, now: 1, offered: [0; 3], next: [0; 3], rings }
    }

    fn offer(&mut self, queue: usize, pieces: &[(u64, u32, u16)]) {
        let head = self.next[queue];
        for (number, (address, length, flags)) in pieces.iter().enumerate() {
            let index = self.next[queue];
            self.next[queue] = (index + 1) % QUEUE;
            let at = self.rings[queue] + 16 * u64::from(index);
            let more = u16::from(number + 1 < pieces.len());
            self.put(at, address);
            self.put(at + 8, length);
            self.put(at + 12, &(flags | more));
            self.put(at + 14, &self.next[queue].clone());
        }
        let available = self.rings[queue] + AVAILABLE;
        self.put(available + 4 + 2 * u64::from(self.offered[queue] % QUEUE), &head);
        self.offered[queue] = self.offered[queue].wrapping_add(1);
        self.put(available + 2, &self.offered[queue].clone());
    }

    fn put<T: vm_memory::ByteValued>(&self, at: u64, value: &T) {
        self.guest.write_obj(*value, GuestAddress(at)).expect("in memory");
    }

    fn offer_extent(&mut self) {
        for (word, at) in [0, SLOTS, LINES, 0u32].iter().zip((EXTENT..).step_by(4)) {
            self.put(at, word);
        }
        let written = 64 + 64 * LINES + 16 * SLOTS;
        let pieces = [(EXTENT, 16 + 128 * SLOTS, 0), (GRANTS, written, 2)];
        self.offer(wire::VQ_TABLE, &pieces);
        self.process(wire::VQ_TABLE);
    }

    fn process(&mut self, queue: usize) {
        self.turn(Some(queue));
        self.publish();
    }

    fn turn(&mut self, queue: Option<usize>) {
        let mut context = Context { engine: &mut self.coupling, now: self.now };
        self.backend.device_mut().turn(queue, &mut context);
    }

    fn publish(&mut self) {
        let changed = self.coupling.take_changed();
        for vm in changed.into_iter().filter(|vm| vm.number == 0) {
            self.backend.device_mut().publish(&self.coupling.grants(vm));
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Slot { slot, report, change } => self.write_slot(*slot, report, *change),
            Step::Ring { op, slot, generation } => {
                let message = [u32::from(*op), (*slot).into(), (*generation).into(), 0u32];
                for (word, at) in message.iter().zip((BELLS..).step_by(4)) {
                    self.put(at, word);
                }
                self.offer(wire::VQ_DOORBELL, &[(BELLS, 16, 0)]);
                self.process(wire::VQ_DOORBELL);
            }
            Step::RingRaw { at, length, writable } => {
                let piece = (u64::from(*at), (*length).into(), u16::from(*writable) * 2);
                self.offer(wire::VQ_DOORBELL, &[piece]);
                self.process(wire::VQ_DOORBELL);
            }
            Step::Wait { micros } => {
                self.now += u64::from(*micros);
                self.coupling.tick(self.now);
                self.publish();
            }
            Step::Poll { on } => self.poll(*on),
            Step::Move { queue, place, size, stopped } => {
                self.move_rings(u32::from(queue % 3), *place, *size, *stopped);
            }
            Step::Other { .. } => {}
            Step::Again => {
                self.backend.set_vring_enable(0, false).expect("queue");
                self.backend.set_vring_enable(0, true).expect("queue");
                self.process(wire::VQ_TABLE);
            }
            Step::Couple { on } => {
                let mut change = ccc_settings::Changes::default();
                change.set("coupled", (*on).into()).expect("a switch");
                self.coupling.change_vm("a", &change).expect("there");
                let mut context = Context { engine: &mut self.coupling, now: self.now };
                self.backend.device_mut().remap(RemapReason::Routes, &mut context);
            }
        }
    }

    /// What is served stays where it is; what is stopped moves as a driver does it that goes on there.
    fn move_rings(&mut self, queue: u32, place: u16, size: u16, stopped: bool) {
        let from = self.rings[queue as usize];
        let to = 16 * (u64::from(place) % ((MEMORY as u64 - RINGS) / 16));
        let served = self.backend.device_mut().queue(queue as usize).map(|queue| queue.is_ready());
        if !stopped {
            // A ring in disorder has ended it.
            if served != Some(true) {
                return;
            }
            let is_resized = self.backend.set_vring_num(queue, size.into()).is_ok();
            assert!(!is_resized || size == QUEUE);
            assert_eq!(set_rings(&mut self.backend, queue, to), to == from);
            return;
        }
        self.backend.set_vring_enable(queue, false).expect("queue");
        // What is not aligned moves nothing.
        assert!(!set_rings(&mut self.backend, queue, to + 1));
        let mut rings = [0; RINGS as usize];
        self.guest.read_slice(&mut rings, GuestAddress(from)).expect("in memory");
        self.guest.write_slice(&rings, GuestAddress(to)).expect("in memory");
        assert!(set_rings(&mut self.backend, queue, to));
        self.rings[queue as usize] = to;
        self.backend.set_vring_enable(queue, true).expect("queue");
        self.process(queue as usize);
    }

    fn poll(&mut self, on: bool) {
        let device = self.backend.device_mut();
        let found = if on {
            device.begin_poll();
            device.has_messages()
        } else {
            device.end_poll()
        };
        if found {
            self.process(wire::VQ_DOORBELL);
        }
    }

    fn write_slot(&self, slot: u8, r: &SoundReport, change: Option<(u8, u8)>) {
        let at = EXTENT + 16 + 128 * u64::from(u32::from(slot) % SLOTS);
        self.put(at, &0u32);
        self.put(at + 4, &(r.state % 5));
        self.put(at + 5, &r.flags);
        self.put(at + 6, &(r.priority % 2560 + 1));
        self.put(at + 8, &r.acked);
        self.put(at + 16, &r.acked);
        self.put(at + 24, &r.grown);
        for (offset, value) in [(28, r.events), (30, r.timeouts), (32, r.undos), (34, r.beta)] {
            self.put(at + offset, &value);
        }
        for (offset, value) in [
            (36, r.epoch),
            (40, r.cwnd),
            (44, r.ssthresh),
            (48, r.srtt),
            (52, r.srtt),
            (56, r.cwnd),
        ] {
            self.put(at + offset, &value);
        }
        self.put(at + 60, &r.mss.max(88));
        self.put(at + 64, &u32::from(r.generation));
        self.put(at + 68, &4u8);
        self.put(at + 96, &if r.far { 10u8 } else { 192 });
        if let Some((offset, byte)) = change {
            self.put(at + u64::from(offset % 128), &byte);
        }
    }
}

fuzz_target!(|steps: Vec<Step>| LASTING.with_borrow_mut(|lasting| {
    let mut world = World::new(lasting);
    run(&mut world, &steps);
    lasting.given = world.backend.device_mut().set_memory(Memory::default());
}));

fn run(world: &mut World<'_>, steps: &[Step]) {
    let mut other = Report {
        cwnd_bytes: 14480,
        active: true,
        cwnd_limited: true,
        srtt_us: 50_000,
        min_rtt_us: 50_000,
        ..Report::default()
    };
    assert_eq!(GroupConfig::default().policy, ccc_core::PolicyKind::default());
    let flow = world.coupling.register(1, 1, 0, &other, false).expect("sound");
    world.offer_extent();
    for step in steps.iter().take(200) {
        world.step(step);
        if let Step::Other { acked, event } = step {
            other.acked_limited_bytes += u64::from(*acked);
            other.delivered_bytes += u64::from(*acked);
            other.congestion_events = other.congestion_events.wrapping_add(u16::from(*event));
            world.coupling.update(world.now, flow, &other).expect("sound");
        }
        let count = world.backend.device().count_flows(&world.coupling);
        assert!(count.coupled <= count.all && count.all <= SLOTS as usize);
        assert_eq!(world.coupling.flows(), count.coupled + 1);
    }
    // The other guest is heard, has a part, and it is not nothing.
    world.coupling.update(world.now, flow, &other).expect("sound");
    let grant = world.coupling.grant(1, 0);
    assert!(grant.coupled && grant.level > 0);
    world.backend.reset_device().expect("reset");
    world.turn(None);
    assert_eq!((world.backend.device().flows(), world.coupling.flows()), (0, 1));
}
