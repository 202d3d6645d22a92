// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is not as an operator would have it, why, and what to do about it.
//!
//! Everything is told from the daemon's answers, so that it can be told of answers that were
//! kept; but whether the place of a tenant and the socket of a VM are there, and what an upgrade of
//! ccc-bpf has left, which is looked at on this host.
pub mod alone;
mod cap;
mod daemon;
mod group;
mod limit;
mod place;
mod release;
mod tap;

use std::path::Path;

use ccc_settings::NO_GROUP;
use serde::Serialize;
use serde_json::Value;

use crate::{
    table::Table,
    views::{list, word},
};

/// A VM with flows that has said nothing for so long has stopped.
const SILENT_MS: u64 = 10_000;
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
                .or_else(|| socket_gone(vm))
                .or_else(|| not_there(vm)),
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

/// Nobody can connect: somebody has removed the socket.
fn socket_gone(vm: &Value) -> Option<Finding> {
    let socket = vm["socket"].as_str().filter(|_| vm["state"] == "absent" && !has_no_device(vm))?;
    // One that may not be looked at is there for all we know.
    matches!(Path::new(socket).try_exists(), Ok(false)).then(|| {
        Finding::new(
            vm,
            format!("nobody can connect to it: its socket {socket} was removed"),
            "systemctl restart ccc-vhost, which makes it again, and ends no flow; if its directory is \
             gone, too: systemd-tmpfiles --create before that",
        )
    })
}

/// Nobody speaks for the VM, or nobody does any more.
fn not_there(vm: &Value) -> Option<Finding> {
    let name = word(&vm["name"]);
    match vm["state"].as_str()? {
        // Nobody is to come.
        "absent" if has_no_device(vm) => None,
        "absent" if vm["tenant"].is_string() => Some(tenant_not_there(vm)),
        "absent" => Some(Finding::new(
            vm,
            format!("no front end is connected to {}", word(&vm["socket"])),
            format!(
                "start the domain; if it runs, its QEMU has no device: cccctl attach {name} (from \
                 its next start on, or --live); if it is to have none: cccctl set {name} --device off"
            ),
        )),
        "no driver" => Some(Finding::new(
            vm,
            "its guest has no driver of the device",
            "load the module in the guest (modprobe ccc); without it its flows are not coupled",
        )),
        "silent" if vm["heard_ms"].as_u64()? >= SILENT_MS => Some(Finding::new(
            vm,
            format!("it has flows and has said nothing for {} s", vm["heard_ms"].as_u64()? / 1000),
            whoever_is_silent(vm),
        )),
        _ => None,
    }
}

/// Where to look for who should speak for it.
fn whoever_is_silent(vm: &Value) -> &'static str {
    match vm["tenant"].as_str().and_then(|place| place.split_once(':')) {
        None => {
            "see whether the domain is paused, has panicked or has no network; if it runs, its peers may \
             take nothing that it sends"
        }
        Some(("vsock", _)) => {
            "see whether its guest is paused; journalctl -u ccc-relay says when its agent went; in \
             the guest: systemctl restart ccc-agent"
        }
        Some(_) => "its flows go on alone; the loader may hang: systemctl restart ccc-bpf",
    }
}

