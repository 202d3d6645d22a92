// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The VM that is measured.
use std::{
    os::fd::{AsRawFd, BorrowedFd},
    time::{Duration, Instant},
};

use ccc_proto::wire;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::{
    support::{
        daemon::Daemon,
        driver::{Driver, Extent, report},
        frontend::Mode,
    },
    waits::{PATIENCE, Waits},
};

/// One flow in a group of two VMs.
pub struct Victim {
    driver: Driver,
    extent: Extent,
    acked: u64,
}

impl Victim {
    pub fn new(daemon: &Daemon) -> Victim {
        let mut driver = Driver::connect(&daemon.socket("victim"), Mode::Eventfd);
        let extent = driver.offer_extent(0, 4, 1);
        driver.register(&extent, 0, 1);
        while driver.front.called(wire::VQ_DOORBELL) {}
        Victim { driver, extent, acked: 0 }
    }

    /// Time from an update to the call that says it was done.
    fn update(&mut self) -> Duration {
        self.acked += 1448;
        let grown = wire::Report { acked_limited_bytes: self.acked.into(), ..report(1) };
        self.driver.write_slot(&self.extent, 0, &grown);
        self.driver.want_call(wire::VQ_DOORBELL);
        self.driver.reuse_bell(wire::OP_UPDATE, 0, 1);
        let started = Instant::now();
        self.driver.front.kick(wire::VQ_DOORBELL);
        let call = self.driver.front.call_descriptor(wire::VQ_DOORBELL);
        // SAFETY: the descriptor is open for as long as the front end is borrowed.
        let call = unsafe { BorrowedFd::borrow_raw(call.as_raw_fd()) };
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let mut polled = [PollFd::new(&call, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&patience)).unwrap();
        let took = started.elapsed();
        let called = self.driver.front.called(wire::VQ_DOORBELL);
        assert!(called || took >= PATIENCE, "a descriptor without a call was ready");
        took
    }

    /// Updates for a time, a thousand a second.
    pub fn measure(&mut self, time: Duration) -> Waits {
        let started = Instant::now();
        let mut waits = Vec::new();
        while waits.is_empty() || started.elapsed() < time {
            waits.push(self.update());
            std::thread::sleep(Duration::from_millis(1));
        }
        Waits::of(waits)
    }
}
