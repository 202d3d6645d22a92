// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! ctrlTCP: all flows of a group together behave like one TCP.
//!
//! Source: Islam, Welzl, Hiorth, Hayes, Armitage, Gjessing, "ctrlTCP: Reducing
//! Latency through Coupled, Heterogeneous Multi-Flow TCP Congestion Control",
//! and chapter 9 of Islam's dissertation (Algorithms 5 to 7).  The published
//! pseudo-code does not work as printed; the rules here are those of
//! `docs/algorithm.md`, which names each fault (B1 to B24) and its repair.
use super::{
    coordinator::Coordinator,
    interface::{Ack, Aggregate, Cause, CongestionEvent, Joiner, Policy},
    slow_start::{Exit, Pace},
};
use crate::{
    bounds::farthest_us,
    config::GroupConfig,
    fixed::{Beta, EquivalentTcps, Fraction, Micros, Window},
};

/// An empty group remembers its window this long (RFC 2140, RFC 9040).
const REMEMBER_US: Micros = 10_000_000;
/// A remembered window is halved once for each such time (RFC 7661, with the
/// smallest retransmission timeout of common stacks doubled).
const HALVE_US: Micros = 400_000;

/// So many flows bring an initial window each before anything is known of the path, and
/// more share those.  64 flows whose windows are all too large for their path would lose
/// half of what they send, and find their way back for seconds.
const COLD_FLOWS: u128 = 16;

/// A flow finds out that its event was spurious a round-trip time or two after it
/// (RFC 3522, RFC 5682, RFC 3708).  None of these knows an age; this one is ours.
/// After so many round-trip times, and at least the smallest retransmission timeout
/// of common stacks, the aggregate's window before says nothing any more.
const UNDO_ROUNDS: Micros = 4;
const UNDO_MIN_US: Micros = 200_000;

/// What a first slow start that ended early grows by on an idle path, of what is acknowledged,
/// as a shift.
const CATCH_UP_SHIFT: u32 = 4;

/// A window larger than that of the latest reduction by this part of it, as a shift,
/// is one the path did not hold then.
const PAST_SHIFT: u32 = 3;

/// The aggregate before its latest reduction.
#[derive(Clone, Copy, Debug)]
struct Undo {
    flow: usize,
    /// It is not restored after that.
    until: Micros,
    window: Window,
    ssthresh: Option<Window>,
    growth: Fraction,
}

/// The round trip after a reduction.
#[derive(Clone, Copy, Debug, Default)]
struct Recovery {
    from: Micros,
    /// As who has lost says.
    lasts_us: Micros,
}

impl Recovery {
    /// Whether a flow of this round-trip time is in it: nobody waits longer for another's,
    /// which may be a lie, than that other one may be away.
    fn holds(&self, now: Micros, srtt_us: Micros) -> bool {
        now.saturating_sub(self.from) < self.lasts_us.min(farthest_us(srtt_us))
    }
}

/// Whether the first slow start has filled the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Filled {
    /// Perhaps: a burst may have ended it, or it was of another mean distance.
    #[default]
    Unknown,
    /// It has not, and goes on.
    NotYet,
    Yes,
}

#[derive(Debug, Default)]
pub(crate) struct CtrlTcp {
    tcps: EquivalentTcps,
    /// Who grows for all, if one does.
    coordinator: Option<Coordinator>,
    /// Until the next reduction.
    undo: Option<Undo>,
    /// Window when the first flow of a set of timeout episodes timed out.
    before_timeouts: Option<Window>,
    empty_since: Option<Micros>,
    /// Watches the first slow start.
    exit: Exit,
    /// One TCP in recovery does not grow; meanwhile, only those of n that
    /// have not lost do.
    recovery: Recovery,
    /// The window that the latest reductions were from, and how many more there
    /// may be for losses of the same round trip.
    reduced_from: Window,
    more: u32,
    /// What the path holds of that window.
    holds: Option<Beta>,
    /// The part of the flows' growth that is the aggregate's after a reduction.
    growth: Fraction,
    /// What Reno flows would have come to on the idle path, less a segment each.
    on_idle_path: Option<Window>,
    filled: Filled,
}

