// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use proptest::prelude::*;

use super::{
    super::tests::{app_limited, flow, members},
    *,
};
use crate::{flow::Contribution, range::RateRange};

/// What so many units of a VM are granted of a window.
fn granted(members: &Members, vm: usize, units: u64, window_bytes: u64) -> u64 {
    let window = Window::from_bytes(window_bytes);
    let equal = members.equal_level(window);
    let level = members.grant_level(vm, equal, || members.max_min_level(equal));
    (level.expect("active") * units) >> 32
}

#[test]
fn what_a_vm_does_not_use_goes_to_the_others_by_weight() {
    let flows = [(0, app_limited(10_000)), (1, flow(256)), (2, flow(256))];
    let members = members(&[1.0, 1.0, 2.0], &flows);
    let windows = [0, 1, 2].map(|vm| granted(&members, vm, 256, 100_000));
    assert_eq!(windows, [25_000, 30_000, 60_000]);
}

#[test]
fn vms_that_are_all_satisfied_leave_nobody_to_share() {
    let members = members(&[1.0; 2], &[(0, app_limited(10_000)), (1, app_limited(60_000))]);
    let level = members.max_min_level(members.equal_level(Window::from_bytes(100_000)));
    assert_eq!((level.rate >> 32, level.weight), (30_000, 0));
    assert_eq!(granted(&members, 0, 256, 100_000), 50_000, "what it may come to want");
}

#[test]
fn what_a_far_vm_does_not_use_of_its_rate_goes_to_the_near_ones() {
    // 10,000 bytes in the time of 4 are a rate of 2,500.
    let far = Contribution { units: 4 * 256, ..app_limited(10_000) };
    let flows = [(0, far), (1, flow(256)), (2, Contribution { units: 2 * 256, ..flow(256) })];
    let members = members(&[1.0; 3], &flows);
    let windows = [0, 1, 2].map(|vm| granted(&members, vm, flows[vm].1.units, 70_000));
    assert_eq!(windows, [40_000, 13_750, 27_500], "a rate of 30,000 in all");
}

#[test]
fn within_a_vm_what_a_far_flow_does_not_use_goes_to_a_near_one() {
    let far = Contribution { units: 4 * 256, ..app_limited(10_000) };
    let members = members(&[1.0], &[(0, far), (0, flow(256))]);
    assert_eq!(granted(&members, 0, 256, 50_000), 17_500, "of a rate of 20,000");
}

#[test]
fn a_demand_above_the_fair_part_is_no_demand() {
    let members = members(&[1.0; 2], &[(0, app_limited(70_000)), (1, flow(256))]);
    assert_eq!(granted(&members, 1, 256, 100_000), 50_000);
}

#[test]
fn within_a_vm_backlogged_flows_have_what_the_others_leave() {
    let members = members(&[1.0], &[(0, app_limited(10_000)), (0, flow(256))]);
    assert_eq!(granted(&members, 0, 256, 100_000), 90_000);
}

#[test]
fn a_vm_of_many_flows_weighs_what_its_operator_set() {
    let flows = [[(0, flow(256)); 1].as_slice(), &[(1, flow(256)); 16]].concat();
    let members = members(&[1.0; 2], &flows);
    let [one, many] =
        [(0, 256), (1, 16 * 256)].map(|(vm, units)| granted(&members, vm, units, 320_000));
    assert_eq!((one, many), (160_000, 160_000));
}

/// With a floor and a cap in Mbit/s, where one of priority counts a tenth of a second.
fn ranged(mut members: Members, ranges: &[(usize, f64, Option<f64>)]) -> Members {
    for (vm, floor, cap) in ranges {
        let range = RateRange::from_mbit(*floor, *cap).expect("in range");
        members.set_range(*vm, range, 1);
    }
    members
}

const TENTH: u64 = 100_000;

/// A flow whose round-trip time is a tenth of a second.
fn tenth(flow: Contribution) -> Contribution {
    Contribution { units: flow.priority * TENTH, claimed: flow.priority * TENTH, ..flow }
}

