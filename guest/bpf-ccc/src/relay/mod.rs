// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The relay on the host of guests whose agents have no shared memory: for each it has a table
//! that it lends to the daemon, puts the agent's reports into it, and tells the agent what the
//! daemon writes.
//!
//! A VM is known by its CID where the kernel has vhost-vsock, and else by the Unix socket to which
//! its VMM takes its connections to CID 2, as Cloud Hypervisor, Firecracker and vhost-device-vsock
//! do (`PATH_PORT`).  The host's kernel writes the CID, so no guest can be another; at a socket
//! whoever may connect to it is that VM, and the rights of its directory say who may.  Of a
//! guest's processes only a privileged one is heard where the transport tells its port; a socket
//! tells none, so there any process of a guest may speak for its own VM.
//!
//! What comes is a guest's: it is bounded here, and what it means the daemon judges as any
//! driver's.  Each VM has a thread, for which nobody waits.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use log::Level;

mod agent;
mod bound;
mod cids;
mod directory;
mod door;
mod lobby;
mod station;

use self::{cids::Doors, directory::Directories, door::Door, station::Station};
use crate::{
    log_limit::Limited,
    serve::now_us,
    wanted::{self, Wanted},
    watchdog::Watchdog,
};

/// How a place of ours begins in the daemon's settings.
const VSOCK: &str = "vsock:";
/// How often it is looked whether to go on.
const LOOK: Duration = Duration::from_millis(100);
/// At the end threads have so long to remove their sockets.
const LEAVE: Duration = Duration::from_secs(3);

/// A VM that is served.
struct Serving {
    wanted: Wanted,
    cid: Option<u32>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Serving {
    /// `place` is a CID, or the path of a VMM's socket.
    fn start(wanted: &Wanted, place: &str, relay: &Relay) -> Result<Serving> {
        let stop = Arc::new(AtomicBool::new(false));
        let (vm, until) = (wanted.clone(), Arc::clone(&stop));
        let cid = place.parse().ok();
        let builder = thread::Builder::new();
        let thread = if let Some(cid) = cid {
            let (sender, door) = door::passed()?;
            let thread = builder.spawn(move || serve(&vm, || Ok(&door), &until));
            thread.inspect(|_| relay.doors.open(cid, sender))
        } else {
            let path = PathBuf::from(format!("{place}_{}", relay.port));
            let directories = relay.directories.clone();
            builder.spawn(move || serve(&vm, || Door::at(&path, &directories), &until))
        };
        let thread =
            thread.context("no thread for it; expected one each (TasksMax=, ulimit -u)")?;
        Ok(Serving { wanted: wanted.clone(), cid, stop, thread })
    }
}

/// Serves the daemon's tenants that are VMs with an agent, until it is to stop.
pub fn run(control: PathBuf, port: u32, stop: &Arc<AtomicBool>) -> Result<()> {
    let asked = wanted::watch(control)?;
    let doors = Doors::default();
    let (open, until) = (doors.clone(), Arc::clone(stop));
    let passes_on = move || cids::serve(port, &open, &until);
    thread::Builder::new().spawn(passes_on).context("no thread for connections by CIDs")?;
    let mut relay = Relay { port, doors, ..Relay::default() };
    let mut watchdog = Watchdog::start();
    while !stop.load(Ordering::Relaxed) {
        watchdog.turn(now_us());
        if let Ok(wanted) = asked.recv_timeout(LOOK) {
            relay.follow(&wanted, || watchdog.turn(now_us()));
        }
    }
    relay.end();
    Ok(())
}

/// All that are served.
#[derive(Default)]
struct Relay {
    port: u32,
    doors: Doors,
    directories: Directories,
    serving: BTreeMap<String, Serving>,
    /// Those that are to end, each in its own time: the daemon may let one wait.
    ending: Vec<Serving>,
    /// Why tenants are not served, as was told.
    told: BTreeMap<String, String>,
}

impl Relay {
    /// Calls `goes_on` after each: there may be a thousand.
    fn follow(&mut self, wanted: &[Wanted], mut goes_on: impl FnMut()) {
        let is_wanted =
            |known: &Serving| wanted.contains(&known.wanted) && !known.thread.is_finished();
        for (name, known) in std::mem::take(&mut self.serving) {
            if is_wanted(&known) {
                self.serving.insert(name, known);
            } else {
                log::info!("tenant {name}: is served no more");
                self.retire(known);
            }
        }
        self.ending.retain(|known| !known.thread.is_finished());
        self.told.retain(|name, _| wanted.iter().any(|vm| vm.name == *name));
        for vm in wanted {
            let place = vm.place.strip_prefix(VSOCK);
            if let Some(place) = place.filter(|_| !self.serving.contains_key(&vm.name)) {
                self.start(vm, place);
            }
            goes_on();
        }
    }

