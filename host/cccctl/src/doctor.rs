// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is not as an operator would have it, why, and what to do about it.
//!
//! Everything is told from the daemon's answers, so that it can be told of answers that were
//! kept; but whether the place of a tenant and the socket of a VM are there, and what an upgrade of
//! ccc-bpf has left, which is looked at on this host.
pub mod alone;
#[cfg(test)]
mod answers;
mod cap;
mod daemon;
mod group;
mod limit;
mod place;
mod release;
mod tap;
mod there;

use std::path::Path;

use ccc_settings::NO_GROUP;
use serde::Serialize;
use serde_json::Value;

use crate::{
    table::Table,
    views::{list, word},
};

/// What was refused, or over a limit, so long ago is over: the alert (monitoring/ccc-rules.yml) of
/// what is refused looks back as far.
const REFUSED_MS: u64 = 300_000;
/// Slots that are found being written are told of from one in so many messages on,
const TORN_PER: u64 = 20;
/// and not before there were so many.
const TORN_MIN: u64 = 16;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The VM or group.
    pub of: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Finding {
    fn new(of: &Value, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { of: word(&of["name"]), what: what.into(), remedy: remedy.into() }
    }
}

/// All that is wrong with the daemon at that control socket, VMs and groups, in this order.
pub fn findings(control: &Path, status: &Value, vms: &Value, groups: &Value) -> Vec<Finding> {
    let (vms, groups) = (list(&vms["vms"]), list(&groups["groups"]));
    let places = place::Places::of(vms);
    let of_vms = vms.iter().flat_map(|vm| {
        let group = groups.iter().find(|group| group["name"] == vm["group"]);
        let found = [
            // Who comes for it has found its place.
            daemon::unserved(vm)
                .or_else(|| release::other(vm))
                .or_else(|| place::gone(vm))
                .or_else(|| places.taken(vm))
                .or_else(|| place::hidden(vm))
                .or_else(|| there::socket_gone(vm))
                .or_else(|| there::not_there(vm)),
            place::open(vm),
            not_coupled(vm),
            apart(vm),
            alone(vm),
            refused(vm),
            torn(vm),
            tap::judged(vm, group),
            group.and_then(|group| tap::not_seen(vm, group)),
            cap::not_held(vm, group),
        ];
        found.into_iter().flatten()
    });
    let of_groups = groups
        .iter()
        .flat_map(|group| {
            [
                group::left_alone(group),
                group::tried(group),
                group::floors_not_met(group),
                group::floors_above_uplink(group),
                tap::powerless(status, group),
                tap::without_queues(group),
                tap::vain_uplink(group),
            ]
        })
        .flatten();
    daemon::not_kept(control, status)
        .chain(daemon::no_metrics(status))
        .chain(of_vms)
        .chain(of_groups)
        .collect()
}

/// As text: a line each, or one that says that all is well.
pub fn text(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "all is well\n".to_owned();
    }
    let mut table = Table::new(["VM OR GROUP", "WHAT", "WHAT TO DO"]);
    for finding in findings {
        table.row([finding.of.clone(), finding.what.clone(), finding.remedy.clone()]);
    }
    table.text()
}

/// It is seen by its tap only, as its operator has said.  An older daemon does not say.
fn has_no_device(vm: &Value) -> bool {
    vm["device"] == false
}

/// What a group says of a VM.
fn member<'a>(vm: &Value, group: &'a Value) -> Option<&'a Value> {
    list(&group["vms"]).iter().find(|member| member["name"] == vm["name"])
}

/// It has flows, and not all of them are coupled.
fn not_coupled(vm: &Value) -> Option<Finding> {
    let name = word(&vm["name"]);
    if vm["coupled"] == false {
        let remedy = format!("cccctl set {name} --coupled on, if that is not on purpose");
        return Some(Finding::new(vm, "its flows are left alone", remedy));
    }
    if vm["group"].as_str().is_none_or(|group| group == NO_GROUP) {
        let remedy = format!("cccctl set {name} --group GROUP, if that is not on purpose");
        return Some(Finding::new(vm, "it is in no group", remedy));
    }
    tap::held(vm).or_else(|| left_out(vm))
}

/// Some of its flows are not coupled.
fn left_out(vm: &Value) -> Option<Finding> {
    // While nobody speaks for it none is, which is told.
    if !matches!(vm["state"].as_str()?, "active" | "idle") {
        return None;
    }
    if let Some(found) = limit::over(vm) {
        return Some(found);
    }
    let name = word(&vm["name"]);
    let no_line = vm["counters"]["no_line"].as_u64().unwrap_or(0);
    let (flows, coupled) = (vm["flows"].as_u64()?, vm["coupled_flows"].as_u64()?);
    match flows.checked_sub(coupled)? {
        0 => None,
        left if no_line > 0 => Some(Finding::new(
            vm,
            format!("{left} of {flows} flows are not coupled: its groups are more than its lines"),
            "map its flows to fewer groups (cccctl rules)",
        )),
        left => Some(Finding::new(
            vm,
            format!("{left} of {flows} flows are not coupled"),
            format!(
                "cccctl show {name} says which; rules (cccctl rules), groups that are left alone, \
                 and sockets with another congestion control explain it"
            ),
        )),
    }
}

