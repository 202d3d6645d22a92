// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program against the real daemon.
#![allow(clippy::unwrap_used)]
use std::{
    fs,
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
            assert!(started.elapsed() < Duration::from_secs(10), "does not listen");
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
    let output = Command::new(env!("CARGO_BIN_EXE_cccctl"))
        .args(arguments)
        .env("CCC_CONTROL", socket)
        .output()
        .unwrap();
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
    assert_eq!(line(&list, "web"), ["web", "uplink", "3", "on", "no", "0", "0"]);
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
