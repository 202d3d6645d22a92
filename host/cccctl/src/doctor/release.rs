// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether who comes to speak for a VM or tenant is of the daemon's release, as far as that matters:
//! after an upgrade of one of them their tables may be laid out otherwise.
//!
//! An agent's revision is a guest's word: it is told as that, and nothing on the host is to be
//! restarted for it.
use serde_json::Value;

use super::Finding;
use crate::views::word;

/// The program that would speak for it knows other tables, so its flows go on alone.
pub fn other(vm: &Value) -> Option<Finding> {
    let stranger = &vm["stranger"];
    let [revision, expected] = ["revision", "expected"].map(|key| stranger[key].as_u64());
    let (revision, expected) = (revision?, expected?);
    let place = word(&vm["tenant"]);
    let kind = place.split_once(':').map(|(kind, _)| kind);
    let (is_agent, is_older) = (stranger["who"] == "agent", revision < expected);
    let age = if is_older { "older" } else { "newer" };
    let who = program(kind, is_agent);
    let told = if is_agent { "says it is" } else { "is" };
    Some(Finding::new(
        vm,
        format!(
            "its {who} {told} {age} than the daemon, with tables of revision {revision}, not \
             {expected}: its flows go on alone"
        ),
        remedy(kind, is_agent, is_older),
    ))
}

/// What would speak for a tenant of this kind, or for a VM.
fn program(kind: Option<&str>, is_agent: bool) -> &'static str {
    match kind {
        Some("vsock") if is_agent => "agent",
        Some("vsock") => "relay",
        Some(_) => "ccc-bpf",
        None => "front end",
    }
}

/// How the two are brought together.
fn remedy(kind: Option<&str>, is_agent: bool, is_older: bool) -> String {
    let restart = |unit: &str| {
        format!(
            "systemctl restart {unit}, which goes on as the program that is installed; if that is \
             older, too: upgrade the package ccc-bpf"
        )
    };
    match (kind, is_agent, is_older) {
        (Some("vsock"), true, true) => {
            "upgrade ccc-bpf and ccc-agent in the guest, then there: systemctl restart ccc-agent"
                .to_owned()
        }
        (Some("vsock"), true, false) => {
            "nothing needs to be done here for a guest's word; if ccc-vhost and ccc-bpf are to be \
             upgraded anyway, it is coupled after that; else install their release of ccc-agent in the guest"
                .to_owned()
        }
        (_, _, false) => "upgrade ccc-vhost here, then: systemctl restart ccc-vhost".to_owned(),
        (Some("vsock"), ..) => restart("ccc-relay"),
        (Some(_), ..) => restart("ccc-bpf"),
        (None, ..) => "upgrade its VMM, and start it again".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_is_of_another_release_is_told_with_what_to_upgrade() {
        for (tenant, who, revision, what, remedy) in [
            ("netns:a", "front end", 1, "its ccc-bpf is older", "systemctl restart ccc-bpf, "),
            ("cgroup:a", "front end", 3, "its ccc-bpf is newer", "upgrade ccc-vhost here"),
            ("vsock:7", "front end", 1, "its relay is older", "systemctl restart ccc-relay, "),
            ("vsock:7", "agent", 1, "its agent says it is older", "upgrade ccc-bpf and ccc"),
            ("vsock:7", "agent", 3, "its agent says it is newer", "nothing needs to be done here"),
        ] {
            let stranger = json!({"who": who, "revision": revision, "expected": 2});
            let vm = json!({"name": "web", "tenant": tenant, "stranger": stranger});
            let found = other(&vm).expect("a finding");
            assert_eq!(found.of, "web");
            assert!(found.what.starts_with(what), "{found:?}");
            assert!(found.remedy.starts_with(remedy), "{found:?}");
        }
    }

    #[test]
    fn a_guest_s_word_has_nothing_of_the_host_restarted() {
        for revision in [0, 1, 3, u64::MAX] {
            let stranger = json!({"who": "agent", "revision": revision, "expected": 2});
            let found = other(&json!({"name": "a", "tenant": "vsock:7", "stranger": stranger}));
            let Finding { what, remedy, .. } = found.expect("a finding");
            assert!(what.starts_with("its agent says it is "), "{what}");
            for unit in ["ccc-vhost", "ccc-relay", "ccc-bpf"] {
                assert!(!remedy.contains(&format!("restart {unit}")), "{remedy}");
            }
        }
    }

    #[test]
    fn who_speaks_for_a_vm_is_not_told() {
        assert_eq!(other(&json!({"name": "web", "stranger": null})), None);
        assert_eq!(other(&json!({"name": "web"})), None, "an older daemon does not say");
        let vm =
            json!({"name": "a", "stranger": {"who": "front end", "revision": 1, "expected": 2}});
        assert!(other(&vm).expect("a finding").remedy.starts_with("upgrade its VMM"));
    }
}
