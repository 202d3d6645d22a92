// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Many VMs at the real daemon, all in one group.
use std::time::Duration;

use ccc_proto::wire;

use crate::support::{
    daemon::Daemon,
    driver::{Driver, Extent, report},
    frontend::{Mode, guest_of},
};

/// Guest memory below an extent: rings and messages.
const BELOW: usize = 1 << 18;
/// A slot's report, its grant, and what lies around them.
const SLOT: usize = 160;

/// Time in which what was reported is published, with nothing else to do.
const SETTLED: Duration = Duration::from_millis(2);

/// As services and shells begin if nobody says anything of limits: so many open files, more only
/// if they raise that, up to what this machine lets them.
const LIMITED: [&str; 2] = ["prlimit", "--nofile=1024:"];
const CALLGRIND: [&str; 2] = ["valgrind", "--tool=callgrind"];

/// One VM with flows in its slots.
pub struct Member {
    pub driver: Driver,
    pub extent: Extent,
    reports: Vec<wire::Report>,
    /// Slots from one flow to the next.
    apart: usize,
    next: usize,
    /// Kicks that its device wanted.
    pub kicks: u64,
}

/// A daemon and its VMs.
pub struct Fleet {
    pub daemon: Daemon,
    pub members: Vec<Member>,
}

impl Member {
    fn connect(daemon: &Daemon, name: &str) -> Member {
        Member::connect_for(daemon, name, 256)
    }

    /// One with room for so many flows, which has none yet.
    pub fn connect_for(daemon: &Daemon, name: &str, slots: usize) -> Member {
        let guest = guest_of((BELOW + slots * SLOT).next_multiple_of(4096));
        let driver = Driver::connect_with(&daemon.socket(name), Mode::Eventfd, guest);
        let extent =
            Extent { first: 0, slots: 0, head: 0, reports: 0, lines: 0, grants: 0, chain: 0 };
        Member { driver, extent, reports: Vec::new(), apart: 1, next: 0, kicks: 0 }
    }

    /// Begins so many flows, as ones that ran before.
    pub fn begin(&mut self, flows: usize) {
        self.begin_apart(flows, 1);
    }

    /// The same, each so many slots behind the one before.
    pub fn begin_apart(&mut self, flows: usize, apart: usize) {
        self.apart = apart;
        let mut extent = self.driver.extent(0, (flows * apart) as u32, 1);
        self.reports = (0..flows).map(|_| report(1)).collect();
        for (flow, report) in self.reports.iter().enumerate() {
            self.driver.write_slot(&extent, (flow * apart) as u32, report);
        }
        extent.chain = self.driver.offer_and_wait(&extent);
        self.extent = extent;
    }

    /// All its flows leave, each by a message.
    pub fn end(&mut self) {
        for (flow, report) in self.reports.iter_mut().enumerate() {
            let slot = (flow * self.apart) as u32;
            report.state = wire::STATE_FREE;
            self.driver.write_slot(&self.extent, slot, report);
            self.driver.reuse_bell(wire::OP_LEAVE, slot, 1);
            while self.driver.offered(1).wrapping_sub(self.driver.used(1)) >= 128 {
                self.driver.front.kick(wire::VQ_DOORBELL);
                std::thread::yield_now();
            }
        }
        self.driver.front.kick(wire::VQ_DOORBELL);
        self.drain();
    }

    /// Makes one report available: of the next flow, which has grown and whose round-trip
    /// time has changed, so that each VM's level does.
    pub fn offer(&mut self) {
        let slot = self.write();
        self.tell(slot);
    }

    /// Writes it into its slot, of which its device is not told yet.
    pub fn write(&mut self) -> usize {
        let slot = self.next;
        self.next = (slot + 1) % self.reports.len();
        let report = &mut self.reports[slot];
        report.acked_limited_bytes = (report.acked_limited_bytes.get() + 1448).into();
        report.delivered_bytes = (report.delivered_bytes.get() + 1448).into();
        report.srtt_us = (report.srtt_us.get() ^ 1024).into();
        report.cwnd_growth_bytes = report.cwnd_growth_bytes.get().wrapping_add(1448).into();
        self.driver.write_slot(&self.extent, slot as u32, report);
        slot
    }

    /// Makes the message available that its device is to look at a slot.
    pub fn tell(&mut self, slot: usize) {
        self.driver.reuse_bell(wire::OP_UPDATE, slot as u32, 1);
    }

    /// Its first flow has nothing to send.
    pub fn rest(&mut self) {
        self.reports[0].flags = 0;
        self.driver.write_slot(&self.extent, 0, &self.reports[0]);
        self.driver.reuse_bell(wire::OP_UPDATE, 0, 1);
        self.kick(1);
        self.drain();
    }

    /// Kicks its device, if that wants it for one of the last `offered` messages.
    pub fn kick(&mut self, offered: u16) {
        let (now, event) = (self.driver.offered(1), self.driver.kick_wanted_at(1));
        if now.wrapping_sub(event).wrapping_sub(1) < offered {
            self.kicks += 1;
            self.driver.front.kick(wire::VQ_DOORBELL);
        }
    }

    /// Waits until all messages are taken.
    pub fn drain(&self) {
        while self.waiting() > 0 {
            std::thread::yield_now();
        }
    }

    /// Messages that are not taken yet.
    pub fn waiting(&self) -> u16 {
        self.driver.offered(1).wrapping_sub(self.driver.used(1))
    }

    /// The level it reads.
    pub fn level(&self) -> u64 {
        self.driver.line(&self.extent, 0).level.get()
    }
}

impl Fleet {
    /// So many VMs with so many flows each.
    pub fn start(vms: usize, flows: usize) -> Fleet {
        Fleet::start_with(vms, flows, "")
    }

    /// The same, with settings.
    pub fn start_with(vms: usize, flows: usize, settings: &str) -> Fleet {
        let mut fleet = Fleet::empty(vms, settings);
        let names = fleet.names();
        fleet.members = names.iter().map(|name| Member::connect(&fleet.daemon, name)).collect();
        fleet.members.iter_mut().for_each(|member| member.begin(flows));
        fleet
    }

    /// A daemon for so many VMs, of which none is there; under callgrind if that is to
    /// write a file (`CALLGRIND_OUT`).
    pub fn empty(vms: usize, settings: &str) -> Fleet {
        let names: Vec<String> = (0..vms).map(|number| format!("vm{number:04}")).collect();
        let configured: Vec<_> = names.iter().map(|name| (name.as_str(), 1.0, "path")).collect();
        let file = std::env::var("CALLGRIND_OUT").map(|out| format!("--callgrind-out-file={out}"));
        let by = file
            .as_ref()
            .map_or_else(|_| LIMITED.to_vec(), |file| vec![CALLGRIND[0], CALLGRIND[1], file]);
        let groups = format!("{settings}\n[group.path]\n");
        Fleet { daemon: Daemon::measured(&configured, &groups, &by), members: Vec::new() }
    }

    pub fn names(&self) -> Vec<String> {
        let vms = std::fs::read_dir(self.daemon.dir.path()).unwrap();
        let names = vms.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("vm")).collect();
        names.sort_unstable();
        names
    }

    /// Each VM reports, and all of that is published.
    pub fn refresh(&mut self) {
        for member in &mut self.members {
            member.offer();
            member.kick(1);
            member.drain();
        }
        std::thread::sleep(SETTLED);
    }

    /// Processor time of the daemon while something is done.
    pub fn worked(&mut self, done: impl FnOnce(&mut Fleet)) -> Duration {
        let before = self.daemon.worked();
        done(self);
        self.daemon.worked() - before
    }
}
