// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The configuration file.
//!
//! ```toml
//! [group.uplink]
//! policy = "ctrltcp"     # the only one so far, and the default
//! share = "rate"         # or "window"
//! aggression = 1.0       # 0.1 to 64: how many TCPs the group is worth
//!
//! [vm.web]
//! socket = "/run/ccc/web.sock"
//! group = "uplink"       # "default" if left out
//! weight = 3.0           # 0.01 to 1000
//! ```
//!
//! The file is walked by hand rather than deserialised, so that all its faults
//! are told at once, each with its line and what to do about it.
use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use ccc_core::{Aggression, GroupConfig, PolicyKind, Share, Weight};
use thiserror::Error;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The group of VMs that name none.
pub const DEFAULT_GROUP: &str = "default";
/// Longest path a Unix socket can have.
const SOCKET_PATH_MAX: usize = 107;
const WEIGHTS: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

/// What the daemon serves.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bottleneck groups.
    pub groups: Vec<Group>,
    /// VMs, by name.
    pub vms: Vec<Vm>,
}

/// A bottleneck group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// What the engine is told of it.
    pub config: GroupConfig,
}

/// A VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Where its front end connects.
    pub socket: PathBuf,
    /// Index of its group in [`Config::groups`].
    pub group: usize,
    /// Its share of the group.
    pub weight: Weight,
}

/// All faults of a file, in the order of its lines.
#[derive(Debug, Error, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    faults: Vec<Fault>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

impl ConfigError {
    /// The faults, in the order of the lines.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.faults.iter().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{}: {}; {}", self.file, fault.line, fault.reason, fault.remedy)?;
        }
        Ok(())
    }
}

impl Config {
    /// One VM at `socket`, alone in the default group.
    pub fn single(socket: &Path) -> Config {
        let group = Group { name: DEFAULT_GROUP.to_owned(), config: GroupConfig::default() };
        let vm = Vm {
            name: DEFAULT_GROUP.to_owned(),
            socket: socket.to_owned(),
            group: 0,
            weight: Weight::ONE,
        };
        Config { groups: vec![group], vms: vec![vm] }
    }

    /// Reads a configuration; `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
        let mut reader = Reader { text, faults: Vec::new() };
        let config = match DeTable::parse(text) {
            Ok(root) => reader.root(root.get_ref()),
            Err(error) => {
                reader.syntax(&error);
                None
            }
        };
        reader.faults.sort_by_key(|fault| fault.line);
        match config {
            Some(config) if reader.faults.is_empty() => Ok(config),
            _ => Err(ConfigError { file: file.to_owned(), faults: reader.faults }),
        }
    }
}

