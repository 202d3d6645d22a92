// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What of a state file is read, put over the configuration, and written again.
use super::*;

fn state() -> State {
    let value = json!({
        "version": 1,
        "added": {"b": {"socket": "/s"}},
        "vms": {"a": {"weight": 2.5, "group": null}},
        "groups": {"g": {"share": "window"}},
        "rules": [{"vm": "a", "destination": "10.0.0.0/8", "group": "g"}],
    });
    State::from_json(value).expect("right")
}

#[test]
fn a_state_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("state.json");
    assert_eq!(State::load(&path).expect("none yet"), State::default());
    fs::write(&path, state().json().to_string()).expect("written");
    assert_eq!(State::load(&path).expect("there"), state());
}

#[test]
fn f2_a_change_is_new_once() {
    let mut state = state();
    let spec =
        |weight: f64| VmSpec::read(json!({"socket": "/c", "weight": weight})).expect("right");
    let put = |weight| Change::PutVm("c".to_owned(), spec(weight));
    let changes = |value| Changes::read(value).expect("right");
    for change in [
        put(1.0),
        put(2.0),
        Change::UpdateVm("c".to_owned(), changes(json!({"weight": 3}))),
        Change::UpdateGroup("g".to_owned(), Changes::default()),
        Change::ResetGroup("g".to_owned()),
        Change::DeleteVm("c".to_owned()),
        Change::ResetVm("a".to_owned()),
        Change::SetRules(Some(Vec::new())),
        Change::SetRules(None),
    ] {
        let nothing = change == Change::UpdateGroup("g".to_owned(), Changes::default());
        assert_eq!(state.note(&change), !nothing, "{change:?}");
        assert!(!state.note(&change), "again: {change:?}");
    }
}

#[test]
fn an_added_vm_whose_group_is_gone_is_in_no_group() {
    let value = json!({
        "version": 1,
        "added": {"c": {"socket": "/s"}},
        "vms": {"c": {"group": "gone", "weight": 7}},
    });
    let mut settings = Settings::single(Path::new("/other"));
    State::from_json(value).expect("right").apply(&mut settings);
    let vm = &settings.vms[&settings.vm("c").expect("added")];
    assert_eq!((vm.group, vm.settings.weight), (None, 7.0));
}

/// A hook describes a domain, which comes into the configuration, too.
#[test]
fn of_an_added_vm_that_the_configuration_has_now_only_later_changes_hold() {
    let of_hook = json!({
        "version": 1,
        "added": {"default": {"socket": "/s"}},
        "vms": {"default": {"group": "none", "floor_mbit": 5}},
        "caps": {"default": 9},
    });
    let mut state = State::from_json(of_hook).expect("right");
    let mut settings = Settings::single(Path::new("/s"));
    let configured = settings.vms[&0].settings.clone();
    assert_eq!(state.apply(&mut settings), []);
    assert_eq!(settings.vms[&0].settings, configured);
    let weight = Changes::read(json!({"weight": 7})).expect("right");
    state.note(&Change::UpdateVm("default".to_owned(), weight));
    let written = state.json();
    assert_eq!(
        (&written["added"], &written["vms"]),
        (&json!({}), &json!({"default": {"weight": 7.0}}))
    );
    State::from_json(written).expect("right").apply(&mut settings);
    assert_eq!(settings.vms[&0].settings, VmSettings { weight: 7.0, ..configured });
}

#[test]
fn floors_and_caps_outlive_the_daemon() {
    let mut state = State::default();
    let changes = Changes::read(json!({"floor_mbit": 1, "cap_mbit": 2})).expect("right");
    let mut settings = Settings::single(Path::new("/s"));
    state.note(&Change::UpdateVm(settings.vms[&0].name.clone(), changes));
    State::from_json(state.json()).expect("as it was written").apply(&mut settings);
    let VmSettings { floor_mbit, cap_mbit, .. } = settings.vms[&0].settings;
    assert_eq!((floor_mbit, cap_mbit), (1.0, Some(2.0)));
}

