// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How long a VM waits for its update while another attacks the daemon.
//!
//! The victim writes a report, kicks its doorbell queue, and is called when that
//! was done: first with nobody else there, then while another VM's front end or
//! guest, or an operator, does its worst as fast as it can.  Judged are the ratio
//! of the two, for machines differ in speed, and with real-time priority, with
//! which only the daemon counts, the times themselves.  An attack that achieves
//! nothing shows nothing, and fails.  `make bench-isolation`, with `ATTACK=` for
//! those whose names have that in them, and `SECONDS_EACH=`.
#![allow(clippy::unwrap_used, missing_docs)]
#[path = "../../tests/support/mod.rs"]
mod support;

mod attacks;
mod processors;
mod victim;
mod waits;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
    time::{Duration, Instant},
};

use attacks::{Attack, Attempt, Target};
use victim::Victim;
use waits::Waits;

/// Time with nobody else there.
const QUIET: Duration = Duration::from_secs(1);
/// An attack that has not begun by then never will.
const BEGINS: Duration = Duration::from_secs(60);

/// What the victim waited while it was attacked; what the attack failed by.
fn attacked(
    attack: &Attack,
    attempt: &Attempt,
    target: &Target,
    measure: impl FnOnce() -> Waits,
) -> (Waits, Option<String>) {
    thread::scope(|scope| {
        let attacker = scope.spawn(|| (attack.run)(target, attempt));
        await_begin(|| attempt.done() > 0 || attacker.is_finished());
        let waits = catch_unwind(AssertUnwindSafe(measure));
        attempt.stop();
        let failed = attacker.join().err().map(|_| "the attack failed".to_owned());
        (waits.unwrap_or_else(|panic| resume_unwind(panic)), failed)
    })
}

/// Waits until an attack has achieved something, or for as long as may be.
fn await_begin(begun: impl Fn() -> bool) {
    let started = Instant::now();
    while !begun() && started.elapsed() < BEGINS {
        thread::sleep(Duration::from_millis(2));
    }
}

/// One line of the table; whether the claim holds.
fn line(attack: &Attack, time: Duration) -> bool {
    let daemon = attacks::daemon();
    let first = processors::part(&daemon);
    let mut victim = Victim::new(&daemon);
    victim.measure(QUIET / 10);
    let quiet = victim.measure(QUIET);
    let (attempt, target) = (Attempt::default(), Target::of(&daemon));
    let (waits, failed) = attacked(attack, &attempt, &target, || victim.measure(time));
    let mut faults = waits.faults(&quiet, time, first);
    faults.extend(failed);
    if attempt.done() == 0 {
        faults.push("the attack did nothing".into());
    }
    println!(
        "{:<4} {:<25} {}  {} {:>7.1} {:>9}  {}{}",
        attack.row,
        attack.name,
        quiet.columns(),
        waits.columns(),
        waits.ratio(&quiet),
        attempt.done(),
        if first { "" } else { "(ratio only) " },
        faults.join(", ")
    );
    faults.is_empty()
}

fn main() {
    // `cargo test --all-targets` builds and starts it, too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let wanted = std::env::var("ATTACK").unwrap_or_default();
    let seconds = std::env::var("SECONDS_EACH").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(3));
    println!("{:<30} {:>29}  {:>29} ratio of", "", "quiet, us", "attacked, us");
    let titles = format!("{:>9} {:>9} {:>9}", "p50", "p99", "max");
    println!("{:<4} {:<25} {titles}  {titles} {:>7} {:>9}", "row", "attack", "p99", "achieved");
    let chosen = attacks::ALL
        .iter()
        .filter(|attack| attack.name.contains(&wanted) || attack.row.eq_ignore_ascii_case(&wanted));
    let held: Vec<bool> = chosen.map(|attack| line(attack, time)).collect();
    assert_ne!(held.len(), 0, "no attack has {wanted} in its name");
    if held.contains(&false) {
        std::process::exit(1);
    }
}
