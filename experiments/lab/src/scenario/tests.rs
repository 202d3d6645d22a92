// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use super::*;
use crate::error::Result;

fn with(edit: impl FnOnce(&mut serde_json::Value)) -> Result<Scenario> {
    let mut json = serde_json::json!({
        "name": "test", "seed": 7, "duration_s": 60, "topology": "vms",
        "bottleneck": {"rate_mbit": 10, "limit_packets": 83, "delay_ms": 100},
        "kernel": "linux",
        "vms": [{"name": "vm1", "congestion_control": "reno", "flows": [{"count": 4}]}]
    });
    edit(&mut json);
    Scenario::parse(&json.to_string())
}

fn message(edit: impl FnOnce(&mut serde_json::Value)) -> String {
    with(edit).expect_err("must be refused").to_string()
}

#[test]
fn defaults_fill_what_is_left_out() {
    let s = with(|_| ()).expect("valid");
    assert_eq!((s.sample_ms, s.queue_sample_ms, s.coupled), (100, 10, false));
    assert_eq!((s.vms[0].weight, s.vms[0].device), (1.0, true));
    assert!(!s.has_device(&s.vms[0]));
}

#[test]
fn an_unknown_field_is_named() {
    assert!(message(|j| j["vms"][0]["wieght"] = 3.into()).contains("wieght"));
}

#[test]
fn bad_values_are_named_with_their_place() {
    assert!(message(|j| j["duration_s"] = 0.into()).contains("duration_s: 0 is not above 0"));
    assert!(message(|j| j["vms"][0]["weight"] = 0.into()).contains("vms[0].weight"));
    assert!(
        message(|j| j["vms"][0]["flows"][0]["count"] = 0.into()).contains("vms[0].flows[0].count")
    );
    assert!(message(|j| j["vms"][0]["flows"][0]["stop_s"] = 99.into()).contains("stop_s: 99"));
    assert!(message(|j| j["vms"][0]["name"] = "net".into()).contains("the laboratory's own"));
}

#[test]
fn weights_may_be_fractions_and_words_are_plain() {
    let s = with(|j| j["vms"][0]["weight"] = 0.5.into()).expect("valid");
    assert_eq!(s.vms[0].weight, 0.5);
    assert!(message(|j| j["group"]["share"] = "a\"".into()).contains("group.share"));
    assert!(message(|j| j["vms"][0]["delay_ms"] = (-1).into()).contains("vms[0].delay_ms"));
}

#[test]
fn a_phase_tells_null_from_nothing() {
    let phases = serde_json::json!([
        {"at_s": 2, "rate_kbit": 2000}, {"at_s": 4, "rate_kbit": null}, {"at_s": 5, "priority": 4}
    ]);
    let s = with(|j| j["vms"][0]["flows"][0]["phases"] = phases).expect("valid");
    let phases = &s.vms[0].flows[0].phases;
    assert_eq!(phases[0].rate_kbit, Some(Some(2000.0)));
    assert_eq!((phases[1].rate_kbit, phases[2].rate_kbit), (Some(None), None));
    let again = serde_json::to_string(&s).expect("JSON");
    assert_eq!(&Scenario::parse(&again).expect("valid").vms[0].flows[0].phases, phases);
}

#[test]
fn phases_are_in_order() {
    let phases = serde_json::json!([{"at_s": 9}, {"at_s": 8}]);
    let told = message(|j| j["vms"][0]["flows"][0]["phases"] = phases);
    assert!(told.contains("vms[0].flows[0].phases[1].at_s: 8 is not in 9"), "{told}");
}

#[test]
fn actions_are_checked() {
    let actions = |list: serde_json::Value| {
        message(|j| {
            (j["coupled"], j["daemon"]) = (true.into(), "ccc-vhost".into());
            j["actions"] = list;
        })
    };
    let told = actions(serde_json::json!([{"at_s": 1, "start_daemon": true}]));
    assert!(told.contains("actions[0]: the daemon runs already"), "{told}");
    let told = actions(serde_json::json!([{"at_s": 1}]));
    assert!(told.contains("actions[0]: needs one of"), "{told}");
    let kill = serde_json::json!({"at_s": 1, "kill_daemon": true});
    let request = serde_json::json!({"at_s": 2, "control": {"method": "GET", "path": "/"}});
    let told = actions(serde_json::json!([kill, request]));
    assert!(told.contains("actions[1]: the daemon does not run then"), "{told}");
}