/// 0.1.0 leaves out all of a VM with a setting that it does not know, and only this key.
#[test]
fn caps_are_kept_where_an_older_daemon_loses_nothing_else() {
    let mut state = state();
    let spec = VmSpec::read(json!({"socket": "/c", "cap_mbit": 9.5})).expect("right");
    state.note(&Change::PutVm("c".to_owned(), spec));
    let changes = |cap| Changes::read(json!({"weight": 4, "cap_mbit": cap})).expect("right");
    state.note(&Change::UpdateVm("b".to_owned(), changes(json!(2))));
    state.note(&Change::UpdateVm("a".to_owned(), changes(Value::Null)));
    let written = state.json();
    assert_eq!(written["caps"], json!({"a": "none", "b": 2.0, "c": 9.5}));
    let vms = written["vms"].as_object().expect("VMs");
    assert_eq!(vms["a"], json!({"group": null, "weight": 4.0}));
    assert!(vms.values().all(|vm| vm.get("cap_mbit").is_none()), "{written}");
    let read = State::from_json(written.clone()).expect("as it was written");
    assert_eq!(read.json(), written);
    // Of an added VM no cap is as if it were left out.
    let no_cap = Changes::read(json!({"cap_mbit": null})).expect("right");
    state.note(&Change::UpdateVm("c".to_owned(), no_cap));
    assert_eq!(state.json()["caps"], json!({"a": "none", "b": 2.0}));
    let before = json!({"version": 1, "vms": {"a": {"weight": 2.5, "cap_mbit": 7}}});
    let read = State::from_json(before).expect("as it was written before");
    assert_eq!(read.json()["caps"], json!({"a": 7.0}));
    let wrong = json!({"version": 1, "caps": {"a": 0}});
    assert_eq!(State::from_json(wrong).expect_err("no cap").field, "caps.a.cap_mbit");
}

#[test]
fn a_cap_below_a_new_floor_takes_no_other_change_along() {
    let changes = json!({"cap_mbit": 2, "weight": 3, "tap": "vnet7"});
    let mut settings = Settings::single(Path::new("/s"));
    let name = settings.vms[&0].name.clone();
    let floor = Changes::read(json!({"floor_mbit": 6})).expect("right");
    settings.change_vm(&name, &floor).expect("of a new configuration");
    let state = json!({"version": 1, "vms": {name.clone(): changes}});
    let mut told = State::from_json(state).expect("right").apply(&mut settings);
    let VmSettings { floor_mbit, cap_mbit, weight, tap, .. } = &settings.vms[&0].settings;
    assert_eq!((*floor_mbit, *cap_mbit, *weight), (6.0, None, 3.0));
    assert_eq!(tap.as_deref(), Some("vnet7"));
    let told = told.pop().expect("who has no cap is told of").to_string();
    assert!(told.starts_with("VM default: invalid cap_mbit: expected no less than"), "{told}");
    let mut settings = Settings::single(Path::new("/s"));
    let floor = Changes::read(json!({"floor_mbit": 6})).expect("right");
    settings.change_vm(&name, &floor).expect("of a new configuration");
    let changes = json!({"cap_mbit": 2, "floor_mbit": 8});
    let state = json!({"version": 1, "vms": {name.clone(): changes}});
    State::from_json(state).expect("right").apply(&mut settings);
    let floor_mbit = settings.vms[&0].settings.floor_mbit;
    assert_eq!(floor_mbit, 8.0, "it has the floor that was set last");
}

#[test]
fn a_file_with_the_old_names_of_settings_is_read() {
    let groups = json!({"g": {"aggression": 2, "coco": "first", "coupled": false}});
    let state = State::from_json(json!({"version": 1, "groups": groups})).expect("right");
    let now = json!({"equivalent_tcps": 2.0, "growth_source": "first", "coupled": false});
    assert_eq!(state.json()["groups"]["g"], now, "and written as they are called now");
    let wrong = json!({"version": 1, "groups": {"g": {"aggression": 0}}});
    let fault = State::from_json(wrong).expect_err("out of range");
    assert_eq!(fault.field, "groups.g.equivalent_tcps");
}

/// Among 1,000 names as long as a cloud's that took 5 s.
#[test]
fn f2_added_vms_are_loaded_without_a_search_for_similar_names() {
    let names = (0..1000).map(|number| format!("instance-of-a-customer-of-a-cloud-{number:06}"));
    let added: Map<String, Value> =
        names.map(|name| (name.clone(), json!({"socket": format!("/{name}")}))).collect();
    let mut state = State::from_json(json!({"version": 1, "added": added})).expect("right");
    let mut settings = Settings::single(Path::new("/other"));
    let searches = || crate::settings::SEARCHES.get();
    let before = searches();
    state.apply(&mut settings);
    assert_eq!(searches(), before, "similar names of VMs that are new were looked for");
    assert_eq!(settings.vms.len(), 1001);
}