impl CtrlTcp {
    pub(crate) fn new(config: &GroupConfig) -> CtrlTcp {
        CtrlTcp {
            tcps: config.equivalent_tcps,
            coordinator: Coordinator::new(config.growth_source),
            ..CtrlTcp::default()
        }
    }

    /// The window factor of this event: the flow's own, unless the path holds more
    /// without a queue, or more is needed for two segments for each flow.
    fn factor(&self, event: &CongestionEvent) -> Beta {
        let floor = Window::from_bytes(event.floor_bytes);
        let least = match floor < self.reduced_from {
            true => Beta::of(floor.raw().into(), self.reduced_from.raw().into()),
            false => event.beta,
        };
        event.beta.max(self.holds.unwrap_or(event.beta)).max(least)
    }

    /// What is left of `window` after one reduction by this factor.
    fn reduced(&self, window: Window, beta: Beta, event: &CongestionEvent) -> Window {
        let lost = self.reduced_from.without(self.tcps.soften(beta));
        window.minus(lost).max(Window::from_bytes(event.floor_bytes)).min(window)
    }

    /// Who gives up less in a reduction grows less after it, or would take more than
    /// one TCP does.  Where that meets no congestion the path has changed: it grows in full.
    fn growth(&self, window: Window) -> Fraction {
        let known = self.reduced_from.plus(self.reduced_from.halved(PAST_SHIFT));
        if window > known { Fraction::ALL } else { self.growth }
    }

    /// What so many TCPs grow by; where the path is idle, they or all the flows that can
    /// grow, whichever are more.
    fn grown(&self, window: Window, ack: &Ack, tcps: EquivalentTcps) -> u64 {
        let grown_bytes = tcps.scale(ack.growth_bytes);
        if ack.path_is_idle {
            return grown_bytes.max(ack.growth_bytes.saturating_mul(ack.growers));
        }
        // In recovery.
        if grown_bytes == 0 {
            return 0;
        }
        Window::from_bytes(grown_bytes).times(self.growth(window)).bytes()
    }

    /// Congestion avoidance, in which flows have grown or shrunk.
    fn avoid(&self, aggregate: &mut Aggregate, ack: &Ack, share: Fraction) {
        let recovers = self.recovery.holds(ack.sample.now, ack.srtt_us);
        let growing = if recovers { self.tcps.of(self.more) } else { self.tcps };
        let growth_bytes = self.grown(aggregate.window, ack, growing);
        let shrink_bytes = growing.scale(ack.shrink_bytes);
        if (growth_bytes, shrink_bytes) != (0, 0) {
            aggregate.change(growth_bytes, shrink_bytes, share, ack.floor_bytes);
        }
    }

    /// On an idle path of its own the aggregate comes to no less than as many Reno flows, whose
    /// growth is told a segment at a time: an algorithm on the plateau of another rate does not
    /// see that the path holds more.
    fn keep_up_on_idle_path(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        if !ack.path_is_idle || ack.growers < 2 || ack.shrink_bytes > 0 {
            self.on_idle_path = None;
            return;
        }
        let segments_bytes = ack.growers.saturating_mul(ack.mss_bytes);
        let part = Fraction::new(segments_bytes.into(), aggregate.window.bytes().max(1).into());
        let grown = Window::from_bytes(ack.acked_limited_bytes).times(part);
        let began = aggregate.window.minus(Window::from_bytes(segments_bytes));
        let least = self.on_idle_path.unwrap_or(began).plus(grown);
        self.on_idle_path = Some(least);
        aggregate.window = aggregate.window.max(least);
    }

    /// After the first slow start an idle path of its own holds more than that found out, unless the
    /// queue has been full: it goes on, slowly, until the next event.  Near flows that fill a path
    /// alone have a quarter of it as soon as one of seven times their distance has its share; by a
    /// segment a round trip 300 Mbit/s took half a minute then.
    fn catch_up(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        // A lone flow is one TCP as it is.
        if self.filled == Filled::Yes || !ack.path_is_idle || !ack.is_alone || ack.growers < 2 {
            return;
        }
        self.filled = Filled::NotYet;
        let more = Window::from_bytes(ack.acked_limited_bytes).halved(CATCH_UP_SHIFT);
        aggregate.window = aggregate.window.plus(more);
    }

