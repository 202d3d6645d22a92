// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! VMs whose sockets cannot be listened on, or were removed: that is told and tried again, and all
//! others are served meanwhile.
use ccc_core::Micros;

use super::{Server, ServerError, Vm};
use crate::{
    event_loop::{clock, poll::Token},
    vhost_user::listener::{Endpoint, ListenError},
};

/// Time until it is tried again, microseconds.
const AGAIN: Micros = 5_000_000;

impl Server {
    /// Tells of those that cannot be served from the start on.
    pub(super) fn begin_with_unserved(&mut self) {
        let unserved = self.vms.iter().filter(|(_, vm)| vm.endpoint.trouble().is_some());
        for number in unserved.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.say_unserved(number);
            self.timers.wake(Token::Listener(number), clock::monotonic() + AGAIN);
        }
    }

    /// Waits for front ends of a VM again, or for the first time.
    pub(super) fn listen(&mut self, number: usize) -> Result<(), ServerError> {
        let Some(vm) = self.vms.get_mut(&number) else { return Ok(()) };
        if vm.endpoint.trouble().is_none() {
            return Ok(vm.listen()?);
        }
        match self.bind_again(number) {
            Ok(()) => self.say_served(number, "its front end can connect now"),
            Err(error) => self.try_later(number, error),
        }
        Ok(())
    }

    /// Makes sockets of VMs again that somebody has removed, of all or of one.  It is seen when
    /// somebody asks for VMs: for nothing else would the daemon have to wake up.
    pub(super) fn mend_sockets(&mut self, of: Option<&str>) {
        let is_gone = |vm: &Vm| of.is_none_or(|of| of == vm.name) && vm.endpoint.is_gone();
        let gone = self.vms.iter().filter(|(_, vm)| is_gone(vm)).map(|(number, _)| *number);
        for number in gone.collect::<Vec<_>>() {
            match self.bind_again(number) {
                Ok(()) => self.say_served(number, "its socket was removed, and is made again"),
                Err(error) => {
                    self.try_later(number, error);
                    self.say_unserved(number);
                }
            }
        }
    }

    fn bind_again(&mut self, number: usize) -> Result<(), ListenError> {
        let socket = &self.coupling.settings().vms[&number].socket;
        let endpoint = Endpoint::bind(socket)?;
        let Some(vm) = self.vms.get_mut(&number) else { return Ok(()) };
        let reopened = vm.reopen(endpoint, &self.poller, number);
        reopened.map_err(|error| ListenError::bind(socket, error))
    }

    fn try_later(&mut self, number: usize, why: ListenError) {
        let Some(vm) = self.vms.get_mut(&number) else { return };
        vm.close(why);
        self.timers.wake(Token::Listener(number), clock::monotonic() + AGAIN);
    }

    fn say_served(&self, number: usize, what: &str) {
        let name = &self.vms[&number].name;
        log::info!(VM = name.as_str(); "VM {name}: {what}");
    }

    fn say_unserved(&self, number: usize) {
        let Vm { name, endpoint, .. } = &self.vms[&number];
        let why = endpoint.trouble().unwrap_or_default();
        log::warn!(VM = name.as_str();
            "VM {name}: nobody can connect to its socket: {why}; tried again every {} s",
            AGAIN / 1_000_000
        );
    }
}
