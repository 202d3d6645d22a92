// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who of a group takes what is others', by what the host has counted.
//!
//! Each period brings, of each VM, the bytes that came through its tap and what its reports
//! say.  A VM is judged when it sends more than it is granted, and more than its share of
//! what the group sends, for longer than chance does, while others lose.  Who keeps within
//! its grants does as the law says, whatever that makes of shares; who has no module has
//! its share.  Reports of others can only say that there is congestion, and what they say of
//! that is bounded (see [`Capacity`]).
use std::{collections::BTreeMap, fmt};

use ccc_core::{Claims, Micros};
use ccc_settings::{Level, Want};

use super::{
    capacity::{Capacity, Load, Losses},
    recent::{Count, Recent, SPAN_US},
    witnesses::{Told, Witnesses},
};

/// Above what it may send by less is no excess: a percentage.
const TOLERATED_PERCENT: u64 = 110;
/// Of fewer bytes a second, eight segments, it is chance how many are sent again, and when.
const LEAST_RATE: u64 = 12_500;
/// What a VM with grants may have too much, in time of what it may send: it follows them
/// with its ACKs.
const TRUSTED_US: Micros = 3_000_000;
/// The same of one whose reports do not account for what it sends: of flows that begin
/// nothing has been delivered yet.
const BEGINNING_US: Micros = 1_000_000;
/// The same of one without any, or that was judged lately.
const UNTRUSTED_US: Micros = 50_000;
/// That is never less than this: a segment or two of each of 64 flows, of which each may
/// begin anew; or a burst of one application.
const FLOWS_BYTES: u64 = 96_000;
const BURST_BYTES: u64 = 1 << 15;
/// A VM has grants for so long after it last had some: flows that wait for their
/// retransmission timers have none.
const GRANTED_US: Micros = 5_000_000;
/// What it is granted falls by this part each period at the most: half in a quarter of a second.
/// Grants fall at once where a VM of a large weight wants more, and are followed with ACKs.
const FOLLOWS_BY: u64 = 8;
/// So long a VM that was judged is not trusted.
const PROBATION_US: Micros = 60_000_000;
/// Whose device is reset, or slots released, so often with no more than this between two of
/// them is not trusted either: what it sends meanwhile is not coupled.
const EXITS: u64 = 3;
const EXITS_US: Micros = 10_000_000;
/// A loss says that there is congestion for so long.
const CONGESTED_US: Micros = 10_000_000;
/// Who says it wants more counts with all it may have after so long: joins take a while.
const JOINED_US: Micros = 1_000_000;
/// It is taken to want more for so long after it last said so; longer if it lost, for
/// then it may wait for its retransmission timer.
const SILENT_US: Micros = 300_000;
const SILENT_LOST_US: Micros = 3_000_000;
/// A VM that says it wants more, and takes less than half of its share, is believed for so
/// long.
const PATIENCE_US: Micros = 10_000_000;
/// What headers add to a full segment.
const HEADERS_PART: u64 = 24;
/// Who sends less than this part of its share of what is sent has nothing to say of losses.
pub(super) const WITNESS_PART: u64 = 8;
/// A VM that is held and sends no more than its shaper lets go is let go after so long;
/// after twice that the next time, and so on up to the most.
const HELD_US: Micros = 10_000_000;
const HELD_MOST_US: Micros = 640_000_000;
/// Up to so much of what its shaper lets go, in parts of 16, it counts as that: some waits in the
/// shaper's queue.  And from so much on that queue is backlogged.
const KEPT: u64 = 20;
const BACKLOGGED: u64 = 15;

/// A VM as it is seen in a period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// When its tap was looked at.
    pub at: Micros,
    /// The index of its tap.
    pub interface: u32,
    /// Bytes that have come from it so far.
    pub received_bytes: u64,
    /// What its reports say.
    pub claims: Claims,
    /// Its weight, at least 1.
    pub weight: u32,
    /// It is never held to less, bytes a second.
    pub floor: u64,
    /// It is not to send more, bytes a second, whatever the others do.
    pub cap: Option<u64>,
}

/// Why a VM is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It sends above its share, and no report accounts for most of it.
    Unreported,
    /// It sends above its share, as it says itself.
    AboveShare,
    /// It sends above its cap.
    AboveCap,
}