/// It does not seem to be behind the bottleneck of its group.
fn apart(vm: &Value) -> Option<Finding> {
    let groups: Vec<String> = list(&vm["apart"]).iter().map(word).collect();
    let first = groups.first()?;
    Some(Finding::new(
        vm,
        format!("it does not seem to be behind the bottleneck of {}", groups.join(" and ")),
        format!("see the evidence (cccctl group {first}); give it the group of its own bottleneck"),
    ))
}

/// It tells of losses that nobody else has.
fn alone(vm: &Value) -> Option<Finding> {
    let groups: Vec<String> = list(&vm["alone"]).iter().map(word).collect();
    let first = groups.first()?;
    Some(Finding::new(
        vm,
        format!("it loses where no other VM of {} does, or says so", groups.join(" and ")),
        format!(
            "its losses reduce only its own part meanwhile; see its conduct (cccctl --json group \
             {first}), and whether it has a queue or a lossy link of its own"
        ),
    ))
}

/// What its guest or front end sends is wrong.
fn refused(vm: &Value) -> Option<Finding> {
    let counters = &vm["counters"];
    let of = |key| counters[key].as_u64().unwrap_or(0);
    let no_fault = ["torn", "stale", "no_line", "over_limit"].map(of);
    let refused = no_fault.into_iter().fold(of("refused"), u64::saturating_sub);
    // An older daemon does not say.
    let since = counters["refused_ms"].as_u64();
    (refused > 0 && since.is_none_or(|ms| ms < REFUSED_MS)).then(|| {
        let name = word(&vm["name"]);
        let last = since.map(|ms| format!(", the last time {} s ago", ms / 1000));
        let last = last.unwrap_or_default();
        Finding::new(
            vm,
            format!("what its guest or front end sends was refused {refused} times{last}"),
            format!("the daemon's log says what (journalctl -u ccc-vhost | grep 'VM {name}:')"),
        )
    })
}