    /// Serves one more, unless another has its place.
    fn start(&mut self, vm: &Wanted, place: &str) {
        let name = &vm.name;
        if self.ending.iter().any(|known| is_same(&known.wanted.place, &vm.place)) {
            return;
        }
        let mut others = self.serving.values().map(|known| &known.wanted);
        let other = others.find(|it| is_same(&it.place, &vm.place)).map(|it| &it.name);
        let served = match other {
            Some(other) => {
                Err(anyhow!("{} is tenant {other}'s; cccctl tenant remove one of them", vm.place))
            }
            None => Serving::start(vm, place, self),
        };
        match served {
            Ok(serving) => {
                self.told.remove(name);
                self.serving.insert(name.clone(), serving);
            }
            Err(error) => {
                let why = format!("{error:#}");
                if self.told.get(name) != Some(&why) {
                    log::warn!("tenant {name}: is not served: {why}");
                    self.told.insert(name.clone(), why);
                }
            }
        }
    }

    fn retire(&mut self, known: Serving) {
        known.stop.store(true, Ordering::Relaxed);
        if let Some(cid) = known.cid {
            self.doors.close(cid);
        }
        self.ending.push(known);
    }

    fn end(mut self) {
        for known in std::mem::take(&mut self.serving).into_values() {
            self.retire(known);
        }
        let began = Instant::now();
        while began.elapsed() < LEAVE && self.ending.iter().any(|known| !known.thread.is_finished())
        {
            thread::sleep(LOOK / 10);
        }
    }
}

/// Whether they are the same place, however it is written.
fn is_same(one: &str, other: &str) -> bool {
    let cid = |place: &str| place.strip_prefix(VSOCK)?.parse::<u32>().ok();
    match (cid(one), cid(other)) {
        (None, None) => Path::new(one) == Path::new(other),
        (one, other) => one == other,
    }
}

/// Serves one VM at its door, which may not be free at first.
fn serve<D: std::borrow::Borrow<Door>>(
    vm: &Wanted,
    open: impl Fn() -> Result<D>,
    stop: &AtomicBool,
) {
    let name = &vm.name;
    let mut station = Station::new(vm);
    // Who may write to a socket's directory can cause lines here.
    let (mut said, mut told) = (Limited::default(), None);
    while !stop.load(Ordering::Relaxed) {
        let opened = open();
        match &opened {
            Ok(door) => {
                told = None;
                if let Some(path) = door.borrow().path() {
                    let path = path.display();
                    said.say(Level::Info, format_args!("tenant {name}: listening at {path}"));
                }
            }
            // Where nobody else can come in, nobody stays.
            Err(_) => station.clear(),
        }
        let served = opened.and_then(|door| station.run(door.borrow(), stop));
        if let Err(error) = served {
            let error = format!("{error:#}");
            let is_told = told.as_ref() == Some(&error);
            if is_told || said.say(Level::Warn, format_args!("tenant {name}: {error}")) {
                told = Some(error);
            }
            thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_however_it_is_written() {
        assert!(is_same("vsock:7", "vsock:07"));
        assert!(is_same("vsock:/run/vm", "vsock:/run//vm"));
        assert!(!is_same("vsock:7", "vsock:70"));
        assert!(!is_same("vsock:7", "vsock:/run/7"));
    }

    #[test]
    fn it_is_said_after_each_vm_that_it_goes_on() {
        let vm = |name: &str, place: &str| Wanted {
            name: name.to_owned(),
            place: place.to_owned(),
            socket: "/nowhere".into(),
        };
        let mut relay = Relay { port: 1, ..Relay::default() };
        let mut seen = 0;
        let all = [vm("a", "vsock:/nowhere/a"), vm("b", "vsock:7"), vm("c", "netns:c")];
        relay.follow(&all, || seen += 1);
        assert_eq!(seen, 3);
        assert_eq!(relay.serving.len(), 2);
        relay.end();
    }
}
