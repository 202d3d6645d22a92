// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Days of virtual time in which flows, VMs, weights and daemons come and go.  A flow of a VM
//! that is there is coupled at any time, and what the daemon holds once all have left is what
//! it held before.
//!
//! `DAYS=7 SEED=101` in the environment: so many, and how they are drawn.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    env,
    fmt::Display,
    fs,
    os::unix::net::UnixListener,
    str::FromStr,
    thread::{self, JoinHandle},
    time::Duration,
};

use ccc_proto::wire::{self, Report};
use fastrand::Rng;
use serde_json::json;
use support::{
    controller::Controller,
    daemon::{Daemon, is_within, text, until},
    driver::{Driver, Extent, report},
    frontend::Mode,
    operator::{Operator, own},
};

const SECOND_NS: u64 = 1_000_000_000;
/// A flow that says nothing for a second does not count, so it speaks more often.
const STEP_NS: u64 = 800_000_000;
const VMS: usize = 6;
const SLOTS: u32 = 32;
const MSS_BYTES: u64 = 1448;

/// In each step, of each VM or flow that may: the chances, one in so many.
const JOINS: u32 = 20;
const LEAVES: u32 = 200;
const LOSES: u32 = 300;
const IS_SILENT: u32 = 50;
const IS_REWEIGHTED: u32 = 2000;
const VM_GOES: u32 = 4000;
const VM_COMES: u32 = 100;
/// Lives of the daemon, in steps: from ten minutes to two days.
const LIFE: [f64; 2] = [750.0, 216_000.0];
/// Between two times at which all leave, in steps: from minutes to hours.
const ALL_STAY: [f64; 2] = [50.0, 5_000.0];

/// Threads that close files are made when they are wanted, and stay.
const CLOSERS: usize = 64;
/// What the allocator may keep or give back.
const MEMORY_KB: u64 = 2048;

/// What the daemon's process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    maps: usize,
    threads: usize,
    memory_kb: u64,
}

impl Held {
    fn by(daemon: &Daemon) -> Held {
        let of = |file: &str| format!("/proc/{}/{file}", daemon.pid());
        let status = fs::read_to_string(of("status")).unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let maps = fs::read_to_string(of("maps")).unwrap();
        Held {
            descriptors: fs::read_dir(of("fd")).unwrap().count(),
            maps: maps.lines().filter(|line| line.contains("memfd:guest")).count(),
            threads: fs::read_dir(of("task")).unwrap().count(),
            memory_kb: memory.trim_end_matches("kB").trim().parse().unwrap(),
        }
    }

    fn is_no_more_than(&self, before: &Held) -> bool {
        self.descriptors <= before.descriptors
            && self.maps <= before.maps
            && self.threads <= before.threads + CLOSERS
            && self.memory_kb <= before.memory_kb + MEMORY_KB
    }
}

/// The daemon, whose time is what the controller says.
struct Host {
    daemon: Daemon,
    controller: Controller,
    listener: UnixListener,
    operator: Operator,
}

/// Waits for a daemon that connects.
fn control(listener: &UnixListener, now_ns: u64) -> JoinHandle<Controller> {
    let listener = listener.try_clone().unwrap();
    thread::spawn(move || {
        let mut controller = Controller::accept(&listener, 2);
        controller.set_time(now_ns);
        controller.begin();
        controller
    })
}

impl Host {
    fn start() -> Host {
        let dir = tempfile::tempdir().unwrap();
        let time = dir.path().join("time");
        let listener = UnixListener::bind(&time).unwrap();
        let controller = control(&listener, 0);
        let settings = own(dir.path(), "");
        let arguments = ["--time-travel", text(&time)];
        let daemon = Daemon::start_logging("info", dir, &[], &settings, &arguments);
        let operator = Operator::at(&daemon.socket("control"));
        Host { daemon, controller: controller.join().unwrap(), listener, operator }
    }

    /// It is killed, and another one begins.
    fn restart(self, now_ns: u64, meanwhile: impl FnOnce()) -> Host {
        let Host { daemon, listener, operator, .. } = self;
        let controller = control(&listener, now_ns);
        let daemon = daemon.restart_while(meanwhile);
        Host { daemon, controller: controller.join().unwrap(), listener, operator }
    }

    /// Time passes, with what the daemon wants to do in it.
    fn pass(&mut self, now_ns: u64) {
        while let Some(at) = self.controller.requested().filter(|at| *at <= now_ns) {
            self.controller.run(at);
        }
        self.controller.set_time(now_ns);
    }

    fn ask(&self, method: &str, path: &str, body: &serde_json::Value) {
        let (status, answer) = self.operator.ask(method, path, Some(body));
        assert_eq!(status, 200, "{method} {path}: {answer}");
    }

