// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who of a group takes what is others', by what the host has counted.
//!
//! Each period brings, of each VM, the bytes that came through its tap and what its reports
//! say.  A VM is judged when it sends above its share of what the group sends for longer
//! than chance does, while others lose; how long that is depends on whether its reports
//! account for its bytes.  Bytes decide; reports can only say that there is congestion, and
//! what they say of that is bounded (see [`Capacity`]).
use std::{collections::BTreeMap, fmt};

use ccc_core::Micros;

use super::{
    capacity::{Capacity, Load, Losses},
    level::{Level, Want},
    recent::{Count, Recent},
};

/// Above its share by less is no excess: a percentage.
const TOLERATED_PERCENT: u64 = 110;
/// What a VM whose reports account for its bytes may have too much, in time of its share:
/// others' joins and its own recoveries take less.
const TRUSTED_US: Micros = 5_000_000;
/// The same of one whose bytes nobody accounts for, or that was judged lately.
const UNTRUSTED_US: Micros = 50_000;
/// That is never less than this: a burst of one application.
const BURST_BYTES: u64 = 1 << 15;
/// So long a VM that was judged is not trusted.
const PROBATION_US: Micros = 60_000_000;
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
/// Who sends less than this part of its share has nothing to say of losses.
const WITNESS_PART: u64 = 8;
/// A VM that has kept well below its limit for so long is held no more.
const QUIET_US: Micros = 5_000_000;

/// A VM in one period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Its weight, at least 1.
    pub weight: u32,
    /// What was counted.
    pub count: Count,
    /// Its reports told of a loss.
    pub lost: bool,
    /// By its reports it takes all it is given.
    pub wants_more: bool,
    /// It is never held to less, bytes a second.
    pub floor: u64,
}

/// Why a VM is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It sends above its share, and no report accounts for most of it.
    Unreported,
    /// It sends above its share, as it says itself.
    AboveShare,
}

impl Reason {
    /// As operators read it.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Unreported => "unreported",
            Reason::AboveShare => "above its share",
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
    /// Its share.
    pub share: u64,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = |bytes: u64| bytes as f64 * 8.0 / 1e6;
        let (sent, claimed, share) = (mbit(self.sent), mbit(self.claimed), mbit(self.share));
        let why = match self.reason {
            Reason::Unreported => "has no module, or sends what is not coupled",
            Reason::AboveShare => "sends above its grant",
        };
        write!(
            f,
            "{why}: {sent:.2} Mbit/s came from it in a second, of which it reported \
             {claimed:.2}; its share was {share:.2}"
        )
    }
}

/// What is known of a VM.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    recent: Recent,
    /// Too much, bytes.
    excess: u64,
    /// Since when it has said it wants more, and when it last did.
    wants: Option<(Micros, Micros)>,
    /// When it last took half of its share, or began to want it.
    took_part: Micros,
    lost_at: Option<Micros>,
    /// Since when it has kept below its limit.
    quiet_since: Option<Micros>,
    verdict: Option<Verdict>,
    /// When it was last judged.
    judged: Option<Micros>,
    verdicts: u64,
    share: u64,
}

impl Watched {
    /// What it is judged for, if it is.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
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

    /// Whether what it says of losses counts: it has to have sent something to lose.
    fn is_witness(&self) -> bool {
        let sends = self.recent.sent_rate() >= self.share / WITNESS_PART;
        self.verdict.is_none() && self.is_accounted() && sends
    }

    fn is_trusted(&self, now: Micros) -> bool {
        let lately = |judged: Micros| now.saturating_sub(judged) < PROBATION_US;
        // The first reports of flows come a round trip after their first bytes.
        let reports = self.is_accounted() || self.wants.is_some();
        reports && !self.judged.is_some_and(lately)
    }

    /// What its reports say was delivered, with headers, but no more than it sends, or may.
    fn delivered(&self) -> u64 {
        let sum = self.recent.sum();
        let claimed = sum.rate(sum.claimed_bytes);
        claimed.saturating_add(claimed / HEADERS_PART).min(self.rate())
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
    lost_at: Option<Micros>,
}

impl Watch {
    /// What is known of a VM.
    pub fn vm(&self, vm: usize) -> Option<&Watched> {
        self.vms.get(&vm)
    }

    /// Takes a period of all VMs of the group, by number; those whose verdict has changed.
    pub fn period(&mut self, now: Micros, seen: &BTreeMap<usize, Seen>) -> Vec<usize> {
        self.vms.retain(|vm, _| seen.contains_key(vm));
        let wants = seen.iter().map(|(vm, seen)| self.vms.entry(*vm).or_default().take(now, seen));
        let wants: Vec<Want> = wants.collect();
        self.measure(now);
        let others_lose = self.lost_at.is_some_and(|lost| now.saturating_sub(lost) < CONGESTED_US);
        let level = Level::of(self.capacity.rate(), &wants);
        let mut changed = Vec::new();
        for (vm, seen) in seen {
            let Some(watched) = self.vms.get_mut(vm) else { continue };
            watched.share = level.share(seen.weight).max(seen.floor);
            if watched.judge(now, seen, others_lose) {
                changed.push(*vm);
            }
        }
        changed
    }

