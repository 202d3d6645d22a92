// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What reports say of bytes, windows and round-trip times, as far as it can be.
use super::{Conduct, Part, bucket::Bucket, held::Held, segments::Segments};
use crate::{
    fixed::{Fraction, Micros, Share, Weight, Window, mul_div},
    flow::Delta,
    times::Times,
};

/// A round-trip time counts as at most so many times the median of the other VMs', or
/// this one: the ends of the Earth are nearer.
const MEDIAN_TIMES: Micros = 4;
const FAR_US: Micros = 250_000;
/// Reductions are a round trip apart, which is at least this part of the median.
const NEAR: Micros = 4;
/// And is at the most so many times as near as the others, as far as bytes are counted.
const NEAREST: Micros = 16;
/// In a round trip without a queue a VM has at most so many times its window
/// acknowledged: what it had before a reduction is on the path, too.
const WINDOWS: u64 = 2;
/// In slow start no more than its window, which was half of that a round trip ago.
const WINDOWS_IN_SLOW_START: u64 = 1;
/// A VM can have at least so much acknowledged at once: ten segments (RFC 6928) of an
/// Ethernet frame.
const INITIAL_BYTES: u64 = 15_000;
/// A VM grows by no more than this part of its window in a round trip, or by a segment.
const GROWS_BY: u64 = 16;
/// A VM's flows bring what they had on the path, together its part, once in that time.
const BRINGS_US: Micros = 10_000_000;
/// The floor of a VM's flows is believed up to its part, and up to that of 64 segments.
const FLOOR_BYTES: u64 = 96_000;

/// With its pause, a pair of segments takes a flow so many round trips at the most
/// (`CCC_SPREAD_RTTS_MAX`).
const MOST_PERIOD: u64 = 16;

/// As far away as anybody can be beside those who are so far in the middle.
pub(crate) fn farthest_us(others_us: Micros) -> Micros {
    MEDIAN_TIMES.saturating_mul(others_us).max(FAR_US)
}

/// What a VM has when it reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Has {
    pub(crate) part: Part,
    /// Its window; no less than what its flows cannot do without.
    pub(crate) window_bytes: u64,
    /// The share of the flow that reports in its VM, and its segments.
    pub(crate) share: Share,
    /// Its share of what all have that grow now, where these are few, and how much more of the
    /// aggregate that is, where backlogged flows are nearer than all in the mean.
    pub(crate) alone: [Fraction; 2],
    pub(crate) mss_bytes: u64,
    /// What the flow is granted, if it sends that as two segments and a pause.
    pub(crate) spread_bytes: Option<u64>,
    /// So far apart the flow's reports are to be.
    pub(crate) interval_us: Micros,
    /// The aggregate is in slow start.
    pub(crate) in_slow_start: bool,
}

impl Has {
    /// A flow that pauses has fewer acknowledgements than round trips; one TCP in the place of
    /// all would grow in each.
    fn grows(&self, told_bytes: u64) -> u64 {
        let Some(spread_bytes) = self.spread_bytes else { return told_bytes };
        let pair_bytes = 2 * self.mss_bytes;
        mul_div(told_bytes, pair_bytes, spread_bytes.clamp(pair_bytes / MOST_PERIOD, pair_bytes))
    }
}

/// How far away a flow can be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distance {
    farthest_us: Micros,
    /// The part of what it says that is believed, if not all.
    believed: Option<Fraction>,
}

impl Distance {
    /// As it says.
    pub(crate) const ANY: Distance = Distance { farthest_us: Micros::MAX, believed: None };

    /// What a flow of this priority counts that says it counts so much.
    pub(crate) fn of(self, priority: u64, units: u64) -> u64 {
        let believed = self.believed.map_or(units, |part| part.of(units));
        believed.max(1).min(priority.saturating_mul(self.farthest_us))
    }
}

/// A VM's limits.
#[derive(Clone, Copy, Debug, Default)]
struct Vm {
    held: Held,
    acked: Bucket,
    /// The same as it counts in the aggregate.
    acked_of_all: Bucket,
    grown: Bucket,
    shrunk: Bucket,
    brought: Bucket,
    /// What its flows claim as a floor beyond what is believed.
    excess_bytes: u64,
    beyond_bytes: u64,
    far_reports: u64,
    /// When it had the group begin anew.
    began_anew: Option<Micros>,
}

/// How far the VMs of a group are believed.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    vms: Vec<Vm>,
    rtts: Times,
    segments: Segments,
    /// Sum of the VMs'.
    excess_bytes: u64,
}

