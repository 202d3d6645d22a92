// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How soon all others know what one VM reports, and what that costs.
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::event::epoll;
use serde_json::{Value, json};
use vmm_sys_util::eventfd::EventFd;

use crate::{fleet::Fleet, options::Options};

/// Time between reports, so that each finds the daemon waiting.
const PAUSE: Duration = Duration::from_micros(500);
/// Rounds after which all VMs report: one that says nothing for a second counts no more.
const ROUNDS: usize = 50;
/// Longest wait for one.
const PATIENCE: Duration = Duration::from_secs(10);

/// One VM reports; how long until the last one sees another level.
fn seen(fleet: &mut Fleet) -> Duration {
    let last = fleet.members.len() - 1;
    let before = fleet.members[last].level();
    let slot = fleet.members[0].write();
    let began = Instant::now();
    fleet.members[0].tell(slot);
    fleet.members[0].kick(1);
    while fleet.members[last].level() == before {
        assert!(began.elapsed() < PATIENCE, "the level of VM {last} does not change");
        std::hint::spin_loop();
    }
    began.elapsed()
}

/// One update of one VM at a time, published to all.
pub fn publish(options: &Options) -> Value {
    let (vms, rounds) = (options.number("vms"), options.number("rounds"));
    let mut fleet = Fleet::start(vms, 1);
    let (mut waits, mut worked) = (Vec::new(), Duration::ZERO);
    while waits.len() < rounds {
        fleet.refresh();
        let count = ROUNDS.min(rounds - waits.len());
        worked += fleet.worked(|fleet| {
            for _ in 0..count {
                waits.push(seen(fleet));
                std::thread::sleep(PAUSE);
            }
        });
    }
    let cpu_us = worked.as_secs_f64() * 1e6 / rounds as f64;
    json!({ "cpu_us": cpu_us, "last_us": quantiles(waits) })
}

/// Another VM's level, beside a word that a thread writes which waits with epoll for a
/// bare eventfd; the two take turns.
pub fn latency(options: &Options) -> Value {
    let rounds = options.number("rounds");
    let (mut fleet, echo) = (Fleet::start(2, 1), Echo::start());
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % ROUNDS == 0 {
            fleet.refresh();
        }
        ours.push(seen(&mut fleet));
        std::thread::sleep(PAUSE);
        bare.push(echo.seen());
        std::thread::sleep(PAUSE);
    }
    json!({ "level_us": quantiles(ours), "eventfd_us": quantiles(bare) })
}

/// The same while the daemon looks for messages, beside a round trip of a cache line between
/// two threads that wait for nothing else; the two take turns.
pub fn polled(options: &Options) -> Value {
    let rounds = options.number("rounds");
    let mut fleet = Fleet::start_with(2, 1, "[daemon]\npoll_max_us = 1000\n");
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let kicks = |fleet: &Fleet| fleet.members.iter().map(|member| member.kicks).sum::<u64>();
    let mut kicked = 0;
    while ours.len() < rounds {
        fleet.refresh();
        // The window of its time grows with these.
        (0..ROUNDS).for_each(|_| {
            seen(&mut fleet);
        });
        let before = kicks(&fleet);
        ours.extend((0..ROUNDS).map(|_| seen(&mut fleet)));
        kicked += kicks(&fleet) - before;
        std::thread::sleep(Duration::from_millis(3));
        bare.push(round_trip());
    }
    let kicks = kicked as f64 / ours.len() as f64;
    json!({ "level_us": quantiles(ours), "line_us": quantiles(bare), "kicks": kicks })
}

/// Mean time in which a word goes to another thread and one comes back.
fn round_trip() -> Duration {
    const TRIPS: u32 = 10_000;
    let (there, back) = (Line::default(), Line::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for trip in 1..=TRIPS {
                there.until(trip);
                back.0.store(trip, Ordering::Release);
            }
        });
        let trip = |trip| {
            there.0.store(trip, Ordering::Release);
            back.until(trip);
        };
        (1..=TRIPS / 10).for_each(trip);
        let began = Instant::now();
        (TRIPS / 10 + 1..=TRIPS).for_each(trip);
        began.elapsed() / (TRIPS - TRIPS / 10)
    })
}

/// A word that has a line of the cache to itself, and the one that is fetched with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU32);

impl Line {
    fn until(&self, value: u32) {
        while self.0.load(Ordering::Acquire) != value {
            std::hint::spin_loop();
        }
    }
}

/// A thread that does nothing but wake up and write a word.
struct Echo {
    kick: EventFd,
    word: Arc<AtomicU64>,
}

impl Echo {
    fn start() -> Echo {
        let (kick, word) = (EventFd::new(0).unwrap(), Arc::new(AtomicU64::new(0)));
        let (theirs, written) = (kick.try_clone().unwrap(), Arc::clone(&word));
        std::thread::spawn(move || answer(&theirs, &written));
        Echo { kick, word }
    }

    fn seen(&self) -> Duration {
        let before = self.word.load(Ordering::Acquire);
        let began = Instant::now();
        self.kick.write(1).unwrap();
        while self.word.load(Ordering::Acquire) == before {
            std::hint::spin_loop();
        }
        began.elapsed()
    }
}

fn answer(kick: &EventFd, word: &AtomicU64) {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let fd = crate::borrowed(kick);
    epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
    loop {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::IN, data: epoll::EventData::new_u64(0) }];
        rustix::io::retry_on_intr(|| epoll::wait(&set, &mut events, None)).unwrap();
        kick.read().unwrap();
        word.fetch_add(1, Ordering::Release);
    }
}

/// Microseconds.
fn quantiles(mut waits: Vec<Duration>) -> Value {
    waits.sort_unstable();
    let of =
        |part: f64| waits[((waits.len() - 1) as f64 * part).round() as usize].as_secs_f64() * 1e6;
    json!({ "p50": of(0.5), "p99": of(0.99) })
}