/// Nobody speaks for a tenant without a device.
fn tenant_not_there(vm: &Value) -> Finding {
    let socket = word(&vm["socket"]);
    if vm["tenant"].as_str().is_some_and(|place| place.starts_with("vsock:")) {
        return Finding::new(
            vm,
            format!("its guest has an agent, and for that no relay is connected to {socket}"),
            "start the relay here (systemctl start ccc-relay) and the agent in the guest (there: \
             systemctl start ccc-agent); if they run, or have ended for good (status 78), journalctl \
             -u of each says why",
        );
    }
    Finding::new(
        vm,
        format!("it is a part of this host, and ccc-bpf is not connected to {socket}"),
        "start it (systemctl start ccc-bpf); if it runs, or has ended for good (status 78), \
         journalctl -u ccc-bpf says why: mend that, then start it",
    )
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

    use super::*;

    fn findings(status: &Value, vms: &Value, groups: &Value) -> Vec<Finding> {
        super::findings(Path::new("/nowhere"), status, vms, groups)
    }

    /// Answers in which all is well, of a VM with these changes.
    fn of(changes: Value) -> Vec<Finding> {
        of_both(changes, json!({}))
    }

    /// The same with changes of its group.
    fn of_both(changes: Value, of_group: Value) -> Vec<Finding> {
        let mut vm = json!({
            "name": "web", "socket": "/dev/null", "group": "uplink", "coupled": true,
            "state": "active", "heard_ms": 3, "flows": 4, "coupled_flows": 4, "apart": [],
            "alone": [], "judged": null,
            "held": null, "counters": {"refused": 0, "no_line": 0, "over_limit": 0}});
        for (key, value) in changes.as_object().expect("an object") {
            vm[key] = value.clone();
        }
        let mut group =
            json!({"name": "uplink", "coupled": true, "policy": "ctrl-tcp", "trial": null});
        for (key, value) in of_group.as_object().expect("an object") {
            group[key] = value.clone();
        }
        let groups = json!({"groups": [group]});
        findings(&json!({}), &json!({"vms": [vm]}), &groups)
    }

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

    fn words(changes: Value) -> String {
        let found = of(changes);
        assert_eq!(found.len(), 1, "{found:?}");
        format!("{} -> {}", found[0].what, found[0].remedy)
    }

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
    fn who_is_silent_is_told_by_the_kind_of_tenant() {
        for (tenant, told) in [
            (Value::Null, "domain is paused"),
            (json!("netns:a"), "restart ccc-bpf"),
            (json!("vsock:7"), "says when its agent went"),
        ] {
            let words = whoever_is_silent(&json!({"tenant": tenant}));
            assert!(words.contains(told), "{tenant}: {words}");
            assert!(!words.contains("restart ccc-relay"), "for a guest's silence: {words}");
        }
    }

    #[test]
    fn a_tenant_that_waits_for_its_place_is_told_once() {
        let tenant = |name: &str, state: &str, place: &str| {
            json!({"name": name, "tenant": place, "state": state, "group": "uplink",
                "connected": state != "absent", "flows": 0, "coupled_flows": 0})
        };
        let found = |vms: &[Value]| findings(&json!({}), &json!({"vms": vms}), &json!({}));
        let first = tenant("first", "idle", "vsock:7");
        let told = found(&[first.clone(), tenant("second", "absent", "vsock:7")]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].of, "second");
        assert!(told[0].what.starts_with("first has its place, vsock:7: it waits"), "{told:?}");
        assert!(told[0].remedy.starts_with("cccctl tenant remove second, or cccctl"), "{told:?}");
        let told = found(&[first, tenant("second", "absent", "vsock:8")]);
        assert!(told[0].remedy.starts_with("start the relay here"), "{told:?}");
    }

    #[test]
    fn a_vm_that_is_held_is_told_to_be_held() {
        let told = of(json!({"judged": "unreported", "held": 625_000, "coupled_flows": 0}));
        let words: Vec<&str> = told.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(words[0], "it is held at its tap, so its flows are not coupled");
        assert!(words[1].ends_with("unreported, and is held to 5.0 Mbit/s"), "{words:?}");
        assert_eq!(words.len(), 2, "{words:?}");
    }

    #[test]
    fn a_hold_that_an_earlier_daemon_left_is_told() {
        let told = words(json!({"left_held": true, "tap": "vnet0", "coupled_flows": 0}));
        assert!(told.starts_with("an earlier daemon has left its tap vnet0 held"), "{told}");
    }

    #[test]
    fn a_socket_that_was_removed_is_told() {
        let told = words(json!({"state": "absent", "socket": "/dev/nothing.sock"}));
        assert!(told.contains("/dev/nothing.sock was removed -> systemctl restart"), "{told}");
        assert_eq!(of(json!({"state": "idle", "socket": "/dev/nothing.sock"})), [], "it has one");
    }

    #[test]
    fn a_vm_that_is_to_have_no_device_is_as_it_is_to_be() {
        let legacy = |more: Value| {
            let mut vm =
                json!({"device": false, "state": "absent", "flows": 0, "coupled_flows": 0});
            vm.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
            of(vm)
        };
        assert_eq!(legacy(json!({})), []);
        assert_eq!(legacy(json!({"judged": "unreported", "held": 625_000})), []);
        assert_eq!(legacy(json!({"judged": "unreported"})).len(), 1, "nobody holds it");
        assert!(words(json!({"state": "absent"})).ends_with("cccctl set web --device off"));
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
    fn a_trial_that_runs_is_told() {
        let trial = json!({"coupled": false, "ends_ms": 29_500, "by": "uid 0 pid 7"});
        let group = json!({"name": "uplink", "coupled": true, "trial": trial});
        let found = findings(&json!({}), &json!({"vms": []}), &json!({"groups": [group]}));
        assert_eq!(found.len(), 1, "{found:?}");
        let told = "a trial runs, by uid 0 pid 7: its flows are left alone now, and coupled again 29 s \
                    after its client has gone";
        assert_eq!(found[0].what, told);
        assert!(found[0].remedy.contains("cccctl group uplink --coupled on"), "{found:?}");
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
        for well in [json!({"there": true, "trouble": null}), json!(null)] {
            assert_eq!(of(well), []);
        }
    }

    #[test]
    fn floors_that_leave_the_host_too_little_of_an_uplink_are_told() {
        let of = |floors: u64| {
            let queues = json!({"there": true, "trouble": null, "vms": 2, "wanted": 2,
                "floors": floors, "floors_at_most": 112_812_500});
            let group = json!({"name": "wan", "coupled": true, "uplink": "eth0",
                "uplink_rate_mbit": 950.0, "queues": queues});
            findings(&json!({}), &json!({"vms": []}), &json!({"groups": [group]}))
        };
        assert_eq!(of(112_812_500), [], "all but a twentieth");
        let found = of(118_750_000);
        assert_eq!(
            found[0].what,
            "the floors of its VMs are 950.0 Mbit/s together, and its uplink eth0 takes 950.0, of which \
             47.5 are of the host and all else: each VM has 95 % of its floor there"
        );
        let remedy = "lower floors (cccctl set VM --floor RATE) to 902.5 Mbit/s together";
        assert!(found.len() == 1 && found[0].remedy.starts_with(remedy), "{found:?}");
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
    fn floors_that_are_more_than_there_is_are_told() {
        let of = |shortfall| of_both(json!({}), json!({"shortfall": shortfall}));
        let found = of(json!({"floors": 1_500_000, "delivered": 625_000}));
        assert_eq!((found.len(), found[0].of.as_str()), (1, "uplink"));
        let what = "its floors cannot be met: those of VMs that want them are 12.0 Mbit/s together, \
                    and all VMs have 5.0";
        assert_eq!(found[0].what, what);
        assert!(found[0].remedy.starts_with("cccctl group uplink has its VMs"), "{found:?}");
        assert_eq!(of(Value::Null), []);
    }

    #[test]
    fn a_group_that_is_left_alone_is_told() {
        let groups = json!({"groups": [{"name": "uplink", "coupled": false}]});
        let text = text(&findings(&json!({}), &json!({"vms": []}), &groups));
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("uplink ")), "{text}");
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

    #[test]
    fn a_trial_of_which_little_is_said_is_told() {
        let of = |trial: Value| of_both(json!({}), json!({"trial": trial}));
        let told = of(json!({}));
        assert_eq!(told.len(), 1, "{told:?}");
        let what = "a trial runs, by -: its flows are coupled again soon after its client has gone";
        assert_eq!(told[0].what, what);
        assert_eq!(of(json!([])), []);
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