    /// What it holds when it has closed what it had not before.
    fn at_rest(&self, before: Option<&Held>) -> Held {
        until("all flows have left", || self.operator.get("/v1/status")["flows"] == 0);
        let closed = || before.is_none_or(|before| Held::by(&self.daemon).is_no_more_than(before));
        is_within(std::time::Instant::now(), Duration::from_secs(10), "all is closed", closed);
        Held::by(&self.daemon)
    }
}

struct Flow {
    slot: u32,
    report: Report,
    /// It said nothing in the step before: two of them are more than a second.
    was_silent: bool,
}

/// A guest with its front end.
struct Guest {
    driver: Driver,
    extent: Extent,
    flows: Vec<Flow>,
    generations: Vec<u32>,
}

impl Guest {
    fn connect(host: &Host, name: &str) -> Guest {
        let mut driver = Driver::connect(&host.daemon.socket(name), Mode::InBand);
        let extent = driver.offer_extent(0, SLOTS, 1);
        Guest { driver, extent, flows: Vec::new(), generations: vec![0; SLOTS as usize] }
    }

    /// Writes a slot; the message of it is read with the next kick.
    fn offer(&mut self, op: u16, slot: u32, report: &Report) {
        self.driver.write_slot(&self.extent, slot, report);
        self.driver.reuse_bell(op, slot, report.generation.get());
    }

    fn come_and_go(&mut self, rng: &mut Rng) -> u64 {
        let mut joins = 0;
        if one_in(rng, JOINS) {
            let is_free = |slot: &u32| self.flows.iter().all(|flow| flow.slot != *slot);
            if let Some(slot) = (0..SLOTS).find(is_free) {
                let generation = &mut self.generations[slot as usize];
                *generation += 1;
                let report = report(*generation);
                self.offer(wire::OP_REGISTER, slot, &report);
                self.flows.push(Flow { slot, report, was_silent: false });
                joins += 1;
            }
        }
        let (gone, stay) = self.flows.drain(..).partition(|_| one_in(rng, LEAVES));
        self.flows = stay;
        let gone: Vec<Flow> = gone;
        for Flow { slot, report, .. } in gone {
            self.offer(wire::OP_LEAVE, slot, &Report { state: wire::STATE_FREE, ..report });
        }
        joins
    }

    fn tell(&mut self, rng: &mut Rng) {
        let epoch = self.driver.line(&self.extent, 0).epoch;
        let mut flows = std::mem::take(&mut self.flows);
        for Flow { slot, report, was_silent } in &mut flows {
            *was_silent = !*was_silent && one_in(rng, IS_SILENT);
            if *was_silent {
                continue;
            }
            let acked = report.delivered_bytes.get() + MSS_BYTES * rng.u64(1..64);
            (report.delivered_bytes, report.acked_limited_bytes) = (acked.into(), acked.into());
            report.state = wire::STATE_CA;
            report.ssthresh_bytes = 14_480.into();
            if one_in(rng, LOSES) {
                report.congestion_events = report.congestion_events.get().wrapping_add(1).into();
                report.congestion_epoch = epoch;
            }
            self.offer(wire::OP_UPDATE, *slot, report);
        }
        self.flows = flows;
        self.driver.front.kick(wire::VQ_DOORBELL);
        self.driver.front.called(wire::VQ_DOORBELL);
    }

    fn all_are_coupled(&self) -> bool {
        let accepted = |flow: &Flow| {
            self.driver.accepted(&self.extent, flow.slot, flow.report.generation.get())
        };
        self.flows.iter().all(accepted)
            && (self.flows.is_empty() || self.driver.coupled(&self.extent))
    }

    fn reconnect(self, host: &Host, name: &str) -> Guest {
        let driver = self.driver.reconnect(&host.daemon.socket(name));
        let mut guest = Guest { driver, ..self };
        guest.driver.front.kick(wire::VQ_TABLE);
        guest.driver.await_status(&guest.extent, wire::EXTENT_ACCEPTED);
        guest.driver.front.kick(wire::VQ_DOORBELL);
        guest
    }
}

fn one_in(rng: &mut Rng, count: u32) -> bool {
    rng.u32(0..count) == 0
}

/// Uniform in the logarithm.
fn log_uniform(rng: &mut Rng, [low, high]: [f64; 2]) -> u64 {
    (low * (high / low).powf(rng.f64())) as u64
}

/// What happened so far.
#[derive(Debug, Default)]
struct Done {
    joins: u64,
    vms: u64,
    weights: u64,
    lives: u64,
    rests: u64,
    /// Rests that were compared with the first of that life.
    compared: u64,
}

struct World {
    rng: Rng,
    now_ns: u64,
    guests: [Option<Guest>; VMS],
    done: Done,
}

fn name_of(vm: usize) -> String {
    format!("vm{vm}")
}

