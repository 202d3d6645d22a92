// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon's answers as text.
use ccc_settings::{GroupSettings, VmSettings, text};
use serde_json::Value;

use crate::table::Table;

/// A table's settings of an answer, with their names.
fn settings<T: ccc_settings::Table>(answer: &Value) -> Vec<(String, String)> {
    let said = |name: &str| answer.get(name).map_or("-".to_owned(), text);
    T::fields().iter().map(|field| (field.name.replace('_', " "), said(&field.name))).collect()
}

/// A table with a column for each setting, between others.
fn settings_table<T: ccc_settings::Table>(
    first: &str,
    rest: &[&str],
    rows: &[Value],
    cells: fn(&Value) -> Vec<String>,
) -> String {
    let names = T::fields().iter().map(|field| field.name.replace('_', " ").to_uppercase());
    let rest = rest.iter().map(|heading| (*heading).to_owned());
    let mut table = Table::new([first.to_owned()].into_iter().chain(names).chain(rest));
    for row in rows {
        let values = settings::<T>(row).into_iter().map(|(_, value)| value);
        table.row([word(&row["name"])].into_iter().chain(values).chain(cells(row)));
    }
    table.text()
}

/// All VMs.
pub fn vms(answer: &Value) -> String {
    let rest = ["STATE", "FLOWS", "COUPLED FLOWS", "CONFIGURED"];
    settings_table::<VmSettings>("VM", &rest, list(&answer["vms"]), |vm| {
        let flows = [&vm["flows"], &vm["coupled_flows"]].map(number);
        [[state(vm)].as_slice(), &flows, &[configured::<VmSettings>(vm)]].concat()
    })
}

/// A VM that is as configured again, or is not there.
pub fn vm_reset(answer: &Value) -> String {
    forgotten("VM", answer).unwrap_or_else(|| vm(answer))
}

/// The same of a group.
pub fn group_reset(answer: &Value) -> String {
    forgotten("group", answer).unwrap_or_else(|| one_group(answer))
}

/// What was kept of something that is not there: the daemon has but a name to tell.
fn forgotten(kind: &str, answer: &Value) -> Option<String> {
    let only_name = answer.as_object().is_some_and(|answer| answer.len() == 1);
    only_name.then(|| format!("forgotten: what was kept of {kind} {}\n", word(&answer["name"])))
}

/// One VM.
pub fn vm(answer: &Value) -> String {
    let counters = &answer["counters"];
    let own = |key: &str, value: String| (key.to_owned(), value);
    let flows =
        format!("{}, {} coupled", number(&answer["flows"]), number(&answer["coupled_flows"]));
    let first = [
        own("name", word(&answer["name"])),
        own("socket", word(&answer["socket"])),
        own("state", state(answer)),
    ];
    let count = |key: &str| counters[key].as_u64().unwrap_or(0);
    let refused = count("refused").saturating_sub(count("torn") + count("stale"));
    let rest = [
        own("configured", configured::<VmSettings>(answer)),
        own("flows", flows),
        own("messages", number(&counters["messages"])),
        own("refused", format!("{refused} (the log says what)")),
        own("torn", number(&counters["torn"])),
        own("stale", number(&counters["stale"])),
        own("no line", number(&counters["no_line"])),
        own("over limit", number(&counters["over_limit"])),
    ];
    let lines = first.into_iter().chain(settings::<VmSettings>(answer)).chain(rest);
    let note = if answer["migrating"] == true {
        "migrating away: what is changed here does not go with it; change its metadata\n"
    } else {
        ""
    };
    lines.map(|(key, value)| format!("{key:<10} {value}\n")).collect::<String>() + note
}

