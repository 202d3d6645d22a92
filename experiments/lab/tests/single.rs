// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A short run of the whole laboratory: one kernel, two Reno tenants.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

const FILES: [&str; 7] = [
    "flows.csv",
    "queue.csv",
    "goodput.csv",
    "flows.json",
    "bottleneck.json",
    "meta.json",
    "scenario.json",
];

/// The kernel, if it has been built; this test does not build it.
fn kernel() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = from("CCC_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|d| d.join("ccc")))
        .or_else(|| from("HOME").map(|d| d.join(".cache/ccc")))?;
    let built = fs::read_dir(cache).ok()?.flatten().map(|entry| entry.path());
    built.filter(|dir| dir.join("done").exists()).map(|dir| dir.join("linux")).find(|k| k.exists())
}

fn scenario(kernel: &Path, seed: u64) -> serde_json::Value {
    serde_json::json!({
        "name": "test", "seed": seed, "duration_s": 5, "topology": "single",
        "bottleneck": {"rate_mbit": 10, "limit_packets": 83, "delay_ms": 100},
        "kernel": kernel,
        "vms": [
            {"name": "vm1", "congestion_control": "reno", "flows": [{}]},
            {"name": "vm2", "congestion_control": "reno",
             "flows": [{"start_s": 1, "bytes": 100_000}, {"stop_s": 2}]}
        ]
    })
}

fn run(kernel: &Path, seed: u64, out: &Path) -> std::process::Output {
    simulate(&scenario(kernel, seed), out)
}

/// The scenario as a file in a directory for its results.
fn written(scenario: &serde_json::Value, out: &Path) -> PathBuf {
    fs::create_dir_all(out).expect("directory");
    let file = out.join("input.json");
    fs::write(&file, scenario.to_string()).expect("scenario");
    file
}

fn simulate(scenario: &serde_json::Value, out: &Path) -> std::process::Output {
    let file = written(scenario, out);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccc-lab"));
    command.arg("run").arg(file).arg("--out").arg(out).output().expect("ccc-lab runs")
}

fn json(out: &Path, name: &str) -> serde_json::Value {
    serde_json::from_slice(&fs::read(out.join(name)).expect(name)).expect(name)
}

fn check_flows(out: &Path) {
    let flows = json(out, "flows.json");
    let bytes = |n: usize| flows[n]["bytes_received"].as_u64().expect("bytes");
    let end = |n: usize| flows[n]["end_s"].as_f64().expect("end");
    assert!(bytes(0) > 1_000_000, "the endless flow: {}", flows[0]);
    assert_eq!((bytes(1), flows[1]["completed"].as_bool()), (100_000, Some(true)));
    assert!((1.0..5.0).contains(&end(1)), "the finite flow: {}", flows[1]);
    assert!((2.0..2.4).contains(&end(2)), "the aborted flow: {}", flows[2]);
    let bottleneck = json(out, "bottleneck.json");
    assert!(bottleneck["sent_bytes"].as_u64() > Some(bytes(0)));
}

