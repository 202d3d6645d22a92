// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Groups that enforce nothing, though they are to: what is told of that.
use std::collections::BTreeMap;

use ccc_settings::{Enforce, GroupSettings};

use super::Server;
use crate::{
    settings::{Settings, Vm},
    tap::{
        host::Unseen,
        kernel,
        watches::{Watches, enforcing},
    },
};

impl Server {
    /// Says which groups, by an earlier change, are to hold VMs in vain; those of the
    /// configuration were told of before.
    pub(super) fn tell_powerless(&self) {
        let groups = self.coupling.settings().groups.iter().filter(|group| {
            group.settings.enforce == Enforce::On && group.configured.enforce != Enforce::On
        });
        for group in groups {
            let why = kernel::powerless(&group.name);
            why.iter().for_each(|why| log::warn!(GROUP = group.name.as_str(); "{why}"));
        }
    }

    /// Takes which VMs are to be looked at and cannot be, and says so once: they have no tap, or
    /// one that tells nothing of them, or are there while it is not.
    pub(super) fn tell_unseen(&mut self, unseen: &[(usize, Unseen)]) {
        let settings = self.coupling.settings();
        let without = Watches::without_tap(settings).map(|vm| (vm, None));
        let is_told = |(vm, why): &&(usize, Unseen)| {
            !matches!(why, Unseen::Missing { .. }) || self.connection(*vm).is_some()
        };
        let told = unseen.iter().filter(is_told).map(|(vm, why)| (*vm, Some(why.clone())));
        let told: BTreeMap<usize, Option<Unseen>> = without.chain(told).collect();
        for (number, why) in &told {
            let Some(vm) = settings.vms.get(number) else { continue };
            if self.unseen.get(number) == Some(why) {
                continue;
            }
            let group = vm.settings.group.as_deref().unwrap_or_default();
            let told = told_of(settings, *number, vm, why.as_ref());
            log::warn!(VM = vm.name.as_str(), GROUP = group; "{told}");
        }
        self.unseen = told;
        self.coupling.watches_mut().take_unseen(unseen.iter().cloned().collect());
    }
}

/// What is told of a VM that is to be looked at, and is not for that reason.
fn told_of(settings: &Settings, number: usize, vm: &Vm, why: Option<&Unseen>) -> String {
    let groups = enforcing(settings, number).map(|group| settings.groups[group].name.as_str());
    let vain = match &groups.collect::<Vec<_>>()[..] {
        [group] => format!("group {group} neither judges nor holds it"),
        groups => format!("groups {} neither judge nor hold it", groups.join(" and ")),
    };
    let uplink = vm.group().and_then(|group| queued_at(&settings.groups[group].settings));
    let queue = uplink.map(|uplink| format!(", nor has it a queue of its own at {uplink}"));
    let (vm, queue) = (&vm.name, queue.unwrap_or_default());
    let told = why.map_or_else(|| "it has no tap".to_owned(), Unseen::to_string);
    let name = match why {
        // That says what to do; virsh domiflist has but the same name.
        Some(Unseen::Backwards { .. }) => format!("after that: cccctl set {vm} --tap INTERFACE"),
        _ => format!(
            "name the interface of this host through which its packets come (virsh domiflist; cccctl \
             set {vm} --tap INTERFACE)"
        ),
    };
    format!("VM {vm}: {told}, so {vain}{queue}: {name}")
}

/// Where VMs of a group are to have queues of their own, if anywhere.
fn queued_at(group: &GroupSettings) -> Option<&str> {
    group.uplink.as_deref().filter(|_| group.enforce == Enforce::On)
}