/// What a VM's guest is doing, and for how long it has said nothing.
fn state(vm: &Value) -> String {
    let no_device = vm["device"] == false && vm["state"] == "absent";
    let mut state = if no_device { "no device".to_owned() } else { word(&vm["state"]) };
    if let ("silent", Some(heard)) = (state.as_str(), vm["heard_ms"].as_u64()) {
        state = format!("silent for {} s", heard / 1000);
    }
    if vm["stranger"].is_object() {
        state = format!("{state}, its {} is of another release", word(&vm["stranger"]["who"]));
    }
    if let [_, ..] = list(&vm["apart"]) {
        let groups: Vec<String> = list(&vm["apart"]).iter().map(word).collect();
        state = format!("{state}, apart from {}", groups.join(" and "));
    }
    if let [_, ..] = list(&vm["alone"]) {
        let groups: Vec<String> = list(&vm["alone"]).iter().map(word).collect();
        state = format!("{state}, loses alone in {}", groups.join(" and "));
    }
    if let Some(reason) = vm["judged"].as_str() {
        state = format!("{state}, judged: {reason}");
    }
    if let Some(bytes) = vm["held"].as_f64() {
        state = format!("{state}, held to {:.2} Mbit/s", bytes * 8.0 / 1e6);
    }
    if vm["migrating"] == true { format!("{state}, migrating") } else { state }
}

