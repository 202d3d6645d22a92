// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon's answers as text.
use serde_json::Value;

use crate::table::Table;

/// All VMs.
pub fn vms(answer: &Value) -> String {
    let mut table = Table::new(&[
        "VM",
        "GROUP",
        "WEIGHT",
        "COUPLED",
        "STATE",
        "FLOWS",
        "COUPLED FLOWS",
        "CONFIGURED",
    ]);
    for vm in list(&answer["vms"]) {
        table.row([
            word(&vm["name"]),
            group(&vm["group"]),
            number(&vm["weight"]),
            switch(&vm["coupled"]),
            state(vm),
            number(&vm["flows"]),
            number(&vm["coupled_flows"]),
            configured(&vm["configured"]),
        ]);
    }
    table.text()
}

/// One VM.
pub fn vm(answer: &Value) -> String {
    let counters = &answer["counters"];
    let lines = [
        ("name", word(&answer["name"])),
        ("socket", word(&answer["socket"])),
        ("state", state(answer)),
        ("group", group(&answer["group"])),
        ("weight", number(&answer["weight"])),
        ("coupled", switch(&answer["coupled"])),
        ("configured", configured(&answer["configured"])),
        (
            "flows",
            format!("{}, {} coupled", number(&answer["flows"]), number(&answer["coupled_flows"])),
        ),
        ("messages", number(&counters["messages"])),
        ("refused", format!("{} (the log says what)", number(&counters["refused"]))),
        ("no line", number(&counters["no_line"])),
        ("over limit", number(&counters["over_limit"])),
    ];
    let note = if answer["migrating"] == true {
        "migrating away: what is changed here does not go with it; change its metadata\n"
    } else {
        ""
    };
    lines.map(|(key, value)| format!("{key:<10} {value}\n")).concat() + note
}

/// What a VM's guest is doing, and for how long it has said nothing.
fn state(vm: &Value) -> String {
    let mut state = word(&vm["state"]);
    if let ("silent", Some(heard)) = (state.as_str(), vm["heard_ms"].as_u64()) {
        state = format!("silent for {} s", heard / 1000);
    }
    if vm["migrating"] == true { format!("{state}, migrating") } else { state }
}

/// What the configuration says, where a change goes over it.
fn configured(vm: &Value) -> String {
    if vm.is_null() {
        return "-".to_owned();
    }
    let [weight, group, coupled] =
        [number(&vm["weight"]), self::group(&vm["group"]), switch(&vm["coupled"])];
    format!("weight {weight}, group {group}, coupled {coupled}")
}

/// Flows of a VM.
pub fn flows(answer: &[Value]) -> String {
    let mut table = Table::new(&[
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
    ]);
    for flow in answer {
        table.row([
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
        ]);
    }
    table.text()
}

/// All groups.
pub fn groups(answer: &Value) -> String {
    let mut table = Table::new(&[
        "GROUP",
        "POLICY",
        "SHARE",
        "AGGRESSION",
        "COUPLED",
        "WINDOW",
        "SSTHRESH",
        "EPOCH",
        "FLOWS",
    ]);
    for group in list(&answer["groups"]) {
        table.row([
            word(&group["name"]),
            word(&group["policy"]),
            word(&group["share"]),
            number(&group["equivalent_tcps"]),
            switch(&group["coupled"]),
            number(&group["window"]),
            number(&group["ssthresh"]),
            number(&group["epoch"]),
            number(&group["active_flows"]),
        ]);
    }
    table.text()
}

/// One group with its VMs.
pub fn one_group(answer: &Value) -> String {
    let all = serde_json::json!({"groups": [answer]});
    format!("{}\n{}", groups(&all), parts(answer))
}

/// The parts of the VMs in a group.
pub fn parts(answer: &Value) -> String {
    let mut table = Table::new(&["VM", "WEIGHT", "FLOWS", "PART"]);
    for part in list(&answer["vms"]) {
        let cells = [&part["weight"], &part["flows"], &part["part"]].map(number);
        let [weight, flows, bytes] = cells;
        table.row([word(&part["name"]), weight, flows, bytes]);
    }
    table.text()
}

/// All rules.
pub fn rules(answer: &Value) -> String {
    let mut table = Table::new(&["VM", "DESTINATION", "GROUP"]);
    let any = |value: &Value, all: &str| value.as_str().unwrap_or(all).to_owned();
    for rule in list(&answer["rules"]) {
        let to = any(&rule["destination"], "everywhere");
        table.row([any(&rule["vm"], "every VM"), to, group(&rule["group"])]);
    }
    table.text()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn word(value: &Value) -> String {
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

fn switch(value: &Value) -> String {
    if value == true { "on" } else { "off" }.to_owned()
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
        assert!(text.contains("weight 1, group none, coupled on"), "{text}");
        let text = super::vm(&vm);
        assert!(text.contains("does not go with it"), "{text}");
        assert!(!super::vm(&json!({"state": "idle"})).contains("go with it"));
    }

    #[test]
    fn an_answer_of_another_form_is_shown_as_far_as_it_goes() {
        let nothing = json!({});
        assert!(vms(&nothing).starts_with("VM "));
        assert!(vm(&nothing).contains("weight     -"));
        assert!(one_group(&nothing).contains("PART"));
        assert!(rules(&json!({"rules": [{}]})).contains("every VM  everywhere   none"));
    }
}