    fn slow_start(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        let acked = Window::from_bytes(ack.acked_limited_bytes).min(aggregate.window);
        if aggregate.ssthresh.is_some() {
            aggregate.slow_start(acked);
            return;
        }
        match self.exit.pace(aggregate.window.bytes(), ack.sample, ack.others) {
            Pace::Full => aggregate.slow_start(acked),
            Pace::Slower(shift) => aggregate.slow_start(acked.halved(shift)),
            Pace::Over => aggregate.ssthresh = Some(aggregate.window),
        }
    }
}

impl Policy for CtrlTcp {
    /// A group that was empty for a short while goes on with what it knew of
    /// the path, aged; otherwise it starts like any TCP (B1).
    fn begin(&mut self, aggregate: &mut Aggregate, now: Micros, initial: Window) {
        self.coordinator.iter_mut().for_each(Coordinator::clear);
        let idle = self.empty_since.take().map(|since| now.saturating_sub(since));
        match idle {
            Some(idle) if idle < REMEMBER_US => {
                let halvings = u32::try_from(idle / HALVE_US).unwrap_or(u32::MAX);
                let left = aggregate.window.times(Fraction::new(3, 4));
                aggregate.ssthresh = aggregate.ssthresh.map(|ssthresh| ssthresh.max(left));
                aggregate.window = aggregate.window.halved(halvings).max(initial);
            }
            _ => {
                aggregate.begin(initial);
                self.exit = Exit::default();
                self.filled = Filled::Unknown;
                self.growth = Fraction::ALL;
            }
        }
        self.resume(aggregate);
    }

    fn scale(&mut self, aggregate: &mut Aggregate, factor: Fraction) {
        aggregate.scale(factor);
        if let Some(undo) = &mut self.undo {
            undo.window = undo.window.times(factor);
            undo.ssthresh = undo.ssthresh.map(|ssthresh| ssthresh.times(factor));
        }
        self.before_timeouts = self.before_timeouts.map(|window| window.times(factor));
        self.reduced_from = self.reduced_from.times(factor);
        self.on_idle_path = self.on_idle_path.map(|window| window.times(factor));
        self.exit.scale(factor);
    }

    /// Until slow start has found out how much the path holds.
    fn is_cold(&self, aggregate: &Aggregate) -> bool {
        aggregate.ssthresh.is_none() && !self.exit.is_full(aggregate.window.bytes())
    }

    /// Joins are neutral, but for a cold start, in which flows bring the initial
    /// windows that they would have alone, as many as [`COLD_FLOWS`].  Short ones would
    /// else be slower coupled.
    /// A flow that was on the path uncoupled brings what it has there, at most
    /// as much as the others have together.
    fn join(&mut self, aggregate: &mut Aggregate, joiner: &Joiner) {
        let brings = joiner.on_path.min(aggregate.window);
        if let Some(ssthresh) = aggregate.ssthresh {
            aggregate.window = aggregate.window.plus(brings);
            aggregate.ssthresh = Some(ssthresh.plus(brings));
        } else if self.is_cold(aggregate) {
            let most = joiner.initial.times(Fraction::new(COLD_FLOWS, 1)).max(aggregate.window);
            aggregate.window = aggregate.window.plus(joiner.initial).min(most);
        }
    }

    fn end(&mut self, now: Micros) {
        self.empty_since = Some(now);
    }

    /// Slow start: by what any flow had acknowledged, up to the threshold (B1).
    /// Congestion avoidance: by the share-weighted mean of the flows' own
    /// growth, one segment in a share-weighted round-trip time.  With equal
    /// times that is the papers' coordinating connection, but no single flow's
    /// idleness, loss or departure stops it (B2, B11, B19); theirs can be had
    /// too, see [`Coordinator`].  As one TCP in recovery would not, it does not grow for
    /// a round-trip time after a reduction; worth n TCPs, those that have not
    /// lost go on.
    fn ack(&mut self, aggregate: &mut Aggregate, ack: &Ack) {
        let share = self.coordinator.as_mut().map_or(ack.share, |elected| elected.share(ack));
        if aggregate.in_slow_start() {
            self.slow_start(aggregate, ack);
            return;
        }
        if (ack.growth_bytes, ack.shrink_bytes) != (0, 0) {
            self.avoid(aggregate, ack, share);
        }
        self.keep_up_on_idle_path(aggregate, ack);
        self.catch_up(aggregate, ack);
    }

