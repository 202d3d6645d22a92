// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sockets a service manager has opened (`LISTEN_FDS`), by their names.
use std::{collections::BTreeMap, io, os::fd::RawFd};

use thiserror::Error;

/// The name of the control socket.
pub const CONTROL: &str = "control";

/// Why sockets that were passed cannot be used.
#[derive(Debug, Error)]
pub enum ActivationError {
    /// What the service manager says of them makes no sense.
    #[error("cannot read which sockets the service manager passes (LISTEN_FDS, LISTEN_FDNAMES)")]
    Environment(#[from] io::Error),
    /// A socket for nobody.
    #[error(
        "invalid name of a socket from the service manager: expected the name of a VM or \
         `{CONTROL}`, got `{0}`; set FileDescriptorName="
    )]
    Unknown(String),
    /// Two sockets for one.
    #[error("the service manager passes two sockets named `{0}`; keep one of them")]
    Twice(String),
}

/// Sockets that were passed, by name.
#[derive(Debug, Default)]
pub struct Activated(BTreeMap<String, RawFd>);

impl Activated {
    /// Those passed to this process.
    pub fn take() -> Result<Activated, ActivationError> {
        Activated::of(sd_notify::listen_fds_with_names()?)
    }

    fn of(passed: impl Iterator<Item = (RawFd, String)>) -> Result<Activated, ActivationError> {
        let mut sockets = BTreeMap::new();
        for (fd, name) in passed {
            if sockets.insert(name.clone(), fd).is_some() {
                return Err(ActivationError::Twice(name));
            }
        }
        Ok(Activated(sockets))
    }

    /// There is one with this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The socket with this name.
    pub fn socket(&mut self, name: &str) -> Option<RawFd> {
        self.0.remove(name)
    }

    /// Makes sure that all were taken.
    pub fn end(mut self) -> Result<(), ActivationError> {
        self.0.pop_first().map_or(Ok(()), |(name, _)| Err(ActivationError::Unknown(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_has_one_use() {
        let of = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned());
            Activated::of((3..).zip(names))
        };
        let mut sockets = of(&["a", "b"]).expect("apart");
        assert_eq!((sockets.socket("b"), sockets.socket("c")), (Some(4), None));
        assert!(matches!(sockets.end(), Err(ActivationError::Unknown(name)) if name == "a"));
        assert!(matches!(of(&["a", "a"]), Err(ActivationError::Twice(_))));
    }
}
