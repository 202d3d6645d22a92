// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests of operators, in the event loop.
use ccc_settings::{Changes, VmSettings, VmSpec};

use super::{Server, ServerError, Vm};
use crate::{
    admin::authorization::Peer,
    admin::channel::{CommandReceiver, PendingCommand},
    admin::executor::{Executor, Guest, Guests, Outcome},
    admin::{ApiError, Command, Reply},
    by_number::ByNumber,
    daemon::check::beside_control,
    device::{Context, RemapReason},
    event_loop::{clock, open_files, poll::Token},
    logging::audit,
    settings::{state::Change, unused::Of, writer::StateWriter},
    vhost_user::connection::ConnectionError,
    vhost_user::listener::{Endpoint, ListenError},
};

impl Guests for ByNumber<Vm> {
    fn guest(&self, vm: usize) -> Option<Guest<'_>> {
        let vm = self.get(&vm)?;
        let unserved = vm.endpoint.unserved();
        Some(Guest { connection: vm.connection.as_ref(), counters: &vm.counters, unserved })
    }
}

impl Server {
    /// Takes requests of operators; each is answered when its effect is where
    /// guests see it, and a change when it is kept.
    pub(super) fn operate(&mut self) -> Result<(), ServerError> {
        let pending = self.commands.as_mut().map(CommandReceiver::take).unwrap_or_default();
        for PendingCommand { command, by, reply_to } in pending {
            let outcome = self.carry_out(&command, &by)?;
            self.publish()?;
            match (outcome, &mut self.state_writer) {
                (Ok((reply, Some(change))), Some(writer)) => writer.keep(change, |kept| {
                    reply_to.send(kept.map(|()| reply).map_err(ApiError::from));
                }),
                (outcome, _) => reply_to.send(outcome.map(|(reply, _)| reply)),
            }
        }
        self.wait_for_trials();
        self.look_again_at_taps();
        Ok(())
    }

    /// Ends trials whose clients have not asked for more.
    pub(super) fn end_trials(&mut self) -> Result<(), ServerError> {
        let over = self.coupling.overdue_trials(clock::monotonic());
        for group in &over {
            if let Some(trial) = self.coupling.end_trial(*group) {
                let name = &self.coupling.settings().groups[*group].name;
                audit!(GROUP = name.as_str(), PEER:% = trial.by;
                    "group {name}: coupled again: {} has not gone on with its trial in time",
                    trial.by
                );
            }
        }
        if !over.is_empty() {
            self.remap_all();
            self.publish()?;
        }
        self.wait_for_trials();
        Ok(())
    }

    fn wait_for_trials(&mut self) {
        if let Some(end) = self.coupling.next_trial_end() {
            self.timers.wake(Token::Trial, end);
        }
    }

    /// Takes all flows to where they are coupled now.
    fn remap_all(&mut self) {
        for connection in self.vms.values().filter_map(|vm| vm.connection.as_ref()) {
            let mut context = Context { engine: &mut self.coupling, now: self.clock.now() };
            connection.backend().device_mut().remap(RemapReason::Coupling, &mut context);
        }
    }

    /// What a request needs beside the engine: a socket of a VM that comes, the
    /// end of the front end of one that goes.
    fn carry_out(&mut self, command: &Command, by: &Peer) -> Result<Outcome, ServerError> {
        if let Some(outcome) = self.forget(command, by) {
            return Ok(outcome);
        }
        match command {
            Command::Vms | Command::Metrics => self.mend_sockets(None),
            // Who describes a VM, as libvirt's hook does, may be about to start it.
            Command::Vm(name)
            | Command::Change(Change::PutVm(name, _) | Change::UpdateVm(name, _)) => {
                self.mend_sockets(Some(name));
            }
            _ => {}
        }
        match command {
            Command::Change(Change::PutVm(name, spec))
                if !self.coupling.settings().has_vm(name) =>
            {
                if let Err(error) = self.add(name, spec) {
                    return Ok(Err(error));
                }
                let said = Changes::all(&spec.settings).besides(&VmSettings::default());
                let said = said.texts().map(|(field, text)| format!(", {field} {text}"));
                let daemon = &self.coupling.settings().daemon;
                if let Some(told) = beside_control(daemon, name, &spec.socket) {
                    log::warn!(VM = name.as_str(); "{told}");
                }
                audit!(VM = name.as_str(), PEER:% = by;
                    "VM {name}: added, on {}{} (by {by})",
                    spec.socket.display(),
                    said.collect::<String>(),
                );
                Ok(self.execute(command, by))
            }
            Command::Change(Change::DeleteVm(name)) => {
                let number = match self.coupling.settings().removable(name) {
                    Ok(number) => number,
                    Err(error) => return Ok(Err(error.into())),
                };
                self.disconnect(number, &ConnectionError::CLOSED)?;
                let outcome = self.execute(command, by);
                self.vms.shift_remove(&number);
                Ok(outcome)
            }
            _ => Ok(self.execute(command, by)),
        }
    }

    /// Forgets what was set of something that is not there any more, if that is asked for.
    fn forget(&self, command: &Command, by: &Peer) -> Option<Outcome> {
        let Command::Change(change) = command else { return None };
        let (of, change, name) = match change {
            // With the socket of one that was added.
            Change::ResetVm(vm) | Change::DeleteVm(vm) => {
                (Of::Vm(vm.clone()), Change::DeleteVm(vm.clone()), vm)
            }
            Change::ResetGroup(group) => (Of::Group(group.clone()), change.clone(), group),
            _ => return None,
        };
        self.state_writer.as_ref().filter(|writer| writer.has_left(&of))?;
        audit!(PEER:% = by; "{of}: what was set of it is forgotten (by {by})");
        Some(Ok((Reply::Forgotten { name: name.clone() }, Some(change))))
    }

    fn execute(&mut self, command: &Command, by: &Peer) -> Outcome {
        let (coupling, now) = (&mut self.coupling, self.clock.now());
        let not_kept = self.state_writer.as_ref().and_then(StateWriter::trouble);
        let latency = &self.publishing.latency;
        let (polls, polling) = (self.polling.counts, self.polling.view());
        let guests = &self.vms;
        Executor { coupling, now, guests, by, not_kept, latency, polls, polling }.execute(command)
    }

    /// Listens for the front end of a VM that is new.
    fn add(&mut self, name: &str, spec: &VmSpec) -> Result<(), ApiError> {
        let vm = self.coupling.settings().new_vm(name, spec)?;
        let endpoint = Endpoint::bind(&vm.socket)?;
        let room = endpoint.listening().map_or(Ok(()), open_files::reserve);
        room.map_err(|error| ListenError::bind(&spec.socket, error))?;
        let number = self.coupling.add_vm(vm);
        self.open(number, name.to_owned(), endpoint).map_err(|error| {
            self.coupling.remove_vm(self.clock.now(), number);
            ListenError::bind(&spec.socket, error).into()
        })
    }
}
