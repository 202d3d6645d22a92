// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One aggregate that keeps the queue of its bottleneck at a target delay.
//!
//! For a bottleneck whose traffic is all in the group.  An aggregate that sees all
//! flows knows what FAST (Jin, Wei, Low, INFOCOM 2004) and Vegas have to guess: the
//! smallest round-trip times of older flows, so no latecomer takes a standing queue
//! for the path, and one queueing delay for all.  The law is FAST's with a target in
//! place of packets of each flow: the window goes to what gives smallest round-trip
//! time plus target.
//!
//! It acts every second round, as FAST does: a change of the window is seen a round
//! trip later, so a round passes before one is measured.  `docs/algorithm.md` has what
//! was measured.
use super::{
    ctrltcp::CtrlTcp,
    interface::{Ack, Aggregate, CongestionEvent, Joiner, Policy, QueueMode},
    outside::{Found, Mode, Outside},
    rounds::{Round, Rounds},
    slow_start::{Exit, Pace},
};
use crate::{
    config::GroupConfig,
    fixed::{Fraction, Micros, Window, mul_div},
};

/// A queue is at least so many segments: what each flow sends comes in pairs, and a
/// smallest round-trip time may be that of a packet without data.
const LEAST_SEGMENTS: u64 = 4;
/// The highest rate fades by this part with each look.
const RATE_FADES: u64 = 256;
/// The queue is emptied so often, as BBR looks for the smallest round-trip time.
const DRAIN_EVERY_US: Micros = 10_000_000;
/// After a join, so that the flow sees the path without a queue.
const DRAIN_JOINED_US: Micros = 1_000_000;
/// Below the window that just fills the path, as a shift.
const DRAIN_SHIFT: u32 = 5;
/// A path that is longer than guests know is emptied by no more than this further.
const LONGER_SHIFT: u32 = 3;
/// No look raises the window by more than this, or lowers it, as shifts.
const RISE_SHIFT: u32 = 2;
const FALL_SHIFT: u32 = 3;
/// Nor above so many times what was on the path in a round.
const ON_PATH_TIMES: u64 = 4;

/// What the rounds are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// A change of the window is on its way.
    #[default]
    Settle,
    /// What it made of the queue is measured.
    Measure,
    /// The queue is emptied, and the window then what it was.
    Drain(Window),
}

/// The window goes to what keeps a target.
#[derive(Debug, Default)]
pub(crate) struct Delay {
    target_us: u64,
    /// What losses do, and joins before anything is known of the path.
    loss: CtrlTcp,
    exit: Exit,
    rounds: Rounds,
    phase: Phase,
    outside: Outside,
    /// Looks in a row that found next to no queue.
    idle_looks: u32,
    /// Highest rate of a round, bytes a second.
    rate_bytes: u64,
    drained: Micros,
    joined: bool,
    /// No target is above this: half of what waited when packets were lost.
    most_us: u64,
}

impl Delay {
    pub(crate) fn new(config: &GroupConfig) -> Delay {
        Delay {
            target_us: config.target_delay.us(),
            loss: CtrlTcp::new(config),
            most_us: u64::MAX,
            ..Delay::default()
        }
    }

    fn slow_start(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        let acked = Window::from_bytes(ack.acked_limited_bytes);
        if aggregate.ssthresh.is_some() {
            aggregate.slow_start(acked);
            return;
        }
        match self.exit.pace(aggregate.window.bytes(), ack.sample, ack.others) {
            Pace::Full => aggregate.slow_start(acked),
            Pace::Slower(1) => aggregate.slow_start(acked.halved(1)),
            Pace::Slower(_) | Pace::Over => aggregate.ssthresh = Some(aggregate.window),
        }
    }

    /// Whatever a drain or a trial would go back to, the window is another one now.
    fn settle(&mut self) {
        self.phase = Phase::Settle;
        self.idle_looks = 0;
        self.outside.lost();
    }

