// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM is granted in a second: what the host's taps are compared with.
#![allow(clippy::unwrap_used)]
use ccc_core::{
    CongestionState, Engine, FlowId, Grant, GroupConfig, GroupId, Micros, Report, ShareOf, VmId,
};

const MSS_BYTES: u16 = 1448;

/// A group of VMs with one flow each.
struct Group {
    now: Micros,
    engine: Engine,
    group: GroupId,
    vms: Vec<(VmId, FlowId, Report)>,
}

impl Group {
    /// With these round-trip times, after so long that all are known.
    fn new(share: ShareOf, srtts_us: &[u32]) -> Group {
        let mut engine = Engine::new();
        let group = engine.add_group(GroupConfig { share, ..GroupConfig::default() });
        let mut all = Group { now: 1, engine, group, vms: Vec::new() };
        for srtt_us in srtts_us {
            let report = Report {
                active: true,
                cwnd_limited: true,
                state: CongestionState::Avoidance,
                cwnd_bytes: 100 * u32::from(MSS_BYTES),
                inflight_bytes: 100 * u32::from(MSS_BYTES),
                ssthresh_bytes: Some(u32::from(MSS_BYTES)),
                mss_bytes: MSS_BYTES,
                srtt_us: *srtt_us,
                rtt_us: *srtt_us,
                min_rtt_us: *srtt_us,
                ..Report::default()
            };
            let vm = all.engine.add_vm();
            let flow = all.engine.adopt(all.now, vm, group, &report).unwrap();
            all.vms.push((vm, flow, report));
        }
        for _ in 0..50 {
            all.now += 20_000;
            for (_, flow, report) in &mut all.vms {
                report.delivered_bytes += u64::from(MSS_BYTES);
                all.engine.update(all.now, *flow, report).unwrap();
            }
        }
        all
    }

    fn granted(&self, vm: usize) -> u64 {
        self.engine.claims(self.vms[vm].0, self.group).granted
    }

    /// The aggregate in so many microseconds, as bytes a second.
    fn aggregate_in(&self, rtt_us: u64) -> u64 {
        self.engine.status(self.group).unwrap().cwnd_bytes * 1_000_000 / rtt_us
    }
}

#[track_caller]
fn assert_near(got: u64, expected: u64) {
    assert!(got.abs_diff(expected) <= expected / 50, "{got}, not {expected}");
}

#[test]
fn vms_of_one_distance_are_granted_the_aggregate_in_a_round_trip() {
    for share in [ShareOf::Rate, ShareOf::Window] {
        let group = Group::new(share, &[100_000; 4]);
        for vm in 0..4 {
            assert_near(group.granted(vm), group.aggregate_in(100_000) / 4);
        }
    }
}

#[test]
fn one_flow_in_the_place_of_all_would_have_the_aggregate() {
    for share in [ShareOf::Rate, ShareOf::Window] {
        let group = Group::new(share, &[100_000; 4]);
        let grant = group.engine.grant(group.vms[0].0, group.group);
        let of_one = Grant { level: grant.aggregate_level, ..grant };
        let window = of_one.cwnd_bytes(of_one.units(256, 100_000));
        assert_near(window, group.engine.status(group.group).unwrap().cwnd_bytes);
        assert_near(window, 4 * grant.cwnd_bytes(grant.units(256, 100_000)));
    }
}

#[test]
fn vms_of_other_distances_are_granted_one_rate() {
    let group = Group::new(ShareOf::Rate, &[20_000, 60_000, 180_000]);
    assert_near(group.granted(1), group.granted(0));
    assert_near(group.granted(2), group.granted(0));
}

#[test]
fn who_says_a_long_time_is_granted_no_higher_rate() {
    let group = Group::new(ShareOf::Rate, &[100_000, 100_000, 100_000, 10_000_000]);
    assert_near(group.granted(3), group.granted(0));
}

#[test]
fn near_flows_may_send_two_segments_a_round_trip() {
    let mut group = Group::new(ShareOf::Rate, &[1_000, 1_000]);
    let segments_a_second = |group: &Group| group.granted(0) / u64::from(MSS_BYTES);
    for _ in 0..40 {
        // Losses bring the aggregate down to its floor.
        group.now += 20_000;
        let epoch = group.engine.status(group.group).unwrap().epoch;
        for (_, flow, report) in &mut group.vms {
            report.congestion_events += 1;
            report.congestion_epoch = epoch;
            group.engine.update(group.now, *flow, report).unwrap();
        }
    }
    assert!(segments_a_second(&group) >= 2_000, "{}", segments_a_second(&group));
}

#[test]
fn limited_flows_beside_one_that_sends_are_granted_no_more_than_their_part() {
    for share in [ShareOf::Rate, ShareOf::Window] {
        let mut group = Group::new(share, &[100_000; 4]);
        let (vm, _, report) = group.vms[3];
        let before = group.granted(3);
        let limited = Report { cwnd_limited: false, inflight_bytes: 0, ..report };
        for _ in 0..16 {
            group.engine.register(group.now, vm, group.group, &limited).unwrap();
        }
        let granted = group.granted(3);
        assert!(granted <= before + before / 10, "{before} became {granted}");
    }
}

#[test]
fn who_has_no_flows_is_granted_nothing() {
    let mut group = Group::new(ShareOf::Rate, &[100_000, 100_000]);
    let flow = group.vms[1].1;
    group.engine.leave(group.now, flow);
    assert_eq!(group.granted(1), 0);
}
