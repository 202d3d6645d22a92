// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tells a run that stands still from one that a busy machine keeps waiting.
//!
//! Wall time alone says nothing: beside thirty other programs a guest's start
//! takes minutes.  What counts against the patience is the time in which all
//! programs of a run sleep, since then nothing will come of waiting, and the
//! processor time that they use without getting anywhere.

use std::fs;
use std::time::{Duration, Instant};

/// How often the programs are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What the programs of a run are doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Processor time they have used.
    pub used: Duration,
    /// One of them runs, waits for a processor or for a disk.
    pub active: bool,
}

/// Watches for a standstill.
pub struct Standstill {
    patience: Duration,
    looked: Instant,
    /// Processor time used by the first look after the last progress.
    used: Option<Duration>,
    asleep: Duration,
}

impl Standstill {
    /// Begins with progress.
    pub fn new(patience: Duration) -> Self {
        Self { patience, looked: Instant::now(), used: None, asleep: Duration::ZERO }
    }

    /// There was progress.
    pub fn progress(&mut self) {
        *self = Self::new(self.patience);
    }

    /// Whether the patience is over.  Asks for the pulse once in a while.  Where
    /// something was just `heard`, programs that sleep may have waited for us.
    pub fn is_over(&mut self, pulse: impl FnOnce() -> Pulse, heard: bool) -> bool {
        let passed = self.looked.elapsed();
        if passed < LOOK {
            return false;
        }
        self.looked = Instant::now();
        let pulse = pulse();
        let active = pulse.active || heard;
        // After a longer time it was we who waited for the processor.
        self.count(passed.min(LOOK), Pulse { active, ..pulse })
    }

    fn count(&mut self, passed: Duration, pulse: Pulse) -> bool {
        if !pulse.active {
            self.asleep += passed;
        }
        let used = pulse.used.saturating_sub(*self.used.get_or_insert(pulse.used));
        self.asleep.max(used) > self.patience
    }
}

/// The pulse of all processes of these groups.
pub fn pulse(groups: &[i32]) -> Pulse {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|entry| {
        // It may end at any time; what is no process has no such file.
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        parse(&stat).filter(|one| groups.contains(&one.group))
    });
    stats.fold(Pulse::default(), |sum, one| Pulse {
        used: sum.used + one.pulse.used,
        active: sum.active || one.pulse.active,
    })
}

struct Process {
    group: i32,
    pulse: Pulse,
}

/// A line of proc_pid_stat(5).  The name, in parentheses, may be anything.
fn parse(stat: &str) -> Option<Process> {
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)?;
    let active = matches!(*fields.first()?, "R" | "D");
    let used = Duration::from_millis(ticks * 1000 / ticks_a_second());
    Some(Process { group: fields.get(2)?.parse().ok()?, pulse: Pulse { used, active } })
}

fn ticks_a_second() -> u64 {
    let known = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    known.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ASLEEP: Pulse = Pulse { used: Duration::ZERO, active: false };

    #[test]
    fn v1_waiting_for_a_processor_is_no_standstill() {
        let mut run = Standstill::new(3 * SECOND);
        let starved = Pulse { active: true, ..ASLEEP };
        assert!((0..1000).all(|_| !run.count(SECOND, starved)));
    }

    #[test]
    fn sleep_of_all_and_work_without_progress_are() {
        let mut run = Standstill::new(3 * SECOND);
        let count = (0..10).take_while(|_| !run.count(SECOND, ASLEEP)).count();
        assert_eq!(count, 3);
        run.progress();
        let busy = |second| Pulse { used: second * SECOND, active: true };
        let count = (5..20).take_while(|&second| !run.count(SECOND, busy(second))).count();
        assert_eq!(count, 4);
    }

    #[test]
    fn programs_are_seen_with_their_children() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).process_group(0).spawn().expect("a shell")
        };
        let mut sleeps = shell("sleep 100");
        let mut works = shell("sh -c 'while :; do :; done'; true");
        let [idle, busy] = [&sleeps, &works].map(|child| child.id() as i32);
        while !pulse(&[idle, busy]).active || pulse(&[busy]).used.is_zero() {}
        while pulse(&[idle]).active {}
        for (group, child) in [(idle, &mut sleeps), (busy, &mut works)] {
            let group = nix::unistd::Pid::from_raw(group);
            nix::sys::signal::killpg(group, nix::sys::signal::SIGKILL).expect("killed");
            child.wait().expect("ended");
        }
        while pulse(&[idle, busy]) != ASLEEP {}
    }

    #[test]
    fn a_name_may_be_anything() {
        let line = "7 (a) R 1) S 1 42 42 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 9 0 0";
        let process = parse(line).expect("a process");
        assert_eq!((process.group, process.pulse.active), (42, false));
        assert!(process.pulse.used > Duration::ZERO);
        assert!(parse("nonsense").is_none());
    }
}
