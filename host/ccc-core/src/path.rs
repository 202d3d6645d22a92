// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the path holds of a group's window without a queue.
//!
//! Packets wait when a round-trip time is above the flow's smallest.  All who wait in
//! a queue wait as long, so the rest of the group's mean time is what the path itself
//! takes; a window of that part of the present one keeps the path as busy and leaves
//! the queue empty.
//!
//! That is right for a group which has the path for itself.  Beside others, on
//! a short queue, who reduces by little takes more than one TCP, however slowly it
//! grows: the queue overflows by those who grow, and it is mostly them who lose
//! (Bansal, Balakrishnan, Floyd, Shenker 2001).  Which of the two it is, `alone.rs` finds
//! out.
mod waits;

use crate::{
    alone::{Alone, Full, Seen, Windows},
    fixed::{Beta, Micros, Window},
    policy::PathSample,
};
use waits::{PARTS, Waits};

/// A longer round-trip time counts as this one.
const RTT_MAX_US: u32 = 1 << 20;
/// A loss while less than this part of a full queue waited is that of a burst.
const BURST: Micros = 4;
/// A round trip in which less than this part of a full queue waited is idle, or less than
/// this part of itself, which is what bursts make wait; and after so many the path is.
const IDLE: Micros = 8;
const IDLE_RTT: Micros = 32;
const IDLE_ROUNDS: u32 = 8;
/// Others who leave the path idle for so many rounds have left.  One who came back after
/// three seconds each time, 30 round trips, had 0.74 of what one TCP leaves it with a quarter
/// of that.
const LEFT_ROUNDS: u32 = 32;
/// Who is so many times as far away as the mean, and farther, has little of the rate.
const FAR: Micros = 4;
/// What the latest whole round has shown, for the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// Bytes delivered a second.
    pub rate_bytes: u64,
    /// What packets waited in the queue, microseconds.
    pub queue_us: Micros,
    /// Others seem to use the path.
    pub shared: bool,
    /// More waits than bursts make wait.
    pub queued: bool,
    /// Hardly a packet has waited for some rounds in which more was to.
    pub idle: bool,
}

/// Round-trip times of a group's latest round and the two before.
#[derive(Debug, Default)]
pub(crate) struct Path {
    since: Micros,
    round: Round,
    before: Round,
    /// Round-trip time of that one.
    before_us: Micros,
    /// What waited in the round before that one.
    earlier_us: Micros,
    /// Queueing delay at the latest event.
    full_us: Micros,
    /// Idle rounds in a row, in which more was to wait.
    idle: u32,
    alone: Alone,
}

/// Sums over what was delivered in a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The group's windows as it began, but in slow start, where none is on the path for
    /// a whole round.
    windows: Option<Windows>,
    /// How long it was, once it is over.
    length_us: Micros,
    waits: Waits,
    on_path: OnPath,
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
        self.on_path.measure(sample);
    }

    fn plus(&self, other: &Round) -> Round {
        Round {
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            base: self.base + other.base,
            present: self.present + other.present,
            ..*self
        }
    }

    fn mean_us(&self, sum: u128) -> Micros {
        Micros::try_from(sum / self.delivered_bytes.max(1)).unwrap_or(Micros::MAX)
    }

    fn rtt_us(&self) -> Micros {
        self.mean_us(self.present)
    }

    /// So much is no less than its round-trip time: asked at each report, so not divided.
    fn lasts_no_longer_than(&self, us: Micros) -> bool {
        let delivered = self.delivered_bytes.max(1);
        match u64::try_from(delivered) {
            // A product of 64 bits each, plus as much again, is within 128.
            Ok(narrow) => self.present < u128::from(us) * u128::from(narrow) + delivered,
            Err(_) => self.present < (u128::from(us) + 1).saturating_mul(delivered),
        }
    }

    fn base_us(&self) -> Micros {
        self.mean_us(self.base)
    }

    fn queue_us(&self) -> Micros {
        self.mean_us(self.present - self.base)
    }

    fn ended(&self) -> Ended {
        Ended { length_us: self.length_us, rtt_us: self.rtt_us(), bytes: self.on_path.bytes }
    }
}

/// A round that is over: how long it was, and what was delivered in it at which mean round-trip
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) length_us: Micros,
    rtt_us: Micros,
    bytes: u128,
}

