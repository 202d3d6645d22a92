// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests of operators, in the event loop.
use std::collections::BTreeMap;

use super::{Server, ServerError, Vm};
use crate::{
    admin::access::Peer,
    admin::api::{ApiError, Command, VmSpec},
    admin::control::{Desk, Envelope},
    admin::operate::{Guest, Guests, Operation, Outcome},
    coupling::Turn,
    daemon::open_files,
    vhost_user::listener::{Endpoint, ListenError},
    vhost_user::message::MessageError,
};

impl Guests for BTreeMap<usize, Vm> {
    fn guest(&self, vm: usize) -> Option<Guest<'_>> {
        let vm = self.get(&vm)?;
        Some(Guest { connection: vm.connection.as_ref(), counters: &vm.counters })
    }
}

impl Server {
    /// Takes requests of operators; each is answered when its effect is where
    /// guests see it, and a change when it is kept.
    pub(super) fn operate(&mut self) -> Result<(), ServerError> {
        let requests = self.desk.as_mut().map(Desk::take).unwrap_or_default();
        for Envelope { command, by, answer } in requests {
            let outcome = self.carry_out(&command, &by)?;
            self.after()?;
            match (outcome, &self.keeper) {
                (Ok((reply, Some(change))), Some(keeper)) => keeper.keep(change, reply, answer),
                (outcome, _) => answer.give(outcome.map(|(reply, _)| reply)),
            }
        }
        Ok(())
    }

    /// What a request needs beside the engine: a socket of a VM that comes, the
    /// end of the front end of one that goes.
    fn carry_out(&mut self, command: &Command, by: &Peer) -> Result<Outcome, ServerError> {
        match command {
            Command::PutVm(name, spec) if self.coupling.settings().vm(name).is_none() => {
                if let Err(error) = self.add(name, spec) {
                    return Ok(Err(error));
                }
                log::info!(
                    "VM {name}: added, on {}, weight {}, group {} (by {by})",
                    spec.socket.display(),
                    spec.rest.weight.map_or(1.0, |weight| weight.written),
                    spec.rest.group.as_ref().and_then(Option::as_deref).unwrap_or("none"),
                );
                Ok(self.execute(command, by))
            }
            Command::DeleteVm(name) => {
                let number = match self.coupling.removable(name) {
                    Ok(number) => number,
                    Err(error) => return Ok(Err(error)),
                };
                self.disconnect(number, &MessageError::Closed.into())?;
                let outcome = self.execute(command, by);
                self.vms.remove(&number);
                Ok(outcome)
            }
            _ => Ok(self.execute(command, by)),
        }
    }

    fn execute(&mut self, command: &Command, by: &Peer) -> Outcome {
        let turn = Turn { coupling: &mut self.coupling, now: self.clock.now() };
        Operation { turn, guests: &self.vms, by }.execute(command)
    }

    /// Listens for the front end of a VM that is new.
    fn add(&mut self, name: &str, spec: &VmSpec) -> Result<(), ApiError> {
        let vm = self.coupling.new_vm(name, spec)?;
        let listen = |error| ApiError::Listen { error };
        let endpoint = Endpoint::bind(&vm.socket).map_err(listen)?;
        let room = endpoint.listening().map_or(Ok(()), open_files::reserve);
        room.map_err(|error| listen(ListenError::bind(&spec.socket, error)))?;
        let number = self.coupling.add_vm(vm);
        self.open(number, name.to_owned(), endpoint).map_err(|error| {
            self.coupling.remove_vm(self.clock.now(), number);
            listen(ListenError::bind(&spec.socket, error))
        })
    }
}
