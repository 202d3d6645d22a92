// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What VMs' taps show, and whether what is to be held there can be.
use serde_json::Value;

use super::{Finding, has_no_device, member, place::is_configured};
use crate::views::word;

/// A VM that is held loses in a queue of its own.
pub fn held(vm: &Value) -> Option<Finding> {
    if vm["left_held"] == true {
        let tap = word(&vm["tap"]);
        let remedy = format!(
            "the daemon lets it go, or holds it anew, within seconds; if it does not, its log says \
             why; by hand: tc qdisc del dev {tap} ingress"
        );
        let what = format!("an earlier daemon has left its tap {tap} held, so it is not coupled");
        return Some(Finding::new(vm, what, remedy));
    }
    // One without a device has nothing that could be coupled.
    let is_held = vm["held"].is_number() && !has_no_device(vm);
    is_held.then(|| {
        let keeps = match vm["judged"].as_str() {
            Some("above its cap") => "to its cap",
            _ => "below its share",
        };
        let remedy = format!(
            "they are coupled again when it has kept {keeps} for a while; cccctl group {} has what \
             was seen",
            word(&vm["group"])
        );
        Finding::new(vm, "it is held at its tap, so its flows are not coupled", remedy)
    })
}

/// Its tap does not show what it says.
pub fn judged(vm: &Value, group: Option<&Value>) -> Option<Finding> {
    let name = word(&vm["name"]);
    let reason = vm["judged"].as_str()?;
    if vm["held"].is_null() && group.is_some_and(|group| group["enforce"] == "on") {
        return Some(Finding::new(
            vm,
            format!("it is to be held at its tap, and is not: {reason}"),
            format!("the daemon's log says why (journalctl -u ccc-vhost | grep 'VM {name}:')"),
        ));
    }
    // It reports nothing, and has its share: that is as it is to be.
    if has_no_device(vm) && vm["held"].is_number() {
        return None;
    }
    let held = vm["held"]
        .as_f64()
        .map(|bytes| format!(", and is held to {:.1} Mbit/s", bytes * 8.0 / 1e6));
    let held = held.unwrap_or_default();
    if reason == "above its cap" {
        let remedy = format!(
            "cccctl group has what was seen; what is no TCP counts there, and ACKs do; \
             enforce = \"on\" of the group holds it to its cap; if that is too low: cccctl set {name} --cap \
             RATE"
        );
        return Some(Finding::new(
            vm,
            format!("its tap shows that it sends {reason}{held}"),
            remedy,
        ));
    }
    Some(Finding::new(
        vm,
        format!("its tap shows what its reports do not: {reason}{held}"),
        format!(
            "cccctl group has what was seen and what {name} may have; see whether its guest has the \
             module and what else it sends (ccc-bpf taps {name} shows its flows); the group's enforce = \"on\" holds it to its share"
        ),
    ))
}

/// Its group is to judge it by a tap that is not named, or is not looked at though it runs.
pub fn not_seen(vm: &Value, group: &Value) -> Option<Finding> {
    let enforce = group["enforce"].as_str().filter(|enforce| *enforce != "off")?;
    if is_looked_at_by_nobody(vm, group) {
        return None;
    }
    let (name, group_name) = (word(&vm["name"]), word(&group["name"]));
    let vain = format!("enforce = \"{enforce}\" of {group_name} does nothing to it");
    if is_cgroup(vm) {
        return Some(Finding::new(
            vm,
            format!("it is a cgroup, which has no tap, so {vain}"),
            format!(
                "make it a tenant by its namespace ({}), or put it in a group with enforce = \"off\": \
                 cccctl set {name} --group GROUP",
                by_namespace(vm)
            ),
        ));
    }
    let Some(tap) = vm["tap"].as_str() else {
        return Some(Finding::new(
            vm,
            format!("it has no tap, so {vain}"),
            format!("cccctl set {name} --tap INTERFACE (virsh domiflist {name} says which)"),
        ));
    };
    // Nothing but its tap tells whether one without a device runs.
    if !(vm["connected"] == true || has_no_device(vm)) {
        return None;
    }
    if let Some(unseen) = vm["unseen"].as_str() {
        let (why, remedy) = of_unseen(&name, unseen);
        return Some(Finding::new(vm, format!("{why}, so {vain}"), remedy));
    }
    let is_counted = is_judged_for_nothing(vm, group) || !member(vm, group)?["tap"].is_null();
    (!is_counted).then(|| {
        let vain =
            if has_queues(group) { "it is neither judged nor held".to_owned() } else { vain };
        Finding::new(
            vm,
            format!("nothing is counted at its tap {tap}, so {vain}"),
            format!(
                "see whether the interface is there (ip link show {tap}), is no other VM's, and \
                 no rule (cccctl rules) leads flows of {name} to other groups"
            ),
        )
    })
}