impl Limits {
    /// A VM of this number comes, of which nothing is known.
    pub(crate) fn add(&mut self, member: usize) {
        if member >= self.vms.len() {
            self.vms.resize(member + 1, Vm::default());
        }
        self.rtts.add(member);
        self.forget(member);
    }

    /// A VM has gone.
    pub(crate) fn forget(&mut self, member: usize) {
        let gone = std::mem::take(&mut self.vms[member]);
        self.excess_bytes -= gone.excess_bytes;
        self.unheard(member);
    }

    /// A VM has no flows that say how far away it is.
    pub(crate) fn unheard(&mut self, member: usize) {
        self.rtts.forget(member);
        self.segments.forget(member);
    }

    /// A VM of this weight sends segments so long.
    // In each report: a call would cost as much.
    #[inline(always)]
    pub(crate) fn hear_segment(&mut self, member: usize, weight: Weight, told_bytes: u64) {
        self.segments.hear(member, weight, told_bytes);
    }

    /// A VM of this weight, whose flows are so far away in the mean as they say, has one
    /// that says this; how far away that is.
    pub(crate) fn hear_rtt(
        &mut self,
        member: usize,
        weight: Weight,
        mean_us: Micros,
        srtt_us: u32,
    ) -> Distance {
        let farthest_us = self.farthest_us(member);
        let vm = &mut self.vms[member];
        vm.held.hear(mean_us);
        let believed = vm.held.believed();
        if srtt_us > 0 {
            let told_us = u64::from(srtt_us);
            vm.far_reports += u64::from(told_us > farthest_us || believed.is_some());
            self.rtts.hear(member, weight, told_us);
        }
        Distance { farthest_us, believed }
    }

    /// No round-trip time is longer than this one, if others are there to tell.
    pub(crate) fn farthest_us(&self, member: usize) -> Micros {
        self.rtts.of_others_us(member).map_or(Micros::MAX, farthest_us)
    }

    /// A time that a VM says, as far as the others make it likely: who has its window
    /// acknowledged a thousand times as often as they fills any bucket.
    pub(crate) fn believed_us(&self, member: usize, told_us: Micros) -> Micros {
        self.rtts.of_others_us(member).map_or(told_us, |us| told_us.max(us / NEAREST))
    }

    /// Whether a VM may have a group begin anew, which it may once in a while.
    pub(crate) fn may_begin_anew(&mut self, now: Micros, member: usize) -> bool {
        let vm = &mut self.vms[member];
        let may = vm.began_anew.is_none_or(|at| now.saturating_sub(at) >= BRINGS_US);
        vm.began_anew = if may { Some(now) } else { vm.began_anew };
        may
    }

    /// A VM's part over the others' round-trip time, if it says that it is farther: at the
    /// same rate who is far has no more acknowledged at once.
    pub(crate) fn at_once(&self, member: usize, part: Part) -> Part {
        let rtt_us = self.rtts.of_others_us(member).map_or(part.rtt_us, |us| us.min(part.rtt_us));
        Part { bytes: mul_div(part.bytes, rtt_us, part.rtt_us.max(1)), rtt_us }
    }

    /// The time that a VM's reductions of others are apart.
    pub(crate) fn round_us(&self, member: usize, srtt_us: Micros) -> Micros {
        self.rtts.of_others_us(member).map_or(0, |us| srtt_us.clamp(us / NEAR, us))
    }

    /// What is a round-trip time for the others; 0 if there are none.
    pub(crate) fn others_round_us(&self, member: usize) -> Micros {
        self.rtts.of_others_us(member).unwrap_or(0)
    }

    /// The round-trip time that a VM has told, an average; 0 if none.
    pub(crate) fn rtt_us(&self, member: usize) -> Micros {
        self.rtts.told_us(member)
    }

    /// The same, no longer than the others make likely, and its own windows bear out.
    pub(crate) fn likely_rtt_us(&self, member: usize) -> Micros {
        let (told_us, believed) = (self.rtt_us(member), self.vms[member].held.believed());
        believed.map_or(told_us, |part| part.of(told_us)).min(self.farthest_us(member))
    }

