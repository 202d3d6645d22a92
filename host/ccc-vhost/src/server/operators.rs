// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests of operators, in the event loop.
use super::{Server, ServerError};
use crate::{
    api::{ApiError, Command, Reply, VmSpec},
    control::{Desk, Done, Envelope},
    coupling::Turn,
    listener::{Endpoint, ListenError},
    message::MessageError,
    open_files,
    operate::{Guest, Operation},
};

impl Server {
    /// Takes requests of operators; each is answered when its effect is where
    /// guests see it.
    pub(super) fn operate(&mut self) -> Result<(), ServerError> {
        let requests = self.desk.as_ref().map(Desk::take).unwrap_or_default();
        for Envelope { command, answer } in requests {
            let reply = self.carry_out(&command)?;
            self.after()?;
            let keep = (reply.is_ok() && command.changes()).then(|| {
                self.changes += 1;
                (self.changes, self.state.clone())
            });
            // The client may be gone by now; its request counts all the same.
            let _ = answer.send(reply.map(|reply| Done { reply, keep }));
        }
        Ok(())
    }

    /// What a request needs beside the engine: a socket of a VM that comes, the
    /// end of the front end of one that goes.
    fn carry_out(&mut self, command: &Command) -> Result<Result<Reply, ApiError>, ServerError> {
        match command {
            Command::PutVm(name, spec) if self.coupling.settings().vm(name).is_none() => {
                Ok(self.add(name, spec).and_then(|()| self.execute(command)))
            }
            Command::DeleteVm(name) => {
                let number = match self.coupling.removable(name) {
                    Ok(number) => number,
                    Err(error) => return Ok(Err(error)),
                };
                self.disconnect(number, &MessageError::Closed.into())?;
                let reply = self.execute(command);
                self.vms.remove(&number);
                Ok(reply)
            }
            _ => Ok(self.execute(command)),
        }
    }

    fn execute(&mut self, command: &Command) -> Result<Reply, ApiError> {
        let guests = self.vms.iter().map(|(number, vm)| {
            (*number, Guest { connection: vm.connection.as_ref(), counters: &vm.counters })
        });
        let turn = Turn { coupling: &mut self.coupling, now: self.clock.now() };
        let mut operation = Operation { turn, state: &mut self.state, guests: guests.collect() };
        operation.execute(command)
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