/// A part of the host that shares the host's interfaces with all others, and names none.
fn is_cgroup(vm: &Value) -> bool {
    vm["tap"].is_null() && vm["tenant"].as_str().is_some_and(|place| place.starts_with("cgroup:"))
}

/// How a cgroup is made a tenant that has a tap.
fn by_namespace(vm: &Value) -> String {
    let name = word(&vm["name"]);
    if is_configured(vm) {
        return format!(
            "tenant = \"netns:NAME\" and tap = \"INTERFACE\" in [vm.{name}] of the configuration, then \
             restart ccc-vhost"
        );
    }
    format!(
        "cccctl tenant remove {name}, then cccctl tenant add {name} --netns NAME --tap INTERFACE"
    )
}

/// Why a VM's tap is not looked at, and what to do: the daemon says so itself where virsh would name
/// the same interface again.
fn of_unseen<'a>(name: &str, unseen: &'a str) -> (&'a str, String) {
    match unseen.split_once(": ") {
        Some((why, remedy)) => {
            let then = format!("then name that: cccctl set {name} --tap INTERFACE");
            (why, format!("{remedy}, from its next start on; {then}"))
        }
        None => (
            unseen,
            format!(
                "name the interface of this host through which its packets come, and only its: cccctl set \
                 {name} --tap INTERFACE (virsh domiflist {name} says which, of its running domain)"
            ),
        ),
    }
}

/// That nothing is done to it is because its group is not coupled, which is told of the group: there a
/// VM is looked at for its cap and its queue only.
fn is_looked_at_by_nobody(vm: &Value, group: &Value) -> bool {
    is_judged_for_nothing(vm, group) && group["uplink"].is_null()
}

/// Flows of its group are granted nothing now, by which it could be judged, and it has no cap.
fn is_judged_for_nothing(vm: &Value, group: &Value) -> bool {
    let is_left_alone = group["coupled"] == false || group["trial"]["coupled"] == false;
    is_left_alone && vm["cap_mbit"].is_null()
}

/// VMs of the group have queues at its uplink.
fn has_queues(group: &Value) -> bool {
    group["queues"]["there"] == true
}

/// It is to hold VMs, and nobody may.
pub fn powerless(status: &Value, group: &Value) -> Option<Finding> {
    // An older daemon does not say.
    let is = group["enforce"] == "on" && status["may_hold"] == false;
    is.then(|| {
        let what = "enforce = \"on\" cannot hold any VM: the daemon has no CAP_NET_ADMIN";
        let remedy = format!(
            "systemctl edit ccc-vhost: [Service] AmbientCapabilities=CAP_NET_ADMIN and \
             CapabilityBoundingSet=CAP_NET_ADMIN, then restart it; or cccctl group {} --enforce observe",
            word(&group["name"])
        );
        Finding::new(group, what, remedy)
    })
}

/// Its VMs are to have queues of their own at its uplink, and have none, or lack one.
pub fn without_queues(group: &Value) -> Option<Finding> {
    let queues = &group["queues"];
    // Without a tap there is nobody to have one, which is no failure of the daemon's.
    let nobody = (queues["there"] == false).then_some("none of them names a tap of its own");
    let why = queues["trouble"].as_str().or(nobody)?;
    let uplink = word(&group["uplink"]);
    let (lack, often) = match queues["there"] == true {
        true => ("lack a queue", "at each look"),
        false => ("have no queues", "each 5 s"),
    };
    let what = format!("its VMs {lack} at {uplink}: {why}");
    let remedy = format!(
        "the daemon tries again {often}; if they are to have none: cccctl group {} --uplink none",
        word(&group["name"])
    );
    Some(Finding::new(group, what, remedy))
}

