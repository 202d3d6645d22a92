// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Carries out what operators ask for.
use std::collections::BTreeMap;

use crate::{
    api::{
        ApiError, Command, Reply,
        view::{Counters, Flows, Group, Groups, Part, Rule, Rules, Status, Vm, Vms},
    },
    connection::Connection,
    counters,
    coupling::Turn,
    state::State,
    values,
};

/// A VM as far as operators are concerned.
pub struct Guest<'a> {
    /// Its front end, if there is one.
    pub connection: Option<&'a Connection>,
    /// Its counts while there is none.
    pub counters: &'a counters::Counters,
}

/// What a command works on.
pub struct Operation<'a> {
    /// The engine, and the time.
    pub turn: Turn<'a>,
    /// All changes so far.
    pub state: &'a mut State,
    /// All VMs, by number.
    pub guests: BTreeMap<usize, Guest<'a>>,
}

impl Operation<'_> {
    /// Carries out a command.
    pub fn execute(&mut self, command: &Command) -> Result<Reply, ApiError> {
        match command {
            Command::Status => Ok(Reply::Status(self.status())),
            Command::Vms => {
                let mut vms: Vec<Vm> = self.guests.keys().map(|vm| self.vm(*vm)).collect();
                vms.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(Reply::Vms(Vms { vms }))
            }
            Command::Vm(name) => Ok(Reply::Vm(self.vm(self.turn.coupling.vm(name)?))),
            Command::Flows { vm, from, limit } => {
                let vm = self.turn.coupling.vm(vm)?;
                Ok(Reply::Flows(self.flows(vm, *from, *limit)))
            }
            Command::Groups => {
                let all = 0..self.turn.coupling.settings().groups.len();
                let mut groups: Vec<Group> = all.map(|group| self.group(group)).collect();
                groups.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(Reply::Groups(Groups { groups }))
            }
            Command::Group(name) => Ok(Reply::Group(self.group(self.turn.coupling.group(name)?))),
            Command::Rules => Ok(Reply::Rules(self.rules())),
            change => self.change(change),
        }
    }

    fn change(&mut self, command: &Command) -> Result<Reply, ApiError> {
        let Turn { coupling, now } = &mut self.turn;
        let (move_flows, then) = match command {
            Command::PatchVm(name, patch) => {
                let moves = coupling.patch_vm(name, patch)?;
                self.state.vms.entry(name.clone()).or_default().then(patch);
                (moves, Command::Vm(name.clone()))
            }
            Command::PutVm(name, spec) => {
                let moves = coupling.put_vm(name, spec)?;
                self.state.put_vm(name, spec, coupling.removable(name).is_ok());
                (moves, Command::Vm(name.clone()))
            }
            Command::DeleteVm(name) => return self.delete(name),
            Command::PatchGroup(name, patch) => {
                let moves = coupling.patch_group(*now, name, patch)?;
                self.state.groups.entry(name.clone()).or_default().then(patch);
                (moves, Command::Group(name.clone()))
            }
            Command::PutRules(rules) => {
                coupling.put_rules(rules)?;
                self.state.rules = Some(rules.clone());
                (true, Command::Rules)
            }
            read => return self.execute(read),
        };
        log::info!("operator: {command:?}");
        if move_flows {
            self.remap();
        }
        self.execute(&then)
    }

    /// Removes a VM whose front end is gone; how it was.
    fn delete(&mut self, name: &str) -> Result<Reply, ApiError> {
        let number = self.turn.coupling.removable(name)?;
        let last = self.vm(number);
        self.turn.coupling.remove_vm(self.turn.now, number);
        self.state.forget_vm(name);
        log::info!("operator: VM {name} removed");
        Ok(Reply::Vm(last))
    }

    fn remap(&mut self) {
        for connection in self.guests.values().filter_map(|guest| guest.connection) {
            connection.device().remap(&mut self.turn);
        }
    }

    fn status(&self) -> Status {
        let settings = self.turn.coupling.settings();
        let connections = self.guests.values().filter_map(|guest| guest.connection);
        Status {
            version: env!("CARGO_PKG_VERSION"),
            groups: settings.groups.len(),
            vms: settings.vms.len(),
            flows: connections.map(|connection| connection.device().flows()).sum(),
        }
    }

    fn vm(&self, index: usize) -> Vm {
        let settings = self.turn.coupling.settings();
        let (vm, guest) = (&settings.vms[&index], &self.guests[&index]);
        let device = guest.connection.map(Connection::device);
        let flows = device.as_ref().map_or((0, 0), |device| device.count_flows());
        let counters = device.as_ref().map_or(guest.counters, |device| device.counters());
        Vm {
            name: vm.name.clone(),
            socket: vm.socket.display().to_string(),
            weight: vm.weight.written,
            group: vm.group.map(|group| settings.groups[group].name.clone()),
            coupled: vm.coupled,
            connected: device.is_some(),
            flows: flows.0,
            coupled_flows: flows.1,
            counters: count(counters),
        }
    }

    fn flows(&self, vm: usize, from: u32, limit: usize) -> Flows {
        let device = self.guests[&vm].connection.map(Connection::device);
        let none = Flows { flows: Vec::new(), next: None };
        device.map_or(none, |mut device| device.list_flows(from, limit, self.turn.coupling))
    }

    fn group(&self, index: usize) -> Group {
        let coupling = &self.turn.coupling;
        let group = &coupling.settings().groups[index];
        let status = coupling.status(index);
        let mut vms: Vec<Part> =
            self.guests.keys().filter_map(|vm| self.part(*vm, index)).collect();
        vms.sort_by(|a, b| a.name.cmp(&b.name));
        Group {
            name: group.name.clone(),
            policy: values::policy_name(group.config.policy),
            share: values::share_name(group.config.share),
            aggression: group.aggression.written,
            coco: values::coco_name(group.config.coco),
            coupled: group.coupled,
            window: status.map_or(0, |status| status.window),
            ssthresh: status.and_then(|status| status.ssthresh),
            epoch: status.map_or(0, |status| status.epoch),
            active_flows: status.map_or(0, |status| status.active_flows),
            vms,
        }
    }

    fn part(&self, vm: usize, group: usize) -> Option<Part> {
        let coupling = &self.turn.coupling;
        let settings = &coupling.settings().vms[&vm];
        let grant = coupling.grant(vm, group);
        let device = self.guests[&vm].connection.map(Connection::device);
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