    /// As TCP does whose application leaves its window unused (RFC 2861, section 3.2), but down to
    /// twice what is used: limited flows are left as much.
    fn leave_unused(&mut self, aggregate: &mut Aggregate, used: Window) {
        let before = aggregate.window;
        let least = used.plus(used);
        if before <= least {
            return;
        }
        aggregate.window = before.plus(used).halved(1).max(least);
    }

    /// Once for each event on the path, when recovery is *entered* (B8, B17):
    /// a segment sent before the latest reduction took effect says nothing
    /// about the window it left behind (B9, B10).  Of n TCPs each that loses
    /// reduces; so an aggregate worth n may be reduced n times for what was
    /// sent before, each time by the nth part of what one TCP would lose.
    fn congestion(&mut self, aggregate: &mut Aggregate, event: &CongestionEvent) {
        if event.cause == Cause::LateTimeout {
            return;
        }
        let Aggregate { window, ssthresh, epoch } = *aggregate;
        let is_new = event.epoch == epoch;
        if is_new {
            self.reduced_from = window;
            self.more = self.tcps.reductions();
            self.holds = event.holds;
        } else if self.more == 0 || event.epoch != epoch.wrapping_sub(1) {
            return;
        }
        self.more -= 1;
        let until = event.now.saturating_add((UNDO_ROUNDS * event.srtt_us).max(UNDO_MIN_US));
        self.undo = Some(Undo { flow: event.flow, until, window, ssthresh, growth: self.growth });
        self.recovery = Recovery { from: event.now, lasts_us: event.srtt_us };
        self.on_idle_path = None;
        if event.is_full || self.filled == Filled::NotYet {
            self.filled = Filled::Yes;
        }
        let beta = self.factor(event);
        self.growth = beta.growth_of(event.beta);
        let reduced = self.reduced(window, beta, event);
        aggregate.window = reduced;
        aggregate.ssthresh = Some(reduced);
        if is_new {
            aggregate.begin_epoch();
        }
    }

    fn first_timeout(&mut self, aggregate: &Aggregate) {
        self.before_timeouts = Some(aggregate.window);
    }

    /// Nothing at all got through: slow start from one segment a flow, towards
    /// a threshold taken from the window *before* the episode (B3, B4, B14).
    fn all_timed_out(&mut self, aggregate: &mut Aggregate, event: &CongestionEvent) {
        let before = self.before_timeouts.take().unwrap_or(aggregate.window);
        let floor = Window::from_bytes(event.floor_bytes);
        self.undo = None;
        self.on_idle_path = None;
        self.more = 0;
        aggregate.reduce_to(floor.halved(1).min(before), before.times(event.beta).max(floor));
    }

    /// Restores the latest reduction, only for the flow that caused it and only
    /// while it is young.
    fn undo(&mut self, aggregate: &mut Aggregate, flow: usize, now: Micros) {
        let Some(undo) = self.undo.take_if(|undo| undo.flow == flow) else { return };
        if now <= undo.until {
            aggregate.window = aggregate.window.max(undo.window);
            aggregate.ssthresh = undo.ssthresh;
            self.growth = undo.growth;
        }
    }

    fn bounds_events(&self) -> bool {
        true
    }

