// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether the VMs of a group see one queue.
//!
//! VMs behind one FIFO see the same queue, so their round-trip times move by the same
//! time, however far their receivers are.  One flow of each VM is its witness.  Once a
//! period it is compared by how much the round-trip times have moved in the last
//! periods.  It speaks against a VM that it saw nothing where two others saw a queue, or
//! that it alone saw a queue at which it also was the one that lost.
use crate::{
    fixed::{Micros, Weight},
    median::{Entry, Median},
    report::Report,
};

/// A period is 2^20 microseconds.
const PERIOD_BITS: u32 = 20;
const PERIOD_US: Micros = 1 << PERIOD_BITS;
/// Periods over which a swing is taken: a queue that fills slowly moves it too, and a
/// short burst that one VM has missed is seen by it at another time.
const PERIODS: usize = 8;
/// So many of them have to be known.
const PERIODS_LEAST: usize = 6;
/// Samples of a period that is known.
const SAMPLES_LEAST: u32 = 4;
/// A round-trip time is an average over about so many samples, of which there are about
/// eight a round trip.
const SMOOTHED: u64 = 8;
/// A smaller swing is noise, and so is one below this part of the round-trip time.
const SWING_LEAST_US: u32 = 1000;
const SWING_LEAST_PART: u32 = 32;
/// Below this window, in segments, samples wait for delayed ACKs.
const WINDOW_LEAST: u32 = 3;
/// Comparisons against a VM from which on it is said to be apart.
const SCORE_APART: u8 = 7;
const SCORE_MOST: u8 = 10;
/// What one comparison in which it saw the others' queue takes away.
const SCORE_SEEN: u8 = 4;

/// What speaks for and against a VM's being behind the group's bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// It does not seem to be.
    pub apart: bool,
    /// Comparisons that said something, of the last 32.
    pub compared: u32,
    /// Those at which others saw a queue and it did not.
    pub unseen: u32,
    /// Those at which it alone saw a queue, and lost.
    pub alone: u32,
    /// By how much its round-trip time moved, at the latest, microseconds.
    pub swing_us: u32,
    /// The same of that other VM whose moved most, or second most where others agree.
    pub others_swing_us: u32,
}

/// A report as far as it tells of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) now: Micros,
    pub(crate) member: usize,
    /// The VM's.
    pub(crate) weight: Weight,
    pub(crate) flow: usize,
    pub(crate) report: &'a Report,
}

impl Sample<'_> {
    fn period(&self) -> u64 {
        self.now >> PERIOD_BITS
    }

    fn tells(&self) -> bool {
        let Report { rtt_us, cwnd_bytes, mss_bytes, .. } = *self.report;
        rtt_us > 0 && cwnd_bytes >= WINDOW_LEAST * u32::from(mss_bytes.max(1))
    }
}

/// By how much a VM's round-trip time moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Swing {
    member: usize,
    us: u32,
    /// Its round-trip time without the queue, as far as seen.
    rtt_us: u32,
}

impl Swing {
    fn tells(&self) -> bool {
        self.us >= SWING_LEAST_US.max(self.rtt_us / SWING_LEAST_PART)
    }

    /// Whether it is more than `times` another.
    fn exceeds(&self, times: u64, other: &Swing) -> bool {
        u64::from(self.us) > times * u64::from(other.us)
    }
}

/// The two largest swings up to one period, all of them by weight, and whose loss was the
/// latest reduction.
#[derive(Debug, Default)]
struct Round {
    period: u64,
    first: Swing,
    second: Option<Swing>,
    all: Median,
    loser: Option<usize>,
}

impl Round {
    fn new(period: u64, loser: Option<usize>) -> Round {
        Round { period, loser, ..Round::default() }
    }

    fn add(&mut self, swing: Swing, weight: Weight) {
        self.all.moved(None, Some(Entry::new(swing.us.into(), weight)));
        if self.first == Swing::default() {
            self.first = swing;
        } else if swing.us > self.first.us {
            self.second = Some(std::mem::replace(&mut self.first, swing));
        } else if self.second.is_none_or(|second| swing.us > second.us) {
            self.second = Some(swing);
        }
    }

