// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators wait for where there are many VMs, and what that costs the VMs.
//!
//! `scale vms=1000 flows=100 looks=5` starts the real daemon with so many real front ends,
//! each with so many flows that send, and looks as operators do: by the real cccctl, if it
//! was built beside this, and by a scrape.  It prints one JSON document: for each look the
//! time until it is answered, and the processor time of the thread that serves VMs, which
//! they lack.  `slowdown_percent` is that of a `top` and a `flows` each two seconds and a
//! scrape each fifteen.
#![allow(clippy::unwrap_used, missing_docs)]
#[path = "../../tests/support/mod.rs"]
mod support;

// The measurements of speed use the rest of it.
#[allow(dead_code)]
#[path = "../speed/fleet.rs"]
mod fleet;
#[path = "../speed/options.rs"]
mod options;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use fleet::{Fleet, Member};
use options::Options;
use serde_json::{Map, Value, json};
use support::operator::Operator;

/// What an operator does, and how often, seconds.
const LOOKS: [(&str, &[&str], f64); 3] = [
    ("top", &["top", "--count", "1"], 2.0),
    ("flows", &["flows"], 2.0),
    ("status", &["status"], f64::INFINITY),
];
const SCRAPE_EACH_S: f64 = 15.0;

/// Processor time of the thread that serves VMs: the first one.
fn served(fleet: &Fleet) -> Duration {
    let pid = fleet.daemon.pid();
    let said = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).unwrap();
    Duration::from_nanos(said.split(' ').next().unwrap().parse().unwrap())
}

/// The program an operator types, where it was built with this one.
fn cccctl() -> Option<PathBuf> {
    let beside = std::env::current_exe().unwrap().parent()?.parent()?.join("cccctl");
    beside.is_file().then_some(beside)
}

fn run(program: &Path, control: &Path, words: &[&str]) {
    let mut command = Command::new(program);
    command.args(words).env("CCC_CONTROL", control).stdout(Stdio::null()).stderr(Stdio::null());
    // Not all VMs are well here: they have no taps.
    let status = command.status().unwrap();
    assert!(matches!(status.code(), Some(0 | 4)), "{words:?}: {status}");
}

/// The median time of some looks, and what one of them costs VMs, milliseconds.
fn look(fleet: &Fleet, looks: usize, does: &dyn Fn()) -> (f64, f64) {
    does();
    let before = served(fleet);
    let mut times: Vec<Duration> = (0..looks)
        .map(|_| {
            let began = Instant::now();
            does();
            began.elapsed()
        })
        .collect();
    let cost = (served(fleet) - before) / looks as u32;
    times.sort_unstable();
    (times[looks / 2].as_secs_f64() * 1e3, cost.as_secs_f64() * 1e3)
}

/// A daemon with so many VMs, and so many flows in each, which operators find at `control`.
fn start_at(control: &Path, vms: usize, flows: usize) -> Fleet {
    let mut fleet = Fleet::empty(vms, &format!("[daemon]\ncontrol = \"{}\"", control.display()));
    let names: Vec<String> = (0..vms).map(|number| format!("vm{number:04}")).collect();
    fleet.members =
        names.iter().map(|name| Member::connect_for(&fleet.daemon, name, flows)).collect();
    fleet.members.iter_mut().for_each(|member| member.begin(flows));
    fleet
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    // `cargo bench` and `cargo test --all-targets` start it with nothing to measure.
    if words.is_empty() {
        return;
    }
    let options = Options::new(words);
    let [vms, flows, looks] = ["vms", "flows", "looks"].map(|name| options.number(name));
    let dir = tempfile::tempdir().unwrap();
    let control = dir.path().join("control");
    let fleet = start_at(&control, vms, flows);
    let operator = Operator::at(&control);
    let all = operator.get("/v1/status")["flows"].clone();
    assert_eq!(all, vms * flows, "not all flows are there");
    let mut answer = Map::new();
    let mut slowdown = 0.0;
    let mut tell = |name: &str, each_s: f64, (wait_ms, cost_ms): (f64, f64)| {
        slowdown += cost_ms / 1e3 / each_s * 100.0;
        answer.insert(name.to_owned(), json!({"wait_ms": wait_ms, "cost_ms": cost_ms}));
    };
    if let Some(program) = cccctl() {
        for (name, words, each_s) in LOOKS {
            let look = look(&fleet, looks, &|| run(&program, &control, words));
            tell(name, each_s, look);
        }
    }
    let scrape = || {
        let (status, text) = operator.ask("GET", "/metrics", None);
        assert!(status == 200 && text.as_str().is_some_and(|text| text.contains("vm0000")));
    };
    tell("scrape", SCRAPE_EACH_S, look(&fleet, looks, &scrape));
    answer.insert("slowdown_percent".to_owned(), json!(slowdown));
    answer.insert("flows_in_all".to_owned(), all);
    println!("{}", Value::Object(answer));
}