/// What VMs of one flow of priority 1 have of 10 Mbit/s, in hundredths of a Mbit/s.
fn hundredths(members: &Members, vms: usize) -> Vec<u64> {
    let all = |vm| granted(members, vm, 256 * TENTH, 125_000);
    (0..vms).map(|vm| (all(vm) * 8 + 500) / 1_000).collect()
}

#[test]
fn a_vm_at_its_cap_leaves_the_others_the_rest_by_weight() {
    let flows = [0, 1, 2].map(|vm| (vm, tenth(flow(256))));
    let capped = ranged(members(&[1.0, 1.0, 2.0], &flows), &[(0, 0.0, Some(1.0))]);
    assert_eq!(hundredths(&capped, 3), [100, 300, 600]);
    let above = ranged(capped, &[(0, 0.0, Some(9.0))]);
    assert_eq!(hundredths(&above, 3), [250, 250, 500], "its part is less");
}

#[test]
fn a_vm_below_its_weights_part_has_its_floor() {
    let flows = [0, 1, 2].map(|vm| (vm, tenth(flow(256))));
    let floored = ranged(members(&[1.0, 1.0, 2.0], &flows), &[(0, 4.0, None)]);
    assert_eq!(hundredths(&floored, 3), [400, 200, 400]);
    let below = ranged(floored, &[(0, 2.0, None)]);
    assert_eq!(hundredths(&below, 3), [250, 250, 500], "its part is more");
}

#[test]
fn what_a_vm_leaves_of_its_floor_goes_to_the_others() {
    let flows = [(0, tenth(app_limited(12_500))), (1, tenth(flow(256)))];
    let floored = ranged(members(&[1.0, 3.0], &flows), &[(0, 6.0, None)]);
    assert_eq!(hundredths(&floored, 2), [600, 900], "and it may come to want it");
    let both = ranged(floored, &[(0, 0.0, Some(2.0))]);
    assert_eq!(hundredths(&both, 2), [200, 900], "its cap bounds what it may come to want");
}

#[test]
fn floors_of_more_than_there_is_are_scaled_down() {
    let flows = [0, 1, 2].map(|vm| (vm, tenth(flow(256))));
    let floored = ranged(members(&[1.0; 3], &flows), &[(0, 12.0, None), (1, 8.0, None)]);
    assert_eq!(hundredths(&floored, 3), [600, 400, 0]);
    let all = ranged(floored, &[(2, 5.0, None)]);
    assert_eq!(hundredths(&all, 3), [480, 320, 200]);
    let level = all.max_min_level(all.equal_level(Window::from_bytes(125_000)));
    assert!(!level.is_enough(), "all want more");
}

#[test]
fn caps_of_less_than_there_is_are_all_that_is_used() {
    let flows = [0, 1].map(|vm| (vm, tenth(flow(256))));
    let capped = ranged(members(&[1.0; 2], &flows), &[(0, 0.0, Some(2.0)), (1, 1.0, Some(3.0))]);
    assert_eq!(hundredths(&capped, 2), [200, 300]);
    let level = |bytes| capped.max_min_level(capped.equal_level(Window::from_bytes(bytes)));
    assert!(level(125_000).is_enough() && !level(50_000).is_enough());
    let one = ranged(capped.clone(), &[(1, 0.0, None)]);
    let level = one.max_min_level(one.equal_level(Window::from_bytes(125_000)));
    assert!(!level.is_enough(), "the other wants more");
}

#[test]
fn a_cap_bounds_backlogged_flows_beside_limited_ones() {
    let flows = [(0, tenth(app_limited(6_250))), (0, tenth(flow(256))), (1, tenth(flow(256)))];
    let capped = ranged(members(&[1.0; 2], &flows), &[(0, 0.0, Some(2.0))]);
    assert_eq!(hundredths(&capped, 2), [150, 800], "half a Mbit/s is the limited flow's");
}