    /// What a round is followed by.
    fn next(&mut self, aggregate: &mut Aggregate, ack: &Ack, round: &Round) {
        if let Mode::Compete(_) = self.outside.mode {
            self.compete(aggregate, ack, round);
            return;
        }
        self.phase = match self.phase {
            Phase::Settle => Phase::Measure,
            Phase::Drain(window) => {
                aggregate.window = aggregate.window.max(window);
                Phase::Settle
            }
            Phase::Measure => {
                self.look(aggregate, ack, round);
                self.drain(aggregate, ack, round)
            }
        };
    }

    /// The target, where some segments wait no longer and packets are not lost sooner.
    /// A segment takes what it took at the highest rate: another who takes a part of
    /// the path does not make it slower.
    fn target_us(&mut self, ack: &Ack, round: &Round) -> u64 {
        let faded = self.rate_bytes - self.rate_bytes / RATE_FADES;
        self.rate_bytes = faded.max(round.rate_bytes).max(1);
        let segment_us = ack.mss_bytes * 1_000_000 / self.rate_bytes;
        let most_us = self.most_us.max(LEAST_SEGMENTS / 2 * segment_us);
        self.target_us.max(LEAST_SEGMENTS * segment_us).min(most_us)
    }

    /// The window goes to what gives the target, unless others fill the queue.
    fn look(&mut self, aggregate: &mut Aggregate, ack: &Ack, round: &Round) {
        self.most_us = self.most_us.saturating_add(self.most_us / 256 + 1);
        let window = aggregate.window;
        let target_us = self.target_us(ack, round);
        // Two segments for each flow may be more than the path holds.
        let is_least = window.bytes() <= ack.floor_bytes;
        let found = match is_least && round.rate_bytes >= self.rate_bytes / 4 * 3 {
            true => Found::Nobody,
            false => {
                let half_us = mul_div(window.halved(1).bytes(), 1_000_000, self.rate_bytes);
                self.outside.look(window, round.stands_us, target_us, half_us)
            }
        };
        aggregate.window = match found {
            Found::Nobody => self.kept(window, ack, round, target_us),
            Found::Others(window) => window,
            Found::Longer(window) => {
                self.rounds.lengthen(round.stands_us);
                window
            }
        };
        aggregate.ssthresh = aggregate.ssthresh.map(|ssthresh| ssthresh.min(aggregate.window));
    }

    /// The window that gives the target.
    fn kept(&mut self, window: Window, ack: &Ack, round: &Round, target_us: u64) -> Window {
        let step = |us: u64| window.times(Fraction::new(us.into(), round.rtt_us.into()));
        self.idle_looks = if 2 * round.stands_us < target_us { self.idle_looks + 1 } else { 0 };
        if round.stands_us > target_us {
            let floor = Window::from_bytes(ack.floor_bytes).min(window);
            let fall = step(round.stands_us - target_us).min(window.halved(FALL_SHIFT));
            return window.minus(fall).max(floor);
        }
        let doublings = self.idle_looks.min(16);
        let rise = step((target_us - round.stands_us) << doublings);
        let most = Window::from_bytes(ON_PATH_TIMES.saturating_mul(round.on_path_bytes()));
        window.plus(rise.min(window.halved(RISE_SHIFT)).min(most.minus(window)))
    }

    fn compete(&mut self, aggregate: &mut Aggregate, ack: &Ack, round: &Round) {
        let window = aggregate.window;
        let target_us = self.target_us(ack, round);
        if self.outside.is_trial_due(window, round.queue_us, target_us) {
            let above_us = round.queue_us - target_us;
            let floor = Window::from_bytes(ack.floor_bytes).min(window);
            let cut = Fraction::new(above_us.into(), round.rtt_us.into());
            aggregate.window = window.without(cut).max(floor);
            aggregate.ssthresh = Some(aggregate.window);
            self.phase = Phase::Settle;
        }
    }

