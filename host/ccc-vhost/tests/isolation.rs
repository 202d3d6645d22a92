// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What one front end does costs no other VM its daemon, nor its turn.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use ccc_proto::wire;
use rustix::{
    fs::{FallocateFlags, MemfdFlags, OFlags},
    process::{Pid, Resource, Rlimit},
};
use support::{
    daemon::{Daemon, until, until_tried},
    driver::{Driver, Extent, report},
    frontend::{BASE, FrontEnd, Guest, MEMORY, Mode, file_of, guest, guest_in, memfd},
};
use vhost::vhost_user::{
    VhostUserFrontend,
    message::{VhostTransferStateDirection as Direction, VhostTransferStatePhase as Phase},
};
use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EFD_SEMAPHORE, EventFd};

const TWO: [(&str, f64, &str); 2] = [("a", 1.0, "default"), ("b", 1.0, "default")];
const PAGE: u64 = 4096;

/// The VM that has to be served whatever the other does.
struct Victim {
    driver: Driver,
    extent: Extent,
    generation: u32,
}

impl Victim {
    fn new(daemon: &Daemon) -> Victim {
        let mut driver = Driver::connect(&daemon.socket("b"), Mode::InBand);
        let extent = driver.offer_extent(0, 4, 1);
        Victim { driver, extent, generation: 0 }
    }

    /// A flow begins, which the daemon does before it answers the kick.
    fn is_served(&mut self) {
        self.generation += 1;
        self.driver.register(&self.extent, 0, self.generation);
        assert!(self.driver.accepted(&self.extent, 0, self.generation), "not served");
    }
}

fn never_block(fd: impl AsFd, never: bool) {
    let flags = rustix::fs::fcntl_getfl(&fd).unwrap();
    let flags = if never { flags | OFlags::NONBLOCK } else { flags & !OFlags::NONBLOCK };
    rustix::fs::fcntl_setfl(&fd, flags).unwrap();
}

#[test]
fn t1_half_a_message_stops_nobody() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    // A machine that stands still for longer than the daemon waits tells nothing.
    let served_meanwhile = (1..=20).any(|times| {
        let mut front = FrontEnd::open(&daemon.socket("a"), Mode::Eventfd);
        front.stream.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0]).unwrap();
        victim.is_served();
        let served = daemon.lines("stopped after 9") < times;
        until("ended", || daemon.lines("stopped after 9") == times);
        served
    });
    assert!(served_meanwhile, "the victim waited for the end of the message");
    let mut half = FrontEnd::open(&daemon.socket("a"), Mode::Eventfd);
    half.stream.write_all(&[2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 1, 2, 3, 4]).unwrap();
    daemon.says("message of 20 bytes stopped after 16");
    victim.is_served();
}

#[test]
fn t1_a_message_in_pieces_is_taken_whole() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let config: Vec<u8> =
        [24u32, 1, 28, 0, 16, 0, 0, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    // The daemon waits no longer for the end of a message.
    until_tried("taken whole", Duration::from_secs(2), || {
        let since = Instant::now();
        let mut front = FrontEnd::open(&daemon.socket("a"), Mode::Eventfd);
        let sent = config.iter().all(|byte| {
            victim.is_served();
            front.stream.write_all(&[*byte]).is_ok()
        });
        let mut answer = [0; 12 + 28];
        let answered = sent && front.stream.read_exact(&mut answer).is_ok();
        (since, answered && (answer[0], answer[24]) == (24, wire::REVISION as u8))
    });
    assert!(daemon.running());
}

#[test]
fn t1_replies_nobody_reads_stop_nobody() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let mut front = FrontEnd::open(&daemon.socket("a"), Mode::Eventfd);
    never_block(&front.stream, true);
    let features: Vec<u8> = [1u32, 1, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut ended = false;
    until("dropped", || {
        ended = match front.stream.write(&features) {
            Ok(_) => false,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        ended || daemon.lines("does not read") > 0
    });
    victim.is_served();
    daemon.says("VM a: disconnected: front end does not read its answers");
}

#[test]
fn t2_calls_nobody_acknowledges_stop_nobody() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    // Kicked by descriptor, called on the channel.
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let kick = EventFd::new(0).unwrap();
    driver.front.set_kick(wire::VQ_DOORBELL, &kick);
    for _ in 0..3 {
        driver.want_call(wire::VQ_DOORBELL);
        driver.offer_bell(wire::OP_RESCAN, 0, 0);
        kick.write(1).unwrap();
        driver.settle();
        victim.is_served();
    }
    assert_eq!(daemon.lines("cannot call its driver"), 0, "the victim waited for the other's");
    until("called", || driver.front.called(wire::VQ_DOORBELL));
}

