// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Every fault a configuration can have.
use ccc_core::ShareOf;

use super::{config::parse, *};

fn read(text: &str) -> Settings {
    parse("ccc.toml", text).expect("right")
}

/// Line, field and what was got of each fault.
fn faults(text: &str) -> Vec<(usize, String)> {
    let error = parse("ccc.toml", text).expect_err("a fault");
    let told =
        error.faults().iter().map(|at| (at.line, format!("{} {}", at.fault.field, at.fault.got)));
    told.collect()
}

/// The one fault of a file.
fn fault(text: &str) -> (usize, String) {
    let all = faults(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().expect("one")
}

fn is(line: usize, told: &str) -> (usize, String) {
    (line, told.to_owned())
}

#[test]
fn a_whole_file_is_read() {
    let settings = read(
        "[group.uplink]\npolicy = \"ctrltcp\"\nshare = \"window\"\nequivalent_tcps = 2\n\
         [vm.a]\nsocket = \"/run/a\"\ngroup = \"uplink\"\nweight = 3\n\
         [vm.b]\nsocket = \"/run/b\"\n",
    );
    let (a, b) = (&settings.vms[&0], &settings.vms[&1]);
    let uplink = &settings.groups[a.group().expect("a group")];
    let expected =
        GroupSettings { share: ShareOf::Window, equivalent_tcps: 2.0, ..GroupSettings::default() };
    assert_eq!((uplink.name.as_str(), &uplink.settings), ("uplink", &expected));
    assert_eq!(a.settings.weight, 3.0);
    assert_eq!(settings.groups[b.group().expect("a group")].name, DEFAULT_GROUP);
    assert_eq!(b.settings, VmSettings::default());
    assert_eq!(settings.daemon, DaemonSettings::default());
}

#[test]
fn a_message_has_its_place_and_says_what_is_wrong_and_what_to_do() {
    let message = |text: &str| parse("ccc.toml", text).expect_err("a fault").to_string();
    assert_eq!(
        message("[vm.a]\nsocket = \"/s\"\n  weight = 0\n"),
        "ccc.toml:3:3: invalid vm.a.weight: expected a number from 0.01 to 1000, got 0"
    );
    let group = message("[group.uplink]\n[vm.a]\nsocket = \"/s\"\ngroup = \"uplnk\"\n");
    let expected = "expected the name of a group, or none, got \"uplnk\"; did you mean `uplink`?";
    assert_eq!(group, format!("ccc.toml:4:1: invalid vm.a.group: {expected}"));
    let twice = message("[daemon]\n[vm.a]\nsocket = \"/s\"\n[daemon]\ncontrol = \"/c\"\n");
    let told = "duplicate key; this table is there already: put the keys into the first one";
    assert_eq!(twice, format!("ccc.toml:4:2: invalid syntax: expected TOML, got {told}"));
    for other in ["[ vm.'a' ]", "  [vm.a] # again"] {
        let twice = message(&format!("[vm.a]\nsocket = \"/s\"\n{other}\nweight = 1\n"));
        assert!(twice.ends_with(told), "{other}: {twice}");
    }
    let other = message("[vm.a]\nsocket = \"/s\"\n[vm.a.socket]\npath = \"/t\"\n");
    let told =
        "duplicate key; a key of this name is there already, and no such table: keep one of them";
    assert!(other.ends_with(told), "{other}");
    let twice = message("[vm.a]\nsocket = \"/s\"\nsocket = \"/t\"\n");
    assert!(
        twice.ends_with("duplicate key; this key is there already: keep one of them"),
        "{twice}"
    );
    let words = message("[group.g]\nshare = \"all\"\n[vm.a]\nsocket = \"/s\"\n");
    assert_eq!(words, "ccc.toml:2:1: invalid group.g.share: expected window or rate, got \"all\"");
    let key = message("[vm.a]\nsocket = \"/s\"\nwieght = 1\n");
    let expected = "expected socket, weight, group, coupled, tap, floor_mbit, cap_mbit, device or tenant, got an unknown key";
    assert_eq!(key, format!("ccc.toml:3:1: invalid vm.a.wieght: {expected}"));
    let without = message("[vm.a]\n");
    assert!(without.starts_with("ccc.toml:1:5: invalid vm.a.socket: expected an absolute path"));
    assert!(without.ends_with(", got nothing"), "{without}");
}

#[test]
fn wrong_syntax_is_told_with_its_line() {
    assert_eq!(faults("[vm.a]\nsocket = \n")[0].0, 2);
    assert_eq!(faults("[vm.a]\nsocket = \"/a\"\nsocket = \"/b\"\n")[0].0, 3);
}

#[test]
fn unknown_keys_are_told() {
    let unknown = |line, key: &str| is(line, &format!("{key} an unknown key"));
    assert_eq!(fault("[vm.a]\nsocket = \"/s\"\n[x]\n"), unknown(3, "x"));
    assert_eq!(fault("[vm.a]\nsocket = \"/s\"\nwieght = 1\n"), unknown(3, "vm.a.wieght"));
    let in_group = fault("[group.g]\ncolour = 1\n[vm.a]\nsocket = \"/s\"\n");
    assert_eq!(in_group, unknown(2, "group.g.colour"));
}

#[test]
fn wrong_groups_are_told() {
    let with = |line: &str| fault(&format!("[group.g]\n{line}\n[vm.a]\nsocket = \"/s\"\n"));
    assert_eq!(with("policy = \"x\""), is(2, "group.g.policy \"x\""));
    assert_eq!(with("policy = 1"), is(2, "group.g.policy 1"));
    assert_eq!(with("share = true"), is(2, "group.g.share true"));
    assert_eq!(with("equivalent_tcps = 0"), is(2, "group.g.equivalent_tcps 0"));
    assert_eq!(with("equivalent_tcps = nan"), is(2, "group.g.equivalent_tcps nan"));
    assert_eq!(with("equivalent_tcps = \"1\""), is(2, "group.g.equivalent_tcps \"1\""));
    assert_eq!(with("coupled = 1"), is(2, "group.g.coupled 1"));
}

#[test]
fn wrong_vms_are_told() {
    let with = |line: &str| fault(&format!("[vm.a]\nsocket = \"/s\"\n{line}\n"));
    for weight in ["0.009", "1001", "-1", "\"1\""] {
        assert_eq!(with(&format!("weight = {weight}")), is(3, &format!("vm.a.weight {weight}")));
    }
    assert_eq!(with("group = \"g\""), is(3, "vm.a.group \"g\""));
    assert_eq!(with("group = 1"), is(3, "vm.a.group 1"));
    assert_eq!(fault("[vm.a]\nweight = 1\n"), is(1, "vm.a.socket nothing"));
    let long = format!("\"/{}\"", "x".repeat(107));
    for socket in ["1", "\"\"", "\"s\"", "\"/a/../b\"", &long] {
        let told = fault(&format!("[vm.a]\nsocket = {socket}\n"));
        assert_eq!(told, is(2, &format!("vm.a.socket {socket}")));
    }
}

#[test]
fn wrong_tables_are_told() {
    assert_eq!(fault("vm = 1\n"), is(1, "vm 1"));
    assert_eq!(fault("[vm]\na = 1\n"), is(2, "vm.a 1"));
    assert_eq!(fault("[vm.\"a b\"]\nsocket = \"/s\"\n"), is(1, "name of a vm \"a b\""));
    assert_eq!(fault("[group.g]\n"), is(1, "vm nothing"));
}

#[test]
fn a_socket_of_two_vms_is_told() {
    let text = "[vm.a]\nsocket = \"/s\"\n[vm.b]\nsocket = \"/s\"\n";
    assert_eq!(fault(text), is(4, "vm.b.socket \"/s\""));
}

#[test]
fn a_tap_of_two_vms_is_told() {
    let text =
        "[vm.a]\nsocket = \"/a\"\ntap = \"vnet0\"\n[vm.b]\nsocket = \"/b\"\ntap = \"vnet0\"\n";
    assert_eq!(fault(text), is(6, "vm.b.tap \"vnet0\""));
    let message = parse("ccc.toml", text).expect_err("a fault").to_string();
    let place = "ccc.toml:6:1: invalid vm.b.tap: expected an interface that VM `a` does not have";
    assert!(message.starts_with(place), "{message}");
    assert!(message.contains("; a tap is one VM's: name this VM's own"), "{message}");
    read("[vm.a]\nsocket = \"/a\"\ntap = \"none\"\n[vm.b]\nsocket = \"/b\"\ntap = \"none\"\n");
}

#[test]
fn a_place_is_one_tenants() {
    let text = "[vm.a]\nsocket = \"/a\"\ntenant = \"vsock:7\"\n[vm.b]\nsocket = \"/b\"\n";
    let twice = format!("{text}tenant = \"vsock:7\"\n");
    assert_eq!(fault(&twice), is(6, "vm.b.tenant \"vsock:7\""));
    let mut settings = read(text);
    let spec = VmSpec::read(json!({"socket": "/c", "tenant": "vsock:07"})).expect("right");
    let refused = settings.new_vm("c", &spec).expect_err("taken").to_string();
    assert!(refused.starts_with("vsock:07 is the tenant `a` already"), "{refused}");
    let tenant = |place| Changes::read(json!({"tenant": place})).expect("right");
    settings.change_vm("b", &tenant("vsock:7")).expect_err("taken");
    settings.change_vm("a", &tenant("vsock:7")).expect("its own");
    settings.change_vm("a", &tenant("vsock:8")).expect("free");
    settings.change_vm("b", &tenant("vsock:7")).expect("free now");
}

#[test]
fn a_process_s_namespace_of_before_stops_nobody_and_no_new_one_is_taken() {
    let of_before = "netns:/proc/7/ns/net";
    let text = format!("[vm.a]\nsocket = \"/a\"\ntenant = \"{of_before}\"\n");
    let mut settings = read(&text);
    let told: Vec<_> = settings.never_found().collect();
    assert!(
        told[0].starts_with("VM a: its tenant netns:/proc/7/ns/net is never found"),
        "{told:?}"
    );
    assert!(told.len() == 1 && told[0].contains("ip netns attach NAME PID"), "{told:?}");
    let kept = json!({"version": 1, "added": {"b": {"socket": "/b"}},
        "vms": {"b": {"tenant": "netns:/proc/8/ns/net"}}});
    let mut state = state::State::from_json(kept.clone()).expect("of before");
    state.apply(&mut settings);
    assert_eq!(state.json()["vms"], kept["vms"], "and is written so");
    assert_eq!(settings.never_found().count(), 2);
    let tenant = |place| Changes::read(json!({"tenant": place})).expect("right");
    for name in ["a", "b"] {
        let refused = settings.change_vm(name, &tenant("netns:/proc/9/ns/net"));
        let refused = refused.expect_err("a new one").to_string();
        assert!(refused.contains("got \"netns:/proc/9/ns/net\"; a process's number"), "{refused}");
    }
    let spec = VmSpec::read(json!({"socket": "/c", "tenant": of_before})).expect("right");
    settings.new_vm("c", &spec).expect_err("a new one");
    settings.change_vm("a", &tenant("netns:a")).expect("a name");
    settings.change_vm("a", &tenant(of_before)).expect("as the configuration says");
}

#[test]
fn directories_of_sockets_are_told_once() {
    let mut settings = read("[vm.a]\nsocket = \"/a\"\n");
    let directories = ["/run/ccc", "/run/ccc/control", "/srv/a", "/srv/ab"].map(PathBuf::from);
    settings.socket_directories = Some(directories.into());
    let spec = VmSpec::read(json!({"socket": "/nowhere/s"})).expect("right");
    let refused = settings.new_vm("b", &spec).expect_err("elsewhere").to_string();
    assert!(refused.contains("a path below /run/ccc or /srv/a or /srv/ab, got"), "{refused}");
}

#[test]
fn a_tap_goes_over_to_another_vm_only_when_it_is_free() {
    let mut settings = read("[vm.a]\nsocket = \"/a\"\ntap = \"vnet0\"\n[vm.b]\nsocket = \"/b\"\n");
    let change = |value| Changes::read(value).expect("right");
    let tap = |tap| change(json!({"tap": tap}));
    let refused = settings.change_vm("b", &tap("vnet0")).expect_err("taken").to_string();
    assert!(refused.starts_with("invalid tap: expected an interface that VM `a`"), "{refused}");
    let spec = VmSpec::read(json!({"socket": "/c", "tap": "vnet0"})).expect("right");
    assert!(settings.new_vm("c", &spec).is_err(), "nor can a new one have it");
    settings.change_vm("a", &tap("vnet0")).expect("its own");
    settings.change_vm("a", &tap("none")).expect("none");
    settings.change_vm("b", &tap("vnet0")).expect("free");
}

#[test]
fn a_state_file_may_exchange_taps_and_what_it_doubles_is_known() {
    let text =
        "[vm.a]\nsocket = \"/a\"\ntap = \"vnet0\"\n[vm.b]\nsocket = \"/b\"\ntap = \"vnet1\"\n";
    let with = |a: &str, b: &str| {
        let mut settings = read(text);
        let vms = json!({"a": {"tap": a}, "b": {"tap": b, "weight": 2}});
        let mut state = state::State::from_json(json!({"version": 1, "vms": vms})).expect("right");
        state.apply(&mut settings);
        settings
    };
    let exchanged = with("vnet1", "vnet0");
    assert_eq!(exchanged.vms[&0].settings.tap.as_deref(), Some("vnet1"));
    assert!(exchanged.doubled_taps().is_empty());
    let mut doubled = with("vnet1", "vnet1");
    assert_eq!(doubled.doubled_taps().into_iter().collect::<Vec<_>>(), ["vnet1"]);
    assert_eq!(doubled.vms[&1].settings.weight, 2.0, "the rest is in force");
    let weight = Changes::read(json!({"weight": 3})).expect("right");
    doubled.change_vm("a", &weight).expect("no matter of its tap");
}

#[test]
fn all_faults_are_told_in_order() {
    let text = "[vm.b]\nsocket = 1\n[vm.a]\nsocket = \"/s\"\nweight = 0\ngroup = \"g\"\n";
    let lines: Vec<_> = faults(text).iter().map(|fault| fault.0).collect();
    assert_eq!(lines, [2, 5, 6]);
}

#[test]
fn the_daemons_own_settings_are_read() {
    let daemon =
        |lines: &str| read(&format!("[daemon]\n{lines}\n[vm.a]\nsocket = \"/s\"\n")).daemon;
    let paths = daemon("control = \"/run/c\"\noperators = \"ops\"\nstate = \"/lib/s\"");
    assert_eq!(paths.control, Some(PathBuf::from("/run/c")));
    assert_eq!(paths.operators.as_deref(), Some("ops"));
    assert_eq!(paths.state, Some(PathBuf::from("/lib/s")));
    let limits = daemon("max_flows = 5\nmax_flows_per_vm = 0x10\nmax_memory_gib_per_vm = 64");
    assert_eq!((limits.max_flows, limits.max_flows_per_vm), (5, 16));
    assert_eq!(limits.max_memory_bytes_per_vm(), 64 << 30);
    let usual = daemon("");
    assert_eq!((usual.max_flows, usual.max_flows_per_vm), (131_072, 16_384));
    assert_eq!((usual.max_memory_gib_per_vm, usual.poll_max_us), (1024, 0));
    assert_eq!(daemon("poll_max_us = 50").poll_max_us, 50);
    let slots = f64::from(crate::device::extents::MAX_SLOTS);
    let fields = <DaemonSettings as ccc_settings::Table>::fields();
    let flows = fields.iter().find(|field| field.name == "max_flows_per_vm").expect("there");
    assert_eq!(flows.range(), Some((1.0, slots)), "a flow has a slot");
}

#[test]
fn t9_the_daemons_wrong_settings_are_told() {
    let with = |line: &str| fault(&format!("[daemon]\n{line}\n[vm.a]\nsocket = \"/s\"\n"));
    assert_eq!(with("contorl = \"c\""), is(2, "daemon.contorl an unknown key"));
    for line in [
        "state = 1",
        "state = \"s\"",
        "control = \"c\"",
        "operators = \"\"",
        "max_flows = 0",
        "max_flows = 1048577",
        "max_flows = 1.5",
        "max_flows_per_vm = 65537",
        "max_flows_per_vm = -1",
        "max_memory_gib_per_vm = 0",
        "poll_max_us = 1001",
        "poll_max_us = -1",
    ] {
        let (key, value) = line.split_once(" = ").expect("a key");
        assert_eq!(with(line), is(2, &format!("daemon.{key} {value}")));
    }
    // What JSON does not have is no string.
    assert_eq!(with("operators = inf"), is(2, "daemon.operators inf"));
    let date = "daemon.operators 1979-05-27";
    assert_eq!(with("operators = 1979-05-27"), is(2, date));
    let large = "daemon.operators 99999999999999999999";
    assert_eq!(with("operators = 99999999999999999999"), is(2, large));
    assert_eq!(with("state = [nan,\n  1]"), is(2, "daemon.state [nan, 1]"));
    assert_eq!(fault("rule = -inf\n[vm.a]\nsocket = \"/s\"\n"), is(1, "rule -inf"));
    assert_eq!(with("when = 1979-05-27"), is(2, "daemon.when an unknown key"));
    assert_eq!(fault("daemon = 1\n"), is(1, "daemon 1"));
}

#[test]
fn rules_are_read_in_their_order() {
    let settings = read(
        "[group.g]\n[vm.a]\nsocket = \"/s\"\ngroup = \"none\"\ncoupled = false\n\
         [[rule]]\nvm = \"a\"\ndestination = \"10.0.0.0/8\"\ngroup = \"none\"\n\
         [[rule]]\ndestination = \"2001:db8::/32\"\ngroup = \"g\"\n\
         [[rule]]\ngroup = \"default\"\n",
    );
    let net = |text: &str| Some(text.parse().expect("prefix"));
    let read: Vec<_> =
        settings.rules.iter().map(|rule| (rule.vm, rule.destination, rule.group)).collect();
    let expected = [
        (Some(0), net("10.0.0.0/8"), None),
        (None, net("2001:db8::/32"), Some(0)),
        (None, None, Some(1)),
    ];
    assert_eq!(read, expected);
    let vm = &settings.vms[&0];
    assert_eq!((vm.group(), vm.settings.coupled), (None, false));
}

#[test]
fn wrong_rules_are_told() {
    let with = |lines: &str| fault(&format!("[vm.a]\nsocket = \"/s\"\n[[rule]]\n{lines}\n"));
    assert_eq!(with("vm = \"a\""), is(3, "rule[0].group nothing"));
    assert_eq!(with("group = \"x\""), is(4, "rule[0].group \"x\""));
    assert_eq!(with("group = \"none\"\nvm = \"b\""), is(5, "rule[0].vm \"b\""));
    assert_eq!(with("group = \"none\"\nfrom = 1"), is(5, "rule[0].from an unknown key"));
    let net = |text: &str| with(&format!("group = \"none\"\ndestination = \"{text}\""));
    assert_eq!(net("10.0.0.0"), is(5, "rule[0].destination \"10.0.0.0\""));
    assert_eq!(net("10.0.0.1/8"), is(5, "rule[0].destination \"10.0.0.1/8\""));
    let bits = prefix("10.0.0.1/8").expect_err("bits");
    assert_eq!(bits.remedy.as_deref(), Some("write 10.0.0.0/8"));
    assert_eq!(fault("rule = 1\n[vm.a]\nsocket = \"/s\"\n"), is(1, "rule 1"));
    assert_eq!(fault("rule = [1]\n[vm.a]\nsocket = \"/s\"\n"), is(1, "rule[0] 1"));
    let many = "[[rule]]\ngroup = \"none\"\n".repeat(257);
    assert_eq!(faults(&format!("[vm.a]\nsocket = \"/s\"\n{many}"))[0].1, "rule 257");
}

#[test]
fn no_group_has_a_name_of_its_own() {
    let text = "[group.none]\n[vm.a]\nsocket = \"/s\"\n";
    assert_eq!(fault(text), is(1, "group.none \"none\""));
}

fn routed() -> Settings {
    read(
        "[group.g]\n[group.h]\n[vm.a]\nsocket = \"/a\"\ngroup = \"g\"\n\
         [vm.b]\nsocket = \"/b\"\ngroup = \"none\"\n\
         [[rule]]\nvm = \"a\"\ndestination = \"10.1.0.0/16\"\ngroup = \"none\"\n\
         [[rule]]\ndestination = \"10.0.0.0/8\"\ngroup = \"h\"\n\
         [[rule]]\nvm = \"b\"\ndestination = \"2001:db8::/32\"\ngroup = \"g\"\n",
    )
}

fn to(address: &str) -> IpAddr {
    address.parse().expect("address")
}

#[test]
fn the_first_rule_that_matches_decides() {
    let settings = routed();
    assert_eq!(settings.route(0, to("10.1.2.3")), None);
    assert_eq!(settings.route(1, to("10.1.2.3")), Some(1));
    assert_eq!(settings.route(0, to("10.2.2.3")), Some(1));
    assert_eq!(settings.route(0, to("::ffff:10.2.2.3")), Some(1), "the same address");
    assert_eq!(settings.route(0, to("2001:db8::1")), Some(0), "that of its VM");
    assert_eq!(settings.route(1, to("2001:db8::1")), Some(0));
    assert_eq!(settings.route(1, to("192.0.2.1")), None);
    assert_eq!(settings.route(2, to("10.2.2.3")), None, "no such VM");
}

#[test]
fn rules_that_are_new_concern_the_vms_that_they_lead_elsewhere() {
    let mut settings = routed();
    let rule = |vm: &str, destination: &str, group: &str| RuleSettings {
        vm: (!vm.is_empty()).then(|| vm.to_owned()),
        destination: Some(destination.to_owned()),
        group: Some(group.to_owned()),
    };
    let none_of_a = vec![rule("", "10.0.0.0/8", "h"), rule("b", "2001:db8::/32", "g")];
    for (rules, expected) in [
        (none_of_a.clone(), vec![0]),
        (none_of_a, vec![]),
        (vec![rule("b", "10.0.0.0/8", "h"), rule("", "10.0.0.0/8", "h")], vec![1]),
        (vec![rule("a", "10.0.0.0/8", "h"), rule("b", "10.0.0.0/8", "h")], vec![1]),
        (vec![rule("", "10.0.0.0/8", "g")], vec![0, 1]),
    ] {
        let before = settings.rules.clone();
        settings.set_rules(&rules).expect("right");
        assert_eq!(settings.rerouted(&before), expected, "{rules:?}");
    }
}

#[test]
fn what_is_not_coupled_goes_nowhere() {
    let mut settings = routed();
    let off = || json!({"coupled": false});
    settings.change_group("h", &Changes::read(off()).expect("right")).expect("there");
    assert_eq!(settings.route(0, to("10.2.2.3")), None);
    settings.change_vm("a", &Changes::read(off()).expect("right")).expect("there");
    assert_eq!(settings.route(0, to("192.0.2.1")), None);
}

#[test]
fn a_wrong_change_changes_nothing_and_names_what_may_be_meant() {
    let mut settings = routed();
    let before = settings.clone();
    let change = |value| Changes::read(value).expect("right");
    let error = settings.change_vm("a", &change(json!({"weight": 2, "group": "hh"})));
    let SettingsError::Field(fault) = error.expect_err("no such group") else { panic!("a field") };
    assert_eq!(
        (fault.field.as_str(), fault.remedy.as_deref()),
        ("group", Some("did you mean `h`?"))
    );
    assert_eq!(settings.vm("x").expect_err("none").to_string(), "no VM `x`");
    assert_eq!(settings, before);
}
