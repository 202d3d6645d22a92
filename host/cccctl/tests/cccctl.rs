// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program against the real daemon.
#![allow(clippy::unwrap_used)]
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// The daemon's program, built the way this one was.
fn daemon_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = Path::new(env!("CARGO_BIN_EXE_cccctl")).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "ccc-vhost"]);
        if here.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        here.join("ccc-vhost")
    })
}

struct Daemon {
    dir: TempDir,
    child: Child,
}

impl Daemon {
    fn start() -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "[daemon]\ncontrol = \"{}\"\n[group.uplink]\n\
             [vm.web]\nsocket = \"{}\"\ngroup = \"uplink\"\nweight = 3\n\
             [vm.db]\nsocket = \"{}\"\n\
             [[rule]]\nvm = \"db\"\ndestination = \"10.0.0.0/8\"\ngroup = \"none\"\n",
            at("control"),
            at("web"),
            at("db")
        );
        fs::write(dir.path().join("ccc.toml"), config).unwrap();
        let child = Command::new(daemon_program())
            .args(["--config", &at("ccc.toml")])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Daemon { dir, child };
        let started = Instant::now();
        while !daemon.run(&["list"]).0 {
            assert!(started.elapsed() < Duration::from_secs(60), "does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon
    }

    fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        run(&self.dir.path().join("control"), arguments)
    }

    /// What it prints when all is well.
    fn prints(&self, arguments: &[&str]) -> String {
        let (done, out, said) = self.run(arguments);
        assert!(done, "{arguments:?}: {said}");
        out
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let out = self.prints(&[arguments, &["--json"]].concat());
        serde_json::from_str(&out).unwrap()
    }

    /// What it says when it fails.
    fn fails(&self, arguments: &[&str]) -> String {
        let (done, out, said) = self.run(arguments);
        assert!(!done && out.is_empty(), "{arguments:?}: {out}");
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

fn run(socket: &Path, arguments: &[&str]) -> (bool, String, String) {
    run_with(socket, arguments, "")
}

/// The same, with something on its input.
fn run_with(socket: &Path, arguments: &[&str], input: &str) -> (bool, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cccctl"))
        .args(arguments)
        .env("CCC_CONTROL", socket)
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

/// The words of a line that begins with `first`.
fn line<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.into_iter().find(|words| words.first() == Some(&first)).unwrap()
}

#[test]
fn everything_can_be_looked_at() {
    let daemon = Daemon::start();
    let list = daemon.prints(&["list"]);
    assert_eq!(line(&list, "web"), ["web", "uplink", "3", "on", "absent", "0", "0", "-"]);
    let show = daemon.prints(&["show", "web"]);
    assert_eq!(line(&show, "weight"), ["weight", "3"]);
    assert_eq!(line(&show, "SLOT")[0], "SLOT");
    let groups = daemon.prints(&["groups"]);
    assert_eq!(line(&groups, "uplink")[1..5], ["ctrltcp", "rate", "1", "on"]);
    let group = daemon.prints(&["group", "uplink"]);
    assert_eq!(line(&group, "web"), ["web", "3", "0", "0"]);
    assert_eq!(line(&daemon.prints(&["rules"]), "db"), ["db", "10.0.0.0/8", "none"]);
    let top = daemon.prints(&["top", "--count", "2", "--interval", "0.05"]);
    assert_eq!(top.matches("GROUP").count(), 2);
}

#[test]
fn json_is_what_the_daemon_answers() {
    let daemon = Daemon::start();
    assert_eq!(daemon.json(&["list"])["vms"][0]["name"], "db");
    assert_eq!(daemon.json(&["show", "web"])["flow_list"], Value::Array(Vec::new()));
    assert_eq!(daemon.json(&["group", "uplink"])["share"], "rate");
}

#[test]
fn vms_and_groups_are_changed() {
    let daemon = Daemon::start();
    let shown = daemon.prints(&["set", "web", "--weight", "2.5", "--group", "none"]);
    assert_eq!(
        (line(&shown, "weight"), line(&shown, "group")),
        (vec!["weight", "2.5"], vec!["group", "none"])
    );
    daemon.prints(&["set", "web", "--coupled", "off"]);
    let vm = daemon.json(&["show", "web"]);
    assert_eq!(
        (&vm["weight"], &vm["group"], &vm["coupled"]),
        (&2.5.into(), &Value::Null, &false.into())
    );
    daemon.prints(&["set", "web", "--group", "uplink", "--coupled", "on"]);
    assert_eq!(daemon.json(&["show", "web"])["group"], "uplink");
    let change = ["group", "uplink", "--share", "window", "--policy", "ctrltcp"];
    daemon.prints(&[&change[..], &["--aggression", "2", "--coupled", "off"]].concat());
    let group = daemon.json(&["group", "uplink"]);
    assert_eq!(
        (&group["share"], &group["aggression"], &group["coupled"]),
        (&"window".into(), &2.0.into(), &false.into())
    );
}

#[test]
fn errors_say_what_to_do() {
    let daemon = Daemon::start();
    assert_eq!(daemon.fails(&["show", "wbe"]), "cccctl: no VM `wbe`; did you mean `web`?\n");
    assert!(daemon.fails(&["show", "we/b"]).contains("no VM"));
    let group = daemon.fails(&["set", "web", "--group", "uplnik"]);
    assert!(group.contains("did you mean `uplink`?"), "{group}");
    let weight = daemon.fails(&["set", "web", "--weight", "0"]);
    assert!(weight.contains("use 0.01 to 1000"), "{weight}");
    let share = daemon.fails(&["group", "uplink", "--share", "all"]);
    assert!(share.contains("use \"window\" or \"rate\""), "{share}");
    assert!(daemon.fails(&["set", "web"]).contains("--weight"), "nothing to change");
    assert!(daemon.fails(&["set", "web", "--coupled", "maybe"]).contains("on, off"));
    assert!(daemon.fails(&["top", "--interval", "0"]).contains("use 0.05 to 3600"));
}

#[test]
fn a_daemon_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control");
    let (done, _, said) = run(&socket, &["list"]);
    assert!(!done && said.contains("no control socket at") && said.contains("--control"), "{said}");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let (done, _, said) = run(&socket, &["list"]);
    assert!(!done && said.contains("nobody listens"), "{said}");
}

