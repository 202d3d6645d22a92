// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guests' init: sets the machine up, runs its traffic, writes what was
//! measured and powers off.
//!
//! Nothing here may poll: a program that looks again and again makes virtual
//! time crawl. Threads sleep to a given time or block in a system call.

mod actions;
mod churn;
mod clock;
mod cross;
mod ipv6;
mod network;
mod offload;
mod overload;
mod qdisc;
mod queues;
mod receiver;
mod sender;
mod system;
mod tcp_info;
mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use nix::sys::reboot::{RebootMode, reboot};
use serde_json::json;

use crate::error::{Context, LabError, Result};
use crate::plan::Plan;
use clock::Clock;
pub use network::uplink_mac;

/// Where a guest sees the run's working directory.
pub const LAB: &str = "/run/lab";

/// Does all of the guest's work; does not return.
pub fn main(name: &str) -> ! {
    let outcome = work(name);
    let (file, text) = match &outcome {
        Ok(_) => ("done", String::new()),
        Err(e) => ("error", e.to_string()),
    };
    println!("ccc-lab-guest: {name}: {file} {text}");
    // If even this fails, the console has it, and the controller sees that
    // the guest has ended without a word.
    let _ = fs::write(Path::new(LAB).join(format!("{name}.{file}")), text);
    nix::unistd::sync();
    if matches!(outcome, Ok(End::Killed)) {
        // Its flows run on meanwhile.
        loop {
            thread::park();
        }
    }
    let failure = reboot(RebootMode::RB_POWER_OFF);
    panic!("power off: {failure:?}");
}

/// How a guest ends that has done its work.
enum End {
    /// By itself.
    PowerOff,
    /// From outside, in the middle of its traffic.
    Killed,
}

fn work(name: &str) -> Result<End> {
    system::mount_all()?;
    system::raise_limits()?;
    let plan = read_plan(name)?;
    system::set_host_name(&plan.name)?;
    if plan.module.is_some() {
        system::load_module(&plan.module_options)?;
    }
    if plan.senders.iter().any(|s| !s.work.is_empty()) {
        system::mount_sysfs()?;
    }
    let network = network::set_up(&plan)?;
    let clock = Clock::new(plan.epoch_ns);
    if clock.is_past(plan.begin_ns) {
        return Err(LabError::protocol(name, "was not ready when the traffic was to start"));
    }
    let flows = traffic(&plan, clock, &network)?;
    fs::write(output(name, "flows.csv"), flows).on("writing", &output(name, "flows.csv"))?;
    let meta = json!({
        "release": system::release()?,
        "namespaces": network.sysctls,
        "qdiscs": network.qdiscs,
    });
    write_json(&output(name, "meta.json"), &meta)?;
    Ok(if plan.killed { End::Killed } else { End::PowerOff })
}

fn read_plan(name: &str) -> Result<Plan> {
    let path = output(name, "plan.json");
    let text = fs::read(&path).on("reading", &path)?;
    serde_json::from_slice(&text).map_err(|e| LabError::protocol(name, format!("plan: {e}")))
}

/// Runs everything that runs at once; returns the senders' samples.
fn traffic(plan: &Plan, clock: Clock, network: &network::Network) -> Result<String> {
    thread::scope(|scope| {
        let mut jobs = Vec::new();
        if let Some(router) = &plan.router {
            jobs.push(scope.spawn(move || qdisc::sample(plan, clock)));
            jobs.push(scope.spawn(move || {
                network.enter(network::RECEIVER)?;
                receiver::run(plan, router, clock)
            }));
            if let Some(cross) = &router.cross {
                jobs.push(scope.spawn(move || {
                    network.enter(network::RECEIVER)?;
                    cross::sink(plan, clock)
                }));
                jobs.push(scope.spawn(move || cross::run(plan, router, cross, clock)));
            }
            jobs.push(scope.spawn(move || network::change_delays(router, clock)));
        }
        let senders: Vec<_> = plan
            .senders
            .iter()
            .map(|sender| {
                scope.spawn(move || {
                    if sender.namespace {
                        network.enter(&sender.vm)?;
                    }
                    sender::run(plan, sender, clock)
                })
            })
            .collect();
        for sender in plan.senders.iter().filter(|s| !s.work.is_empty()) {
            jobs.push(scope.spawn(move || {
                if sender.namespace {
                    network.enter(&sender.vm)?;
                }
                actions::run(plan, sender, clock)
            }));
        }
        let rows = senders.into_iter().map(joined).collect::<Result<Vec<_>>>();
        jobs.into_iter().try_for_each(joined)?;
        Ok(rows?.concat())
    })
}

fn joined<T>(job: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    job.join()
        .unwrap_or_else(|_| Err(LabError::protocol("guest", "a thread panicked; see the console")))
}

fn output(name: &str, kind: &str) -> std::path::PathBuf {
    Path::new(LAB).join(format!("{name}.{kind}"))
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<()> {
    fs::write(path, format!("{value:#}\n")).on("writing", path)
}

/// Sysctl settings as read back.
pub type Sysctls = BTreeMap<String, String>;
