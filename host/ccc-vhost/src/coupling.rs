// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The engine with the groups of the configuration.
use ccc_core::{Engine, GroupId, Micros, Share, VmId};

use crate::config::{Config, Vm};

/// One group.
#[derive(Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The engine's number for it.
    pub id: GroupId,
    /// How it is shared out.
    pub share: Share,
    /// Version of its grants that the VMs have.
    published: Option<u64>,
}

/// The engine with the groups of the configuration.
#[derive(Debug)]
pub struct Coupling {
    /// The engine.
    pub engine: Engine,
    groups: Vec<Group>,
}

/// The engine, and the time at which it is used.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The engine with its groups.
    pub coupling: &'a mut Coupling,
    /// The time.
    pub now: Micros,
}

impl Coupling {
    /// An engine with the configured groups.
    pub fn new(config: &Config) -> Coupling {
        let mut engine = Engine::new();
        let groups = config
            .groups
            .iter()
            .map(|group| Group {
                name: group.name.clone(),
                id: engine.add_group(group.config),
                share: group.config.share,
                published: None,
            })
            .collect();
        Coupling { engine, groups }
    }

    /// Adds a VM with its weight.
    pub fn add_vm(&mut self, vm: &Vm) -> Result<VmId, ccc_core::Refusal> {
        let id = self.engine.add_vm();
        self.engine.set_weight(id, self.groups[vm.group].id, vm.weight)?;
        Ok(id)
    }

    /// The group with this index in the configuration.
    pub fn group(&self, index: usize) -> &Group {
        &self.groups[index]
    }

    /// Whether any grant may have changed since this was last asked.
    pub fn take_changed(&mut self) -> bool {
        let mut changed = false;
        for group in &mut self.groups {
            let version = Some(self.engine.group_version(group.id));
            changed |= group.published != version;
            group.published = version;
        }
        changed
    }
}
