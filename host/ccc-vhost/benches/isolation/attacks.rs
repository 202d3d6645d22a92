// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What another VM's front end, its guest, or an operator does.
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use ccc_proto::wire::{self, Lend};
use serde_json::json;
use vhost::VhostBackend;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EFD_SEMAPHORE, EventFd};

use crate::support::{
    daemon::Daemon,
    driver::{Chunk, Driver, report},
    frontend::{FrontEnd, Mode, QUEUE, guest_of},
    operator::Operator,
};

/// One way to hold others up.
pub struct Attack {
    /// The finding.
    pub row: &'static str,
    pub name: &'static str,
    pub run: fn(&Target, &AtomicBool),
}

pub const ALL: [Attack; 15] = [
    Attack { row: "T1", name: "half messages", run: half_messages },
    Attack { row: "T1", name: "answers not read", run: answers_not_read },
    Attack { row: "T2", name: "calls not acknowledged", run: calls_not_acknowledged },
    Attack { row: "T3", name: "tables that loop", run: tables_that_loop },
    Attack { row: "T4", name: "rescans", run: rescans },
    Attack { row: "T4", name: "released and lent", run: released_and_lent },
    Attack { row: "T5", name: "table queue refilled", run: table_queue_refilled },
    Attack { row: "T6", name: "chunks of one slot", run: chunks_of_one_slot },
    Attack { row: "T7", name: "kicks without end", run: kicks_without_end },
    Attack { row: "T7", name: "messages without end", run: messages_without_end },
    Attack { row: "T8", name: "connections", run: connections },
    Attack { row: "T8", name: "second front ends", run: second_front_ends },
    Attack { row: "T8", name: "refused requests", run: refused_requests },
    Attack { row: "T8", name: "refused messages", run: refused_messages },
    Attack { row: "F2", name: "1,000 PUTs of VMs", run: puts },
];

/// Memory of a guest that lends all slots there are.
const LARGE: usize = 32 << 20;
const SLOTS: u32 = 65_536;
const INDIRECT: u16 = 4;
/// Chunks of one slot, of which a device has to look up many.
const CHUNKS: u32 = 20_000;

/// Where the daemon is attacked.
pub struct Target {
    attacker: PathBuf,
    control: PathBuf,
    dir: PathBuf,
}

/// A daemon for both VMs, which logs what an operator's does.
pub fn daemon() -> Daemon {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let own = format!("[daemon]\ncontrol = \"{}\"\nstate = \"{}\"\n", at("control"), at("state"));
    let vms = [("victim", 1.0, "default"), ("attacker", 1.0, "default")];
    Daemon::start_logging("info", dir, &vms, &own)
}

impl Target {
    pub fn of(daemon: &Daemon) -> Target {
        let (attacker, control) = (daemon.socket("attacker"), daemon.socket("control"));
        Target { attacker, control, dir: daemon.dir.path().to_owned() }
    }

    fn driver(&self, mode: Mode) -> Driver {
        Driver::connect(&self.attacker, mode)
    }

    /// One that has lent all its slots.
    fn large(&self) -> (Driver, Chunk) {
        let mut driver = Driver::connect_with(&self.attacker, Mode::Eventfd, guest_of(LARGE));
        let chunk = driver.lend(0, SLOTS, 1);
        (driver, chunk)
    }
}

fn goes_on(stop: &AtomicBool) -> bool {
    !stop.load(Ordering::Relaxed)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn half_messages(target: &Target, stop: &AtomicBool) {
    while goes_on(stop) {
        let mut stream = UnixStream::connect(&target.attacker).unwrap();
        stream.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 8]).unwrap();
        // Until it is given up, or for a moment.
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let _ = stream.read(&mut [0; 1]);
    }
}

fn answers_not_read(target: &Target, stop: &AtomicBool) {
    while goes_on(stop) {
        let mut stream = UnixStream::connect(&target.attacker).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        while goes_on(stop) && stream.write_all(&words(&[1, 1, 0])).is_ok() {}
    }
}