    fn resume(&mut self, _aggregate: &Aggregate) {
        self.undo = None;
        self.on_idle_path = None;
        self.before_timeouts = None;
        self.more = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::interface::{
        PathSample,
        testing::{self, MSS, ack, half},
    };

    /// A group with a window of that many segments, worth so many TCPs.
    struct Begun {
        policy: CtrlTcp,
        aggregate: Aggregate,
    }

    fn begun(segments: u64, tcps: f64) -> Begun {
        let tcps = EquivalentTcps::from_f64(tcps).expect("in range");
        let policy = CtrlTcp::new(&GroupConfig { equivalent_tcps: tcps, ..GroupConfig::default() });
        let mut begun = Begun { policy, aggregate: Aggregate::default() };
        begun.begin(0, segments);
        begun
    }

    impl Begun {
        fn begin(&mut self, now: Micros, segments: u64) {
            self.policy.begin(&mut self.aggregate, now, testing::segments(segments));
        }

        fn event(&self, flow: usize) -> CongestionEvent {
            testing::event(Cause::Recovery, flow, self.aggregate.epoch)
        }

        fn lose(&mut self, flow: usize) {
            let event = self.event(flow);
            self.policy.congestion(&mut self.aggregate, &event);
        }

        fn ack(&mut self, ack: Ack) {
            self.policy.ack(&mut self.aggregate, &ack);
        }

        fn undo(&mut self, flow: usize, now: Micros) {
            self.policy.undo(&mut self.aggregate, flow, now);
        }

        fn segments(&self) -> u64 {
            self.aggregate.segments().0
        }
    }

    #[test]
    fn an_empty_group_remembers_for_a_while() {
        let mut group = begun(80, 1.0);
        group.lose(0);
        group.policy.end(1_000_000);
        group.begin(1_500_000, 10);
        assert_eq!(group.segments(), 20, "40 segments, halved once after 0.5 s");
        group.aggregate.window = testing::segments(72);
        group.policy.end(1_500_000);
        group.begin(1_600_000, 10);
        assert_eq!(group.aggregate.segments(), (72, Some(54)), "three quarters are known to fit");
        group.policy.end(2_000_000);
        group.begin(20_000_000, 10);
        assert_eq!(group.aggregate.segments(), (10, None));
    }

    #[test]
    fn sixteen_initial_windows_are_brought_to_an_unknown_path() {
        let mut group = begun(10, 1.0);
        for _ in 1..64 {
            group.policy.join(&mut group.aggregate, &testing::joiner());
        }
        assert_eq!(group.segments(), 160);
    }

    #[test]
    fn who_is_near_waits_no_longer_than_anybody_can_be_away() {
        for (srtt_us, paused_us) in [(10_000, 250_000), (100_000, 400_000), (300_000, 1_000_000)] {
            let mut group = begun(80, 1.0);
            let lost = CongestionEvent { srtt_us: 1_000_000, ..group.event(0) };
            group.policy.congestion(&mut group.aggregate, &lost);
            for (now, grown) in [(paused_us - 1, 40), (paused_us, 41)] {
                let sample = PathSample { now, ..ack(1, 0).sample };
                let ack = Ack { srtt_us, sample, growth_bytes: MSS, ..ack(1, 40 * MSS) };
                group.ack(ack);
                assert_eq!(group.segments(), grown, "{srtt_us} us away, after {now} us");
            }
        }
    }

    #[test]
    fn undo_restores_only_the_latest_reduction_of_its_flow() {
        let mut group = begun(80, 1.0);
        group.lose(1);
        group.undo(2, 0);
        assert_eq!(group.segments(), 40, "undone by a flow that did not reduce");
        group.undo(1, 0);
        assert_eq!(group.aggregate.segments(), (80, None));
    }

    #[test]
    fn e3_an_old_reduction_is_not_undone() {
        for (srtt_us, late, left) in
            [(0, 200_000, 80), (0, 200_001, 40), (100_000, 400_000, 80), (100_000, 400_001, 40)]
        {
            let mut group = begun(80, 1.0);
            let event = CongestionEvent { srtt_us, now: 7, ..group.event(1) };
            group.policy.congestion(&mut group.aggregate, &event);
            group.undo(1, 7 + late);
            assert_eq!(group.segments(), left, "after {late} us at a srtt of {srtt_us}");
        }
    }

    #[test]
    fn e3_a_reduction_is_undone_once() {
        let mut group = begun(160, 1.0);
        group.lose(0);
        group.lose(1);
        group.undo(1, 0);
        assert_eq!(group.segments(), 80);
        group.ack(Ack { growth_bytes: 0, shrink_bytes: 20 * MSS, ..ack(0, 80 * MSS) });
        group.undo(1, 0);
        assert_eq!(group.segments(), 60, "what a flow's delay took is not given back");
    }

    #[test]
    fn slow_start_stops_at_the_threshold() {
        let mut group = begun(80, 1.0);
        group.policy.first_timeout(&group.aggregate);
        let event = group.event(0);
        group.policy.all_timed_out(&mut group.aggregate, &event);
        for _ in 0..100 {
            if group.aggregate.in_slow_start() {
                group.ack(ack(0, MSS));
            }
        }
        assert_eq!(group.segments(), 40);
    }

    #[test]
    fn a_flow_that_watches_the_delay_closes_the_window() {
        let mut group = begun(80, 1.0);
        group.lose(0);
        let closes = Ack { growth_bytes: 0, shrink_bytes: 4 * MSS, ..ack(0, 8 * MSS) };
        group.ack(Ack { share: half(), ..closes });
        assert_eq!((group.segments(), group.aggregate.in_slow_start()), (38, false));
        group.ack(Ack { growth_bytes: 0, shrink_bytes: 900 * MSS, ..ack(0, 900 * MSS) });
        assert_eq!(group.segments(), 2, "the floor is left");
    }

    #[test]
    fn n_tcps_grow_n_times_and_loses_an_nth() {
        let mut group = begun(80, 4.0);
        group.lose(0);
        assert_eq!(group.segments(), 70, "an eighth lost instead of a half");
        group.ack(ack(0, MSS));
        assert_eq!(group.segments(), 74);
    }

    #[test]
    fn of_four_tcps_those_grow_that_do_not_recover() {
        let mut group = begun(80, 4.0);
        let event = CongestionEvent { srtt_us: 1, ..group.event(0) };
        group.policy.congestion(&mut group.aggregate, &event);
        group.ack(ack(0, MSS));
        assert_eq!(group.segments(), 73, "three segments");
    }

    impl Begun {
        /// A loss where the path holds so many of 16 parts of the window.
        fn lose_where_it_holds(&mut self, sixteenths: u128) {
            let holds = Some(Beta::of(sixteenths, 16));
            let event = CongestionEvent { holds, ..self.event(0) };
            self.policy.congestion(&mut self.aggregate, &event);
        }
    }

    #[test]
    fn a_reduction_leaves_what_the_path_holds() {
        for (sixteenths, left) in [(0, 80), (8, 80), (12, 120), (14, 140), (16, 140)] {
            let mut group = begun(160, 1.0);
            group.lose_where_it_holds(sixteenths);
            assert_eq!(group.segments(), left, "{sixteenths} of 16 parts");
        }
    }

    #[test]
    fn who_gives_up_less_grows_less() {
        // (1 - 3/4) / (1 + 3/4) is a seventh, (1 - 1/2) / (1 + 1/2) a third.
        let mut group = begun(160, 1.0);
        group.lose_where_it_holds(12);
        group.ack(ack(0, 7 * MSS));
        assert_eq!(group.segments(), 123);
    }

    #[test]
    fn on_an_idle_path_a_plateau_does_not_last() {
        let mut group = begun(160, 1.0);
        group.lose(0);
        let mut rounds = |growth_bytes, growers| {
            for _ in 0..10 {
                let acked_limited_bytes = group.aggregate.window.bytes();
                let round = Ack {
                    path_is_idle: true,
                    growers,
                    acked_limited_bytes,
                    ..ack(0, growth_bytes)
                };
                group.ack(round);
            }
            group.segments()
        };
        assert_eq!(rounds(0, 4), 80 - 4 + 40);
        assert_eq!(rounds(0, 1), 116, "one grows as it says");
        assert_eq!(rounds(MSS, 4), 156, "who grows as Reno does keeps up");
    }

    #[test]
    fn a_window_the_path_did_not_hold_before_grows_in_full() {
        let mut group = begun(160, 1.0);
        group.lose_where_it_holds(12);
        group.aggregate.window = testing::segments(180);
        group.ack(ack(0, 7 * MSS));
        assert_eq!(group.segments(), 183);
        group.aggregate.window = testing::segments(181);
        group.ack(ack(0, 7 * MSS));
        assert_eq!(group.segments(), 188);
    }

    #[test]
    fn a_window_that_leaves_the_path_idle_grows_in_full() {
        let mut group = begun(160, 1.0);
        group.lose_where_it_holds(12);
        group.ack(Ack { path_is_idle: true, ..ack(0, 7 * MSS) });
        assert_eq!(group.segments(), 127);
        group.ack(Ack { path_is_idle: true, growers: 3, ..ack(0, 7 * MSS) });
        assert_eq!(group.segments(), 148);
    }

    /// A round trip in which all of the window is acknowledged, on an idle path.
    fn idle_round(group: &mut Begun, is_alone: bool) -> u64 {
        idle_round_of(group, 2, is_alone)
    }

    /// The same of so many flows.
    fn idle_round_of(group: &mut Begun, growers: u64, is_alone: bool) -> u64 {
        let acked_limited_bytes = group.aggregate.window.bytes();
        let idle = Ack { path_is_idle: true, growers, is_alone, ..ack(0, 0) };
        group.ack(Ack { acked_limited_bytes, ..idle });
        group.segments()
    }

    #[test]
    fn a_first_slow_start_that_left_the_path_idle_goes_on_until_the_next_event() {
        let mut group = begun(320, 1.0);
        group.lose(0);
        group.lose(0);
        assert_eq!(idle_round(&mut group, false), 80, "others may use the path");
        assert_eq!(idle_round_of(&mut group, 1, true), 80, "one flow is one TCP");
        assert_eq!(idle_round(&mut group, true), 85);
        group.ack(ack(0, 0));
        assert_eq!(group.segments(), 85, "packets wait");
        assert_eq!(idle_round(&mut group, true), 90);
        group.lose(0);
        assert_eq!(idle_round(&mut group, true), 45, "now it is known what the path holds");
        let mut group = begun(320, 1.0);
        let full = CongestionEvent { is_full: true, ..group.event(0) };
        group.policy.congestion(&mut group.aggregate, &full);
        assert_eq!(idle_round(&mut group, true), 160, "it was so before, as the queue was full");
    }

    #[test]
    fn on_an_idle_path_neither_flows_nor_tcps_multiply_each_other() {
        for (tcps, growers, grown) in [(4.0, 16, 16), (16.0, 4, 16), (4.0, 0, 4)] {
            let mut group = begun(160, tcps);
            group.lose(0);
            let before = group.segments();
            group.ack(Ack { path_is_idle: true, growers, ..ack(0, MSS) });
            assert_eq!(group.segments() - before, grown, "{growers} flows worth {tcps} TCPs");
        }
    }

    #[test]
    fn a_segment_for_each_flow_is_part_of_what_is_not_given_up() {
        let mut group = begun(160, 1.0);
        let event = CongestionEvent { floor_bytes: 120 * MSS, ..group.event(0) };
        group.policy.congestion(&mut group.aggregate, &event);
        assert_eq!(group.segments(), 120);
        group.ack(ack(0, 7 * MSS));
        assert_eq!(group.segments(), 123);
    }

    #[test]
    fn an_undone_reduction_leaves_growth_as_it_was() {
        let mut group = begun(160, 1.0);
        group.lose(0);
        group.lose_where_it_holds(12);
        group.undo(0, 0);
        group.ack(ack(0, 7 * MSS));
        assert_eq!(group.segments(), 87);
    }

    #[test]
    fn losses_from_before_an_empty_group_reduce_nothing() {
        let mut group = begun(80, 4.0);
        let late = group.event(1);
        group.lose(0);
        group.policy.end(1_000_000);
        group.begin(1_000_000, 10);
        group.policy.congestion(&mut group.aggregate, &late);
        assert_eq!(group.segments(), 70);
    }

    #[test]
    fn of_four_tcps_as_many_reduce_as_lose() {
        let mut group = begun(80, 4.0);
        let losses: Vec<_> = (0..6).map(|flow| group.event(flow)).collect();
        let left = losses.iter().map(|loss| {
            group.policy.congestion(&mut group.aggregate, loss);
            (group.segments(), group.aggregate.epoch)
        });
        let left: Vec<_> = left.collect();
        assert_eq!(left, [(70, 2), (60, 2), (50, 2), (40, 2), (40, 2), (40, 2)]);
    }
    #[test]
    fn those_who_lose_in_one_round_trip_reduce_by_the_same() {
        let mut group = begun(80, 4.0);
        let first = CongestionEvent { holds: Some(Beta::of(3, 4)), ..group.event(0) };
        let second = group.event(1);
        group.policy.congestion(&mut group.aggregate, &first);
        group.policy.congestion(&mut group.aggregate, &second);
        assert_eq!(group.segments(), 70);
    }
}
