// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Floors and caps of VMs, with what the others make of them.
mod bottleneck;
mod common;

use bottleneck::{Net, Path};
use ccc_core::{GroupConfig, PolicyKind, RateRange, Report, ShareOf, VmId};
use proptest::{prelude::*, sample::select};

/// What the path carries of payload: 10 Mbit/s less headers.
const PATH_MBIT: f64 = 1448.0 * 8.0 / 1_212.0;

fn range(floor: f64, cap: impl Into<Option<f64>>) -> RateRange {
    RateRange::from_mbit(floor, cap.into()).expect("in range")
}

fn set(net: &mut Net, vm: VmId, range: RateRange) {
    let group = net.host.group;
    net.host.engine.set_range(vm, group, range).expect("a known VM");
}

/// What each VM delivers in so many seconds from now on, Mbit/s.
fn rates(net: &mut Net, vms: &[VmId], seconds: u64) -> Vec<f64> {
    let before: Vec<u64> = vms.iter().map(|vm| net.delivered(*vm)).collect();
    net.run_ms(seconds * 1_000);
    let after = vms.iter().zip(before).map(|(vm, before)| net.delivered(*vm) - before);
    after.map(|bytes| bytes as f64 * 8.0 / 1e6 / seconds as f64).collect()
}

/// VMs of these weights and numbers of flows, after ten seconds.
fn group(config: GroupConfig, vms: &[(f64, usize)], ranges: &[RateRange]) -> (Net, Vec<VmId>) {
    let mut net = Net::new(config);
    let vms: Vec<VmId> = vms.iter().map(|(weight, flows)| net.vm(*weight, *flows)).collect();
    vms.iter().zip(ranges).for_each(|(vm, range)| set(&mut net, *vm, *range));
    net.run_ms(10_000);
    (net, vms)
}

fn near(rate: f64, expected: f64, percent: f64) -> bool {
    (rate - expected).abs() <= expected * percent / 100.0
}

#[test]
fn a_capped_vm_has_its_cap_and_the_other_all_the_rest() {
    for share in [ShareOf::Rate, ShareOf::Window] {
        let config = GroupConfig { share, ..GroupConfig::default() };
        let ranges = [RateRange::ANY, range(0.0, 2.0)];
        let (mut net, vms) = group(config, &[(1.0, 1), (1.0, 4)], &ranges);
        let rates = rates(&mut net, &vms, 60);
        assert!(near(rates[1], 2.0, 5.0), "{share:?}: {rates:?}");
        let all = rates[0] + rates[1];
        assert!(all > 0.95 * PATH_MBIT, "{share:?}: {rates:?} of {PATH_MBIT}");
    }
}

#[test]
fn a_floor_holds_against_three_times_the_weight() {
    let ranges = [range(6.0, None), RateRange::ANY];
    let (mut net, vms) = group(GroupConfig::default(), &[(1.0, 1), (3.0, 4)], &ranges);
    let rates = rates(&mut net, &vms, 60);
    assert!(near(rates[0], 6.0, 5.0), "{rates:?}");
    assert!(rates[0] + rates[1] > 0.95 * PATH_MBIT, "{rates:?} of {PATH_MBIT}");
}

#[test]
fn where_all_are_capped_the_aggregate_stays_and_comes_back_without_caps() {
    for policy in [PolicyKind::CtrlTcp, PolicyKind::Delay] {
        let config = GroupConfig { policy, ..GroupConfig::default() };
        let ranges = [range(0.0, 1.0), range(0.0, 3.0)];
        let (mut net, vms) = group(config, &[(1.0, 1), (1.0, 4)], &ranges);
        let before = net.host.status().cwnd_bytes;
        let capped = rates(&mut net, &vms, 60);
        assert!(near(capped[0], 1.0, 5.0) && near(capped[1], 3.0, 5.0), "{policy:?}: {capped:?}");
        assert_eq!(net.dropped, 0, "{policy:?}");
        let after = net.host.status().cwnd_bytes;
        assert!(after <= before + 1_448, "{policy:?}: grew from {before} to {after} without use");
        vms.iter().for_each(|vm| set(&mut net, *vm, RateRange::ANY));
        net.run_ms(30_000);
        let free = rates(&mut net, &vms, 60);
        assert!(free[0] + free[1] > 0.95 * PATH_MBIT, "{policy:?}: {free:?}");
        assert!(near(free[0], free[1], 10.0), "{policy:?}: {free:?}");
    }
}

#[test]
fn caps_that_leave_the_path_idle_for_long_are_no_growth() {
    let (mut net, vms) = group(GroupConfig::default(), &[(1.0, 2), (1.0, 2)], &[]);
    net.run_ms(30_000);
    let set_all = |net: &mut Net, to| vms.iter().for_each(|vm| set(net, *vm, to));
    set_all(&mut net, range(0.0, 2.0));
    net.run_ms(60_000);
    let before = net.host.status().cwnd_bytes;
    set_all(&mut net, RateRange::ANY);
    net.run_ms(200);
    let after = net.host.status().cwnd_bytes;
    assert!(after < before + before / 8, "from {before} to {after}");
}