fn calls_not_acknowledged(target: &Target, stop: &AtomicBool) {
    let mut driver = target.driver(Mode::InBand);
    let kick = EventFd::new(0).unwrap();
    driver.front.set_kick(wire::VQ_DOORBELL, &kick);
    while goes_on(stop) {
        driver.want_call(wire::VQ_DOORBELL);
        driver.reuse_bell(wire::OP_UPDATE, 0, 1);
        kick.write(1).unwrap();
        driver.settle();
    }
}

fn tables_that_loop(target: &Target, stop: &AtomicBool) {
    let guest = guest_of(LARGE);
    let mut driver = Driver::connect_with(&target.attacker, Mode::Eventfd, guest);
    let entries = u32::from(u16::MAX);
    let table = driver.alloc(16 * entries as usize);
    // The first descriptor is followed by itself.
    driver.write(table, &[table as u32, (table >> 32) as u32, 16, 1]);
    while goes_on(stop) {
        for _ in 0..QUEUE {
            driver.offer(wire::VQ_DOORBELL, &[(table, 16 * entries, INDIRECT)]);
        }
        driver.front.kick(wire::VQ_DOORBELL);
        driver.settle();
    }
}

fn rescans(target: &Target, stop: &AtomicBool) {
    let (mut driver, chunk) = target.large();
    for slot in 0..SLOTS {
        driver.write_slot(&chunk, slot, &report(1));
    }
    while goes_on(stop) {
        driver.reuse_bell(wire::OP_RESCAN, 0, 0);
        driver.front.kick(wire::VQ_DOORBELL);
        driver.settle();
    }
}

fn released_and_lent(target: &Target, stop: &AtomicBool) {
    let (mut driver, chunk) = target.large();
    for slot in 0..SLOTS {
        driver.write_slot(&chunk, slot, &report(1));
    }
    while goes_on(stop) {
        driver.write(chunk.head, &[0u8; 64]);
        driver.reuse_bell(wire::OP_RELEASE, 0, 0);
        driver.offer(wire::VQ_TABLE, &Driver::pieces(&chunk));
        driver.front.kick(wire::VQ_DOORBELL);
        driver.front.kick(wire::VQ_TABLE);
        driver.settle();
    }
}

fn table_queue_refilled(target: &Target, stop: &AtomicBool) {
    let mut driver = target.driver(Mode::Eventfd);
    let at = driver.alloc(16);
    // Too short for what it says: given back at once.
    let head = driver.offer(wire::VQ_TABLE, &[(at, 16, 0)]);
    driver.front.kick(wire::VQ_TABLE);
    while goes_on(stop) {
        let used = driver.used(wire::VQ_TABLE);
        while driver.offered(wire::VQ_TABLE).wrapping_sub(used) < QUEUE {
            driver.publish(wire::VQ_TABLE, head);
        }
        driver.front.kick(wire::VQ_TABLE);
    }
}

fn chunks_of_one_slot(target: &Target, stop: &AtomicBool) {
    let guest = guest_of(LARGE);
    let mut driver = Driver::connect_with(&target.attacker, Mode::Eventfd, guest);
    driver.lend(0, 1, 1);
    // The same memory again and again: the device holds each chunk in it.
    let some: Vec<Chunk> = (0..QUEUE / 4).map(|_| driver.chunk(0, 1, 0)).collect();
    let mut first = 1;
    while goes_on(stop) && first < CHUNKS && lend_some(&mut driver, &some, &mut first) {}
    while goes_on(stop) {
        driver.reuse_bell(wire::OP_UPDATE, first.saturating_sub(1), 1);
        driver.reuse_bell(wire::OP_RESCAN, 0, 0);
        driver.front.kick(wire::VQ_DOORBELL);
        driver.settle();
    }
}

