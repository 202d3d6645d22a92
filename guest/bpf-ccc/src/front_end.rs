// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A tenant at the daemon: what QEMU and a driver are for a VM.
//!
//! To the daemon this is a front end as any other, over vhost-user: its memory is the
//! tenant's table and two queues, its device gets the same checks, rules and bounds, and
//! a daemon that comes back finds all its flows in the table again.
use std::{
    fs::File,
    io::{self, ErrorKind},
    net::Shutdown,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::{
        atomic::{AtomicU16, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use ccc_proto::{
    stranger::{self, Stranger},
    wire::{self, Doorbell, Extent},
};
use rustix::{
    fs::MemfdFlags,
    io::Errno,
    net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType},
};
use vhost::{
    VhostBackend, VhostUserMemoryRegionInfo, VringConfigData,
    vhost_user::{
        Frontend, VhostUserFrontend,
        message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures},
    },
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use zerocopy::{FromBytes, IntoBytes};

use crate::{front::Front, lent::Lent, shared::Shared};

/// How long the daemon may take for a connection.
const PATIENCE: Duration = Duration::from_secs(1);
/// Messages that may wait.
const QUEUE: u16 = 256;
// Where the parts of a queue are, from its beginning.
const AVAIL: usize = 0x1000;
const USED: usize = 0x2000;
const BUFFERS: usize = 0x3000;
const QUEUE_BYTES: usize = 0x4000;
/// Queues of ours: the daemon has no use for the events' yet.
const QUEUES: usize = 2;
/// Where the header of the extent is, behind the queues.
const HEADER: usize = QUEUES * QUEUE_BYTES;
const RINGS_BYTES: usize = HEADER + 0x1000;
// Addresses of the two files for the daemon.
const RINGS_AT: u64 = 0x1000_0000;
const TABLE_AT: u64 = 0x2000_0000;
/// Descriptor flags (VIRTIO 1.3, 2.7.5).
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const NO_NOTIFY: u16 = 1;
/// VIRTIO 1, shares by rate, and what vhost-user wants to be told.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << wire::F_RATE_SHARE;

/// A connection to the daemon, for one tenant.
pub struct FrontEnd {
    vhost: Frontend,
    stream: UnixStream,
    rings: Shared,
    kick: EventFd,
    _files: (File, EventFd),
    /// After what time without an answer grants no longer hold.
    stale_us: u64,
    /// Messages offered, and used by the daemon, so far.
    offered: u16,
    used: u16,
    /// When the daemon last used one, or had none to use.
    heard_us: u64,
    /// Messages were lost for want of room: it is to look at every slot.
    lost: bool,
    /// There are messages of which it was not told.
    unkicked: bool,
}

impl FrontEnd {
    /// Connects, and offers the table.
    pub fn connect(socket: &Path, table: &Lent, now_us: u64) -> Result<FrontEnd> {
        let (stream, mut vhost, _deadline) = begin(socket)?;
        let file = File::from(rustix::fs::memfd_create(c"ccc-rings", MemfdFlags::CLOEXEC)?);
        file.set_len(RINGS_BYTES as u64)?;
        let rings = Shared::map(file.as_fd(), RINGS_BYTES)?;
        let (kick, unused) = (EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?);
        let stale_us = stale_us(&mut vhost)?;
        let mut front = FrontEnd {
            vhost,
            stream,
            rings,
            kick,
            _files: (file, unused),
            stale_us,
            offered: 0,
            used: 0,
            heard_us: now_us,
            lost: false,
            unkicked: false,
        };
        table.withdraw();
        front.set_memory(table)?;
        front.offer(table);
        (0..QUEUES).try_for_each(|queue| front.start(queue))?;
        Ok(front)
    }

    fn set_memory(&mut self, table: &Lent) -> Result<()> {
        let region = |at, bytes: usize, fd: i32| VhostUserMemoryRegionInfo {
            guest_phys_addr: at,
            memory_size: bytes as u64,
            userspace_addr: at,
            mmap_offset: 0,
            mmap_handle: fd,
        };
        let regions = [
            region(RINGS_AT, RINGS_BYTES, self._files.0.as_raw_fd()),
            region(TABLE_AT, table.layout().bytes, table.file().as_raw_fd()),
        ];
        let set = self.vhost.set_mem_table(&regions);
        set.map(drop).context("the daemon does not take the table; its log says why")
    }

    fn start(&mut self, queue: usize) -> Result<()> {
        let at = |offset: usize| RINGS_AT + (queue * QUEUE_BYTES + offset) as u64;
        let places = VringConfigData {
            queue_max_size: QUEUE,
            queue_size: QUEUE,
            flags: 0,
            desc_table_addr: at(0),
            avail_ring_addr: at(AVAIL),
            used_ring_addr: at(USED),
            log_addr: None,
        };
        self.vhost.set_vring_num(queue, QUEUE)?;
        self.vhost.set_vring_base(queue, 0)?;
        self.vhost.set_vring_addr(queue, &places)?;
        let kick = if queue == wire::VQ_DOORBELL { &self.kick } else { &self._files.1 };
        self.vhost.set_vring_kick(queue, kick)?;
        Ok(self.vhost.set_vring_enable(queue, true)?)
    }

    /// Makes the whole table the one chain of the first queue.
    fn offer(&mut self, table: &Lent) {
        let layout = table.layout();
        let header = Extent {
            first_slot: 0.into(),
            slots: layout.slots.into(),
            grant_lines: layout.lines.into(),
            reserved: 0.into(),
        };
        self.write(HEADER, header.as_bytes());
        let at = TABLE_AT + layout.grants_offset as u64;
        let table = wire::VQ_TABLE;
        self.describe(table, 0, RINGS_AT + HEADER as u64, header.as_bytes().len(), NEXT);
        self.describe(table, 1, TABLE_AT, layout.reports_bytes(), NEXT);
        self.describe(table, 2, at, layout.grants_bytes(), WRITE);
        self.publish(table, 0, 0);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        for (index, word) in bytes.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            self.rings.at::<AtomicU64>(offset + 8 * index).store(word, Ordering::Relaxed);
        }
    }

    fn describe(&self, queue: usize, index: u16, address: u64, bytes: usize, flags: u16) {
        let at = queue * QUEUE_BYTES + 16 * usize::from(index);
        let next = if flags & NEXT != 0 { u64::from(index) + 1 } else { 0 };
        let rest = bytes as u64 | u64::from(flags) << 32 | next << 48;
        self.rings.at::<AtomicU64>(at).store(address.to_le(), Ordering::Relaxed);
        self.rings.at::<AtomicU64>(at + 8).store(rest.to_le(), Ordering::Relaxed);
    }

    fn publish(&self, queue: usize, place: u16, head: u16) {
        let avail = queue * QUEUE_BYTES + AVAIL;
        let entry = avail + 4 + 2 * usize::from(place % QUEUE);
        self.rings.at::<AtomicU16>(entry).store(head.to_le(), Ordering::Relaxed);
        let next = place.wrapping_add(1).to_le();
        self.rings.at::<AtomicU16>(avail + 2).store(next, Ordering::Release);
    }

    fn add(&mut self, message: &Doorbell) -> bool {
        if self.offered.wrapping_sub(self.used) == QUEUE {
            return false;
        }
        // Messages are used in order, so places are free in order, too.
        let (queue, index) = (wire::VQ_DOORBELL, self.offered % QUEUE);
        let at = queue * QUEUE_BYTES + BUFFERS + 16 * usize::from(index);
        self.write(at, message.as_bytes());
        self.describe(queue, index, RINGS_AT + at as u64, 16, 0);
        self.publish(queue, self.offered, index);
        self.offered = self.offered.wrapping_add(1);
        self.unkicked = true;
        true
    }

    fn see_progress(&mut self, now_us: u64) {
        let at = wire::VQ_DOORBELL * QUEUE_BYTES + USED + 2;
        let used = u16::from_le(self.rings.at::<AtomicU16>(at).load(Ordering::Acquire));
        if used != self.used || used == self.offered {
            self.heard_us = now_us;
        }
        self.used = used;
    }

    /// The daemon has gone.
    fn is_gone(&self) -> bool {
        let mut byte = [0];
        match rustix::net::recv(&self.stream, byte.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok(_) => true,
            Err(error) => std::io::Error::from(error).kind() != ErrorKind::WouldBlock,
        }
    }
}

impl Front for FrontEnd {
    fn send(&mut self, now_us: u64, _: &Lent, message: &Doorbell) {
        self.see_progress(now_us);
        if self.lost {
            let rescan = Doorbell { op: wire::OP_RESCAN.into(), ..EMPTY };
            self.lost = !self.add(&rescan);
        }
        self.lost |= self.lost || !self.add(message);
    }

    fn rescan(&mut self, now_us: u64, table: &Lent) {
        self.send(now_us, table, &Doorbell { op: wire::OP_RESCAN.into(), ..EMPTY });
    }

    /// Tells the daemon of what was sent, unless it looks anyway.
    fn flush(&mut self) {
        if !std::mem::take(&mut self.unkicked) {
            return;
        }
        std::sync::atomic::fence(Ordering::SeqCst);
        let flags = wire::VQ_DOORBELL * QUEUE_BYTES + USED;
        let flags = u16::from_le(self.rings.at::<AtomicU16>(flags).load(Ordering::Relaxed));
        if flags & NO_NOTIFY == 0 {
            // It fails only if there are 2^64 - 1 already.
            let _ = self.kick.write(1);
        }
    }

    /// Not for longer than the daemon may be silent.
    fn lease(&mut self, now_us: u64) -> u64 {
        self.see_progress(now_us);
        self.heard_us + self.stale_us
    }

    fn receive(&mut self, _: u64, _: &Lent) -> Result<()> {
        ensure!(!self.is_gone(), "the daemon has gone");
        Ok(())
    }

    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Shuts a connection down that it outlives by [`PATIENCE`]: vhost-user's crate itself takes no
/// time that is over for an end, and would wait for ever for a daemon that hangs.
struct Deadline {
    /// Closes with this.
    _open: Sender<()>,
}

impl Deadline {
    fn of(stream: &UnixStream) -> io::Result<Deadline> {
        let (open, closed) = mpsc::channel();
        let stream = stream.try_clone()?;
        thread::Builder::new().spawn(move || {
            if closed.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // It fails only where the daemon has gone already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        })?;
        Ok(Deadline { _open: open })
    }
}

/// Connects, and agrees on features; all of that, and what follows, before the deadline.
fn begin(socket: &Path) -> Result<(UnixStream, Frontend, Deadline)> {
    let stream = connect(socket)?;
    let deadline = Deadline::of(&stream)?;
    let mut vhost = Frontend::from_stream(stream.try_clone()?, QUEUES as u64);
    let first = vhost.set_owner().and_then(|()| vhost.get_features());
    let features = first.with_context(|| {
        format!(
            "nobody answers at {}; the daemon serves one at a time: does another ccc-bpf speak for \
             the tenant?",
            socket.display()
        )
    })?;
    ensure!(features & FEATURES == FEATURES, "the daemon is of another age");
    let protocol = VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::REPLY_ACK;
    vhost.get_protocol_features()?;
    vhost.set_protocol_features(protocol)?;
    vhost.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    vhost.set_features(FEATURES)?;
    Ok((stream, vhost, deadline))
}

/// Tells the daemon of an agent whose tables are of another revision: its operators see nobody
/// else come.
pub fn tell_of_agent(socket: &Path, revision: u32) -> Result<()> {
    let (_stream, mut vhost, _deadline) = begin(socket)?;
    tell(&mut vhost, stranger::AGENT, revision)
}

fn tell(vhost: &mut Frontend, who: u32, revision: u32) -> Result<()> {
    let stranger = Stranger { revision: revision.into(), who: who.into() };
    Ok(vhost.set_config(0, VhostUserConfigFlags::WRITABLE, stranger.as_bytes())?)
}

/// Connects, or fails at once: who takes no connections holds nobody up.
fn connect(socket: &Path) -> Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?) {
        Err(Errno::AGAIN) => bail!("{} takes no connections: others wait", socket.display()),
        connected => connected?,
    }
    let stream = UnixStream::from(stream);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

const EMPTY: Doorbell = zerocopy::transmute!([0u8; 16]);

/// The device's patience, from its configuration space.
fn stale_us(vhost: &mut Frontend) -> Result<u64> {
    let bytes = [0; size_of::<wire::Config>()];
    let (_, config) =
        vhost.get_config(0, bytes.len() as u32, VhostUserConfigFlags::empty(), &bytes)?;
    let config = wire::Config::read_from_bytes(&config).ok().context("no configuration space")?;
    let revision = config.revision.get();
    if revision != wire::REVISION {
        // One that does not know of this will not take it: the log has it in any case.
        let _ = tell(vhost, stranger::FRONT_END, wire::REVISION);
        bail!(
            "the daemon's device has tables of revision {revision}, this program has {}; expected \
             ccc-vhost and ccc-bpf of one release, and restarted since",
            wire::REVISION
        );
    }
    Ok(u64::from(config.stale_us.get()).clamp(10_000, 10_000_000))
}

impl std::fmt::Debug for FrontEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrontEnd").field("offered", &self.offered).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_with_a_full_backlog_holds_nobody_up() {
        let path = std::env::temp_dir().join(format!("ccc-bpf-full-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("bound");
        rustix::net::listen(&listener, 1).expect("a short backlog");
        let waiting: Vec<_> = std::iter::from_fn(|| connect(&path).ok()).take(100).collect();
        assert!(!waiting.is_empty() && waiting.len() < 100);
        let told = connect(&path).expect_err("full").to_string();
        std::fs::remove_file(&path).expect("removed");
        assert!(told.ends_with("takes no connections: others wait"), "{told}");
    }
    #[test]
    fn a_daemon_that_hangs_holds_nobody_up_for_long() {
        let path = std::env::temp_dir().join(format!("ccc-bpf-hangs-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let _listener = UnixListener::bind(&path).expect("bound");
        let (done, ended) = mpsc::channel();
        let socket = path.clone();
        thread::spawn(move || done.send(tell_of_agent(&socket, 2).is_err()));
        let failed = ended.recv_timeout(20 * PATIENCE);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(failed, Ok(true), "it waits still");
    }
}
