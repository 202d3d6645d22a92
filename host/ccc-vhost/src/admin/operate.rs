// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Carries out what operators ask for.
use crate::{
    admin::access::Peer,
    admin::api::{
        ApiError, Command, GroupPatch, Reply, VmPatch, VmSpec,
        view::{Configured, Counters, Flows, Group, Groups, Part, Rule, Rules, Status, Vm, Vms},
    },
    coupling::Turn,
    device::counters,
    device::inspect::Count,
    settings,
    settings::state::Change,
    settings::told,
    settings::values,
    vhost_user::connection::Connection,
};

/// A VM as far as operators are concerned.
pub struct Guest<'a> {
    /// Its front end, if there is one.
    pub connection: Option<&'a Connection>,
    /// Its counts while there is none.
    pub counters: &'a counters::Counters,
}

/// Where VMs are looked up, by their numbers.
pub trait Guests {
    /// The VM of this number.
    fn guest(&self, vm: usize) -> Option<Guest<'_>>;
}

/// What a command works on.
pub struct Operation<'a> {
    /// The engine, and the time.
    pub turn: Turn<'a>,
    /// All VMs.
    pub guests: &'a dyn Guests,
    /// Who asks.
    pub by: &'a Peer,
}

/// What came of a command: the answer, and what is to be kept of it.
pub type Outcome = Result<(Reply, Option<Change>), ApiError>;

