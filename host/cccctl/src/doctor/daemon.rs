// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is wrong with the daemon itself: what it cannot keep, or has kept and cannot use.
use std::path::Path;

use serde_json::Value;

use super::Finding;

/// What the daemon says of a state file that it could not read, and has put beside its place.
const PUT_ASIDE: &str = "the file as it was found is";
/// And what to do with that.  An older one does not say.
const TO_HAVE_IT: &str = ": to have it again, ";
/// What it says after whose the state file is,
const IN_USE: &str = "; stop that ccc-vhost";
/// and before the file beside it that cannot be locked.
const UNLOCKED: &str = "cannot lock ";

/// Changes are in force, and are lost with the daemon; or earlier ones are not in force.
pub fn not_kept(control: &Path, status: &Value) -> impl Iterator<Item = Finding> {
    let lines = status["not_kept"].as_str().unwrap_or_default().lines();
    lines.map(|why| one_not_kept(control, why))
}

fn one_not_kept(control: &Path, why: &str) -> Finding {
    let of = |what| why.strip_prefix(what).and_then(|rest| rest.split_once(": "));
    let told = |of: &str, remedy| Finding {
        of: of.to_owned(),
        what: format!("what was set of it is not all in force: {why}"),
        remedy,
    };
    if let Some((vm, fault)) = of("VM ") {
        return told(vm, of_vm(vm, fault));
    }
    if let Some((group, fault)) = of("group ") {
        return told(group, of_group(group, fault));
    }
    if why.starts_with("rules: ") {
        let remedy = format!(
            "curl --unix-socket {} -X DELETE http://ccc/v1/rules has those of the configuration again; \
             with -X PUT --json @FILE instead it has those of a file (cccctl rules --json: its form)",
            control.display()
        );
        return told("rules", remedy);
    }
    let (why, remedy) = of_file(why);
    Finding {
        of: "the daemon".to_owned(),
        what: format!("its state file is not as it should be: {why}"),
        remedy,
    }
}

/// What is wrong with the state file, and what to do about it.
fn of_file(why: &str) -> (&str, String) {
    if let Some((why, remedy)) = why.split_once(TO_HAVE_IT) {
        let told = "this is told until the daemon starts again";
        return (why, format!("to have it again, {remedy}; {told}"));
    }
    if let Some((why, _)) = why.split_once(IN_USE) {
        let remedy = "stop that ccc-vhost: this one takes the file within seconds, and puts aside what \
                      the other kept in it; or name another `state` in [daemon], and restart this one";
        return (why, remedy.to_owned());
    }
    if let Some((file, _)) = why.strip_prefix(UNLOCKED).and_then(|rest| rest.split_once(": ")) {
        let remedy = format!(
            "make it writable: it is tried again by itself; if root or another user has left {file}: \
             chown it to the daemon's user, or remove it; if its directory came after the daemon had \
             begun, it may not write there until systemctl restart ccc-vhost"
        );
        return (why, remedy);
    }
    let remedy = if why.contains(PUT_ASIDE) {
        "see cccctl list, groups and rules for what is in force, and set again what is missing; this \
         is told until the daemon starts again (systemctl restart ccc-vhost)"
    } else {
        "make room, or make it writable: it is tried again by itself; if its directory was removed \
         and made again, the daemon may not write there until systemctl restart ccc-vhost: note what \
         cccctl list, groups and rules have, and set again after that what is missing"
    };
    (why, remedy.to_owned())
}

/// What to do about a group's changes that are not in force.
fn of_group(group: &str, fault: &str) -> String {
    if fault.starts_with("invalid uplink") {
        return format!(
            "set what is to hold now: cccctl group {group} --uplink INTERFACE --uplink-rate RATE, or \
             --uplink none"
        );
    }
    format!(
        "if it is called otherwise now, set it there (cccctl group); then, or if it is gone for \
         good: cccctl reset --group {group}"
    )
}

/// What to do about a VM's changes that are not in force.
fn of_vm(vm: &str, fault: &str) -> String {
    if fault.starts_with("invalid group") {
        return format!("give it the group that it is to have: cccctl set {vm} --group GROUP");
    }
    if fault.starts_with("invalid cap") || fault.starts_with("invalid floor") {
        return format!("set what is to hold now: cccctl set {vm} --floor RATE --cap RATE");
    }
    format!(
        "if it is called otherwise now, set it there; then, or if it is gone for good: cccctl reset \
         {vm}"
    )
}

/// Monitoring systems find nobody, and say that the daemon is down.  An older one does not say.
pub fn no_metrics(status: &Value) -> Option<Finding> {
    let what = status["no_metrics"].as_str()?.to_owned();
    let remedy = "as it says, then restart the daemon; a free address is taken without that; the \
                  same metrics are on the control socket";
    Some(Finding { of: "the daemon".to_owned(), what, remedy: remedy.to_owned() })
}

