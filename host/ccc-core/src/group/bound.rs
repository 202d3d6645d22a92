// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a group lets one of its VMs claim, and what it does to the others.
use super::{Group, SPREAD_FROM_US, Update};
use crate::{
    bounds::{Has, Part, Reduces, Told},
    config::ShareOf,
    fixed::{Fraction, Window},
    flow::Delta,
    policy::{Cause, CongestionEvent},
    report::Report,
};

impl Group {
    /// What a report adds, as far as its VM can have done that.
    pub(super) fn bound(&mut self, update: &Update) -> Delta {
        let Update { now, flow, report, told, .. } = *update;
        let member = flow.member();
        let part = self.part(member, report);
        self.limits.claim_floor(member, self.members.floor_of(member), part.bytes);
        let delta = self.limits.delta(now, member, &self.has(update, part), told);
        let all_bytes = self.aggregate.window.bytes();
        if self.events.deliver(member, delta.delivered_bytes, part.bytes, all_bytes) {
            self.version += 1;
        }
        delta
    }

    /// What a VM has that has this part at the most.
    fn has(&self, update: &Update, part: Part) -> Has {
        let Update { flow, report, .. } = *update;
        let member = flow.member();
        let pool = self.pool(member).map_or(u64::MAX, Window::bytes);
        let own_bytes = part.bytes.min(pool);
        let window_bytes = match report.srtt_us {
            SPREAD_FROM_US.. => own_bytes,
            _ => own_bytes.max(self.members.floor_of(member)),
        };
        let in_slow_start = self.aggregate.in_slow_start();
        Has {
            part: if in_slow_start { self.part_at_once(member, part) } else { part },
            window_bytes,
            share: self.members.share_of_vm(member, update.before),
            alone: self.growth_alone(update),
            mss_bytes: report.mss_bytes.into(),
            spread_bytes: self.spread_bytes(update),
            interval_us: update.interval_us,
            in_slow_start,
        }
    }

    /// What a flow's growth is of the aggregate's where few grow, and backlogged flows may be nearer
    /// than all in the mean.
    fn growth_alone(&self, update: &Update) -> [Fraction; 2] {
        if !self.members.few_grow() {
            return [Fraction::NONE, Fraction::ALL];
        }
        let mean = self.members.mean_over_backlogged();
        let over = if mean.is_twice() { mean } else { Fraction::ALL };
        [self.growth_share(update, &update.told), over]
    }

    /// What a flow that grows and may pause between pairs of segments is granted.
    fn spread_bytes(&self, update: &Update) -> Option<u64> {
        let Update { flow, report, told, .. } = update;
        let granted = || self.grant(flow.member()).cwnd_bytes(update.before.claimed);
        (told.growth_bytes > 0 && report.srtt_us >= SPREAD_FROM_US).then(granted)
    }

    /// What a VM has of the aggregate at the most, and in what time.
    // In each report: a call would cost about as much.
    #[inline(always)]
    pub(super) fn part(&self, member: usize, report: &Report) -> Part {
        let told_us = match self.config.share {
            ShareOf::Rate => self.members.mean_distance_of(member),
            // Distances are no times then.
            ShareOf::Window => u64::from(report.srtt_us).max(1),
        };
        let rtt_us = self.limits.believed_us(member, told_us);
        Part { bytes: self.most_bytes(member), rtt_us }
    }

    /// Of that, what it may have acknowledged at once: its packets wait as long as the others', but
    /// for a lie not twice as long as they take.
    fn part_at_once(&self, member: usize, part: Part) -> Part {
        let rtt_us = match self.config.share {
            ShareOf::Rate => {
                let empty = self.members.mean_units_of(member).max(1);
                empty + self.waits_of(member).min(empty)
            }
            ShareOf::Window => part.rtt_us,
        };
        self.limits.at_once(member, Part { rtt_us, ..part })
    }

    /// What a VM had acknowledged, as a part of the aggregate.
    pub(super) fn acked_of_all(&mut self, update: &Update, acked: u64) -> u64 {
        let member = update.flow.member();
        let part = self.part(member, update.report);
        self.limits.acked_of_all(update.now, member, part, acked)
    }

    /// What a VM has of the aggregate at the most.
    fn most_bytes(&self, member: usize) -> u64 {
        self.most(member).bytes()
    }

    /// The same as a window.
    fn most(&self, member: usize) -> Window {
        let most = self.members.most_of(member, self.aggregate.window);
        match self.members.has_ranges() {
            true => self.most_in_range(member, most),
            false => most,
        }
    }

    /// Nothing that a VM said counts once its flows do not.
    pub(super) fn forget_told(&mut self, member: usize) {
        self.limits.claim_floor(member, self.members.floor_of(member), self.most_bytes(member));
        if !self.members.counts(member) {
            self.limits.unheard(member);
            self.waits.forget(member);
        }
    }

    /// What a flow of a VM in a pool of its own grows by is the pool's.
    pub(super) fn grow_pool(&mut self, update: &Update, delta: &Delta) -> bool {
        let member = update.flow.member();
        let by = || {
            let own = self.members.share_of_vm(member, update.before);
            Window::from_bytes(delta.growth_bytes).times(own)
        };
        self.events.grow_pool(member, by)
    }

    /// Whether what all have is to be reduced: a VM that loses alone reduces what it has.
    pub(super) fn reduces_all(&mut self, member: usize, event: &CongestionEvent) -> bool {
        if !self.policy.bounds_events() || event.cause == Cause::LateTimeout {
            return true;
        }
        let CongestionEvent { now, srtt_us, epoch, beta, .. } = *event;
        let round_us = self.limits.round_us(member, srtt_us);
        let (vms, present) = (self.members.vms(), self.aggregate.epoch);
        let told = Told { now, member, round_us, vms, epoch, present };
        let reduces = self.events.event(&told);
        let is_in_pool = self.events.pool(member).is_some();
        if reduces == Reduces::Itself || reduces == Reduces::All && is_in_pool {
            let part = self.most(member);
            self.events.reduce_pool(&told, part, beta);
        }
        // What is of an earlier epoch is the policy's to judge.
        reduces == Reduces::All || epoch != self.aggregate.epoch
    }

    /// The window of a VM in a pool of its own: two segments a flow at the least, but segments
    /// are as long as it says, so no more than half of its part.
    pub(super) fn pool(&self, member: usize) -> Option<Window> {
        let pool = self.events.pool(member)?;
        let half = self.most(member).halved(1);
        let floor = Window::from_bytes(self.members.floor_of(member)).min(half);
        Some(pool.max(floor))
    }
}