#[test]
fn a_run_measures_and_the_same_seed_gives_the_same_bytes() {
    let Some(kernel) = kernel() else {
        eprintln!("skipped: the laboratory's kernel is not built (scripts/build kernel)");
        return;
    };
    let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("single");
    let [first, again, other] = ["first", "elsewhere/again", "other"].map(|d| base.join(d));
    for (out, seed) in [(&first, 7), (&again, 7), (&other, 8)] {
        let output = run(&kernel, seed, out);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    check_flows(&first);
    let read = |out: &Path, name: &str| fs::read(out.join(name)).expect(name);
    for name in FILES {
        assert!(read(&first, name) == read(&again, name), "{name} differs between equal runs");
    }
    assert!(read(&first, "flows.csv") != read(&other, "flows.csv"), "the seed has no effect");
}

#[test]
fn applications_keep_their_pace_and_a_churn_comes_and_goes() {
    let Some(kernel) = kernel() else {
        eprintln!("skipped: the laboratory's kernel is not built (scripts/build kernel)");
        return;
    };
    let mut scenario = scenario(&kernel, 7);
    scenario["bottleneck"] =
        serde_json::json!({"rate_mbit": 50, "limit_packets": 1000, "delay_ms": 20});
    scenario["vms"][0]["delay_ms"] = 40.into();
    scenario["vms"][0]["flows"] = serde_json::json!([
        {"rate_kbit": 2000, "phases": [{"at_s": 2, "rate_kbit": 0}, {"at_s": 3, "priority": 4}]}
    ]);
    scenario["vms"][0]["guest_actions"] = serde_json::json!([{"at_s": 1, "bind_device": true}]);
    scenario["vms"][1]["flows"] =
        serde_json::json!([{"churn": {"connections": 500, "hold_s": 1, "bytes": 2000}}]);
    let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pace");
    let [first, again] = ["first", "again"].map(|d| base.join(d));
    for out in [&first, &again] {
        let output = simulate(&scenario, out);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let flows = json(&first, "flows.json");
    let paced = flows[0]["bytes_received"].as_u64().expect("bytes");
    assert!((450_000..=500_000).contains(&paced), "2 s of 2 Mbit/s: {}", flows[0]);
    assert_eq!(flows[1]["bytes_received"], 1_000_000);
    assert_eq!((&flows[1]["accepted"], &flows[1]["reset"]), (&500.into(), &500.into()));
    let actions = json(&first, "guest_actions.json");
    assert_eq!(actions["vm1"][0]["done"], false, "there is no device: {actions}");
    for name in FILES.iter().chain(&["guest_actions.json"]) {
        let read = |out: &Path| fs::read(out.join(name)).expect(name);
        assert!(read(&first) == read(&again), "{name} differs between equal runs");
    }
}

#[test]
fn a_guest_that_cannot_start_ends_the_run_with_its_reason() {
    let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("broken");
    let output = run(Path::new("/bin/false"), 1, &base);
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("lab: ended early with exit status: 1"), "{message}");
}

/// What ends with the test.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn v1_a_busy_machine_makes_a_run_slow_and_does_not_end_it() {
    let Some(kernel) = kernel() else {
        eprintln!("skipped: the laboratory's kernel is not built (scripts/build kernel)");
        return;
    };
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("busy");
    let mut scenario = scenario(&kernel, 7);
    scenario["duration_s"] = 1.into();
    scenario["vms"] =
        serde_json::json!([{"name": "vm1", "congestion_control": "reno", "flows": [{}]}]);
    let file = written(&scenario, &out);
    // The run gets a fifteenth of a processor; its guest's start alone takes seconds.
    let cpus = sched_getaffinity(Pid::from_raw(0)).expect("processors");
    let cpu = (0..CpuSet::count()).find(|&n| cpus.is_set(n) == Ok(true)).expect("a processor");
    let mut busy = Command::new("taskset");
    busy.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
    let _busy = Beside(busy.spawn().expect("a busy program"));
    let mut command = Command::new("nice");
    command.args(["-n", "12", env!("CARGO_BIN_EXE_ccc-lab"), "run"]).arg(file);
    command.arg("--out").arg(&out).args(["--cpu", &cpu.to_string(), "--patience", "2"]);
    let output = command.output().expect("ccc-lab runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_guest_that_does_nothing_ends_the_run() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("idle");
    fs::create_dir_all(&out).expect("directory");
    let kernel = out.join("kernel");
    fs::write(&kernel, "#!/bin/sh\nsleep 1000\n").expect("a kernel that only sleeps");
    fs::set_permissions(&kernel, fs::Permissions::from_mode(0o755)).expect("executable");
    let file = written(&scenario(&kernel, 1), &out);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccc-lab"));
    command.arg("run").arg(file).arg("--out").arg(&out).args(["--patience", "2"]);
    let output = command.output().expect("ccc-lab runs");
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    let expected = "simulated time stands still at 0.000000 s: lab has not connected";
    assert!(message.contains(expected), "{message}");
}
