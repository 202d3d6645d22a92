// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A bottleneck group: its members, its policy, and what reports do to both.
use std::cell::Cell;

use crate::{
    fixed::{EquivalentTcps, Micros, Weight, Window, mul_div},
    flow::{self, Delta},
    grant::{self, Grant},
    members::{Members, Standing, Waterline},
    policy::{Ack, Aggregate, Cause, Event, GrowthSource, Joiner, Policy, PolicyKind, Sample},
    report::Report,
};

/// Guests of a daemon that has begun anew come back within this time.
const ADOPTION: Micros = 2_000_000;

/// Largest window an empty group starts with, in segments (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;

/// What a share is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareOf {
    /// The window: equal weights give equal windows, as in the papers.
    Window,
    /// The rate: equal weights give equal rates, whatever the round-trip
    /// times (B20).
    #[default]
    Rate,
}

impl ShareOf {
    /// Longest srtt that counts, so that units stay within 32 bits.
    const LONGEST_US: u32 = 1 << 20;
    /// A flow without a measured srtt counts as if it had this one.
    const ASSUMED_US: u32 = 100_000;

    pub(crate) fn factor(self, srtt_us: u32) -> u64 {
        match (self, srtt_us) {
            (ShareOf::Window, _) => 1,
            (ShareOf::Rate, 0) => u64::from(ShareOf::ASSUMED_US),
            (ShareOf::Rate, us) => u64::from(us.min(ShareOf::LONGEST_US)),
        }
    }
}

/// How a group is coupled.  `Default` is ctrlTCP, shares of the rate, worth one
/// TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Coupling algorithm.
    pub policy: PolicyKind,
    /// What shares are shares of.
    pub share: ShareOf,
    /// How many TCPs ctrlTCP's aggregate is worth.
    pub equivalent_tcps: EquivalentTcps,
    /// Whose growth ctrlTCP's aggregate takes.
    pub growth_source: GrowthSource,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            policy: PolicyKind::default(),
            share: ShareOf::default(),
            equivalent_tcps: EquivalentTcps::ONE,
            growth_source: GrowthSource::default(),
        }
    }
}

impl GroupConfig {
    fn policy(&self) -> Box<dyn Policy> {
        self.policy.build(self.equivalent_tcps, self.growth_source)
    }

    fn same_policy(&self, other: &GroupConfig) -> bool {
        GroupConfig { share: other.share, ..*self } == *other
    }
}

/// The aggregate of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Aggregate window, bytes.
    pub cwnd_bytes: u64,
    /// Aggregate slow start threshold, bytes; `None` before the first event.
    pub ssthresh_bytes: Option<u64>,
    /// Changes with every reduction.
    pub epoch: u32,
    /// Flows that count.
    pub active_flows: u64,
}

/// A bottleneck group.
#[derive(Debug)]
pub(crate) struct Group {
    members: Members,
    policy: Box<dyn Policy>,
    config: GroupConfig,
    version: u64,
    /// The waterline of that version.
    line: Cell<Option<(u64, Waterline)>>,
    /// Flows adopted until then bring their windows along.
    adopts_until: Micros,
}

/// A report and what it is compared with.
pub(crate) struct Change<'a> {
    pub(crate) now: Micros,
    pub(crate) flow: usize,
    pub(crate) tenant: usize,
    pub(crate) old: &'a Report,
    pub(crate) counted: &'a Standing,
    pub(crate) new: &'a Report,
}