#[test]
fn t2_a_channel_nobody_reads_is_given_up_once() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let kick = EventFd::new(0).unwrap();
    driver.front.set_kick(wire::VQ_DOORBELL, &kick);
    let (_ours, theirs) = UnixStream::pair().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&theirs, 1).unwrap();
    driver.front.vhost.set_backend_request_fd(&theirs).unwrap();
    for _ in 0..200 {
        driver.want_call(wire::VQ_DOORBELL);
        driver.offer_bell(wire::OP_RESCAN, 0, 0);
        kick.write(1).unwrap();
        driver.settle();
    }
    victim.is_served();
    assert_eq!(daemon.lines("cannot call its driver"), 1);
    assert!(daemon.log().contains("the channel for calls is full"));
}

/// Requests of vhost-user that bring a descriptor.
const KICK: u32 = 12;
const CALL: u32 = 13;

#[test]
fn t2_a_descriptor_that_takes_long_to_close_stops_nobody() {
    use std::net::{TcpListener, TcpStream};
    const LINGERS: Duration = Duration::from_secs(1800);
    let daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut full = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _reads_nothing = listener.accept().unwrap();
    never_block(&full, true);
    while full.write(&[0; 65_536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&full, Some(LINGERS)).unwrap();
    never_block(&full, false);
    let mut front = FrontEnd::open(&daemon.socket("a"), Mode::Eventfd);
    front.give(CALL, wire::VQ_EVENT, full.as_fd());
    // The daemon has the only one now, and closes it with the connection.
    drop((full, front));
    for _ in 0..20 {
        victim.is_served();
    }
}

/// Kicks that were taken from a semaphore that never runs dry.
fn left(semaphore: &EventFd) -> u64 {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fdinfo/{}", semaphore.as_raw_fd());
    let info = std::fs::read_to_string(path).unwrap();
    let count = info.lines().find_map(|line| line.strip_prefix("eventfd-count:")).unwrap();
    u64::from_str_radix(count.trim(), 16).unwrap()
}

#[test]
fn t7_a_kick_that_never_runs_dry_is_taken_at_a_limited_rate() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    let extent = driver.offer_extent(0, 4, 1);
    let full = 1 << 62;
    let kick = EventFd::new(EFD_SEMAPHORE | EFD_NONBLOCK).unwrap();
    kick.write(full).unwrap();
    let started = Instant::now();
    driver.front.set_kick(wire::VQ_DOORBELL, &kick);
    std::thread::sleep(Duration::from_millis(300));
    victim.is_served();
    let taken = full - left(&kick);
    let allowed = 200 + 2 * started.elapsed().as_millis() as u64;
    assert!(taken > 0 && taken <= allowed, "{taken} kicks in {:?}", started.elapsed());
    // What is in the queue is done all the same.
    driver.write_slot(&extent, 1, &report(7));
    driver.offer_bell(wire::OP_REGISTER, 1, 7);
    until("done at the next kick", || driver.accepted(&extent, 1, 7));
    assert!(daemon.running());
}

#[test]
fn t7_a_kick_that_is_no_eventfd_is_refused() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    // Readable for ever, and cannot be read from.
    let waiting = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let ready = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let data = rustix::event::epoll::EventData::new_u64(0);
    let events = rustix::event::epoll::EventFlags::IN;
    rustix::event::epoll::add(&waiting, &ready, data, events).unwrap();
    driver.front.give(KICK, wire::VQ_DOORBELL, waiting.as_fd());
    victim.is_served();
    daemon.says("descriptor for kicks is no eventfd");
}

/// A daemon, the attacker with an extent of four slots, and the victim.
fn faulty(guest: Guest) -> (Daemon, Driver, Extent, Victim) {
    let daemon = Daemon::start(&TWO);
    let victim = Victim::new(&daemon);
    let mut driver = Driver::connect_with(&daemon.socket("a"), Mode::Eventfd, guest);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 1, 5);
    (daemon, driver, extent, victim)
}

fn is_the_vms_own_trouble(daemon: &mut Daemon, victim: &mut Victim) {
    daemon.says("VM a: disconnected: its memory cannot be used any more");
    victim.is_served();
    assert!(daemon.running());
    // It may come back, with memory that is there.
    let mut again = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    let extent = again.offer_extent(0, 4, 1);
    again.register(&extent, 1, 5);
    until("served again", || again.accepted(&extent, 1, 5));
}

