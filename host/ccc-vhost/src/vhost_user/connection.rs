// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One front end.
//!
//! Why not `vhost-user-backend`: it runs the queues in threads of its own, has
//! no in-band notifications, and cannot be made to finish a kick before it is
//! answered, which is what virtual time stands on.  The message handler of the
//! `vhost` crate is used for everything else; three messages are taken out in
//! front of it: kicks; the beginning and end of queues, which like kicks are
//! answered only when all is done; and the channel for requests of the back
//! end, through which the crate has no way to call.
//!
//! Nobody waits for a front end.  The crate's handler would: it reads a message to
//! its end, and repeats a write until there is room.  So it speaks with a socket
//! pair of ours, in which a whole message lies when it reads and there is always
//! room for its answer; what comes and goes on the front end's socket is ours.
use std::{
    io,
    mem::ManuallyDrop,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ccc_core::Micros;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::DupFlags,
    net::RecvFlags,
};
use thiserror::Error;
use vhost::vhost_user::{BackendReqHandler, VhostUserBackendReqHandlerMut};

use crate::{
    event_loop::foreign::{ReceiveError, Stream},
    event_loop::poll::{End, Poller, Token, Watch},
    vhost_user::backend::Backend,
    vhost_user::inbox::{Inbox, Message},
    vhost_user::message::{self, Header, MessageError},
};

/// Longest time a front end that does not acknowledge a call can stop time, where
/// that is virtual.
const STALL: Duration = Duration::from_millis(500);
/// Bytes an answer has at most, with room to spare.
const ANSWER: usize = 16_384;

/// Why a connection ends.
#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(
        "its memory cannot be used any more: a file behind it was truncated, has a hole on a full \
         tmpfs, or has no huge pages"
    )]
    Memory,
    #[error("front end broke the protocol: {0}")]
    Protocol(vhost::vhost_user::Error),
}

/// What a front end asked for.
#[derive(Debug)]
pub enum Request {
    /// Nothing.
    None,
    /// Something that is answered already.
    Answered,
    /// To serve a queue, and to be answered after that if it says so.
    Kick(usize, Header),
    /// The same for a queue that has begun or ended; whether that could be.
    Enable(bool, Header),
}

impl ConnectionError {
    /// The front end has gone.
    pub const CLOSED: ConnectionError =
        ConnectionError::Message(MessageError::Receive(ReceiveError::Closed));

    /// The front end has gone, which is nobody's fault.
    pub fn is_closed(&self) -> bool {
        matches!(self, ConnectionError::Message(MessageError::Receive(ReceiveError::Closed)))
    }
}

/// One front end and its back end.
pub struct Connection {
    stream: Rc<Stream>,
    inbox: Inbox,
    /// Of a socket pair it has one end, and there is another only while it has a message.
    handler: BackendReqHandler<Mutex<Backend>>,
    backend: Arc<Mutex<Backend>>,
    channel: Option<Stream>,
    /// Calls are acknowledged before time goes on.
    synchronous: bool,
    _watch: Watch,
    _end: End,
}

impl Connection {
    /// Takes up a front end of a VM; in virtual time it is `synchronous`.
    pub fn new(
        stream: Stream,
        backend: Backend,
        poller: &Poller,
        vm: usize,
        synchronous: bool,
    ) -> io::Result<Connection> {
        let (_, outer) = UnixStream::pair()?;
        let stream = Rc::new(stream);
        let watch = poller.watch_shared(stream.clone(), Token::Connection(vm))?;
        let end = poller.watch_end(stream.clone(), vm)?;
        // The handler of the crate wants to share its back end.  There is one
        // thread, so the lock is never waited for.
        #[allow(clippy::arc_with_non_send_sync)]
        let backend = Arc::new(Mutex::new(backend));
        Ok(Connection {
            stream,
            inbox: Inbox::default(),
            handler: BackendReqHandler::from_stream(outer, Arc::clone(&backend)),
            backend,
            channel: None,
            synchronous,
            _watch: watch,
            _end: end,
        })
    }

