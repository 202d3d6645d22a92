// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether a long run goes on: flows that have data and do not send it, seconds in which
//! somebody waits, flows that the daemon still knows when all have left.
use std::collections::BTreeMap;

use crate::{measure::Run, path::Nanos, setup::Setup, tcp::Tcp};

/// How often it is looked.
pub const PERIOD_NS: Nanos = 100_000_000;
/// What a run's numbers are taken by.
pub const SECOND_NS: Nanos = 1_000_000_000;

/// A flow that was seen without progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stall {
    /// Its number.
    pub flow: usize,
    /// When it had last made any.
    pub since: Nanos,
    /// How long it had made none.
    pub lasted: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    delivered_segments: u64,
    since: Nanos,
}

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Steady {
    open: BTreeMap<usize, Progress>,
    /// Looks of this second at which somebody had unsent data.
    waited: u64,
    looks: u64,
    /// The seconds in which somebody had unsent data all the time.
    pub busy_seconds: Vec<usize>,
    /// The longest stall.
    pub longest: Stall,
    /// The most flows known to the daemon while there was none.
    pub left_flows: usize,
    /// Looks at which there was none.
    pub quiet_looks: u64,
}

impl Steady {
    /// A flow connects.
    pub fn opened(&mut self, now: Nanos, flow: usize) {
        self.open.entry(flow).or_insert(Progress { delivered_segments: 0, since: now });
    }

    /// It has gone.
    pub fn closed(&mut self, flow: usize) {
        self.open.remove(&flow);
    }

    /// Looks at all that are open; one without a sender still connects.
    pub fn look<'a>(
        &mut self,
        now: Nanos,
        sender: impl Fn(usize) -> Option<&'a Tcp>,
        known_flows: Option<usize>,
    ) {
        let mut waits = false;
        for (flow, progress) in &mut self.open {
            let tcp = sender(*flow);
            let delivered_segments = tcp.map_or(0, |tcp| tcp.delivered_segments);
            waits |= tcp.is_none_or(|tcp| tcp.available_segments > 0);
            let has_data = tcp.is_none_or(Tcp::has_data);
            if !has_data || delivered_segments != progress.delivered_segments {
                *progress = Progress { delivered_segments, since: now };
            }
            let lasted = now - progress.since;
            if lasted > self.longest.lasted {
                self.longest = Stall { flow: *flow, since: progress.since, lasted };
            }
        }
        if self.open.is_empty() {
            self.quiet_looks += 1;
            self.left_flows = self.left_flows.max(known_flows.unwrap_or(0));
        }
        self.count_look(waits);
    }

    fn count_look(&mut self, waits: bool) {
        const LOOKS: u64 = SECOND_NS / PERIOD_NS;
        self.waited += u64::from(waits);
        self.looks += 1;
        if self.looks % LOOKS == 0 {
            if self.waited == LOOKS {
                self.busy_seconds.push((self.looks / LOOKS - 1) as usize);
            }
            self.waited = 0;
        }
    }

    /// What was delivered in the busy seconds, of what the link carries in them.
    pub fn goodput_of_link(&self, setup: &Setup, run: &Run) -> f64 {
        let bytes_in = |second: &usize| run.vm_bytes.iter().map(|vm| vm[*second]).sum::<u64>();
        let delivered: u64 = self.busy_seconds.iter().map(bytes_in).sum();
        delivered as f64 / (setup.payload_bytes_per_s() * self.busy_seconds.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_gets_nothing_through_stalls_and_none_after_it_has_left() {
        let mut steady = Steady::default();
        steady.opened(0, 7);
        (1..=60).for_each(|look| steady.look(look * PERIOD_NS, |_| None, Some(1)));
        assert_eq!((steady.longest.flow, steady.longest.lasted), (7, 6 * SECOND_NS));
        assert_eq!(steady.busy_seconds, [0, 1, 2, 3, 4, 5]);
        assert_eq!((steady.left_flows, steady.quiet_looks), (0, 0));
        steady.closed(7);
        steady.look(61 * PERIOD_NS, |_| None, Some(1));
        assert_eq!((steady.left_flows, steady.quiet_looks), (1, 1));
        assert_eq!(steady.longest.lasted, 6 * SECOND_NS);
    }
}