#[test]
fn f3_memory_that_is_truncated_costs_the_vm_that_does_it() {
    for length in [0, MEMORY as u64 / 8] {
        let (mut daemon, mut driver, ..) = faulty(guest());
        driver.offer_bell(wire::OP_RESCAN, 0, 0);
        file_of(&driver.guest).set_len(length).unwrap();
        driver.front.kick(wire::VQ_DOORBELL);
        let mut victim = Victim::new(&daemon);
        is_the_vms_own_trouble(&mut daemon, &mut victim);
    }
}

#[test]
fn f3_memory_that_is_gone_when_another_vm_is_served_costs_its_own() {
    let (mut daemon, driver, _, mut victim) = faulty(guest());
    file_of(&driver.guest).set_len(0).unwrap();
    // The group's other VM has a flow more: a new line for the first.
    victim.is_served();
    is_the_vms_own_trouble(&mut daemon, &mut victim);
}

#[test]
fn f3_a_log_of_written_pages_that_is_truncated_costs_the_vm_that_does_it() {
    let (mut daemon, mut driver, _, mut victim) = faulty(guest());
    let log = driver.front.log();
    log.set_len(0).unwrap();
    driver.offer_bell(wire::OP_RESCAN, 0, 0);
    driver.front.kick(wire::VQ_DOORBELL);
    victim.is_served();
    is_the_vms_own_trouble(&mut daemon, &mut victim);
}

#[test]
fn f3_no_vm_has_all_of_the_daemons_addresses() {
    const HUGE: u64 = 2 << 40;
    let mut daemon = Daemon::start(&TWO);
    let file = memfd(0, MemfdFlags::CLOEXEC).unwrap();
    file.set_len(HUGE).unwrap();
    let mut front = FrontEnd::open(&daemon.socket("a"), Mode::Eventfd);
    assert!(!front.give_memory(&file, HUGE), "2 TiB are taken");
    daemon.says("2199023255552 bytes of memory; a VM may have 1099511627776");
    assert!(front.give_memory(&file, 1 << 40), "it goes on with less");
    Victim::new(&daemon).is_served();
}

/// A set that waits for so many files; the kernel says of it which.
fn epoll_set(items: usize) -> (File, Vec<OwnedFd>) {
    use rustix::event::{EventfdFlags, epoll, eventfd};
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let one = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let twins: Vec<_> = (0..items).map(|_| one.try_clone().unwrap()).collect();
    for twin in &twins {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&set, twin, data, epoll::EventFlags::empty()).unwrap();
    }
    (File::from(set), twins)
}

#[test]
fn f3_memory_that_the_kernel_has_much_to_say_of_is_refused_unread() {
    use std::os::fd::AsRawFd;
    const TIMES: u64 = 50;
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let (set, _watched) = epoll_set(500);
    let about = format!("/proc/self/fdinfo/{}", set.as_raw_fd());
    let about_bytes = std::fs::read(about).unwrap().len() as u64;
    let before = daemon.read_bytes();
    for _ in 0..TIMES {
        let mut front = FrontEnd::open(&daemon.socket("a"), Mode::Eventfd);
        assert!(!front.give_memory(&set, MEMORY as u64), "it is no memory");
        victim.is_served();
    }
    let read = daemon.read_bytes() - before;
    assert!(about_bytes > 10_000, "{about_bytes} bytes are not much");
    assert!(read < TIMES * about_bytes / 4, "{read} bytes of {TIMES} times {about_bytes}");
    daemon.says("memory in a file that is not in memory");
}

/// A file on a tmpfs of so many bytes, which nobody else sees.
fn small_tmpfs(bytes: u64) -> Option<(rustix::fd::OwnedFd, File)> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
        fsopen,
    };
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_set_string(context.as_fd(), "size", bytes.to_string()).ok()?;
    fsconfig_create(context.as_fd()).ok()?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = fsmount(context.as_fd(), flags, MountAttrFlags::empty()).ok()?;
    let create = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let file = rustix::fs::openat(&mount, "memory", create, mode).ok()?;
    Some((mount, File::from(file)))
}