/// What the daemon says of a socket that it was passed and that is no more, before what helps.
const PASSED: &str = ", which the service manager passed: ";

/// Nobody can connect to its socket.  An older daemon does not say.
pub fn unserved(vm: &Value) -> Option<Finding> {
    let why = vm["unserved"].as_str()?;
    let (why, remedy) = why.split_once(PASSED).unwrap_or((
        why,
        "mend that: it is tried again; if that does not help, restart the daemon",
    ));
    Some(Finding::new(vm, format!("nobody can speak for it: {why}"), remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_in_force_is_told_with_its_remedy() {
        let why = "VM web: invalid cap_mbit: expected no less\nVM db: invalid group: expected\n\
                   VM old: no VM `old`\ngroup up: no group `up`\ngroup wan: invalid uplink: expected\n\
                   rules: invalid rules[0].vm\n\
                   cannot write /s: No space left on device\n\
                   state file /s: wrong; the file as it was found is /s.damaged-1";
        let not_kept = |status: &Value| not_kept(Path::new("/c"), status).collect::<Vec<_>>();
        let found = not_kept(&json!({"not_kept": why}));
        let of: Vec<&str> = found.iter().map(|finding| finding.of.as_str()).collect();
        assert_eq!(of, ["web", "db", "old", "up", "wan", "rules", "the daemon", "the daemon"]);
        let remedies = [
            "cccctl set web --floor RATE --cap RATE",
            "cccctl set db --group GROUP",
            "cccctl reset old",
            "cccctl reset --group up",
            "cccctl group wan --uplink INTERFACE --uplink-rate RATE",
            "curl --unix-socket /c -X DELETE http://ccc/v1/rules has",
            "made again",
            "until the daemon starts again",
        ];
        for (finding, remedy) in found.iter().zip(remedies) {
            assert!(finding.remedy.contains(remedy), "{finding:?}");
        }
        assert!(!found[7].remedy.contains("make room"), "it was put aside: {:?}", found[7]);
        assert!(found[6].what.ends_with("No space left on device"), "{found:?}");
        assert_eq!(not_kept(&json!({"not_kept": null})), []);
    }

    #[test]
    fn a_state_file_that_was_put_aside_has_one_remedy() {
        let why = "state file /s: wrong; what cannot be read of it is left out: to have it again, stop \
                   ccc-vhost; the file as it was found is /s.damaged-1";
        let found = not_kept(Path::new("/c"), &json!({"not_kept": why})).collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.ends_with("what cannot be read of it is left out"), "{found:?}");
        let remedy = "to have it again, stop ccc-vhost; the file as it was found is /s.damaged-1; this is \
                      told until the daemon starts again";
        assert_eq!(found[0].remedy, remedy);
    }

    #[test]
    fn what_is_in_the_way_of_a_lock_is_told_with_what_helps() {
        let of = |why: &str| one_not_kept(Path::new("/c"), why);
        let found =
            of("state file /s is in use by process 7; stop that ccc-vhost, or name another");
        assert!(found.what.ends_with("state file /s is in use by process 7"), "{found:?}");
        assert!(found.remedy.starts_with("stop that ccc-vhost: this one takes"), "{found:?}");
        let found = of("cannot lock /s.lock: Permission denied (os error 13)");
        assert!(found.what.ends_with("denied (os error 13)"), "{found:?}");
        assert!(found.remedy.contains("has left /s.lock: chown it"), "{found:?}");
        assert!(found.remedy.contains("or remove it; if its directory came after"), "{found:?}");
    }

    #[test]
    fn metrics_that_nobody_can_scrape_are_told() {
        let found = no_metrics(&json!({"no_metrics": "no metrics: address in use"}));
        assert_eq!(found.map(|found| found.of).as_deref(), Some("the daemon"));
        assert_eq!(no_metrics(&json!({"no_metrics": null})), None);
    }

    #[test]
    fn a_vm_that_is_not_served_is_told() {
        let found = unserved(&json!({"name": "web", "unserved": "no directory"})).expect("told");
        assert_eq!(
            (found.of.as_str(), found.what.as_str()),
            ("web", "nobody can speak for it: no directory")
        );
        assert!(found.remedy.starts_with("mend that"), "{found:?}");
        let why =
            "its socket /s was removed, which the service manager passed: systemctl stop ccc-vhost";
        let found = unserved(&json!({"name": "web", "unserved": why})).expect("told");
        assert!(found.what.ends_with("its socket /s was removed"), "{found:?}");
        assert_eq!(found.remedy, "systemctl stop ccc-vhost", "the daemon does not make it");
        assert_eq!(unserved(&json!({"name": "web", "unserved": null})), None);
    }
}
