// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Who runs where, and before whom.
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

use crate::support::daemon::Daemon;

/// Whoever waits goes before whoever makes it wait.
const MEASURED: &str = "2";
const ATTACKER: &str = "1";

/// The daemon has a processor of its own where there are two, and its thread that
/// serves VMs goes before what else runs on the machine, as the victim does: as if
/// that were idle.  Whether that could be had.
pub fn part(daemon: &Daemon) -> bool {
    for thread in std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap() {
        let number: i32 = thread.unwrap().file_name().to_str().unwrap().parse().unwrap();
        run_on(0, Pid::from_raw(number));
    }
    run_on(1, None);
    go_first(daemon.pid(), MEASURED) && go_first(std::process::id(), MEASURED)
}

/// Has a thread run on one processor, if both are there.
fn run_on(cpu: usize, thread: Option<Pid>) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(thread, &set);
}

/// This thread goes before what else runs, but behind who is measured: an attack that
/// only works while it runs would show the other programs' time slices.
pub fn attack_first() {
    go_first(rustix::thread::gettid().as_raw_nonzero().get() as u32, ATTACKER);
}

/// Real-time priority for a thread, where that may be had: niceness
/// holds only among the processes of a session or a control group.  The kernel takes
/// it away for 50 ms of each second from who never sleeps, which the largest times
/// show.
fn go_first(thread: u32, priority: &str) -> bool {
    let thread = thread.to_string();
    let set = std::process::Command::new("chrt")
        .args(["--reset-on-fork", "--fifo", "--pid", priority, &thread])
        .stderr(std::process::Stdio::null())
        .status();
    set.is_ok_and(|status| status.success())
}
