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
/// Of these a VM of which nothing is known has so many for its congestion events.
const FIRST: u64 = ONE;
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
    /// The part that no event of others has earned, which is for exits alone.
    unproven: u64,
    /// Up to where others were counted.
    counted: Totals,
    own_bytes: u64,
    all_bytes: u64,
}

impl Budget {
    pub(super) fn new(totals: Totals) -> Budget {
        Budget { saved: MOST, unproven: MOST - FIRST, counted: totals, own_bytes: 0, all_bytes: 0 }
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
        self.unproven = self.unproven.saturating_sub(amount);
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

    /// Pays for an event, if it can.
    pub(super) fn pay_event(&mut self) -> bool {
        let proven = self.saved.saturating_sub(self.unproven);
        self.pay(ONE - self.part(), proven)
    }

    /// Pays for an exit, which takes so much of its part along, if it can.
    pub(super) fn pay_exit(&mut self, of_part: Fraction) -> bool {
        let pays = self.pay(of_part.of(ONE - self.part()), self.saved);
        self.unproven = self.unproven.min(self.saved);
        pays
    }

    fn pay(&mut self, cost: u64, of: u64) -> bool {
        let pays = cost <= of;
        self.saved -= if pays { cost } else { 0 };
        pays
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

#[cfg(test)]
mod tests {
    use super::*;

    fn paid(budget: &mut Budget) -> usize {
        (0..10).take_while(|_| budget.pay_event()).count()
    }

    #[test]
    fn who_has_just_come_pays_for_one_event_and_three_exits() {
        let mut budget = Budget::new(Totals::default());
        assert_eq!(paid(&mut budget), 1);
        let exits = (0..10).take_while(|_| budget.pay_exit(Fraction::ALL)).count();
        assert_eq!(exits, 2, "three, less the event");
    }

    #[test]
    fn who_has_seen_others_lose_pays_for_three() {
        let (mut budget, mut totals) = (Budget::new(Totals::default()), Totals::default());
        for _ in 0..2 {
            totals.add_bytes(1000);
            totals.add_event();
            budget.count(totals, 1000, 1000);
        }
        // None of the bytes have been its own since.
        totals.add_bytes(1 << 40);
        budget.count(totals, 0, 1);
        assert_eq!(paid(&mut budget), 3);
    }
}
