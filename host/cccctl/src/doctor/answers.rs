// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Answers of a daemon as tests have them, and what is found in them.
use std::path::Path;

use serde_json::{Value, json};

use super::Finding;

/// What is found in answers, of a daemon at no place.
pub fn findings(status: &Value, vms: &Value, groups: &Value) -> Vec<Finding> {
    super::findings(Path::new("/nowhere"), status, vms, groups)
}

/// What is found in answers in which all is well but for these changes of a VM.
pub fn of(changes: Value) -> Vec<Finding> {
    of_both(changes, json!({}))
}

/// The same with changes of its group.
pub fn of_both(changes: Value, of_group: Value) -> Vec<Finding> {
    let mut vm = json!({
        "name": "web", "socket": "/dev/null", "group": "uplink", "coupled": true,
        "state": "active", "heard_ms": 3, "flows": 4, "coupled_flows": 4, "apart": [],
        "alone": [], "judged": null,
        "held": null, "counters": {"refused": 0, "no_line": 0, "over_limit": 0}});
    for (key, value) in changes.as_object().expect("an object") {
        vm[key] = value.clone();
    }
    let mut group = json!({"name": "uplink", "coupled": true, "policy": "ctrl-tcp", "trial": null});
    for (key, value) in of_group.as_object().expect("an object") {
        group[key] = value.clone();
    }
    let groups = json!({"groups": [group]});
    findings(&json!({}), &json!({"vms": [vm]}), &groups)
}

/// The only finding of a VM with these changes, in words.
pub fn words(changes: Value) -> String {
    let found = of(changes);
    assert_eq!(found.len(), 1, "{found:?}");
    format!("{} -> {}", found[0].what, found[0].remedy)
}