#[test]
fn a_cap_is_in_force_at_once() {
    let (mut net, vms) = group(GroupConfig::default(), &[(1.0, 2), (1.0, 2)], &[]);
    set(&mut net, vms[1], range(0.0, 1.0));
    // What is on the way takes a round trip with a full queue.
    net.run_ms(300);
    let rates = rates(&mut net, &vms, 2);
    // The queue shrinks faster than the smoothed round-trip time.
    assert!(rates[1] < 1.15, "{rates:?}");
}

#[test]
fn an_honest_vm_at_its_cap_or_floor_is_believed() {
    let ranges = [range(0.0, 0.5), range(0.0, 0.5), range(0.0, 0.5), range(4.0, None)];
    let vms = [(1.0, 2), (1.0, 1), (8.0, 1), (0.1, 2), (1.0, 1)];
    let (mut net, vms) = group(GroupConfig::default(), &vms, &ranges);
    net.run_ms(60_000);
    for vm in vms {
        let beyond = net.host.engine.conduct(vm, net.host.group).beyond_bytes;
        assert!(beyond < 30_000, "{beyond} bytes of {}", net.delivered(vm));
    }
}

#[test]
fn who_says_to_be_far_away_has_little_above_its_cap() {
    let (mut net, vms) =
        group(GroupConfig::default(), &[(1.0, 1), (1.0, 4)], &[RateRange::ANY, range(0.0, 2.0)]);
    net.flows_of(vms[1]).for_each(|sender| sender.lies = |report| report.srtt_us = 900_000);
    net.run_ms(10_000);
    let rates = rates(&mut net, &vms, 60);
    assert!(rates[1] < LIAR_MBIT, "{rates:?}");
}

/// What the first of five VMs with this range has of 1 Gbit/s at 2 ms, that lies from two
/// seconds on, Mbit/s.
fn near_liar(share: ShareOf, of_first: RateRange, lie: fn(&mut Report)) -> f64 {
    let mut net = Net::on(Path::NEAR, GroupConfig { share, ..GroupConfig::default() });
    let vms: Vec<VmId> = (0..5).map(|_| net.vm(1.0, 1)).collect();
    set(&mut net, vms[0], of_first);
    net.run_ms(2_000);
    net.flows_of(vms[0]).for_each(|sender| sender.lies = lie);
    net.run_ms(10_000);
    rates(&mut net, &vms[..1], 5)[0]
}

/// All that tells how far away it is says a quarter of a second, instead of 2 ms.
fn is_far(report: &mut Report) {
    (report.srtt_us, report.rtt_us, report.min_rtt_us) = (250_000, 250_000, 250_000);
}

#[test]
fn who_says_to_be_far_away_near_others_has_little_above_its_bounds() {
    let smoothed = |report: &mut Report| report.srtt_us = 250_000;
    for share in [ShareOf::Rate, ShareOf::Window] {
        for lie in [smoothed, is_far] {
            let capped = near_liar(share, range(0.0, 100.0), lie);
            let floored = near_liar(share, range(300.0, None), lie);
            println!("{share:?}: {capped:.1} at a cap of 100, {floored:.1} with a floor of 300");
            assert!(capped < 125.0, "{share:?}: {capped} Mbit/s at a cap of 100");
            assert!(floored < 375.0, "{share:?}: {floored} Mbit/s with a floor of 300");
        }
    }
}

/// What a VM that is capped to 2 Mbit/s has by saying to be nine times as far away as it is: as
/// far as others make it likely, and it holds itself to that.  A tap holds it to its cap.
const LIAR_MBIT: f64 = 2.5;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With honest senders, whatever the weights, floors and caps.
    #[test]
    fn nobody_is_above_its_cap_and_all_that_may_be_used_is_used(
        vms in proptest::collection::vec(
            (select(vec![0.3, 1.0, 4.0]), 1usize..4, select(vec![0.0, 0.5, 2.0]),
             select(vec![None, Some(0.7), Some(2.0), Some(5.0)])),
            2..5,
        ),
    ) {
        let ranges: Vec<RateRange> = vms.iter()
            .map(|(_, _, floor, cap)| range(cap.map_or(*floor, |cap: f64| cap.min(*floor)), *cap))
            .collect();
        let sizes: Vec<(f64, usize)> = vms.iter().map(|vm| (vm.0, vm.1)).collect();
        let (mut net, ids) = group(GroupConfig::default(), &sizes, &ranges);
        let rates = rates(&mut net, &ids, 30);
        for (rate, (_, flows, _, cap)) in rates.iter().zip(&vms) {
            // A segment of each flow, in a round trip without a queue.
            let segments = *flows as f64 * 1_448.0 * 8.0 / 1e5;
            prop_assert!(*rate <= cap.unwrap_or(99.0) * 1.02 + segments, "{rates:?} of {vms:?}");
        }
        let caps: Option<f64> = vms.iter().map(|vm| vm.3).sum();
        let may = caps.unwrap_or(99.0).min(PATH_MBIT);
        let used: f64 = rates.iter().sum();
        prop_assert!(used > 0.9 * may, "{used} of {may}: {rates:?} of {vms:?}");
    }
}
