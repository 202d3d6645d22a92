// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a back end that comes back has to be told of a device.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{Context, LabError, Result};
use crate::vhost_user::request::{
    GET_FEATURES, GET_PROTOCOL_FEATURES, SET_BACKEND_REQ_FD, SET_FEATURES, SET_MEM_TABLE,
    SET_OWNER, SET_PROTOCOL_FEATURES, SET_VRING_ADDR, SET_VRING_BASE, SET_VRING_CALL,
    SET_VRING_ENABLE, SET_VRING_ERR, SET_VRING_KICK, SET_VRING_NUM,
};
use crate::vhost_user::{HEADER, Message, u32_at, u64_at};

/// Messages of the whole device and then of each ring, in the order in which
/// a back end wants them.
const ORDER: [u32; 14] = [
    SET_OWNER,
    GET_FEATURES,
    GET_PROTOCOL_FEATURES,
    SET_PROTOCOL_FEATURES,
    SET_BACKEND_REQ_FD,
    SET_FEATURES,
    SET_MEM_TABLE,
    SET_VRING_NUM,
    SET_VRING_BASE,
    SET_VRING_ADDR,
    SET_VRING_KICK,
    SET_VRING_CALL,
    SET_VRING_ERR,
    SET_VRING_ENABLE,
];
/// Place of the first message of a ring.
const RINGS: usize = 7;
/// Where the used ring has its index.
const USED_INDEX: u64 = 2;

/// The latest message of each kind, by place in the order and by ring.
#[derive(Debug, Default)]
pub struct Setup(BTreeMap<(usize, u32), Message>);

impl Setup {
    /// Notes a message, if it is one of those that count.
    pub fn remember(&mut self, message: Message) -> Result<()> {
        let code = message.code();
        let Some(place) = ORDER.iter().position(|&known| known == code) else {
            return Ok(());
        };
        let ring = if place < RINGS { 0 } else { u32_at(message.payload(), 0)? & 0xff };
        if code == SET_VRING_ENABLE && u32_at(message.payload(), 4)? == 0 {
            // The driver is about to take the ring away, or to begin anew.
            self.0.retain(|&(place, other), _| place < RINGS || other != ring);
        } else {
            self.0.insert((place, ring), message);
        }
        Ok(())
    }

    /// Rings in use.
    pub fn rings(&self) -> BTreeSet<u32> {
        let enabled = self.0.keys().filter(|(place, _)| ORDER[*place] == SET_VRING_ENABLE);
        enabled.map(|&(_, ring)| ring).collect()
    }

    /// The messages that set a new back end up, as far as the old one had come.
    pub fn replay(&self, vm: &str) -> Result<Vec<Message>> {
        let mut messages = Vec::with_capacity(self.0.len());
        for (&(place, ring), message) in &self.0 {
            let mut message = message.try_clone().context(|| "dup".into())?;
            if ORDER[place] == SET_VRING_BASE {
                let base = self.used_index(vm, ring)?;
                message.bytes.truncate(HEADER + 4);
                message.bytes.extend(u32::from(base).to_le_bytes());
            }
            messages.push(message);
        }
        Ok(messages)
    }

    fn get(&self, code: u32, ring: u32) -> Option<&Message> {
        let place = ORDER.iter().position(|&known| known == code)?;
        self.0.get(&(place, ring))
    }

    /// The used index of a ring, from the guest's memory.
    fn used_index(&self, vm: &str, ring: u32) -> Result<u16> {
        let unknown = || LabError::protocol(vm, format!("ring {ring} is not in its memory"));
        let Some(address) = self.get(SET_VRING_ADDR, ring) else {
            return Ok(0);
        };
        let used = u64_at(address.payload(), 16)? + USED_INDEX;
        let table = self.get(SET_MEM_TABLE, 0).ok_or_else(unknown)?;
        for (i, fd) in table.fds.iter().enumerate() {
            let at = 8 + 32 * i;
            let [size, user, offset] =
                [at + 8, at + 16, at + 24].map(|at| u64_at(table.payload(), at));
            let (size, user, offset) = (size?, user?, offset?);
            if (user..user.saturating_add(size)).contains(&used) {
                let file = File::from(fd.try_clone().context(|| "dup".into())?);
                let mut index = [0; 2];
                let read = file.read_exact_at(&mut index, offset + (used - user));
                read.context(|| format!("reading the memory of {vm}"))?;
                return Ok(u16::from_le_bytes(index));
            }
        }
        Err(unknown())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::*;

    fn message(code: u32, words: &[u64], fds: Vec<OwnedFd>) -> Message {
        let payload: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        Message { fds, ..Message::new(code, 0, &payload) }
    }

    /// Guest memory of 4 KiB, known as 0x10000 and at 16 in its file, with a
    /// used ring at 0x10100 whose index is 7.
    fn memory() -> OwnedFd {
        let file = nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::empty());
        let mut file = File::from(file.expect("memory"));
        let mut bytes = vec![0; 4096 + 16];
        bytes[16 + 0x102] = 7;
        file.write_all(&bytes).expect("written");
        file.into()
    }

    fn setup() -> Setup {
        let mut setup = Setup::default();
        let messages = [
            message(SET_VRING_ENABLE, &[2 | 1 << 32], vec![]),
            message(SET_VRING_ADDR, &[2, 0x10000, 0x10100, 0x10200, 0], vec![]),
            message(SET_VRING_BASE, &[2], vec![]),
            message(SET_MEM_TABLE, &[1, 0, 4096, 0x10000, 16], vec![memory()]),
            message(SET_OWNER, &[], vec![]),
            message(35, &[2], vec![]),
        ];
        messages.into_iter().for_each(|m| setup.remember(m).expect("sound"));
        setup
    }

    #[test]
    fn a_ring_begins_again_at_its_used_index() {
        let replay = setup().replay("vm1").expect("complete");
        let codes: Vec<_> = replay.iter().map(|m| m.code()).collect();
        let order = [SET_OWNER, SET_MEM_TABLE, SET_VRING_BASE, SET_VRING_ADDR, SET_VRING_ENABLE];
        assert_eq!(codes, order);
        assert_eq!(u64_at(replay[2].payload(), 0).expect("state"), 2 | 7 << 32);
        assert_eq!(replay[1].fds.len(), 1);
        assert_eq!(setup().rings(), BTreeSet::from([2]));
    }

    #[test]
    fn a_ring_that_was_taken_away_is_forgotten() {
        let mut setup = setup();
        setup.remember(message(SET_VRING_ENABLE, &[2], vec![])).expect("sound");
        assert!(setup.rings().is_empty());
        assert_eq!(setup.replay("vm1").expect("complete").len(), 2);
    }
}