/// What the configuration says of a VM or group, where a change goes over it.
fn configured<T: ccc_settings::Table>(of: &Value) -> String {
    if of["configured"].is_null() {
        return "-".to_owned();
    }
    let (said, in_force) = (settings::<T>(&of["configured"]), settings::<T>(of));
    let other = said.into_iter().zip(in_force).filter(|(said, in_force)| said != in_force);
    other.map(|((key, value), _)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

/// Columns of a flow.
const FLOW: [&str; 10] = [
    "SLOT",
    "SOURCE",
    "DESTINATION",
    "CC",
    "STATE",
    "PRIORITY",
    "GROUP",
    "GRANTED",
    "CWND",
    "SRTT MS",
];

fn flow(flow: &Value) -> [String; 10] {
    [
        number(&flow["slot"]),
        endpoint(&flow["source"], &flow["source_port"]),
        endpoint(&flow["destination"], &flow["destination_port"]),
        word(&flow["algorithm"]),
        if flow["active"] == true { word(&flow["state"]) } else { "idle".to_owned() },
        number(&flow["priority"]),
        group(&flow["group"]),
        number(&flow["granted"]),
        number(&flow["cwnd"]),
        milliseconds(&flow["srtt_us"]),
    ]
}

/// Flows of a VM.
pub fn flows(answer: &[Value]) -> String {
    let mut table = Table::new(FLOW);
    answer.iter().for_each(|one| table.row(flow(one)));
    table.text()
}

/// Flows of all VMs, those that are granted most.
pub fn largest(answer: &Value) -> String {
    let rows = list(&answer["flows"]);
    let mut table = Table::new(["VM"].into_iter().chain(FLOW));
    for row in rows {
        table.row([word(&row["vm"])].into_iter().chain(flow(&row["flow"])));
    }
    let all = number(&answer["active_flows"]);
    format!("{}{} of {all} flows that are coupled and send\n", table.text(), rows.len())
}

/// What is in the daemon's log.
pub fn log(answer: &Value) -> String {
    format!("level {}\n", word(&answer["level"]))
}

/// All groups.
pub fn groups(answer: &Value) -> String {
    let rest = ["WINDOW", "SSTHRESH", "EPOCH", "FLOWS", "QUEUES", "CONFIGURED"];
    settings_table::<GroupSettings>("GROUP", &rest, list(&answer["groups"]), |group| {
        let numbers =
            ["window", "ssthresh", "epoch", "active_flows"].map(|key| number(&group[key]));
        [numbers.as_slice(), &[queues(group), configured::<GroupSettings>(group)]].concat()
    })
}

/// How many of a group's VMs have a queue of their own at its uplink.
fn queues(group: &Value) -> String {
    let [has, wanted] = ["vms", "wanted"].map(|key| group["queues"][key].as_u64());
    has.zip(wanted).map_or("-".to_owned(), |(has, wanted)| format!("{has} of {wanted}"))
}

/// One group with its VMs.
pub fn one_group(answer: &Value) -> String {
    let all = serde_json::json!({"groups": [answer]});
    format!("{}\n{}\n{}", groups(&all), path(answer), parts(answer))
}

/// What a group sees of its path, and what it does about others there.
pub fn path(answer: &Value) -> String {
    let mut table = Table::new(["RATE MBIT/S", "QUEUE MS", "PATH", "MODE"]);
    let path = &answer["path"];
    let others = match path["shared"].as_bool() {
        Some(true) => "shared",
        Some(false) => "alone",
        None => "-",
    };
    let mode = word(&answer["mode"]);
    table.row([megabits(&path["rate"]), milliseconds(&path["queue_us"]), others.to_owned(), mode]);
    table.text()
}

fn megabits(bytes_a_second: &Value) -> String {
    let bytes = bytes_a_second.as_f64();
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.2}", bytes * 8.0 / 1e6))
}

/// The daemon as a whole.
pub fn status(answer: &Value) -> String {
    let [version, groups] = [word(&answer["version"]), number(&answer["groups"])];
    let vms = list(&answer["vms"]);
    let connected = vms.iter().filter(|vm| vm["connected"] == true).count();
    let flows: u64 = vms.iter().filter_map(|vm| vm["flows"].as_u64()).sum();
    let coupled: u64 = vms.iter().filter_map(|vm| vm["coupled_flows"].as_u64()).sum();
    let strangers = vms.iter().filter(|vm| vm["stranger"].is_object()).count();
    let refused = match strangers {
        0 => String::new(),
        count => format!(", {count} refused for another release (cccctl doctor)"),
    };
    format!(
        "ccc-vhost {version}: {groups} groups, {} VMs, {connected} of them connected{refused}, \
         {flows} flows, {coupled} of them coupled\n{}",
        vms.len(),
        polling(&answer["polling"])
    )
}

/// What it takes to look for messages, where that is done.
fn polling(answer: &Value) -> String {
    let Some((max_us, load)) = answer["max_us"].as_u64().zip(answer["load"].as_f64()) else {
        return String::new();
    };
    format!(
        "polling: up to {max_us} us for a VM's next message, which takes {:.0} % of a processor now\n",
        100.0 * load
    )
}

/// The parts of the VMs in a group.
pub fn parts(answer: &Value) -> String {
    let mut table =
        Table::new(["VM", "WEIGHT", "FLOWS", "PART", "HAS %", "DUE %", "APART", "LOSES ALONE"]);
    for part in list(&answer["vms"]) {
        let cells = [&part["weight"], &part["flows"], &part["part"]].map(number);
        let [weight, flows, bytes] = cells;
        let [has, due] =
            [&part["conduct"]["delivered_permille"], &part["due_permille"]].map(percent);
        let [apart, alone] = [apart(&part["evidence"]), alone(&part["conduct"])];
        table.row([word(&part["name"]), weight, flows, bytes, has, due, apart, alone]);
    }
    table.text()
}

fn percent(permille: &Value) -> String {
    permille.as_f64().map_or_else(|| "-".to_owned(), |of| format!("{:.1}", of / 10.0))
}

/// Whether a VM seems to be behind another bottleneck, and what says so.
fn apart(evidence: &Value) -> String {
    let [compared, unseen, alone] = ["compared", "unseen", "alone"].map(|key| &evidence[key]);
    if compared.as_u64().unwrap_or(0) == 0 {
        return "-".to_owned();
    }
    let against = unseen.as_u64().unwrap_or(0).saturating_add(alone.as_u64().unwrap_or(0));
    let [own, others] = ["swing_us", "others_swing_us"].map(|key| milliseconds(&evidence[key]));
    let answer = if evidence["apart"] == true { "yes" } else { "no" };
    format!("{answer}: {against} of {} (RTT moved {own} ms, others' {others})", number(compared))
}

/// Whether a VM loses where nobody else does, and what says so.
fn alone(conduct: &Value) -> String {
    let [shared, lone] = ["shared_events", "lone_events"].map(|key| conduct[key].as_u64());
    let (Some(shared), Some(lone)) = (shared, lone) else { return "-".to_owned() };
    if lone == 0 {
        return "-".to_owned();
    }
    let answer = if conduct["alone"] == true { "yes" } else { "no" };
    format!("{answer}: {lone} of {} events", shared.saturating_add(lone))
}

/// All rules.
pub fn rules(answer: &Value) -> String {
    let mut table = Table::new(["VM", "DESTINATION", "GROUP"]);
    let any = |value: &Value, all: &str| value.as_str().unwrap_or(all).to_owned();
    for rule in list(&answer["rules"]) {
        let to = any(&rule["destination"], "everywhere");
        table.row([any(&rule["vm"], "every VM"), to, group(&rule["group"])]);
    }
    table.text()
}

/// The elements of an answer's list; none if it is no list.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A word of an answer, or `-`.
pub fn word(value: &Value) -> String {
    match value.as_str() {
        Some("") | None => "-".to_owned(),
        Some(word) => word.to_owned(),
    }
}

fn group(value: &Value) -> String {
    value.as_str().unwrap_or("none").to_owned()
}

fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if number.fract() == 0.0 => format!("{number:.0}"),
        Some(number) => number.to_string(),
        None => "-".to_owned(),
    }
}

