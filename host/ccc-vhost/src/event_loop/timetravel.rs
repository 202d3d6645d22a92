// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Virtual time.
//!
//! A client of a time travel controller, by the protocol of the kernel's
//! `include/uapi/linux/um_timetravel.h`, with the shared calendar.  While the
//! daemon serves a kick the kicking VM runs and waits for it, so the calendar's
//! current time is the time.  When the engine wants to be woken, it asks for a
//! turn of its own.
use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use ccc_core::Micros;
use rustix::net::RecvFlags;
use thiserror::Error;
use vm_memory::{AtomicInteger, FileOffset, MmapRegion, VolatileMemory};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U64};

use crate::event_loop::foreign::{self, ReceiveError};

const ACK: u32 = 0;
const START: u32 = 1;
const REQUEST: u32 = 2;
const WAIT: u32 = 3;
const RUN: u32 = 6;
/// Messages that only want an acknowledgement.
const FREE_UNTIL: u32 = 7;
const BROADCAST: u32 = 9;
/// Version of the calendar.
const VERSION: u32 = 2;
const CAP_TIME_SHARE: u32 = 1;
const REQ_RUN: u32 = 1;
/// What the controller knows this client by, if the command line says nothing.
const DEFAULT_ID: u64 = 63;
/// A controller that is there answers at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why virtual time cannot be lived in.
#[derive(Debug, Error)]
pub enum TimeTravelError {
    #[error("cannot connect to the time controller at {0}")]
    Connect(String, #[source] io::Error),
    #[error("time controller")]
    Receive(#[from] ReceiveError),
    #[error("time controller's socket failed")]
    Socket(#[from] io::Error),
    #[error(
        "the time controller sent {0} file descriptors with its first answer; it needs a calendar"
    )]
    NoCalendar(usize),
    #[error("cannot map the calendar")]
    Map(#[from] vm_memory::mmap::MmapRegionError),
    #[error("calendar of version {0}; this is for {VERSION}")]
    Version(u32),
    #[error("calendar of {length} bytes has nothing at {offset}")]
    Length { length: usize, offset: usize },
    #[error("message {got} acknowledged, not {expected}")]
    Sequence { got: u32, expected: u32 },
    #[error("unexpected message {0} of the time controller")]
    Unexpected(u32),
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Message {
    op: U32,
    seq: U32,
    time: U64,
}

/// A client of a controller.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    seq: u32,
    /// Known once the controller has let the simulation begin.
    calendar: Option<Calendar>,
    /// What was asked for last.
    requested: Option<u64>,
    /// A turn was given while something else was waited for.
    run: bool,
    /// The turn is this client's.
    running: bool,
}

impl Client {
    /// Connects to `[ID:]SOCKET`.  The controller answers when all clients are
    /// there, so the answer is an event like any other.
    pub fn connect(controller: &str) -> Result<Client, TimeTravelError> {
        let (id, path) = split(controller);
        let failed = |error| TimeTravelError::Connect(path.to_owned(), error);
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client =
            Client { stream, seq: 0, calendar: None, requested: None, run: false, running: false };
        client.send(START, id)?;
        Ok(client)
    }

    /// What to wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The time; 0 before the simulation begins.
    pub fn now(&self) -> Micros {
        let time = self.calendar.as_ref().and_then(|calendar| calendar.current_time().ok());
        time.map_or(0, |nanoseconds| nanoseconds / 1000)
    }

    /// A turn was given while something else was waited for.
    pub fn pending(&self) -> bool {
        self.run
    }

    /// Takes a message; `true` if the turn is this client's.
    pub fn take(&mut self) -> Result<bool, TimeTravelError> {
        if std::mem::take(&mut self.run) {
            return Ok(true);
        }
        if self.calendar.is_none() {
            self.begin()?;
            // Nothing to do yet: give the turn back.
            self.running = true;
            return Ok(true);
        }
        let message = self.receive()?;
        self.react(&message)?;
        Ok(std::mem::take(&mut self.run))
    }

    fn begin(&mut self) -> Result<(), TimeTravelError> {
        let mut bytes = [0; size_of::<Message>()];
        let (got, mut fds) = foreign::receive(&self.stream, &mut bytes, RecvFlags::empty())?;
        self.stream.read_exact(&mut bytes[got..])?;
        let answer: Message = zerocopy::transmute!(bytes);
        self.check_ack(&answer)?;
        if fds.is_empty() {
            return Err(TimeTravelError::NoCalendar(fds.len()));
        }
        // The second one would be for logs.
        let id = (answer.time.get() & 0xffff) as u16;
        let calendar = Calendar::map(fds.swap_remove(0).trusted().into(), id)?;
        log::info!("virtual time begins at {} ns, client {id}", calendar.current_time()?);
        self.calendar = Some(calendar);
        Ok(())
    }

    fn check_ack(&self, answer: &Message) -> Result<(), TimeTravelError> {
        if answer.op.get() != ACK {
            return Err(TimeTravelError::Unexpected(answer.op.get()));
        }
        let (got, expected) = (answer.seq.get(), self.seq);
        if got == expected { Ok(()) } else { Err(TimeTravelError::Sequence { got, expected }) }
    }

    fn react(&mut self, message: &Message) -> Result<(), TimeTravelError> {
        match message.op.get() {
            RUN => {
                if let Some(calendar) = &self.calendar {
                    calendar.clear_request()?;
                }
                self.requested = None;
                (self.run, self.running) = (true, true);
                Ok(())
            }
            FREE_UNTIL | BROADCAST => self.acknowledge(message),
            other => Err(TimeTravelError::Unexpected(other)),
        }
    }

    /// Asks for a turn at `deadline`, or for none.
    pub fn request(&mut self, deadline: Option<Micros>) -> Result<(), TimeTravelError> {
        let Some(calendar) = &self.calendar else { return Ok(()) };
        let now = calendar.current_time()?;
        let time = deadline.map(|deadline| deadline.saturating_mul(1000).max(now));
        if time == self.requested {
            return Ok(());
        }
        self.requested = time;
        let Some(time) = time else {
            return calendar.clear_request();
        };
        if calendar.request(time)? {
            return Ok(());
        }
        self.send(REQUEST, time)?;
        self.await_ack()
    }

    /// Gives the turn back, if it is this client's.
    pub fn wait(&mut self) -> Result<(), TimeTravelError> {
        if std::mem::take(&mut self.running) {
            self.send(WAIT, u64::MAX)?;
        }
        Ok(())
    }

    fn await_ack(&mut self) -> Result<(), TimeTravelError> {
        loop {
            let message = self.receive()?;
            if message.op.get() == ACK {
                return self.check_ack(&message);
            }
            self.react(&message)?;
        }
    }

    fn send(&mut self, op: u32, time: u64) -> Result<(), TimeTravelError> {
        self.seq = self.seq.wrapping_add(1);
        let message = Message { op: op.into(), seq: self.seq.into(), time: time.into() };
        Ok(self.stream.write_all(message.as_bytes())?)
    }

    fn acknowledge(&mut self, to: &Message) -> Result<(), TimeTravelError> {
        let message = Message { op: ACK.into(), seq: to.seq, time: 0.into() };
        Ok(self.stream.write_all(message.as_bytes())?)
    }

    fn receive(&mut self) -> Result<Message, TimeTravelError> {
        let mut bytes = [0; size_of::<Message>()];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => Ok(zerocopy::transmute!(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ReceiveError::Closed.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn split(controller: &str) -> (u64, &str) {
    let with_id = controller.split_once(':').and_then(|(id, path)| Some((id.parse().ok()?, path)));
    with_id.unwrap_or((DEFAULT_ID, controller))
}

/// The calendar all clients share.
#[derive(Debug)]
struct Calendar {
    memory: MmapRegion<()>,
    id: u16,
}

// Offsets in the calendar.
const OF_VERSION: usize = 0;
const OF_LENGTH: usize = 4;
const OF_FREE_UNTIL: usize = 8;
const OF_CURRENT_TIME: usize = 16;
const OF_RUNNING_ID: usize = 24;
const HEADER: usize = 4096;
const CLIENT: usize = 128;
// Offsets in a client's part.
const OF_CAPABILITIES: usize = 0;
const OF_FLAGS: usize = 4;
const OF_REQUEST: usize = 8;

impl Calendar {
    fn map(file: std::fs::File, id: u16) -> Result<Calendar, TimeTravelError> {
        let header: MmapRegion<()> =
            MmapRegion::from_file(FileOffset::new(file.try_clone()?, 0), HEADER)?;
        let header = Calendar { memory: header, id };
        let version = header.u32(OF_VERSION)?.load(Ordering::Acquire);
        if version != VERSION {
            return Err(TimeTravelError::Version(version));
        }
        let length = header.u32(OF_LENGTH)?.load(Ordering::Acquire) as usize;
        let memory = MmapRegion::from_file(FileOffset::new(file, 0), length.max(HEADER))?;
        let calendar = Calendar { memory, id };
        calendar.own(OF_CAPABILITIES)?.fetch_or(CAP_TIME_SHARE, Ordering::AcqRel);
        Ok(calendar)
    }

    fn current_time(&self) -> Result<u64, TimeTravelError> {
        Ok(self.u64(OF_CURRENT_TIME)?.load(Ordering::Acquire))
    }

    /// Asks for a turn through the calendar; `false` if the running client does
    /// not look there.
    fn request(&self, time: u64) -> Result<bool, TimeTravelError> {
        let running = self.field::<AtomicU16>(OF_RUNNING_ID)?.load(Ordering::Acquire);
        let capabilities = self.u32(base(running) + OF_CAPABILITIES)?.load(Ordering::Acquire);
        if capabilities & CAP_TIME_SHARE == 0 {
            return Ok(false);
        }
        self.u64(base(self.id) + OF_REQUEST)?.store(time, Ordering::Release);
        self.own(OF_FLAGS)?.fetch_or(REQ_RUN, Ordering::AcqRel);
        self.u64(OF_FREE_UNTIL)?.fetch_min(time, Ordering::AcqRel);
        Ok(true)
    }

    fn clear_request(&self) -> Result<(), TimeTravelError> {
        self.own(OF_FLAGS)?.fetch_and(!REQ_RUN, Ordering::AcqRel);
        Ok(())
    }

    fn own(&self, offset: usize) -> Result<&AtomicU32, TimeTravelError> {
        self.u32(base(self.id) + offset)
    }

    fn u32(&self, offset: usize) -> Result<&AtomicU32, TimeTravelError> {
        self.field(offset)
    }

    fn u64(&self, offset: usize) -> Result<&AtomicU64, TimeTravelError> {
        self.field(offset)
    }

    fn field<T: AtomicInteger>(&self, offset: usize) -> Result<&T, TimeTravelError> {
        let length = self.memory.size();
        let short = |_| TimeTravelError::Length { length, offset };
        self.memory.get_atomic_ref(offset).map_err(short)
    }
}

/// Where a client's part begins.
fn base(id: u16) -> usize {
    HEADER + usize::from(id) * CLIENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_controller_is_optional() {
        assert_eq!(split("/run/tt"), (DEFAULT_ID, "/run/tt"));
        assert_eq!(split("7:/run/tt"), (7, "/run/tt"));
        assert_eq!(split("./a:b"), (DEFAULT_ID, "./a:b"));
    }
}