impl Group {
    pub(crate) fn new(config: GroupConfig) -> Group {
        Group {
            members: Members::default(),
            policy: config.policy(),
            config,
            version: 0,
            line: Cell::new(None),
            adopts_until: 0,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn add_tenant(&mut self, weight: Weight) -> usize {
        self.members.add_tenant(weight)
    }

    pub(crate) fn remove_tenant(&mut self, tenant: usize) {
        self.members.remove_tenant(tenant);
        self.version += 1;
    }

    pub(crate) fn set_weight(&mut self, tenant: usize, weight: Weight) {
        self.members.set_weight(tenant, weight);
        self.version += 1;
    }

    /// Applies a report; returns how the flow counts from now on.
    pub(crate) fn apply(&mut self, change: &Change) -> Standing {
        let delta = Delta::between(change.old, change.new);
        let standing = flow::standing(change.new, self.config.share, change.counted);
        if change.counted.active() {
            // Against the sums in which the data was sent.
            self.grow(change, &delta);
        }
        if delta.undo {
            self.policy.undo(change.flow, change.now);
        }
        let first_timeout = delta.timeout && self.members.none_lost();
        if first_timeout {
            self.policy.first_timeout();
        }
        if let Some(cause) = cause(&delta) {
            self.policy.congestion(self.event(change, cause));
        }
        self.recount(change.now, change.tenant, change.counted, &standing, change.new);
        if delta.timeout && self.members.all_lost() {
            self.policy.all_timed_out(self.event(change, Cause::Timeout));
        }
        self.version += 1;
        standing
    }

    /// Takes the parts of some flows out of the aggregate.
    pub(crate) fn give_up<'a>(&mut self, flows: impl Iterator<Item = (usize, &'a Standing)>) {
        let whole = self.members.whole();
        let own: u128 = flows.map(|(tenant, counted)| self.members.part(tenant, counted)).sum();
        if own == 0 || own >= whole {
            // Idle flows have none; the last ones leave what is remembered.
            return;
        }
        let mut aggregate = self.policy.aggregate();
        aggregate.window = aggregate.window.part((whole - own, whole));
        aggregate.threshold = aggregate.threshold.map(|t| t.part((whole - own, whole)));
        self.policy.restore(aggregate);
    }

    /// Takes a flow out of the sums (B7).
    pub(crate) fn silence(&mut self, now: Micros, tenant: usize, counted: &Standing) {
        let part = (self.members.part(tenant, counted), self.members.whole());
        self.members.recount(tenant, counted, &Standing::default());
        match self.members.active() {
            _ if !counted.active() => {}
            0 => self.policy.end(now),
            _ => self.policy.leave(part),
        }
        self.version += 1;
    }

    /// Counts a flow anew; joining and leaving leave the aggregate as it is.
    fn recount(
        &mut self,
        now: Micros,
        tenant: usize,
        old: &Standing,
        new: &Standing,
        report: &Report,
    ) {
        if !new.active() {
            self.silence(now, tenant, old);
            return;
        }
        let initial = u64::from(report.cwnd_bytes).min(INITIAL_SEGMENTS * new.mss).max(new.mss);
        if self.members.active() == 0 {
            self.policy.begin(now, Window::from_bytes(initial));
        } else if !old.active() {
            self.policy.join(Joiner {
                initial: Window::from_bytes(initial),
                brings: Window::from_bytes(flow::brings(report)),
                threshold: report.ssthresh_bytes.map(|bytes| Window::from_bytes(bytes.into())),
                mss: new.mss,
            });
        }
        self.members.recount(tenant, old, new);
    }

    fn grow(&mut self, change: &Change, delta: &Delta) {
        if delta.acked == 0 {
            return;
        }
        let part = self.members.growth_part(change.tenant, change.counted);
        let sample = Sample {
            now: change.now,
            delivered: delta.delivered,
            rtt_us: change.new.rtt_us,
            min_rtt_us: change.new.min_rtt_us,
        };
        self.policy.ack(Ack {
            flow: change.flow,
            srtt: u64::from(change.new.srtt_us),
            mss: u64::from(change.new.mss_bytes),
            acked: delta.acked,
            grown: delta.grown,
            shrunk: delta.shrunk,
            floor: self.members.floor(),
            part,
            sample,
        });
    }

    fn event(&self, change: &Change, cause: Cause) -> Event {
        Event {
            cause,
            now: change.now,
            srtt: u64::from(change.new.srtt_us),
            flow: change.flow,
            beta: flow::beta(change.new),
            epoch: change.new.congestion_epoch,
            mss: u64::from(change.new.mss_bytes),
            part: (self.members.part(change.tenant, change.counted), self.members.whole()),
            floor: self.members.floor(),
        }
    }