/// A domain's description with this in its metadata.
fn described(metadata: &str) -> String {
    format!("<domain type='kvm'><name>mail</name><metadata>{metadata}</metadata></domain>")
}

#[test]
fn the_hook_tells_of_domains_that_come_and_go() {
    let daemon = Daemon::start();
    let control = daemon.dir.path().join("control");
    let socket = daemon.dir.path().join("mail").display().to_string();
    let metadata = |weight: &str| {
        let socket = format!("socket='{socket}' weight='{weight}' group='uplink'");
        described(&format!("<c:vm xmlns:c='urn:ccc:vm:1' {socket}/>"))
    };
    let hook = |operation: &str, description: &str| {
        let arguments = ["hook", "--", "mail", operation, "begin", "-"];
        run_with(&control, &arguments, description)
    };
    let silent = (true, String::new(), String::new());
    for (operation, weight) in [("prepare", "2.5"), ("reconnect", "4"), ("attach", "1")] {
        assert_eq!(hook(operation, &metadata(weight)), silent, "{operation}");
        let vm = daemon.json(&["show", "mail"]);
        let expected: f64 = weight.parse().unwrap();
        assert_eq!((&vm["weight"], &vm["group"]), (&expected.into(), &"uplink".into()));
        assert_eq!(hook("started", &metadata("9")), silent, "none of its business");
    }
    let (done, _, said) = hook("prepare", &metadata("-1"));
    assert!(!done && said.contains("use 0.01 to 1000"), "{said}");
    for _ in 0..2 {
        assert_eq!(hook("release", &metadata("1")), silent, "what is gone is gone");
        assert!(daemon.fails(&["show", "mail"]).contains("no VM"));
    }
    let plugged = described("<p:device xmlns:p='urn:ccc:plugged:1' bus='pci.6'/>");
    let (done, printed, said) = hook("migrate", &plugged);
    assert!(done && said.is_empty() && printed.contains("path=/run/ccc/mail.sock"), "{printed}");
    assert_eq!(hook("migrate", &metadata("1")), silent, "as it started");
    let (done, _, said) = hook("prepare", "<domain");
    assert!(!done && said.contains("no XML"), "{said}");
}

#[test]
fn other_domains_start_without_a_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("control");
    let other = described("<o:vm xmlns:o='urn:other'/>");
    let hook = ["hook", "--", "mail", "prepare", "begin", "-"];
    assert_eq!(run_with(&control, &hook, &other), (true, String::new(), String::new()));
    let ours = described("<c:vm xmlns:c='urn:ccc:vm:1'/>");
    let (done, _, said) = run_with(&control, &hook, &ours);
    assert!(!done && said.contains("start ccc-vhost"), "{said}");
}

#[test]
fn without_libvirt_commands_on_domains_say_so() {
    let nowhere = Path::new("/nowhere/control");
    let (done, _, said) = run(nowhere, &["attach", "mail", "--weight", "0"]);
    assert!(!done && said.contains("use 0.01 to 1000"), "{said}");
    let (done, _, said) = run(nowhere, &["--connect", "nonsense:///", "attach", "mail"]);
    assert!(!done && (said.contains("libvirt: ") || said.contains("install libvirt")), "{said}");
}