impl Operation<'_> {
    /// Carries out a command.
    pub fn execute(&mut self, command: &Command) -> Outcome {
        let mut change = None;
        let reply = match command {
            Command::Status => Reply::Status(self.status()),
            Command::Vms => Reply::Vms(self.vms()),
            Command::Vm(name) => Reply::Vm(self.vm(self.turn.coupling.vm(name)?)),
            Command::Flows { vm, from, limit } => {
                let vm = self.turn.coupling.vm(vm)?;
                Reply::Flows(self.flows(vm, *from, *limit))
            }
            Command::Groups => Reply::Groups(self.groups()),
            Command::Group(name) => Reply::Group(self.group(self.turn.coupling.group(name)?)),
            Command::Rules => Reply::Rules(self.rules()),
            Command::PutVm(name, spec) => {
                let vm = self.put_vm(name, spec)?;
                let added = self.turn.coupling.removable(name).is_ok();
                change = Some(Change::PutVm { name: name.clone(), spec: spec.clone(), added });
                Reply::Vm(vm)
            }
            Command::PatchVm(name, patch) => {
                change = Some(Change::PatchVm(name.clone(), patch.clone()));
                Reply::Vm(self.patch_vm(name, patch)?)
            }
            Command::ResetVm(name) => {
                change = Some(Change::ResetVm(name.clone()));
                let patch = self.turn.coupling.configured_vm(name)?;
                Reply::Vm(self.patch_vm(name, &patch)?)
            }
            Command::DeleteVm(name) => {
                change = Some(Change::ForgetVm(name.clone()));
                Reply::Vm(self.delete(name)?)
            }
            Command::PatchGroup(name, patch) => {
                change = Some(Change::PatchGroup(name.clone(), patch.clone()));
                Reply::Group(self.patch_group(name, patch)?)
            }
            Command::ResetGroup(name) => {
                change = Some(Change::ResetGroup(name.clone()));
                let patch = self.turn.coupling.configured_group(name)?;
                Reply::Group(self.patch_group(name, &patch)?)
            }
            Command::PutRules(rules) => {
                change = Some(Change::Rules(Some(rules.clone())));
                self.turn.coupling.put_rules(rules)?;
                Reply::Rules(self.new_rules())
            }
            Command::ResetRules => {
                change = Some(Change::Rules(None));
                self.turn.coupling.reset_rules();
                Reply::Rules(self.new_rules())
            }
        };
        Ok((reply, change))
    }

    /// A VM that is there, or is new, as it is described.
    fn put_vm(&mut self, name: &str, spec: &VmSpec) -> Result<Vm, ApiError> {
        self.turn.coupling.is_at(name, &spec.socket)?;
        self.patch_vm(name, &spec.rest)
    }

    fn patch_vm(&mut self, name: &str, patch: &VmPatch) -> Result<Vm, ApiError> {
        let number = self.turn.coupling.vm(name)?;
        let before = self.turn.coupling.settings().vms[&number].clone();
        let moves = self.turn.coupling.patch_vm(name, patch)?;
        let settings = self.turn.coupling.settings();
        let changes = told::vm(&before, &settings.vms[&number], settings);
        if !changes.is_empty() {
            log::info!("VM {name}: {changes} (by {})", self.by);
        }
        if moves {
            self.remap([number]);
        }
        Ok(self.vm(number))
    }

    fn patch_group(&mut self, name: &str, patch: &GroupPatch) -> Result<Group, ApiError> {
        let number = self.turn.coupling.group(name)?;
        let before = self.turn.coupling.settings().groups[number].clone();
        let moves = self.turn.coupling.patch_group(self.turn.now, name, patch)?;
        let changes = told::group(&before, &self.turn.coupling.settings().groups[number]);
        if !changes.is_empty() {
            log::info!("group {name}: {changes} (by {})", self.by);
        }
        if moves {
            self.remap(self.numbers());
        }
        Ok(self.group(number))
    }

    /// Flows move by rules that have just been put in force.
    fn new_rules(&mut self) -> Rules {
        self.remap(self.numbers());
        let rules = self.rules();
        log::info!("rules: {} now (by {})", rules.rules.len(), self.by);
        rules
    }

    /// Removes a VM whose front end is gone; how it was.
    fn delete(&mut self, name: &str) -> Result<Vm, ApiError> {
        let number = self.turn.coupling.removable(name)?;
        let last = self.vm(number);
        self.turn.coupling.remove_vm(self.turn.now, number);
        log::info!("VM {name}: removed (by {})", self.by);
        Ok(last)
    }

    /// Moves the flows of these VMs to where they are coupled now.
    fn remap(&mut self, vms: impl IntoIterator<Item = usize>) {
        for number in vms {
            if let Some(connection) = self.guests.guest(number).and_then(|vm| vm.connection) {
                connection.device().remap(&mut self.turn);
            }
        }
    }

    /// Numbers of all VMs.
    fn numbers(&self) -> Vec<usize> {
        self.turn.coupling.settings().vms.keys().copied().collect()
    }

    fn connection(&self, vm: usize) -> Option<&Connection> {
        self.guests.guest(vm).and_then(|guest| guest.connection)
    }

    fn status(&self) -> Status {
        let settings = self.turn.coupling.settings();
        let connections = self.numbers().into_iter().filter_map(|vm| self.connection(vm));
        Status {
            version: env!("CARGO_PKG_VERSION"),
            groups: settings.groups.len(),
            vms: settings.vms.len(),
            flows: connections.map(|connection| connection.device().flows()).sum(),
        }
    }

    fn vms(&self) -> Vms {
        let mut vms: Vec<Vm> = self.numbers().into_iter().map(|vm| self.vm(vm)).collect();
        vms.sort_by(|a, b| a.name.cmp(&b.name));
        Vms { vms }
    }

    fn vm(&self, index: usize) -> Vm {
        let settings = self.turn.coupling.settings();
        let (vm, guest) = (&settings.vms[&index], self.guests.guest(index));
        let device = self.connection(index).map(Connection::device);
        let flows = device.as_ref().map_or_else(Count::default, |device| device.count_flows());
        let now = self.turn.now;
        let heard = device.as_ref().and_then(|device| device.heard);
        let there = device.as_ref().map(|device| count(device.counters()));
        let counters = there.or_else(|| guest.map(|guest| count(guest.counters)));
        Vm {
            name: vm.name.clone(),
            socket: vm.socket.display().to_string(),
            weight: vm.weight.written,
            group: vm.group.map(|group| settings.groups[group].name.clone()),
            coupled: vm.coupled,
            configured: self.turn.coupling.overridden_vm(index).map(|vm| self.configured(vm)),
            connected: device.is_some(),
            state: device.as_ref().map_or("absent", |device| device.life(&flows, now)),
            heard_ms: heard.map(|heard| now.saturating_sub(heard) / 1000),
            migrating: device.as_ref().is_some_and(|device| device.is_migrating()),
            flows: flows.all,
            coupled_flows: flows.coupled,
            counters: counters.unwrap_or_default(),
        }
    }

    fn configured(&self, vm: &settings::Vm) -> Configured {
        let groups = &self.turn.coupling.settings().groups;
        Configured {
            weight: vm.weight.written,
            group: vm.group.map(|group| groups[group].name.clone()),
            coupled: vm.coupled,
        }
    }

    fn flows(&self, vm: usize, from: u32, limit: usize) -> Flows {
        let device = self.connection(vm).map(Connection::device);
        let none = Flows { flows: Vec::new(), next: None };
        device.map_or(none, |mut device| device.list_flows(from, limit, self.turn.coupling))
    }

    fn groups(&self) -> Groups {
        let all = 0..self.turn.coupling.settings().groups.len();
        let mut groups: Vec<Group> = all.map(|group| self.group(group)).collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        Groups { groups }
    }

    fn group(&self, index: usize) -> Group {
        let coupling = &self.turn.coupling;
        let group = &coupling.settings().groups[index];
        let status = coupling.status(index);
        let mut vms: Vec<Part> =
            self.numbers().into_iter().filter_map(|vm| self.part(vm, index)).collect();
        vms.sort_by(|a, b| a.name.cmp(&b.name));
        Group {
            name: group.name.clone(),
            policy: values::policy_name(group.config.policy),
            share: values::share_name(group.config.share),
            equivalent_tcps: group.equivalent_tcps.written,
            growth_source: values::coco_name(group.config.growth_source),
            coupled: group.coupled,
            window: status.map_or(0, |status| status.cwnd_bytes),
            ssthresh: status.and_then(|status| status.ssthresh_bytes),
            epoch: status.map_or(0, |status| status.epoch),
            active_flows: status.map_or(0, |status| status.active_flows),
            vms,
        }
    }

    fn part(&self, vm: usize, group: usize) -> Option<Part> {
        let coupling = &self.turn.coupling;
        let settings = &coupling.settings().vms[&vm];
        let grant = coupling.grant(vm, group);
        let device = self.connection(vm).map(Connection::device);
        let (flows, part) = device.map_or((0, 0), |device| device.part_of(group, &grant));
        let there = flows > 0 || settings.group == Some(group);
        let (name, weight) = (settings.name.clone(), settings.weight.written);
        there.then_some(Part { name, weight, flows, part })
    }

    fn rules(&self) -> Rules {
        let settings = self.turn.coupling.settings();
        let rules = settings.rules.iter().map(|rule| Rule {
            vm: rule.vm.map(|vm| settings.vms[&vm].name.clone()),
            destination: rule.destination.map(|net| net.to_string()),
            group: rule.group.map(|group| settings.groups[group].name.clone()),
        });
        Rules { rules: rules.collect() }
    }
}

fn count(counters: &counters::Counters) -> Counters {
    Counters {
        messages: counters.messages,
        registered: counters.registered,
        updated: counters.updated,
        left: counters.left,
        rescans: counters.rescans,
        published: counters.published,
        refused: counters.all_refused(),
        no_line: counters.refused(counters::Kind::Line),
        over_limit: counters.refused(counters::Kind::Limit),
    }
}