#[test]
fn f3_a_hole_in_a_full_tmpfs_costs_the_vm_that_makes_it() {
    let bytes = MEMORY as u64;
    let Some((mount, file)) = small_tmpfs(bytes + 16 * PAGE) else {
        eprintln!("skipped: mounting a tmpfs needs CAP_SYS_ADMIN");
        return;
    };
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
    let guest = guest_in(vec![(BASE, MEMORY, file)]);
    let (mut daemon, mut driver, extent, mut victim) = faulty(guest);
    driver.offer_bell(wire::OP_RESCAN, 0, 0);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let page = (extent.reports - BASE) / PAGE * PAGE;
    rustix::fs::fallocate(file_of(&driver.guest), hole, page, PAGE).unwrap();
    let create = OFlags::CREATE | OFlags::RDWR;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let mut filler = File::from(rustix::fs::openat(&mount, "filler", create, mode).unwrap());
    while filler.write(&[1; PAGE as usize]).is_ok() {}
    driver.front.kick(wire::VQ_DOORBELL);
    is_the_vms_own_trouble(&mut daemon, &mut victim);
}

#[test]
fn f3_hugetlbfs_without_pages_costs_the_vm_that_uses_it() {
    const HUGE: usize = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let file = match memfd(HUGE, flags) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("skipped: no hugetlbfs here: {error}");
            return;
        }
    };
    let pages = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    if pages.is_ok_and(|pages| pages.trim() != "0") {
        eprintln!("skipped: there are huge pages to have");
        return;
    }
    let at = BASE + (16 << 20);
    let plain = memfd(MEMORY, MemfdFlags::CLOEXEC).unwrap();
    let guest = guest_in(vec![(BASE, MEMORY, plain), (at, HUGE, file)]);
    let (mut daemon, mut driver, _, mut victim) = faulty(guest);
    // A message that lies where there is no page.
    driver.offer(wire::VQ_DOORBELL, &[(at + 64, 16, 0)]);
    driver.front.kick(wire::VQ_DOORBELL);
    is_the_vms_own_trouble(&mut daemon, &mut victim);
}

#[test]
fn f3_a_pipe_that_never_ends_stops_nobody() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let front = FrontEnd::open(&daemon.socket("a"), Mode::Eventfd);
    let (read, write) = rustix::pipe::pipe().unwrap();
    let ours = read.try_clone().unwrap();
    front.vhost.set_device_state_fd(Direction::LOAD, Phase::STOPPED, read).unwrap();
    // The front end shares the pipe's flags.
    never_block(&ours, false);
    assert!(front.vhost.check_device_state().is_err());
    victim.is_served();
    drop(write);
    // One that takes nothing.
    let (_read, write) = rustix::pipe::pipe().unwrap();
    never_block(&write, true);
    let mut full = File::from(write.try_clone().unwrap());
    while full.write(&[0; 4096]).is_ok() {}
    never_block(&write, false);
    let begun = front.vhost.set_device_state_fd(Direction::SAVE, Phase::STOPPED, write);
    assert!(begun.is_err() || front.vhost.check_device_state().is_err());
    victim.is_served();
    // No pipe, but a socket whose peer says nothing.
    let (theirs, _silent) = UnixStream::pair().unwrap();
    let begun = front.vhost.set_device_state_fd(Direction::LOAD, Phase::STOPPED, theirs.into());
    assert!(begun.is_err(), "a socket is taken for a pipe");
    daemon.says("descriptor for the state is no pipe");
    victim.is_served();
    assert!(daemon.running());
}

/// Lets the daemon open no more descriptors than it has; what it could before.
fn exhaust(daemon: &Daemon) -> Rlimit {
    let fd = |number: &u64| format!("/proc/{}/fd/{number}", daemon.pid());
    let free = (0..).find(|number| std::fs::symlink_metadata(fd(number)).is_err());
    limit(daemon, Rlimit { current: free, maximum: None })
}

fn limit(daemon: &Daemon, to: Rlimit) -> Rlimit {
    let pid = Pid::from_raw(daemon.pid() as i32);
    let before = rustix::process::getrlimit(Resource::Nofile);
    let to = Rlimit { maximum: before.maximum, ..to };
    rustix::process::prlimit(pid, Resource::Nofile, to).unwrap()
}

#[test]
fn f4_a_daemon_without_descriptors_waits_and_serves_on() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let before = exhaust(&daemon);
    let mut waiting = UnixStream::connect(daemon.socket("a")).unwrap();
    daemon.says("VM a: cannot accept its front end: ");
    let (started, worked) = (Instant::now(), daemon.worked());
    std::thread::sleep(Duration::from_millis(500));
    victim.is_served();
    let (said, worked) = (daemon.lines("cannot accept"), daemon.worked() - worked);
    let waited = started.elapsed();
    assert!(said <= allowed(waited), "{said} lines in {waited:?}");
    assert!(worked < waited / 4, "worked {worked:?} of {waited:?}");
    limit(&daemon, before);
    // One that was accepted when a descriptor was free for a moment is cut off, and
    // connects again as any front end does.
    until("served once there are descriptors", || {
        let served = is_answered(&mut waiting);
        if !served {
            waiting = UnixStream::connect(daemon.socket("a")).unwrap();
        }
        served
    });
}