impl Reason {
    /// As operators read it.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Unreported => "unreported",
            Reason::AboveShare => "above its share",
            Reason::AboveCap => "above its cap",
        }
    }
}

/// A judgement with its evidence: of the second before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What for.
    pub reason: Reason,
    /// When.
    pub since: Micros,
    /// Bytes a second that came from it.
    pub sent: u64,
    /// What its reports say of them.
    pub claimed: u64,
    /// Its share; of one above its cap, that.
    pub share: u64,
}

impl Verdict {
    /// What is said of a VM that is judged no more.
    pub fn over(&self) -> &'static str {
        match self.reason {
            Reason::AboveCap => "keeps to its cap",
            Reason::Unreported | Reason::AboveShare => "keeps below its share",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = |bytes: u64| bytes as f64 * 8.0 / 1e6;
        let (sent, claimed, share) = (mbit(self.sent), mbit(self.claimed), mbit(self.share));
        let why = match self.reason {
            Reason::Unreported => "has no module, or sends what is not coupled",
            Reason::AboveShare => "sends above its grant",
            Reason::AboveCap => "sends above its cap",
        };
        let of_what = if self.reason == Reason::AboveCap { "cap" } else { "share" };
        // One that was judged at once has sent nothing of note in all of a second.
        let burst = if self.sent > self.share { "" } else { "a burst, for " };
        write!(
            f,
            "{why}: {burst}{sent:.2} Mbit/s came from it in a second, of which it reported \
             {claimed:.2}; its {of_what} was {share:.2}"
        )
    }
}

/// What is known of a VM.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    last: Option<Seen>,
    recent: Recent,
    /// Too much of what is others', and above its cap, bytes.
    excess: u64,
    above_cap: u64,
    /// Since when it has said it wants more, and when it last did.
    wants: Option<(Micros, Micros)>,
    /// When it last took half of its share, or began to want it.
    took_part: Micros,
    lost_at: Option<Micros>,
    /// What it may send by its grants, bytes a second, while it follows them.
    granted: u64,
    /// When it was last granted something.
    granted_at: Option<Micros>,
    /// How often flows of it have gone on alone in a row, and when the last ones did.
    exits: u64,
    exited_at: Option<Micros>,
    verdict: Option<Verdict>,
    /// The latest, whether it still holds or not.
    latest: Option<Verdict>,
    /// When it was last judged, or held.
    judged: Option<Micros>,
    /// Since when it has kept to its share while it is held, and for how long it has to.
    kept_since: Micros,
    held_us: Micros,
    verdicts: u64,
    share: u64,
}

impl Watched {
    /// What it is judged for, if it is.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// What it was judged for last, whether it still is or not.
    pub fn latest(&self) -> Option<&Verdict> {
        self.latest.as_ref()
    }

    /// How often it was judged.
    pub fn verdicts(&self) -> u64 {
        self.verdicts
    }

    /// What was counted in the latest second.
    pub fn recent(&self) -> Count {
        self.recent.sum()
    }

    /// Its share, bytes a second; 0 before anything was counted.
    pub fn share(&self) -> u64 {
        self.share
    }

    /// Reports account for a quarter of its bytes or more: in slow start half of them are
    /// under way, and some are headers, or lost.
    fn is_accounted(&self) -> bool {
        let sum = self.recent.sum();
        sum.claimed_bytes >= sum.sent_bytes / 4
    }

    /// Whether what it says of losses counts, where `sent` is sent of what there is room for: it
    /// has to have sent something to lose.
    fn is_witness(&self, sent: u64, capacity: u64) -> bool {
        let share = mul_div(self.share, sent, capacity.max(1));
        let sends = self.recent.sent_rate() >= share / WITNESS_PART;
        self.verdict.is_none() && self.is_accounted() && sends
    }

    /// What it tells of losses.
    fn told(&self, now: Micros, vm: usize) -> Told {
        let lost = [CONGESTED_US, PROBATION_US].map(|time_us| within(now, self.lost_at, time_us));
        let (sent, weight) = (self.recent.sent_rate(), self.last.map_or(1, |last| last.weight));
        Told { vm, sent, weight: weight.max(1), is_accounted: self.is_accounted(), lost }
    }

