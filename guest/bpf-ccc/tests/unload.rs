// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What `ccc-bpf unload` says to whom it can remove nothing for.
use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ccc-bpf");

/// A directory of its own, in which nobody else may look.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ccc-unload-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).expect("a directory");
    fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("set");
    path
}

/// With no other bpffs than one at a path, which has what the commands make in it.
fn in_bpffs(at: &str, commands: &str, arguments: &[&str]) -> Output {
    let script = "for other in $(findmnt -rnt bpf -o TARGET); do umount \"$other\"; done
        if grep -q ' bpf ' /proc/self/mounts; then exit 9; fi
        at=$1; shift; mount -t bpf -o mode=0700 bpf \"$at\"; cd \"$at\"";
    let program = format!("{PROGRAM} unload \"$@\"; find . -mindepth 1 -type d");
    Command::new("unshare")
        .args(["--mount", "sh", "-ec", &format!("{script}; {commands}; {program}"), "sh", at])
        .args(arguments)
        .output()
        .expect("run")
}

/// As a user without rights, who may run what only root can find.
fn as_nobody(before: &str, arguments: &[&str]) -> Output {
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/0";
    Command::new("unshare")
        .args(["--mount", "sh", "-ec", &format!("{before}; exec {nobody} unload \"$@\""), "sh"])
        .args(arguments)
        .stdin(File::open(PROGRAM).expect("the program"))
        .output()
        .expect("run")
}

fn text(said: &[u8]) -> String {
    String::from_utf8_lossy(said).into_owned()
}

#[test]
fn who_may_not_look_is_told_so_and_not_that_nothing_is_there() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = directory("rights");
    let at = directory.display().to_string();
    let pins = format!("{at}/pins");
    let bpffs = format!("mount -t bpf -o mode=0700 bpf {at}");
    for (before, arguments) in
        [(":", ["--pins", &pins].as_slice()), (bpffs.as_str(), ["--all"].as_slice())]
    {
        let ended = as_nobody(before, arguments);
        let why = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {why}{}", text(&ended.stdout));
        assert!(why.contains(&at) && why.contains("expected root: Permission denied"), "{why}");
    }
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn where_nothing_is_that_is_said() {
    let directory = directory("typo");
    let typo = directory.join("no/such").display().to_string();
    let ended = Command::new(PROGRAM).args(["unload", "--pins", &typo]).output().expect("run");
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let said = text(&ended.stdout);
    assert_eq!(said, format!("no program of ccc-bpf at {typo}: nothing was removed\n"));
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn elsewhere_than_in_a_bpffs_nothing_is_touched() {
    let directory = directory("elsewhere");
    fs::set_permissions(&directory, Permissions::from_mode(0o755)).expect("set");
    let at = directory.display().to_string();
    let ended = Command::new(PROGRAM).args(["unload", "--pins", &at]).output().expect("run");
    assert_eq!(ended.status.code(), Some(78));
    assert!(text(&ended.stderr).contains("is not in a bpffs"), "{}", text(&ended.stderr));
    let mode = fs::metadata(&directory).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn what_was_made_for_pins_goes_with_them_and_what_is_of_others_stays() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (directory, ours) = (directory("left"), "0123456789abcdef/tables");
    let at = directory.display().to_string();
    let here = in_bpffs(&at, &format!("mkdir -p {ours}"), &["--pins", &at]);
    assert!(here.status.success(), "{}", text(&here.stderr));
    assert_eq!(text(&here.stdout), format!("removed the program of ccc-bpf at {at}\n"));
    let made = format!("mkdir -p a/b/{ours} c/{ours} d/e d/{ours}; chown -R 65534 c");
    let all = in_bpffs(&at, &made, &["--all"]);
    assert!(all.status.success(), "{}", text(&all.stderr));
    let said = text(&all.stdout);
    let mut left: Vec<&str> = said.lines().filter(|line| line.starts_with("./")).collect();
    left.sort_unstable();
    let theirs = "./c/0123456789abcdef";
    assert_eq!(left, ["./c", theirs, &format!("{theirs}/tables"), "./d", "./d/e"], "{said}");
    assert!(text(&all.stderr).contains("is of user 65534: it is left alone"));
    fs::remove_dir_all(directory).expect("removed");
}