    /// Empties the queue if that is due.
    fn drain(&mut self, aggregate: &mut Aggregate, ack: &Ack, round: &Round) -> Phase {
        let now = ack.sample.now;
        let every = if self.joined { DRAIN_JOINED_US } else { DRAIN_EVERY_US };
        if now.saturating_sub(self.drained) < every || self.outside.mode != Mode::Keep {
            return Phase::Settle;
        }
        self.drained = now;
        self.joined = false;
        let window = aggregate.window;
        let path_us = round.rtt_us - round.queue_us;
        // A path that has become longer may be what it was.  The window comes back in a round.
        let path_us = path_us - self.rounds.longer_us().min(path_us >> LONGER_SHIFT);
        let path = Fraction::new(path_us.into(), round.rtt_us.into());
        let floor = Window::from_bytes(ack.floor_bytes).min(window);
        aggregate.window = window.times(path).minus(window.halved(DRAIN_SHIFT)).max(floor);
        // No slow start back.
        aggregate.ssthresh = Some(aggregate.window);
        Phase::Drain(window)
    }
}

impl Policy for Delay {
    fn begin(&mut self, aggregate: &mut Aggregate, now: Micros, initial: Window) {
        self.loss.begin(aggregate, now, initial);
        if aggregate.ssthresh.is_none() {
            self.exit = Exit::default();
        }
        self.phase = Phase::Settle;
    }

    fn scale(&mut self, aggregate: &mut Aggregate, factor: Fraction) {
        self.loss.scale(aggregate, factor);
        self.exit.scale(factor);
        self.outside.scale(factor);
        if let Phase::Drain(window) = &mut self.phase {
            *window = window.times(factor);
        }
    }

    fn is_cold(&self, aggregate: &Aggregate) -> bool {
        aggregate.ssthresh.is_none() && !self.exit.is_full(aggregate.window.bytes())
    }

    fn join(&mut self, aggregate: &mut Aggregate, joiner: &Joiner) {
        self.loss.join(aggregate, joiner);
        self.joined = true;
    }

    fn leave(&mut self, aggregate: &mut Aggregate, share: Fraction) {
        self.loss.leave(aggregate, share);
    }

    fn end(&mut self, now: Micros) {
        self.loss.end(now);
    }

    fn ack(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        let trusted = ack.sample.joined <= self.drained;
        let round = self.rounds.add(ack.sample, trusted);
        let competes = matches!(self.outside.mode, Mode::Compete(_));
        if competes {
            self.loss.ack(aggregate, ack);
        } else if aggregate.in_slow_start() {
            self.slow_start(aggregate, ack);
            self.phase = Phase::Settle;
            return;
        }
        if let Some(round) = round {
            self.next(aggregate, ack, &round);
        }
    }

    fn congestion(&mut self, aggregate: &mut Aggregate, event: &CongestionEvent) {
        let epoch = aggregate.epoch;
        self.loss.congestion(aggregate, event);
        if aggregate.epoch != epoch {
            self.settle();
            self.most_us = self.rounds.most_us() / 2;
        }
    }

    fn first_timeout(&mut self, aggregate: &Aggregate) {
        self.loss.first_timeout(aggregate);
    }

    fn all_timed_out(&mut self, aggregate: &mut Aggregate, event: &CongestionEvent) {
        self.loss.all_timed_out(aggregate, event);
        self.settle();
    }

    fn undo(&mut self, aggregate: &mut Aggregate, flow: usize, now: Micros) {
        self.loss.undo(aggregate, flow, now);
    }

    fn bounds_events(&self) -> bool {
        true
    }

    fn resume(&mut self, aggregate: &Aggregate) {
        self.loss.resume(aggregate);
        self.settle();
    }