/// Its slots are being written whenever they are looked at.  Now and then they are where a
/// processor of the guest stands still meanwhile; what it wrote comes with the next message.
fn torn(vm: &Value) -> Option<Finding> {
    let of = |key| vm["counters"][key].as_u64().unwrap_or(0);
    let (torn, messages) = (of("torn"), of("messages"));
    (torn > TORN_MIN && torn > messages / TORN_PER).then(|| {
        Finding::new(
            vm,
            format!("{torn} of {messages} messages came while its driver wrote what they tell of"),
            "its driver is stuck, or its processors stand still: see whether the host has enough",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        answers::{findings, of, words},
        there::SILENT_MS,
        *,
    };

    #[test]
    fn nothing_is_found_where_all_is_well() {
        assert_eq!(of(json!({})), []);
        assert_eq!(of(json!({"state": "idle", "flows": 0, "coupled_flows": 0})), []);
        let silent = |heard| json!({"state": "silent", "heard_ms": heard, "coupled_flows": 0});
        assert_eq!(of(silent(SILENT_MS - 1)), []);
        assert_eq!(of(silent(SILENT_MS)).len(), 1, "and not of its flows");
        assert_eq!(text(&[]), "all is well\n");
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        for (changes, told) in [
            (json!({"state": "absent"}), "/dev/null -> start the domain"),
            (
                json!({"state": "absent", "tenant": "of the host"}),
                "ccc-bpf is not connected to /dev/null -> start it (systemctl start ccc-bpf); if it runs, or has ended for good",
            ),
            (
                json!({"state": "absent", "tenant": "vsock:7"}),
                "no relay is connected to /dev/null -> start the relay here (systemctl start ccc-relay)",
            ),
            (json!({"state": "no driver"}), "modprobe ccc"),
            (json!({"state": "silent", "heard_ms": 12_345}), "nothing for 12 s"),
            (
                json!({"state": "silent", "heard_ms": 12_345, "tenant": "vsock:7"}),
                "in the guest: systemctl restart ccc-agent",
            ),
            (json!({"coupled": false}), "cccctl set web --coupled on"),
            (json!({"group": null}), "no group -> cccctl set web --group"),
            (json!({"cap_mbit": 2.0, "group": "other"}), "cap of 2 Mbit/s, as its"),
            (json!({"coupled_flows": 1}), "3 of 4 flows are not coupled -> cccctl show web"),
            (
                json!({"coupled_flows": 1, "counters": {"limit": "max_flows", "limit_ms": 0}}),
                "flows over max_flows are not coupled, seen 0 s ago -> raise max_flows in",
            ),
            (
                json!({"coupled_flows": 1, "counters": {"refused": 3, "no_line": 3}}),
                "more than its lines -> map",
            ),
            (json!({"apart": ["uplink", "wan"]}), "of uplink and wan -> see the evidence"),
            (json!({"alone": ["uplink"]}), "no other VM of uplink does, or says so -> its losses"),
            (json!({"counters": {"refused": 7}}), "refused 7 times -> the daemon's log"),
            (
                json!({"counters": {"refused": 9, "torn": 1, "stale": 1}}),
                "refused 7 times -> the daemon's log",
            ),
            (
                json!({"counters": {"refused": 40, "torn": 40, "messages": 400}}),
                "40 of 400 messages came while its driver wrote what they tell of -> its driver is",
            ),
            (json!({"judged": "unreported"}), "its reports do not: unreported -> cccctl group"),
            (
                json!({"judged": "above its cap"}),
                "shows that it sends above its cap -> cccctl group",
            ),
        ] {
            let words = words(changes.clone());
            assert!(words.contains(told), "{changes}: {words}");
        }
    }

    #[test]
    fn what_was_refused_long_ago_is_over() {
        let of_ms = |ms: Value| of(json!({"counters": {"refused": 7, "refused_ms": ms}}));
        let told = of_ms(json!(9_500));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].what.ends_with("refused 7 times, the last time 9 s ago"), "{told:?}");
        assert_eq!(of_ms(json!(REFUSED_MS)), []);
    }

    #[test]
    fn whose_program_is_of_another_release_is_told_of_that_alone() {
        let stranger = json!({"who": "agent", "revision": 2, "expected": 1});
        let words = words(json!({"state": "absent", "flows": 0, "coupled_flows": 0,
            "tenant": "vsock:/nowhere/vm", "stranger": stranger}));
        assert!(words.starts_with("its agent says it is newer than the daemon"), "{words}");
    }

    #[test]
    fn answers_of_another_form_say_nothing() {
        assert_eq!(findings(&json!([]), &json!({}), &json!([1])), []);
        let nothing = findings(&json!({}), &json!({"vms": [{}]}), &json!({}));
        assert_eq!(nothing.len(), 1, "it is in no group");
    }

    /// Answers in which something is told of nearly everything.
    fn full() -> [Value; 3] {
        let status =
            json!({"may_hold": false, "no_metrics": "in use", "not_kept": "VM web: wrong"});
        let counters = json!({"refused": 90, "torn": 40, "stale": 1, "no_line": 1, "over_limit": 1,
            "messages": 400, "refused_ms": 9, "limit": "max_flows", "limit_ms": 9});
        let stranger = json!({"who": "agent", "revision": 1, "expected": 2});
        let vm = json!({"name": "web", "socket": "/nowhere/web", "group": "uplink", "coupled": true,
            "state": "silent", "heard_ms": 20_000, "flows": 4, "coupled_flows": 1, "connected": true,
            "apart": ["uplink"], "alone": ["uplink"], "judged": "unreported", "held": 9.5, "added": true,
            "tap": "vnet0", "unseen": "its tap is gone", "left_held": false, "device": true,
            "cap_mbit": 2.0, "tenant": "vsock:/nowhere/vm", "unserved": null, "stranger": stranger,
            "counters": counters});
        let member = json!({"name": "web", "flows": 4, "srtt_us": 200, "tap": {"sent": 1}});
        let group = json!({"name": "uplink", "coupled": true, "policy": "ctrl-tcp", "enforce": "on",
            "trial": {"coupled": false, "by": "x", "ends_ms": 9}, "uplink": "eth0",
            "uplink_rate_mbit": 9.5, "shortfall": {"floors": 2, "delivered": 1}, "vms": [member],
            "queues": {"there": false, "trouble": "no HTB", "floors": 3, "floors_at_most": 2}});
        [status, json!({"vms": [vm]}), json!({"groups": [group]})]
    }

    /// A value, and the same with each of its parts in turn left out or of another kind.
    fn of_other_forms(value: &Value) -> Vec<Value> {
        let kinds = [json!(null), json!(true), json!(u64::MAX), json!(-1.5), json!("é"), json!([])];
        let mut forms: Vec<Value> = kinds.into_iter().chain([json!({})]).collect();
        if let Some(fields) = value.as_object() {
            for (key, part) in fields {
                let mut without = fields.clone();
                without.remove(key);
                forms.push(Value::Object(without));
                forms.extend(of_other_forms(part).into_iter().map(|part| {
                    let mut of = value.clone();
                    of[key] = part;
                    of
                }));
            }
        }
        if let Some(first) = value.get(0) {
            forms.extend(of_other_forms(first).into_iter().map(|first| json!([first])));
        }
        forms
    }

    #[test]
    fn answers_of_any_form_are_looked_at() {
        let full = full();
        let [status, vms, groups] = &full;
        let told = findings(status, vms, groups).len();
        assert!(told >= 12, "{told}");
        let forms: [Vec<Value>; 3] = std::array::from_fn(|of| of_other_forms(&full[of]));
        forms[0].iter().for_each(|status| drop(findings(status, vms, groups)));
        forms[1].iter().for_each(|vms| drop(findings(status, vms, groups)));
        forms[2].iter().for_each(|groups| drop(findings(status, vms, groups)));
    }
}