    /// What the round says of one of those it is over.
    fn compare(&self, own: &Swing) -> Option<Finding> {
        let (first, second) = (self.first, self.second?);
        if !first.exceeds(2, &second) {
            return second.tells().then(|| several(own, &second, self.is_like_most(own))).flatten();
        }
        let among = [first.member, second.member].contains(&own.member);
        match (first.tells(), first.exceeds(4, &second)) {
            (true, true) if self.loser == Some(own.member) && first.member == own.member => {
                Some(Finding::Alone)
            }
            (true, false) if among => Some(Finding::Seen),
            _ => None,
        }
    }

    /// Whether it says something, and of most VMs by weight none saw much more.
    fn is_like_most(&self, own: &Swing) -> bool {
        own.tells() && self.all.most_are_up_to(2 * Micros::from(own.us))
    }

    /// The swing that a VM's own is compared with.
    fn others(&self, own: &Swing) -> u32 {
        let second = self.second.unwrap_or_default();
        if self.first.exceeds(2, &second) && own.member != self.first.member {
            self.first.us
        } else {
            second.us
        }
    }
}

/// What it says where several see a queue, of which `least` saw the smallest.  Some who
/// say that they see more than most others do are not believed.
fn several(own: &Swing, least: &Swing, is_like_most: bool) -> Option<Finding> {
    match (least.exceeds(4, own) && !is_like_most, least.exceeds(2, own)) {
        (true, _) => Some(Finding::Unseen),
        (false, true) => None,
        (false, false) => Some(Finding::Seen),
    }
}

/// What a comparison says of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// It saw what another saw.
    Seen,
    /// It did not see what others saw.
    Unseen,
    /// Nobody saw what it saw when it lost.
    Alone,
}

/// The range of a witness' round-trip time in a period.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    period: u64,
    least_us: u32,
    most_us: u32,
}

/// A VM's witness, and what was found by it.
#[derive(Clone, Debug, Default)]
struct Member {
    /// The witness.
    flow: Option<usize>,
    /// Its smoothed round-trip time, times [`SMOOTHED`].
    smoothed_us: u64,
    /// What it says of the present period.
    range: Range,
    samples: u32,
    heard: Micros,
    /// It was heard from all through the period.
    whole: bool,
    /// The periods before, by their numbers.
    ranges: [Range; PERIODS],
    /// Up to the period before, if enough is known.
    swing: Option<(u64, Swing)>,
    findings: Findings,
}

impl Member {
    /// Nothing was heard of it for so long that nothing is known of it any more.
    fn is_stale(&self, period: u64) -> bool {
        period.saturating_sub(self.range.period) > PERIODS as u64
    }

    /// Takes a sample of the present period.
    fn hear(&mut self, sample: &Sample) {
        if self.flow != Some(sample.flow) {
            return;
        }
        let rtt_us = u64::from(sample.report.rtt_us);
        self.whole &= sample.now.saturating_sub(self.heard) <= PERIOD_US / 2;
        self.heard = sample.now;
        self.samples = self.samples.saturating_add(1);
        self.smoothed_us = self.smoothed_us - self.smoothed_us / SMOOTHED + rtt_us;
        let us = (self.smoothed_us / SMOOTHED) as u32;
        self.range.least_us = self.range.least_us.min(us);
        self.range.most_us = self.range.most_us.max(us);
    }

    /// Ends the period it was in; its swing up to there, if that is the one before.
    fn begin(&mut self, sample: &Sample) -> Option<Swing> {
        let (period, begins) = (sample.period(), sample.period() << PERIOD_BITS);
        let follows = self.range.period + 1 == period;
        let spoke = self.samples > 0;
        let late = |heard: Micros| begins.saturating_sub(heard) > PERIOD_US / 2;
        if follows && self.whole && self.samples >= SAMPLES_LEAST && !late(self.heard) {
            self.ranges[self.range.period as usize % PERIODS] = self.range;
        }
        let goes_on = follows && spoke && self.flow.is_some();
        if !goes_on {
            self.flow = Some(sample.flow);
            self.ranges = Default::default();
            self.smoothed_us = u64::from(sample.report.rtt_us) * SMOOTHED;
        }
        self.whole = goes_on && sample.now - begins <= PERIOD_US / 2;
        (self.samples, self.heard) = (0, sample.now);
        self.range = Range { period, least_us: u32::MAX, most_us: 0 };
        self.swing_up_to(period.checked_sub(1)?, sample.member)
    }

