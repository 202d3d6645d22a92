// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What one front end does costs no other VM its daemon, nor its turn.
#![allow(clippy::unwrap_used)]
mod support;

use std::{fs::File, io::Write, os::fd::AsFd};

use ccc_proto::wire;
use rustix::fs::{FallocateFlags, MemfdFlags, OFlags};
use support::{
    daemon::{Daemon, until},
    driver::{Chunk, Driver},
    frontend::{BASE, Guest, MEMORY, Mode, file_of, guest, guest_in, memfd},
};

const TWO: [(&str, f64, &str); 2] = [("a", 1.0, "default"), ("b", 1.0, "default")];
const PAGE: u64 = 4096;

/// The VM that has to be served whatever the other does.
struct Victim {
    driver: Driver,
    chunk: Chunk,
    generation: u32,
}

impl Victim {
    fn new(daemon: &Daemon) -> Victim {
        let mut driver = Driver::connect(&daemon.socket("b"), Mode::InBand);
        let chunk = driver.lend(0, 4, 1);
        Victim { driver, chunk, generation: 0 }
    }

    /// A flow begins, which the daemon does before it answers the kick.
    fn is_served(&mut self) {
        self.generation += 1;
        self.driver.register(&self.chunk, 0, self.generation);
        assert!(self.driver.accepted(&self.chunk, 0, self.generation), "not served");
    }
}

/// A daemon, the attacker with a chunk of four slots, and the victim.
fn faulty(guest: Guest) -> (Daemon, Driver, Chunk, Victim) {
    let daemon = Daemon::start(&TWO);
    let victim = Victim::new(&daemon);
    let mut driver = Driver::connect_with(&daemon.socket("a"), Mode::Eventfd, guest);
    let chunk = driver.lend(0, 4, 1);
    driver.register(&chunk, 1, 5);
    (daemon, driver, chunk, victim)
}

fn is_the_vms_own_trouble(daemon: &mut Daemon, victim: &mut Victim) {
    daemon.says("VM a: disconnected: its memory cannot be used any more");
    victim.is_served();
    assert!(daemon.running());
    // It may come back, with memory that is there.
    let mut again = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    let chunk = again.lend(0, 4, 1);
    again.register(&chunk, 1, 5);
    until("served again", || again.accepted(&chunk, 1, 5));
}

#[test]
fn f3_memory_that_is_truncated_costs_the_vm_that_does_it() {
    for length in [0, MEMORY as u64 / 8] {
        let (mut daemon, mut driver, ..) = faulty(guest());
        driver.offer_bell(wire::OP_RESCAN, 0, 0);
        file_of(&driver.guest).set_len(length).unwrap();
        driver.front.kick(wire::VQ_DOORBELL);
        let mut victim = Victim::new(&daemon);
        is_the_vms_own_trouble(&mut daemon, &mut victim);
    }
}

#[test]
fn f3_memory_that_is_gone_when_another_vm_is_served_costs_its_own() {
    let (mut daemon, driver, _, mut victim) = faulty(guest());
    file_of(&driver.guest).set_len(0).unwrap();
    // The group's other VM has a flow more: a new line for the first.
    victim.is_served();
    is_the_vms_own_trouble(&mut daemon, &mut victim);
}

#[test]
fn f3_a_log_of_written_pages_that_is_truncated_costs_the_vm_that_does_it() {
    let (mut daemon, mut driver, _, mut victim) = faulty(guest());
    let log = driver.front.log();
    log.set_len(0).unwrap();
    driver.offer_bell(wire::OP_RESCAN, 0, 0);
    driver.front.kick(wire::VQ_DOORBELL);
    victim.is_served();
    is_the_vms_own_trouble(&mut daemon, &mut victim);
}

/// A file on a tmpfs of so many bytes, which nobody else sees.
fn small_tmpfs(bytes: u64) -> Option<(rustix::fd::OwnedFd, File)> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
        fsopen,
    };
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_set_string(context.as_fd(), "size", bytes.to_string()).ok()?;
    fsconfig_create(context.as_fd()).ok()?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = fsmount(context.as_fd(), flags, MountAttrFlags::empty()).ok()?;
    let create = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let file = rustix::fs::openat(&mount, "memory", create, mode).ok()?;
    Some((mount, File::from(file)))
}

#[test]
fn f3_a_hole_in_a_full_tmpfs_costs_the_vm_that_makes_it() {
    let bytes = MEMORY as u64;
    let Some((mount, file)) = small_tmpfs(bytes + 16 * PAGE) else {
        eprintln!("skipped: mounting a tmpfs needs CAP_SYS_ADMIN");
        return;
    };
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
    let guest = guest_in(vec![(BASE, MEMORY, file)]);
    let (mut daemon, mut driver, chunk, mut victim) = faulty(guest);
    driver.offer_bell(wire::OP_RESCAN, 0, 0);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let page = (chunk.reports - BASE) / PAGE * PAGE;
    rustix::fs::fallocate(file_of(&driver.guest), hole, page, PAGE).unwrap();
    let create = OFlags::CREATE | OFlags::RDWR;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let mut filler = File::from(rustix::fs::openat(&mount, "filler", create, mode).unwrap());
    while filler.write(&[1; PAGE as usize]).is_ok() {}
    driver.front.kick(wire::VQ_DOORBELL);
    is_the_vms_own_trouble(&mut daemon, &mut victim);
}

#[test]
fn f3_hugetlbfs_without_pages_costs_the_vm_that_uses_it() {
    const HUGE: usize = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let file = match memfd(HUGE, flags) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("skipped: no hugetlbfs here: {error}");
            return;
        }
    };
    let pages = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    if pages.is_ok_and(|pages| pages.trim() != "0") {
        eprintln!("skipped: there are huge pages to have");
        return;
    }
    let at = BASE + (16 << 20);
    let plain = memfd(MEMORY, MemfdFlags::CLOEXEC).unwrap();
    let guest = guest_in(vec![(BASE, MEMORY, plain), (at, HUGE, file)]);
    let (mut daemon, mut driver, _, mut victim) = faulty(guest);
    // A message that lies where there is no page.
    driver.offer(wire::VQ_DOORBELL, &[(at + 64, 16, 0)]);
    driver.front.kick(wire::VQ_DOORBELL);
    is_the_vms_own_trouble(&mut daemon, &mut victim);
}
