// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Walks the configuration file, so that each fault has its line and column.
use std::{collections::BTreeMap, ops::Range};

use ccc_settings::{
    Changes, DEFAULT_GROUP, Fault, GroupSettings, NO_GROUP, RuleSettings, VmSettings, VmSpec,
    check_name, is_same_place,
};
use serde_json::{Value, json};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::Located;
use crate::settings::{
    DaemonSettings, Group, MAX_RULES, Rule, Settings, Vm, keep, places, taps, uplinks,
};

type Span = Range<usize>;

/// A table, where it is, and its path in messages.
struct Table<'a, 'i> {
    path: String,
    name: &'a str,
    span: Span,
    table: &'a DeTable<'i>,
}

/// Reads a file, or tells all its faults in the order in which they stand there.
pub(super) fn read(text: &str) -> Result<Settings, Vec<Located>> {
    let mut reader = Reader { text, faults: Vec::new() };
    let settings = match DeTable::parse(text) {
        Ok(root) => reader.root(root.get_ref()),
        Err(error) => {
            let said = error.message().lines().collect::<Vec<_>>().join(", ");
            let fault = Fault { got: said, ..Fault::new("syntax", "TOML", &json!(null)) };
            let span = error.span().unwrap_or(0..0);
            let fault = of_twice(text, span.start, fault);
            reader.fault(span, fault);
            Settings::default()
        }
    };
    reader.faults.sort_by_key(|(span, _)| span.start);
    let faults = reader.faults.into_iter().map(|(span, fault)| locate(text, span.start, fault));
    let faults: Vec<Located> = faults.collect();
    if faults.is_empty() { Ok(settings) } else { Err(faults) }
}

/// The same of a key that is there already, with what to do.
fn of_twice(text: &str, offset: usize, fault: Fault) -> Fault {
    if fault.got != "duplicate key" {
        return fault;
    }
    let begins = text.get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let (before, from) = text.split_at(begins);
    fault.remedy(match table_named(from.lines().next().unwrap_or_default()) {
        None => "this key is there already: keep one of them",
        twice if before.lines().any(|line| table_named(line) == twice) => {
            "this table is there already: put the keys into the first one"
        }
        Some(_) => "a key of this name is there already, and no such table: keep one of them",
    })
}

/// The table that a line begins, however that is written.
fn table_named(line: &str) -> Option<String> {
    let (name, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    Some(name.chars().filter(|letter| !" \t\"'".contains(*letter)).collect())
}

fn locate(text: &str, offset: usize, fault: Fault) -> Located {
    let before = text.get(..offset).unwrap_or(text);
    let (line, begun) = before.rsplit_once('\n').map_or((1, before), |(lines, begun)| {
        (2 + lines.bytes().filter(|byte| *byte == b'\n').count(), begun)
    });
    Located { line, column: begun.chars().count() + 1, fault }
}

struct Reader<'t> {
    text: &'t str,
    faults: Vec<(Span, Fault)>,
}

