// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! ctrlTCP: all flows of a group together behave like one TCP.
//!
//! Source: Islam, Welzl, Hiorth, Hayes, Armitage, Gjessing, "ctrlTCP: Reducing
//! Latency through Coupled, Heterogeneous Multi-Flow TCP Congestion Control",
//! and chapter 9 of Islam's dissertation (Algorithms 5 to 7).  The published
//! pseudo-code does not work as printed; the rules here are those of
//! `docs/algorithm.md`, which names each fault (B1 to B24) and its repair.
use super::{
    Ack, Aggregate, Cause, Event, GrowthSource, Joiner, Policy,
    growth_source::Coordinator,
    slow_start::{Exit, Pace},
};
use crate::fixed::{EquivalentTcps, Micros, Window};

/// An empty group remembers its window this long (RFC 2140, RFC 9040).
const REMEMBER_FOR: Micros = 10_000_000;
/// Of initial windows (RFC 6928), nearly five.  With 40 segments eight flows of
/// 50 KB finish later than uncoupled at 10 Mbit/s and 100 ms, with 56 twenty-four.
const COLD_SEGMENTS: u64 = 48;
/// A remembered window is halved once for each such time (RFC 7661, with the
/// smallest retransmission timeout of common stacks doubled).
const HALVE_EVERY: Micros = 400_000;

/// A flow finds out that its event was spurious a round-trip time or two after it
/// (RFC 3522, RFC 5682, RFC 3708).  None of these knows an age; this one is ours.
/// After so many round-trip times, and at least the smallest retransmission timeout
/// of common stacks, the aggregate's window before says nothing any more.
const UNDO_ROUNDS: Micros = 4;
const UNDO_LEAST: Micros = 200_000;

/// The aggregate before its latest reduction.
#[derive(Clone, Copy, Debug)]
struct Before {
    flow: usize,
    /// It is not restored after that.
    until: Micros,
    window: Window,
    threshold: Option<Window>,
}

#[derive(Debug)]
pub(crate) struct CtrlTcp {
    now: Aggregate,
    equivalent_tcps: EquivalentTcps,
    coordinator: Coordinator,
    /// For undo, until the next reduction.
    before: Option<Before>,
    /// Window when the first flow of a set of timeout episodes timed out.
    before_timeouts: Option<Window>,
    empty_since: Option<Micros>,
    /// Watches the first slow start.
    exit: Exit,
    /// One TCP in recovery does not grow; until then, only those of n that
    /// have not lost do.
    grows_from: Micros,
    /// The window that the latest reductions were from, and how many more there
    /// may be for losses of the same round trip.
    from: Window,
    more: u32,
}

impl CtrlTcp {
    pub(crate) fn new(equivalent_tcps: EquivalentTcps, growth_source: GrowthSource) -> CtrlTcp {
        CtrlTcp {
            now: Aggregate::default(),
            equivalent_tcps,
            coordinator: Coordinator::new(growth_source),
            before: None,
            before_timeouts: None,
            empty_since: None,
            exit: Exit::default(),
            grows_from: 0,
            from: Window::default(),
            more: 0,
        }
    }

    /// What is left after one reduction for this event.
    fn reduced(&self, event: &Event) -> Window {
        let lost = self.from.minus(self.from.times(self.equivalent_tcps.soften(event.beta)));
        let Aggregate { window, .. } = self.now;
        window.minus(lost).max(Window::from_bytes(event.floor)).min(window)
    }

    fn slow_start(&mut self, ack: &Ack) {
        let acked = Window::from_bytes(ack.acked).min(self.now.window);
        if self.now.threshold.is_some() {
            self.now.slow_start(acked);
            return;
        }
        match self.exit.pace(self.now.window.bytes(), ack.sample) {
            Pace::Full => self.now.slow_start(acked),
            Pace::Slower(shift) => self.now.slow_start(acked.halved(shift)),
            Pace::Over => self.now.threshold = Some(self.now.window),
        }
    }
}

impl Policy for CtrlTcp {
    /// A group that was empty for a short while goes on with what it knew of
    /// the path, aged; otherwise it starts like any TCP (B1).
    fn begin(&mut self, now: Micros, initial: Window) {
        self.coordinator.clear();
        let idle = self.empty_since.take().map(|since| now.saturating_sub(since));
        match idle {
            Some(idle) if idle < REMEMBER_FOR => {
                let halvings = u32::try_from(idle / HALVE_EVERY).unwrap_or(u32::MAX);
                self.now.window = self.now.window.halved(halvings).max(initial);
            }
            _ => {
                self.now.begin(initial);
                self.exit = Exit::default();
            }
        }
        self.before = None;
        self.before_timeouts = None;
        self.more = 0;
    }

