// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The real daemon.
use std::{
    fs::File,
    io::{Read, Seek},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// What a test waits for is to happen, however busy the machine is: only what never
/// happens takes so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_ccc-vhost");

/// A daemon in a directory of its own.
pub struct Daemon {
    pub dir: TempDir,
    child: Child,
    log: File,
    level: String,
    arguments: Vec<String>,
}

/// Waits until something is so.
pub fn until(what: &str, so: impl FnMut() -> bool) {
    until_within(what, PATIENCE, so);
}

/// The same, for what may take some time.
pub fn until_within(what: &str, time: Duration, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < time, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until something is so, at most for a time from then on; whether it is.
pub fn is_within(since: Instant, time: Duration, what: &str, mut so: impl FnMut() -> bool) -> bool {
    while !so() {
        if since.elapsed() >= time {
            eprintln!("not in time: {what}");
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Tries something until it is so.  A try says since when it goes on: one that took that
/// time tells nothing, and any other must be right.
pub fn until_tried(what: &str, time: Duration, mut attempt: impl FnMut() -> (Instant, bool)) {
    until(what, || {
        let (since, so) = attempt();
        assert!(so || since.elapsed() >= time, "not so: {what}");
        so
    });
}

impl Daemon {
    /// One for these VMs: name, weight, group.
    pub fn start(vms: &[(&str, f64, &str)]) -> Daemon {
        Daemon::start_with(vms, "", &[])
    }

    /// The same, with groups and arguments.
    pub fn start_with(vms: &[(&str, f64, &str)], groups: &str, arguments: &[&str]) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        Daemon::start_in(dir, vms, groups, arguments)
    }

    pub fn start_in(
        dir: TempDir,
        vms: &[(&str, f64, &str)],
        groups: &str,
        arguments: &[&str],
    ) -> Daemon {
        Daemon::configure(&dir, vms, groups);
        Daemon::spawn("debug", dir, arguments)
    }

    /// One that logs so much.
    pub fn start_logging(
        level: &str,
        dir: TempDir,
        vms: &[(&str, f64, &str)],
        groups: &str,
        arguments: &[&str],
    ) -> Daemon {
        Daemon::configure(&dir, vms, groups);
        Daemon::spawn(level, dir, arguments)
    }

    fn configure(dir: &TempDir, vms: &[(&str, f64, &str)], groups: &str) {
        let mut config = groups.to_owned();
        for (name, weight, group) in vms {
            let socket = dir.path().join(name);
            config += &format!(
                "[vm.{name}]\nsocket = \"{}\"\nweight = {weight}\ngroup = \"{group}\"\n",
                socket.display()
            );
        }
        let file = dir.path().join("ccc.toml");
        std::fs::write(&file, config).unwrap();
    }

    /// Starts it with the configuration that is in the directory.
    fn spawn(level: &str, dir: TempDir, arguments: &[&str]) -> Daemon {
        Daemon::run(level, dir, &[], arguments)
    }

    /// The same, by another program that executes it.
    pub fn spawn_by(dir: TempDir, by: &[&str], arguments: &[&str]) -> Daemon {
        Daemon::run("debug", dir, by, arguments)
    }

    /// One that is measured, by another program that executes it if one is named; in
    /// place of the tree's own another build of it (`CCC_VHOST`).
    pub fn measured(vms: &[(&str, f64, &str)], groups: &str, by: &[&str]) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        Daemon::configure(&dir, vms, groups);
        Daemon::run("info", dir, by, &[])
    }

    fn run(level: &str, dir: TempDir, by: &[&str], arguments: &[&str]) -> Daemon {
        let log = File::create_new(dir.path().join("log")).unwrap();
        let program = std::env::var("CCC_VHOST").unwrap_or_else(|_| PROGRAM.to_owned());
        let words = [by, &[&program]].concat();
        let child = Command::new(words[0])
            .args(&words[1..])
            .arg("--config")
            .arg(dir.path().join("ccc.toml"))
            .args(arguments)
            .env("RUST_LOG", level)
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let log = File::open(dir.path().join("log")).unwrap();
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut daemon = Daemon { dir, child, log, level: level.to_owned(), arguments };
        daemon.says("serving");
        daemon
    }

    pub fn socket(&self, vm: &str) -> PathBuf {
        self.dir.path().join(vm)
    }

    /// Everything it has said.
    pub fn log(&mut self) -> String {
        let mut text = String::new();
        self.log.rewind().unwrap();
        self.log.read_to_string(&mut text).unwrap();
        text
    }

    /// Lines it has said with these words in them.
    pub fn lines(&mut self, words: &str) -> usize {
        self.log().lines().filter(|line| line.contains(words)).count()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processor time it has used.
    pub fn worked(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let nanoseconds = threads.map(|thread| {
            let said = std::fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
            said.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(nanoseconds.sum())
    }

    /// Bytes it has read, of whatever kind of file.
    pub fn read_bytes(&self) -> u64 {
        let counts = std::fs::read_to_string(format!("/proc/{}/io", self.pid())).unwrap();
        let read = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
        read.unwrap().parse().unwrap()
    }

    /// Waits until it has said something.
    pub fn says(&mut self, words: &str) {
        self.says_within(words, PATIENCE);
    }

    /// The same, for what may take some time.
    pub fn says_within(&mut self, words: &str, time: Duration) {
        let started = Instant::now();
        while !self.log().contains(words) {
            assert!(started.elapsed() < time, "{words}: not in\n{}", self.log());
            assert!(self.running(), "{words}: not in\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Limits how many files it may have open from now on.
    pub fn limit_files(&self, most: &str) {
        let process = format!("--pid={}", self.child.id());
        let limit = format!("--nofile={most}:{most}");
        assert!(Command::new("prlimit").args([process, limit]).status().unwrap().success());
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Stops it until it is told to go on.
    pub fn pause(&self) {
        self.signal("-STOP");
        let stat = format!("/proc/{}/stat", self.child.id());
        until("stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    /// The directory of one that has ended, for the next.
    pub fn moved(mut self) -> TempDir {
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        std::fs::remove_file(dir.path().join("log")).unwrap();
        dir
    }

    /// Ends it; how, and how long that took.
    pub fn terminate(&mut self, signal: &str) -> (ExitStatus, Duration) {
        self.signal(signal);
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, started.elapsed());
            }
            assert!(started.elapsed() < PATIENCE, "does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills it, and starts it again in the same place.
    pub fn restart(self) -> Daemon {
        self.restart_while(|| {})
    }

    /// The same, with something in between.
    pub fn restart_while(mut self, between: impl FnOnce()) -> Daemon {
        self.terminate("-KILL");
        between();
        self.restart_dead()
    }

    /// Starts one that has ended again, as it was started.
    pub fn restart_dead(mut self) -> Daemon {
        let level = std::mem::take(&mut self.level);
        let arguments = std::mem::take(&mut self.arguments);
        Daemon::spawn(
            &level,
            self.moved(),
            &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    }

    pub fn running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- daemon's log ---\n{}", self.log());
        }
        end(&mut self.child);
    }
}

/// A program that ends with the test.
pub struct Program(pub Child);

impl Program {
    pub fn start(arguments: &[&str]) -> Program {
        Program(Command::new(PROGRAM).args(arguments).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Ends a program as a service manager would, so that it can say what it did.
fn end(child: &mut Child) {
    let pid = child.id().to_string();
    let _ = Command::new("kill").args(["-TERM", &pid]).stderr(Stdio::null()).status();
    let asked = Instant::now();
    while child.try_wait().is_ok_and(|status| status.is_none()) {
        if asked.elapsed() > Duration::from_secs(10) {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a run of the program ends with and says.
pub fn run(arguments: &[&str]) -> (bool, String, String) {
    outcome(Command::new(PROGRAM).args(arguments))
}

/// The same, for what may not end by itself.
pub fn run_for(arguments: &[&str], seconds: &str) -> (bool, String, String) {
    let limit = ["--preserve-status", seconds, PROGRAM];
    outcome(Command::new("timeout").args(limit).args(arguments))
}

fn outcome(command: &mut Command) -> (bool, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
