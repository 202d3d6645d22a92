// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Which queues VMs are to have where all of them leave the host.
//!
//! With a queue of its own, whoever floods, ignores its grants, or has no module, loses its
//! own packets from the first one on, and nobody has to be judged for that.
use std::collections::{BTreeMap, BTreeSet};

use ccc_settings::{Enforce, VmSettings, Want, bytes_of_mbit, dues};

use crate::settings::{Group, Settings};

/// In one turn of all queues goes what the uplink takes in so long, each VM's part by weight.
const TURN_MS: u64 = 10;
/// And of each VM at least so much, else the turn is longer: in each, HTB lets a packet go that is
/// longer than that, which one that is not yet cut (GSO) would be.
const LEAST_QUANTUM: u64 = 1 << 16;
/// No more is one quantum: the kernel's is an `int`.
const MOST_QUANTUM: u64 = i32::MAX as u64;
/// No turn is longer than this for the sake of what is no VM's: where VMs' weights are so much higher, it
/// has more than its part of what others leave, and VMs have not to wait for one another that long.
const LONG_TURN_MS: u64 = 1000;
/// Of what is no VM's, whatever weights and floors say, one in so many parts: that is the host's
/// own, by which it is reached.
const REST_PARTS: u64 = 20;
/// A class without a rate is none: bytes a second.
const LEAST_RATE: u64 = 1000;

/// An uplink, and its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The interface.
    pub interface: String,
    /// What goes through it, bytes a second.
    pub rate: u64,
    /// The queues of VMs, by their taps.
    pub vms: BTreeMap<String, Part>,
    /// That of all else: what the host itself sends, and what came by none of these taps.
    pub rest: Part,
    /// Taps of VMs that have no queue here.
    pub elsewhere: BTreeSet<String>,
}

impl Uplink {
    /// Whether a VM of this host names that interface as its tap.
    pub fn is_a_vms(&self, interface: &str) -> bool {
        self.vms.contains_key(interface) || self.elsewhere.contains(interface)
    }
}

/// A queue's part of the uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it has whatever the others do, bytes a second.
    pub rate: u64,
    /// What it has at most, where the others leave it.
    pub most: u64,
    /// Bytes in its turn of what others leave.
    pub quantum: u32,
}

/// What floors of VMs can be together, bytes a second, of what goes through an uplink: above that they
/// are scaled down.
pub fn floors_at_most(rate: u64) -> u64 {
    rate - rate / REST_PARTS
}

/// All uplinks that are to have queues.
pub fn uplinks(settings: &Settings) -> Vec<Uplink> {
    let doubled = settings.doubled_taps();
    let groups = settings.groups.iter().enumerate();
    groups.filter_map(|(index, group)| uplink(settings, &doubled, index, group)).collect()
}

/// That of a group, if it is to have one.
fn uplink(
    settings: &Settings,
    doubled: &BTreeSet<&str>,
    index: usize,
    group: &Group,
) -> Option<Uplink> {
    if group.settings.enforce != Enforce::On {
        return None;
    }
    let interface = group.settings.uplink.clone()?;
    let rate = bytes_of_mbit(group.settings.uplink_rate_mbit?);
    let members = settings.vms.values().filter(|vm| vm.group() == Some(index));
    let taps = members.filter_map(|vm| Some((vm.settings.tap.as_deref()?, &vm.settings)));
    let taps: BTreeMap<&str, &VmSettings> =
        taps.filter(|(tap, _)| !doubled.contains(tap)).collect();
    (!taps.is_empty()).then(|| {
        let named = settings.vms.values().filter_map(|vm| vm.settings.tap.as_deref());
        let elsewhere = named.filter(|tap| !taps.contains_key(tap)).map(str::to_owned).collect();
        Uplink { elsewhere, ..share(interface, rate, &taps) }
    })
}

/// Shares an uplink among VMs by weight, floor and cap; all else counts as one more of weight 1, and
/// has its least before the floors.
fn share(interface: String, rate: u64, vms: &BTreeMap<&str, &VmSettings>) -> Uplink {
    let rest = Want::of(&VmSettings::default());
    let wants: Vec<Want> = vms.values().map(|vm| Want::of(vm)).collect();
    let all = [&wants[..], &[rest]].concat();
    let weights: u64 = all.iter().map(|want| u64::from(want.weight)).sum();
    let turn = turn(rate, &wants, &rest);
    let part = |want: &Want, due: f64| {
        let quantum = u128::from(turn) * u128::from(want.weight) / u128::from(weights);
        let quantum = quantum.clamp(LEAST_QUANTUM.into(), MOST_QUANTUM.into());
        let most = want.most.unwrap_or(rate).clamp(LEAST_RATE, rate.max(LEAST_RATE));
        Part { rate: (due.round() as u64).clamp(LEAST_RATE, most), most, quantum: quantum as u32 }
    };
    let due = dues(rate, &all).pop().unwrap_or_default();
    let of_rest = part(&rest, (due * rate as f64).max((rate / REST_PARTS) as f64));
    // Who shares what is left has there what it had with the rest, but for floors that are too much.
    let left = rate.saturating_sub(of_rest.rate);
    let dues = dues(left, &wants);
    let parts = wants.iter().zip(dues).map(|(want, due)| part(want, due * left as f64));
    let taps = vms.keys().map(|tap| (*tap).to_owned());
    let vms = taps.zip(parts).collect();
    Uplink { interface, rate, vms, rest: of_rest, elsewhere: BTreeSet::new() }
}