    pub(crate) fn grant(&self, tenant: usize) -> Grant {
        let aggregate = self.policy.aggregate();
        if !self.policy.couples() {
            return Grant { epoch: aggregate.epoch, ..Grant::default() };
        }
        let rounding_offset = grant::rounding_offset(tenant, aggregate.epoch);
        let rate_shares = self.config.share == ShareOf::Rate;
        let line = self.waterline(aggregate.window);
        let Some(level) = self.members.level(tenant, aggregate.window, line) else {
            return Grant {
                epoch: aggregate.epoch,
                rounding_offset,
                rate_shares,
                ..Grant::default()
            };
        };
        let threshold_level =
            |threshold: Window| mul_div(level, threshold.raw(), aggregate.window.raw());
        Grant {
            epoch: aggregate.epoch,
            coupled: true,
            slow_start: aggregate.in_slow_start(),
            rate_shares,
            rounding_offset,
            level,
            ssthresh_level: aggregate.threshold.map(|t| threshold_level(t).min(u64::MAX - 1)),
        }
    }

    fn waterline(&self, window: Window) -> Waterline {
        match self.line.get() {
            Some((version, line)) if version == self.version => line,
            _ => {
                let line = self.members.waterline(window);
                self.line.set(Some((self.version, line)));
                line
            }
        }
    }

    /// Counts a flow that was running before the engine knew of it.  If it
    /// finds an empty group, it and those adopted soon after it make up the
    /// aggregate from the windows they have; otherwise it is a joiner.
    pub(crate) fn adopt(&mut self, now: Micros, tenant: usize, report: &Report) -> Standing {
        let standing = flow::standing(report, self.config.share, &Standing::default());
        let first = standing.active() && self.members.active() == 0;
        if !first && now > self.adopts_until {
            self.recount(now, tenant, &Standing::default(), &standing, report);
            self.version += 1;
            return standing;
        }
        if first {
            self.adopts_until = now.saturating_add(ADOPTION);
            self.policy.begin(now, Window::default());
        }
        // Not a joiner: what it has is counted once, here.
        self.members.recount(tenant, &Standing::default(), &standing);
        if standing.active() {
            let mut aggregate = self.policy.aggregate();
            if first {
                aggregate.window = Window::default();
                aggregate.threshold = None;
            }
            aggregate.absorb(report);
            self.policy.restore(aggregate);
        }
        self.version += 1;
        standing
    }

    /// Changes policy, sharing or equivalent_tcps; the aggregate stays as it is, or
    /// is what was `found` if there was none.  The flows have to be counted
    /// again with [`Group::standing_anew`].
    pub(crate) fn reconfigure(&mut self, config: GroupConfig, found: Aggregate) {
        if !config.same_policy(&self.config) {
            let mut aggregate = self.aggregate_or(found);
            self.policy = config.policy();
            // Losses of what was sent under the other rules charge nothing.
            aggregate.epoch = aggregate.epoch.wrapping_add(1);
            self.policy.restore(aggregate);
        }
        self.config = config;
        self.version += 1;
    }

    fn aggregate_or(&self, found: Aggregate) -> Aggregate {
        let kept = self.policy.aggregate();
        if self.policy.couples() { kept } else { Aggregate { epoch: kept.epoch, ..found } }
    }

    pub(crate) fn config(&self) -> GroupConfig {
        self.config
    }

    /// Counts an active flow under the present way of sharing.
    pub(crate) fn standing_anew(
        &mut self,
        tenant: usize,
        counted: &Standing,
        report: &Report,
    ) -> Standing {
        if !counted.active() {
            return *counted;
        }
        let standing = flow::standing(report, self.config.share, counted);
        self.members.recount(tenant, counted, &standing);
        standing
    }

    /// The aggregate, or what was `found` if there is none.
    pub(crate) fn status(&self, found: Aggregate) -> GroupStatus {
        let aggregate = self.aggregate_or(found);
        GroupStatus {
            cwnd_bytes: aggregate.window.bytes(),
            ssthresh_bytes: aggregate.threshold.map(Window::bytes),
            epoch: aggregate.epoch,
            active_flows: self.members.active(),
        }
    }
}

/// What a policy is told of, if anything.
fn cause(delta: &Delta) -> Option<Cause> {
    match (delta.event, delta.timeout) {
        (true, false) => Some(Cause::Recovery),
        (true, true) => Some(Cause::Timeout),
        (false, true) => Some(Cause::LateTimeout),
        (false, false) => None,
    }
}