impl Ended {
    /// What was outstanding, by Little's law, as a window of flows that are no nearer than that in
    /// the mean.
    pub(crate) fn outstanding(&self, mean_us: Micros) -> Window {
        let bytes = self.bytes.saturating_mul(self.rtt_us.max(mean_us).into());
        let bytes = bytes / u128::from(self.length_us.max(1));
        Window::from_bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// What was on the path of a window: all that is delivered, at the mean round-trip time of the
/// backlogged flows, whose window it is.
#[derive(Clone, Copy, Debug, Default)]
struct OnPath {
    bytes: u128,
    /// Of backlogged flows, where a round-trip time was measured; and these times times bytes.
    measured_bytes: u128,
    measured: u128,
}

impl OnPath {
    fn measure(&mut self, sample: PathSample) {
        if sample.backlogged {
            let delivered = u128::from(sample.delivered_bytes);
            self.measured_bytes += delivered;
            self.measured += delivered * u128::from(sample.rtt_us.min(RTT_MAX_US));
        }
    }

    fn plus(&self, other: &OnPath) -> OnPath {
        OnPath {
            bytes: self.bytes + other.bytes,
            measured_bytes: self.measured_bytes + other.measured_bytes,
            measured: self.measured + other.measured,
        }
    }

    /// What that is, if it was delivered in so long (Little's law); nothing where nobody is
    /// backlogged.
    fn in_a_time_of(&self, length_us: Micros) -> Window {
        let rtt_us = self.measured / self.measured_bytes.max(1);
        let bytes = self.bytes.saturating_mul(rtt_us) / u128::from(length_us.max(1));
        Window::from_bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl Path {
    /// A sample while the group has these windows, which are asked for as a round begins; none
    /// in slow start.  True if a round has ended with it.
    pub(crate) fn add(
        &mut self,
        sample: PathSample,
        windows: impl FnOnce() -> Option<Windows>,
    ) -> bool {
        // Not every report has a sample: FreeBSD measures one segment in a round trip.
        self.round.on_path.bytes += u128::from(sample.delivered_bytes);
        if sample.rtt_us == 0 || sample.min_rtt_us == 0 {
            return false;
        }
        let ends = self.round.lasts_no_longer_than(sample.now.saturating_sub(self.since));
        if ends {
            self.next_round(sample.now, windows());
        }
        self.round.add(sample);
        let part = (sample.now - self.since) * PARTS / self.before_us.max(1);
        let queue_us = sample.rtt_us.saturating_sub(sample.min_rtt_us).min(RTT_MAX_US);
        self.round.waits.add(part, queue_us.into());
        ends
    }

    /// The latest whole round.
    pub(crate) fn ended(&self) -> Ended {
        self.before.ended()
    }

    fn next_round(&mut self, now: Micros, windows: Option<Windows>) {
        let idle_us = (self.full_us / IDLE).max(self.round.rtt_us() / IDLE_RTT);
        let idle = self.round.queue_us() < idle_us;
        let base_us = self.before.plus(&self.round).base_us();
        // After a reduction to what the path holds nothing else is to be expected.
        let used = self.round.windows.map(|windows| windows.used);
        let told_us = used.and_then(|used| self.alone.foretells_us(used, base_us));
        // Beside others an empty queue says nothing where none is foretold: all may have reduced.
        let unknown = !self.is_shared();
        let holds_more = idle && told_us.map_or(unknown, |told_us| told_us >= idle_us);
        self.idle = if holds_more { self.idle.saturating_add(1) } else { 0 };
        if self.idle >= LEFT_ROUNDS && self.is_shared() {
            self.alone.others_left();
        }
        self.alone.round_ends(self.since);
        let measured = used.filter(|used| used.is_about(self.outstanding(now)));
        if let (Some(used), Some(seen)) = (measured, self.round.waits.seen()) {
            let seen = if idle { Seen::default() } else { seen };
            self.alone.compare(self.since, used, base_us, seen);
        }
        self.earlier_us = self.before.waits.mean_us().unwrap_or(0);
        self.before = std::mem::replace(&mut self.round, Round { windows, ..Round::default() });
        self.before.length_us = now.saturating_sub(self.since);
        self.before_us = self.before.rtt_us();
        self.since = now;
    }

    /// What was on the path in the latest whole round and since.
    fn outstanding(&self, now: Micros) -> Window {
        let length_us = self.before.length_us + now.saturating_sub(self.since);
        self.before.on_path.plus(&self.round.on_path).in_a_time_of(length_us)
    }

    /// Who is in the group has changed, and with it its mean round-trip time and window.  Who
    /// comes or goes is so far away.
    pub(crate) fn changed(&mut self, mean_us: Micros, own_us: Micros) {
        let mean_us = mean_us.max(self.before_us);
        self.alone.changed(mean_us.max(own_us.min(FAR.saturating_mul(mean_us))));
    }

    /// The mean round-trip time without a queue is another one by many times.
    pub(crate) fn are_others(&mut self) {
        self.alone.are_others();
    }

    /// Hardly a packet has waited for some rounds: the path holds more than was thought.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle >= IDLE_ROUNDS
    }

    /// Others seem to use the path.
    pub(crate) fn is_shared(&self) -> bool {
        self.alone.is_shared()
    }

    /// What waits of a window of flows that are so far away in the mean, if the group has the path
    /// for itself.
    pub(crate) fn waits_us(&self, window: Window, mean_us: Micros) -> Option<Micros> {
        self.alone.waits_us(window, mean_us)
    }

    /// What the operator is told of it.
    pub(crate) fn state(&self) -> PathState {
        let Round { delivered_bytes, length_us, waits, .. } = self.before;
        let rate_bytes = delivered_bytes * 1_000_000 / u128::from(length_us.max(1));
        let queue_us = waits.mean_us().unwrap_or(0);
        PathState {
            rate_bytes: u64::try_from(rate_bytes).unwrap_or(u64::MAX),
            queue_us,
            shared: self.alone.is_shared(),
            queued: queue_us > self.before_us / IDLE_RTT,
            idle: self.is_idle(),
        }
    }

    /// A congestion event: the part of the group's window that the path holds for
    /// this group alone; `None` if others seem to use the path, or nobody has
    /// measured it.  `mean_us` is the group's mean round-trip time, if it is known.
    pub(crate) fn event(&mut self, now: Micros, mean_us: Option<Micros>) -> Option<Beta> {
        let rounds = self.before.plus(&self.round);
        if rounds.present == 0 {
            return None;
        }
        let queue_us = rounds.queue_us();
        // A far flow counts before it delivers.
        let base_us = rounds.base_us().max(mean_us.unwrap_or(0).saturating_sub(queue_us));
        let is_burst = queue_us < self.full_us / BURST;
        // After some such losses, the queue has become a shorter one.
        self.full_us = if is_burst { self.full_us / 2 } else { queue_us };
        let full = self.full(now, base_us, queue_us).filter(|_| !is_burst);
        self.alone.event(now, base_us + queue_us, full);
        if self.alone.is_shared() && !is_burst {
            return None;
        }
        Some(Beta::of(base_us.into(), (base_us + queue_us).into()))
    }

    /// Whether the latest event was that of a full queue.
    pub(crate) fn was_full(&self) -> bool {
        self.alone.was_full()
    }

    /// The queue of the latest whole rounds, the larger one, since bursts leave gaps; none
    /// if it has just come up, or much was lost, so that what is on the path is not a window
    /// for it.
    fn full(&self, now: Micros, base_us: Micros, mean_queue_us: Micros) -> Option<Full> {
        let (late_us, early_us) = (self.before.waits.mean_us()?, self.earlier_us);
        let has_lasted = late_us.min(early_us) > mean_queue_us / 2;
        let windows = self.before.windows.filter(|_| has_lasted)?;
        let is_on_path = windows.used.is_about(self.outstanding(now));
        is_on_path.then(|| Full { windows, base_us, queue_us: late_us.max(early_us) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    const RTT_US: u32 = 80_000;
    const MEAN: Option<Micros> = Some(100_000);

    fn sample(now: Micros, rtt_us: u32, min_rtt_us: u32) -> PathSample {
        PathSample { now, delivered_bytes: MSS, rtt_us, min_rtt_us, joined: 0, backlogged: true }
    }

    fn segments(count: u64) -> Option<Windows> {
        let window = Window::from_bytes(count * MSS);
        Some(Windows { aggregate: window, used: window })
    }

    impl Path {
        /// A second in which packets of a window of 100 segments wait so long.
        fn second(&mut self, from: Micros, wait_us: u32) {
            self.second_of(from, segments(100), wait_us);
        }

        fn second_of(&mut self, from: Micros, windows: Option<Windows>, wait_us: u32) {
            let used_bytes = windows.map_or(100 * MSS, |windows| windows.used.bytes());
            self.second_in_which(from, windows, used_bytes, wait_us);
        }

        /// The same while so much is on the path.
        fn second_in_which(
            &mut self,
            from: Micros,
            windows: Option<Windows>,
            on_path_bytes: u64,
            wait_us: u32,
        ) {
            let rtt_us = RTT_US + wait_us;
            let delivered_bytes = on_path_bytes * 1_000 / u64::from(rtt_us);
            for i in 0..1_000 {
                let sample = sample(from + i * 1_000, rtt_us, RTT_US);
                self.add(PathSample { delivered_bytes, ..sample }, || windows);
            }
        }

        /// Others' packets fill the queue, whatever the window is.
        fn share(&mut self) -> Micros {
            for i in 0..3 {
                self.second(i * 3_000_000, 20_000);
                self.event(i * 3_000_000 + 1_000_000, MEAN);
                self.second_of(i * 3_000_000 + 1_000_000, segments(50), 20_000);
                self.second_of(i * 3_000_000 + 2_000_000, segments(50), 20_000);
            }
            9_000_000
        }
    }

    fn holds(wait_us: u32, mean_us: Option<Micros>) -> Option<Beta> {
        let mut path = Path::default();
        path.second(0, 0);
        path.second(1_000_000, wait_us);
        path.event(2_000_000, mean_us)
    }

    #[test]
    fn a_round_is_compared_as_its_mean_would_be() {
        let amounts = [0, 1, 1 << 40, u128::from(u64::MAX), 1 << 64, 1 << 90];
        for delivered_bytes in amounts {
            for us in [0, 1, 99_999, 1 << 20, u64::MAX] {
                for off in [0, 1, delivered_bytes.max(1)] {
                    let sum = delivered_bytes.checked_mul(us.into());
                    let Some(present) = sum.and_then(|sum| sum.checked_add(off)) else { continue };
                    let round = Round { delivered_bytes, present, ..Round::default() };
                    let mean_us = present / delivered_bytes.max(1);
                    assert_eq!(round.lasts_no_longer_than(us), mean_us <= us.into(), "{round:?}");
                }
            }
        }
    }

    #[test]
    fn what_nobody_has_measured_is_not_known() {
        let mut path = Path::default();
        assert_eq!(path.event(0, MEAN), None);
        path.add(sample(0, 0, RTT_US), || segments(100));
        path.add(sample(0, RTT_US, 0), || segments(100));
        assert_eq!(path.event(0, MEAN), None);
    }

    #[test]
    fn a_path_holds_its_smallest_time_of_the_present_one() {
        assert_eq!(holds(RTT_US, None), Some(Beta::HALF));
        assert_eq!(holds(RTT_US / 4, None), Some(Beta::of(4, 5)));
    }

    #[test]
    fn a_mean_over_a_time_without_a_queue_takes_nothing_from_what_a_path_holds() {
        assert_eq!(holds(RTT_US / 4, Some(RTT_US.into())), Some(Beta::of(4, 5)));
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
            path.second(i * 3_000_000, 20_000);
            let holds = path.event(i * 3_000_000 + 1_000_000, MEAN);
            assert_eq!(holds, Some(Beta::of(4, 5)));
            path.second_of(i * 3_000_000 + 1_000_000, segments(80), 0);
            path.second_of(i * 3_000_000 + 2_000_000, segments(90), 10_000);
        }
    }

    #[test]
    fn who_leaves_others_packets_shares_the_path() {
        let mut path = Path::default();
        let now = path.share();
        assert_eq!(path.event(now, MEAN), None);
    }

    #[test]
    fn what_has_just_been_given_up_waits_no_longer() {
        let mut path = Path::default();
        path.second(0, 20_000);
        path.second(1_000_000, 20_000);
        let waits =
            |path: &Path, count, mean_us| path.waits_us(Window::from_bytes(count * MSS), mean_us);
        let base_us = RTT_US.into();
        assert_eq!(waits(&path, 90, base_us), None);
        path.event(2_000_000, MEAN);
        let waiting = [90, 50].map(|count| waits(&path, count, base_us));
        assert_eq!(waiting, [Some(10_000), Some(0)], "it holds 80 of 100 segments");
        assert_eq!(waits(&path, 180, 2 * base_us), Some(20_000), "of twice as far away");
        path.changed(2 * base_us, 2 * base_us);
        path.are_others();
        path.event(2_100_000, MEAN);
        assert_eq!(waits(&path, 90, base_us), Some(10_000), "whatever is no measure");
        let mut path = Path::default();
        let now = path.share();
        path.event(now, MEAN);
        assert_eq!(waits(&path, 50, base_us), None, "others' packets wait, too");
    }

    #[test]
    fn what_bursts_make_wait_is_no_sign_of_others() {
        let mut path = Path::default();
        for i in 0..3 {
            path.second(i * 3_000_000, 20_000);
            assert!(path.event(i * 3_000_000 + 1_000_000, MEAN).is_some());
            path.second_of(i * 3_000_000 + 1_000_000, segments(50), 2_400);
            path.second_of(i * 3_000_000 + 2_000_000, segments(60), 2_400);
        }
    }

    #[test]
    fn a_loss_without_a_queue_takes_no_half_from_who_shares_the_path() {
        let mut path = Path::default();
        let mut now = path.share();
        path.event(now, MEAN);
        let mut burst = || {
            // A window at which nothing would wait.
            path.second_of(now, segments(40), 1_000);
            now += 1_000_000;
            path.event(now, MEAN)
        };
        assert_eq!(burst(), Some(Beta::clamped(u16::MAX)));
        // The third in a row says that the queue has become a short one.
        burst();
        burst();
        assert_eq!(burst(), None);
    }

    #[test]
    fn a_queue_that_has_just_come_up_foretells_nothing() {
        let mut path = Path::default();
        path.second(0, 0);
        path.second_of(1_000_000, segments(100), 20_000);
        path.add(sample(2_000_000, RTT_US + 20_000, RTT_US), || segments(100));
        assert!(path.full(2_000_000, RTT_US.into(), 20_000).is_some());
        path.second_of(2_001_000, None, 20_000);
        assert!(path.full(3_001_000, RTT_US.into(), 20_000).is_none(), "in slow start");
        path.second(3_001_000, 1_000);
        path.second_of(4_001_000, segments(100), 2_000);
        assert!(path.full(5_001_000, RTT_US.into(), 20_000).is_none());
    }

    #[test]
    fn an_operator_is_told_the_rate_the_queue_and_who_is_there() {
        let mut path = Path::default();
        assert_eq!(path.state(), PathState::default());
        path.second(0, 20_000);
        let PathState { rate_bytes, queue_us, shared, queued, idle } = path.state();
        assert!(rate_bytes.abs_diff(1_000_000) <= 20_000, "{rate_bytes} bytes a second");
        assert_eq!((queue_us, shared, queued, idle), (20_000, false, true, false));
        path.second(1_000_000, 1_000);
        let PathState { queued, idle, .. } = path.state();
        assert_eq!((queued, idle), (false, true), "bursts make so much wait");
        let mut path = Path::default();
        let now = path.share();
        path.event(now, MEAN);
        assert!(path.state().shared);
    }

    #[test]
    fn a_path_is_idle_when_hardly_a_packet_waits_for_rounds() {
        let mut path = Path::default();
        path.second(1_000_000, 20_000);
        path.event(2_000_000, MEAN);
        path.second(2_000_000, 3_000);
        assert!(!path.is_idle());
        path.second(3_000_000, 2_000);
        assert!(path.is_idle());
        path.second(4_000_000, 20_000);
        assert!(!path.is_idle());
    }

    #[test]
    fn what_a_window_foretells_is_seen_only_while_it_is_on_the_path() {
        let shared_after = |on_path: u64| {
            let mut path = Path::default();
            path.second(0, 20_000);
            path.event(1_000_000, MEAN);
            for i in 1..4 {
                // Of 50 segments none would wait: an application's burst is there besides.
                path.second_in_which(i * 1_000_000, segments(50), on_path * MSS, 20_000);
            }
            path.event(4_000_000, MEAN);
            path.is_shared()
        };
        assert_eq!([50, 56, 57].map(shared_after), [true, true, false]);
    }

    #[test]
    fn who_has_come_settles_in_rounds_that_say_nothing_too() {
        let mut path = Path::default();
        path.second(0, 20_000);
        path.event(1_000_000, MEAN);
        // An application's burst is on the path besides.
        let burst = |path: &mut Path, from| {
            path.second_in_which(from, segments(50), 70 * MSS, 20_000);
        };
        burst(&mut path, 1_000_000);
        path.changed(500_000, 500_000);
        burst(&mut path, 2_000_000);
        path.second_of(3_000_000, segments(50), 20_000);
        path.event(4_000_000, MEAN);
        assert!(path.is_shared(), "a second is two round trips of 500 ms");
        let mut path = Path::default();
        path.second(0, 20_000);
        path.event(1_000_000, MEAN);
        burst(&mut path, 1_000_000);
        path.changed(1_000_000, 1_000_000);
        burst(&mut path, 2_000_000);
        path.second_of(3_000_000, segments(50), 20_000);
        path.event(4_000_000, MEAN);
        assert!(!path.is_shared(), "but not of one");
    }

    #[test]
    fn one_sample_a_round_without_a_queue_hides_no_others() {
        let mut path = Path::default();
        path.second(0, 20_000);
        path.event(1_000_000, MEAN);
        for i in 1_000..3_000 {
            // Of 50 segments none would wait: it is others' queue.
            let wait_us = if i % 100 == 0 { 0 } else { 20_000 };
            let sample = sample(i * 1_000, RTT_US + wait_us, RTT_US);
            path.add(PathSample { delivered_bytes: MSS / 2, ..sample }, || segments(50));
        }
        path.event(3_000_000, MEAN);
        assert!(path.is_shared());
    }

    #[test]
    fn who_is_limited_or_not_measured_counts_as_far_away_as_backlogged_flows() {
        let counts = |limited_rtt_us: u32| {
            let mut path = Path::default();
            for i in 0..2_000 {
                // Half is a limited flow's, or of a report without a sample.
                let own = sample(i * 1_000, RTT_US + 20_000, RTT_US);
                let delivered_bytes = MSS / 2;
                path.add(PathSample { delivered_bytes, ..own }, || segments(100));
                let rtt_us = limited_rtt_us;
                let other = PathSample { rtt_us, min_rtt_us: rtt_us, backlogged: false, ..own };
                path.add(PathSample { delivered_bytes, ..other }, || segments(100));
            }
            path.outstanding(2_000_000).bytes() / MSS
        };
        for limited_rtt_us in [0, 10_000, 500_000] {
            let segments = counts(limited_rtt_us);
            assert!((95..=105).contains(&segments), "{limited_rtt_us} us: {segments}");
        }
    }

    #[test]
    fn a_window_of_which_much_was_lost_is_none_that_fills_the_queue() {
        let full_at = |on_path: u64| {
            let mut path = Path::default();
            for i in 0..2 {
                path.second_in_which(i * 1_000_000, segments(100), on_path * MSS, 20_000);
            }
            path.full(2_000_000, RTT_US.into(), 20_000).is_some()
        };
        assert_eq!([86, 89, 100].map(full_at), [false, true, true]);
    }

    #[test]
    fn others_whose_packets_no_longer_wait_have_left() {
        let mut path = Path::default();
        let now = path.share();
        path.event(now, MEAN);
        path.second_of(now, segments(30), 0);
        assert!(path.is_shared(), "of 30 segments none would wait");
        path.second_of(now + 1_000_000, segments(60), 0);
        path.second_of(now + 2_000_000, segments(60), 0);
        assert!(path.is_shared() && path.is_idle(), "they may come back");
        path.second_of(now + 3_000_000, segments(60), 0);
        assert!(!path.is_shared());
    }

    /// 17 flows at 100 Mbit/s and 10 ms were so fast again after each reduction that they lost
    /// 1.6 times as much, and that their shares were 4.6 % off.
    #[test]
    fn a_path_is_not_idle_at_a_window_that_it_holds() {
        let mut path = Path::default();
        path.second(1_000_000, 20_000);
        path.event(2_000_000, MEAN);
        path.second_of(2_000_000, segments(81), 0);
        assert!(!path.is_idle(), "80 of 100 segments are what it holds");
        path.second_of(3_000_000, segments(90), 0);
        assert!(path.is_idle());
    }

    #[test]
    fn a_loss_without_a_queue_does_not_hide_that_the_path_is_idle() {
        let mut path = Path::default();
        path.second(0, 0);
        path.event(1_000_000, MEAN);
        path.second(1_000_000, 2_000);
        assert!(path.is_idle());
    }
}