fn endpoint(address: &Value, port: &Value) -> String {
    let (address, port) = (word(address), number(port));
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

fn milliseconds(value: &Value) -> String {
    value.as_f64().filter(|us| *us > 0.0).map_or("-".to_owned(), |us| format!("{:.1}", us / 1000.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flows_are_told_in_lines() {
        let flow = json!({
            "slot": 3, "source": "10.0.0.1", "source_port": 4000, "destination": "2001:db8::1",
            "destination_port": 443, "algorithm": "cubic", "state": "recovery", "active": true,
            "priority": 1.5, "group": "g", "granted": 14480, "cwnd": 14480, "srtt_us": 20500});
        let idle = json!({"slot": 12, "active": false, "source": "::1", "source_port": 1});
        let text = flows(&[flow, idle]);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = "3 10.0.0.1:4000 [2001:db8::1]:443 cubic recovery 1.5 g 14480 14480 20.5";
        assert_eq!(lines[1].join(" "), expected);
        assert_eq!(lines[2].join(" "), "12 [::1]:1 -:- - idle - none - - -");
    }

    #[test]
    fn o12_a_vm_is_told_with_its_state() {
        let vm = json!({
            "name": "a", "weight": 3, "group": "g", "coupled": true, "state": "silent",
            "heard_ms": 12_345, "migrating": true, "flows": 4, "coupled_flows": 4,
            "configured": {"weight": 1, "group": null, "coupled": true}});
        let text = vms(&json!({"vms": [vm]}));
        assert!(text.contains("silent for 12 s, migrating"), "{text}");
        assert!(text.contains("  weight 1, group none\n"), "{text}");
        let text = super::vm(&vm);
        assert!(text.contains("does not go with it"), "{text}");
        assert!(!super::vm(&json!({"state": "idle"})).contains("go with it"));
    }

    #[test]
    fn a_vm_whose_program_is_of_another_release_is_told() {
        let stranger = json!({"who": "agent", "revision": 2, "expected": 1});
        let refused = json!({"name": "a", "state": "absent", "stranger": stranger});
        let text = super::vm(&refused);
        assert!(text.contains("absent, its agent is of another release\n"), "{text}");
        let text = status(&json!({"vms": [refused, {"name": "b", "connected": true}]}));
        assert!(text.contains("1 of them connected, 1 refused for another release"), "{text}");
        assert!(!status(&json!({"vms": []})).contains("refused"));
    }

    #[test]
    fn that_the_daemon_polls_is_told_with_what_it_takes() {
        let told = |polling: Value| status(&json!({"vms": [], "polling": polling}));
        let text = told(json!({"max_us": 50, "load": 0.374}));
        let line =
            "polling: up to 50 us for a VM's next message, which takes 37 % of a processor now";
        assert_eq!(text.lines().nth(1), Some(line));
        assert_eq!(told(json!(null)).lines().count(), 1);
    }

    #[test]
    fn an_answer_of_another_form_is_shown_as_far_as_it_goes() {
        let nothing = json!({});
        assert!(vms(&nothing).starts_with("VM "));
        assert!(vm(&nothing).contains("weight     -"));
        assert!(one_group(&nothing).contains("PART"));
        assert!(rules(&json!({"rules": [{}]})).contains("every VM  everywhere   none"));
    }

    #[test]
    fn a_group_is_told_with_its_path_and_what_it_does_about_others() {
        let path = json!({"rate": 1_181_250, "queue_us": 5_400, "shared": true});
        let group = json!({"name": "g", "path": path, "mode": "competing", "vms": []});
        let text = one_group(&group);
        let line = text.lines().find(|line| line.contains("competing")).unwrap_or_default();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells, ["9.45", "5.4", "shared", "competing"]);
    }

    #[test]
    fn a_group_is_told_with_how_many_of_its_vms_have_queues() {
        let told = |queues: Value| {
            let text = groups(&json!({"groups": [{"name": "g", "queues": queues}]}));
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let some = told(json!({"there": true, "trouble": null, "vms": 1, "wanted": 2}));
        assert!(
            some.contains("FLOWS QUEUES CONFIGURED") && some.ends_with(" - 1 of 2 -"),
            "{some}"
        );
        for none in [json!(null), json!({"there": true, "trouble": null})] {
            assert!(told(none).ends_with(" - - -"), "none are to be, or an older daemon says less");
        }
    }

    #[test]
    fn a_vm_that_is_judged_and_held_is_told() {
        let vm =
            json!({"name": "a", "state": "no driver", "judged": "unreported", "held": 312_500});
        let told = "no driver, judged: unreported, held to 2.50 Mbit/s\n";
        assert!(super::vm(&vm).contains(told), "{}", super::vm(&vm));
    }

    #[test]
    fn a_vm_that_is_apart_is_told_with_what_says_so() {
        let vm = json!({"name": "a", "state": "active", "apart": ["uplink", "wan"]});
        assert!(super::vm(&vm).contains("active, apart from uplink and wan\n"));
        let evidence = json!({
            "apart": true, "compared": 14, "unseen": 10, "alone": 2, "swing_us": 640,
            "others_swing_us": 67_000});
        let apart = json!({"name": "a", "evidence": evidence});
        let new = json!({"name": "b", "evidence": {"compared": 0}});
        let text = parts(&json!({"vms": [apart, new]}));
        assert!(text.contains("yes: 12 of 14 (RTT moved 0.6 ms, others' 67.0)"), "{text}");
        assert!(text.lines().nth(2).is_some_and(|line| line.ends_with('-')), "{text}");
    }

    #[test]
    fn a_vm_that_loses_alone_is_told_with_what_says_so() {
        let vm = json!({"name": "a", "state": "active", "alone": ["uplink"]});
        assert!(super::vm(&vm).contains("active, loses alone in uplink\n"));
        let conduct = json!({"alone": true, "shared_events": 2, "lone_events": 12});
        let honest = json!({"alone": false, "shared_events": 2, "lone_events": 0});
        let vms = json!([{"name": "a", "conduct": conduct}, {"name": "b", "conduct": honest}]);
        let text = parts(&json!({"vms": vms}));
        assert!(text.contains("yes: 12 of 14 events"), "{text}");
        assert!(text.lines().nth(2).is_some_and(|line| line.ends_with('-')), "{text}");
    }
}
