// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Taps that judge by the daemon's own code: no honest VM, and each that takes what is others'.
#![allow(clippy::unwrap_used)]
use ccc_lab::scenario::Scenario;
use ccc_law::{fuzz::case_of, setup::Setup, taps::Judged, watched::watched, world};
use serde_json::{Value, json};

/// Whom taps judge of three honest VMs and this one.
fn judged(fourth: Value) -> Vec<Judged> {
    judged_on(json!({}), fourth)
}

/// The same on another path.
fn judged_on(path: Value, fourth: Value) -> Vec<Judged> {
    let honest = json!({"flows": [{"count": 4}]});
    let scenario = json!({
        "name": "taps", "seed": 3, "duration_s": 30, "coupled": true, "daemon": "none",
        "hostile_module": "none", "bottleneck": path, "vms": [honest, honest, honest, fourth],
    });
    let setup = Setup::of(&Scenario::parse(&scenario.to_string()).unwrap()).unwrap();
    world::watch(&setup).judged
}

#[test]
fn who_ignores_its_grants_is_judged_and_nobody_else() {
    for lies in ["lie_deaf=1", "lie_deaf=1 lie_mute=1", "lie_rtt_us=10000000 lie_deaf=1"] {
        let judged =
            judged(json!({"flows": [{"count": 4}], "hostile": true, "module_options": lies}));
        assert!(!judged.is_empty(), "{lies}");
        for one in judged {
            assert_eq!(one.vm, 3, "{lies}: {}", one.verdict);
            assert!(one.verdict.since < 15_000_000, "{lies}: {}", one.verdict.since);
        }
    }
}

/// Slots that say their applications limit them are granted as much as those that send.
#[test]
fn limited_slots_let_nobody_take_more() {
    let lies = "lie_deaf=1 lie_slots=16 lie_limited=1";
    let judged = judged(json!({"flows": [{"count": 4}], "hostile": true, "module_options": lies}));
    assert!(judged.iter().any(|one| one.verdict.since < 15_000_000), "{judged:?}");
    assert!(judged.iter().all(|one| one.vm == 3), "{judged:?}");
}

/// Who is near may send two segments a flow in a round trip, however small its part is.
#[test]
fn a_near_flow_of_large_segments_lets_nobody_take_more() {
    for delay_ms in [5, 20] {
        let path = json!({"delay_ms": delay_ms, "limit_packets": 80});
        let lies = "lie_deaf=1 lie_rtt_us=1 lie_mss=65535";
        let fourth = json!({"flows": [{"count": 4}], "hostile": true, "module_options": lies});
        let judged = judged_on(path, fourth);
        assert!(judged.iter().any(|one| one.vm == 3), "{delay_ms} ms: {judged:?}");
        assert!(judged.iter().all(|one| one.vm == 3), "{delay_ms} ms: {judged:?}");
    }
}

#[test]
fn who_takes_a_little_more_than_half_of_its_share_makes_nobody_judged() {
    let limited = json!({"flows": [{"rate_kbit": 1500}], "hostile": true,
        "module_options": "lie_slots=1 lie_ms=100"});
    assert!(judged(limited).is_empty());
}

/// Four flows that share 50 kbit/s send two segments each in a round trip and the longest pause,
/// which is more; of a few segments a second many are sent again; and who is an eighth as far as
/// others sends two segments as often.
#[test]
fn who_sends_the_least_that_a_guest_can_is_not_judged() {
    for (seed, number) in [(22, 29), (701, 1687), (701, 1949), (704, 1611)] {
        let setup = Setup::of(&case_of(seed, number).scenario).unwrap();
        let judged = world::watch(&setup).judged;
        assert!(judged.is_empty(), "{seed}, {number}: {judged:?}");
    }
}

#[test]
fn honest_vms_in_drawn_conditions_are_not_judged() {
    let found = watched(40, 7);
    assert!(found.is_empty(), "{found:?}");
}