    /// What it may have too much: a time of what it may send, and so much at the least.
    fn allowance(&self, now: Micros) -> (Micros, u64) {
        let has_flows = within(now, self.granted_at, GRANTED_US);
        let comes_and_goes = self.exits >= EXITS && within(now, self.exited_at, PROBATION_US);
        match comes_and_goes || within(now, self.judged, PROBATION_US) {
            true => (UNTRUSTED_US, BURST_BYTES),
            // Short flows come and go between two looks: then their reports speak for it.
            false if self.is_accounted() => (TRUSTED_US, FLOWS_BYTES),
            // Whoever has a slot can say that there is a flow.
            false if has_flows => (BEGINNING_US, FLOWS_BYTES),
            false => (UNTRUSTED_US, BURST_BYTES),
        }
    }

    /// What its reports say was delivered, with headers, but no more than it sends, or may.
    fn delivered(&self) -> u64 {
        let sum = self.recent.sum();
        with_headers(sum.rate(sum.claimed_bytes)).min(self.rate())
    }

    /// What it sends, or may.
    fn rate(&self) -> u64 {
        let sent = self.recent.sent_rate();
        self.verdict.map_or(sent, |_| sent.min(self.share))
    }
}

/// The VMs of a group.
#[derive(Debug, Default)]
pub struct Watch {
    vms: BTreeMap<usize, Watched>,
    capacity: Capacity,
}

impl Watch {
    /// What is known of a VM.
    pub fn vm(&self, vm: usize) -> Option<&Watched> {
        self.vms.get(&vm)
    }

    /// Only these VMs are in the group.  One whose tap could not be looked at stays known.
    pub fn retain(&mut self, is_there: impl Fn(usize) -> bool) {
        self.vms.retain(|vm, _| is_there(*vm));
    }

    /// Nobody is judged but for its cap: what was seen of the VMs is not what comes next.
    pub fn rest(&mut self, has_cap: impl Fn(usize) -> bool) {
        self.vms.iter_mut().for_each(|(vm, watched)| watched.rest(has_cap(*vm)));
    }

    /// Takes a period of VMs while the group rests; those whose verdict has changed.
    pub fn period_of_caps(&mut self, now: Micros, seen: &BTreeMap<usize, Seen>) -> Vec<usize> {
        let mut changed = Vec::new();
        for (vm, seen, count) in self.count(now, seen) {
            let (Some(watched), Some(cap)) = (self.vms.get_mut(&vm), seen.cap) else { continue };
            watched.share = cap;
            if watched.judge(now, &count, false) {
                changed.push(vm);
            }
        }
        changed
    }

    fn count(&mut self, now: Micros, seen: &BTreeMap<usize, Seen>) -> Vec<(usize, Seen, Count)> {
        let counts = seen.iter().filter_map(|(vm, seen)| {
            let count = self.vms.entry(*vm).or_default().take(now, seen)?;
            Some((*vm, *seen, count))
        });
        let counts = counts.collect();
        self.vms.values_mut().for_each(|vm| vm.forget_old(now));
        counts
    }

    /// Takes a period of VMs of the group, by number; those whose verdict has changed.
    pub fn period(&mut self, now: Micros, seen: &BTreeMap<usize, Seen>) -> Vec<usize> {
        let counts = self.count(now, seen);
        let unjudged = self.vms.iter().filter(|(_, vm)| vm.verdict.is_none());
        let witnesses = Witnesses::of(unjudged.map(|(number, vm)| vm.told(now, *number)));
        self.measure(now, &witnesses);
        let wants: Vec<Want> = self.vms.values_mut().map(|vm| vm.want(now)).collect();
        let level = Level::of(self.capacity.rate(), &wants);
        let mut changed = Vec::new();
        for (vm, seen, count) in &counts {
            let Some(watched) = self.vms.get_mut(vm) else { continue };
            // Nobody may have lost while it was held: what it does without is seen at once.
            let is_longer = within(now, watched.judged, PROBATION_US);
            let others_lose = witnesses.others_lose(*vm, is_longer);
            let share = level.share(seen.weight).max(seen.floor);
            // Where nobody loses, a cap is all that bounds it.
            let cap = seen.cap.map(|cap| if others_lose { cap.min(share) } else { cap });
            watched.share = cap.unwrap_or(share);
            if watched.judge(now, count, others_lose) {
                changed.push(*vm);
            }
        }
        changed
    }