/// Lends these chunks as the slots from `first` on; whether all were taken.
fn lend_some(driver: &mut Driver, chunks: &[Chunk], first: &mut u32) -> bool {
    for (chunk, slot) in chunks.iter().zip(*first..) {
        let lend =
            Lend { first_slot: slot.into(), slots: 1.into(), lines: 0.into(), reserved: 0.into() };
        driver.write(chunk.reports - 16, &lend);
        driver.write(chunk.head, &[0u8; 64]);
        driver.offer(wire::VQ_TABLE, &Driver::pieces(chunk));
    }
    driver.front.kick(wire::VQ_TABLE);
    let looked = Instant::now();
    while chunks.iter().any(|chunk| driver.status(chunk).0 == wire::LENT_NO) {
        assert!(looked.elapsed() < Duration::from_secs(5), "chunks are not looked at");
        std::thread::yield_now();
    }
    *first += chunks.len() as u32;
    chunks.iter().all(|chunk| driver.status(chunk).0 == wire::LENT_YES)
}

fn kicks_without_end(target: &Target, stop: &AtomicBool) {
    let driver = &mut target.driver(Mode::Eventfd);
    let kicks: Vec<EventFd> = (0..3)
        .map(|queue| {
            let kick = EventFd::new(EFD_SEMAPHORE | EFD_NONBLOCK).unwrap();
            kick.write(1 << 62).unwrap();
            driver.front.set_kick(queue, &kick);
            kick
        })
        .collect();
    while goes_on(stop) && !kicks.is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn messages_without_end(target: &Target, stop: &AtomicBool) {
    let mut driver = target.driver(Mode::Eventfd);
    let chunk = driver.lend(0, 4, 1);
    driver.register(&chunk, 0, 1);
    while goes_on(stop) {
        let used = driver.used(wire::VQ_DOORBELL);
        while driver.offered(wire::VQ_DOORBELL).wrapping_sub(used) < QUEUE {
            driver.write_slot(&chunk, 0, &report(1));
            driver.reuse_bell(wire::OP_UPDATE, 0, 1);
        }
        driver.front.kick(wire::VQ_DOORBELL);
    }
}

fn connections(target: &Target, stop: &AtomicBool) {
    while goes_on(stop) {
        drop(UnixStream::connect(&target.attacker).unwrap());
    }
}

fn second_front_ends(target: &Target, stop: &AtomicBool) {
    let _first = target.driver(Mode::Eventfd);
    connections(target, stop);
}

fn refused_requests(target: &Target, stop: &AtomicBool) {
    let front = FrontEnd::open(&target.attacker, Mode::Eventfd);
    while goes_on(stop) {
        assert!(front.vhost.set_vring_num(9, QUEUE).is_err());
        front.vhost.get_features().unwrap();
    }
}

fn refused_messages(target: &Target, stop: &AtomicBool) {
    let mut driver = target.driver(Mode::Eventfd);
    while goes_on(stop) {
        for _ in 0..QUEUE {
            driver.reuse_bell(77, 0, 0);
        }
        driver.front.kick(wire::VQ_DOORBELL);
        driver.settle();
    }
}

fn puts(target: &Target, stop: &AtomicBool) {
    let put = |number: usize, weight: f64| {
        let socket = target.dir.join(format!("vm{number}"));
        let spec = json!({"socket": socket, "weight": weight});
        Operator::at(&target.control).ask("PUT", &format!("/v1/vms/vm{number}"), Some(&spec));
    };
    let mut weight = 1.0;
    while goes_on(stop) {
        weight = if weight > 100.0 { 1.0 } else { weight + 1.0 };
        std::thread::scope(|scope| {
            for part in 0..4 {
                scope.spawn(move || {
                    (0..250)
                        .take_while(|_| goes_on(stop))
                        .for_each(|n| put(part * 250 + n, weight));
                });
            }
        });
    }
}
