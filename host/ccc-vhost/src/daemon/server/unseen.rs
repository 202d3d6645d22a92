// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Groups that enforce nothing, though they are to: what is told of that.
use std::collections::BTreeMap;

use ccc_settings::Enforce;

use super::Server;
use crate::tap::{kernel, watches::Watches};

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

    /// Says once which VMs are to be looked at and cannot be: they have no tap, or are there
    /// while their tap is not.
    pub(super) fn tell_unseen(&mut self, missing: &[(usize, String)]) {
        let settings = self.coupling.settings();
        let without = Watches::without_tap(settings).map(|vm| (vm, None));
        let missing = missing.iter().filter(|(vm, _)| self.connection(*vm).is_some());
        let missing = missing.map(|(vm, tap)| (*vm, Some(tap.clone())));
        let unseen: BTreeMap<usize, Option<String>> = without.chain(missing).collect();
        for (number, tap) in &unseen {
            let Some(vm) = settings.vms.get(number) else { continue };
            if self.unseen.get(number) == Some(tap) {
                continue;
            }
            let (vm, group) = (&vm.name, vm.settings.group.as_deref().unwrap_or_default());
            let why = match tap {
                Some(tap) => format!("its tap {tap} is not there"),
                None => "it has no tap".to_owned(),
            };
            log::warn!(VM = vm.as_str(), GROUP = group;
                "VM {vm}: {why}, so group {group} neither judges nor holds it: name the interface \
                 of this host through which its packets come (virsh domiflist; cccctl set {vm} \
                 --tap INTERFACE)"
            );
        }
        self.unseen = unseen;
    }
}
