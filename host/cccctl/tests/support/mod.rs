// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The real daemon, and the program run against it.
#![allow(clippy::unwrap_used, dead_code)]
use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// What configures programs that are run with a control socket, beside it.
const PATIENT: &str = "cccctl.toml";

/// The daemon's program, built the way this one was, or another that is named.
pub fn daemon_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = std::env::var_os("CCC_VHOST") {
            return PathBuf::from(program);
        }
        let here = Path::new(env!("CARGO_BIN_EXE_cccctl")).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "ccc-vhost"]);
        if here.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success());
        here.join("ccc-vhost")
    })
}

fn spawn(dir: &TempDir) -> Child {
    Command::new(daemon_program())
        .arg("--config")
        .arg(dir.path().join("ccc.toml"))
        .stderr(fs::File::create(dir.path().join("log")).unwrap())
        .spawn()
        .unwrap()
}

pub struct Daemon {
    pub dir: TempDir,
    child: Child,
}

impl Daemon {
    pub fn start() -> Daemon {
        Daemon::start_with("")
    }

    /// One with more in `[daemon]`, in which STATE is a path of its own.
    pub fn start_with(more: &str) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "[daemon]\ncontrol = \"{}\"\n{}[group.uplink]\n\
             [vm.web]\nsocket = \"{}\"\ngroup = \"uplink\"\nweight = 3\n\
             [vm.db]\nsocket = \"{}\"\n\
             [[rule]]\nvm = \"db\"\ndestination = \"10.0.0.0/8\"\ngroup = \"none\"\n",
            at("control"),
            more.replace("STATE", &at("state")),
            at("web"),
            at("db")
        );
        fs::write(dir.path().join("ccc.toml"), config).unwrap();
        // A hook waits for a daemon that a busy disk holds up.
        fs::write(dir.path().join(PATIENT), "patience = 20\n").unwrap();
        let daemon = Daemon { child: spawn(&dir), dir };
        until("it listens", || daemon.run(&["list"]).0);
        daemon
    }

    /// The same one after an end, with other words in its configuration.
    pub fn start_again_with(&mut self, words: &[(&str, &str)]) {
        self.end();
        let config = self.dir.path().join("ccc.toml");
        let was = fs::read_to_string(&config).unwrap();
        let is = words.iter().fold(was, |text, (from, to)| text.replace(from, to));
        fs::write(config, is).unwrap();
        self.child = spawn(&self.dir);
        until("it listens", || self.run(&["list"]).0);
    }

    fn end(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-CONT", &pid]).status();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }

    pub fn control(&self) -> PathBuf {
        self.dir.path().join("control")
    }

    /// The configuration of a hook that waits for it.
    pub fn patient(&self) -> PathBuf {
        self.dir.path().join(PATIENT)
    }

    /// Has a VM that is not in the configuration.
    pub fn add(&self, vm: &str) {
        let spec = json!({"socket": self.dir.path().join(vm)}).to_string();
        let mut stream = UnixStream::connect(self.control()).unwrap();
        let request = format!(
            "PUT /v1/vms/{vm} HTTP/1.1\r\nHost: ccc\r\nConnection: close\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{spec}",
            spec.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        run(&self.dir.path().join("control"), arguments)
    }

    /// What it prints when all is well.
    pub fn prints(&self, arguments: &[&str]) -> String {
        let (done, out, said) = self.run(arguments);
        assert!(done, "{arguments:?}: {said}");
        out
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let out = self.prints(&[arguments, &["--json"]].concat());
        serde_json::from_str(&out).unwrap()
    }

    /// What it says when it fails.
    pub fn fails(&self, arguments: &[&str]) -> String {
        let (done, out, said) = self.run(arguments);
        assert!(!done && out.is_empty(), "{arguments:?}: {out}");
        said
    }
}

/// The description of a domain whose QEMU connects to a socket.
pub fn connecting(emulator: &Path, socket: &Path) -> String {
    let (emulator, socket) = (emulator.display(), socket.display());
    format!(
        "<domain type='qemu' xmlns:q='http://libvirt.org/schemas/domain/qemu/1.0'>\
         <metadata><c:vm xmlns:c='urn:ccc:vm:1' group='uplink' weight='2'/></metadata>\
         <devices><emulator>{emulator}</emulator></devices><q:commandline>\
         <q:arg value='-chardev'/><q:arg value='socket,id=ccc,path={socket},reconnect-ms=100'/>\
         </q:commandline></domain>"
    )
}

/// Waits until something is so, however busy the machine is.
pub fn until(what: &str, so: impl Fn() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn run(socket: &Path, arguments: &[&str]) -> (bool, String, String) {
    run_with(socket, arguments, "")
}

/// The same, with something on its input.
pub fn run_with(socket: &Path, arguments: &[&str], input: &str) -> (bool, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cccctl"))
        .args(arguments)
        .env("CCC_CONTROL", socket)
        .env("CCCCTL_CONFIG", socket.with_file_name(PATIENT))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that does not read its input may be gone.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}
