// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A bottleneck group: its members, its aggregate, what reports do to both, and what
//! its VMs are granted.
mod bound;
mod carried;
mod counted;
mod granted;
mod recent;
mod used;

use crate::{
    alone::Windows,
    bounds::{Conduct, Distance, Events, Limits},
    config::{GroupConfig, ShareOf},
    fixed::{Beta, Fraction, Micros, Weight, Window},
    flow::{self, Contribution, Delta, Flow, Usage, Whereabouts},
    mean::MeanUnits,
    members::Members,
    path::{Path, PathState},
    policy::{self, Ack, Aggregate, Cause, CongestionEvent, Others, PathSample, Policy, QueueMode},
    range::RateRange,
    report::Report,
    times::Times,
    witness::{Evidence, Sample, Witnesses},
};
use carried::{Carried, Mean};
use counted::Change;
use granted::Granted;
use recent::Recent;
use used::Used;

/// Guests of a daemon that has begun anew come back within this time.
const ADOPTION_US: Micros = 2_000_000;

/// At such a round-trip time guests spread less than two segments over time
/// (`CCC_SPREAD_RTT_MIN_US`).
const SPREAD_FROM_US: u32 = 10_000;

/// For so many of the others' round trips their losses say that the path is not idle.
const IDLE_ROUNDS: Micros = 8;

/// What others have told to wait says something for so many round trips.
const RECENT_ROUNDS: Micros = 2;

/// What others say to wait is an average, which may be so many times a round trip by now.
const LONGEST_WAIT: Micros = 2;
/// For so many round trips a flow that tells of no queue, so less than this part of its RTT, may
/// have seen nothing but a full one.
const NEW_ROUNDS: Micros = 8;
const KNOWN_PART: Micros = 8;

/// An idle path of its own is filled as by so many flows at the most.
const MOST_GROWERS: u64 = 16;

/// The aggregate of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Aggregate window.
    pub cwnd_bytes: u64,
    /// Aggregate slow start threshold; `None` before the first event.
    pub ssthresh_bytes: Option<u64>,
    /// Changes with every reduction, and where other rules begin.
    pub epoch: u32,
    /// Reductions there were.
    pub reductions: u64,
    /// Flows that count.
    pub active_flows: u64,
    /// What they see of their path; nothing if none counts.
    pub path: PathState,
    /// What the policy does about others on it, if it has several ways.
    pub mode: Option<QueueMode>,
}

/// A bottleneck group.
#[derive(Debug)]
pub(crate) struct Group {
    members: Members,
    /// What they counted when the last one left: what the aggregate was shared by.
    left: Option<Mean>,
    carried: Carried,
    used: Used,
    path: Path,
    aggregate: Aggregate,
    policy: Box<dyn Policy>,
    config: GroupConfig,
    reductions: u64,
    version: u64,
    granted: Granted,
    /// Flows adopted until then bring their windows along.
    adopts_until: Micros,
    witnesses: Witnesses,
    /// What packets wait in the queue, as the VMs see it.
    waits: Times,
    /// The same as they have told it last.
    recent: Recent,
    limits: Limits,
    events: Events,
}

/// The windows of a group; in slow start, none is on the path for a whole round.
fn windows(aggregate: &Aggregate, members: &Members) -> Option<Windows> {
    if aggregate.in_slow_start() {
        return None;
    }
    let used = aggregate.window.times(members.backlogged_over_mean());
    Some(Windows { aggregate: aggregate.window, used })
}

/// A flow's report, and the flow as it was before.
pub(crate) struct Update<'a> {
    pub(crate) now: Micros,
    pub(crate) key: usize,
    pub(crate) flow: &'a Flow,
    /// What it contributed.
    pub(crate) before: &'a Contribution,
    pub(crate) report: &'a Report,
    /// What it tells that has happened since the one before.
    pub(crate) told: Delta,
    /// What it uses with that.
    pub(crate) usage: Usage,
    /// So far apart the flow's reports are to be.
    pub(crate) interval_us: Micros,
}

