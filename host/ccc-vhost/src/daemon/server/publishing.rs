// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! When VMs see their grants.
//!
//! At once, where somebody waits for an answer and in virtual time.  Else what many
//! reports have changed is published once: when nothing else is to be done, and at the
//! latest when as much time has gone to other things as the last publishing took, or
//! [`PAUSE_US`].
use ccc_core::Micros;
use log::Level;

use prometheus_client::metrics::histogram::Histogram;

use super::{Server, ServerError};
use crate::{
    coupling::{FloorNews, Shortfall},
    event_loop::clock,
};

/// One that took longer, as who is stopped meanwhile does, lets nobody wait longer for the next.
const PAUSE_US: Micros = 1_000;

/// How long updates take, seconds: from a tenth of what one takes on a machine of today to
/// what a guest notices.
const LATENCIES: [f64; 14] = [
    5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 100e-3, 1.0,
];

/// What is left to publish.
#[derive(Debug)]
pub(super) struct Publishing {
    /// When the engine was first used since, if it was.
    since: Option<Micros>,
    /// When others have had their time.
    not_before: Micros,
    /// From there until guests see what came of it.
    pub(super) latency: Histogram,
}

impl Default for Publishing {
    fn default() -> Publishing {
        Publishing { since: None, not_before: 0, latency: Histogram::new(LATENCIES) }
    }
}

impl Publishing {
    /// There is something to publish before the daemon may wait.
    pub(super) fn is_left(&self) -> bool {
        self.since.is_some()
    }

    /// It is time, or there is nothing else to do.
    fn is_time(&self, idle: bool) -> bool {
        self.is_left() && (idle || clock::monotonic() >= self.not_before)
    }

    fn published(&mut self, began: Micros) {
        let ended = clock::monotonic();
        let pause_us = ended.saturating_sub(began).min(PAUSE_US);
        self.not_before = ended + pause_us;
        if let Some(since) = self.since.take() {
            self.latency.observe(ended.saturating_sub(since) as f64 / 1e6);
        }
    }
}

impl Server {
    /// The engine was used; what that has changed is published with what is to come,
    /// unless that has to be at once.
    pub(super) fn publish_soon(&mut self, at_once: bool) -> Result<(), ServerError> {
        self.publishing.since.get_or_insert(self.awake);
        if at_once || self.clock.is_virtual() {
            return self.publish();
        }
        Ok(())
    }

    /// Publishes what is left to, if it is time; `idle` is who has nothing else to do.
    pub(super) fn publish_left(&mut self, idle: bool) -> Result<(), ServerError> {
        if self.publishing.is_time(idle && self.backlog.is_empty()) {
            self.publish()
        } else {
            Ok(())
        }
    }

    /// After the engine was used: every VM sees its grants, the operator is told what
    /// was found, and the clock knows when the engine wants to be woken.
    pub(super) fn publish(&mut self) -> Result<(), ServerError> {
        let began = clock::monotonic();
        for vm in self.coupling.take_changed() {
            if let Some(connection) = self.connection(vm.number) {
                connection.backend().device_mut().publish(&self.coupling.grants(vm));
            }
        }
        for verdict in self.coupling.take_verdicts(self.clock.now()) {
            let level = if verdict.is_against() { Level::Warn } else { Level::Info };
            log::log!(level, "{verdict}");
        }
        self.tell_floors();
        let due = self.coupling.next_deadline().into_iter().chain(self.taps_due).min();
        self.clock.wake_at(due)?;
        self.publishing.published(began);
        Ok(())
    }

    /// Says of which groups the floors have come to be more than there is.
    fn tell_floors(&mut self) {
        for (group, news) in self.coupling.take_floors(self.clock.now()) {
            let Shortfall { floors, delivered } = match news {
                FloorNews::Short(shortfall) => shortfall,
                FloorNews::Met => {
                    log::info!(GROUP = group.as_str(); "group {group}: its floors are met now");
                    continue;
                }
                FloorNews::Room => {
                    log::info!(GROUP = group.as_str(); "group {group}: there is room for its floors now");
                    continue;
                }
            };
            let mbit = |bytes: u64| bytes as f64 * 8.0 / 1e6;
            log::warn!(GROUP = group.as_str();
                "group {group}: its floors cannot be met: those of VMs that want them are {:.2} Mbit/s \
                 together, and all VMs have {:.2}, so each has as much less, and who has no floor next \
                 to nothing; lower floors (cccctl set VM --floor RATE), or move VMs elsewhere",
                mbit(floors), mbit(delivered)
            );
        }
    }
}
