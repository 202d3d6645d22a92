// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How many congestion events of a VM may reduce what others have.
//!
//! Who has a part p of the bytes has that part of the losses, if all lose in one queue.
//! So an event costs its VM 1 - p, and each one of another earns it p, and as much again
//! against chance.  Who loses where nobody else does, or says so, soon cannot pay.
//! What several lose at once is paid in part by each who confirms it.
use crate::fixed::{Fraction, mul_div};

/// An event of somebody who has no bytes.
const ONE: u64 = 1 << 16;
/// Nobody saves more than three.
const MOST: u64 = 3 * ONE;
/// What others' events earn, as a multiple of the VM's part.
const EARN: u64 = 2;
/// Parts are of about so many windows.
const WINDOWS: u64 = 16;

/// What all VMs of a group have had.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    bytes: u64,
    events: u64,
}

impl Totals {
    pub(super) fn add_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.wrapping_add(bytes);
    }

    /// What all have has been reduced.
    pub(super) fn add_event(&mut self) {
        self.events += 1;
    }
}

/// A VM's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    saved: u64,
    /// Up to where others were counted.
    counted: Totals,
    own_bytes: u64,
    all_bytes: u64,
}

impl Budget {
    pub(super) fn new(totals: Totals) -> Budget {
        Budget { saved: MOST, counted: totals, own_bytes: 0, all_bytes: 0 }
    }

    /// Takes what was delivered to it, and what the others have had since; how many
    /// events of theirs.
    pub(super) fn count(&mut self, totals: Totals, own_bytes: u64, window_bytes: u64) -> u64 {
        self.own_bytes = self.own_bytes.saturating_add(own_bytes);
        let all_bytes = totals.bytes.wrapping_sub(self.counted.bytes);
        self.all_bytes = self.all_bytes.saturating_add(all_bytes);
        while self.all_bytes > window_bytes.max(1).saturating_mul(WINDOWS) {
            self.own_bytes /= 2;
            self.all_bytes /= 2;
        }
        let events = totals.events - self.counted.events;
        self.counted = totals;
        if events > 0 {
            self.earn((EARN * self.part()).saturating_mul(events));
        }
        events
    }

    fn earn(&mut self, amount: u64) {
        self.saved = self.saved.saturating_add(amount).min(MOST);
    }

    /// Its part of the bytes, of [`ONE`].
    pub(super) fn part(&self) -> u64 {
        match self.all_bytes {
            0 => 0,
            all => mul_div(ONE, self.own_bytes.min(all), all),
        }
    }

    pub(super) fn part_permille(&self) -> u32 {
        (self.part() * 1000 / ONE) as u32
    }

    /// Pays for so much of an event, if it can.
    pub(super) fn pay(&mut self, of_event: Fraction) -> bool {
        let left = self.saved.checked_sub(of_event.of(ONE - self.part()));
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }

    /// The latest event is its own: it earns nothing.
    pub(super) fn skip_event(&mut self, totals: Totals) {
        self.counted.events = totals.events;
    }

    /// Another one, who has that part, lost at the same time.
    pub(super) fn share_cost(&mut self, part: u64) {
        self.earn(part);
    }
}