impl World {
    fn step(&mut self, host: &mut Host) {
        self.now_ns += STEP_NS;
        host.pass(self.now_ns);
        for vm in 0..VMS {
            match &mut self.guests[vm] {
                None if one_in(&mut self.rng, VM_COMES) => self.come(host, vm),
                None => {}
                Some(_) if one_in(&mut self.rng, VM_GOES) => self.go(host, vm),
                Some(guest) => {
                    self.done.joins += guest.come_and_go(&mut self.rng);
                    guest.tell(&mut self.rng);
                    assert!(guest.all_are_coupled(), "vm{vm} at {} ns", self.now_ns);
                }
            }
        }
        self.weigh(host);
    }

    fn come(&mut self, host: &Host, vm: usize) {
        let name = name_of(vm);
        let socket = host.daemon.socket(&name);
        host.ask(
            "PUT",
            &format!("/v1/vms/{name}"),
            &json!({"socket": text(&socket), "group": "g"}),
        );
        self.guests[vm] = Some(Guest::connect(host, &name));
        self.done.vms += 1;
    }

    fn go(&mut self, host: &Host, vm: usize) {
        let name = name_of(vm);
        if self.guests[vm].take().is_some() {
            host.ask("DELETE", &format!("/v1/vms/{name}"), &json!({}));
        }
    }

    fn weigh(&mut self, host: &Host) {
        let vm = self.rng.usize(0..VMS);
        if self.guests[vm].is_some() && one_in(&mut self.rng, IS_REWEIGHTED) {
            let weight = json!({"weight": f64::from(self.rng.u32(1..=32)) / 4.0});
            host.ask("PATCH", &format!("/v1/vms/{}", name_of(vm)), &weight);
            self.done.weights += 1;
        }
    }

    /// One life of the daemon, with two times at least at which all leave.
    fn live(&mut self, host: &mut Host, end_ns: u64) {
        let life = log_uniform(&mut self.rng, LIFE).min((end_ns - self.now_ns) / STEP_NS);
        let mut first = None;
        let stay = |rng: &mut Rng| log_uniform(rng, ALL_STAY).min(life / 3);
        let mut all_leave = stay(&mut self.rng);
        for step in 1..=life {
            self.step(host);
            if step == all_leave {
                all_leave += stay(&mut self.rng);
                (0..VMS).for_each(|vm| self.go(host, vm));
                let held = host.at_rest(first.as_ref());
                self.done.compared += u64::from(first.is_some());
                let first = first.get_or_insert(held);
                assert!(held.is_no_more_than(first), "{held:?} of {first:?} at the start");
                eprintln!("{:>6} s: {held:?}", self.now_ns / SECOND_NS);
                self.done.rests += 1;
            }
        }
        self.done.lives += 1;
    }

    /// The next life finds all flows, and those that came while nobody was there.
    fn restart(&mut self, host: Host) -> Host {
        let (rng, guests) = (&mut self.rng, &mut self.guests);
        let host = host.restart(self.now_ns, || {
            for guest in guests.iter_mut().flatten() {
                guest.come_and_go(rng);
            }
        });
        for (vm, guest) in self.guests.iter_mut().enumerate() {
            *guest = guest.take().map(|guest| guest.reconnect(&host, &name_of(vm)));
        }
        let found = self.guests.iter().flatten().all(Guest::all_are_coupled);
        assert!(found, "flows of before are coupled again");
        host
    }
}

/// What a variable of the environment says, if it is there; make hands on empty ones.
fn set<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let value = env::var(name).ok().filter(|value| !value.is_empty());
    value.map(|value| number(name, &value))
}

fn number<T: FromStr<Err: Display>>(name: &str, value: &str) -> T {
    value.parse().unwrap_or_else(|why| panic!("{name}={value}: {why}, a number is expected"))
}

#[test]
#[should_panic(expected = "DAYS=7d: invalid float literal, a number is expected")]
fn what_is_no_number_is_told() {
    number::<f64>("DAYS", "7d");
}

#[test]
fn days_leave_nothing_behind() {
    let days: f64 = set("DAYS").unwrap_or(0.03);
    let rng = Rng::with_seed(set("SEED").unwrap_or(1));
    let mut world = World { rng, now_ns: 0, guests: Default::default(), done: Done::default() };
    let end_ns = (days * 86_400.0 * SECOND_NS as f64) as u64;
    let mut host = Host::start();
    while world.now_ns + STEP_NS <= end_ns {
        world.live(&mut host, end_ns);
        host = world.restart(host);
    }
    let done = &world.done;
    eprintln!("{days} days: {done:?}");
    assert!(done.joins > 0 && done.vms > 0 && done.compared > 0, "too short: {done:?}");
    assert_eq!(host.daemon.lines("panicked"), 0);
}
