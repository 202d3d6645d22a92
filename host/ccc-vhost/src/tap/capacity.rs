// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a group can send, as far as its taps and its losses tell.
//!
//! Nobody tells the host the rate of a bottleneck that is elsewhere.  What all VMs send
//! while any of them loses is it.  A tap counts what is lost behind it, too, so what a VM
//! that floods is counted with is what it may send, as soon as it is held.
use ccc_core::Micros;

/// While there is congestion it falls to what is sent, by this part of the rest each period:
/// half in two seconds.
const FALLS_BY: u64 = 64;
/// Without losses for so long, and used up, it is too low.
const WITHOUT_LOSSES_US: Micros = 1_000_000;
/// By what part it is raised each period then.
const RAISED_BY: u64 = 256;
/// It is used up from so many parts of 64 on.
const USED_UP: u64 = 63;
/// Losses that are lies cannot bring it below this part of what was seen.
const LEAST_OF_PEAK: u64 = 4;
/// What was seen fades by this part each period: half in two minutes.  So does what the group
/// can send, to what is sent, while anybody loses.
const FADES_BY: u64 = 3400;

/// What the VMs of a group do, in bytes a second.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What all send, or may.
    pub sent: u64,
    /// What of that was delivered, as far as reports tell: so much there is room for.
    pub delivered: u64,
}

/// Who loses.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    /// Anybody at all, in the latest seconds.
    pub any: bool,
    /// All whose word counts, or two of them: of several, one alone may lie.
    pub confirmed: bool,
    /// And one of those in this period.
    pub now: bool,
}

/// What a group can send.
#[derive(Debug, Default)]
pub struct Capacity {
    rate: u64,
    peak: u64,
    lost_at: Option<Micros>,
}

impl Capacity {
    /// Bytes a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Takes what all do, and who loses.
    pub fn take(&mut self, now: Micros, load: &Load, losses: &Losses) {
        if losses.confirmed && losses.now {
            self.lost_at = Some(now);
        }
        self.peak = load.sent.max(self.peak - self.peak / FADES_BY);
        if losses.any {
            let part = if losses.confirmed { FALLS_BY } else { FADES_BY };
            self.rate -= self.rate.saturating_sub(load.sent) / part;
        }
        let without = |at: Micros| now.saturating_sub(at) >= WITHOUT_LOSSES_US;
        let is_calm = self.lost_at.is_none_or(without);
        if self.rate == 0 || is_calm && load.sent >= self.rate / 64 * USED_UP {
            self.rate = load.sent.max(self.rate + self.rate / RAISED_BY);
        }
        self.rate = self.rate.max(self.peak / LEAST_OF_PEAK).max(load.delivered);
    }
}