    /// By how much its round-trip time moved in the periods up to this one.
    fn swing_up_to(&self, last: u64, member: usize) -> Option<Swing> {
        let from = (last + 1).saturating_sub(PERIODS as u64);
        let is_known = |range: &&Range| (from..=last).contains(&range.period) && range.most_us > 0;
        let known = || self.ranges.iter().filter(is_known);
        let ends = known().any(|range| range.period == last);
        let least_us = known().map(|range| range.least_us).min()?;
        let most_us = known().map(|range| range.most_us).max()?;
        let swing = Swing { member, us: most_us - least_us, rtt_us: least_us };
        (ends && known().count() >= PERIODS_LEAST).then_some(swing)
    }
}

/// What comparisons have found, the latest in the lowest bit.
#[derive(Clone, Copy, Debug, Default)]
struct Findings {
    compared: u32,
    unseen: u32,
    alone: u32,
    score: u8,
    apart: bool,
    swing_us: u32,
    others_swing_us: u32,
}

impl Findings {
    fn add(&mut self, finding: Finding, own: &Swing, round: &Round) {
        let against = finding != Finding::Seen;
        self.compared = self.compared << 1 | 1;
        self.unseen = self.unseen << 1 | u32::from(finding == Finding::Unseen);
        self.alone = self.alone << 1 | u32::from(finding == Finding::Alone);
        self.score = if against {
            (self.score + 1).min(SCORE_MOST)
        } else {
            self.score.saturating_sub(SCORE_SEEN)
        };
        self.apart = self.score >= SCORE_APART || (self.apart && self.score > 0);
        if against || !self.apart {
            (self.swing_us, self.others_swing_us) = (own.us, round.others(own));
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence {
            apart: self.apart,
            compared: self.compared.count_ones(),
            unseen: self.unseen.count_ones(),
            alone: self.alone.count_ones(),
            swing_us: self.swing_us,
            others_swing_us: self.others_swing_us,
        }
    }
}

/// The witnesses of a group.
#[derive(Debug, Default)]
pub(crate) struct Witnesses {
    members: Vec<Member>,
    /// Over the period before the present one, which is still being told of.
    telling: Round,
    /// Over the one before that.
    told: Round,
    /// Whose loss was the latest reduction.
    loser: Option<usize>,
    verdicts: u64,
}

impl Witnesses {
    /// A VM of this number comes, of which nothing is known.
    pub(crate) fn add(&mut self, member: usize) {
        if member >= self.members.len() {
            self.members.resize(member + 1, Member::default());
        }
        self.forget(member);
    }

    /// A VM has gone.
    pub(crate) fn forget(&mut self, member: usize) {
        self.members[member] = Member::default();
    }

    /// A flow has gone; the next of its number is another.
    pub(crate) fn left(&mut self, member: usize, flow: usize) {
        let member = &mut self.members[member];
        member.flow = member.flow.filter(|witness| *witness != flow);
    }

    /// The aggregate was reduced for a loss of this VM.
    pub(crate) fn lost(&mut self, member: usize) {
        self.loser = Some(member);
    }

    /// Takes what a report says of the queue.
    pub(crate) fn hear(&mut self, sample: &Sample) {
        if !sample.tells() {
            return;
        }
        let period = sample.period();
        if self.telling.period + 1 != period {
            let telling = Round::new(period.saturating_sub(1), self.loser);
            self.told = std::mem::replace(&mut self.telling, telling);
        }
        if self.members[sample.member].range.period != period {
            self.compare(sample);
        }
        self.members[sample.member].hear(sample);
    }

    /// A VM's first sample of a period: it is compared with the others of the period
    /// that all have told of, and tells of the one that has just ended.
    fn compare(&mut self, sample: &Sample) {
        let member = &mut self.members[sample.member];
        let before = member.findings.apart;
        if member.is_stale(sample.period()) {
            *member = Member::default();
        }
        let told = member.swing.filter(|(period, _)| *period == self.told.period);
        if let Some((_, own)) = told {
            if let Some(finding) = self.told.compare(&own) {
                member.findings.add(finding, &own, &self.told);
            }
        }
        let swing = member.begin(sample);
        member.swing = swing.map(|swing| (self.telling.period, swing));
        self.verdicts += u64::from(before != member.findings.apart);
        if let Some(swing) = swing {
            self.telling.add(swing, sample.weight);
        }
    }