    /// What was acknowledged, as far as it was granted.
    pub(crate) fn delta(&mut self, now: Micros, member: usize, has: &Has, told: Delta) -> Delta {
        let mss_bytes = self.segments.likely_bytes(member, has.mss_bytes);
        let bytes = has.part.bytes.max(INITIAL_BYTES);
        let windows = if has.in_slow_start { WINDOWS_IN_SLOW_START } else { WINDOWS };
        let acked = Part { bytes: windows.saturating_mul(bytes), ..has.part };
        let vm = &mut self.vms[member];
        let delivered_bytes = vm.acked.take(now, acked, has.interval_us, told.delivered_bytes);
        // What it cannot have had of so large a window in so long a time speaks against that.
        vm.held.add(now, has.window_bytes, told.delivered_bytes);
        let beyond_bytes = told.delivered_bytes - delivered_bytes;
        vm.beyond_bytes = vm.beyond_bytes.saturating_add(beyond_bytes);
        let acked_limited_bytes = told.acked_limited_bytes.min(delivered_bytes);
        let shrink_bytes = told.shrink_bytes.min(acked_limited_bytes);
        let growth_bytes = has.grows(told.growth_bytes.min(acked_limited_bytes));
        Delta {
            delivered_bytes,
            acked_limited_bytes,
            growth_bytes: vm.grows(now, has, mss_bytes, growth_bytes),
            shrink_bytes: vm.shrinks(now, has, mss_bytes, shrink_bytes),
            ..told
        }
    }

    /// Of what a VM has acknowledged, as its backlogged flows' rate makes it a part of the aggregate,
    /// no more than of its own: flows that are nearer than it is in the mean are no reason.
    pub(crate) fn acked_of_all(
        &mut self,
        now: Micros,
        member: usize,
        part: Part,
        told: u64,
    ) -> u64 {
        let bytes = WINDOWS * part.bytes.max(INITIAL_BYTES);
        self.vms[member].acked_of_all.take(now, Part { bytes, ..part }, 0, told)
    }

    /// What a flow brings that was on the path before: its VM brings its part, once.
    pub(crate) fn brings(&mut self, now: Micros, member: usize, part: Part, told: u64) -> u64 {
        let part = Part { bytes: part.bytes.max(INITIAL_BYTES), rtt_us: BRINGS_US };
        let vm = &mut self.vms[member];
        let taken = vm.brought.take(now, part, 0, told);
        vm.beyond_bytes = vm.beyond_bytes.saturating_add(told - taken);
        taken
    }

    /// A VM's flows claim this floor.
    pub(crate) fn claim_floor(&mut self, member: usize, claimed_bytes: u64, part_bytes: u64) {
        let vm = &mut self.vms[member];
        let excess_bytes = claimed_bytes.saturating_sub(part_bytes.max(FLOOR_BYTES));
        if excess_bytes == vm.excess_bytes {
            return;
        }
        let more_bytes = excess_bytes.saturating_sub(vm.excess_bytes);
        vm.beyond_bytes = vm.beyond_bytes.saturating_add(more_bytes);
        self.excess_bytes = self.excess_bytes - vm.excess_bytes + excess_bytes;
        vm.excess_bytes = excess_bytes;
    }

    /// What a VM's floor is, as far as it is believed.
    pub(crate) fn floor_of(&self, member: usize, claimed_bytes: u64) -> u64 {
        claimed_bytes.saturating_sub(self.vms[member].excess_bytes)
    }

    /// What all VMs' floors are beyond what is believed.
    pub(crate) fn floor_excess_bytes(&self) -> u64 {
        self.excess_bytes
    }

    /// With what a VM claimed beyond what is believed.
    pub(crate) fn conduct(&self, member: usize, conduct: Conduct) -> Conduct {
        let Vm { beyond_bytes, far_reports, .. } = self.vms[member];
        Conduct { beyond_bytes, far_reports, ..conduct }
    }
}

impl Vm {
    /// Of what a flow grows by, a segment for all of its VM in a round trip, as Reno does, or
    /// a part of its window: CUBIC is rarely as fast.
    fn grows(&mut self, now: Micros, has: &Has, mss_bytes: u64, told_bytes: u64) -> u64 {
        if told_bytes == 0 {
            return 0;
        }
        let part = Part { bytes: mss_bytes.max(has.part.bytes / GROWS_BY), ..has.part };
        let told = Window::from_bytes(told_bytes);
        let [share, over] = has.alone;
        let alone = match share {
            Fraction::NONE => Window::default(),
            share => told.times(share).times(over),
        };
        let of_all = told.times(has.share).max(alone).bytes();
        let taken = self.grown.take(now, part, has.interval_us, of_all);
        mul_div(told_bytes, taken, of_all)
    }

    /// Of what a flow closes its window by, a segment for all of its VM in a round trip: no
    /// TCP closes it by more without an event.
    fn shrinks(&mut self, now: Micros, has: &Has, mss_bytes: u64, told_bytes: u64) -> u64 {
        if told_bytes == 0 {
            return 0;
        }
        let part = Part { bytes: mss_bytes, ..has.part };
        let of_all = Window::from_bytes(told_bytes).times(has.share).bytes();
        let taken = self.shrunk.take(now, part, has.interval_us, of_all);
        mul_div(told_bytes, taken, of_all)
    }
}
