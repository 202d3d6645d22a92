// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Taps that judge by the daemon's own code: no honest VM, and each that takes what is others'.
#![allow(clippy::unwrap_used)]
use ccc_lab::scenario::Scenario;
use ccc_law::{setup::Setup, taps::Judged, watched::watched, world};
use serde_json::{Value, json};

/// Whom taps judge of three honest VMs and this one.
fn judged(fourth: Value) -> Vec<Judged> {
    let honest = json!({"flows": [{"count": 4}]});
    let scenario = json!({
        "name": "taps", "seed": 3, "duration_s": 30, "coupled": true, "daemon": "none",
        "hostile_module": "none", "vms": [honest, honest, honest, fourth],
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

#[test]
fn who_takes_a_little_more_than_half_of_its_share_makes_nobody_judged() {
    let limited = json!({"flows": [{"rate_kbit": 1500}], "hostile": true,
        "module_options": "lie_slots=1 lie_ms=100"});
    assert!(judged(limited).is_empty());
}

#[test]
fn honest_vms_in_drawn_conditions_are_not_judged() {
    let found = watched(40, 7);
    assert!(found.is_empty(), "{found:?}");
}
