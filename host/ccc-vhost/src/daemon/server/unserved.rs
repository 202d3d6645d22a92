// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! VMs whose sockets cannot be listened on: that is told and tried again, and all others are
//! served meanwhile.
use ccc_core::Micros;

use super::{Server, ServerError};
use crate::{
    event_loop::{clock, poll::Token},
    vhost_user::listener::Endpoint,
};

/// Time until it is tried again, microseconds.
const AGAIN: Micros = 5_000_000;

impl Server {
    /// Tells of those that cannot be served from the start on.
    pub(super) fn begin_with_unserved(&mut self) {
        for (number, vm) in &self.vms {
            let Some(why) = vm.endpoint.trouble() else { continue };
            log::warn!(VM = vm.name.as_str();
                "VM {}: nobody can connect to its socket: {why}; tried again every {} s",
                vm.name,
                AGAIN / 1_000_000
            );
            self.timers.wake(Token::Listener(*number), clock::monotonic() + AGAIN);
        }
    }

    /// Waits for front ends of a VM again, or for the first time.
    pub(super) fn listen(&mut self, number: usize) -> Result<(), ServerError> {
        let Some(vm) = self.vms.get_mut(&number) else { return Ok(()) };
        if vm.endpoint.trouble().is_none() {
            return Ok(vm.listen()?);
        }
        match Endpoint::bind(&self.coupling.settings().vms[&number].socket) {
            Ok(endpoint) => {
                let name = vm.name.clone();
                log::info!(VM = name.as_str(); "VM {name}: its front end can connect now");
                Ok(self.open(number, name, endpoint)?)
            }
            Err(error) => {
                vm.endpoint = Endpoint::Failed(error);
                self.timers.wake(Token::Listener(number), clock::monotonic() + AGAIN);
                Ok(())
            }
        }
    }
}
