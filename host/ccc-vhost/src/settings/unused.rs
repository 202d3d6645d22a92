// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What of earlier changes is not in force, since what it names is gone, or is otherwise by now.
use std::fmt;

use ccc_settings::{Changes, Table};

use super::state::Change;

/// Whose changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Of {
    /// A VM's.
    Vm(String),
    /// A group's.
    Group(String),
    /// The rules, as one.
    Rules,
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Of::Vm(name) => write!(f, "VM {name}"),
            Of::Group(name) => write!(f, "group {name}"),
            Of::Rules => f.write_str("rules"),
        }
    }
}

/// Changes that are kept and not in force, until somebody settles that.
#[derive(Clone, Debug, PartialEq)]
pub struct Unused {
    of: Of,
    /// The fields; all there are if none is named, as of what is gone.
    fields: &'static [&'static str],
    why: String,
}

impl Unused {
    /// Some fields of it.
    pub fn fields(of: Of, fields: &'static [&'static str], why: impl fmt::Display) -> Unused {
        Unused { of, fields, why: why.to_string() }
    }

    /// All of it.
    pub fn all(of: Of, why: impl fmt::Display) -> Unused {
        Unused { of, fields: &[], why: why.to_string() }
    }

    /// All changes of something, since it is not there.
    pub fn is_all_of(&self, of: &Of) -> bool {
        self.of == *of && self.fields.is_empty()
    }

    /// Whether there is nothing left of it after a change.
    pub fn is_settled_by(&self, change: &Change) -> bool {
        match (change, &self.of) {
            (Change::UpdateVm(vm, changes), Of::Vm(name)) => vm == name && self.names_any(changes),
            (Change::UpdateGroup(group, changes), Of::Group(name)) => {
                group == name && self.names_any(changes)
            }
            (Change::PutVm(vm, _) | Change::DeleteVm(vm) | Change::ResetVm(vm), Of::Vm(name)) => {
                vm == name
            }
            (Change::ResetGroup(group), Of::Group(name)) => group == name,
            (Change::SetRules(_), Of::Rules) => true,
            _ => false,
        }
    }

    fn names_any<T: Table>(&self, changes: &Changes<T>) -> bool {
        self.fields.iter().any(|field| changes.value(field).is_some())
    }

    /// As the log tells it.
    pub fn told(&self) -> String {
        let Unused { of, fields, why } = self;
        let fields =
            if fields.is_empty() { String::new() } else { format!(", {},", fields.join(" and ")) };
        format!("state of {of}{fields} not used: {why}")
    }
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.of, self.why)
    }
}