#[test]
fn the_most_that_a_vm_has_is_what_it_may_be_granted() {
    let flows = [0, 1, 2, 3].map(|vm| (vm, tenth(flow(256))));
    let caps = [0, 1, 2].map(|vm| (vm, 0.0, Some(0.1)));
    let window = Window::from_bytes(125_000);
    let most = |members: &Members, vm| {
        let equal = members.equal_level(window);
        let twice = members.max_min_level(members.equal_level(window.plus(window)));
        let levels = [equal, members.max_min_level(equal), twice];
        members.most_in_range(vm, members.most_of(vm, window), levels).bytes()
    };
    let capped = ranged(members(&[1.0; 4], &flows), &caps);
    assert_eq!([0, 3].map(|vm| most(&capped, vm)), [1_249, 125_000 - 3 * 1_250 / 2 - 1]);
    let floored = ranged(members(&[1.0; 4], &flows), &[(0, 8.0, None)]);
    assert_eq!(most(&floored, 0), 100_000);
}

/// Nobody's window grew while one had a floor of all there was, to the bit.
#[test]
fn who_has_its_floor_and_no_more_wants_more() {
    let flows = [(0, tenth(flow(256)))];
    let there = ranged(members(&[3.0 / 256.0], &flows), &[(0, 1_000.0, None)]);
    let level = there.max_min_level(there.equal_level(Window::from_bytes(12_500_000)));
    assert!(!level.is_enough());
}

/// Weight, floor, cap, and what it wants if that is not all, as thousandths of the whole.
type One = (f64, u32, Option<u32>, Option<u32>);

fn one() -> impl Strategy<Value = One> {
    let weight = prop_oneof![Just(0.01), Just(1.0), Just(3.0), Just(1000.0), 0.01..1000.0];
    let part = || 1u32..2_000;
    (weight, part(), 0u32..3, proptest::option::of(part()), proptest::option::of(part())).prop_map(
        |(weight, floor, has_floor, cap, wants)| {
            let floor = if has_floor == 0 { floor } else { 0 };
            (weight, floor, cap.map(|cap| cap.max(floor)), wants)
        },
    )
}

/// The same by bisection in floating point.
fn reference(all: &[One]) -> Vec<f64> {
    let most = |one: &One| {
        let of = |most: Option<u32>| most.map_or(f64::INFINITY, f64::from);
        of(one.2).min(of(one.3))
    };
    let floors: f64 = all.iter().map(|one| f64::from(one.1).min(most(one))).sum();
    let scale = (1_000.0 / floors.max(1e-9)).min(1.0);
    let at = |one: &One, level: f64| {
        (level * one.0).max(f64::from(one.1).min(most(one)) * scale).min(most(one))
    };
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..200 {
        let level = (low + high) / 2.0;
        let sum: f64 = all.iter().map(|one| at(one, level)).sum();
        if sum > 1_000.0 { high = level } else { low = level }
    }
    all.iter().map(|one| at(one, low)).collect()
}

proptest! {
    #[test]
    fn the_split_is_weighted_max_min_between_floors_and_caps(
        all in proptest::collection::vec(one(), 1..9),
    ) {
        // A thousandth is a Mbit/s, and 12,500 bytes in a tenth of a second.
        const BYTES: u64 = 12_500;
        let weights: Vec<f64> = all.iter().map(|one| (one.0 * 256.0).round() / 256.0).collect();
        let flows: Vec<(usize, Contribution)> = all.iter().enumerate().map(|(vm, one)| {
            let limited = |wants: u32| app_limited(u64::from(wants) * BYTES);
            (vm, tenth(one.3.map_or_else(|| flow(256), limited)))
        }).collect();
        let ranges: Vec<(usize, f64, Option<f64>)> = all.iter().enumerate()
            .map(|(vm, one)| (vm, f64::from(one.1), one.2.map(f64::from))).collect();
        let there = ranged(members(&weights, &flows), &ranges);
        let equal = there.equal_level(Window::from_bytes(1_000 * BYTES));
        let level = there.max_min_level(equal);
        let all: Vec<One> =
            all.iter().zip(&weights).map(|(one, weight)| (*weight, one.1, one.2, one.3)).collect();
        let unit = (BYTES as f64) * 2.0_f64.powi(32) / TENTH as f64;
        let mut sum = 0.0;
        for (vm, expected) in reference(&all).into_iter().enumerate() {
            let taken = level.taken(&there.members[vm]) as f64 / unit;
            prop_assert!((taken - expected).abs() < 0.01, "VM {}: {} for {}", vm, taken, expected);
            sum += taken;
        }
        prop_assert!(sum <= 1_000.001, "{sum} of 1000");
    }
}
