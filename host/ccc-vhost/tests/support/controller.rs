// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A time travel controller of one daemon.
use std::{
    fs::File,
    io::{IoSlice, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::AsFd,
        unix::{
            fs::FileExt,
            net::{UnixListener, UnixStream},
        },
    },
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::daemon::PATIENCE;

const OUR_ID: u16 = 3;
pub const OTHER_ID: u16 = 1;

/// A controller with a calendar for 8 clients.
pub struct Controller {
    stream: UnixStream,
    calendar: File,
}

fn client(id: u16) -> u64 {
    4096 + 128 * u64::from(id)
}

impl Controller {
    pub fn accept(listener: &UnixListener, version: u32) -> Controller {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let fd = rustix::fs::memfd_create(c"calendar", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let calendar = File::from(fd);
        let length = 4096 + 128 * 8;
        calendar.set_len(length).unwrap();
        let controller = Controller { stream, calendar };
        controller.put(0, &version.to_le_bytes());
        controller.put(4, &(length as u32).to_le_bytes());
        controller.set_free_until(u64::MAX);
        controller
    }

    /// Lets the simulation begin, in which another client runs.
    pub fn begin(&mut self) {
        let (op, seq, time) = self.receive();
        assert_eq!((op, time), (1, 63), "START with its number");
        let message = Controller::message(0, seq, u64::from(OUR_ID));
        let fds = [self.calendar.as_fd(), self.calendar.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [IoSlice::new(&message)];
        rustix::net::sendmsg(&self.stream, &bytes, &mut control, SendFlags::empty()).unwrap();
        assert_eq!(self.receive().0, 3, "WAIT");
        assert_eq!(self.get32(client(OUR_ID)), 1, "shares time");
        self.let_run(OTHER_ID, true);
    }

    fn message(op: u32, seq: u32, time: u64) -> Vec<u8> {
        [&op.to_le_bytes()[..], &seq.to_le_bytes(), &time.to_le_bytes()].concat()
    }

    pub fn send(&mut self, op: u32, seq: u32, time: u64) {
        self.stream.write_all(&Controller::message(op, seq, time)).unwrap();
    }

    pub fn receive(&mut self) -> (u32, u32, u64) {
        let mut bytes = [0; 16];
        self.stream.read_exact(&mut bytes).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        (word(0), word(4), u64::from(word(8)) | u64::from(word(12)) << 32)
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        self.calendar.write_all_at(bytes, offset).unwrap();
    }

    fn get32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.calendar.read_exact_at(&mut bytes, offset).unwrap();
        u32::from_le_bytes(bytes)
    }

    pub fn get64(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.calendar.read_exact_at(&mut bytes, offset).unwrap();
        u64::from_le_bytes(bytes)
    }

    pub fn set_time(&self, time: u64) {
        self.put(16, &time.to_le_bytes());
    }

    pub fn set_free_until(&self, time: u64) {
        self.put(8, &time.to_le_bytes());
    }

    pub fn let_run(&self, id: u16, shares: bool) {
        self.put(client(id), &u32::from(shares || id == OUR_ID).to_le_bytes());
        self.put(24, &id.to_le_bytes());
    }

    /// When the daemon wants to run.
    pub fn requested(&self) -> Option<u64> {
        (self.get32(client(OUR_ID) + 4) == 1).then(|| self.get64(client(OUR_ID) + 8))
    }

    /// Gives the daemon its turn, and waits until it gives it back.
    pub fn run(&mut self, time: u64) {
        self.set_time(time);
        self.let_run(OUR_ID, true);
        self.send(6, 0, time);
        assert_eq!(self.receive().0, 3, "WAIT and no acknowledgement");
        self.let_run(OTHER_ID, true);
    }
}