/// Bytes in one turn of all queues, of which each has its part by weight.
fn turn(rate: u64, vms: &[Want], rest: &Want) -> u64 {
    let of_vms = vms.iter().map(|want| u64::from(want.weight));
    let of_rest = u64::from(rest.weight);
    let weights = of_vms.clone().sum::<u64>() + of_rest;
    let long_enough_for = |weight| LEAST_QUANTUM * weights / weight;
    let lightest = of_vms.clone().min().unwrap_or(of_rest);
    let heaviest = of_vms.max().unwrap_or(of_rest).max(of_rest);
    (rate / 1000 * TURN_MS)
        .max(long_enough_for(lightest))
        .max(long_enough_for(of_rest).min(rate / 1000 * LONG_TURN_MS))
        .min(MOST_QUANTUM * weights / heaviest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_250_000;

    fn vm(weight: f64, floor_mbit: f64, cap_mbit: Option<f64>) -> VmSettings {
        VmSettings { weight, floor_mbit, cap_mbit, ..VmSettings::default() }
    }

    fn shared(vms: &[VmSettings]) -> Vec<Part> {
        shared_of(RATE, vms)
    }

    fn shared_of(rate: u64, vms: &[VmSettings]) -> Vec<Part> {
        let names: Vec<String> = (0..vms.len()).map(|number| format!("tap{number}")).collect();
        let vms = names.iter().map(String::as_str).zip(vms).collect();
        let uplink = share("eth0".to_owned(), rate, &vms);
        let parts: Vec<Part> = uplink.vms.into_values().chain([uplink.rest]).collect();
        let sum: u64 = parts.iter().map(|part| part.rate).sum();
        assert!(sum <= rate + 2 * LEAST_RATE, "a class below its rate asks nobody: {parts:?}");
        parts
    }

    #[test]
    fn an_uplink_is_shared_by_weight_floor_and_cap() {
        let parts = shared(&[vm(1.0, 0.0, None), vm(2.0, 0.0, None)]);
        assert_eq!(parts.iter().map(|part| part.rate * 4 / RATE).collect::<Vec<_>>(), [1, 2, 1]);
        assert!(parts.iter().all(|part| part.most == RATE), "what others leave is anybody's");
        let quanta: Vec<u32> = parts.iter().map(|part| part.quantum).collect();
        assert_eq!(quanta, [1 << 16, 1 << 17, 1 << 16], "and each turn takes the longest packet");
        let parts = shared(&[vm(1.0, 6.0, None), vm(1.0, 0.0, Some(1.0))]);
        assert_eq!([parts[0].rate, parts[1].rate, parts[1].most], [750_000, 125_000, 125_000]);
        assert_eq!(parts[2].rate, 375_000);
    }

    fn quanta(rate: u64, weights: &[f64]) -> Vec<u32> {
        let vms: Vec<VmSettings> = weights.iter().map(|weight| vm(*weight, 0.0, None)).collect();
        shared_of(rate, &vms).iter().map(|part| part.quantum).collect()
    }

    #[test]
    fn all_else_has_its_part_of_what_vms_of_any_weight_leave() {
        let least = LEAST_QUANTUM as u32;
        assert_eq!(quanta(100 * RATE, &[100.0, 100.0]), [100 * least, 100 * least, least]);
        assert_eq!(quanta(RATE, &[3.0, 3.0]), [3 * least, 3 * least, least]);
        let slow = quanta(RATE, &[100.0, 100.0]);
        assert_eq!(slow, [621_890, 621_890, least], "no VM waits for another for seconds");
        assert_eq!(quanta(RATE, &[100.0; 30])[0], least, "nor for many");
    }

    #[test]
    fn the_largest_ratio_of_weights_is_one_that_the_kernel_can_hold() {
        let told = quanta(RATE, &[1000.0, 500.0, 0.01]);
        let half = i32::MAX as u32 / 2;
        assert!((i32::MAX as u32 - 9..=i32::MAX as u32).contains(&told[0]), "{told:?}");
        assert!((half - 9..=half).contains(&told[1]), "{told:?}");
        assert_eq!(told[2], LEAST_QUANTUM as u32);
        let alone = quanta(125_000_000_000, &[1000.0]);
        assert!(alone[0] <= i32::MAX as u32, "{alone:?}");
    }

    #[test]
    fn floors_and_weights_leave_the_host_its_own_part() {
        let floors = shared(&[vm(1.0, 6.0, None), vm(1.0, 4.0, None)]);
        let told: Vec<u64> = floors.iter().map(|part| part.rate).collect();
        assert_eq!(told, [712_500, 475_000, 62_500]);
        assert_eq!(floors_at_most(RATE), 712_500 + 475_000);
        let just = shared(&[vm(1.0, 6.0, None), vm(1.0, 3.5, None)]);
        let told: Vec<u64> = just.iter().map(|part| part.rate).collect();
        assert_eq!(told, [750_000, 437_500, 62_500], "no floor is less than it is to be");
        for vms in
            [vec![vm(1.0, 600.0, None)], vec![vm(1000.0, 0.0, None)], vec![vm(1.0, 0.0, None); 100]]
        {
            assert_eq!(shared(&vms).pop().map(|rest| rest.rate), Some(RATE / REST_PARTS));
        }
        assert_eq!(shared(&[vm(1.0, 6.0, None)])[1].rate, 500_000, "no less than its due");
    }

    #[test]
    fn more_floors_than_there_is_are_scaled_and_nobody_is_without_a_rate() {
        let parts = shared(&[vm(1.0, 30.0, None), vm(1.0, 10.0, None)]);
        let told: Vec<u64> = parts.iter().map(|part| part.rate).collect();
        assert_eq!(told, [890_625, 296_875, RATE / REST_PARTS]);
        let parts = shared(&[vm(1000.0, 0.0, None), vm(0.01, 0.0, None)]);
        assert!(parts[1].rate >= LEAST_RATE && parts[1].quantum == LEAST_QUANTUM as u32);
    }
}
