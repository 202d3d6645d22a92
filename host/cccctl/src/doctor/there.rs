// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether somebody speaks for a VM.
use std::path::Path;

use serde_json::Value;

use super::{Finding, has_no_device};
use crate::views::word;

/// A VM with flows that has said nothing for so long has stopped.
pub const SILENT_MS: u64 = 10_000;

/// Nobody can connect: somebody has removed the socket.
pub fn socket_gone(vm: &Value) -> Option<Finding> {
    let socket = vm["socket"].as_str().filter(|_| vm["state"] == "absent" && !has_no_device(vm))?;
    // One that may not be looked at is there for all we know.
    matches!(Path::new(socket).try_exists(), Ok(false)).then(|| {
        Finding::new(
            vm,
            format!("nobody can connect to it: its socket {socket} was removed"),
            "systemctl restart ccc-vhost, which makes it again, and ends no flow; if its directory is \
             gone, too: systemd-tmpfiles --create before that; if a .socket unit makes it: restart that \
             while ccc-vhost is stopped",
        )
    })
}

/// Nobody speaks for the VM, or nobody does any more.
pub fn not_there(vm: &Value) -> Option<Finding> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::answers::{findings, of, words};

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
    fn a_socket_that_was_removed_is_told() {
        let told = words(json!({"state": "absent", "socket": "/dev/nothing.sock"}));
        assert!(told.contains("/dev/nothing.sock was removed -> systemctl restart"), "{told}");
        assert!(
            told.ends_with("if a .socket unit makes it: restart that while ccc-vhost is stopped")
        );
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
}
