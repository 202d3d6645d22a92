// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM's device did and refused.
use std::fmt;

use ccc_core::Micros;
use log::Level;

use crate::{
    device::{log_limit::Limiter, strangers::Strangers},
    event_loop::clock,
};

/// Lines at once about requests of a front end.
const REQUEST_LINES: u64 = 10;

/// What kind of thing was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An extent on the table queue.
    Extent,
    /// A message of the wrong form.
    Message,
    /// A message about an earlier use of its slot.
    Stale,
    /// A slot that was being written all the time.
    Torn,
    /// A report out of range.
    Report,
    /// A flow that cannot be coupled.
    Flow,
    /// A flow for whose group there is no grant line left.
    Line,
    /// Guest memory that is not there.
    Memory,
    /// A queue that contradicts itself.
    Queue,
    /// A request of the front end.
    Request,
    /// A flow over one of the operator's limits.
    Limit,
}

/// Names of the kinds, in their order.
pub const KINDS: [&str; 11] = [
    "extents", "messages", "stale", "torn", "reports", "flows", "lines", "memory", "queue",
    "requests", "limits",
];

/// What reports tell of, of all flows, coupled or not.  Sums wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Congestion events.
    pub congestion_events: u64,
    /// Those of the bytes whose flow knew its round-trip time.
    pub rtt_bytes: u64,
    /// Smoothed round-trip times, one for each of those, microseconds.
    pub rtt_byte_us: u128,
}

impl Told {
    /// Adds what another report tells.
    fn add(&mut self, more: &Told) {
        self.delivered_bytes = self.delivered_bytes.wrapping_add(more.delivered_bytes);
        self.congestion_events += more.congestion_events;
        self.rtt_bytes = self.rtt_bytes.wrapping_add(more.rtt_bytes);
        self.rtt_byte_us = self.rtt_byte_us.wrapping_add(more.rtt_byte_us);
    }
}

/// Counts of one VM, from the daemon's start on.
#[derive(Debug)]
pub struct Counters {
    /// Messages taken from the doorbell queue.
    pub messages: u64,
    /// Flows registered.
    pub registered: u64,
    /// Reports handed to the engine for registered flows.
    pub updated: u64,
    /// Congestion events that coupled flows told of.
    pub events: u64,
    /// What all flows told of.
    pub told: Told,
    /// Flows that left.
    pub left: u64,
    /// Times all slots were scanned.
    pub rescans: u64,
    /// Grant lines written.
    pub published: u64,
    /// Who could not speak for it.
    pub strangers: Strangers,
    refused: [u64; KINDS.len()],
    /// When something was refused last that is somebody's fault, by the machine's time.
    last_fault: Option<Micros>,
    /// When a flow was over a limit last, by the machine's time, and that limit's key.
    last_limit: Option<(Micros, &'static str)>,
    vm: String,
    /// What the guest causes, by the time it lives in.
    of_guest: Limiter,
    /// What the front end causes, by the machine's time.
    of_front_end: Limiter,
}

impl Counters {
    /// Those of a VM, of which nothing was counted.
    pub fn new(vm: &str) -> Counters {
        Counters {
            messages: 0,
            registered: 0,
            updated: 0,
            events: 0,
            told: Told::default(),
            left: 0,
            rescans: 0,
            published: 0,
            strangers: Strangers::default(),
            refused: [0; KINDS.len()],
            last_fault: None,
            last_limit: None,
            vm: vm.to_owned(),
            of_guest: Limiter::new(1),
            of_front_end: Limiter::new(REQUEST_LINES),
        }
    }

    /// Name of the VM.
    pub fn vm(&self) -> &str {
        &self.vm
    }

    /// Takes what a report of a flow tells that is coupled, or is not.
    pub fn take(&mut self, told: &Told, coupled: bool) {
        self.told.add(told);
        self.events += if coupled { told.congestion_events } else { 0 };
    }

    /// How often this was refused.
    pub fn refused(&self, kind: Kind) -> u64 {
        self.refused[kind as usize]
    }

    /// How often each kind was refused.
    pub fn refused_by_kind(&self) -> [(&'static str, u64); KINDS.len()] {
        std::array::from_fn(|kind| (KINDS[kind], self.refused[kind]))
    }

    /// How often anything was refused.
    pub fn all_refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// How long ago something was refused last that is somebody's fault.
    pub fn since_fault(&self) -> Option<Micros> {
        self.last_fault.map(|last| clock::monotonic().saturating_sub(last))
    }

    /// A flow is over the limit of this key of `[daemon]`, whether it was told before or not.
    pub fn is_over(&mut self, key: &'static str) {
        self.last_limit = Some((clock::monotonic(), key));
    }

    /// How long ago a flow was over a limit last, and that limit's key.
    pub fn since_limit(&self) -> Option<(Micros, &'static str)> {
        self.last_limit.map(|(last, key)| (clock::monotonic().saturating_sub(last), key))
    }

    fn count(&mut self, kind: Kind) {
        self.refused[kind as usize] += 1;
        if !matches!(kind, Kind::Torn | Kind::Stale | Kind::Line | Kind::Limit) {
            self.last_fault = Some(clock::monotonic());
        }
    }

    /// Counts a refusal and says why, but not more than once a second.
    pub fn refuse(&mut self, now: Micros, kind: Kind, why: &dyn fmt::Display) {
        self.count(kind);
        // No fault: a processor of the guest stood still while it wrote, and another message
        // follows; or the slot is another flow's by now, or nobody's.
        let level =
            if matches!(kind, Kind::Torn | Kind::Stale) { Level::Debug } else { Level::Warn };
        if log::log_enabled!(level) {
            self.of_guest.say(level, &self.vm, now, why);
        }
    }

    /// Counts a request that was refused.
    pub fn refuse_request(&mut self, why: &dyn fmt::Display) {
        self.count(Kind::Request);
        self.warn(why);
    }

    /// Says what a front end caused, but not as often as it likes.
    pub fn warn(&mut self, what: &dyn fmt::Display) {
        self.of_front_end.say(Level::Warn, &self.vm, clock::monotonic(), what);
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { messages, registered, updated, left, rescans, published, .. } = self;
        write!(
            f,
            "messages {messages}, registered {registered}, updated {updated}, left {left}, \
             rescans {rescans}, lines written {published}, refused:"
        )?;
        KINDS.iter().zip(self.refused).try_for_each(|(name, count)| write!(f, " {name} {count}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_kind() {
        let mut counters = Counters::new("a");
        for now in 0..5 {
            counters.refuse(now, Kind::Torn, &"torn");
        }
        assert_eq!(counters.refused(Kind::Torn), 5);
        assert_eq!(counters.since_fault(), None, "nobody's fault");
        counters.refuse(5, Kind::Message, &"bad");
        assert!(counters.since_fault().is_some_and(|since| since < 60_000_000));
        assert!(counters.to_string().contains("messages 1 stale 0 torn 5"));
    }
}