    /// The back end.
    pub fn backend(&self) -> MutexGuard<'_, Backend> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The front end has closed, though the event that says so may not have
    /// been taken yet.
    pub fn gone(&self) -> bool {
        let mut polled = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut polled, Some(&now));
        ready.is_ok_and(|count| count > 0)
    }

    /// When the message that has begun has to be whole.
    pub fn deadline(&self) -> Option<Micros> {
        self.inbox.deadline()
    }

    /// What there is of it.
    pub fn incomplete(&self) -> MessageError {
        self.inbox.incomplete()
    }

    /// Takes the next message, if it is whole.
    pub fn serve(&mut self, now: Micros) -> Result<Request, ConnectionError> {
        let Some(message) = self.inbox.take(&self.stream, now)? else { return Ok(Request::None) };
        let header = message.header;
        match header.request.get() {
            message::VRING_KICK => {
                let queue = message.vring()?.index.get() as usize;
                self.backend().kicked(queue);
                Ok(Request::Kick(queue, header))
            }
            message::SET_VRING_ENABLE => {
                let vring = message.vring()?;
                let (queue, enable) = (vring.index.get(), vring.num.get() != 0);
                let done = self.backend().set_vring_enable(queue, enable);
                Ok(Request::Enable(done.is_ok(), header))
            }
            message::SET_BACKEND_REQ_FD => {
                let channel = message.channel()?;
                if self.synchronous {
                    channel.set_read_timeout(Some(STALL)).map_err(MessageError::from)?;
                    channel.set_write_timeout(Some(STALL)).map_err(MessageError::from)?;
                }
                self.channel = Some(channel);
                self.reply(&header, true)?;
                Ok(Request::Answered)
            }
            _ => {
                self.handle(&message)?;
                Ok(Request::Answered)
            }
        }
    }

    fn handle(&mut self, message: &Message) -> Result<(), ConnectionError> {
        use vhost::vhost_user::Error;
        let inner = self.pair().map_err(MessageError::from)?;
        message.pass_on(&inner)?;
        let handled = self.handler.handle_request();
        self.pass_back(&inner)?;
        match handled {
            Ok(()) => Ok(()),
            // Refused, but understood: the front end decides what to do.
            Err(
                error @ (Error::InvalidParam
                | Error::InvalidOperation(_)
                | Error::BackendInternalError
                | Error::ReqHandlerError(_)),
            ) => {
                let request = message.header.request.get();
                let why = format!("request {request} refused: {error}");
                self.backend().device_mut().counters_mut().refuse_request(&why);
                Ok(())
            }
            Err(error) => Err(ConnectionError::Protocol(error)),
        }
    }

    /// The other end of what the handler reads from and writes to.  Messages that the handler
    /// sees are few, and descriptors are what a thousand VMs have most of: so there is a pair
    /// only for as long as there is such a message.
    fn pair(&mut self) -> io::Result<UnixStream> {
        let (inner, outer) = UnixStream::pair()?;
        outer.set_nonblocking(true)?;
        // SAFETY: the descriptor is the handler's and open; it is not closed here, and stands
        // for another socket afterwards, which the handler does not mind.
        let mut theirs =
            ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.handler.as_raw_fd()) });
        rustix::io::dup3(&outer, &mut theirs, DupFlags::CLOEXEC)?;
        Ok(inner)
    }

    /// Sends the front end what the handler answered.
    fn pass_back(&self, inner: &UnixStream) -> Result<(), MessageError> {
        let mut bytes = [0; ANSWER];
        match rustix::net::recv(inner, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((got, _)) => message::answer(&self.stream, &bytes[..got]),
            Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Answers a message, if the front end waits for that.
    pub fn reply(&self, to: &Header, done: bool) -> Result<(), MessageError> {
        if to.wants_reply() && self.backend().acknowledges() {
            message::reply(&self.stream, to, done)?;
        }
        Ok(())
    }

    /// Calls the driver where that is due.  In virtual time a call outside of a
    /// kick has to be acknowledged, or it would reach the guest late; within a
    /// kick of the same VM the front end stands still, so it cannot acknowledge.
    /// In real time nobody waits.  A channel that fails is given up.
    pub fn call(&mut self, within_kick: bool) -> Result<(), MessageError> {
        let queues = self.backend().call();
        let waits = self.synchronous && !within_kick && self.backend().acknowledges();
        let Some(channel) = &self.channel else { return Ok(()) };
        let call = if waits { message::call_and_wait } else { message::call };
        let called = queues.into_iter().try_for_each(|queue| call(channel, queue));
        if called.is_err() {
            self.channel = None;
        }
        called
    }
}
