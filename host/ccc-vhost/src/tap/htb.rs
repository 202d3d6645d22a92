// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Token buckets of classes (sch_htb), as the kernel is asked for them.
use super::{netlink::Writer, requests::rate_specification};

pub const HTB: &str = "htb";
/// The kernel's unit of time there (`PSCHED_SHIFT`), ns.
const TICK_NS: u64 = 64;

/// `TCA_HTB_INIT`.
pub const INIT: u16 = 2;

/// What no filter sends elsewhere goes to the class of this minor number; the kernel keeps, and tells,
/// what is above that, too.
pub fn tree(rest: u32) -> Writer {
    const VERSION: u32 = 3;
    /// A class without a quantum of its own has its rate's part; all of ours have one.
    const RATE_TO_QUANTUM: u32 = 10;
    // `struct tc_htb_glob`.
    let global = Writer::default().u32(VERSION).u32(RATE_TO_QUANTUM).u32(rest).u32(0).u32(0);
    Writer::default().nest(INIT, global)
}

/// What a class may send, bytes a second and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// What it has in any case.
    pub rate: u64,
    /// And with what others leave.
    pub most: u64,
    /// What may go at once at either.
    pub bursts: [u64; 2],
    /// What it has at a time of what others leave; the kernel keeps it in an `int`.
    pub quantum: u32,
}

impl Class {
    /// `TCA_HTB_PARMS`, `_RATE64` and `_CEIL64`.
    pub fn options(&self) -> Writer {
        const PARAMETERS: u16 = 1;
        const RATE_64: u16 = 6;
        const CEIL_64: u16 = 7;
        let Class { rate, most, bursts, quantum } = *self;
        let specification = |rate| rate_specification(u32::try_from(rate).unwrap_or(u32::MAX));
        // `struct tc_htb_opt`; the last two are its level, which the kernel knows, and priority.
        let parameters = specification(rate)
            .put(&specification(most).into_bytes())
            .u32(ticks(bursts[0], rate))
            .u32(ticks(bursts[1], most))
            .u32(quantum)
            .u32(0)
            .u32(0);
        Writer::default()
            .nest(PARAMETERS, parameters)
            .attribute(RATE_64, &rate.to_ne_bytes())
            .attribute(CEIL_64, &most.to_ne_bytes())
    }
}

/// So many bytes, as the time that they take.
fn ticks(bytes: u64, rate: u64) -> u32 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u32::try_from(ns / u128::from(TICK_NS)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_go_at_once_is_told_as_time() {
        assert_eq!(ticks(250_000, 125_000_000), 31_250, "2 ms");
        assert_eq!(ticks(1600, 0), u32::MAX);
    }
}
