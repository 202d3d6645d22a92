// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the path holds of a group's window without a queue, and whether others use
//! the path, too.
//!
//! Packets wait when a round-trip time is above the flow's smallest.  All who wait in
//! a queue wait as long, so the rest of the group's mean time is what the path itself
//! takes; a window of that part of the present one keeps the path as busy and leaves
//! the queue empty.
//!
//! That is right for a group which has the path for itself.  Beside others, on
//! a short queue, who reduces by little takes more than one TCP, however slowly it
//! grows: the queue overflows by those who grow, and it is mostly them who lose
//! (Bansal, Balakrishnan, Floyd, Shenker 2001).  What a reduction leaves in the queue
//! tells the two apart: that of a group that is alone takes its packets out, but the
//! others' remain.
use crate::{
    fixed::{Beta, Micros, Window, mul_div},
    policy::PathSample,
};

/// A longer round-trip time counts as this one.
const RTT_MAX_US: u32 = 1 << 20;
/// What a reduction leaves is the least within this many round-trip times, after the
/// one in which it takes effect.
const LOOKS_ROUNDS: Micros = 2;
/// What is left tells something if the two expectations differ by more than this part of
/// the queue.
const TELLS: Micros = 4;
/// Who shares the path tries whether it is alone after so many events.
const TRIES_AFTER: u32 = 32;
/// A round trip in which less than this part of a full queue waited is idle, or less than
/// this part of itself, which is what bursts make wait; and after so many the path is.
const IDLE: Micros = 8;
const IDLE_RTT: Micros = 32;
const IDLE_ROUNDS: u32 = 8;

/// Round-trip times of a group's latest round and the one before, and what its
/// reductions left in the queue.
#[derive(Debug, Default)]
pub(crate) struct Path {
    since: Micros,
    round: Round,
    before: Round,
    /// Queueing delay at the latest event.
    full_us: Micros,
    /// Idle rounds in a row.
    idle: u32,
    look: Option<Look>,
    /// Others use the path, for so many events.
    shared: u32,
}

/// Waits for what a reduction leaves in the queue.
#[derive(Clone, Copy, Debug)]
struct Look {
    from: Micros,
    until: Micros,
    least_us: Option<Micros>,
    /// Who is alone leaves no more.
    most_us: Micros,
}

/// Sums over what was delivered in a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    delivered_bytes: u128,
    /// Bytes times smallest round-trip time.
    base: u128,
    /// Bytes times present round-trip time.
    present: u128,
}

impl Round {
    fn add(&mut self, sample: PathSample) {
        let delivered = u128::from(sample.delivered_bytes);
        let base_us = sample.min_rtt_us.min(RTT_MAX_US);
        self.delivered_bytes += delivered;
        self.base += delivered * u128::from(base_us);
        self.present += delivered * u128::from(sample.rtt_us.clamp(base_us, RTT_MAX_US));
    }

    fn plus(&self, other: &Round) -> Round {
        Round {
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            base: self.base + other.base,
            present: self.present + other.present,
        }
    }

    fn mean_us(&self, sum: u128) -> Micros {
        Micros::try_from(sum / self.delivered_bytes.max(1)).unwrap_or(Micros::MAX)
    }

    fn rtt_us(&self) -> Micros {
        self.mean_us(self.present)
    }

    fn queue_us(&self) -> Micros {
        self.mean_us(self.present - self.base)
    }
}

impl Path {
    pub(crate) fn add(&mut self, sample: PathSample) {
        if sample.rtt_us == 0 || sample.min_rtt_us == 0 {
            return;
        }
        if sample.now.saturating_sub(self.since) >= self.round.rtt_us() {
            self.next_round(sample.now);
        }
        self.round.add(sample);
        self.look(sample);
    }

    fn next_round(&mut self, now: Micros) {
        let idle_us = (self.full_us / IDLE).max(self.round.rtt_us() / IDLE_RTT);
        let idle = self.round.queue_us() < idle_us;
        self.idle = if idle { self.idle.saturating_add(1) } else { 0 };
        self.before = std::mem::take(&mut self.round);
        self.since = now;
    }

    /// For what the latest reduction left.
    fn look(&mut self, sample: PathSample) {
        let Some(look) = &mut self.look else { return };
        if sample.now > look.until {
            self.judge();
        } else if sample.now >= look.from {
            let queue_us = sample.rtt_us.saturating_sub(sample.min_rtt_us).into();
            look.least_us = Some(look.least_us.map_or(queue_us, |least| least.min(queue_us)));
        }
    }

    fn judge(&mut self) {
        let Some(Look { least_us: Some(least_us), most_us, .. }) = self.look.take() else {
            return;
        };
        self.shared = if least_us > most_us { TRIES_AFTER } else { 0 };
    }

