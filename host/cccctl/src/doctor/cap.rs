// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether anything holds a VM to its cap: grants do, where its flows follow them and can, and its
//! tap, where the host may.
use serde_json::Value;

use super::{Finding, has_no_device, member, tap::not_seen};
use crate::views::word;

/// A guest's flows wait between pairs of segments from such a round-trip time on, and never in a
/// shorter one.
const PAUSES_FROM_US: u64 = 10_000;
/// Two segments of an Ethernet frame, in bits.
const PAIR_BITS: f64 = 2.0 * 1448.0 * 8.0;

/// It has a cap that its flows do not keep to by what they are granted, and that nothing else
/// holds it to.
pub fn not_held(vm: &Value, group: Option<&Value>) -> Option<Finding> {
    let cap = vm["cap_mbit"].as_f64()?;
    let holds = |group: &Value| group["enforce"] == "on" && not_seen(vm, group).is_none();
    if group.is_some_and(holds) {
        return None;
    }
    let couples = group.is_some_and(is_coupling) && vm["coupled"] != false;
    let is_granted = couples && !has_no_device(vm) && vm["state"] != "no driver";
    let alone = if is_granted {
        some_are_alone(vm, group?)
    } else {
        Some("its flows are not coupled".to_owned())
    };
    // One without a device has nothing that could be coupled.
    let may_couple = alone.is_some() && !has_no_device(vm);
    let couple = if may_couple { "couple them, or " } else { "" };
    let why = alone.or_else(|| above_cap_by_pairs(vm, group?, cap))?;
    let name = word(&vm["name"]);
    Some(Finding::new(
        vm,
        format!("nothing holds it to its cap of {cap} Mbit/s, as {why}"),
        format!(
            "{couple}have it held at its tap: cccctl set {name} --tap INTERFACE, and \
             cccctl group GROUP --enforce on; if it is to have no cap: cccctl set {name} --cap none"
        ),
    ))
}

/// Flows of the group are granted something now: neither is it left alone nor the half of a
/// trial that is.
fn is_coupling(group: &Value) -> bool {
    let is_off = group["coupled"] == false || group["trial"]["coupled"] == false;
    !is_off && group["policy"] != "uncoupled"
}

/// Why a VM's flows may be above its cap, of which only some are granted something.
fn some_are_alone(vm: &Value, group: &Value) -> Option<String> {
    if group["policy"] == "lisa" {
        return Some("the policy lisa leaves its flows alone once they have lost".to_owned());
    }
    let (flows, coupled) = (vm["flows"].as_u64()?, vm["coupled_flows"].as_u64()?);
    let alone = flows.checked_sub(coupled).filter(|alone| *alone > 0)?;
    Some(format!("{alone} of its {flows} flows are not coupled"))
}

/// Why a VM's flows may be above its cap, though they do as they are granted: each sends two
/// segments in a round trip, and that is short.
fn above_cap_by_pairs(vm: &Value, group: &Value, cap: f64) -> Option<String> {
    let member = member(vm, group)?;
    let flows = member["flows"].as_u64()?;
    let srtt_us = member["srtt_us"].as_u64().filter(|us| (1..PAUSES_FROM_US).contains(us))?;
    let least_mbit = flows as f64 * PAIR_BITS / srtt_us as f64;
    (least_mbit > cap).then(|| {
        format!(
            "each of its {flows} flows sends two segments in a round trip at the least, which at \
             {:.2} ms is {least_mbit:.0} Mbit/s",
            srtt_us as f64 / 1e3
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::answers::{findings, of, of_both};

    #[test]
    fn a_cap_that_no_grant_holds_is_told() {
        let capped = |of_vm: Value, of_group: Value| {
            let mut vm = json!({"cap_mbit": 100.0});
            vm.as_object_mut()
                .expect("an object")
                .extend(of_vm.as_object().expect("an object").clone());
            let found = of_both(vm, of_group).into_iter().map(|finding| finding.what);
            found.filter(|what| what.contains("nothing holds it to its cap")).collect::<Vec<_>>()
        };
        let nothing = || json!({});
        assert!(capped(nothing(), nothing()).is_empty(), "its grants do");
        let alone = [
            (nothing(), json!({"coupled": false})),
            (nothing(), json!({"policy": "uncoupled"})),
            (nothing(), json!({"trial": {"coupled": false, "by": "x", "ends_ms": 0}})),
            (json!({"coupled": false}), nothing()),
        ];
        let some = [
            (json!({"coupled_flows": 3}), nothing()),
            (json!({"device": false, "tap": "tap0"}), json!({"enforce": "observe"})),
        ];
        for (vm, group) in alone.into_iter().chain(some) {
            let found = capped(vm, group);
            assert!(found.len() == 1 && found[0].ends_with("flows are not coupled"), "{found:?}");
        }
        let lisa = capped(nothing(), json!({"policy": "lisa"}));
        assert!(lisa.len() == 1 && lisa[0].ends_with("alone once they have lost"), "{lisa:?}");
        let at = |flows: u64, srtt_us: u64, enforce: &str| {
            let member = json!({"name": "web", "flows": flows, "srtt_us": srtt_us, "tap": {}});
            capped(json!({"tap": "tap0"}), json!({"vms": [member], "enforce": enforce}))
        };
        let near = at(4, 200, "off");
        assert!(near.len() == 1 && near[0].ends_with("at 0.20 ms is 463 Mbit/s"), "{near:?}");
        assert!(at(4, 200, "on").is_empty(), "it is held");
        assert!(at(4, 2_000, "off").is_empty() && at(400, 20_000, "off").is_empty());
    }

    #[test]
    fn a_cap_is_told_in_words_that_fit() {
        let found = of(json!({"cap_mbit": 2.0, "device": false, "flows": 0, "coupled_flows": 0}));
        assert!(found[0].remedy.starts_with("have it held at its tap"), "{found:?}");
        let held = json!({"judged": "above its cap", "held": 250_000.0, "coupled_flows": 0});
        let remedy = &of(held)[0].remedy;
        assert!(
            remedy.starts_with("they are coupled again when it has kept to its cap"),
            "{remedy}"
        );
    }

    #[test]
    fn a_cap_at_a_tap_that_is_not_looked_at_is_told() {
        let of = |device: bool, seen: Value| {
            let vm = json!({"name": "web", "group": "uplink", "coupled": true, "device": device,
                "state": "absent", "connected": device, "flows": 0, "coupled_flows": 0,
                "tap": "vnet0", "cap_mbit": 100.0});
            let member = json!({"name": "web", "tap": seen});
            let group = json!({"name": "uplink", "enforce": "on", "coupled": true,
                "vms": [member]});
            let found = findings(&json!({}), &json!({"vms": [vm]}), &json!({"groups": [group]}));
            found.into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        let found = of(false, Value::Null);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("nothing is counted at its tap vnet0"), "{found:?}");
        assert!(found[1].starts_with("nothing holds it to its cap of 100"), "{found:?}");
        assert!(of(false, json!({"interface": "vnet0"})).is_empty());
    }
}
