// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Every fault a configuration can have.
use ccc_core::{EquivalentTcps, GrowthSource, ShareOf};

use super::*;
use crate::settings::Limits;

fn faults(text: &str) -> Vec<(usize, String)> {
    let error = Config::parse("ccc.toml", text).expect_err("a fault");
    error.faults().iter().map(|fault| (fault.line, fault.reason.clone())).collect()
}

/// The one fault of a file.
fn fault(text: &str) -> (usize, String) {
    let all = faults(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().expect("one")
}

fn is(line: usize, reason: &str) -> (usize, String) {
    (line, reason.to_owned())
}

#[test]
fn a_whole_file_is_read() {
    let text = "[group.uplink]\npolicy = \"ctrltcp\"\nshare = \"rate\"\nequivalent_tcps = 2\n\
                growth_source = \"first\"\n\
                [vm.a]\nsocket = \"/run/a\"\ngroup = \"uplink\"\nweight = 3\n\
                [vm.b]\nsocket = \"/run/b\"\n";
    let config = Config::parse("ccc.toml", text).expect("right");
    let settings = config.settings;
    let (a, b) = (&settings.vms[&0], &settings.vms[&1]);
    let uplink = &settings.groups[a.group.expect("a group")];
    assert_eq!((uplink.name.as_str(), uplink.coupled), ("uplink", true));
    assert_eq!(
        (uplink.config.share, uplink.config.growth_source),
        (ShareOf::Rate, GrowthSource::First)
    );
    assert_eq!(Some(uplink.config.equivalent_tcps), EquivalentTcps::from_f64(2.0));
    assert_eq!(Some(a.weight.value), Weight::from_f64(3.0));
    assert_eq!(settings.groups[b.group.expect("a group")].name, DEFAULT_GROUP);
    assert_eq!((b.weight.value, b.coupled), (Weight::ONE, true));
    assert_eq!((config.control, config.state), (None, None));
}

#[test]
fn message_has_file_line_reason_and_remedy() {
    let error = Config::parse("ccc.toml", "[vm.a]\nsocket = \"/s\"\nweight = 0\n");
    let message = error.expect_err("a fault").to_string();
    assert_eq!(message, "ccc.toml:3: weight 0 is out of range; use 0.01 to 1000");
}

#[test]
fn wrong_syntax_is_told_with_its_line() {
    assert_eq!(faults("[vm.a]\nsocket = \n")[0].0, 2);
    assert_eq!(faults("[vm.a]\nsocket = \"/a\"\nsocket = \"/b\"\n")[0].0, 3);
}

#[test]
fn unknown_keys_are_told() {
    assert_eq!(fault("[vm.a]\nsocket = \"/s\"\n[x]\n"), is(3, "unknown key `x`"));
    let in_vm = fault("[vm.a]\nsocket = \"/s\"\nwieght = 1\n");
    assert_eq!(in_vm, is(3, "unknown key `wieght` in VM `a`"));
    let in_group = fault("[group.g]\ncolour = 1\n[vm.a]\nsocket = \"/s\"\n");
    assert_eq!(in_group, is(2, "unknown key `colour` in group `g`"));
}

#[test]
fn wrong_groups_are_told() {
    let with = |line: &str| fault(&format!("[group.g]\n{line}\n[vm.a]\nsocket = \"/s\"\n"));
    assert_eq!(with("policy = \"x\""), is(2, "unknown policy `x`"));
    assert_eq!(with("policy = 1"), is(2, "`policy` is no string"));
    assert_eq!(with("growth_source = \"x\""), is(2, "unknown growth_source `x`"));
    assert_eq!(with("share = \"x\""), is(2, "unknown share `x`"));
    assert_eq!(with("share = true"), is(2, "`share` is no string"));
    assert_eq!(with("equivalent_tcps = 0"), is(2, "equivalent_tcps 0 is out of range"));
    assert_eq!(with("equivalent_tcps = nan"), is(2, "equivalent_tcps NaN is out of range"));
    assert_eq!(with("equivalent_tcps = \"1\""), is(2, "`equivalent_tcps` is no number"));
}

#[test]
fn wrong_vms_are_told() {
    let with = |line: &str| fault(&format!("[vm.a]\nsocket = \"/s\"\n{line}\n"));
    assert_eq!(with("weight = 0.009"), is(3, "weight 0.009 is out of range"));
    assert_eq!(with("weight = 1001"), is(3, "weight 1001 is out of range"));
    assert_eq!(with("weight = -1"), is(3, "weight -1 is out of range"));
    assert_eq!(with("weight = \"1\""), is(3, "`weight` is no number"));
    assert_eq!(with("group = \"g\""), is(3, "unknown group `g`"));
    assert_eq!(with("group = 1"), is(3, "`group` is no string"));
    assert_eq!(fault("[vm.a]\nweight = 1\n"), is(1, "VM `a` has no socket"));
    assert_eq!(fault("[vm.a]\nsocket = 1\n"), is(2, "`socket` is no string"));
    assert_eq!(fault("[vm.a]\nsocket = \"\"\n"), is(2, "the path of `socket` is empty"));
    assert_eq!(fault("[vm.a]\nsocket = \"s\"\n"), is(2, "the path of `socket` is relative: `s`"));
    let long = format!("[vm.a]\nsocket = \"{}\"\n", "x".repeat(108));
    assert_eq!(fault(&long), is(2, "the path of `socket` has 108 bytes"));
}

#[test]
fn wrong_tables_are_told() {
    assert_eq!(fault("vm = 1\n"), is(1, "`vm` is no table"));
    assert_eq!(fault("[vm]\na = 1\n"), is(2, "`a` is no table"));
    assert_eq!(fault("[vm.\"a b\"]\nsocket = \"/s\"\n"), is(1, "`a b` is no name"));
    assert_eq!(fault("[group.g]\n"), is(1, "no VM"));
}

#[test]
fn a_socket_of_two_vms_is_told() {
    let text = "[vm.a]\nsocket = \"/s\"\n[vm.b]\nsocket = \"/s\"\n";
    assert_eq!(fault(text), is(4, "socket `/s` is that of VM `a`"));
}

#[test]
fn all_faults_are_told_in_order() {
    let text = "[vm.b]\nsocket = 1\n[vm.a]\nsocket = \"/s\"\nweight = 0\ngroup = \"g\"\n";
    let lines: Vec<_> = faults(text).iter().map(|fault| fault.0).collect();
    assert_eq!(lines, [2, 5, 6]);
}

#[test]
fn the_daemons_own_paths_are_read() {
    let text = "[daemon]\ncontrol = \"/run/c\"\noperators = \"ops\"\nstate = \"/lib/s\"\n\
                [vm.a]\nsocket = \"/s\"\n";
    let config = Config::parse("ccc.toml", text).expect("right");
    assert_eq!(config.control, Some(PathBuf::from("/run/c")));
    assert_eq!(config.operators.as_deref(), Some("ops"));
    assert_eq!(config.state, Some(PathBuf::from("/lib/s")));
    let with = |line: &str| fault(&format!("[daemon]\n{line}\n[vm.a]\nsocket = \"/s\"\n"));
    assert_eq!(with("contorl = \"c\""), is(2, "unknown key `contorl` in [daemon]"));
    assert_eq!(with("state = 1"), is(2, "`state` is no string"));
    assert_eq!(with("operators = \"\""), is(2, "the group of `operators` is empty"));
    assert_eq!(fault("daemon = 1\n"), is(1, "`daemon` is no table"));
}

#[test]
fn t9_limits_of_flows_are_read() {
    let limits = |lines: &str| {
        let text = format!("[daemon]\n{lines}\n[vm.a]\nsocket = \"/s\"\n");
        let Limits { flows, flows_per_vm, memory_gib_per_vm } =
            Config::parse("ccc.toml", &text).expect("right").settings.limits;
        (flows, flows_per_vm, memory_gib_per_vm)
    };
    assert_eq!(limits(""), (131_072, 16_384, 1024));
    let all = "max_flows = 5\nmax_flows_per_vm = 0x10\nmax_memory_gib_per_vm = 64";
    assert_eq!(limits(all), (5, 16, 64));
    let with = |line: &str| fault(&format!("[daemon]\n{line}\n[vm.a]\nsocket = \"/s\"\n"));
    assert_eq!(with("max_flows = 0"), is(2, "max_flows 0 is out of range"));
    assert_eq!(with("max_flows = 1048577"), is(2, "max_flows 1048577 is out of range"));
    let slots = "max_flows_per_vm 65537 is out of range";
    assert_eq!(with("max_flows_per_vm = 65537"), is(2, slots));
    assert_eq!(with("max_flows_per_vm = -1"), is(2, "max_flows_per_vm -1 is out of range"));
    assert_eq!(with("max_flows = 1.5"), is(2, "`max_flows` is no whole number"));
}

#[test]
fn rules_are_read_in_their_order() {
    let text = "[group.g]\n[vm.a]\nsocket = \"/s\"\ngroup = \"none\"\ncoupled = false\n\
                [[rule]]\nvm = \"a\"\ndestination = \"10.0.0.0/8\"\ngroup = \"none\"\n\
                [[rule]]\ndestination = \"2001:db8::/32\"\ngroup = \"g\"\n\
                [[rule]]\ngroup = \"default\"\n";
    let settings = Config::parse("ccc.toml", text).expect("right").settings;
    let read: Vec<_> = settings
        .rules
        .iter()
        .map(|rule| (rule.vm, rule.destination.map(|net| net.to_string()), rule.group))
        .collect();
    let net = |text: &str| Some(text.to_owned());
    let expected = [
        (Some(0), net("10.0.0.0/8"), None),
        (None, net("2001:db8::/32"), Some(0)),
        (None, None, Some(1)),
    ];
    assert_eq!(read, expected);
    assert_eq!((settings.vms[&0].group, settings.vms[&0].coupled), (None, false));
}

#[test]
fn wrong_rules_are_told() {
    let with = |lines: &str| fault(&format!("[vm.a]\nsocket = \"/s\"\n[[rule]]\n{lines}\n"));
    assert_eq!(with("vm = \"a\""), is(3, "a rule has no group"));
    assert_eq!(with("group = \"x\""), is(4, "unknown group `x`"));
    assert_eq!(with("group = \"none\"\nvm = \"b\""), is(5, "unknown VM `b`"));
    assert_eq!(with("group = \"none\"\nfrom = 1"), is(5, "unknown key `from` in a rule"));
    let net = |text: &str| with(&format!("group = \"none\"\ndestination = \"{text}\""));
    assert_eq!(net("10.0.0.0"), is(5, "`10.0.0.0` is no address prefix"));
    assert_eq!(net("10.0.0.1/8"), is(5, "`10.0.0.1/8` has bits behind its prefix"));
    assert_eq!(fault("rule = 1\n[vm.a]\nsocket = \"/s\"\n"), is(1, "`rule` is no list of tables"));
    assert_eq!(fault("rule = [1]\n[vm.a]\nsocket = \"/s\"\n"), is(1, "a rule is no table"));
    let many = "[[rule]]\ngroup = \"none\"\n".repeat(257);
    assert_eq!(faults(&format!("[vm.a]\nsocket = \"/s\"\n{many}"))[0].1, "257 rules");
}

#[test]
fn no_group_has_a_name_of_its_own() {
    let text = "[group.none]\n[vm.a]\nsocket = \"/s\"\n";
    assert_eq!(fault(text), is(1, "a group cannot be called `none`"));
    let flag = "[group.g]\ncoupled = 1\n[vm.a]\nsocket = \"/s\"\n";
    assert_eq!(fault(flag), is(2, "`coupled` is neither true nor false"));
}
