// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The ACK clock of one VM (`guest/linux-ccc/ack_clock.c`), with a list for its tree.
use crate::{path::MSS_BYTES, rules};

/// Where a clock begins.
const START: u64 = (1_u64 << 34).wrapping_neg();

/// The clock, and who waits for it.
#[derive(Debug, Default)]
pub struct AckClock {
    now: u64,
    units: u64,
    driving: u64,
    waiting: Vec<(usize, u64)>,
    waiters: usize,
    /// Flows that are released and have not sent yet.
    pub released: Vec<usize>,
}

/// A flow's part in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release {
    units: u64,
    drives: bool,
    /// It waits for the clock.
    pub waits: bool,
    released_at: u64,
}

fn is_after(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) > 0
}

impl AckClock {
    /// The flow has so many units of the VM's window; with none it takes no part.
    pub fn count(&mut self, flow: usize, own: &mut Release, units: u64, drives: bool) {
        if (units, drives) == (own.units, own.drives) {
            return;
        }
        if units != own.units {
            self.stop(flow, own);
        }
        self.units = self.units - own.units + units;
        self.driving -= if own.drives { own.units } else { 0 };
        self.driving += if drives { units } else { 0 };
        own.units = units;
        own.drives = drives;
    }

    /// Whether others' ACKs release what is granted.
    pub fn runs(&self, own: &Release) -> bool {
        let own_driving = if own.drives { own.units } else { 0 };
        own.units > 0
            && self.driving > own_driving
            && self.driving >= self.units / rules::CLOCK_DRIVERS
    }

    /// The flow has more to send than its window allows; of what it is released,
    /// `debt` packets have been sent already.
    pub fn wait(&mut self, flow: usize, own: &mut Release, debt: u32) {
        if own.units == 0 || own.waits || self.units <= own.units {
            return;
        }
        if self.waiters == 0 {
            self.now = START;
        }
        self.waiters += 1;
        own.waits = true;
        let debt_bytes = u64::from(debt) * u64::from(MSS_BYTES);
        own.released_at = self.now.wrapping_add(rules::clock_time(debt_bytes, own.units));
        self.arm(flow, own);
    }

    fn arm(&mut self, flow: usize, own: &Release) {
        let packet = rules::clock_time(MSS_BYTES.into(), own.units);
        self.waiting.push((flow, own.released_at.wrapping_add(packet)));
    }

    fn disarm(&mut self, flow: usize) {
        self.waiting.retain(|(other, _)| *other != flow);
        self.released.retain(|other| *other != flow);
    }

    /// It waits no more.
    pub fn stop(&mut self, flow: usize, own: &mut Release) {
        if own.waits {
            self.disarm(flow);
            own.waits = false;
            self.waiters -= 1;
        }
    }

    /// Packets released since it was asked last, at most `most`.
    pub fn take(&mut self, flow: usize, own: &mut Release, most: u32) -> u32 {
        if !own.waits || !is_after(self.now, own.released_at) {
            return 0;
        }
        let time = self.now.wrapping_sub(own.released_at);
        let packets = rules::clock_packets(time, own.units, MSS_BYTES);
        if packets > 0 {
            self.disarm(flow);
            let bytes = u64::from(packets) * u64::from(MSS_BYTES);
            own.released_at = own.released_at.wrapping_add(rules::clock_time(bytes, own.units));
            self.arm(flow, own);
        }
        packets.min(most)
    }

    /// So many bytes of a flow of the VM that takes part were acknowledged.
    pub fn tick(&mut self, own: &Release, bytes: u64) {
        if own.units == 0 || self.waiters == 0 {
            return;
        }
        self.now = self.now.wrapping_add(rules::clock_time(bytes, self.units));
        let now = self.now;
        let mut due = Vec::new();
        self.waiting.retain(|one| {
            let waits = is_after(one.1, now);
            due.extend((!waits).then_some(*one));
            waits
        });
        due.sort_by_key(|(_, at)| at.wrapping_sub(START));
        self.released.extend(due.into_iter().map(|(flow, _)| flow));
    }
}
