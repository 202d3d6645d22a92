// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The programs of a run: starting them, noticing their end, ending them.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, sigprocmask};
use nix::unistd::Pid;

use crate::controller::standstill::{self, Pulse};
use crate::controller::supervisor::Supervisor;
use crate::error::{Context, LabError, Result};
use crate::workdir::{self, Workdir};

/// The daemon's name as a client.
pub const DAEMON: &str = "daemon";
/// A program that has closed its connection ends within this, on any machine.
const EXIT_TIMEOUT: Duration = Duration::from_secs(120);
/// The daemon is listening within this, on any machine.
const DAEMON_START: Duration = Duration::from_secs(120);
/// Lines of a log shown with an error.
const TAIL: usize = 15;
/// Megabytes of a guest; only what is touched is used.
const MEMORY: usize = 256;
/// Flows that a megabyte is enough for, at either end.
const FLOWS_A_MEGABYTE: usize = 4;

static SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/seed.so"));

/// Writes what the programs need beside their own files.
pub fn install(work: &Workdir, init: &Path) -> Result<()> {
    work.write(workdir::SHIM, SHIM)?;
    let link = work.join(workdir::INIT);
    std::os::unix::fs::symlink(init, &link).on("linking", &link)
}

/// A guest to be started.
#[derive(Clone)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its number for the controller.
    pub number: u64,
    /// Its wall clock when it starts.
    pub clock_ns: u64,
    /// Flows that begin or end in it.
    pub flows: usize,
    /// Sockets of its NICs.
    pub nics: Vec<String>,
    /// Socket of its CCC device.
    pub device: Option<String>,
}

impl Guest {
    /// The kernel's command line. It must not depend on where or when the run
    /// is: the kernel's random numbers do depend on it.
    pub fn arguments(&self) -> Vec<String> {
        let memory = format!("mem={}M", MEMORY.max(self.flows / FLOWS_A_MEGABYTE));
        let fixed = [
            &memory,
            // Faster than ptrace; falls back to it where it is not possible.
            "seccomp=auto",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "con=null",
            "con0=null,fd:1",
            "uml_dir=uml",
            "norandmaps",
            // Frames leave at once, so sockets need not wait for the ring.
            "virtio_net.napi_tx=0",
        ];
        let init = format!("init=/proc/self/cwd/{}", workdir::INIT);
        let time = format!("time-travel=ext:{}:{}", self.number, workdir::TIME);
        let start = format!("time-travel-start={}", self.clock_ns);
        let nics = self.nics.iter().map(|socket| format!("virtio_uml.device={socket}:1"));
        let device = self.device.iter().map(|socket| format!("virtio_uml.device={socket}:63"));
        let mut arguments: Vec<String> = fixed.map(String::from).into();
        arguments.extend([init, format!("umid={}", self.name), time, start]);
        arguments.extend(nics.chain(device));
        arguments.extend(["--".into(), self.name.clone()]);
        arguments
    }
}

struct Program {
    name: String,
    child: Child,
    log: PathBuf,
    ended: bool,
}

/// All programs of a run; dropping it ends them.
pub struct Programs<'a> {
    work: &'a Workdir,
    logs: PathBuf,
    seed: u64,
    programs: Vec<Program>,
    /// How the daemon was started, and how often.
    daemon: Option<(PathBuf, Vec<String>, u32)>,
    /// Guests for later, with their kernel.
    later: Vec<(PathBuf, Guest)>,
    stop: Arc<AtomicBool>,
}

impl<'a> Programs<'a> {
    /// No programs yet. Their logs go to `logs`; `stop` ends the run.
    pub fn new(work: &'a Workdir, logs: &Path, seed: u64, stop: Arc<AtomicBool>) -> Self {
        let (programs, later) = (Vec::new(), Vec::new());
        Self { work, logs: logs.to_owned(), seed, programs, daemon: None, later, stop }
    }

