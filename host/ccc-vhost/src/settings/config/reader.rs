// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Walks the configuration file.
use std::{collections::BTreeMap, ops::Range, path::PathBuf};

use ccc_core::Weight;
use ipnet::IpNet;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Config, Fault};
use crate::{
    device::table::MAX_SLOTS,
    settings::values::{self, Given, NO_GROUP, SOCKET_PATH_MAX, ValueError},
    settings::{DEFAULT_GROUP, Group, Limits, MAX_RULES, Rule, Settings, Vm},
};

type Value<'i> = Spanned<DeValue<'i>>;
type Entry<'a, 'i> = (&'a str, Range<usize>, &'a Value<'i>);
/// A table with its name and the place of that.
type Named<'a, 'i> = (&'a str, Range<usize>, &'a DeTable<'i>);

/// Flows the daemon can be told to couple at a time: 600 MB of them.
const MOST_FLOWS: usize = 1 << 20;
/// Guest memory a VM can be allowed: half of what all may have.
const MOST_MEMORY_GIB: usize = 48 << 10;

/// Reads a file, or tells all its faults in the order of its lines.
pub(super) fn read(text: &str) -> Result<Config, Vec<Fault>> {
    let mut reader = Reader { text, faults: Vec::new() };
    let config = match DeTable::parse(text) {
        Ok(root) => reader.root(root.get_ref()),
        Err(error) => {
            reader.syntax(&error);
            Config::default()
        }
    };
    reader.faults.sort_by_key(|fault| fault.line);
    if reader.faults.is_empty() { Ok(config) } else { Err(reader.faults) }
}

struct Reader<'i> {
    text: &'i str,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn fault(&mut self, at: Range<usize>, reason: impl Into<String>, remedy: impl Into<String>) {
        let before = self.text.as_bytes().iter().take(at.start);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        self.faults.push(Fault { line, reason: reason.into(), remedy: remedy.into() });
    }

    fn syntax(&mut self, error: &toml::de::Error) {
        let reason = error.message().lines().collect::<Vec<_>>().join(", ");
        self.fault(error.span().unwrap_or(0..0), reason, "correct the TOML");
    }

    fn unknown(&mut self, at: Range<usize>, key: &str, place: &str, known: &str) {
        self.fault(at, format!("unknown key `{key}`{place}"), known);
    }

    fn root(&mut self, root: &DeTable<'_>) -> Config {
        let mut config = Config::default();
        let (mut groups, mut vms, mut rules) = (Vec::new(), Vec::new(), Vec::new());
        for (key, at, value) in entries(root) {
            match key {
                "daemon" => self.daemon(value, &mut config),
                "group" => groups = self.tables("group", value),
                "vm" => vms = self.tables("vm", value),
                "rule" => rules = self.rule_tables(value),
                _ => self.unknown(
                    at,
                    key,
                    "",
                    "only [daemon], [group.NAME], [vm.NAME] and [[rule]] stand at the top",
                ),
            }
        }
        let settings = &mut config.settings;
        settings.groups = self.groups(&groups);
        settings.vms = self.vms(&vms, &settings.groups).into_iter().enumerate().collect();
        settings.rules = rules.iter().map(|table| self.rule(table, settings)).collect();
        if config.settings.vms.is_empty() && config.control.is_none() && self.faults.is_empty() {
            let remedy = "add a [vm.NAME] with a socket, or `control` to [daemon] to add VMs later";
            self.fault(0..0, "no VM", remedy);
        }
        config
    }

    fn daemon(&mut self, value: &Value<'_>, config: &mut Config) {
        let DeValue::Table(table) = value.get_ref() else {
            self.fault(value.span(), "`daemon` is no table", "write [daemon]");
            return;
        };
        let mut limits = Limits::default();
        for (key, at, value) in entries(table) {
            match key {
                "control" => config.control = self.path("control", value, SOCKET_PATH_MAX),
                "operators" => config.operators = self.operators(value),
                "state" => config.state = self.path("state", value, 4095),
                "max_flows" => self.count(key, value, MOST_FLOWS, &mut limits.flows),
                "max_flows_per_vm" => {
                    self.count(key, value, MAX_SLOTS as usize, &mut limits.flows_per_vm);
                }
                "max_memory_gib_per_vm" => {
                    self.count(key, value, MOST_MEMORY_GIB, &mut limits.memory_gib_per_vm);
                }
                _ => {
                    let known = "the daemon has `control`, `operators`, `state`, `max_flows`, \
                                 `max_flows_per_vm` and `max_memory_gib_per_vm`";
                    self.unknown(at, key, " in [daemon]", known);
                }
            }
        }
        config.settings.limits = limits;
    }

    /// Sets a number of things, at least one.
    fn count(&mut self, key: &str, value: &Value<'_>, most: usize, to: &mut usize) {
        let DeValue::Integer(number) = value.get_ref() else {
            let remedy = format!("write {key} = {to}, or another of 1 to {most}");
            self.fault(value.span(), format!("`{key}` is no whole number"), remedy);
            return;
        };
        match usize::from_str_radix(number.as_str(), number.radix()) {
            Ok(count) if (1..=most).contains(&count) => *to = count,
            _ => {
                let reason = format!("{key} {} is out of range", number.as_str());
                self.fault(value.span(), reason, format!("use 1 to {most}"));
            }
        }
    }

    fn operators(&mut self, value: &Value<'_>) -> Option<String> {
        let group = self.string("operators", value)?;
        if group.is_empty() {
            let remedy = "name a group of users, or leave it out for root only";
            self.fault(value.span(), "the group of `operators` is empty", remedy);
            return None;
        }
        Some(group.to_owned())
    }

    /// The tables below `[kind]`, with the places of their names.
    fn tables<'a, 'i>(&mut self, kind: &str, value: &'a Value<'i>) -> Vec<Named<'a, 'i>> {
        let DeValue::Table(table) = value.get_ref() else {
            let remedy = format!("write [{kind}.NAME]");
            self.fault(value.span(), format!("`{kind}` is no table"), remedy);
            return Vec::new();
        };
        let mut found = Vec::new();
        for (name, at, value) in entries(table) {
            let DeValue::Table(table) = value.get_ref() else {
                let remedy = format!("write [{kind}.{name}] and the keys below it");
                self.fault(at, format!("`{name}` is no table"), remedy);
                continue;
            };
            if !values::is_name(name) {
                let error = ValueError::Name(name.to_owned());
                self.fault(at, error.to_string(), error.remedy());
                continue;
            }
            found.push((name, at, table));
        }
        found
    }

    fn groups(&mut self, tables: &[Named<'_, '_>]) -> Vec<Group> {
        let mut groups = Vec::with_capacity(tables.len() + 1);
        for (name, at, table) in tables {
            if *name == NO_GROUP {
                let reason = format!("a group cannot be called `{NO_GROUP}`");
                self.fault(at.clone(), reason, "that means no group; choose another name");
                continue;
            }
            groups.push(self.group(name, table));
        }
        if !groups.iter().any(|group| group.name == DEFAULT_GROUP) {
            groups.push(Group::new(DEFAULT_GROUP));
        }
        groups
    }

    fn group(&mut self, name: &str, table: &DeTable<'_>) -> Group {
        let mut group = Group::new(name);
        for (key, at, value) in entries(table) {
            match key {
                "policy" => self.set(&mut group.config.policy, key, value, values::policy),
                "share" => self.set(&mut group.config.share, key, value, values::share),
                "growth_source" => self.set(&mut group.config.growth_source, key, value, values::growth_source),
                "equivalent_tcps" => {
                    let read = self.number(key, value);
                    let read = read.and_then(|n| self.accept(value, values::equivalent_tcps(n)));
                    group.equivalent_tcps = read.unwrap_or(group.equivalent_tcps);
                    group.config.equivalent_tcps = group.equivalent_tcps.value;
                }
                "coupled" => group.coupled = self.flag(key, value).unwrap_or(true),
                _ => self.unknown(
                    at,
                    key,
                    &format!(" in group `{name}`"),
                    "a group has `policy`, `share`, `equivalent_tcps`, `growth_source` and `coupled`",
                ),
            }
        }
        group
    }

    /// Sets what is named by a word.
    fn set<T>(
        &mut self,
        to: &mut T,
        key: &str,
        value: &Value<'_>,
        read: fn(&str) -> Result<T, ValueError>,
    ) {
        let word = self.string(key, value);
        if let Some(read) = word.and_then(|word| self.accept(value, read(word))) {
            *to = read;
        }
    }

    fn accept<T>(&mut self, at: &Value<'_>, read: Result<T, ValueError>) -> Option<T> {
        read.map_err(|error| self.fault(at.span(), error.to_string(), error.remedy())).ok()
    }

    fn vms(&mut self, tables: &[Named<'_, '_>], groups: &[Group]) -> Vec<Vm> {
        let mut sockets = BTreeMap::new();
        let mut vms = Vec::new();
        for (name, at, table) in tables {
            let Some((vm, place)) = self.vm(name, at.clone(), table, groups) else { continue };
            if let Some(other) = sockets.insert(vm.socket.clone(), *name) {
                let reason = format!("socket `{}` is that of VM `{other}`", vm.socket.display());
                self.fault(place, reason, format!("give VM `{name}` a socket of its own"));
                continue;
            }
            vms.push(vm);
        }
        vms
    }

    /// A VM and the place of its socket.
    fn vm(
        &mut self,
        name: &str,
        at: Range<usize>,
        table: &DeTable<'_>,
        groups: &[Group],
    ) -> Option<(Vm, Range<usize>)> {
        let default = groups.iter().position(|group| group.name == DEFAULT_GROUP);
        let (mut socket, mut group) = (None, Some(default));
        let (mut weight, mut coupled) = (Some(Given::<Weight>::ONE), Some(true));
        let mut named = false;
        for (key, at, value) in entries(table) {
            match key {
                "socket" => {
                    named = true;
                    let path = self.path("socket", value, SOCKET_PATH_MAX);
                    socket = path.map(|path| (path, value.span()));
                }
                "group" => group = self.reference(value, groups),
                "weight" => {
                    let read = self.number(key, value);
                    weight = read.and_then(|n| self.accept(value, values::weight(n)));
                }
                "coupled" => coupled = self.flag(key, value),
                _ => self.unknown(
                    at,
                    key,
                    &format!(" in VM `{name}`"),
                    "a VM has `socket`, `group`, `weight` and `coupled`",
                ),
            }
        }
        if !named {
            let remedy = "add `socket = \"PATH\"`, where its front end connects";
            self.fault(at, format!("VM `{name}` has no socket"), remedy);
        }
        let (socket, place) = socket?;
        let (group, weight, coupled) = (group?, weight?, coupled?);
        Some((Vm { name: name.to_owned(), socket, group, weight, coupled, added: false }, place))
    }

    fn path(&mut self, key: &str, value: &Value<'_>, most: usize) -> Option<PathBuf> {
        let path = self.string(key, value)?;
        if path.is_empty() {
            self.fault(value.span(), format!("the path of `{key}` is empty"), "name a path");
            return None;
        }
        if path.len() > most {
            let reason = format!("the path of `{key}` has {} bytes", path.len());
            self.fault(value.span(), reason, format!("use at most {most}"));
            return None;
        }
        if !path.starts_with('/') {
            let reason = format!("the path of `{key}` is relative: `{path}`");
            self.fault(value.span(), reason, "begin it with `/`, whatever directory it runs in");
            return None;
        }
        if !values::is_plain(path) {
            let reason = format!("the path of `{key}` is {path:?}");
            let remedy = "leave out `.`, `..`, empty steps and control characters";
            self.fault(value.span(), reason, remedy);
            return None;
        }
        Some(PathBuf::from(path))
    }

    /// A group, or none, by its name.
    fn reference(&mut self, value: &Value<'_>, groups: &[Group]) -> Option<Option<usize>> {
        let name = self.string("group", value)?;
        if name == NO_GROUP {
            return Some(None);
        }
        let found = groups.iter().position(|group| group.name == name);
        if found.is_none() {
            let there: Vec<_> = groups.iter().map(|group| group.name.as_str()).collect();
            let there = there.join(", ");
            let remedy = format!("add [group.{name}] or use one of: {there}, {NO_GROUP}");
            self.fault(value.span(), format!("unknown group `{name}`"), remedy);
        }
        found.map(Some)
    }

    /// The tables of `[[rule]]`.
    fn rule_tables<'a, 'i>(&mut self, value: &'a Value<'i>) -> Vec<Named<'a, 'i>> {
        let DeValue::Array(rules) = value.get_ref() else {
            self.fault(value.span(), "`rule` is no list of tables", "write [[rule]]");
            return Vec::new();
        };
        if rules.len() > MAX_RULES {
            let reason = format!("{} rules", rules.len());
            self.fault(value.span(), reason, format!("use at most {MAX_RULES}"));
            return Vec::new();
        }
        let mut tables = Vec::with_capacity(rules.len());
        for rule in rules.iter() {
            match rule.get_ref() {
                DeValue::Table(table) => tables.push(("rule", rule.span(), table)),
                _ => self.fault(rule.span(), "a rule is no table", "write [[rule]]"),
            }
        }
        tables
    }

    fn rule(&mut self, (_, at, table): &Named<'_, '_>, settings: &Settings) -> Rule {
        let mut rule = Rule { vm: None, destination: None, group: None };
        let mut named = false;
        for (key, at, value) in entries(table) {
            match key {
                "vm" => rule.vm = self.vm_reference(value, settings),
                "destination" => rule.destination = self.destination(value),
                "group" => {
                    named = true;
                    rule.group = self.reference(value, &settings.groups).flatten();
                }
                _ => {
                    let known = "a rule has `vm`, `destination` and `group`";
                    self.unknown(at, key, " in a rule", known);
                }
            }
        }
        if !named {
            let remedy = "add `group = \"NAME\"`, or \"none\" for flows to leave alone";
            self.fault(at.clone(), "a rule has no group", remedy);
        }
        rule
    }

    fn vm_reference(&mut self, value: &Value<'_>, settings: &Settings) -> Option<usize> {
        let name = self.string("vm", value)?;
        let found = settings.vm(name);
        if found.is_none() {
            let remedy = format!("add [vm.{name}] or use the name of one that is there");
            self.fault(value.span(), format!("unknown VM `{name}`"), remedy);
        }
        found
    }

    fn destination(&mut self, value: &Value<'_>) -> Option<IpNet> {
        let written = self.string("destination", value)?;
        self.accept(value, values::prefix(written))
    }

    fn string<'a>(&mut self, key: &str, value: &'a Value<'_>) -> Option<&'a str> {
        let string = value.get_ref().as_str();
        if string.is_none() {
            let remedy = format!("write {key} = \"...\"");
            self.fault(value.span(), format!("`{key}` is no string"), remedy);
        }
        string
    }

    fn flag(&mut self, key: &str, value: &Value<'_>) -> Option<bool> {
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            let remedy = format!("write {key} = true or {key} = false");
            self.fault(value.span(), format!("`{key}` is neither true nor false"), remedy);
        }
        flag
    }

    fn number(&mut self, key: &str, value: &Value<'_>) -> Option<f64> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .ok()
                .map(|number| number as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            let remedy = format!("write {key} = 1.0");
            self.fault(value.span(), format!("`{key}` is no number"), remedy);
        }
        number
    }
}

fn entries<'a, 'i>(table: &'a DeTable<'i>) -> impl Iterator<Item = Entry<'a, 'i>> {
    table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
}