#[test]
fn what_can_be_read_of_a_file_is_used() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("state.json");
    // Damaged, and written by a newer daemon.
    for (vms, told) in [
        (r#"{"a": {"weight": 2.5}, "b": {"weight": -1}}"#, "invalid vms.b.weight"),
        (r#"{"a": {"weight": 2.5, "colour": "red"}}"#, "invalid vms.a.colour"),
    ] {
        fs::write(&path, format!(r#"{{"version": 1, "vms": {vms}}}"#)).expect("written");
        let (state, trouble) = State::load_readable(&path);
        let trouble = trouble.expect("something is wrong").to_string();
        assert!(trouble.contains(told), "{trouble}");
        assert_eq!(state.json()["vms"], json!({"a": {"weight": 2.5}}));
    }
}

#[test]
fn a_tenant_whose_place_is_not_understood_does_not_become_a_vm() {
    let text = json!({
        "version": 1,
        "added": {"web": {"socket": "/w"}, "db": {"socket": "/d"}},
        "vms": {
            "web": {"tenant": "pod:7", "weight": 3},
            "db": {"tenant": "netns:db", "weight": 2},
        },
        "caps": {"web": 5},
        "rules": [{"vm": "web", "group": null}, {"vm": "db", "group": null}],
    });
    let (mut state, faults) = State::readable(text);
    let told = faults.iter().map(Fault::to_string).collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("invalid vms.web.tenant: expected cgroup:PATH"), "{told:?}");
    assert!(
        told[0].ends_with(
            "got \"pod:7\"; the tenant is left out; add it again (cccctl tenant add) as what it is"
        ),
        "{told:?}"
    );
    let mut settings = Settings::single(Path::new("/other"));
    state.apply(&mut settings);
    assert!(!settings.has_vm("web"), "a VM with the device would come of it");
    assert!(settings.has_vm("db") && settings.rules.len() == 1, "the rest is in force");
    assert_eq!(settings.vms[&1].settings.tenant.as_deref(), Some("netns:db"));
    let named = json!({"version": 1, "added": {"default": {"socket": "/o"}},
        "vms": {"default.tenant": 1}});
    let (state, faults) = State::readable(named);
    assert_eq!((state.added.len(), faults.len()), (1, 1), "of another VM");
}

/// As a hook adds a domain: an older daemon would not read a VM with a setting of ours.
#[test]
fn of_an_added_vm_no_more_is_written_than_what_is_set() {
    let mut state = State::default();
    let spec = VmSpec::read(json!({"socket": "/c", "weight": 3})).expect("right");
    assert!(state.note(&Change::PutVm("c".to_owned(), spec)));
    let written = state.json();
    assert_eq!(written["vms"]["c"], json!({"weight": 3.0, "group": "default"}));
    let mut read = State::from_json(written).expect("right");
    let mut settings = Settings::single(Path::new("/other"));
    read.apply(&mut settings);
    let vm = &settings.vms[&settings.vm("c").expect("added")].settings;
    assert_eq!(*vm, VmSettings { weight: 3.0, ..VmSettings::default() });
}

#[test]
fn what_cannot_be_read_is_told() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("state.json");
    let with = |text: &str| {
        fs::write(&path, text).expect("written");
        State::load(&path).expect_err("a fault").to_string()
    };
    assert!(with("{").contains("expected JSON"));
    assert!(with("{\"version\": 2}").contains("invalid version: expected 1, got 2"));
    assert!(with("{\"version\": 1, \"vms\": {\"a\": {\"x\": 1}}}").contains("invalid vms.a.x: "));
    assert!(with("{\"version\": 1, \"vms\": 1}").contains("invalid vms: expected an object"));
    let wrong = |field: Value| {
        let Value::Object(mut file) = field else { panic!("an object") };
        file.insert("version".to_owned(), json!(1));
        with(&Value::Object(file).to_string())
    };
    let rules = [json!({"group": "g"}), json!({"group": "g", "destination": "10.0.0.1/8"})];
    let prefix = wrong(json!({"rules": rules}));
    assert!(prefix.contains("invalid rules[1].destination: "), "{prefix}");
    assert!(prefix.contains("got \"10.0.0.1/8\"; write 10.0.0.0/8"), "{prefix}");
    let added = wrong(json!({"added": {"a": {"socket": "/s", "weight": 2}}}));
    assert!(added.contains("invalid added.a.weight: expected socket, got an unknown key"));
    assert!(wrong(json!({"added": {"a": 1}})).contains("invalid added.a: expected an object"));
    let many = wrong(json!({"rules": vec![json!({"groop": 1}); 257]}));
    assert!(many.contains("invalid rules: expected at most 256 rules, got 257"), "{many}");
    let nowhere = State::load(&dir.path().join("no/state.json"));
    assert!(matches!(nowhere, Err(StateError::NoDirectory { .. })));
}
