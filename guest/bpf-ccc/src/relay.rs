// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The relay on the host of guests whose agents have no shared memory: for each it has a table
//! that it lends to the daemon, puts the agent's reports into it, and tells the agent what the
//! daemon writes.
//!
//! A VM is known by its CID where the kernel has vhost-vsock, and else by the Unix socket to which
//! its VMM takes its connections to CID 2, as Cloud Hypervisor, Firecracker and vhost-device-vsock
//! do (`PATH_PORT`); so none can be another.  What comes is a guest's: it is bounded here, and what
//! it means the daemon judges as any driver's.
use std::{
    collections::BTreeMap,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use ccc_proto::wire::{self, Extent, ExtentStatus, GrantLine, SlotGrant};
use log::Level;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vsock::{VMADDR_CID_ANY, VsockListener};

use crate::{
    bound::Bound,
    frames::{Frame, Frames},
    front::Front,
    front_end::FrontEnd,
    lent::{Layout, Lent},
    log_limit::Limited,
    serve::now_us,
    wanted::{self, Wanted},
};

/// How a place of ours begins in the daemon's settings.
const VSOCK: &str = "vsock:";
/// How often it is looked whether to go on.
const LOOK: Duration = Duration::from_millis(100);
/// How often the daemon's connection is looked after, and an agent hears until when grants hold.
const TEND_US: u64 = 100_000;
/// An agent that is silent for longer has gone: it says something ten times a second.
const SILENT_US: u64 = 5_000_000;
/// Grants are looked at so often while there are reports, and so often while there are none.
const BUSY_US: u64 = 1000;
const IDLE_US: u64 = 20_000;
/// After so long without a report there are none.
const REPORTS_US: u64 = 1_000_000;
/// What comes sooner after what came before waits: no guest takes more of this host than what
/// it sends in bursts so far apart.
const PACE: Duration = Duration::from_micros(200);
/// Slots and lines of a guest: what an agent has, and room for later ones.
const SLOTS_MAX: u32 = 4096;
const LINES_MAX: u32 = 64;

/// Where a VM's agents come in.
enum Door {
    /// They connect to a socket of its own.
    Path(PathBuf),
    /// Whoever accepts those of all CIDs passes them on.
    Cid(Receiver<OwnedFd>),
}

/// A VM that is served.
struct Serving {
    wanted: Wanted,
    /// Its CID, and where its connections go.
    passed: Option<(u32, SyncSender<OwnedFd>)>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Serving {
    /// `place` is a CID, or the path of a VMM's socket.
    fn start(wanted: &Wanted, place: &str, port: u32) -> Serving {
        // One that comes while another is there waits for its end.
        let (sender, receiver) = mpsc::sync_channel(1);
        let (door, passed) = match place.parse() {
            Ok(cid) => (Door::Cid(receiver), Some((cid, sender))),
            Err(_) => (Door::Path(format!("{place}_{port}").into()), None),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (vm, until) = (wanted.clone(), Arc::clone(&stop));
        let thread = thread::spawn(move || serve(&vm, &door, &until));
        Serving { wanted: wanted.clone(), passed, stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            log::error!("tenant {}: its thread has panicked", self.wanted.name);
        }
    }
}

/// Serves the daemon's tenants that are VMs with an agent, until it is to stop.
pub fn run(control: PathBuf, port: u32, stop: &Arc<AtomicBool>) {
    let asked = wanted::watch(control);
    let mut serving: BTreeMap<String, Serving> = BTreeMap::new();
    let mut cids = Cids { port, listener: None, said: Limited::default() };
    while !stop.load(Ordering::Relaxed) {
        if let Ok(wanted) = asked.recv_timeout(LOOK) {
            follow(&mut serving, &wanted, port);
        }
        if serving.values().any(|vm| vm.passed.is_some()) {
            cids.pass_on(&serving);
        }
    }
    serving.into_values().for_each(Serving::stop);
}

fn follow(serving: &mut BTreeMap<String, Serving>, wanted: &[Wanted], port: u32) {
    let is_wanted = |known: &Serving| wanted.contains(&known.wanted) && !known.thread.is_finished();
    let gone = serving.iter().filter(|(_, known)| !is_wanted(known)).map(|(name, _)| name.clone());
    for name in gone.collect::<Vec<_>>() {
        serving.remove(&name).into_iter().for_each(Serving::stop);
        log::info!("tenant {name}: is served no more");
    }
    for vm in wanted {
        let place = vm.place.strip_prefix(VSOCK).filter(|_| !serving.contains_key(&vm.name));
        if let Some(place) = place {
            serving.insert(vm.name.clone(), Serving::start(vm, place, port));
        }
    }
}

/// Where agents of all VMs come in that the kernel's vhost-vsock serves.
struct Cids {
    port: u32,
    listener: Option<VsockListener>,
    /// What goes wrong, and who comes of whom nothing is known.
    said: Limited,
}

impl Cids {
    fn pass_on(&mut self, serving: &BTreeMap<String, Serving>) {
        if let Err(error) = self.accept(serving) {
            self.said.say(Level::Warn, format_args!("{error:#}"));
        }
    }

    fn accept(&mut self, serving: &BTreeMap<String, Serving>) -> Result<()> {
        if self.listener.is_none() {
            let port = self.port;
            let bound = VsockListener::bind_with_cid_port(VMADDR_CID_ANY, port);
            let listener =
                bound.with_context(|| format!("cannot listen at port {port} of vsock"))?;
            listener.set_nonblocking(true)?;
            log::info!("listening at port {port} of vsock");
            self.listener = Some(listener);
        }
        // No more than this at a time: others are to be looked after, too.
        for _ in 0..serving.len() {
            let Some(Ok((stream, peer))) = self.listener.as_ref().map(VsockListener::accept) else {
                break;
            };
            let cid = peer.cid();
            let of_peer = |vm: &&Serving| vm.passed.as_ref().is_some_and(|(its, _)| *its == cid);
            let door = serving.values().find(of_peer).and_then(|vm| vm.passed.as_ref());
            match door {
                // It is closed if another one waits already.
                Some((_, door)) => drop(door.try_send(stream.into())),
                None => self.said.say(
                    Level::Warn,
                    format_args!("CID {cid} is no tenant: cccctl tenant add NAME --vsock {cid}"),
                ),
            }
        }
        Ok(())
    }
}

/// Serves one VM's agents, one after another.
fn serve(vm: &Wanted, door: &Door, stop: &AtomicBool) {
    let mut said = Limited::default();
    match door {
        Door::Path(path) => serve_path(vm, path, &mut said, stop),
        Door::Cid(passed) => loop {
            match passed.recv_timeout(LOOK) {
                Ok(stream) => serve_one(stream, vm, &mut said, stop),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        },
    }
}

fn serve_path(vm: &Wanted, path: &Path, said: &mut Limited, stop: &AtomicBool) {
    let name = &vm.name;
    let mut told = None;
    while !stop.load(Ordering::Relaxed) {
        let served = Bound::at(path).and_then(|at| accept_all(at.listener(), vm, said, stop));
        if let Err(error) = served {
            let error = format!("{error:#}");
            if told.as_ref() != Some(&error) {
                log::warn!("tenant {name}: {error}");
            }
            told = Some(error);
            thread::sleep(LOOK);
        }
    }
}

fn accept_all(
    listener: &UnixListener,
    vm: &Wanted,
    said: &mut Limited,
    stop: &AtomicBool,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        if !readable(listener, LOOK.as_micros() as u64)? {
            continue;
        }
        if let Ok((stream, _)) = listener.accept() {
            serve_one(stream.into(), vm, said, stop);
        }
    }
    Ok(())
}

fn serve_one(stream: OwnedFd, vm: &Wanted, said: &mut Limited, stop: &AtomicBool) {
    let served = Relay::begin(stream, vm, said, stop).and_then(|mut relay| relay.run(stop));
    if let Err(error) = served {
        let name = &vm.name;
        said.say(Level::Info, format_args!("tenant {name}: its flows go on alone: {error:#}"));
    }
    // Nor does one that comes and goes take more of this host than one that sends.
    thread::sleep(PACE);
}

/// Whether there is something to read within so long.
fn readable(what: &impl AsFd, most_us: u64) -> Result<bool> {
    let mut all = [PollFd::new(what, PollFlags::IN)];
    let (tv_sec, rest) = (most_us / 1_000_000, most_us % 1_000_000);
    let most = Timespec { tv_sec: tv_sec as _, tv_nsec: (rest * 1000) as _ };
    match poll(&mut all, Some(&most)) {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        ready => Ok(ready == Ok(1)),
    }
}

/// An agent, and the table that is its VM's.
struct Relay<'a> {
    vm: &'a Wanted,
    frames: Frames<File>,
    table: Lent,
    /// None while the daemon is not there.
    front: Option<FrontEnd>,
    told: Option<String>,
    said: &'a mut Limited,
    /// What the agent knows of the daemon's part.
    status: ExtentStatus,
    lines: Vec<GrantLine>,
    slots: Vec<SlotGrant>,
    /// Slots from the first one of which there were reports.
    used: u32,
    heard_us: u64,
    reported_us: u64,
    tend_at_us: u64,
}

impl<'a> Relay<'a> {
    /// Makes a table for what the agent says that it has.
    fn begin(
        stream: OwnedFd,
        vm: &'a Wanted,
        said: &'a mut Limited,
        stop: &AtomicBool,
    ) -> Result<Relay<'a>> {
        let mut frames = Frames::over(stream)?;
        let extent = hello(&mut frames, stop)?;
        let (slots, lines) = (extent.slots.get(), extent.grant_lines.get());
        ensure!(
            (1..=SLOTS_MAX).contains(&slots),
            "its agent has {slots} slots; expected 1 to {SLOTS_MAX}"
        );
        ensure!(
            (1..=LINES_MAX).contains(&lines),
            "its agent has {lines} lines; expected 1 to {LINES_MAX}"
        );
        let table = Lent::create(Layout::of(slots, lines)).context("no memory for a table")?;
        let now = now_us();
        said.say(Level::Info, format_args!("tenant {}: its agent has connected", vm.name));
        Ok(Relay {
            vm,
            frames,
            table,
            front: None,
            told: None,
            said,
            status: zerocopy::transmute!([0u8; 64]),
            lines: vec![zerocopy::transmute!([0u8; 64]); lines as usize],
            slots: vec![zerocopy::transmute!([0u8; 16]); slots as usize],
            used: 0,
            heard_us: now,
            reported_us: now,
            tend_at_us: 0,
        })
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let now = now_us();
            if readable(self.frames.stream(), self.patience_us(now))? {
                self.take(now_us())?;
            }
            let now = now_us();
            ensure!(now - self.heard_us < SILENT_US, "its agent is silent");
            if now >= self.tend_at_us {
                self.tend_at_us = now + TEND_US;
                self.tend(now);
            }
            if let Some(front) = &mut self.front {
                front.flush();
            }
            self.tell();
            self.frames.flush()?;
            thread::sleep(PACE);
        }
        Ok(())
    }

    /// Looks after the connection to the daemon, and says until when grants hold.
    fn tend(&mut self, now: u64) {
        let Relay { vm, front, table, told, said, .. } = self;
        let name = &vm.name;
        let received = front.as_mut().map(|there| there.receive(now, table));
        if let Some(Err(error)) = received {
            said.say(Level::Warn, format_args!("tenant {name}: {error:#}; its flows go on alone"));
            *front = None;
        }
        if front.is_none() {
            match FrontEnd::connect(&vm.socket, table, now) {
                Ok(there) => (*front, *told) = (Some(there), None),
                Err(error) => {
                    let error = format!("{error:#}");
                    if told.as_ref() != Some(&error) {
                        let what =
                            format_args!("tenant {name}: cannot connect to the daemon: {error}");
                        said.say(Level::Warn, what);
                    }
                    *told = Some(error);
                }
            }
        }
        let until = front.as_mut().map_or(0, |front| front.lease(now));
        let hold_us = u32::try_from(until.saturating_sub(now)).unwrap_or(u32::MAX);
        // An agent that does not read has no lease for long.
        self.frames.send(&Frame::Alive(hold_us));
    }

    /// How long may be waited for the agent.
    fn patience_us(&self, now: u64) -> u64 {
        if now - self.reported_us < REPORTS_US { BUSY_US } else { IDLE_US }
    }

    /// Takes what has come, or a part of it.
    fn take(&mut self, now: u64) -> Result<()> {
        self.frames.receive()?;
        self.heard_us = now;
        while let Some(frame) = self.frames.next()? {
            match frame {
                Frame::Report(slot, report) if slot < self.table.layout().slots => {
                    self.table.set_report(slot, &report);
                    self.used = self.used.max(slot + 1);
                    self.reported_us = now;
                }
                Frame::Message(message) => {
                    if let Some(front) = &mut self.front {
                        front.send(now, &self.table, &message);
                    }
                }
                Frame::Alive(_) => {}
                other => bail!("its agent sends what is not expected: {other:?}"),
            }
        }
        Ok(())
    }

    /// Tells the agent what the daemon has written since.
    fn tell(&mut self) {
        let Relay { frames, table, status, lines, slots, used, .. } = self;
        let now = table.status();
        if now != *status && frames.send(&Frame::Status(now)) {
            *status = now;
        }
        for (number, known) in (0..).zip(lines) {
            match table.line(number) {
                Some(now) if now != *known && frames.send(&Frame::Line(number, now)) => {
                    *known = now;
                }
                _ => {}
            }
        }
        for (number, known) in (0..*used).zip(slots) {
            let now = table.slot_grant(number);
            if now != *known && frames.send(&Frame::Slot(number, now)) {
                *known = now;
            }
        }
    }
}

/// What an agent says first.
fn hello(frames: &mut Frames<File>, stop: &AtomicBool) -> Result<Extent> {
    let until = now_us() + SILENT_US;
    while now_us() < until && !stop.load(Ordering::Relaxed) {
        if !readable(frames.stream(), LOOK.as_micros() as u64)? {
            continue;
        }
        frames.receive()?;
        match frames.next()? {
            None => {}
            Some(Frame::Hello(wire::REVISION, extent)) => return Ok(extent),
            Some(Frame::Hello(revision, _)) => {
                bail!("its agent has revision {revision}; expected {}", wire::REVISION)
            }
            Some(other) => bail!("its agent begins with {other:?}; expected a hello"),
        }
    }
    bail!("its agent says nothing")
}
