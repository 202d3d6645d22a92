// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who is asked to report rarely grows as who reports at once.
#![allow(clippy::unwrap_used)]
use ccc_core::{CongestionState, Engine, GroupConfig, Micros, Report};

const MSS_BYTES: u16 = 1448;
const RTT_US: u32 = 1_000;
const RUN_US: Micros = 1_000_000;

/// An honest flow at the end of its slow start.
fn report() -> Report {
    Report {
        active: true,
        cwnd_limited: true,
        state: CongestionState::Avoidance,
        cwnd_bytes: 100 * u32::from(MSS_BYTES),
        inflight_bytes: 100 * u32::from(MSS_BYTES),
        ssthresh_bytes: Some(100 * u32::from(MSS_BYTES)),
        mss_bytes: MSS_BYTES,
        srtt_us: RTT_US,
        rtt_us: RTT_US,
        // Packets wait: the path is not idle.
        min_rtt_us: RTT_US / 2,
        ..Report::default()
    }
}

/// Segments that the aggregate grows by in a second, where so many reports are wanted, of which
/// a VM elsewhere has made many flows.
fn grows_by(most_per_s: u32, flows_of_another: usize) -> u64 {
    let mut engine = Engine::new();
    engine.set_max_reports_per_s(most_per_s);
    let (ours, elsewhere) =
        (engine.add_group(GroupConfig::default()), engine.add_group(GroupConfig::default()));
    let (vm, another) = (engine.add_vm(), engine.add_vm());
    let mut report = report();
    let flow = engine.adopt(0, vm, ours, &report).unwrap();
    for _ in 0..flows_of_another {
        engine.register(0, another, elsewhere, &report).unwrap();
    }
    let before = engine.status(ours).unwrap().cwnd_bytes;
    let (mut now, mut told) = (0, 0);
    while now < RUN_US {
        now += Micros::from(RTT_US);
        let window = engine.grant(vm, ours).cwnd_bytes(256 * u64::from(RTT_US));
        report.delivered_bytes += window;
        report.acked_limited_bytes += window;
        report.cwnd_growth_bytes += u32::from(MSS_BYTES);
        report.cwnd_bytes = window as u32;
        if now - told >= engine.report_interval_us(vm) {
            engine.update(now, flow, &report).unwrap();
            told = now;
        }
    }
    (engine.status(ours).unwrap().cwnd_bytes - before) / u64::from(MSS_BYTES)
}

#[test]
fn who_is_to_report_rarely_grows_as_who_reports_at_once() {
    let at_once = grows_by(u32::MAX, 0);
    assert!(at_once > 900, "{at_once} segments, of which Reno adds one in a round trip");
    let rarely = grows_by(31, 0);
    assert!(rarely >= at_once / 10 * 9, "{rarely} segments, not {at_once}");
}

#[test]
fn flows_of_a_vm_elsewhere_let_nobody_grow_more_slowly() {
    let alone = grows_by(1_000_000, 0);
    let beside = grows_by(1_000_000, 16_384);
    assert!(beside >= alone / 10 * 9, "{beside} segments, not {alone}");
}
