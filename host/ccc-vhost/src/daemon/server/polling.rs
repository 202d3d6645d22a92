// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Looking for messages before the daemon sleeps (`poll_max_us`): a kick and a wake-up take
//! longer than all the rest of an update.
//!
//! After a message its VM's doorbell queue is looked at for a while, in which its driver need
//! not kick.  When that is over the driver is told to kick, the queue is looked at once more,
//! and the VM costs nothing until it is heard again.  All else that the daemon waits for has
//! its turn after each [`SLICE_US`]; while queues wait for another turn, the others are looked
//! at once between two of theirs.
use ccc_core::Micros;
use ccc_proto::wire::VQ_DOORBELL;

use super::{Server, ServerError};
use crate::{
    admin::PollingView,
    event_loop::busy_poll::Counts,
    event_loop::clock::{self, Clock},
    settings::DaemonSettings,
};

/// Time after which it is asked what else there is to do, microseconds: many times what
/// asking takes.
const SLICE_US: Micros = 20;

/// VMs that are looked at.
#[derive(Debug)]
pub(super) struct Polling {
    /// The longest time for which a VM is after its last message; 0 if none ever is.
    most_us: Micros,
    vms: Vec<usize>,
    pub(super) counts: Counts,
}

impl Polling {
    /// Nothing is looked for in virtual time, which stands still until all messages are served.
    pub(super) fn new(settings: &DaemonSettings, clock: &Clock) -> Polling {
        let most_us = if clock.is_virtual() { 0 } else { settings.poll_max_us };
        Polling { most_us, vms: Vec::new(), counts: Counts::default() }
    }

    /// Says that a processor may be busy with this.
    pub(super) fn tell(&self) {
        if self.most_us > 0 {
            let most_us = self.most_us;
            log::info!(
                "polling: up to {most_us} us for a VM's next message, as [daemon] poll_max_us says"
            );
        }
    }

    /// What is told of it to operators, if anything is ever looked for.
    pub(super) fn view(&self) -> Option<PollingView> {
        let load = self.counts.load.ratio(clock::monotonic());
        (self.most_us > 0).then_some(PollingView { max_us: self.most_us, load })
    }

    /// There is something to look at, so the daemon may not sleep.
    pub(super) fn is_on(&self) -> bool {
        !self.vms.is_empty()
    }

    /// A VM's front end is gone.
    pub(super) fn forget(&mut self, vm: usize) {
        self.vms.retain(|other| *other != vm);
    }
}

impl Server {
    /// Before a VM has its turn: whether it is looked at after that.
    pub(super) fn begin_poll(&mut self, number: usize) {
        let Polling { most_us, vms, .. } = &mut self.polling;
        if *most_us == 0 {
            return;
        }
        let Some(vm) = self.vms.get_mut(&number) else { return };
        let Some(connection) = &vm.connection else { return };
        let mut backend = connection.backend();
        let device = backend.device_mut();
        if device.has_messages() && vm.window.take(self.awake, *most_us) && device.begin_poll() {
            vms.push(number);
        }
    }

    /// Looks for messages for a slice of time, at least once, and has them served.
    pub(super) fn poll(&mut self) -> Result<(), ServerError> {
        if !self.polling.is_on() {
            return Ok(());
        }
        let began = clock::monotonic();
        let mut now = began;
        loop {
            for vm in self.look(now) {
                self.see_ends()?;
                self.turn(vm, Some(VQ_DOORBELL), None)?;
                self.see_faults()?;
            }
            self.publish_left(false)?;
            now = clock::monotonic();
            if !self.polling.is_on() || !self.backlog.is_empty() || now >= began + SLICE_US {
                break;
            }
            std::hint::spin_loop();
        }
        self.polling.counts.spend(now, now.saturating_sub(began));
        self.see_faults()
    }

    /// VMs with messages, of those that are looked at; no longer of those whose time is over.
    /// One in the backlog has its turn there.
    fn look(&mut self, now: Micros) -> Vec<usize> {
        let Server { polling, vms, backlog, .. } = self;
        let mut found = Vec::new();
        polling.vms.retain(|number| {
            if backlog.contains(&(*number, VQ_DOORBELL)) {
                return true;
            }
            let Some(vm) = vms.get(number) else { return false };
            let Some(connection) = &vm.connection else { return false };
            let mut backend = connection.backend();
            if backend.device().has_messages() {
                found.push(*number);
                return true;
            }
            let is_over = vm.window.is_over(now);
            if is_over && backend.device_mut().end_poll() {
                backlog.push((*number, VQ_DOORBELL));
            }
            !is_over
        });
        polling.counts.found += found.len() as u64;
        found
    }
}