    fn mode(&self) -> Option<QueueMode> {
        Some(match self.outside.mode {
            Mode::Keep => QueueMode::Target,
            Mode::Compete(_) => QueueMode::Competing,
            Mode::Trial(..) | Mode::Probe(..) => QueueMode::Trial,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Cause, PathSample, interface::testing::*};

    const MS: u64 = 1_000;
    const BASE_MS: u64 = 100;

    /// A group behind a queue: a segment leaves each millisecond, 100 fill the path.
    struct Path {
        policy: Delay,
        aggregate: Aggregate,
        now: Micros,
        /// The window of an outside flow that is as large whatever happens.
        outside: u64,
        /// The path has become longer, of which guests know nothing.
        longer_ms: u64,
        joined: Micros,
        seen_ms: u64,
        /// Acknowledgements that left no queue.
        emptied: u32,
    }

    fn path(segments: u64) -> Path {
        let policy = Delay::new(&GroupConfig::default());
        let aggregate = steady(segments);
        Path {
            policy,
            aggregate,
            now: 100_000_000,
            outside: 0,
            longer_ms: 0,
            joined: 0,
            seen_ms: BASE_MS,
            emptied: 0,
        }
    }

    impl Path {
        fn queue_ms(&self) -> u64 {
            (self.segments() + self.outside).saturating_sub(BASE_MS + self.longer_ms)
        }

        fn segments(&self) -> u64 {
            self.aggregate.segments().0
        }

        /// A round trip, in which the window is acknowledged.
        fn round(&mut self) {
            let rtt_ms = BASE_MS + self.longer_ms + self.queue_ms();
            let window = self.segments();
            for _ in 0..window {
                self.now += rtt_ms * MS / window;
                self.ack(rtt_ms);
            }
        }

        fn ack(&mut self, rtt_ms: u64) {
            let sample = PathSample {
                now: self.now,
                delivered_bytes: MSS,
                rtt_us: (rtt_ms * MS) as u32,
                min_rtt_us: (self.seen_ms * MS) as u32,
                joined: self.joined,
                backlogged: true,
            };
            // A segment a round trip, as Reno grows.
            let share = Fraction::new(1, self.segments().into());
            self.policy.ack(&mut self.aggregate, &Ack { sample, share, ..ack(0, MSS) });
            self.emptied += u32::from(self.queue_ms() == 0);
        }

        fn rounds(&mut self, count: u32) -> u64 {
            (0..count).for_each(|_| self.round());
            self.queue_ms()
        }

        fn lose(&mut self) {
            let event = event(Cause::Recovery, 0, self.aggregate.epoch);
            self.policy.congestion(&mut self.aggregate, &event);
        }
    }

    #[test]
    fn the_window_goes_to_the_target_from_above_and_below() {
        for segments in [200, 130, 50] {
            let queue_ms = path(segments).rounds(60);
            assert!((3..=6).contains(&queue_ms), "{queue_ms} ms from {segments} segments");
        }
    }

    #[test]
    fn what_a_receiver_holds_back_is_no_queue() {
        let mut path = path(105);
        for _ in 0..60 {
            // Every other acknowledgement is late.
            path.ack(BASE_MS + 5 + 40);
            path.round();
        }
        assert!((3..=6).contains(&path.queue_ms()), "{} ms", path.queue_ms());
    }

    #[test]
    fn what_bursts_make_wait_leaves_the_path_full() {
        let mut path = path(105);
        for _ in 0..60 {
            let (rtt_ms, window) = (BASE_MS + path.queue_ms(), path.segments());
            for i in 0..window {
                path.now += rtt_ms * MS / window;
                path.ack(rtt_ms + if i < window / 2 { 20 } else { 0 });
            }
        }
        assert!((3..=7).contains(&path.queue_ms()), "{} ms", path.queue_ms());
        assert_eq!(path.policy.outside.mode, Mode::Keep);
    }

    #[test]
    fn the_queue_is_emptied_now_and_then() {
        let mut path = path(105);
        path.rounds(8);
        let before = path.emptied;
        // Thirty seconds.
        path.rounds(300);
        let emptied = path.emptied - before;
        assert!((180..=900).contains(&emptied), "{emptied}: a round trip each time, or two");
    }

    #[test]
    fn looks_before_a_loss_say_nothing_of_the_path_after_it() {
        let mut path = path(20);
        path.rounds(4);
        assert!(path.policy.idle_looks > 0);
        path.lose();
        assert_eq!(path.policy.idle_looks, 0);
    }

    #[test]
    fn a_window_to_go_back_to_is_scaled_with_the_others() {
        let mut path = path(105);
        let drains = |path: &mut Path| (path.rounds(1), path.policy.phase).1;
        let before = (0..100).find_map(|_| match drains(&mut path) {
            Phase::Drain(window) => Some(window),
            _ => None,
        });
        path.policy.scale(&mut path.aggregate, Fraction::new(2, 1));
        let twice = before.expect("drained within 10 s").plus(before.expect("as above"));
        assert_eq!(path.policy.phase, Phase::Drain(twice));
    }

    #[test]
    fn a_latecomer_is_not_believed_before_the_queue_was_emptied() {
        let mut path = path(105);
        path.rounds(4);
        for _ in 0..10 {
            path.round();
            // It has seen the queue only, and takes it for the path.
            (path.joined, path.seen_ms) = (u64::MAX, BASE_MS + 5);
            path.ack(BASE_MS + path.queue_ms());
            (path.joined, path.seen_ms) = (0, BASE_MS);
        }
        assert!((3..=7).contains(&path.queue_ms()), "{} ms", path.queue_ms());
    }

    #[test]
    fn where_packets_are_lost_sooner_the_target_is_less() {
        let mut path = path(104);
        path.rounds(6);
        path.lose();
        let queue_ms = path.rounds(60);
        assert!(queue_ms <= 3, "{queue_ms} ms, where 5 are lost");
    }

    #[test]
    fn another_who_fills_the_queue_is_competed_with_until_it_has_gone() {
        let mut path = path(105);
        path.rounds(10);
        path.outside = 60;
        let given_up = (0..12).map(|_| (path.rounds(1), path.segments()).1).min();
        assert!(given_up < Some(90), "{given_up:?} segments");
        path.outside = 140;
        path.rounds(40);
        assert!(matches!(path.policy.outside.mode, Mode::Compete(_)), "{:?}", path.policy.outside);
        path.outside = 0;
        path.aggregate.window = segments(160);
        let queue_ms = path.rounds(120);
        assert_eq!(path.policy.outside.mode, Mode::Keep);
        assert!((3..=7).contains(&queue_ms), "{queue_ms} ms");
    }

    #[test]
    fn a_path_that_becomes_longer_or_shorter_is_kept_full() {
        let mut path = path(105);
        path.rounds(10);
        for longer_ms in [60, 0, 200] {
            path.longer_ms = longer_ms;
            // That it is shorter again is seen by an eighth every ten seconds.
            path.rounds(400);
            assert_eq!(path.policy.outside.mode, Mode::Keep, "{longer_ms} ms longer");
            let queue_ms = path.queue_ms();
            assert!((3..=7).contains(&queue_ms), "{queue_ms} ms, {longer_ms} ms longer");
        }
    }

    #[test]
    fn a_part_that_does_not_respond_is_not_competed_with() {
        let mut path = path(105);
        for taken in [30, 0, 40, 20] {
            path.outside = taken;
            path.rounds(30);
            assert_eq!(path.policy.outside.mode, Mode::Keep, "beside {taken} segments");
        }
    }

    #[test]
    fn a_timeout_of_all_in_a_drain_restores_nothing() {
        let mut path = path(105);
        path.policy.phase = Phase::Drain(segments(105));
        let event = event(Cause::Timeout, 0, path.aggregate.epoch);
        path.policy.all_timed_out(&mut path.aggregate, &event);
        assert_eq!(path.policy.phase, Phase::Settle);
        assert_eq!(path.segments(), 1, "the loss window of one flow");
    }
}