/// Its uplink does nothing, for it does not enforce anything.
pub fn vain_uplink(group: &Value) -> Option<Finding> {
    let uplink = group["uplink"].as_str()?;
    let enforce = group["enforce"].as_str().filter(|enforce| *enforce != "on")?;
    let what = format!("its VMs have no queues at {uplink}: enforce is \"{enforce}\"");
    let name = word(&group["name"]);
    let remedy = format!("cccctl group {name} --enforce on, or --uplink none");
    Some(Finding::new(group, what, remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::answers::{findings, of, of_both, words};

    #[test]
    fn a_vm_that_is_held_is_told_to_be_held() {
        let told = of(json!({"judged": "unreported", "held": 625_000, "coupled_flows": 0}));
        let words: Vec<&str> = told.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(words[0], "it is held at its tap, so its flows are not coupled");
        assert!(words[1].ends_with("unreported, and is held to 5.0 Mbit/s"), "{words:?}");
        assert_eq!(words.len(), 2, "{words:?}");
    }

    #[test]
    fn a_cgroup_is_not_asked_for_a_tap() {
        let of = |changes: Value| {
            let found = of_both(changes, json!({"enforce": "on"}));
            let told = found.into_iter().find(|finding| finding.what.contains("has no tap"));
            told.map(|Finding { what, remedy, .. }| (what, remedy)).expect("told")
        };
        let (what, remedy) = of(json!({"tenant": "cgroup:/batch"}));
        assert!(
            what.starts_with("it is a cgroup, which has no tap, so enforce = \"on\""),
            "{what}"
        );
        assert!(
            remedy.contains("--netns NAME") && remedy.contains("enforce = \"off\""),
            "{remedy}"
        );
        assert!(!remedy.contains("virsh"), "{remedy}");
        let (_, remedy) = of(json!({"tenant": "cgroup:/batch", "added": false}));
        assert!(remedy.contains("in [vm.web] of the configuration"), "{remedy}");
        assert!(!remedy.contains("cccctl tenant"), "it is refused: {remedy}");
        assert!(of(json!({"tenant": "netns:a"})).1.starts_with("cccctl set web --tap INTERFACE"));
    }

    #[test]
    fn a_hold_that_an_earlier_daemon_left_is_told() {
        let told = words(json!({"left_held": true, "tap": "vnet0", "coupled_flows": 0}));
        assert!(told.starts_with("an earlier daemon has left its tap vnet0 held"), "{told}");
    }

    #[test]
    fn a_vm_that_is_to_be_held_and_is_not_is_told() {
        let vm = json!({"name": "web", "group": "uplink", "judged": "unreported", "tap": "vnet0",
            "connected": false, "flows": 0, "coupled_flows": 0});
        let group = json!({"name": "uplink", "enforce": "on", "coupled": true, "vms": []});
        let found = findings(&json!({}), &json!({"vms": [vm]}), &json!({"groups": [group]}));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.starts_with("it is to be held at its tap, and is not"), "{found:?}");
    }

    #[test]
    fn a_group_that_is_to_hold_vms_and_may_not_is_told() {
        let of = |may_hold: Value, enforce: &str| {
            let group = json!({"name": "uplink", "enforce": enforce, "coupled": true});
            let status = json!({"may_hold": may_hold});
            findings(&status, &json!({"vms": []}), &json!({"groups": [group]}))
        };
        let found = of(json!(false), "on");
        assert_eq!(found.len(), 1);
        assert!(found[0].what.ends_with("the daemon has no CAP_NET_ADMIN"), "{found:?}");
        assert!(found[0].remedy.contains("AmbientCapabilities=CAP_NET_ADMIN"), "{found:?}");
        assert_eq!(of(json!(true), "on"), []);
        assert_eq!(of(json!(false), "observe"), []);
        assert_eq!(of(json!(null), "on"), [], "an older daemon does not say");
    }

    #[test]
    fn an_uplink_without_the_queues_it_is_to_have_is_told() {
        let of = |queues: Value| {
            let group =
                json!({"name": "uplink", "coupled": true, "uplink": "eth0", "queues": queues});
            findings(&json!({}), &json!({"vms": []}), &json!({"groups": [group]}))
        };
        let found = of(json!({"there": false, "trouble": "the kernel has no HTB"}));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "its VMs have no queues at eth0: the kernel has no HTB");
        assert!(found[0].remedy.ends_with("cccctl group uplink --uplink none"), "{found:?}");
        let nobody = of(json!({"there": false, "trouble": null}));
        assert!(nobody[0].what.ends_with("none of them names a tap of its own"), "{nobody:?}");
        let lacking = of(json!({"there": true, "trouble": "cannot make it"}));
        assert_eq!(lacking[0].what, "its VMs lack a queue at eth0: cannot make it");
        for well in [json!({"there": true, "trouble": null}), json!(null)] {
            assert_eq!(of(well), []);
        }
    }

    #[test]
    fn an_uplink_of_a_group_that_does_not_enforce_is_told() {
        let of = |enforce: &str, uplink: Value| {
            let group =
                json!({"name": "wan", "coupled": true, "enforce": enforce, "uplink": uplink});
            findings(&json!({}), &json!({"vms": []}), &json!({"groups": [group]}))
        };
        let found = of("off", json!("eth0"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "its VMs have no queues at eth0: enforce is \"off\"");
        assert!(found[0].remedy.starts_with("cccctl group wan --enforce on"), "{found:?}");
        assert_eq!(of("observe", json!("eth0")).len(), 1);
        assert_eq!([of("on", json!("eth0")), of("off", json!(null))], [[], []]);
    }

    #[test]
    fn a_vm_that_a_group_enforces_upon_in_vain_is_told() {
        let of = |enforce: &str, tap: Value, seen: Value| {
            let vm = json!({
                "name": "web", "group": "uplink", "flows": 0, "coupled_flows": 0, "tap": tap,
                "connected": true});
            let member = json!({"name": "web", "tap": seen});
            let group = json!({"name": "uplink", "enforce": enforce, "vms": [member]});
            findings(&json!({}), &json!({"vms": [vm]}), &json!({"groups": [group]}))
        };
        let none = of("on", json!(null), json!(null));
        assert_eq!(none.len(), 1, "{none:?}");
        assert!(none[0].what.starts_with("it has no tap, so enforce = \"on\" of uplink"));
        assert!(none[0].remedy.starts_with("cccctl set web --tap INTERFACE"), "{none:?}");
        let gone = of("observe", json!("vnet0"), json!(null));
        assert!(gone[0].what.starts_with("nothing is counted at its tap vnet0"), "{gone:?}");
        assert_eq!(of("on", json!("vnet0"), json!({"interface": "vnet0"})), []);
        assert_eq!(of("off", json!(null), json!(null)), []);
    }

    /// What is told of a VM with a tap that nothing is counted at, and of its group.
    fn told_of_unseen(vm: Value, group: Value) -> Vec<(String, String)> {
        let mut one = json!({"name": "web", "group": "uplink", "flows": 0, "coupled_flows": 0,
            "tap": "vnet0", "connected": true});
        one.as_object_mut().expect("an object").extend(vm.as_object().expect("one").clone());
        let mut all = json!({"name": "uplink", "enforce": "on",
            "vms": [{"name": "web", "tap": null}]});
        all.as_object_mut().expect("an object").extend(group.as_object().expect("one").clone());
        let found = findings(&json!({}), &json!({"vms": [one]}), &json!({"groups": [all]}));
        found.into_iter().map(|finding| (finding.of, finding.what)).collect()
    }

    #[test]
    fn why_nothing_is_counted_at_a_tap_is_told() {
        let why = "its tap vnet0 is a macvtap";
        let told = told_of_unseen(json!({"unseen": why}), json!({"coupled": true}));
        let what = format!("{why}, so enforce = \"on\" of uplink does nothing to it");
        assert_eq!(told, [("web".to_owned(), what)]);
        let queues = json!({"coupled": false, "uplink": "eth0", "queues": {"there": true}});
        let told = told_of_unseen(json!({"unseen": why}), queues);
        assert_eq!(
            told.iter().filter(|(of, _)| of == "web").count(),
            1,
            "it has no queue: {told:?}"
        );
    }

    #[test]
    fn what_to_do_about_a_macvtap_is_not_to_name_it_again() {
        let why = "its tap macvtap0 is a macvtap, and what comes in there is what the VM receives";
        let unseen = format!(
            "{why}: give the VM a tap at a bridge in place of it (in libvirt <interface type='bridge'>)"
        );
        let vm = json!({"tap": "macvtap0", "connected": true, "flows": 0, "coupled_flows": 0,
            "unseen": unseen});
        let found = of_both(vm, json!({"enforce": "on"}));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            found[0].what,
            format!("{why}, so enforce = \"on\" of uplink does nothing to it")
        );
        assert_eq!(
            found[0].remedy,
            "give the VM a tap at a bridge in place of it (in libvirt <interface type='bridge'>), from its \
             next start on; then name that: cccctl set web --tap INTERFACE"
        );
    }

    #[test]
    fn of_a_group_that_is_left_alone_no_tap_is_told_to_be_unseen() {
        let of_vm = |vm: Value, group: Value| {
            let told = told_of_unseen(vm, group);
            told.into_iter().filter(|(of, _)| of == "web").map(|(_, what)| what).collect::<Vec<_>>()
        };
        let queues = json!({"coupled": false, "uplink": "eth0", "queues": {"there": true}});
        assert!(of_vm(json!({}), queues.clone()).is_empty(), "it has its queue");
        assert!(
            of_vm(
                json!({}),
                json!({"coupled": true, "trial": {"coupled": false, "by": "x", "ends_ms": 9}})
            )
            .is_empty()
        );
        let told = of_vm(json!({"tap": null}), queues.clone());
        assert!(told[0].starts_with("it has no tap, so enforce = \"on\""), "no queue: {told:?}");
        let told = of_vm(json!({"cap_mbit": 9.0}), queues);
        assert!(told[0].ends_with("vnet0, so it is neither judged nor held"), "{told:?}");
        for tap in [json!("vnet0"), json!(null)] {
            let told = told_of_unseen(json!({"tap": tap}), json!({"coupled": false}));
            let what = "the flows of the group are left alone, so enforce = \"on\" does nothing to its \
                        VMs but for their caps";
            assert_eq!(told, [("uplink".to_owned(), what.to_owned())]);
        }
    }
}