type Entry<'a, 'i> = (&'a str, Range<usize>, &'a Spanned<DeValue<'i>>);

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

    fn root(&mut self, root: &DeTable<'_>) -> Option<Config> {
        let (mut groups, mut vms) = (Vec::new(), Vec::new());
        for (key, at, value) in entries(root) {
            match key {
                "group" => groups = self.tables("group", value),
                "vm" => vms = self.tables("vm", value),
                _ => self.fault(
                    at,
                    format!("unknown key `{key}`"),
                    "only [group.NAME] and [vm.NAME] stand at the top",
                ),
            }
        }
        let groups = self.groups(&groups);
        let vms = self.vms(&vms, &groups);
        if vms.is_empty() && self.faults.is_empty() {
            self.fault(0..0, "no VM", "add a [vm.NAME] with a socket");
        }
        Some(Config { groups, vms })
    }

    /// The tables below `[kind]`, with the places of their names.
    fn tables<'a, 'i>(
        &mut self,
        kind: &str,
        value: &'a Spanned<DeValue<'i>>,
    ) -> Vec<(&'a str, Range<usize>, &'a DeTable<'i>)> {
        let DeValue::Table(table) = value.get_ref() else {
            self.fault(
                value.span(),
                format!("`{kind}` is no table"),
                format!("write [{kind}.NAME]"),
            );
            return Vec::new();
        };
        let mut found = Vec::new();
        for (name, at, value) in entries(table) {
            let DeValue::Table(table) = value.get_ref() else {
                self.fault(
                    at,
                    format!("`{name}` is no table"),
                    format!("write [{kind}.{name}] and the keys below it"),
                );
                continue;
            };
            if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
                self.fault(
                    at,
                    format!("`{name}` is no name"),
                    "use 1 to 64 letters, digits, `.`, `_` and `-`",
                );
                continue;
            }
            found.push((name, at, table));
        }
        found
    }

    fn groups(&mut self, tables: &[(&str, Range<usize>, &DeTable<'_>)]) -> Vec<Group> {
        let mut groups: Vec<Group> =
            tables.iter().map(|(name, _, table)| self.group(name, table)).collect();
        if !groups.iter().any(|group| group.name == DEFAULT_GROUP) {
            groups.push(Group { name: DEFAULT_GROUP.to_owned(), config: GroupConfig::default() });
        }
        groups
    }

    fn group(&mut self, name: &str, table: &DeTable<'_>) -> Group {
        let mut config = GroupConfig::default();
        for (key, at, value) in entries(table) {
            match key {
                "policy" => config.policy = self.policy(value).unwrap_or(config.policy),
                "share" => config.share = self.share(value).unwrap_or(config.share),
                "aggression" => {
                    config.aggression = self.aggression(value).unwrap_or(config.aggression);
                }
                _ => self.fault(
                    at,
                    format!("unknown key `{key}` in group `{name}`"),
                    "a group has `policy`, `share` and `aggression`",
                ),
            }
        }
        Group { name: name.to_owned(), config }
    }

    fn policy(&mut self, value: &Spanned<DeValue<'_>>) -> Option<PolicyKind> {
        match self.string("policy", value)? {
            "ctrltcp" => Some(PolicyKind::CtrlTcp),
            other => {
                let reason = format!("unknown policy `{other}`");
                self.fault(value.span(), reason, "the policy there is is \"ctrltcp\"");
                None
            }
        }
    }

    fn share(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Share> {
        match self.string("share", value)? {
            "window" => Some(Share::Window),
            "rate" => Some(Share::Rate),
            other => {
                let reason = format!("unknown share `{other}`");
                self.fault(value.span(), reason, "use \"window\" or \"rate\"");
                None
            }
        }
    }

    fn aggression(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Aggression> {
        let number = self.number("aggression", value)?;
        let aggression = Aggression::from_f64(number);
        if aggression.is_none() {
            let reason = format!("aggression {number} is out of range");
            self.fault(value.span(), reason, "use 0.1 to 64, 1 for the part of one TCP");
        }
        aggression
    }

    fn vms(&mut self, tables: &[(&str, Range<usize>, &DeTable<'_>)], groups: &[Group]) -> Vec<Vm> {
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
        let (mut socket, mut group, mut weight) = (None, default, Some(Weight::ONE));
        let mut named = false;
        for (key, at, value) in entries(table) {
            match key {
                "socket" => {
                    named = true;
                    socket = self.socket(value).map(|path| (path, value.span()));
                }
                "group" => group = self.reference(value, groups),
                "weight" => weight = self.weight(value),
                _ => self.fault(
                    at,
                    format!("unknown key `{key}` in VM `{name}`"),
                    "a VM has `socket`, `group` and `weight`",
                ),
            }
        }
        if !named {
            let remedy = "add `socket = \"PATH\"`, where its front end connects";
            self.fault(at, format!("VM `{name}` has no socket"), remedy);
        }
        let (socket, place) = socket?;
        let vm = Vm { name: name.to_owned(), socket, group: group?, weight: weight? };
        Some((vm, place))
    }

    fn socket(&mut self, value: &Spanned<DeValue<'_>>) -> Option<PathBuf> {
        let path = self.string("socket", value)?;
        if path.is_empty() {
            self.fault(value.span(), "the socket's path is empty", "name a path");
            return None;
        }
        if path.len() > SOCKET_PATH_MAX {
            let reason = format!("the socket's path has {} bytes", path.len());
            self.fault(value.span(), reason, format!("use at most {SOCKET_PATH_MAX}"));
            return None;
        }
        Some(PathBuf::from(path))
    }

    fn reference(&mut self, value: &Spanned<DeValue<'_>>, groups: &[Group]) -> Option<usize> {
        let name = self.string("group", value)?;
        let found = groups.iter().position(|group| group.name == name);
        if found.is_none() {
            let reason = format!("unknown group `{name}`");
            let there: Vec<_> = groups.iter().map(|group| group.name.as_str()).collect();
            let remedy = format!("add [group.{name}] or use one of: {}", there.join(", "));
            self.fault(value.span(), reason, remedy);
        }
        found
    }

    fn weight(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Weight> {
        let number = self.number("weight", value)?;
        let weight = Weight::from_f64(number).filter(|_| WEIGHTS.contains(&number));
        if weight.is_none() {
            let reason = format!("weight {number} is out of range");
            self.fault(value.span(), reason, "use 0.01 to 1000");
        }
        weight
    }

    fn string<'a>(&mut self, key: &str, value: &'a Spanned<DeValue<'_>>) -> Option<&'a str> {
        let string = value.get_ref().as_str();
        if string.is_none() {
            let reason = format!("`{key}` is no string");
            self.fault(value.span(), reason, format!("write {key} = \"...\""));
        }
        string
    }

    fn number(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<f64> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .ok()
                .map(|number| number as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            let reason = format!("`{key}` is no number");
            self.fault(value.span(), reason, format!("write {key} = 1.0"));
        }
        number
    }
}

fn entries<'a, 'i>(table: &'a DeTable<'i>) -> impl Iterator<Item = Entry<'a, 'i>> {
    table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
}

fn plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = "[group.uplink]\npolicy = \"ctrltcp\"\nshare = \"rate\"\naggression = 2\n\
                    [vm.a]\nsocket = \"/run/a\"\ngroup = \"uplink\"\nweight = 3\n\
                    [vm.b]\nsocket = \"/run/b\"\n";
        let config = Config::parse("ccc.toml", text).expect("right");
        let (a, b) = (&config.vms[0], &config.vms[1]);
        assert_eq!(config.groups[a.group].name, "uplink");
        assert_eq!(config.groups[a.group].config.share, Share::Rate);
        assert_eq!(Some(config.groups[a.group].config.aggression), Aggression::from_f64(2.0));
        assert_eq!(Some(a.weight), Weight::from_f64(3.0));
        assert_eq!(config.groups[b.group].name, DEFAULT_GROUP);
        assert_eq!(b.weight, Weight::ONE);
    }

    #[test]
    fn message_has_file_line_reason_and_remedy() {
        let error = Config::parse("ccc.toml", "[vm.a]\nsocket = \"s\"\nweight = 0\n");
        let message = error.expect_err("a fault").to_string();
        assert_eq!(message, "ccc.toml:3: weight 0 is out of range; use 0.01 to 1000");
    }

    #[test]
    fn wrong_syntax_is_told_with_its_line() {
        assert_eq!(faults("[vm.a]\nsocket = \n")[0].0, 2);
        assert_eq!(faults("[vm.a]\nsocket = \"a\"\nsocket = \"b\"\n")[0].0, 3);
    }

    #[test]
    fn unknown_keys_are_told() {
        assert_eq!(fault("[vm.a]\nsocket = \"s\"\n[x]\n"), is(3, "unknown key `x`"));
        let in_vm = fault("[vm.a]\nsocket = \"s\"\nwieght = 1\n");
        assert_eq!(in_vm, is(3, "unknown key `wieght` in VM `a`"));
        let in_group = fault("[group.g]\ncolour = 1\n[vm.a]\nsocket = \"s\"\n");
        assert_eq!(in_group, is(2, "unknown key `colour` in group `g`"));
    }

    #[test]
    fn wrong_groups_are_told() {
        let with = |line: &str| fault(&format!("[group.g]\n{line}\n[vm.a]\nsocket = \"s\"\n"));
        assert_eq!(with("policy = \"x\""), is(2, "unknown policy `x`"));
        assert_eq!(with("policy = 1"), is(2, "`policy` is no string"));
        assert_eq!(with("share = \"x\""), is(2, "unknown share `x`"));
        assert_eq!(with("share = true"), is(2, "`share` is no string"));
        assert_eq!(with("aggression = 0"), is(2, "aggression 0 is out of range"));
        assert_eq!(with("aggression = nan"), is(2, "aggression NaN is out of range"));
        assert_eq!(with("aggression = \"1\""), is(2, "`aggression` is no number"));
    }

    #[test]
    fn wrong_vms_are_told() {
        let with = |line: &str| fault(&format!("[vm.a]\nsocket = \"s\"\n{line}\n"));
        assert_eq!(with("weight = 0.009"), is(3, "weight 0.009 is out of range"));
        assert_eq!(with("weight = 1001"), is(3, "weight 1001 is out of range"));
        assert_eq!(with("weight = -1"), is(3, "weight -1 is out of range"));
        assert_eq!(with("weight = \"1\""), is(3, "`weight` is no number"));
        assert_eq!(with("group = \"g\""), is(3, "unknown group `g`"));
        assert_eq!(with("group = 1"), is(3, "`group` is no string"));
        assert_eq!(fault("[vm.a]\nweight = 1\n"), is(1, "VM `a` has no socket"));
        assert_eq!(fault("[vm.a]\nsocket = 1\n"), is(2, "`socket` is no string"));
        assert_eq!(fault("[vm.a]\nsocket = \"\"\n"), is(2, "the socket's path is empty"));
        let long = format!("[vm.a]\nsocket = \"{}\"\n", "x".repeat(108));
        assert_eq!(fault(&long), is(2, "the socket's path has 108 bytes"));
    }

    #[test]
    fn wrong_tables_are_told() {
        assert_eq!(fault("vm = 1\n"), is(1, "`vm` is no table"));
        assert_eq!(fault("[vm]\na = 1\n"), is(2, "`a` is no table"));
        assert_eq!(fault("[vm.\"a b\"]\nsocket = \"s\"\n"), is(1, "`a b` is no name"));
        assert_eq!(fault("[group.g]\n"), is(1, "no VM"));
    }

    #[test]
    fn a_socket_of_two_vms_is_told() {
        let text = "[vm.a]\nsocket = \"s\"\n[vm.b]\nsocket = \"s\"\n";
        assert_eq!(fault(text), is(4, "socket `s` is that of VM `a`"));
    }

    #[test]
    fn all_faults_are_told_in_order() {
        let text = "[vm.b]\nsocket = 1\n[vm.a]\nsocket = \"s\"\nweight = 0\ngroup = \"g\"\n";
        let lines: Vec<_> = faults(text).iter().map(|fault| fault.0).collect();
        assert_eq!(lines, [2, 5, 6]);
    }
}