    /// Joins are neutral, but for a cold start: before anything is known of the
    /// path, flows that start together bring what they would have alone, until the
    /// window is [`COLD_SEGMENTS`].  Short ones would else be slower coupled.
    /// A flow that was on the path uncoupled brings what it has there, at most
    /// as much as the others have together.
    fn join(&mut self, joiner: Joiner) {
        let most = Window::from_bytes(COLD_SEGMENTS * joiner.mss);
        let brings = joiner.brings.min(self.now.window);
        if let Some(threshold) = self.now.threshold {
            self.now.window = self.now.window.plus(brings);
            self.now.threshold = Some(threshold.plus(brings));
        } else if self.now.window < most {
            self.now.window = self.now.window.plus(joiner.initial).min(most);
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
    /// too, see [`GrowthSource`].  As one TCP in recovery would not, it does not grow for
    /// a round-trip time after a reduction; worth n TCPs, those that have not
    /// lost go on.
    fn ack(&mut self, ack: Ack) {
        let part = self.coordinator.part(&ack);
        if self.now.in_slow_start() {
            self.slow_start(&ack);
        } else {
            let recovers = ack.sample.now < self.grows_from;
            let equivalent_tcps =
                if recovers { self.equivalent_tcps.of(self.more) } else { self.equivalent_tcps };
            self.now.avoid(&ack, |bytes| equivalent_tcps.scale(bytes), part);
        }
    }

    /// Once for each event on the path, when recovery is *entered* (B8, B17):
    /// a segment sent before the latest reduction took effect says nothing
    /// about the window it left behind (B9, B10).  Of n TCPs each that loses
    /// reduces; so an aggregate worth n may be reduced n times for what was
    /// sent before, each time by the nth part of what one TCP would lose.
    fn congestion(&mut self, event: Event) {
        if event.cause == Cause::LateTimeout {
            return;
        }
        let Aggregate { window, threshold, epoch } = self.now;
        let is_new = event.epoch == epoch;
        if is_new {
            self.from = window;
            self.more = self.equivalent_tcps.reductions();
        } else if self.more == 0 || event.epoch != epoch.wrapping_sub(1) {
            return;
        }
        self.more -= 1;
        let until = event.now.saturating_add((UNDO_ROUNDS * event.srtt).max(UNDO_LEAST));
        self.before = Some(Before { flow: event.flow, until, window, threshold });
        self.grows_from = event.now.saturating_add(event.srtt);
        let reduced = self.reduced(&event);
        if is_new {
            self.now.reduce_to(reduced, reduced);
        } else {
            self.now.reduce_again(reduced);
        }
    }

    fn first_timeout(&mut self) {
        self.before_timeouts = Some(self.now.window);
    }

    /// Nothing at all got through: slow start from one segment a flow, towards
    /// a threshold taken from the window *before* the episode (B3, B4, B14).
    fn all_timed_out(&mut self, event: Event) {
        let before = self.before_timeouts.take().unwrap_or(self.now.window);
        let floor = Window::from_bytes(event.floor);
        let threshold = before.times(event.beta).max(floor.plus(floor));
        self.before = None;
        self.more = 0;
        self.now.reduce_to(floor.min(before), threshold);
    }

    /// Restores the latest reduction, only for the flow that caused it and only
    /// while it is young.
    fn undo(&mut self, flow: usize, now: Micros) {
        let Some(before) = self.before.take_if(|before| before.flow == flow) else { return };
        if now <= before.until {
            self.now.window = self.now.window.max(before.window);
            self.now.threshold = before.threshold;
        }
    }

    fn restore(&mut self, aggregate: Aggregate) {
        self.now = aggregate;
        self.before = None;
        self.before_timeouts = None;
        self.more = 0;
    }

    fn aggregate(&self) -> Aggregate {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::{self, MSS, ack};

    fn begun(segments: u64) -> CtrlTcp {
        let mut policy = CtrlTcp::new(EquivalentTcps::ONE, GrowthSource::Mean);
        policy.begin(0, Window::from_bytes(segments * MSS));
        policy
    }

    fn event(policy: &CtrlTcp, flow: usize) -> Event {
        testing::event(Cause::Recovery, flow, policy.now.epoch)
    }

    fn segments(policy: &CtrlTcp) -> u64 {
        policy.now.window.bytes() / MSS
    }

    #[test]
    fn an_empty_group_remembers_for_a_while() {
        let mut policy = begun(80);
        policy.congestion(event(&policy, 0));
        policy.end(1_000_000);
        policy.begin(1_500_000, Window::from_bytes(10 * MSS));
        assert_eq!(segments(&policy), 20, "40 segments, halved once after 0.5 s");
        policy.end(2_000_000);
        policy.begin(20_000_000, Window::from_bytes(10 * MSS));
        assert_eq!((segments(&policy), policy.now.threshold), (10, None));
    }

    #[test]
    fn undo_restores_only_the_latest_reduction_of_its_flow() {
        let mut policy = begun(80);
        policy.congestion(event(&policy, 1));
        policy.undo(2, 0);
        assert_eq!(segments(&policy), 40, "undone by a flow that did not reduce");
        policy.undo(1, 0);
        assert_eq!((segments(&policy), policy.now.threshold), (80, None));
    }

    #[test]
    fn e3_an_old_reduction_is_not_undone() {
        for (srtt, late, left) in
            [(0, 200_000, 80), (0, 200_001, 40), (100_000, 400_000, 80), (100_000, 400_001, 40)]
        {
            let mut policy = begun(80);
            policy.congestion(Event { srtt, now: 7, ..event(&policy, 1) });
            policy.undo(1, 7 + late);
            assert_eq!(segments(&policy), left, "after {late} us at a srtt of {srtt}");
        }
    }

    #[test]
    fn e3_a_reduction_is_undone_once() {
        let mut policy = begun(160);
        policy.congestion(event(&policy, 0));
        policy.congestion(event(&policy, 1));
        policy.undo(1, 0);
        assert_eq!(segments(&policy), 80);
        policy.ack(Ack { grown: 0, shrunk: 20 * MSS, ..ack(0, 80 * MSS) });
        policy.undo(1, 0);
        assert_eq!(segments(&policy), 60, "what a flow's delay took is not given back");
    }

    #[test]
    fn slow_start_stops_at_the_threshold() {
        let mut policy = begun(80);
        policy.first_timeout();
        policy.all_timed_out(event(&policy, 0));
        for _ in 0..100 {
            let ack = ack(0, MSS);
            if policy.now.in_slow_start() {
                policy.ack(ack);
            }
        }
        assert_eq!(segments(&policy), 40);
    }

    #[test]
    fn a_flow_that_watches_the_delay_closes_the_window() {
        let mut policy = begun(80);
        policy.congestion(event(&policy, 0));
        policy.ack(Ack { grown: 0, shrunk: 4 * MSS, part: (1, 2), ..ack(0, 8 * MSS) });
        assert_eq!((segments(&policy), policy.now.in_slow_start()), (38, false));
        policy.ack(Ack { grown: 0, shrunk: 900 * MSS, ..ack(0, 900 * MSS) });
        assert_eq!(segments(&policy), 2, "a segment for each flow is left");
    }

    #[test]
    fn n_tcps_grow_n_times_and_loses_an_nth() {
        let mut policy =
            CtrlTcp::new(EquivalentTcps::from_f64(4.0).expect("in range"), GrowthSource::Mean);
        policy.begin(0, Window::from_bytes(80 * MSS));
        policy.congestion(event(&policy, 0));
        assert_eq!(segments(&policy), 70, "an eighth lost instead of a half");
        policy.ack(ack(0, MSS));
        assert_eq!(segments(&policy), 74);
    }

    #[test]
    fn of_four_tcps_those_grow_that_do_not_recover() {
        let mut policy =
            CtrlTcp::new(EquivalentTcps::from_f64(4.0).expect("in range"), GrowthSource::Mean);
        policy.begin(0, Window::from_bytes(80 * MSS));
        policy.congestion(Event { srtt: 1, ..event(&policy, 0) });
        policy.ack(ack(0, MSS));
        assert_eq!(segments(&policy), 73, "three segments");
    }

    #[test]
    fn losses_from_before_an_empty_group_reduce_nothing() {
        let mut policy =
            CtrlTcp::new(EquivalentTcps::from_f64(4.0).expect("in range"), GrowthSource::Mean);
        policy.begin(0, Window::from_bytes(80 * MSS));
        let losses = [event(&policy, 0), event(&policy, 1)];
        policy.congestion(losses[0]);
        policy.end(1_000_000);
        policy.begin(1_000_000, Window::from_bytes(10 * MSS));
        policy.congestion(losses[1]);
        assert_eq!(segments(&policy), 70);
    }

    #[test]
    fn of_four_tcps_as_many_reduce_as_lose() {
        let mut policy =
            CtrlTcp::new(EquivalentTcps::from_f64(4.0).expect("in range"), GrowthSource::Mean);
        policy.begin(0, Window::from_bytes(80 * MSS));
        let losses: Vec<_> = (0..6).map(|flow| event(&policy, flow)).collect();
        let left = losses.into_iter().map(|loss| {
            policy.congestion(loss);
            (segments(&policy), policy.now.epoch)
        });
        let left: Vec<_> = left.collect();
        assert_eq!(left, [(70, 2), (60, 2), (50, 2), (40, 2), (40, 2), (40, 2)]);
    }
}