    /// Hardly a packet has waited for some rounds: the path holds more than was thought.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle >= IDLE_ROUNDS
    }

    /// A congestion event: the part of the group's window that the path holds for
    /// this group alone; `None` if others seem to use the path, or nobody has
    /// measured it.  `mean_us` is the group's mean round-trip time, if it is known.
    pub(crate) fn event(&mut self, mean_us: Option<Micros>) -> Option<Beta> {
        self.judge();
        let rounds = self.before.plus(&self.round);
        if rounds.present == 0 {
            return None;
        }
        self.full_us = rounds.queue_us();
        let mean_us = mean_us.unwrap_or(rounds.rtt_us());
        if self.shared > 0 {
            self.shared -= 1;
            return None;
        }
        Some(Beta::of(mean_us.saturating_sub(self.full_us).into(), mean_us.into()))
    }

    /// An event at which others did not seem to use the path has left so much of the window.
    pub(crate) fn reduced(
        &mut self,
        now: Micros,
        mean_us: Option<Micros>,
        from: Window,
        to: Window,
    ) {
        let mean_us = mean_us.unwrap_or(self.before.plus(&self.round).rtt_us());
        let taken_us = mul_div(mean_us, from.minus(to).raw(), from.raw().max(1));
        let alone_us = self.full_us.saturating_sub(taken_us);
        // Of two that have as much.
        let beside_us = self.full_us.saturating_sub(taken_us / 2);
        let tells = beside_us - alone_us > self.full_us / TELLS;
        self.look = tells.then_some(Look {
            from: now.saturating_add(mean_us),
            until: now.saturating_add((1 + LOOKS_ROUNDS) * mean_us),
            least_us: None,
            most_us: alone_us.midpoint(beside_us),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    const RTT_US: u32 = 80_000;
    const MEAN: Option<Micros> = Some(100_000);

    fn sample(now: Micros, rtt_us: u32, min_rtt_us: u32) -> PathSample {
        PathSample { now, delivered_bytes: MSS, rtt_us, min_rtt_us, joined: 0 }
    }

    fn segments(count: u64) -> Window {
        Window::from_bytes(count * MSS)
    }

    impl Path {
        /// A second in which packets wait so long.
        fn second(&mut self, from: Micros, wait_us: u32) {
            for i in 0..1_000 {
                self.add(sample(from + i * 1_000, RTT_US + wait_us, RTT_US));
            }
        }

        /// A second in which packets wait 20 ms, a reduction from 100 segments, and a
        /// second with what it leaves.
        fn leaves(&mut self, from: Micros, to: u64, left_us: u32) -> Option<Beta> {
            self.second(from, 20_000);
            let holds = self.event(MEAN);
            if holds.is_some() {
                self.reduced(from + 1_000_000, MEAN, segments(100), segments(to));
            }
            self.second(from + 1_000_000, left_us);
            holds
        }
    }

    fn holds(wait_us: u32, mean_us: Option<Micros>) -> Option<Beta> {
        let mut path = Path::default();
        path.second(0, 0);
        path.second(1_000_000, wait_us);
        path.event(mean_us)
    }

    #[test]
    fn what_nobody_has_measured_is_not_known() {
        let mut path = Path::default();
        assert_eq!(path.event(MEAN), None);
        path.add(sample(0, 0, RTT_US));
        path.add(sample(0, RTT_US, 0));
        assert_eq!(path.event(MEAN), None);
    }

    #[test]
    fn a_path_holds_its_smallest_time_of_the_present_one() {
        assert_eq!(holds(RTT_US, None), Some(Beta::HALF));
        assert_eq!(holds(RTT_US / 4, None), Some(Beta::of(4, 5)));
    }

    #[test]
    fn bounds_are_those_of_any_reduction() {
        assert_eq!(holds(0, None), Some(Beta::clamped(u16::MAX)));
        assert_eq!(holds(10 * RTT_US, None), Some(Beta::clamped(0)));
        assert_eq!(holds(10 * RTT_US, MEAN), Some(Beta::clamped(0)), "more queue than time");
    }

    #[test]
    fn a_far_flow_counts_before_it_delivers() {
        // Only the near one has delivered, whose times would give a half.
        assert_eq!(holds(RTT_US, Some(320_000)), Some(Beta::of(3, 4)));
    }

    #[test]
    fn who_empties_the_queue_is_alone() {
        let mut path = Path::default();
        for i in 0..8 {
            assert_eq!(path.leaves(i * 2_000_000, 80, 4_000), Some(Beta::of(4, 5)));
        }
    }

    #[test]
    fn who_leaves_others_packets_shares_the_path() {
        let mut path = Path::default();
        assert!(path.leaves(0, 80, 6_000).is_some());
        let tries = (1..100).find(|i| path.leaves(i * 2_000_000, 50, 0).is_some());
        assert_eq!(tries, Some(33));
    }

    #[test]
    fn what_must_remain_speaks_for_no_others() {
        let mut path = Path::default();
        // Taken are 16 ms: who is alone leaves 4, who is beside another one 12.
        assert!(path.leaves(0, 84, 7_000).is_some());
        assert!(path.leaves(2_000_000, 84, 9_000).is_some());
        assert!(path.leaves(4_000_000, 84, 9_000).is_none());
    }

    #[test]
    fn a_path_is_idle_when_hardly_a_packet_waits_for_rounds() {
        let mut path = Path::default();
        path.second(1_000_000, 20_000);
        path.event(MEAN);
        path.second(2_000_000, 3_000);
        assert!(!path.is_idle());
        path.second(3_000_000, 2_000);
        assert!(path.is_idle());
        path.second(4_000_000, 20_000);
        assert!(!path.is_idle());
    }

    #[test]
    fn a_loss_without_a_queue_does_not_hide_that_the_path_is_idle() {
        let mut path = Path::default();
        path.second(0, 0);
        path.event(MEAN);
        path.second(1_000_000, 2_000);
        assert!(path.is_idle());
    }
}
