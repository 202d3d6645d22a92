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
use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec};
use thiserror::Error;
use vhost::vhost_user::{
    BackendReqHandler, VhostUserBackendReqHandlerMut, message::VhostUserProtocolFeatures,
};

use crate::{
    device::Device,
    message::{self, Header, MessageError},
    poll::{Poller, Token, Watch},
};

/// Longest time a front end that does not read or write can stop the daemon.
const STALL: Duration = Duration::from_millis(500);

/// Why a connection ends.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// A message could not be read or sent.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Memory was not there when it was accessed.
    #[error(
        "its memory cannot be used any more: a file behind it was truncated, has a hole on a full \
         tmpfs, or has no huge pages"
    )]
    Memory,
    /// The protocol was broken.
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

/// One front end and the device it drives.
pub struct Connection {
    stream: UnixStream,
    handler: BackendReqHandler<Mutex<Device>>,
    device: Arc<Mutex<Device>>,
    channel: Option<UnixStream>,
    _watch: Watch,
}

impl Connection {
    /// Takes up a front end.
    pub fn new(
        stream: UnixStream,
        device: Device,
        poller: &Poller,
        index: usize,
    ) -> io::Result<Connection> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STALL))?;
        stream.set_write_timeout(Some(STALL))?;
        let watch = poller.watch(stream.as_fd(), Token::Connection(index))?;
        // The handler of the crate wants to share its device.  There is one
        // thread, so the lock is never waited for.
        #[allow(clippy::arc_with_non_send_sync)]
        let device = Arc::new(Mutex::new(device));
        let handler = BackendReqHandler::from_stream(stream.try_clone()?, Arc::clone(&device));
        Ok(Connection { stream, handler, device, channel: None, _watch: watch })
    }

    /// The device.
    pub fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The front end has closed, though the event that says so may not have
    /// been taken yet.
    pub fn gone(&self) -> bool {
        let mut polled = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut polled, Some(&now));
        ready.is_ok_and(|count| count > 0)
    }

    /// Takes the next message.
    pub fn serve(&mut self) -> Result<Request, ConnectionError> {
        let Some(header) = message::peek(&self.stream)? else { return Ok(Request::None) };
        match header.request.get() {
            message::VRING_KICK => {
                let (queue, _) = message::read_vring(&self.stream, &header)?;
                Ok(Request::Kick(queue as usize, header))
            }
            message::SET_VRING_ENABLE => {
                let (queue, enable) = message::read_vring(&self.stream, &header)?;
                let done = self.device().set_vring_enable(queue, enable != 0);
                Ok(Request::Enable(done.is_ok(), header))
            }
            message::SET_BACKEND_REQ_FD => {
                let channel = message::read_channel(&self.stream, &header)?;
                channel.set_read_timeout(Some(STALL)).map_err(MessageError::from)?;
                channel.set_write_timeout(Some(STALL)).map_err(MessageError::from)?;
                self.channel = Some(channel);
                self.reply(&header, true)?;
                Ok(Request::Answered)
            }
            request => {
                self.handle(request)?;
                Ok(Request::Answered)
            }
        }
    }

    fn handle(&mut self, request: u32) -> Result<(), ConnectionError> {
        use vhost::vhost_user::Error;
        match self.handler.handle_request() {
            Ok(()) => Ok(()),
            // Refused, but understood: the front end decides what to do.
            Err(
                error @ (Error::InvalidParam
                | Error::InvalidOperation(_)
                | Error::BackendInternalError
                | Error::ReqHandlerError(_)),
            ) => {
                log::warn!("VM {}: request {request} refused: {error}", self.device().name());
                Ok(())
            }
            Err(error) => Err(ConnectionError::Protocol(error)),
        }
    }

    /// Answers a message, if the front end waits for that.
    pub fn reply(&self, to: &Header, done: bool) -> Result<(), MessageError> {
        if to.wants_reply() && self.acknowledges() {
            message::reply(&self.stream, to, done)?;
        }
        Ok(())
    }

    /// Calls the driver where that is due.  Within a kick of the same VM the
    /// front end stands still, so it cannot acknowledge; outside of one it has
    /// to, or in virtual time the call would reach it late.
    pub fn call(&self, within_kick: bool) -> Result<(), MessageError> {
        let queues = self.device().call();
        let Some(channel) = &self.channel else { return Ok(()) };
        for queue in queues {
            message::call(channel, queue, !within_kick && self.acknowledges())?;
        }
        Ok(())
    }

    fn acknowledges(&self) -> bool {
        self.device().protocol & VhostUserProtocolFeatures::REPLY_ACK.bits() != 0
    }
}