#[test]
fn a_guest_action_is_one_thing() {
    let actions = |list: serde_json::Value| with(|j| j["vms"][0]["guest_actions"] = list);
    let unload = serde_json::json!([{"at_s": 1, "unload_module": true}]);
    let s = actions(unload).expect("valid");
    assert_eq!(s.vms[0].guest_actions[0].kind().expect("one"), GuestWork::UnloadModule);
    let two = serde_json::json!([{"at_s": 1, "unload_module": true, "bind_device": true}]);
    let told = actions(two).expect_err("refused").to_string();
    assert!(told.contains("vms[0].guest_actions[0]: needs one thing"), "{told}");
    assert!(actions(serde_json::json!([{"at_s": 1}])).is_err());
}

#[test]
fn nothing_begins_while_a_vm_boots() {
    let flows = |start_s: f64| {
        with(|j| {
            j["vms"][0]["reboot_s"] = 20.into();
            j["vms"][0]["flows"] = serde_json::json!([{}, {"start_s": start_s}]);
        })
    };
    assert!(flows(25.0).is_ok() && flows(19.8).is_ok());
    for start_s in [19.95, 22.0] {
        let told = flows(start_s).expect_err("refused").to_string();
        assert!(told.contains("vms[0].flows[1].start_s: starts while the VM boots"), "{told}");
    }
    assert!(message(|j| j["vms"][0]["reboot_s"] = 58.into()).contains("58 is not in 0 to"));
    let told = message(|j| {
        j["topology"] = "single".into();
        j["vms"][0]["reboot_s"] = 20.into();
    });
    assert!(told.contains("vms[0].reboot_s: needs the topology vms"), "{told}");
}

#[test]
fn one_kernel_has_one_set_of_module_options() {
    let told = message(|j| {
        j["topology"] = "single".into();
        let mut vm = j["vms"][0].clone();
        (vm["name"], vm["module_options"]) = ("vm2".into(), "inner=cubic".into());
        j["vms"].as_array_mut().expect("array").push(vm);
    });
    assert!(told.contains("vms[1].module_options: differ"), "{told}");
}

#[test]
fn vms_that_share_a_nic_share_its_delay() {
    let many = |j: &mut serde_json::Value, count: usize| {
        let mut vms = vec![j["vms"][0].clone(); count];
        for (i, vm) in vms.iter_mut().enumerate() {
            vm["name"] = format!("vm{}", i + 1).into();
        }
        vms[2]["delay_ms"] = 20.into();
        j["vms"] = vms.into();
    };
    assert!(with(|j| many(j, 48)).is_ok());
    let told = message(|j| many(j, 49));
    assert!(told.contains("vms[2].delay_ms: of more than 48 VMs none may"), "{told}");
}

#[test]
fn a_churn_has_defaults_and_stands_alone() {
    let churn = serde_json::json!({"connections": 4096, "hold_s": 5});
    let s = with(|j| j["vms"][0]["flows"][0] = serde_json::json!({"churn": churn}));
    let churn = s.expect("valid").vms[0].flows[0].churn.clone().expect("there");
    assert_eq!((churn.open_ms, churn.bytes), (1000, 4096));
    let churn = serde_json::json!({"connections": 1, "hold_s": 5});
    assert!(message(|j| j["vms"][0]["flows"][0]["churn"] = churn).contains(".churn: goes with"));
}

#[test]
fn disturbances_are_checked() {
    let s = with(|j| j["bottleneck"]["queue"] = "fq_codel".into()).expect("valid");
    assert_eq!(s.bottleneck.queue, Queue::FqCodel);
    assert!(message(|j| j["doorbell_delay_ms"] = 0.into()).contains("doorbell_delay_ms: 0"));
    assert!(message(|j| j["cross"] = serde_json::json!({"load": 2})).contains("cross.load: 2"));
    let faults = serde_json::json!([{"vm": "vm1", "flow": 0, "at_s": 5, "packets": 1}]);
    assert!(with(|j| j["faults"] = faults.clone()).is_ok());
    let told = message(|j| (j["faults"], j["topology"]) = (faults.clone(), "single".into()));
    assert!(told.contains("faults: needs the topology vms"), "{told}");
    assert!(message(|j| j["vms"][0]["flows"][0]["mss"] = 9.into()).contains("flows[0].mss: 9"));
}

#[test]
fn a_coupled_run_needs_the_daemon() {
    assert!(message(|j| j["coupled"] = true.into()).contains("daemon:"));
}

#[test]
fn names_are_unique() {
    let twice = |j: &mut serde_json::Value| {
        let vm = j["vms"][0].clone();
        j["vms"].as_array_mut().expect("array").push(vm);
    };
    assert!(message(twice).contains("'vm1' is there twice"));
}
