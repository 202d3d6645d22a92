// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What another VM's front end, its guest, or an operator does.
mod connections;
mod lies;
mod memory;
mod operator;
mod queues;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::support::{
    daemon::Daemon,
    driver::{Driver, Extent, report},
    frontend::{Mode, guest_of},
};

/// One way to hold others up.
pub struct Attack {
    /// The finding.
    pub row: &'static str,
    pub name: &'static str,
    /// Goes on until it is told to stop, and counts what it achieves.
    pub run: fn(&Target, &Attempt),
}

pub const ALL: [Attack; 24] = [
    Attack { row: "F2", name: "1,000 PUTs of VMs", run: operator::puts },
    Attack { row: "F3", name: "memory truncated", run: memory::truncated },
    Attack { row: "F3", name: "1 GiB that ends", run: memory::ended },
    Attack { row: "F4", name: "descriptors exhausted", run: connections::out_of_descriptors },
    Attack { row: "T1", name: "half messages", run: connections::half_messages },
    Attack { row: "T1", name: "answers not read", run: connections::answers_not_read },
    Attack { row: "T2", name: "calls not acknowledged", run: queues::calls_not_acknowledged },
    Attack { row: "T3", name: "tables that loop", run: queues::tables_that_loop },
    Attack { row: "T4", name: "rescans", run: queues::rescans },
    Attack { row: "T4", name: "released and offered", run: queues::released_and_offered },
    Attack { row: "T5", name: "table queue refilled", run: queues::table_queue_refilled },
    Attack { row: "T6", name: "extents of one slot", run: queues::extents_of_one_slot },
    Attack { row: "T7", name: "kicks without end", run: queues::kicks_without_end },
    Attack { row: "T7", name: "messages without end", run: queues::messages_without_end },
    Attack { row: "T8", name: "connections", run: connections::connections },
    Attack { row: "T8", name: "second front ends", run: connections::second_front_ends },
    Attack { row: "T8", name: "refused requests", run: connections::refused_requests },
    Attack { row: "T8", name: "refused messages", run: queues::refused_messages },
    Attack { row: "T9", name: "16,384 flows come and go", run: queues::flows_come_and_go },
    Attack { row: "E1", name: "losses without end", run: lies::losses },
    Attack { row: "E3", name: "losses undone", run: lies::undone },
    Attack { row: "E4", name: "growth without end", run: lies::growth },
    Attack { row: "E5", name: "flows come back", run: lies::returns },
    Attack { row: "T10", name: "GETs with 16,384 flows", run: operator::gets },
];

/// Memory of a guest that offers all slots there are.
const LARGE: usize = 32 << 20;
const SLOTS: u32 = 65_536;
/// Flows that one VM may have.
const FLOWS: u32 = 16_384;

/// Where the daemon is attacked.
pub struct Target {
    attacker: PathBuf,
    control: PathBuf,
    dir: PathBuf,
    pid: u32,
}

/// A daemon for both VMs, which logs what an operator's does.
pub fn daemon() -> Daemon {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let own = format!("[daemon]\ncontrol = \"{}\"\nstate = \"{}\"\n", at("control"), at("state"));
    let vms = [("victim", 1.0, "default"), ("attacker", 1.0, "default")];
    Daemon::start_logging("info", dir, &vms, &own, &[])
}

impl Target {
    pub fn of(daemon: &Daemon) -> Target {
        let (attacker, control) = (daemon.socket("attacker"), daemon.socket("control"));
        Target { attacker, control, dir: daemon.dir.path().to_owned(), pid: daemon.pid() }
    }

    fn driver(&self, mode: Mode) -> Driver {
        Driver::connect(&self.attacker, mode)
    }

    /// One with much memory, but without an extent.
    fn large(&self) -> Driver {
        Driver::connect_with(&self.attacker, Mode::Eventfd, guest_of(LARGE))
    }

    /// One that has offered so many slots, in all of which there are flows.
    fn with_flows(&self, flows: u32) -> (Driver, Extent) {
        let mut driver = self.large();
        let mut extent = driver.extent(0, flows, 1);
        for slot in 0..flows {
            driver.write_slot(&extent, slot, &report(1));
        }
        extent.chain = driver.offer_and_wait(&extent);
        (driver, extent)
    }
}

/// An attack under way.
#[derive(Default)]
pub struct Attempt {
    stop: AtomicBool,
    done: AtomicU64,
}

impl Attempt {
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// So much more was done to the daemon: what that is, each attack knows.
    pub fn did(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}