/// Whether a flow has been there for so short a time that it cannot know what its path is without
/// a queue, which stands for some round trips between two reductions.
fn is_new(sample: &PathSample) -> bool {
    sample.now.saturating_sub(sample.joined) < NEW_ROUNDS * Micros::from(sample.rtt_us)
}

impl Group {
    pub(crate) fn new(config: GroupConfig) -> Group {
        Group {
            members: Members::default(),
            left: None,
            carried: Carried::default(),
            used: Used::default(),
            path: Path::default(),
            aggregate: Aggregate::default(),
            policy: policy::build(&config),
            config,
            reductions: 0,
            version: 0,
            granted: Granted::default(),
            adopts_until: 0,
            witnesses: Witnesses::default(),
            waits: Times::upper(),
            recent: Recent::default(),
            limits: Limits::default(),
            events: Events::default(),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn add_member(&mut self, weight: Weight) -> usize {
        let member = self.members.add(weight);
        self.granted.add(member);
        self.witnesses.add(member);
        self.waits.add(member);
        self.limits.add(member);
        self.events.add(member);
        member
    }

    pub(crate) fn remove_member(&mut self, member: usize) {
        self.members.remove(member);
        self.witnesses.forget(member);
        self.waits.forget(member);
        self.limits.forget(member);
        self.events.add(member);
        self.version += 1;
    }

    /// Whether the member has flows that take all they are given.
    pub(crate) fn is_backlogged(&self, member: usize) -> bool {
        self.members.is_backlogged(member)
    }

    pub(crate) fn set_weight(&mut self, member: usize, weight: Weight) {
        let waits = self.units_of(self.waits.us());
        self.at_the_same_rate(waits, |members| members.set_weight(member, weight));
        self.version += 1;
    }

    /// Sets a VM's floor and cap.
    pub(crate) fn set_range(&mut self, member: usize, range: RateRange) {
        let time_us = self.range_time_us(member);
        self.members.set_range(member, range, time_us);
        self.version += 1;
    }

    /// The time in which a VM's floor and cap count: where shares are windows its round-trip
    /// time, as far as that is likely.
    fn range_time_us(&self, member: usize) -> Micros {
        match (self.config.share, self.limits.rtt_us(member)) {
            (ShareOf::Rate, _) => 1,
            (ShareOf::Window, 0) => ShareOf::SRTT_UNKNOWN_US.into(),
            (ShareOf::Window, _) => self.limits.likely_rtt_us(member).max(1),
        }
    }

    /// A VM's floor and cap follow its round-trip time.
    fn time_range(&mut self, member: usize) {
        if let Some(range) = self.members.range_of(member) {
            let time_us = self.range_time_us(member);
            self.members.set_range(member, range, time_us);
        }
    }

    /// Takes a report; returns what the flow contributes from now on.
    pub(crate) fn take(&mut self, update: &Update) -> Contribution {
        let epoch = self.aggregate.epoch;
        let contribution = self.apply(update);
        let Update { now, key: flow, report, .. } = *update;
        let member = update.flow.member();
        if self.aggregate.epoch != epoch {
            self.reductions += 1;
            self.witnesses.lost(member);
        }
        if self.policy.couples() {
            let weight = self.members.weight_of(member);
            self.witnesses.hear(&Sample { now, member, weight, flow, report });
        }
        contribution
    }

    fn apply(&mut self, update: &Update) -> Contribution {
        let Update { now, key, flow, .. } = *update;
        let delta = self.bound(update);
        let sample = self.hear(update, &delta);
        if update.before.active {
            // Against the sums in which the data was sent.
            self.grow(update, &delta, sample);
        }
        if delta.spurious && self.events.may_undo(flow.member()) {
            self.undo(now, key);
        }
        if delta.timeout && self.members.none_timed_out() {
            self.policy.first_timeout(&self.aggregate);
        }
        if let Some(cause) = delta.cause() {
            self.reduce(update, cause);
        }
        let contribution = self.count_anew(update);
        if delta.timeout && self.members.all_timed_out() {
            let event = self.event(update, Cause::Timeout);
            self.policy.all_timed_out(&mut self.aggregate, &event);
        }
        self.version += 1;
        contribution
    }

    /// A reduction was spurious, as who has lost says.  Beside others that does not bring slow
    /// start back, or who loses and takes it back again and again would double the aggregate
    /// each time.
    fn undo(&mut self, now: Micros, key: usize) {
        let threshold = self.aggregate.ssthresh;
        self.policy.undo(&mut self.aggregate, key, now);
        let Aggregate { window, ssthresh, .. } = &mut self.aggregate;
        if ssthresh.is_none() && threshold.is_some() && self.members.vms() > 1 {
            *ssthresh = Some(*window);
        }
    }

    /// Counts a flow as it reports, as far as that can be.
    fn count_anew(&mut self, update: &Update) -> Contribution {
        let Update { now, flow, report, .. } = *update;
        let member = flow.member();
        let weight = self.members.weight_of(member);
        let mean_us = match self.config.share {
            ShareOf::Rate => self.members.mean_told_of(member),
            ShareOf::Window => self.limits.rtt_us(member),
        };
        self.limits.hear_segment(member, weight, report.mss_bytes.into());
        let distance = self.limits.hear_rtt(member, weight, mean_us, report.srtt_us);
        // Shares of windows do not depend on it.
        let distance = match self.config.share {
            ShareOf::Rate => distance,
            ShareOf::Window => Distance::ANY,
        };
        let new = Contribution::new(report, self.config.share, &update.usage, update.before)
            .up_to(distance)
            .at_distance(update.before, self.whereabouts(member, report));
        self.count(now, &Change { member, old: update.before, new: &new }, report);
        self.time_range(member);
        new
    }

    /// Takes what a report says of the path.
    fn hear(&mut self, update: &Update, delta: &Delta) -> PathSample {
        let member = update.flow.member();
        let sample = self.path_sample(update, delta);
        match self.waited_us(update, &sample) {
            Some(waited_us) => self.waits.hear(member, self.members.weight_of(member), waited_us),
            // What it said before is of another queue, too; no sample is taken of that.
            None if sample.rtt_us == 0 && self.witnesses.is_apart(update.now, member) => {
                self.waits.forget(member)
            }
            None => self.waits.pass(member),
        }
        // Asked only where the first slow start is to end: not before a new flow says so, too.
        let waited_us = sample.waited_us().filter(|_| self.is_first_slow_start());
        if let Some(waited_us) = waited_us {
            self.recent.hear(update.now, member, waited_us);
        }
        let (aggregate, members) = (&self.aggregate, &self.members);
        let ends = self.path.add(sample, || windows(aggregate, members));
        // Later slow start would have to lead back, in which nothing that limited flows write is paced.
        if self.is_first_slow_start() {
            self.leave_unused(update, &sample, ends);
        }
        self.carried.count_delivered(update.now, delta.delivered_bytes);
        sample
    }

    fn is_first_slow_start(&self) -> bool {
        self.aggregate.ssthresh.is_none()
    }

    /// What hardly anybody uses of the aggregate is given up.
    fn leave_unused(&mut self, update: &Update, sample: &PathSample, round_ends: bool) {
        if sample.backlogged && self.used.needs_proof() {
            let Update { flow, report, before, usage, .. } = *update;
            let used_bytes = usage.demand_bytes(report.rtt_us, report.srtt_us);
            let granted = self.grant(flow.member());
            self.used.prove(used_bytes, granted.cwnd_bytes(before.claimed));
        }
        if !round_ends {
            return;
        }
        let ended = self.path.ended();
        let (window, used) = (self.aggregate.window, ended.outstanding(self.mean_us()));
        if let Some(used) = self.used.round(update.now, ended.length_us, used, window) {
            self.policy.leave_unused(&mut self.aggregate, used.max(flow::initial(update.report)));
        }
    }

    /// What a report says of the path: no round-trip times, if the VM does not see the
    /// queue of the others, or says so.
    fn path_sample(&self, update: &Update, delta: &Delta) -> PathSample {
        let Update { now, flow, report, .. } = *update;
        let is_apart = self.witnesses.is_apart(now, flow.member());
        let seen = |us| if is_apart { 0 } else { us };
        PathSample {
            now,
            delivered_bytes: delta.delivered_bytes,
            rtt_us: seen(report.rtt_us),
            // Who says that its shortest time is longer than its mean has slow start take the path
            // for a long one.
            min_rtt_us: seen(report.min_rtt_us.min(report.srtt_us)),
            joined: flow.joined,
            backlogged: update.before.active && update.before.demand_bytes.is_none(),
        }
    }

    /// How long a flow's packets waited.
    fn waited_us(&self, update: &Update, sample: &PathSample) -> Option<Micros> {
        let waited_us = sample.waited_us()?;
        if self.config.share == ShareOf::Window {
            return Some(waited_us);
        }
        if waited_us <= Micros::from(sample.rtt_us) / KNOWN_PART && is_new(sample) {
            return None;
        }
        match update.before.is_late(sample.min_rtt_us) {
            true => Some(self.waited_beyond_us(update, sample, waited_us)),
            false => Some(waited_us),
        }
    }

    /// Who came to a full queue has never seen it empty, and takes it for a part of its path:
    /// beyond its distance it waits as long as the others say.
    #[cold]
    fn waited_beyond_us(&self, update: &Update, sample: &PathSample, waited_us: Micros) -> Micros {
        let beyond_us = u64::from(sample.rtt_us).saturating_sub(update.before.distance);
        let others_us = self.waits.least_of_others_us(update.flow.member()).unwrap_or(0);
        if others_us > LONGEST_WAIT * Micros::from(sample.rtt_us) {
            return waited_us;
        }
        waited_us.max(beyond_us.min(others_us))
    }

    /// What packets of a VM wait, in what its flows count for one of priority.  The others
    /// say it, who are in the same queue, and itself only while there are none; of two who
    /// disagree the one who says less: one's own queue, or lie, scales no aggregate.
    pub(super) fn waits_of(&self, member: usize) -> u64 {
        self.units_of(self.waits.least_of_others_us(member).unwrap_or_else(|| self.waits.us()))
    }

    /// The same, of two who disagree by the one who says more: nobody counts for less by one's
    /// saying that nothing waits.
    fn most_waits_of(&self, member: usize) -> u64 {
        self.units_of(self.waits.of_others_us(member).unwrap_or_else(|| self.waits.us()))
    }

    /// How far away a flow of a VM with this report is, by what waits: no packets of a queue wait
    /// for much longer than others' whole round trip through it.  What bounds its round-trip time
    /// may be longer, as of a fuller queue: nothing waits, by that, would be the narrowest bound.
    fn whereabouts(
        &self,
        member: usize,
        report: &Report,
    ) -> Whereabouts<impl Fn() -> u64, impl Fn() -> u64> {
        let longest = self.units_of(LONGEST_WAIT * Micros::from(report.srtt_us));
        let believed = move |waits: u64| if waits > longest { 0 } else { waits };
        Whereabouts {
            most_waits: move || self.most_waits_of(member),
            waits: move || believed(self.waits_of(member)),
            empty: self.units_of(report.min_rtt_us.into()),
        }
    }

    fn units_of(&self, us: Micros) -> u64 {
        if self.config.share == ShareOf::Rate { us } else { 0 }
    }

    /// Takes the parts of some of a VM's flows out of the aggregate.
    pub(crate) fn take_out<'a>(&mut self, mut flows: impl Iterator<Item = &'a Flow>) {
        let whole = self.members.rate_weights();
        let Some(first) = flows.next() else { return };
        let weight = |flow: &Flow| self.members.rate_weight(flow.member(), &flow.contribution());
        let own: u128 = weight(first) + flows.map(weight).sum::<u128>();
        if own == 0 || own >= whole {
            // Idle flows have none; the last ones leave what is remembered.
            return;
        }
        let of_part = Fraction::new(own, self.members.rate_weight_of(first.member()).max(1));
        if !self.events.may_take_out(first.member(), of_part) {
            return;
        }
        self.aggregate.scale(Fraction::new(whole - own, whole));
        self.policy.resume(&self.aggregate);
    }

    /// A flow has gone for good.
    pub(crate) fn left(&mut self, member: usize, key: usize) {
        self.witnesses.left(member, key);
    }

    /// What speaks for and against a VM's being behind this bottleneck.
    pub(crate) fn evidence(&self, now: Micros, member: usize) -> Evidence {
        self.witnesses.evidence(now, member)
    }

    /// What a VM was found to do.
    pub(crate) fn conduct(&self, member: usize) -> Conduct {
        self.limits.conduct(member, self.events.conduct(member))
    }

    /// Changes whenever either comes to another verdict.
    pub(crate) fn verdicts(&self) -> u64 {
        self.witnesses.verdicts() + self.events.verdicts()
    }

    fn grow(&mut self, update: &Update, delta: &Delta, sample: PathSample) {
        let Update { key, report, .. } = *update;
        if delta.acked_limited_bytes == 0 || self.grow_pool(update, delta) {
            return;
        }
        let mean = self.members.mean_over_backlogged();
        // Few reports tell of all three.
        let of_all = |bytes| match bytes {
            0 => 0,
            _ => Window::from_bytes(bytes).times(mean).bytes(),
        };
        let acked = if self.has_room(update) { 0 } else { of_all(delta.acked_limited_bytes) };
        let acked = if mean.is_twice() { self.acked_of_all(update, acked) } else { acked };
        let is_enough = self.is_enough();
        let ack = Ack {
            flow: key,
            srtt_us: report.srtt_us.into(),
            mss_bytes: u64::from(report.mss_bytes).min(flow::JUMBO_BYTES),
            acked_limited_bytes: acked,
            growth_bytes: of_all(delta.growth_bytes),
            shrink_bytes: of_all(delta.shrink_bytes),
            floor_bytes: self.floor_bytes(report, Cause::Recovery),
            share: self.growth_share(update, delta),
            path_is_idle: self.is_idle(update),
            is_alone: !self.path.is_shared(),
            growers: if is_enough { 1 } else { self.growers() },
            sample,
            others: match self.aggregate.ssthresh {
                None => self.others(update.flow.member(), &sample),
                Some(_) => Others::default(),
            },
        };
        let most = if is_enough { self.aggregate.window } else { Window::MAX };
        self.policy.ack(&mut self.aggregate, &ack);
        // What nobody may use is not known to be there.
        self.aggregate.window = self.aggregate.window.min(most);
    }

    /// What ends the first slow start, as others than this VM see it: asked only where its own
    /// packets wait, and the window is more than the path was seen to hold.
    fn others(&self, member: usize, sample: &PathSample) -> Others {
        if !policy::may_wait(sample) || self.policy.is_cold(&self.aggregate) {
            return Others::default();
        }
        let mean = self.members.mean_distance().filter(|_| self.config.share == ShareOf::Rate);
        Others {
            mean_us: mean.map_or(0, MeanUnits::us),
            wait_us: self.others_wait_us(sample.now, member),
        }
    }

    /// What packets of a VM's neighbours wait now, if they say.
    fn others_wait_us(&self, now: Micros, member: usize) -> Option<Micros> {
        let rounds_us = RECENT_ROUNDS * self.limits.others_round_us(member);
        self.recent.of_others_since(member, now.saturating_sub(rounds_us))
    }

    /// A flow's share of the growth of all, if it grows or shrinks: few reports tell of that.
    pub(super) fn growth_share(&self, update: &Update, delta: &Delta) -> Fraction {
        match (delta.growth_bytes, delta.shrink_bytes) {
            (0, 0) => Fraction::NONE,
            _ => self.members.growth_share(update.flow.member(), update.before),
        }
    }

    /// Whether the path is idle for who grows now: one that tells of most bytes has the most to
    /// say of what waits, but others' losses are against it.
    fn is_idle(&self, update: &Update) -> bool {
        if !self.path.is_idle() {
            return false;
        }
        let member = update.flow.member();
        let rounds_us = IDLE_ROUNDS * self.limits.others_round_us(member);
        !self.events.outvotes_losses(member, update.now.saturating_sub(rounds_us))
    }

    /// As many flows would grow on an idle path.  Where others may be on it, as one; and
    /// no claim of flows makes it many.
    fn growers(&self) -> u64 {
        if self.path.is_shared() { 1 } else { self.members.backlogged_flows().min(MOST_GROWERS) }
    }

    /// Whether a flow in slow start is granted more than twice its own window, so that
    /// its application or its own way up limits it, and not the aggregate.
    fn has_room(&self, update: &Update) -> bool {
        if !self.aggregate.in_slow_start() {
            return false;
        }
        let Update { flow, report, .. } = *update;
        // Its guest multiplies by what it claims, believed or not.
        let granted = self.grant(flow.member()).cwnd_bytes(update.before.claimed);
        granted / 2 > u64::from(report.cwnd_bytes)
    }

    /// An event of what was sent under the present epoch says something of the path.
    fn reduce(&mut self, update: &Update, cause: Cause) {
        let mut event = self.event(update, cause);
        if !self.reduces_all(update.flow.member(), &event) {
            return;
        }
        if event.epoch == self.aggregate.epoch {
            // A lone flow gains nothing by giving up less than it does uncoupled, but where its
            // slow start ends: uncoupled, that goes further beyond what the path holds.
            let is_lone = self.members.active_flows() == 1 && self.aggregate.ssthresh.is_some();
            let holds = self.path.event(event.now, self.mean_rtt_us());
            event.holds = holds.filter(|_| !is_lone);
            event.is_full = self.path.was_full();
        }
        self.policy.congestion(&mut self.aggregate, &event);
    }

    /// That of the sum of rates; where shares are windows, none.
    fn mean_rtt_us(&self) -> Option<Micros> {
        let mean = self.members.mean_units().filter(|_| self.config.share == ShareOf::Rate);
        mean.map(MeanUnits::us)
    }

    fn event(&self, update: &Update, cause: Cause) -> CongestionEvent {
        let Update { now, key, flow, report, .. } = *update;
        CongestionEvent {
            cause,
            now,
            srtt_us: report.srtt_us.into(),
            flow: key,
            beta: Beta::clamped(report.beta),
            holds: None,
            is_full: false,
            epoch: report.congestion_epoch,
            mss_bytes: report.mss_bytes.into(),
            share: self.members.share(flow.member(), update.before),
            floor_bytes: self.floor_bytes(report, cause),
        }
    }

    /// What is left at the least: two segments for each active flow; of a reduction where
    /// guests spread less than two over time, one.  No more than its part counts of a VM.
    fn floor_bytes(&self, report: &Report, cause: Cause) -> u64 {
        let two = self.members.floor_bytes().saturating_sub(self.limits.floor_excess_bytes());
        match (cause, report.srtt_us) {
            (Cause::Recovery, SPREAD_FROM_US..) => two / 2,
            _ => two,
        }
    }

    /// Counts a flow that was running before the engine knew of it.  If it
    /// finds an empty group, it and those adopted soon after it make up the
    /// aggregate from the windows they have; otherwise it is a joiner.
    pub(crate) fn adopt(&mut self, now: Micros, flow: &Flow, report: &Report) -> Contribution {
        let (member, nothing) = (flow.member(), Contribution::default());
        let contribution = Contribution::new(report, self.config.share, &flow.usage, &nothing)
            .up_to(Distance::ANY)
            .at_distance(&nothing, self.whereabouts(member, report));
        let change = Change { member, old: &nothing, new: &contribution };
        let first = contribution.active && self.members.active_flows() == 0;
        self.version += 1;
        if !first && now > self.adopts_until {
            self.count(now, &change, report);
            return contribution;
        }
        if first {
            self.adopts_until = now.saturating_add(ADOPTION_US);
            self.policy.begin(&mut self.aggregate, now, Window::default());
            self.aggregate.begin(Window::default());
        }
        // Not a joiner: what it has is counted once, here.
        change.make(&mut self.members);
        if contribution.active {
            self.aggregate.add(report);
            self.policy.resume(&self.aggregate);
        }
        contribution
    }

    /// Changes how the group is coupled; the aggregate stays as it is, or is what
    /// flows `reported` if there was none.  The flows have to be counted again
    /// with [`Group::recount`].
    pub(crate) fn reconfigure(&mut self, config: GroupConfig, reported: Aggregate) {
        if config != (GroupConfig { share: config.share, ..self.config }) {
            self.aggregate = self.aggregate_or(|| reported);
            // Losses of what was sent under the other rules charge nothing.
            self.aggregate.begin_epoch();
            self.policy = policy::build(&config);
            self.policy.resume(&self.aggregate);
        }
        if config.share != self.config.share {
            // Counted in something else; the windows stay.
            self.left = None;
            self.carried = Carried::default();
        }
        self.config = config;
        self.version += 1;
    }

    fn aggregate_or(&self, reported: impl FnOnce() -> Aggregate) -> Aggregate {
        let kept = self.aggregate;
        if self.policy.couples() { kept } else { Aggregate { epoch: kept.epoch, ..reported() } }
    }

    /// Counts an active flow under the present way of sharing.
    pub(crate) fn recount(&mut self, flow: &Flow) -> Contribution {
        let (old, last) = (flow.contribution(), flow.last());
        if !old.counts() {
            return old;
        }
        let before = Contribution { rtt_known: false, ..old };
        let (member, nothing) = (flow.member(), Contribution::default());
        let new = Contribution::new(&last, self.config.share, &flow.usage, &before)
            .at_distance(&nothing, self.whereabouts(member, &last));
        Change { member, old: &old, new: &new }.make(&mut self.members);
        self.time_range(member);
        new
    }

    /// Whether the running sums are those over these flows, all of the group.
    pub(crate) fn is_sum_over<'a>(&self, flows: impl Iterator<Item = &'a Flow>) -> bool {
        self.members.is_sum_over(flows.map(|flow| (flow.member(), flow.contribution())))
    }

    /// Flows that count.
    pub(crate) fn active_flows(&self) -> u64 {
        self.members.active_flows()
    }

    /// The aggregate, or what flows `reported` if there is none.
    pub(crate) fn status(&self, reported: impl FnOnce() -> Aggregate) -> GroupStatus {
        let aggregate = self.aggregate_or(reported);
        GroupStatus {
            cwnd_bytes: aggregate.window.bytes(),
            ssthresh_bytes: aggregate.ssthresh.map(Window::bytes),
            epoch: aggregate.epoch,
            reductions: self.reductions,
            active_flows: self.members.active_flows(),
            path: if self.members.active_flows() > 0 {
                self.path.state()
            } else {
                PathState::default()
            },
            mode: self.policy.mode(),
        }
    }
}
