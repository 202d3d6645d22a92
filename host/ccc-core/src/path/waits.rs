// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What waits in a round trip, whatever acknowledgements are held back and bursts leave gaps.
use crate::{alone::Seen, fixed::Micros};

/// Of so many parts of a round the least sample counts each: an acknowledgement that was
/// held back is no queue, and a gap in it is not the whole round's.
pub(super) const PARTS: Micros = 8;

/// What waits in a round: a mean over its parts of the least sample of each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    part: Micros,
    least_us: Option<Micros>,
    sum_us: Micros,
    parts: Micros,
    /// Of all parts the two shortest, and the longest.
    shortest_us: [Micros; 2],
    longest_us: Micros,
}

impl Waits {
    pub(super) fn add(&mut self, part: Micros, queue_us: Micros) {
        if part != self.part {
            self.end_part();
            self.part = part;
        }
        self.least_us = Some(self.least_us.map_or(queue_us, |least| least.min(queue_us)));
    }

    fn end_part(&mut self) {
        if let Some(least_us) = self.least_us.take() {
            let [first, second] = self.shortest_us;
            self.shortest_us = match self.parts {
                0 => [least_us; 2],
                1 => [first.min(least_us), first.max(least_us)],
                _ => [first.min(least_us), second.min(first.max(least_us))],
            };
            self.longest_us = self.longest_us.max(least_us);
            self.sum_us += least_us;
            self.parts += 1;
        }
    }

    pub(super) fn seen(mut self) -> Option<Seen> {
        self.end_part();
        let queue_us = self.sum_us.checked_div(self.parts)?;
        // The shortest may be what one sample makes of it.
        let [_, shortest_us] = self.shortest_us;
        Some(Seen { queue_us, strays_us: (self.longest_us - shortest_us) / 2 })
    }

    pub(super) fn mean_us(self) -> Option<Micros> {
        self.seen().map(|seen| seen.queue_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_acknowledgement_or_a_gap_is_no_queue() {
        let mut waits = Waits::default();
        for (part, queue_us) in [(0, 90), (0, 40), (1, 40), (2, 80), (2, 40), (5, 0)] {
            waits.add(part, queue_us);
        }
        assert_eq!(waits.mean_us(), Some(30));
        let strays = |waits: Waits| waits.seen().map(|seen| seen.strays_us);
        assert_eq!(strays(waits), Some(0), "of 40, 40, 40 and 0");
        waits.add(6, 10);
        assert_eq!(strays(waits), Some(15), "and 10");
        waits.add(7, 90);
        assert_eq!(strays(waits), Some(40), "and 90");
        assert_eq!(Waits::default().mean_us(), None);
    }
}
