// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The life of a guest.

use std::fs;
use std::thread;

use nix::sys::reboot::{RebootMode, reboot};
use serde_json::json;

use super::clock::Clock;
use super::network::{self, Network};
use super::output::{self, output};
use super::threads::joined;
use super::traffic::{cross, flood, receiver, sender};
use super::{guest_actions, system};
use crate::error::{Context, LabError, Result};
use crate::plan::Plan;
use crate::plan::addresses::RECEIVER;

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
    let _ = fs::write(output(name, file), text);
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
        system::load_module(plan.module_file(), &plan.module_options)?;
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
    output::write(name, "flows.csv", &flows)?;
    let meta = json!({
        "release": system::release()?,
        "namespaces": network.sysctls,
        "qdiscs": network.qdiscs,
    });
    output::write_json(name, "meta.json", &meta)?;
    Ok(if plan.killed { End::Killed } else { End::PowerOff })
}

fn read_plan(name: &str) -> Result<Plan> {
    let path = output(name, "plan.json");
    let text = fs::read(&path).on("reading", &path)?;
    serde_json::from_slice(&text).map_err(|e| LabError::protocol(name, format!("plan: {e}")))
}

/// Runs everything that runs at once; returns the senders' samples.
fn traffic(plan: &Plan, clock: Clock, network: &Network) -> Result<String> {
    thread::scope(|scope| {
        let mut jobs = Vec::new();
        if let Some(router) = &plan.router {
            jobs.push(scope.spawn(move || network::queue_stats::sample(plan, clock)));
            jobs.push(scope.spawn(move || {
                network.namespaces.enter(RECEIVER)?;
                receiver::run(plan, router, clock)
            }));
            if let Some(cross) = &router.cross {
                jobs.push(scope.spawn(move || {
                    network.namespaces.enter(RECEIVER)?;
                    cross::sink(plan, clock)
                }));
                jobs.push(scope.spawn(move || cross::run(plan, router, cross, clock)));
            }
            for flood in &router.floods {
                jobs.push(scope.spawn(move || {
                    network.namespaces.enter(RECEIVER)?;
                    flood::sink(plan, flood, clock)
                }));
            }
            jobs.push(scope.spawn(move || network::path::change(router, clock)));
        }
        let senders: Vec<_> = plan
            .senders
            .iter()
            .map(|sender| {
                scope.spawn(move || {
                    if sender.namespace {
                        network.namespaces.enter(&sender.vm)?;
                    }
                    sender::run(plan, sender, clock)
                })
            })
            .collect();
        for (sender, flood) in plan.senders.iter().filter_map(|s| Some((s, s.flood.as_ref()?))) {
            jobs.push(scope.spawn(move || {
                if sender.namespace {
                    network.namespaces.enter(&sender.vm)?;
                }
                flood::run(plan, flood, clock)
            }));
        }
        for sender in plan.senders.iter().filter(|s| !s.work.is_empty()) {
            jobs.push(scope.spawn(move || {
                if sender.namespace {
                    network.namespaces.enter(&sender.vm)?;
                }
                guest_actions::run(plan, sender, clock)
            }));
        }
        let rows = senders.into_iter().map(joined).collect::<Result<Vec<_>>>();
        jobs.into_iter().try_for_each(joined)?;
        Ok(rows?.concat())
    })
}