    /// How much the group sends, and whether that is all there is room for.
    fn measure(&mut self, now: Micros) {
        let sum = self.vms.values().map(Watched::rate).fold(0, u64::saturating_add);
        let lost = |vm: &Watched, since: Micros| {
            vm.lost_at.is_some_and(|at| now.saturating_sub(at) <= since)
        };
        if self.vms.values().any(|vm| vm.verdict.is_none() && lost(vm, 0)) {
            self.lost_at = Some(now);
        }
        let witnesses: Vec<&Watched> = self.vms.values().filter(|vm| vm.is_witness()).collect();
        let lately = witnesses.iter().filter(|vm| lost(vm, CONGESTED_US)).count();
        let losses = Losses {
            any: witnesses.iter().any(|vm| lost(vm, 0)),
            confirmed: lately >= witnesses.len().clamp(1, 2),
        };
        let delivered = self.vms.values().map(Watched::delivered).fold(0, u64::saturating_add);
        self.capacity.take(now, &Load { sent: sum, delivered }, &losses);
    }
}

impl Watched {
    /// Takes a period; what the VM is counted with: all it may have, if it is held or wants
    /// more, else what it could come to before it is looked at again.
    fn take(&mut self, now: Micros, seen: &Seen) -> Want {
        self.recent.add(seen.count);
        if seen.lost {
            self.lost_at = Some(now);
        }
        let wants = self.wants(now, seen.wants_more);
        let rate = self.rate();
        if rate >= self.share / 2 {
            self.took_part = now;
        }
        let is_believed = now.saturating_sub(self.took_part) < PATIENCE_US;
        let all = is_believed && (wants || self.verdict.is_some());
        Want { weight: seen.weight, most: (!all).then_some(rate.saturating_mul(2)) }
    }

    /// Whether it wants more, and has for a while.
    fn wants(&mut self, now: Micros, says_so: bool) -> bool {
        let within = |at: Micros, time: Micros| now.saturating_sub(at) < time;
        let waits = self.lost_at.is_some_and(|lost| within(lost, SILENT_LOST_US));
        let silent_us = if waits { SILENT_LOST_US } else { SILENT_US };
        let fresh = |(_, last): &(Micros, Micros)| within(*last, silent_us);
        self.wants = match self.wants.filter(fresh) {
            Some((begun, last)) => Some((begun, if says_so { now } else { last })),
            None if says_so => {
                self.took_part = now;
                Some((now, now))
            }
            None => None,
        };
        self.wants.is_some_and(|(begun, _)| now.saturating_sub(begun) >= JOINED_US)
    }

    /// Whether its verdict changes.
    fn judge(&mut self, now: Micros, seen: &Seen, others_lose: bool) -> bool {
        if self.verdict.is_some() {
            return self.is_quiet(now) && self.verdict.take().is_some();
        }
        let time_us = seen.count.time_us;
        let of_share = |time_us: Micros| mul_div(self.share, time_us, super::recent::SPAN_US);
        let granted = of_share(time_us) / 100 * TOLERATED_PERCENT;
        self.excess = (self.excess + seen.count.sent_bytes).saturating_sub(granted);
        let allowed_us = if self.is_trusted(now) { TRUSTED_US } else { UNTRUSTED_US };
        let allowed = of_share(allowed_us).max(BURST_BYTES);
        if !others_lose {
            self.excess = 0;
        }
        if self.excess <= allowed {
            return false;
        }
        self.excess = 0;
        self.verdict = Some(self.found(now));
        (self.judged, self.quiet_since) = (Some(now), None);
        self.verdicts += 1;
        true
    }

    fn found(&self, now: Micros) -> Verdict {
        let sum = self.recent.sum();
        let reason = if self.is_accounted() { Reason::AboveShare } else { Reason::Unreported };
        Verdict {
            reason,
            since: now,
            sent: sum.rate(sum.sent_bytes),
            claimed: sum.rate(sum.claimed_bytes),
            share: self.share,
        }
    }

    /// Whether it has kept below nine tenths of its share for a while.
    fn is_quiet(&mut self, now: Micros) -> bool {
        self.judged = Some(now);
        if self.recent.sent_rate() >= self.share / 10 * 9 {
            self.quiet_since = None;
            return false;
        }
        now.saturating_sub(*self.quiet_since.get_or_insert(now)) >= QUIET_US
    }
}

fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
