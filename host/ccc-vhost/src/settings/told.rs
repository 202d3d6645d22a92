// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Changes as an operator would say them, for the log.
use std::fmt::Display;

use crate::{
    settings::values,
    settings::{Group, Settings, Vm},
};

/// What is different about a VM: `weight 1 → 3, group a → none`; empty if
/// nothing is.
pub fn vm(before: &Vm, after: &Vm, settings: &Settings) -> String {
    let group = |vm: &Vm| vm.group.map_or("none", |group| settings.groups[group].name.as_str());
    list([
        step("weight", before.weight.written, after.weight.written),
        step("group", group(before), group(after)),
        step("coupling", switch(before.coupled), switch(after.coupled)),
    ])
}

/// What is different about a group.
pub fn group(before: &Group, after: &Group) -> String {
    let (old, new) = (&before.config, &after.config);
    list([
        step("policy", values::policy_name(old.policy), values::policy_name(new.policy)),
        step("share", values::share_name(old.share), values::share_name(new.share)),
        step("equivalent_tcps", before.equivalent_tcps.written, after.equivalent_tcps.written),
        step(
            "growth_source",
            values::coco_name(old.growth_source),
            values::coco_name(new.growth_source),
        ),
        step("coupling", switch(before.coupled), switch(after.coupled)),
    ])
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn step<T: PartialEq + Display>(what: &str, before: T, after: T) -> Option<String> {
    (before != after).then(|| format!("{what} {before} → {after}"))
}

fn list<const N: usize>(steps: [Option<String>; N]) -> String {
    steps.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