    /// How much the group sends, and whether that is all there is room for.
    fn measure(&mut self, now: Micros, witnesses: &Witnesses) {
        let sum = self.vms.values().map(Watched::rate).fold(0, u64::saturating_add);
        let capacity = self.capacity.rate();
        let is_witness = |vm: &&Watched| vm.is_witness(sum, capacity);
        let strict: Vec<&Watched> = self.vms.values().filter(is_witness).collect();
        let lately = |vm: &Watched| within(now, vm.lost_at, CONGESTED_US);
        let many_lose = strict.iter().filter(|vm| lately(vm)).count() >= strict.len().clamp(1, 2);
        let losses = Losses {
            any: self.vms.values().any(|vm| vm.verdict.is_none() && lately(vm)),
            confirmed: many_lose && witnesses.any_lose(),
            now: strict.iter().any(|vm| vm.lost_at == Some(now)),
        };
        let delivered = self.vms.values().map(Watched::delivered).fold(0, u64::saturating_add);
        self.capacity.take(now, &Load { sent: sum, delivered }, &losses);
    }
}

impl Watched {
    /// What it was judged for, and how often, stays known; and what tells whether it keeps to
    /// its cap.
    fn rest(&mut self, has_cap: bool) {
        let Watched { latest, judged, kept_since, held_us, verdicts, .. } = *self;
        let known = Watched { latest, judged, kept_since, held_us, verdicts, ..Watched::default() };
        *self = match self.cap().filter(|_| has_cap) {
            None => known,
            Some(share) => Watched {
                last: self.last,
                recent: std::mem::take(&mut self.recent),
                above_cap: self.above_cap,
                verdict: self.verdict.filter(|verdict| verdict.reason == Reason::AboveCap),
                share,
                ..known
            },
        };
    }

    /// Takes what is seen; what was counted since it was last seen, if it was.
    fn take(&mut self, now: Micros, seen: &Seen) -> Option<Count> {
        let last = self.last.replace(*seen)?;
        if last.interface != seen.interface {
            (self.recent, self.excess, self.above_cap) = (Recent::default(), 0, 0);
            return None;
        }
        let count = Count {
            time_us: seen.at.saturating_sub(last.at),
            sent_bytes: seen.received_bytes.saturating_sub(last.received_bytes),
            claimed_bytes: seen.claims.delivered_bytes.saturating_sub(last.claims.delivered_bytes),
        };
        if count.time_us == 0 {
            return None;
        }
        self.recent.add(count);
        if seen.claims.events != last.claims.events {
            self.lost_at = Some(now);
        }
        if seen.claims.granted > 0 {
            self.granted_at = Some(now);
        }
        self.granted = seen.claims.granted.max(self.granted - self.granted / FOLLOWS_BY);
        self.exited(now, seen.claims.exits.saturating_sub(last.claims.exits));
        self.wanted(now, seen.claims.backlogged);
        Some(count)
    }

    /// Notes how often flows of it have gone on alone since it was last seen.
    fn exited(&mut self, now: Micros, times: u64) {
        if times == 0 {
            return;
        }
        let before = if within(now, self.exited_at, EXITS_US) { self.exits } else { 0 };
        (self.exits, self.exited_at) = (before.saturating_add(times), Some(now));
    }

    /// A tap that could not be looked at for long tells nothing of the present.
    fn forget_old(&mut self, now: Micros) {
        if !within(now, self.last.map(|last| last.at), SPAN_US) {
            (self.last, self.recent, self.wants) = (None, Recent::default(), None);
        }
    }

    /// Notes whether it says that it wants more.
    fn wanted(&mut self, now: Micros, says_so: bool) {
        let waits = within(now, self.lost_at, SILENT_LOST_US);
        let silent_us = if waits { SILENT_LOST_US } else { SILENT_US };
        let fresh = |(_, last): &(Micros, Micros)| within(now, Some(*last), silent_us);
        self.wants = match self.wants.filter(fresh) {
            Some((begun, last)) => Some((begun, if says_so { now } else { last })),
            None if says_so => {
                self.took_part = now;
                Some((now, now))
            }
            None => None,
        };
    }

    /// What the VM is counted with: all it may have, if it is held or wants more, and has for
    /// a while, else what it could come to before it is looked at again.
    fn want(&mut self, now: Micros) -> Want {
        let wants = self.wants.is_some_and(|(begun, _)| now.saturating_sub(begun) >= JOINED_US);
        let rate = self.rate();
        if rate >= self.share / 2 {
            self.took_part = now;
        }
        let is_believed = within(now, Some(self.took_part), PATIENCE_US);
        let all = is_believed && (wants || self.verdict.is_some());
        let last = self.last.unwrap_or_default();
        let most = (!all).then_some(rate.saturating_mul(2));
        let most = most.into_iter().chain(last.cap).min();
        Want { weight: last.weight.max(1), least: last.floor, most }
    }

