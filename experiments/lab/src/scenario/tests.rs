// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use super::path::Queue;
use super::vm::GuestWork;
use super::*;

fn with(edit: impl FnOnce(&mut serde_json::Value)) -> Result<Scenario> {
    let mut json = serde_json::json!({
        "name": "test", "seed": 7, "duration_s": 60, "topology": "vms",
        "bottleneck": {"rate_mbit": 10, "limit_packets": 83, "delay_ms": 100},
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
fn a_short_scenario_is_whole() {
    let short =
        r#"{"name": "test", "seed": 7, "duration_s": 60, "vms": [{"flows": [{}]}, {"flows": []}]}"#;
    let s = Scenario::parse(short).expect("valid");
    let names: Vec<_> = s.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!((names, s.vms[0].congestion_control.as_str()), (vec!["vm1", "vm2"], "ccc"));
    assert_eq!((s.bottleneck.rate_mbit, s.bottleneck.limit_packets), (10.0, 83));
    assert_eq!(s.topology, Topology::Vms);
}

#[test]
fn the_readmes_scenarios_are_valid() {
    let blocks = include_str!("../../README.md").split("```json\n").skip(1);
    let blocks: Vec<_> = blocks.filter_map(|block| block.split("```").next()).collect();
    assert_eq!(blocks.len(), 2);
    blocks.iter().for_each(|block| drop(Scenario::parse(block).expect("valid")));
}

#[test]
fn what_the_file_cannot_say_is_named_with_its_place() {
    let told = message(|j| j["vms"][0]["wieght"] = 3.into());
    assert!(told.starts_with("invalid vms[0].wieght: expected one of `flows`, `name`, "), "{told}");
    assert!(told.contains(", got unknown field `wieght` at line 1 "), "{told}");
    let count = |of: serde_json::Value| message(|j| j["vms"][0]["flows"][0]["count"] = of);
    let expected = "invalid vms[0].flows[0].count: expected a whole number from 0 to 4294967295";
    let told = count("a, expected b".into());
    assert!(told.starts_with(&format!("{expected}, got string \"a, expected b\" at ")), "{told}");
    let told = count((-1).into());
    assert!(told.starts_with(&format!("{expected}, got integer `-1` at line 1 column ")), "{told}");
    let told = message(|j| j["bottleneck"]["queue"] = "red".into());
    assert!(told.starts_with("invalid bottleneck.queue: expected one of `fifo`, "), "{told}");
    assert!(told.contains(", got unknown variant `red` at line 1 "), "{told}");
    let told = message(|j| j["vms"] = 1.into());
    assert!(told.starts_with("invalid vms: expected a list, got integer `1` at line 1 "), "{told}");
}

#[test]
fn what_is_no_scenario_at_all_is_named_so() {
    let told = |text: &str| Scenario::parse(text).expect_err("refused").to_string();
    assert_eq!(
        told("{} {}"),
        "invalid scenario: expected the field `name`, got none at line 1 column 2"
    );
    assert_eq!(
        told(""),
        "invalid scenario: expected JSON, got EOF while parsing a value at line 1 column 0"
    );
    let whole = r#"{"name": "a", "seed": 1, "duration_s": 1, "vms": [{"flows": []}]}"#;
    assert!(told(&format!("{whole} {{")).contains("expected JSON, got trailing characters at "));
    let twice = told(&whole.replace("}]}", "}], \"seed\": 2}"));
    assert!(twice.contains("expected each field once, got duplicate field `seed`"), "{twice}");
}

#[test]
fn the_schema_is_the_committed_one() {
    let schema = format!("{:#}\n", Scenario::schema());
    let path = Path::new("scenario.schema.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(schema == committed, "{} is old: write it by `ccc-lab schema`", path.display());
}

#[test]
fn bad_values_are_named_with_their_place() {
    assert!(
        message(|j| j["duration_s"] = 0.into())
            .contains("invalid duration_s: expected above 0, at most 100000 s, got 0")
    );
    assert!(message(|j| j["vms"][0]["weight"] = 0.into()).contains("vms[0].weight"));
    assert!(
        message(|j| j["vms"][0]["flows"][0]["count"] = 0.into()).contains("vms[0].flows[0].count")
    );
    assert!(
        message(|j| j["vms"][0]["flows"][0]["stop_s"] = 99.into())
            .contains("stop_s: expected after start_s, at most duration_s, got 99")
    );
    assert!(
        message(|j| j["vms"][0]["name"] = "net".into())
            .contains("none of the laboratory's own (net, lab")
    );
}

#[test]
fn weights_may_be_fractions_and_words_are_plain() {
    let s = with(|j| j["vms"][0]["weight"] = 0.5.into()).expect("valid");
    assert_eq!(s.vms[0].weight, 0.5);
    let told = message(|j| j["group"]["share"] = "a\"".into());
    assert!(told.contains("group.share: expected a plain word, a number"), "{told}");
    assert!(message(|j| j["group"]["a b"] = 1.into()).contains("group.a b"));
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
    assert!(told.contains("vms[0].flows[0].phases[1].at_s: expected 9 to 60 s, got 8"), "{told}");
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
    assert!(
        told.contains(
            "actions[0]: expected start_daemon after kill_daemon, got a daemon that runs already"
        ),
        "{told}"
    );
    let told = actions(serde_json::json!([{"at_s": 1}]));
    assert!(
        told.contains("actions[0]: expected one of control, kill_daemon and start_daemon, got 0"),
        "{told}"
    );
    let kill = serde_json::json!({"at_s": 1, "kill_daemon": true});
    let request = serde_json::json!({"at_s": 2, "control": {"method": "GET", "path": "/"}});
    let told = actions(serde_json::json!([kill, request]));
    assert!(
        told.contains(
            "actions[1]: expected start_daemon first, got a daemon that does not run then"
        ),
        "{told}"
    );
}

#[test]
fn a_guest_action_is_one_thing() {
    let actions = |list: serde_json::Value| with(|j| j["vms"][0]["guest_actions"] = list);
    let unload = serde_json::json!([{"at_s": 1, "unload_module": true}]);
    let s = actions(unload).expect("valid");
    assert_eq!(s.vms[0].guest_actions[0].kinds(), [GuestWork::UnloadModule]);
    let two = serde_json::json!([{"at_s": 1, "unload_module": true, "bind_device": true}]);
    let told = actions(two).expect_err("refused").to_string();
    assert!(told.contains("vms[0].guest_actions[0]: expected one thing to do, got 2"), "{told}");
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
    let spread = message(|j| {
        j["vms"][0]["reboot_s"] = 20.into();
        j["vms"][0]["flows"] = serde_json::json!([{"start_s": 10, "start_spread_ms": 15_000}]);
    });
    assert!(spread.contains("flows[0].start_s: expected no time while the VM boots"), "{spread}");
    for start_s in [19.95, 22.0] {
        let told = flows(start_s).expect_err("refused").to_string();
        assert!(
            told.contains(
                "vms[0].flows[1].start_s: expected no time while the VM boots, 20 to 25 s"
            ),
            "{told}"
        );
    }
    assert!(
        message(|j| j["vms"][0]["reboot_s"] = 58.into())
            .contains("vms[0].reboot_s: expected above 0, below")
    );
    let told = message(|j| {
        j["topology"] = "single".into();
        j["vms"][0]["reboot_s"] = 20.into();
    });
    assert!(
        told.contains("vms[0].reboot_s: expected the topology vms with it, got single"),
        "{told}"
    );
}

#[test]
fn one_kernel_has_one_set_of_module_options() {
    let told = message(|j| {
        j["topology"] = "single".into();
        let mut vm = j["vms"][0].clone();
        (vm["name"], vm["module_options"]) = ("vm2".into(), "inner=cubic".into());
        j["vms"].as_array_mut().expect("array").push(vm);
    });
    assert!(told.contains("vms[1].module_options: expected those of vms[0]"), "{told}");
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
    assert!(
        told.contains(
            "vms[2].delay_ms: expected at most 48 VMs where one has a way back of its own, got 49"
        ),
        "{told}"
    );
}

#[test]
fn a_churn_has_defaults_and_stands_alone() {
    let churn = serde_json::json!({"connections": 4096, "hold_s": 5});
    let s = with(|j| j["vms"][0]["flows"][0] = serde_json::json!({"churn": churn}));
    let churn = s.expect("valid").vms[0].flows[0].churn.clone().expect("there");
    assert_eq!((churn.open_ms, churn.bytes), (1000, 4096));
    let churn = serde_json::json!({"connections": 1, "hold_s": 5});
    assert!(
        message(|j| j["vms"][0]["flows"][0]["churn"] = churn)
            .contains(".churn: expected count 1, start_s and priority with it")
    );
}

#[test]
fn disturbances_are_checked() {
    let s = with(|j| j["bottleneck"]["queue"] = "fq_codel".into()).expect("valid");
    assert_eq!(s.bottleneck.queue, Queue::FqCodel);
    assert!(
        message(|j| j["doorbell_delay_ms"] = 0.into())
            .contains("doorbell_delay_ms: expected above 0")
    );
    assert!(
        message(|j| j["cross"] = serde_json::json!({"load": 2}))
            .contains("cross.load: expected above 0")
    );
    let faults = serde_json::json!([{"vm": "vm1", "flow": 0, "at_s": 5, "packets": 1}]);
    assert!(with(|j| j["faults"] = faults.clone()).is_ok());
    let told = message(|j| (j["faults"], j["topology"]) = (faults.clone(), "single".into()));
    assert!(told.contains("faults: expected the topology vms with it"), "{told}");
    assert!(
        message(|j| j["vms"][0]["flows"][0]["mss"] = 9.into())
            .contains("flows[0].mss: expected 88 to 1460 bytes, got 9")
    );
    assert!(
        message(|j| j["vms"][0]["flows"][0]["receive_buffer_bytes"] = 300_000.into())
            .contains("receive_buffer_bytes: expected 4096 to 212992 bytes, got 300000")
    );
}

#[test]
fn stalls_last_and_need_a_kernel_of_their_own() {
    let told = |stalls: serde_json::Value, topology: &str| {
        message(|j| {
            j["topology"] = topology.into();
            j["vms"][0]["stalls"] = stalls;
        })
    };
    let even = serde_json::json!({"every_ms": [50, 450], "for_ms": [5, 50]});
    with(|j| j["vms"][0]["stalls"] = even.clone()).expect("valid");
    let turned = told(serde_json::json!({"every_ms": [50, 450], "for_ms": [50, 5]}), "vms");
    assert_eq!(turned, "invalid vms[0].stalls.for_ms[1]: expected 50 to 10000 ms, got 5");
    let none = told(serde_json::json!({"every_ms": [0, 450], "for_ms": [5, 50]}), "vms");
    assert!(none.starts_with("invalid vms[0].stalls.every_ms[0]: expected above 0, "), "{none}");
    let single = told(even, "single");
    let expected = "expected the topology vms with it, got single";
    assert_eq!(single, format!("invalid vms[0].stalls: {expected}"));
}

#[test]
fn the_path_is_checked() {
    let told = message(|j| {
        j["bottleneck"]["rate_changes"] = serde_json::json!([{"at_s": 9, "rate_mbit": 0}])
    });
    assert!(
        told.contains("rate_changes[0].rate_mbit: expected 0.001 to 100000 Mbit/s, got 0"),
        "{told}"
    );
    let twice = serde_json::json!([{"at_s": 9, "rate_mbit": 1}, {"at_s": 9, "rate_mbit": 2}]);
    let told = message(|j| j["bottleneck"]["rate_changes"] = twice);
    assert!(
        told.contains("rate_changes[1].at_s: expected one change at a time, got 9 s twice"),
        "{told}"
    );
    let told = message(|j| j["vms"][0]["link"] = serde_json::json!({"rate_mbit": 0.0009}));
    assert!(told.contains("vms[0].link.rate_mbit: expected 0.001 to 100000 Mbit/s"), "{told}");
    let told = message(|j| j["bottleneck"]["return_loss_percent"] = 101.into());
    assert!(
        told.contains("bottleneck.return_loss_percent: expected 0 to 100 %, got 101"),
        "{told}"
    );
    let told = message(|j| {
        j["vms"][0]["return_jitter_ms"] = 5.into();
        j["vms"][0]["delay_changes"] = serde_json::json!([{"at_s": 9, "delay_ms": 4}]);
    });
    assert!(
        told.contains("vms[0].return_jitter_ms: expected 0 to 4 ms (delay_ms), got 5"),
        "{told}"
    );
    let link = serde_json::json!({"rate_mbit": 2});
    let s = with(|j| j["vms"][0]["link"] = link.clone()).expect("valid");
    assert_eq!(s.vms[0].link.as_ref().expect("there").limit_packets, 1000);
    let told = message(|j| (j["vms"][0]["link"], j["topology"]) = (link.clone(), "single".into()));
    assert!(told.contains("vms[0].link: expected the topology vms with it"), "{told}");
    let past = serde_json::json!({"rate_mbit": 2, "past_bottleneck": true});
    let told = message(|j| (j["vms"][0]["link"], j["ipv6"]) = (past.clone(), true.into()));
    assert!(told.contains("vms[0].link.past_bottleneck: expected IPv4 with it"), "{told}");
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
    assert!(
        message(twice).contains("vms[1].name: expected another name for each, got 'vm1' twice")
    );
}

#[test]
fn a_hostile_vm_needs_its_module_and_a_kernel_of_its_own() {
    let hostile = |j: &mut serde_json::Value| {
        j["vms"][0]["hostile"] = true.into();
        j["kernel"] = "Cargo.toml".into();
    };
    let runnable = |edit: &dyn Fn(&mut serde_json::Value)| with(edit).and_then(|s| s.check_files());
    let told = runnable(&hostile).expect_err("must be refused").to_string();
    assert!(told.starts_with("invalid hostile_module: expected the path of a hostile"), "{told}");
    let told = message(|j| {
        hostile(j);
        j["topology"] = "single".into();
    });
    assert!(told.contains("vms[0].hostile: expected the topology vms"), "{told}");
    let told = message(|j| j["vms"][0]["udp_mbit"] = 0.into());
    assert!(told.contains("vms[0].udp_mbit: expected"), "{told}");
}