    /// A VM does not seem to be behind the bottleneck of the others.
    pub(crate) fn is_apart(&self, now: Micros, member: usize) -> bool {
        let Some(known) = self.members.get(member) else { return false };
        known.findings.apart && !known.is_stale(now >> PERIOD_BITS)
    }

    /// What is known of a VM.
    pub(crate) fn evidence(&self, now: Micros, member: usize) -> Evidence {
        let known = self.members.get(member).filter(|m| !m.is_stale(now >> PERIOD_BITS));
        known.map_or_else(Evidence::default, |m| m.findings.evidence())
    }

    /// Changes whenever a VM comes to be apart, or no longer is.
    pub(crate) fn verdicts(&self) -> u64 {
        self.verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u32 = 1000;
    const SECOND: Micros = 1_000_000;

    /// A group whose VMs report every 20 ms.
    struct Run {
        witnesses: Witnesses,
        now: Micros,
    }

    impl Run {
        fn new(members: usize) -> Run {
            let mut witnesses = Witnesses::default();
            (0..members).for_each(|member| witnesses.add(member));
            Run { witnesses, now: 0 }
        }

        /// Goes on for so many seconds; the VMs' round-trip times are those of `rtt_us`.
        fn go(&mut self, seconds: u64, rtt_us: impl Fn(usize, Micros) -> u32) -> &mut Run {
            let end = self.now + seconds * SECOND;
            while self.now < end {
                for member in 0..self.witnesses.members.len() {
                    self.hear(member, member, 10, rtt_us(member, self.now));
                }
                self.now += 20_000;
            }
            self
        }

        fn hear(&mut self, member: usize, flow: usize, segments: u32, rtt_us: u32) {
            let report = Report { rtt_us, cwnd_bytes: segments * 1448, ..Report::default() };
            let (now, weight, report) = (self.now, Weight::ONE, &report);
            self.witnesses.hear(&Sample { now, member, weight, flow, report });
        }

        fn apart(&self) -> Vec<usize> {
            let all = 0..self.witnesses.members.len();
            all.filter(|member| self.evidence(*member).apart).collect()
        }

        fn evidence(&self, member: usize) -> Evidence {
            self.witnesses.evidence(self.now, member)
        }
    }

    /// A queue of up to 50 ms that is full every five seconds.
    fn queue_us(now: Micros) -> u32 {
        (now % (5 * SECOND) / 100) as u32
    }

    /// As it is seen by one whose path is `near` milliseconds long.
    fn rtt(near: u32, now: Micros) -> u32 {
        near * MS + queue_us(now)
    }

    #[test]
    fn vms_behind_one_queue_see_it_from_any_distance() {
        let mut run = Run::new(3);
        run.go(60, |vm, now| rtt([5, 60, 200][vm], now - now.min(200_000 * vm as u64)));
        assert!(run.apart().is_empty());
        let Evidence { compared, unseen, alone, .. } = run.evidence(1);
        assert_eq!((compared, unseen, alone), (32, 0, 0));
    }

    #[test]
    fn a_vm_that_does_not_see_the_others_queue_is_apart_within_20_s() {
        let mut run = Run::new(3);
        run.go(20, |vm, now| if vm == 1 { 100 * MS } else { rtt(100, now) });
        assert_eq!(run.apart(), [1]);
        let evidence = run.evidence(1);
        assert!(evidence.unseen >= 7 && evidence.unseen == evidence.compared, "{evidence:?}");
        assert_eq!((evidence.swing_us, evidence.others_swing_us / 10_000), (0, 4));
        assert_eq!(run.witnesses.verdicts(), 1);
    }

    #[test]
    fn two_who_lie_together_set_nobody_apart() {
        let mut run = Run::new(5);
        run.go(60, |vm, now| 100 * MS + queue_us(now) * if vm < 3 { 1 } else { 8 });
        assert!(run.apart().is_empty(), "{:?}", run.apart());
    }

    #[test]
    fn two_of_four_who_see_a_larger_queue_are_another_group() {
        let mut run = Run::new(4);
        run.go(40, |vm, now| 100 * MS + queue_us(now) * if vm < 2 { 1 } else { 8 });
        assert_eq!(run.apart(), [0, 1]);
    }

    #[test]
    fn a_vm_that_loses_where_nobody_else_sees_a_queue_is_apart() {
        let alone = |vm, now| if vm == 1 { rtt(100, now) } else { 100 * MS };
        let mut run = Run::new(3);
        run.go(40, alone);
        assert!(run.apart().is_empty(), "it has lost nothing");
        run.witnesses.lost(1);
        run.go(20, alone);
        assert_eq!(run.apart(), [1]);
        assert!(run.evidence(1).alone >= 7);
        assert_eq!(run.evidence(0).compared, 0, "of those who see none nothing is known");
    }

    #[test]
    fn a_verdict_ends_when_the_queue_is_seen() {
        let mut run = Run::new(3);
        run.go(30, |vm, now| if vm == 1 { 100 * MS } else { rtt(100, now) });
        assert_eq!(run.apart(), [1]);
        run.go(20, |_, now| rtt(100, now));
        assert_eq!((run.apart().len(), run.witnesses.verdicts()), (0, 2));
    }

    #[test]
    fn what_was_not_heard_of_for_long_is_forgotten() {
        let mut run = Run::new(3);
        run.go(30, |vm, now| if vm == 1 { 100 * MS } else { rtt(100, now) });
        run.now += 10 * SECOND;
        assert_eq!(run.evidence(1), Evidence::default());
        run.go(2, |_, now| rtt(100, now));
        assert_eq!((run.evidence(1).compared, run.witnesses.verdicts()), (0, 2));
    }

    #[test]
    fn a_queue_that_hardly_moves_says_nothing() {
        let mut run = Run::new(2);
        run.witnesses.lost(0);
        run.go(40, |vm, now| 100 * MS + if vm == 0 { queue_us(now) / 20 } else { 0 });
        assert_eq!(run.evidence(0), Evidence::default());
    }

    #[test]
    fn a_vm_alone_in_its_group_is_compared_with_nobody() {
        let mut run = Run::new(1);
        run.witnesses.lost(0);
        run.go(40, |_, now| rtt(100, now));
        assert_eq!(run.evidence(0), Evidence::default());
    }

    #[test]
    fn windows_of_two_segments_say_nothing() {
        let mut run = Run::new(2);
        run.witnesses.lost(0);
        for _ in 0..2000 {
            let delayed_ack = if run.now / 100_000 % 2 == 0 { 40 * MS } else { 0 };
            run.hear(0, 0, 2, 100 * MS + delayed_ack);
            run.hear(1, 1, 10, 100 * MS);
            run.now += 20_000;
        }
        assert_eq!(run.evidence(0), Evidence::default());
    }

    /// A VM beside two others whose flows last so many seconds each: one to a near
    /// receiver, the next, of the same number, to a far one.
    fn in_turns(seconds: usize) -> Evidence {
        let mut run = Run::new(3);
        run.witnesses.lost(2);
        for step in 0..3000 {
            let turn = step / (50 * seconds);
            if step % (50 * seconds) == 0 {
                run.witnesses.left(2, 9);
            }
            for (member, flow, near) in [(0, 0, 100), (1, 1, 100), (2, 9, [10, 300][turn % 2])] {
                run.hear(member, flow, 10, rtt(near, run.now));
            }
            run.now += 20_000;
        }
        run.evidence(2)
    }

    #[test]
    fn short_flows_say_nothing_of_a_queue_that_they_do_not_live_to_see() {
        assert_eq!(in_turns(2), Evidence::default());
    }

    #[test]
    fn a_flow_to_another_receiver_begins_anew() {
        let Evidence { compared, alone, unseen, .. } = in_turns(12);
        assert!(compared > 0 && (alone, unseen) == (0, 0), "{compared} {alone} {unseen}");
    }

    #[test]
    fn any_time_and_any_round_trip_time_can_be_told() {
        let mut run = Run::new(2);
        for now in [0, 1, PERIOD_US, Micros::MAX / 2, Micros::MAX] {
            run.now = now;
            for _ in 0..50 {
                run.hear(0, 0, u32::MAX / 1448, u32::MAX);
                run.hear(1, 1, 10, 1);
            }
        }
        assert!(run.apart().is_empty());
    }
}