/// Whether a front end that asks for the features is told them.
fn is_answered(front: &mut UnixStream) -> bool {
    front.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let asked = front.write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    asked.is_ok() && front.read_exact(&mut [0; 20]).is_ok()
}

/// Lines about a VM that its front end may cause in a time.
fn allowed(time: Duration) -> usize {
    60 + 4 * time.as_secs() as usize
}

#[test]
fn t8_refused_requests_do_not_fill_the_log() {
    let mut daemon = Daemon::start(&TWO);
    let mut front = FrontEnd::open(&daemon.socket("a"), Mode::Eventfd);
    let started = Instant::now();
    for _ in 0..1000 {
        // No such queue.
        front.send(8, 1 | 8, &[9, 64]);
        front.stream.read_exact(&mut [0; 20]).unwrap();
    }
    front.close();
    daemon.says("VM a: disconnected");
    let said = daemon.lines("WARN");
    assert!(said > 0 && said <= allowed(started.elapsed()), "{said} lines");
    daemon.says("requests 1000");
}

#[test]
fn t8_front_ends_that_come_and_go_do_not_fill_the_log() {
    let mut daemon = Daemon::start(&TWO);
    let mut victim = Victim::new(&daemon);
    let started = Instant::now();
    for _ in 0..300 {
        drop(UnixStream::connect(daemon.socket("a")).unwrap());
        victim.is_served();
    }
    let said = daemon.lines("VM a: ");
    assert!(said > 0 && said <= allowed(started.elapsed()), "{said} lines");
    std::thread::sleep(Duration::from_millis(1100));
    drop(UnixStream::connect(daemon.socket("a")).unwrap());
    daemon.says("left out since");
}

#[test]
fn t8_second_front_ends_do_not_fill_the_log() {
    let mut daemon = Daemon::start(&TWO);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    let started = Instant::now();
    for _ in 0..300 {
        let mut second = UnixStream::connect(daemon.socket("a")).unwrap();
        assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
    }
    driver.register(&extent, 1, 1);
    assert!(driver.accepted(&extent, 1, 1));
    let said = daemon.lines("second front end");
    assert!(said > 0 && said <= allowed(started.elapsed()), "{said} lines");
}

/// What a front end does that waits for a daemon in vain: it closes, and its guest
/// uses the memory for something else.
fn gives_up(driver: Driver, place: u64, bytes: usize) -> Guest {
    let Driver { guest, front, .. } = driver;
    front.close();
    guest.write_slice(&vec![0xa5; bytes], GuestAddress(place)).unwrap();
    guest
}

fn is_untouched(guest: &Guest, place: u64, bytes: usize) {
    let mut now = vec![0; bytes];
    guest.read_slice(&mut now, GuestAddress(place)).unwrap();
    let changed = now.iter().filter(|byte| **byte != 0xa5).count();
    assert_eq!(changed, 0, "bytes changed in memory that is no longer the daemon's");
}

#[test]
fn o11_a_daemon_that_hung_touches_no_memory_of_who_gave_it_up() {
    let mut daemon = Daemon::start(&TWO);
    let mut a = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    let mut b = Driver::connect(&daemon.socket("b"), Mode::Eventfd);
    let (of_a, of_b) = (a.offer_extent(0, 4, 1), b.offer_extent(0, 4, 1));
    a.register(&of_a, 0, 1);
    b.register(&of_b, 0, 1);
    until("both are coupled", || a.accepted(&of_a, 0, 1) && b.accepted(&of_b, 0, 1));
    daemon.pause();
    // Each has a kick on its way: one its own, the other changes everybody's lines.
    a.write_slot(&of_a, 1, &report(1));
    a.offer_bell(wire::OP_REGISTER, 1, 1);
    a.front.kick(wire::VQ_DOORBELL);
    b.write_slot(&of_b, 1, &report(1));
    b.offer_bell(wire::OP_REGISTER, 1, 1);
    b.front.kick(wire::VQ_DOORBELL);
    // Longer than what passes for standing still.
    std::thread::sleep(Duration::from_millis(300));
    let guest = gives_up(a, BASE, MEMORY);
    daemon.resume();
    until("b goes on", || b.accepted(&of_b, 1, 1));
    daemon.says("VM a: disconnected");
    is_untouched(&guest, BASE, MEMORY);
}