    /// Starts the daemon, with `options` too, and waits until it listens on
    /// `sockets`.
    pub fn start_daemon(
        &mut self,
        program: &Path,
        options: &[String],
        sockets: &[String],
    ) -> Result<()> {
        self.daemon = Some((program.to_owned(), options.to_vec(), 0));
        self.launch_daemon()?;
        let started = Instant::now();
        while let Some(missing) = sockets.iter().find(|s| !self.work.join(s).exists()) {
            self.check()?;
            if started.elapsed() > DAEMON_START {
                return Err(self.failure(DAEMON, format!("does not listen on {missing}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn launch_daemon(&mut self) -> Result<()> {
        let Some((program, options, times)) = &mut self.daemon else {
            return Err(LabError::protocol(DAEMON, "is not part of this run"));
        };
        *times += 1;
        let log = if *times == 1 { "daemon.log".into() } else { format!("daemon-{times}.log") };
        let mut command = Command::new(program);
        command.args(["--config", workdir::DAEMON_CONFIG, "--time-travel", workdir::TIME]);
        command.args(options);
        self.spawn(DAEMON, &log, command)
    }

    /// Starts a guest.
    pub fn launch_guest(&mut self, kernel: &Path, guest: &Guest) -> Result<()> {
        let mut command = Command::new(kernel);
        command.args(guest.arguments());
        self.spawn(&guest.name, &format!("console-{}.log", guest.name), command)
    }

    /// Keeps a guest to be started in the middle of the run.
    pub fn keep_guest(&mut self, kernel: &Path, guest: Guest) {
        self.later.push((kernel.to_owned(), guest));
    }

    /// Kills a program; it is gone when this returns.
    fn kill(&mut self, name: &str) -> Result<()> {
        let place = self.programs.iter().position(|p| p.name == name);
        let Some(mut program) = place.map(|place| self.programs.remove(place)) else {
            return Err(LabError::protocol(name, "does not run"));
        };
        program.signal(Signal::SIGKILL);
        match program.wait(EXIT_TIMEOUT)? {
            Some(_) => Ok(()),
            None => Err(self.failure(name, "does not end on SIGKILL".into())),
        }
    }

    /// Ends the daemon and waits for it.
    pub fn stop_daemon(&mut self) -> Result<()> {
        let Some(daemon) = self.programs.iter_mut().find(|p| p.name == DAEMON) else {
            return Ok(());
        };
        daemon.signal(Signal::SIGTERM);
        let status = daemon.wait(EXIT_TIMEOUT)?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failure(DAEMON, format!("ended with {status} on SIGTERM"))),
            None => Err(self.failure(DAEMON, "does not end on SIGTERM".into())),
        }
    }

    fn spawn(&mut self, name: &str, log: &str, mut command: Command) -> Result<()> {
        let log = self.logs.join(log);
        let file = File::create(&log).on("creating", &log)?;
        let errors = file.try_clone().on("opening", &log)?;
        command
            .current_dir(self.work.path())
            .env_clear()
            .env("LD_PRELOAD", format!("./{}", workdir::SHIM))
            .env("CCC_LAB_SEED", format!("{}:{name}", self.seed))
            // Guest memory is a file there.
            .env("TMPDIR", "/dev/shm")
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .process_group(0);
        // SAFETY: only async-signal-safe calls happen between fork and exec.
        unsafe { command.pre_exec(prepare_child) };
        let child = command.spawn();
        let child = child.on("starting", Path::new(command.get_program()))?;
        self.programs.push(Program { name: name.to_owned(), child, log, ended: false });
        Ok(())
    }

    /// Judges a program that has ended.
    fn exit_status(&self, name: &str, status: Option<ExitStatus>) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        if self.work.join(&format!("{name}.done")).exists() {
            return Ok(());
        }
        let told = std::fs::read_to_string(self.work.join(&format!("{name}.error")));
        let reason = match (told, status) {
            (Ok(told), _) => told,
            (_, Some(status)) => format!("ended early with {status}"),
            (_, None) => "has closed its connection to the controller".into(),
        };
        Err(self.failure(name, reason))
    }

    fn failure(&self, name: &str, reason: String) -> LabError {
        let log = self.programs.iter().find(|p| p.name == name).map(|p| &p.log);
        let tail = log.map_or(String::new(), |log| tail(log));
        LabError::Process { name: name.to_owned(), reason, tail }
    }
}

impl Supervisor for Programs<'_> {
    fn check(&mut self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        let mut ended = Vec::new();
        for program in self.programs.iter_mut().filter(|p| !p.ended) {
            if let Some(status) = program.wait(Duration::ZERO)? {
                ended.push((program.name.clone(), status));
            }
        }
        ended.into_iter().try_for_each(|(name, status)| self.exit_status(&name, Some(status)))
    }

    fn pulse(&self) -> Pulse {
        let groups: Vec<_> = self.programs.iter().map(|p| p.child.id() as i32).collect();
        standstill::pulse(&groups)
    }

    fn left(&mut self, client: &str) -> Result<()> {
        let Some(program) = self.programs.iter_mut().find(|p| p.name == client) else {
            return Ok(());
        };
        let status = program.wait(EXIT_TIMEOUT)?;
        self.exit_status(client, status)
    }

    fn kill_daemon(&mut self) -> Result<()> {
        self.kill(DAEMON)
    }

    fn start_daemon(&mut self) -> Result<()> {
        self.launch_daemon()
    }

    fn kill_guest(&mut self, name: &str) -> Result<()> {
        self.kill(name)?;
        // It has been told to write its results before.
        self.exit_status(name, None)
    }

    fn start_guest(&mut self, name: &str) -> Result<()> {
        let place = self.later.iter().position(|(_, guest)| guest.name == name);
        let Some((kernel, guest)) = place.map(|place| self.later.remove(place)) else {
            return Err(LabError::protocol(name, "is not part of this run"));
        };
        self.launch_guest(&kernel, &guest)
    }
}

impl Program {
    /// Waits for the end, at most `patience`.
    fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            let status = self.child.try_wait().context(|| format!("waiting for {}", self.name))?;
            if status.is_some() {
                self.ended = true;
                return Ok(status);
            }
            if started.elapsed() >= patience {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Signals the program and all its children.
    fn signal(&self, signal: Signal) {
        // It may have ended just now: then there is nothing to do.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), signal);
    }
}

impl Drop for Programs<'_> {
    fn drop(&mut self) {
        for program in &mut self.programs {
            // Also after its end: children of its own may be left.
            program.signal(Signal::SIGKILL);
            let _ = program.child.wait();
        }
    }
}

/// Runs in the child: it dies with us, and takes signals.
fn prepare_child() -> std::io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

fn tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let last = &lines[lines.len().saturating_sub(TAIL)..];
    format!("\nend of {}:\n  {}", log.display(), last.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_no_place() {
        let guest = Guest {
            name: "vm1".into(),
            number: 7,
            clock_ns: 0,
            flows: 1,
            nics: vec!["vm1.nic0".into()],
            device: Some("vm1.ccc".into()),
        };
        let line = guest.arguments().join(" ");
        assert!(line.starts_with("mem=256M "));
        let busy = Guest { flows: 4096, ..guest.clone() };
        assert!(busy.arguments().join(" ").starts_with("mem=1024M "));
        assert!(line.contains("time-travel=ext:7:time "));
        assert!(line.contains("virtio_uml.device=vm1.nic0:1 virtio_uml.device=vm1.ccc:63 -- vm1"));
    }
}
