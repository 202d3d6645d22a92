// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Descriptors that a front end gave.
//!
//! To close the last descriptor of an open file may take long: a guest's
//! gigabytes are freed, or a TCP socket waits until its peer has taken what was
//! sent (`SO_LINGER`).  So whoever has one of them here closes it in another
//! thread than the one that serves all VMs.
use std::{
    fs::File,
    io::{self, IoSliceMut, Read},
    mem::{ManuallyDrop, MaybeUninit},
    ops::Deref,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, LazyLock},
    time::Duration,
};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

/// Descriptors a message may have; the protocol crate takes no more.
pub const MAX_FDS: usize = 32;

/// A map of BPF has a dozen short lines.
const ABOUT_BYTES: u64 = 4096;

/// Descriptors that are closed at once; others wait for these.
const THREADS: usize = 64;
/// A thread stays for ever, so that another is never needed where the system
/// has none to spare.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// tokio's threads for what blocks: the runtime is there for the control socket.
static CLOSERS: LazyLock<Option<Runtime>> = LazyLock::new(|| {
    let mut builder = Builder::new_current_thread();
    builder.max_blocking_threads(THREADS).thread_keep_alive(FOREVER).thread_name("closer");
    builder.build().inspect_err(|error| log::error!("no thread that closes files: {error}")).ok()
});

/// A descriptor of a front end's, closed where nobody waits for that.
#[derive(Debug)]
pub struct Foreign<T: Into<OwnedFd>>(ManuallyDrop<T>);

/// Makes sure that there is a thread that closes.
pub fn prepare() {
    if let Some(closers) = &*CLOSERS {
        drop(closers.spawn_blocking(|| {}));
    }
}

impl<T: Into<OwnedFd>> Foreign<T> {
    /// Takes a descriptor that a front end gave.
    pub fn new(fd: T) -> Foreign<T> {
        Foreign(ManuallyDrop::new(fd))
    }

    /// The same descriptor as another type.
    pub fn map<U: Into<OwnedFd>>(self, into: impl FnOnce(T) -> U) -> Foreign<U> {
        Foreign::new(into(self.trusted()))
    }

    /// The descriptor, from one who can be trusted.
    pub fn trusted(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so nobody else takes it.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T: Into<OwnedFd>> Deref for Foreign<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Into<OwnedFd> + AsFd> AsFd for Foreign<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl<T: Into<OwnedFd>> Drop for Foreign<T> {
    fn drop(&mut self) {
        // SAFETY: it is dropped once, and nobody has it afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) }.into();
        match &*CLOSERS {
            Some(closers) => drop(closers.spawn_blocking(move || close(fd))),
            None => close(fd),
        }
    }
}

fn close(fd: OwnedFd) {
    // Most are no sockets, and have nothing to set.
    let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
    drop(fd);
}

/// What the kernel calls a file.  Asking a file for its attributes may wait for whoever serves
/// it (FUSE), and to look at the link does not.
fn is_named(fd: impl AsFd, name: &str) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|to| to.as_os_str() == name)
}

/// A counter that is waited for and written to.
pub fn is_eventfd(fd: impl AsFd) -> bool {
    is_named(fd, "anon_inode:[eventfd]")
}

/// A pipe; nothing else has a size as pipes have.
pub fn is_pipe(fd: impl AsFd) -> bool {
    rustix::pipe::fcntl_getpipe_size(fd).is_ok()
}

/// A file in memory: memfd, tmpfs or hugetlbfs, for only these have seals; or an array of a
/// BPF program, whose pages are all there.
pub fn is_memory(file: &File) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok() || is_bpf_array(file)
}

/// Other maps of BPF may have pages that are not there (arenas).  Only of a map is read what
/// the kernel says of it: of an epoll set that is a line for each of a million files.
fn is_bpf_array(file: &File) -> bool {
    is_named(file, "anon_inode:bpf-map")
        && about(file).is_ok_and(|about| about.lines().any(|line| line == "map_type:\t2"))
}

/// What the kernel says of an open file, from its beginning.
fn about(file: &File) -> io::Result<String> {
    let mut about = String::new();
    let said = File::open(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    said.take(ABOUT_BYTES).read_to_string(&mut about)?;
    Ok(about)
}

/// What to answer to a descriptor of another kind.
pub fn wrong_kind(what: &str, kind: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("descriptor for {what} is no {kind}"))
}

/// A second descriptor of a file, to be held until the first is closed.
pub fn hold(file: &File) -> io::Result<Foreign<File>> {
    file.try_clone().map(Foreign::new)
}

/// A front end's file that others use, too: all of them have to be gone before this is, so
/// that it is what closes it.
#[derive(Debug)]
pub struct Shared(Option<Arc<File>>);

impl Shared {
    /// The last of those who use a file.
    pub fn new(file: Arc<File>) -> Shared {
        Shared(Some(file))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.0.take().and_then(Arc::into_inner).map(Foreign::new));
    }
}

/// A front end's socket.
pub type Stream = Foreign<UnixStream>;

/// Why nothing was received from a socket.
#[derive(Debug, Error)]
pub enum ReceiveError {
    #[error("connection closed by its other end")]
    Closed,
    #[error("socket failed")]
    Socket(#[from] io::Error),
    #[error(
        "descriptors of a message are missing: it has more than {MAX_FDS}, or the daemon has no \
         room for them"
    )]
    Descriptors,
}

/// Reads what there is with the file descriptors that came with it, and how much
/// that is.
pub fn receive(
    stream: &UnixStream,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<Foreign<OwnedFd>>), ReceiveError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got =
        rustix::net::recvmsg(stream.as_fd(), &mut [IoSliceMut::new(bytes)], &mut control, flags)
            .map_err(io::Error::from)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received.map(Foreign::new));
        }
    }
    if got.bytes == 0 {
        return Err(ReceiveError::Closed);
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(ReceiveError::Descriptors);
    }
    Ok((got.bytes, fds))
}