    /// Whether its verdict changes.
    fn judge(&mut self, now: Micros, count: &Count, others_lose: bool) -> bool {
        if self.verdict.is_some() {
            return self.has_kept_to_its_share(now) && self.verdict.take().is_some();
        }
        self.excess = match others_lose {
            true => self.beyond(self.excess, self.share, count),
            false => 0,
        };
        self.above_cap = self.cap().map_or(0, |cap| self.beyond(self.above_cap, cap, count));
        let takes_others = self.excess > self.allowed(now, self.share);
        let is_above_cap = self.cap().is_some_and(|cap| self.above_cap > self.allowed(now, cap));
        if !takes_others && !is_above_cap {
            return false;
        }
        (self.excess, self.above_cap) = (0, 0);
        self.verdict = Some(self.found(now, is_above_cap));
        self.latest = self.verdict;
        self.held_us = self.next_hold_us(now);
        (self.judged, self.kept_since) = (Some(now), now);
        self.verdicts += 1;
        true
    }

    fn cap(&self) -> Option<u64> {
        self.last.and_then(|last| last.cap)
    }

    /// What it may send that has this share: what it is granted, if that is more.  No more than
    /// its cap is: two segments a flow in a round trip as short as it says are no grant.
    fn may(&self, share: u64) -> u64 {
        let granted = self.granted.min(self.cap().unwrap_or(u64::MAX));
        share.max(with_headers(granted)).max(LEAST_RATE)
    }

    /// What it has sent too much of a share, after so much before.
    fn beyond(&self, before: u64, share: u64, count: &Count) -> u64 {
        let tolerated = mul_div(self.may(share), count.time_us, SPAN_US) / 100 * TOLERATED_PERCENT;
        (before + count.sent_bytes).saturating_sub(tolerated)
    }

    /// What that may come to.
    fn allowed(&self, now: Micros, share: u64) -> u64 {
        let (allowed_us, least_bytes) = self.allowance(now);
        mul_div(self.may(share), allowed_us, SPAN_US).max(least_bytes)
    }

    /// Twice as long as the last time, unless that is long ago.
    fn next_hold_us(&self, now: Micros) -> Micros {
        match within(now, self.judged, HELD_MOST_US) {
            true => (2 * self.held_us).min(HELD_MOST_US),
            false => HELD_US,
        }
    }

    fn found(&self, now: Micros, is_above_cap: bool) -> Verdict {
        let sum = self.recent.sum();
        let reason = match is_above_cap {
            true => Reason::AboveCap,
            false if self.is_accounted() => Reason::AboveShare,
            false => Reason::Unreported,
        };
        Verdict {
            reason,
            since: now,
            sent: sum.rate(sum.sent_bytes),
            claimed: sum.rate(sum.claimed_bytes),
            share: self.cap().filter(|_| is_above_cap).unwrap_or(self.share),
        }
    }

    /// Whether it has sent, for long enough, no more than its shaper lets go: what it does
    /// without one is seen only without one.
    fn has_kept_to_its_share(&mut self, now: Micros) -> bool {
        self.judged = Some(now);
        let most = if self.waits_at_its_cap() { BACKLOGGED } else { KEPT };
        if self.recent.sent_rate() > self.share / 16 * most {
            self.kept_since = now;
        }
        now.saturating_sub(self.kept_since) >= self.held_us
    }

    /// Whether it is above its cap as soon as it is let go with its shaper's queue backlogged: one
    /// that had told of what it sent may follow its grants then, which is tried, and once.
    fn waits_at_its_cap(&self) -> bool {
        let tells = |verdict: &Verdict| verdict.claimed >= verdict.sent / 4;
        let is_tried = self.held_us == HELD_US && self.verdict.as_ref().is_some_and(tells);
        self.cap().is_some() && !is_tried
    }
}

fn with_headers(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / HEADERS_PART)
}

fn within(now: Micros, at: Option<Micros>, time_us: Micros) -> bool {
    at.is_some_and(|at| now.saturating_sub(at) < time_us)
}

fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
