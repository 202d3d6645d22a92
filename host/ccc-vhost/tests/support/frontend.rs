// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A front end with guest memory in a memfd.
use std::{
    fs::File,
    io::{Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::Arc,
};

use vhost::{
    VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData,
    vhost_user::{
        Frontend, VhostUserFrontend,
        message::{VhostUserHeaderFlag, VhostUserProtocolFeatures},
    },
};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, MmapRegion};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::daemon::{PATIENCE, until};

pub const MEMORY: usize = 1 << 20;
pub const QUEUE: u16 = 256;
/// Where guest memory begins.
pub const BASE: u64 = 0x10_0000;
/// What is offered is taken, in-band notifications only where wanted, and the
/// log of written pages while the VM migrates.
const OFFERED: u64 = FEATURES | LOG_ALL;
pub const FEATURES: u64 = 1 | 1 << 28 | 1 << 29 | 1 << 30 | 1 << 32;
const LOG_ALL: u64 = 1 << 26;

pub type Guest = Arc<GuestMemoryMmap<()>>;

/// How the two sides wake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Eventfd,
    InBand,
}

/// Guest memory that outlives connections.
pub fn guest() -> Guest {
    guest_of(MEMORY)
}

/// The same, with so many bytes.
pub fn guest_of(bytes: usize) -> Guest {
    let file = memfd(bytes, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    guest_in(vec![(BASE, bytes, file)])
}

/// The same in these files: guest address and bytes of each.
pub fn guest_in(files: Vec<(u64, usize, File)>) -> Guest {
    let ranges = files.into_iter().map(|(address, bytes, file)| {
        (GuestAddress(address), bytes, Some(FileOffset::new(file, 0)))
    });
    Arc::new(GuestMemoryMmap::from_ranges_with_files(ranges).unwrap())
}

/// A file in memory.
pub fn memfd(bytes: usize, flags: rustix::fs::MemfdFlags) -> std::io::Result<File> {
    let file = File::from(rustix::fs::memfd_create(c"guest", flags)?);
    file.set_len(bytes as u64)?;
    Ok(file)
}

/// The file behind the first region of guest memory.
pub fn file_of(guest: &Guest) -> &File {
    use vm_memory::GuestMemoryBackend;
    let mapped: &MmapRegion<()> = guest.iter().next().unwrap();
    mapped.file_offset().unwrap().file()
}

pub struct FrontEnd {
    pub vhost: Frontend,
    pub stream: UnixStream,
    pub channel: Option<UnixStream>,
    kicks: Vec<EventFd>,
    calls: Vec<EventFd>,
    pub mode: Mode,
}

impl FrontEnd {
    /// Connects, and sets up memory and rings that go on from these places.
    pub fn connect(socket: &Path, guest: &Guest, mode: Mode, bases: [u16; 3]) -> FrontEnd {
        let mut front = FrontEnd::open(socket, mode);
        front.set_memory(guest);
        for (queue, base) in bases.into_iter().enumerate() {
            front.start(guest, queue, base);
        }
        front
    }

    /// Connects, and agrees on features.
    pub fn open(socket: &Path, mode: Mode) -> FrontEnd {
        let (stream, mut vhost) = FrontEnd::owner(socket);
        assert_eq!(vhost.get_features().unwrap(), OFFERED);
        let mut protocol = vhost.get_protocol_features().unwrap();
        assert!(protocol.contains(VhostUserProtocolFeatures::INBAND_NOTIFICATIONS));
        if mode == Mode::Eventfd {
            protocol.remove(VhostUserProtocolFeatures::INBAND_NOTIFICATIONS);
        }
        vhost.set_protocol_features(protocol).unwrap();
        vhost.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        vhost.set_features(FEATURES).unwrap();
        let mut front =
            FrontEnd { vhost, stream, channel: None, kicks: Vec::new(), calls: Vec::new(), mode };
        if mode == Mode::InBand {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            front.vhost.set_backend_request_fd(&theirs).unwrap();
            front.channel = Some(ours);
        }
        front
    }

    /// Connects.  A connection closed here is not closed before programs that
    /// other tests are starting just now have closed their copies of it, so it
    /// may be the second one for a moment.
    fn owner(socket: &Path) -> (UnixStream, Frontend) {
        let mut connected = None;
        until("connected", || {
            let stream = UnixStream::connect(socket).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let vhost = Frontend::from_stream(stream.try_clone().unwrap(), 3);
            let taken = vhost.set_owner().and_then(|()| vhost.get_features()).is_ok();
            connected = taken.then_some((stream, vhost));
            taken
        });
        connected.unwrap()
    }

    pub fn set_memory(&mut self, guest: &Guest) {
        use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
        let regions = guest.iter().map(|region| {
            let mapped: &MmapRegion<()> = region;
            VhostUserMemoryRegionInfo {
                guest_phys_addr: region.start_addr().0,
                memory_size: region.len(),
                userspace_addr: mapped.as_ptr() as u64,
                mmap_offset: 0,
                mmap_handle: mapped.file_offset().unwrap().file().as_raw_fd(),
            }
        });
        self.vhost.set_mem_table(&regions.collect::<Vec<_>>()).unwrap();
    }

    /// Has one region of memory of this file; whether the daemon takes it.
    pub fn give_memory(&mut self, file: &File, bytes: u64) -> bool {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: bytes,
            userspace_addr: BASE,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        };
        self.vhost.set_mem_table(&[region]).is_ok()
    }

    /// Sends a descriptor for kicks or calls of a queue, whatever it is.
    pub fn give(&mut self, request: u32, queue: usize, fd: BorrowedFd<'_>) {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
        use std::io::IoSlice;
        let bytes = message([request, 1, 8, queue as u32, 0]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let sent = rustix::net::sendmsg(
            &self.stream,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::empty(),
        );
        assert_eq!(sent.unwrap(), bytes.len());
    }

    /// Has written pages noted in a bitmap of the whole guest, as a front end does
    /// that begins to migrate.
    pub fn log(&mut self) -> File {
        let size = (BASE as usize + MEMORY).div_ceil(8 * 4096);
        let file = memfd(size, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let region = VhostUserDirtyLogRegion {
            mmap_size: size as u64,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        };
        self.vhost.set_log_base(0, Some(region)).unwrap();
        self.vhost.set_features(FEATURES | LOG_ALL).unwrap();
        file
    }

    /// Has them noted no more.
    pub fn end_log(&mut self) {
        self.vhost.set_features(FEATURES).unwrap();
    }

    pub fn start(&mut self, guest: &Guest, queue: usize, base: u16) {
        self.vhost.set_vring_num(queue, QUEUE).unwrap();
        self.vhost.set_vring_base(queue, base).unwrap();
        assert!(self.set_rings(guest, queue, ring(queue)));
        if self.mode == Mode::Eventfd {
            let (kick, call) = (EventFd::new(0).unwrap(), EventFd::new(EFD_NONBLOCK).unwrap());
            self.vhost.set_vring_kick(queue, &kick).unwrap();
            self.vhost.set_vring_call(queue, &call).unwrap();
            self.kicks.truncate(queue);
            self.calls.truncate(queue);
            self.kicks.push(kick);
            self.calls.push(call);
        }
        self.vhost.set_vring_enable(queue, true).unwrap();
    }

    /// Says that a queue's rings are at a guest address; whether the daemon takes it.
    pub fn set_rings(&mut self, guest: &Guest, queue: usize, at: u64) -> bool {
        let ring = |offset| user(guest, at + offset);
        let places = VringConfigData {
            queue_max_size: QUEUE,
            queue_size: QUEUE,
            flags: 0,
            desc_table_addr: ring(0),
            avail_ring_addr: ring(0x1000),
            used_ring_addr: ring(0x2000),
            log_addr: None,
        };
        self.vhost.set_vring_addr(queue, &places).is_ok()
    }

    /// Kicks a queue; in-band, when this returns it was served.
    pub fn kick(&mut self, queue: usize) {
        match self.mode {
            Mode::Eventfd => self.kicks[queue].write(1).unwrap(),
            Mode::InBand => {
                self.send(35, 1 | 8, &[queue as u32, 0]);
                let mut answer = [0; 20];
                self.stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer[..], message([35, 5, 8, 0, 0])[..]);
            }
        }
    }

    /// Sends a message of words as they are.
    pub fn send(&mut self, request: u32, flags: u32, payload: &[u32]) {
        let header = [request, flags, payload.len() as u32 * 4];
        let words = header.into_iter().chain(payload.iter().copied());
        self.stream.write_all(&message(words)).unwrap();
    }

    /// Kicks of a queue come through this from now on.
    pub fn set_kick(&mut self, queue: usize, kick: &EventFd) {
        self.vhost.set_vring_kick(queue, kick).unwrap();
    }

    /// What calls of a queue come through.
    pub fn call_descriptor(&self, queue: usize) -> &EventFd {
        &self.calls[queue]
    }

    /// Takes a call for a queue, if there is one.
    pub fn called(&mut self, queue: usize) -> bool {
        if self.mode == Mode::Eventfd {
            return self.calls[queue].read().is_ok();
        }
        let mut bytes = [0; 20];
        match self.channel.as_mut().unwrap().read(&mut bytes) {
            Ok(20) => {
                let call = message([4, 1, 8, queue as u32, 0]);
                assert_eq!(bytes[..], call[..], "a call without NEED_REPLY");
                true
            }
            _ => false,
        }
    }

    /// The front end goes away, its guest stays.
    pub fn close(self) {}
}

/// A message of these words.
fn message(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Where a queue's rings are.
pub fn ring(queue: usize) -> u64 {
    BASE + 0x4000 * queue as u64
}

/// Address in this process of a guest address.
pub fn user(guest: &Guest, address: u64) -> u64 {
    use vm_memory::GuestMemoryBackend;
    guest.get_host_address(GuestAddress(address)).unwrap() as u64
}

/// A socket pair's end as a number that a child may inherit.
pub fn inheritable(fd: &impl AsRawFd) -> i32 {
    // SAFETY: the descriptor is open for as long as the borrow of its owner.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::empty()).unwrap();
    fd.as_raw_fd()
}
