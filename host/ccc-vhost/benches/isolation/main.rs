// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How long a VM waits for its update while another attacks the daemon.
//!
//! The victim writes a report, kicks its doorbell queue, and is called when that
//! was done: first with nobody else there, then while another VM's front end or
//! guest, or an operator, does its worst as fast as it can.  Judged is the ratio
//! of the two, for machines differ in speed.  `make bench-isolation`, with
//! `ATTACK=` for those whose names have that in them, and `SECONDS_EACH=`.
#![allow(clippy::unwrap_used, missing_docs)]
#[path = "../../tests/support/mod.rs"]
mod support;

mod attacks;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use ccc_proto::wire;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};
use support::{
    daemon::Daemon,
    driver::{Chunk, Driver, report},
    frontend::Mode,
};

/// What is claimed, on a processor of the daemon's own.
const P99: Duration = Duration::from_millis(5);
const RATIO: f64 = 100.0;
/// Time with nobody else there.
const QUIET: Duration = Duration::from_secs(1);
/// A victim that waits longer has waited for ever.
const PATIENCE: i64 = 30;

/// The VM that is measured.
struct Victim {
    driver: Driver,
    chunk: Chunk,
    acked: u64,
}

impl Victim {
    fn new(daemon: &Daemon) -> Victim {
        let mut driver = Driver::connect(&daemon.socket("victim"), Mode::Eventfd);
        let chunk = driver.lend(0, 4, 1);
        driver.register(&chunk, 0, 1);
        while driver.front.called(wire::VQ_DOORBELL) {}
        Victim { driver, chunk, acked: 0 }
    }

    /// Time from an update to the call that says it was done.
    fn update(&mut self) -> Duration {
        self.acked += 1448;
        let grown = wire::Report { acked: self.acked.into(), ..report(1) };
        self.driver.write_slot(&self.chunk, 0, &grown);
        self.driver.want_call(wire::VQ_DOORBELL);
        self.driver.reuse_bell(wire::OP_UPDATE, 0, 1);
        let started = Instant::now();
        self.driver.front.kick(wire::VQ_DOORBELL);
        let call = self.driver.front.call_descriptor(wire::VQ_DOORBELL);
        // SAFETY: the descriptor is open for as long as the front end is borrowed.
        let call =
            unsafe { std::os::fd::BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(call)) };
        let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
        let mut polled = [PollFd::new(&call, PollFlags::IN)];
        let came = rustix::event::poll(&mut polled, Some(&patience)).unwrap();
        let took = started.elapsed();
        assert_eq!(came, 1, "the victim was not served in {PATIENCE} s");
        assert!(self.driver.front.called(wire::VQ_DOORBELL));
        took
    }

    /// Updates for a time, a thousand a second.
    fn measure(&mut self, time: Duration) -> Waits {
        let started = Instant::now();
        let mut waits = Vec::new();
        while waits.is_empty() || started.elapsed() < time {
            waits.push(self.update());
            std::thread::sleep(Duration::from_millis(1));
        }
        waits.sort_unstable();
        Waits(waits)
    }
}

/// Times waited, the shortest first.
struct Waits(Vec<Duration>);

impl Waits {
    fn quantile(&self, part: f64) -> Duration {
        self.0[((self.0.len() - 1) as f64 * part).round() as usize]
    }

    fn columns(&self) -> String {
        let micros = |part| self.quantile(part).as_secs_f64() * 1e6;
        format!("{:>9.0} {:>9.0} {:>9.0}", micros(0.5), micros(0.99), micros(1.0))
    }
}

/// The daemon has a processor of its own where there are two, and goes before what
/// else runs on the machine, as the victim does: as if that were idle.
fn part_processors(daemon: &Daemon) {
    go_first(&["--all-tasks"], daemon.pid());
    if !go_first(&["--reset-on-fork"], std::process::id()) {
        eprintln!("no real-time priority: what else runs on the machine is measured, too");
    }
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        return;
    }
    let only = |cpu| {
        let mut set = CpuSet::new();
        set.set(cpu);
        set
    };
    for thread in std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap() {
        let number: i32 = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
        // A thread that has just ended needs none.
        let _ = sched_setaffinity(Pid::from_raw(number), &only(0));
    }
    sched_setaffinity(None, &only(1)).unwrap();
}

/// Real-time priority, where that may be had: niceness holds only among the
/// processes of a session or a control group.  The kernel takes it away for 50 ms
/// of each second from who never sleeps, which the largest times show.
fn go_first(options: &[&str], pid: u32) -> bool {
    let pid = pid.to_string();
    let set = std::process::Command::new("chrt")
        .args(options)
        .args(["--fifo", "--pid", "1", &pid])
        .stderr(std::process::Stdio::null())
        .status();
    set.is_ok_and(|status| status.success())
}

/// Attacks until told to stop.  What ends one, it begins again after.
fn attack_until(stop: &AtomicBool, attack: &attacks::Attack, daemon: &attacks::Target) {
    while !stop.load(Ordering::Relaxed) {
        let _ = catch_unwind(AssertUnwindSafe(|| (attack.run)(daemon, stop)));
    }
}

/// One line of the table; whether the claim holds.
fn measure(attack: &attacks::Attack, time: Duration) -> bool {
    let daemon = attacks::daemon();
    part_processors(&daemon);
    let mut victim = Victim::new(&daemon);
    victim.measure(QUIET / 10);
    let quiet = victim.measure(QUIET);
    let (stop, target) = (AtomicBool::new(false), attacks::Target::of(&daemon));
    let attacked = std::thread::scope(|scope| {
        scope.spawn(|| attack_until(&stop, attack, &target));
        // It has begun.
        std::thread::sleep(Duration::from_millis(200));
        let attacked = victim.measure(time);
        stop.store(true, Ordering::Relaxed);
        attacked
    });
    let (before, p99) = (quiet.quantile(0.99), attacked.quantile(0.99));
    let ratio = p99.as_secs_f64() / before.as_secs_f64();
    let holds = p99 <= P99 && ratio <= RATIO;
    let verdict = if holds { "" } else { "  too long" };
    let (quiet, attacked) = (quiet.columns(), attacked.columns());
    println!("{:<4} {:<28} {quiet}  {attacked} {ratio:>8.1}{verdict}", attack.row, attack.name);
    ratio <= RATIO
}

fn main() {
    // `cargo test --all-targets` builds and starts it, too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let wanted = std::env::var("ATTACK").unwrap_or_default();
    let seconds = std::env::var("SECONDS_EACH").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(3));
    // An attacker is disconnected again and again.
    std::panic::set_hook(Box::new(|_| {}));
    println!("{:<33} {:>29}  {:>29} ratio of", "", "quiet, us", "attacked, us");
    let titles = format!("{:>9} {:>9} {:>9}", "p50", "p99", "max");
    println!("{:<4} {:<28} {titles}  {titles} {:>8}", "row", "attack", "p99");
    let chosen = attacks::ALL
        .iter()
        .filter(|attack| attack.name.contains(&wanted) || attack.row.eq_ignore_ascii_case(&wanted));
    let held: Vec<bool> = chosen.map(|attack| measure(attack, time)).collect();
    assert_ne!(held.len(), 0);
    if held.contains(&false) {
        eprintln!("a victim waited more than {RATIO} times as long as with nobody else there");
        std::process::exit(1);
    }
}
