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
    interface::{Ack, Aggregate, CongestionEvent, Joiner, Policy},
    outside::{Mode, Outside},
    rounds::{Round, Rounds},
    slow_start::{Exit, Pace},
};
use crate::{
    config::GroupConfig,
    fixed::{Fraction, Micros, Window},
};

/// A queue is at least so many segments: what each flow sends comes in pairs, and a
/// smallest round-trip time may be that of a packet without data.
const LEAST_SEGMENTS: u64 = 4;
/// The queue is emptied so often, as BBR looks for the smallest round-trip time.
const DRAIN_EVERY_US: Micros = 10_000_000;
/// After a join, so that the flow sees the path without a queue.
const DRAIN_JOINED_US: Micros = 1_000_000;
/// Below the window that just fills the path, as a shift.
const DRAIN_SHIFT: u32 = 5;
/// Growth in a path that is not full doubles after so many looks.
const PATIENCE: u32 = 0;
/// No look raises the window by more than this, or lowers it, as shifts.
const RISE_SHIFT: u32 = 2;
const FALL_SHIFT: u32 = 3;

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
        match self.exit.pace(aggregate.window.bytes(), ack.sample) {
            Pace::Full => aggregate.slow_start(acked),
            Pace::Slower(1) => aggregate.slow_start(acked.halved(1)),
            Pace::Slower(_) | Pace::Over => aggregate.ssthresh = Some(aggregate.window),
        }
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

    fn target_us(&self, aggregate: &Aggregate, ack: &Ack, round: &Round) -> u64 {
        let segment_us = round.rtt_us * ack.mss_bytes / aggregate.window.bytes().max(1);
        let most_us = self.most_us.max(LEAST_SEGMENTS / 2 * segment_us);
        self.target_us.max(LEAST_SEGMENTS * segment_us).min(most_us)
    }

    /// The window goes to what gives the target, unless others fill the queue.
    fn look(&mut self, aggregate: &mut Aggregate, ack: &Ack, round: &Round) {
        self.most_us = self.most_us.saturating_add(self.most_us / 256 + 1);
        let window = aggregate.window;
        let target_us = self.target_us(aggregate, ack, round);
        let competes = match window.bytes() > ack.floor_bytes {
            true => self.outside.look(window, round.queue_us, target_us),
            false => None,
        };
        aggregate.window = match competes {
            Some(window) => window,
            None => self.kept(window, ack, round, target_us),
        };
        aggregate.ssthresh = aggregate.ssthresh.map(|ssthresh| ssthresh.min(aggregate.window));
    }

    /// The window that gives the target.
    fn kept(&mut self, window: Window, ack: &Ack, round: &Round, target_us: u64) -> Window {
        let step = |us: u64| window.times(Fraction::new(us.into(), round.rtt_us.into()));
        self.idle_looks = if 2 * round.queue_us < target_us { self.idle_looks + 1 } else { 0 };
        if round.queue_us > target_us {
            let floor = Window::from_bytes(ack.floor_bytes).min(window);
            let fall = step(round.queue_us - target_us).min(window.halved(FALL_SHIFT));
            return window.minus(fall).max(floor);
        }
        let doublings = self.idle_looks.saturating_sub(PATIENCE).min(16);
        let rise = step((target_us - round.queue_us) << doublings);
        window.plus(rise.min(window.halved(RISE_SHIFT)))
    }

    fn compete(&mut self, aggregate: &mut Aggregate, ack: &Ack, round: &Round) {
        let window = aggregate.window;
        let target_us = self.target_us(aggregate, ack, round);
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
        let path = Fraction::new((round.rtt_us - round.queue_us).into(), round.rtt_us.into());
        let floor = Window::from_bytes(ack.floor_bytes).min(window);
        aggregate.window = window.times(path).minus(window.halved(DRAIN_SHIFT)).max(floor);
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
            self.phase = Phase::Settle;
            self.most_us = self.rounds.most_us() / 2;
            self.outside.lost();
        }
    }

    fn first_timeout(&mut self, aggregate: &Aggregate) {
        self.loss.first_timeout(aggregate);
    }

    fn all_timed_out(&mut self, aggregate: &mut Aggregate, event: &CongestionEvent) {
        self.loss.all_timed_out(aggregate, event);
    }

    fn undo(&mut self, aggregate: &mut Aggregate, flow: usize, now: Micros) {
        self.loss.undo(aggregate, flow, now);
    }

    fn resume(&mut self, aggregate: &Aggregate) {
        self.loss.resume(aggregate);
        self.phase = Phase::Settle;
    }
}