impl Reader<'_> {
    fn fault(&mut self, span: Span, fault: Fault) {
        self.faults.push((span, fault));
    }

    /// Faults of fields of a table.
    fn faults_in(&mut self, of: &Table, faults: Vec<Fault>) {
        for fault in faults {
            let found = of.table.iter().find(|(key, _)| *key.get_ref() == fault.field);
            let (span, fault) = match found {
                Some((key, value)) => (key.span(), self.as_written(value, fault)),
                None => (of.span.clone(), fault),
            };
            self.fault(span, fault.below(&of.path));
        }
    }

    /// A fault that shows what JSON does not have as it is in the file.
    fn as_written(&self, value: &Spanned<DeValue<'_>>, fault: Fault) -> Fault {
        let told = json_of(value.get_ref()).to_string();
        match self.text.get(value.span()) {
            Some(text) if fault.got == told && is_foreign(value.get_ref()) => {
                Fault { got: text.split_whitespace().collect::<Vec<_>>().join(" "), ..fault }
            }
            _ => fault,
        }
    }

    /// A value that is something else altogether.
    fn not(&mut self, path: &str, expected: &str, value: &Spanned<DeValue<'_>>) {
        let fault = Fault::new(path, expected, &json_of(value.get_ref()));
        self.fault(value.span(), self.as_written(value, fault));
    }

    fn root(&mut self, root: &DeTable<'_>) -> Settings {
        let (mut groups, mut vms, mut rules) = (Vec::new(), Vec::new(), Vec::new());
        let mut settings = Settings::default();
        for (key, value) in root.iter() {
            match key.get_ref().as_ref() {
                "daemon" => settings.daemon = self.daemon(value),
                "group" => groups = self.tables("group", value),
                "vm" => vms = self.tables("vm", value),
                "rule" => rules = self.rule_tables(value),
                other => {
                    let expected = "[daemon], [group.NAME], [vm.NAME] or [[rule]]";
                    self.fault(key.span(), Fault::unknown(other, expected));
                }
            }
        }
        settings.groups = self.groups(&groups);
        self.vms(&vms, &mut settings);
        settings.rules = rules.iter().map(|table| self.rule(table, &settings)).collect();
        settings.configured_rules.clone_from(&settings.rules);
        if settings.vms.is_empty() && settings.daemon.control.is_none() && self.faults.is_empty() {
            let expected = "a [vm.NAME] with a socket, or `control` in [daemon] to add VMs later";
            self.fault(0..0, Fault::missing("vm", expected));
        }
        settings
    }

    fn daemon(&mut self, value: &Spanned<DeValue<'_>>) -> DaemonSettings {
        let Some(table) = self.table("daemon", value.span(), value) else {
            return DaemonSettings::default();
        };
        let (changes, faults) = Changes::collect(fields(&table));
        self.faults_in(&table, faults);
        changes.apply(&DaemonSettings::default())
    }

    fn table<'a, 'i>(
        &mut self,
        path: &str,
        span: Span,
        value: &'a Spanned<DeValue<'i>>,
    ) -> Option<Table<'a, 'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Table { path: path.to_owned(), name: "", span, table }),
            _ => {
                self.not(path, "a table", value);
                None
            }
        }
    }

    /// The tables below `[kind]`.
    fn tables<'a, 'i>(
        &mut self,
        kind: &str,
        value: &'a Spanned<DeValue<'i>>,
    ) -> Vec<Table<'a, 'i>> {
        let Some(all) = self.table(kind, value.span(), value) else { return Vec::new() };
        let mut found = Vec::new();
        for (name, value) in all.table.iter() {
            let (span, name) = (name.span(), name.get_ref().as_ref());
            match check_name(&format!("name of a {kind}"), name) {
                Ok(()) => {
                    let table = self.table(&format!("{kind}.{name}"), span, value);
                    found.extend(table.map(|table| Table { name, ..table }));
                }
                Err(fault) => self.fault(span, fault),
            }
        }
        found
    }

    fn groups(&mut self, tables: &[Table<'_, '_>]) -> Vec<Group> {
        let mut groups = Vec::with_capacity(tables.len() + 1);
        for table in tables {
            if table.name == NO_GROUP {
                let expected = format!("another name than `{NO_GROUP}`, which means no group");
                let fault = Fault::new(&table.path, expected, &json!(NO_GROUP));
                self.fault(table.span.clone(), fault);
                continue;
            }
            let (changes, mut faults) = Changes::collect(fields(table));
            let settings = changes.apply(&GroupSettings::default());
            faults.extend(settings.check().err());
            faults.extend(uplinks::not_taken(&groups, table.name, &settings).err());
            self.faults_in(table, faults);
            groups.push(Group::new(table.name, settings));
        }
        if !groups.iter().any(|group| group.name == DEFAULT_GROUP) {
            groups.push(Group::new(DEFAULT_GROUP, GroupSettings::default()));
        }
        groups
    }

    fn vms(&mut self, tables: &[Table<'_, '_>], settings: &mut Settings) {
        let (mut named, mut at_taps) = (BTreeMap::new(), BTreeMap::new());
        let mut at_places: Vec<(&str, String)> = Vec::new();
        for table in tables {
            let (socket, changes, mut faults) = VmSpec::collect(fields(table));
            let spec = changes.apply(&VmSettings::default());
            faults.extend(spec.check().err());
            let group = settings.find_group(spec.group.as_deref());
            let group = group.unwrap_or_else(|fault| keep(&mut faults, fault));
            if let Some(tap) = &spec.tap {
                let other = at_taps.insert(tap.clone(), table.name);
                faults.extend(other.map(|other| taps::taken(tap, other)));
            }
            if let Some(place) = &spec.tenant {
                let has = |its: &&(&str, String)| is_same_place(&its.1, place);
                let other = at_places.iter().find(has);
                faults.extend(other.map(|(other, _)| places::taken(place, other)));
                at_places.push((table.name, place.clone()));
            }
            if let Some(socket) = socket {
                if let Some(other) = named.insert(socket.clone(), table.name) {
                    let expected = format!("a path that VM `{other}` does not have");
                    faults.push(Fault::new("socket", expected, &json!(socket)));
                }
                settings.insert_vm(Vm {
                    name: table.name.to_owned(),
                    socket: socket.to_path_buf(),
                    configured: Some(spec.clone()),
                    settings: spec,
                    group,
                });
            }
            self.faults_in(table, faults);
        }
    }

    /// The tables of `[[rule]]`.
    fn rule_tables<'a, 'i>(&mut self, value: &'a Spanned<DeValue<'i>>) -> Vec<Table<'a, 'i>> {
        let DeValue::Array(rules) = value.get_ref() else {
            self.not("rule", "a list of tables, [[rule]]", value);
            return Vec::new();
        };
        if rules.len() > MAX_RULES {
            let count = json!(rules.len());
            let fault = Fault::new("rule", format!("at most {MAX_RULES} rules"), &count);
            self.fault(value.span(), fault);
            return Vec::new();
        }
        let numbered = rules.iter().enumerate();
        numbered
            .filter_map(|(number, rule)| self.table(&format!("rule[{number}]"), rule.span(), rule))
            .collect()
    }

    fn rule(&mut self, table: &Table<'_, '_>, settings: &Settings) -> Rule {
        let (read, mut faults) = RuleSettings::collect(fields(table));
        let (rule, unknown) = settings.rule(&read);
        faults.extend(unknown);
        self.faults_in(table, faults);
        rule
    }
}

/// The fields of a table as JSON has them.
fn fields(table: &Table<'_, '_>) -> impl Iterator<Item = (String, Value)> {
    table.table.iter().map(|(key, value)| (key.get_ref().to_string(), json_of(value.get_ref())))
}

/// JSON has no such value, or none in it.
fn is_foreign(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Array(items) => items.iter().any(|item| is_foreign(item.get_ref())),
        DeValue::Table(table) => table.values().any(|value| is_foreign(value.get_ref())),
        scalar => json_of(scalar).is_object(),
    }
}

/// A value as JSON; an object for what JSON does not have, so that no setting takes it.
fn json_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(word) => json!(word),
        DeValue::Boolean(on) => json!(on),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| json!({}), |number| json!(number)),
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => json!(number),
            _ => json!({}),
        },
        DeValue::Datetime(_) => json!({}),
        DeValue::Array(items) => items.iter().map(|item| json_of(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                (key.to_string(), json_of(value.get_ref()))
            };
            Value::Object(table.iter().map(entry).collect())
        }
    }
}
