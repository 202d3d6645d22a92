// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One run from its scenario to its results.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::actions::Deed;
use crate::controller::{Controller, Settings, guest_number};
use crate::error::{Context, LabError, Result};
use crate::faults::Faults;
use crate::guest;
use crate::launch::{self, DAEMON, Fleet, Guest};
use crate::plan::{CLOCK_START_NS, LEAD_NS, NETWORK_GUEST, Plan, WRITING_NS, plans, seconds};
use crate::relay::Sockets;
use crate::results;
use crate::scenario::{Group, Scenario};
use crate::vhost_user::Socket;
use crate::workdir::{self, Workdir};

/// Simulated time the guests have after the traffic to write their results.
const END_NS: u64 = 30_000_000_000;

/// How a run is to be done; nothing here changes its results.
pub struct Options {
    /// Where the results go.
    pub out: PathBuf,
    /// Processor for all programs of the run.
    pub cpu: Option<usize>,
    /// The guests' init, `ccc-lab-guest`.
    pub init: PathBuf,
    /// Time asleep, or at work, without progress that counts as a standstill.
    pub patience: Duration,
    /// Set to end the run.
    pub stop: Arc<AtomicBool>,
}

/// How fast a run was.
pub struct Speed {
    /// Simulated seconds of traffic.
    pub simulated_s: f64,
    /// Wall seconds from the first program's start to the last one's end.
    pub wall_s: f64,
}

/// Does a run; its results are in `options.out` afterwards.
pub fn run(scenario: &Scenario, options: &Options) -> Result<Speed> {
    pin(options.cpu)?;
    let work = Workdir::create(&options.out)?;
    let plans = plans(scenario);
    prepare(scenario, &plans, &work, options)?;
    let started = Instant::now();
    simulate(scenario, &plans, &work, options)?;
    let speed = Speed { simulated_s: scenario.duration_s, wall_s: started.elapsed().as_secs_f64() };
    results::gather(scenario, &plans, &work, &options.out)?;
    results::write_speed(&options.out, speed.simulated_s, speed.wall_s)?;
    work.remove()?;
    Ok(speed)
}

/// Only one program of a run works at a time; on one processor the hand-over
/// is several times faster.
fn pin(cpu: Option<usize>) -> Result<()> {
    let own = Pid::from_raw(0);
    let allowed = sched_getaffinity(own).context(|| "sched_getaffinity".into())?;
    let usable = |&n: &usize| allowed.is_set(n).unwrap_or(false);
    let chosen = cpu.or_else(|| (0..CpuSet::count()).find(usable)).unwrap_or(0);
    let mut set = CpuSet::new();
    set.set(chosen)
        .and_then(|()| sched_setaffinity(own, &set))
        .context(|| format!("binding the run to processor {chosen}"))
}

fn prepare(scenario: &Scenario, plans: &[Plan], work: &Workdir, options: &Options) -> Result<()> {
    let init = options.init.canonicalize().on("finding", &options.init)?;
    launch::equip(work, &init)?;
    for plan in plans {
        work.write(&format!("{}.plan.json", plan.name), json(plan))?;
    }
    if let Some(module) = &scenario.module {
        fs::copy(module, work.join(workdir::MODULE)).on("copying", module)?;
    }
    let copy = options.out.join("scenario.json");
    fs::write(&copy, json(scenario)).on("writing", &copy)
}

fn simulate(scenario: &Scenario, plans: &[Plan], work: &Workdir, options: &Options) -> Result<()> {
    // The daemon is the first client: it serves the others' start.
    let servants: &[&str] = if scenario.coupled { &[DAEMON] } else { &[] };
    let guests = plans.iter().map(|p| p.name.as_str());
    let clients: Vec<String> = servants.iter().copied().chain(guests).map(String::from).collect();
    let settings = Settings {
        clock_start_ns: CLOCK_START_NS,
        end_ns: LEAD_NS + seconds(scenario.duration_s) + END_NS,
        patience: options.patience,
    };
    let mut controller = Controller::new(&work.socket(workdir::TIME), clients, settings)?;
    plug(&mut controller, plans, work)?;
    controller.lose(Faults::new(&scenario.faults, plans)?);
    if scenario.coupled {
        controller.has_daemon(&work.socket(workdir::CONTROL));
    }
    controller.act_at(deeds(scenario, plans))?;
    let first = || plans.iter().filter(|plan| plan.is_first());
    if scenario.relays() {
        let delay = scenario.doorbell_delay_ms.map(|ms| seconds(ms / 1e3));
        for vm in first().filter_map(|plan| device(scenario, plan)) {
            let [ours, daemons] = [workdir::device_socket(vm), workdir::relayed_socket(vm)];
            let [own, daemon] = [&ours, &daemons].map(|name| work.socket(name));
            controller.relay(Sockets { vm: vm.to_owned(), own, daemon }, delay)?;
        }
    }
    let mut fleet = Fleet::new(work, &options.out, scenario.seed, options.stop.clone());
    if scenario.coupled {
        start_daemon(scenario, work, &mut fleet)?;
    }
    for (place, plan) in plans.iter().enumerate() {
        let guest = Guest {
            name: plan.name.clone(),
            number: guest_number(place + servants.len()),
            clock_ns: CLOCK_START_NS + started_at(plan, plans),
            flows: plan.flows(),
            nics: (0..nics(plan)).map(|n| workdir::nic_socket(plan.machine(), n)).collect(),
            device: device(scenario, plan).map(workdir::device_socket),
        };
        if plan.is_first() {
            fleet.launch_guest(&scenario.kernel, &guest)?;
        } else {
            fleet.keep_guest(&scenario.kernel, guest);
        }
    }
    controller.run(servants, &mut fleet)?;
    if !controller.records().is_empty() {
        let path = options.out.join("actions.json");
        fs::write(&path, json(&controller.records())).on("writing", &path)?;
    }
    if let Some(faults) = controller.faults().records() {
        let path = options.out.join("faults.json");
        fs::write(&path, json(&faults)).on("writing", &path)?;
    }
    // While it is still connected: a lost controller is an error to it.
    fleet.stop_daemon()
}

/// When a guest is started: as the run begins, or as its predecessor is killed.
fn started_at(plan: &Plan, plans: &[Plan]) -> u64 {
    let follows = |other: &&Plan| other.successor(plans).is_some_and(|next| next.name == plan.name);
    plans.iter().find(follows).map_or(0, killed_at)
}

fn killed_at(plan: &Plan) -> u64 {
    LEAD_NS + plan.duration_ns + WRITING_NS
}

/// What is done from outside, and when.
fn deeds(scenario: &Scenario, plans: &[Plan]) -> Vec<(u64, Deed)> {
    let actions = scenario.actions.iter();
    let actions = actions.map(|a| (LEAD_NS + seconds(a.at_s), Deed::Daemon(a.clone())));
    let reboots = plans.iter().filter_map(|plan| {
        let to = plan.successor(plans)?.name.clone();
        Some((killed_at(plan), Deed::Reboot { from: plan.name.clone(), to }))
    });
    actions.chain(reboots).collect()
}

/// Joins each tenant's NIC with the network guest's NIC for it.
fn plug(controller: &mut Controller, plans: &[Plan], work: &Workdir) -> Result<()> {
    let Some((net, tenants)) = plans.split_last().filter(|(net, _)| net.name == NETWORK_GUEST)
    else {
        return Ok(());
    };
    let nic = |guest: &str, index: usize, mac: [u8; 6]| Socket {
        guest: guest.to_owned(),
        mac,
        path: work.socket(&workdir::nic_socket(guest, index)),
    };
    let tenants: Vec<_> = tenants.iter().filter(|plan| plan.is_first()).collect();
    let behind_one =
        |one: &&Plan, other: &&Plan| one.senders[0].gateway == other.senders[0].gateway;
    for (index, tenants) in tenants.chunk_by(behind_one).enumerate() {
        let ends = tenants
            .iter()
            .map(|tenant| nic(&tenant.name, 0, guest::uplink_mac(tenant.senders[0].number, false)));
        let gateway = guest::uplink_mac(tenants[0].senders[0].gateway, true);
        controller.connect(ends.collect(), nic(&net.name, index, gateway))?;
    }
    Ok(())
}

fn nics(plan: &Plan) -> usize {
    let uplinks = plan.router.as_ref().map_or(0, |r| r.uplinks.len());
    uplinks + plan.senders.iter().filter(|s| !s.namespace).count()
}

/// The VM whose device a guest gets: in the single topology the one kernel
/// stands for the first VM that has one.
fn device<'a>(scenario: &'a Scenario, plan: &Plan) -> Option<&'a str> {
    let here = |vm: &&crate::scenario::Vm| plan.senders.iter().any(|s| s.vm == vm.name);
    let vm = scenario.vms.iter().filter(here).find(|vm| scenario.has_device(vm))?;
    Some(&vm.name)
}

fn start_daemon(scenario: &Scenario, work: &Workdir, fleet: &mut Fleet<'_>) -> Result<()> {
    let plans = plans(scenario);
    let first = plans.iter().filter(|plan| plan.is_first());
    let vms: Vec<_> = first.filter_map(|plan| device(scenario, plan)).collect();
    let relays = scenario.relays();
    let socket = if relays { workdir::relayed_socket } else { workdir::device_socket };
    let mut config = group_config(&scenario.group);
    for vm in scenario.vms.iter().filter(|vm| vms.contains(&vm.name.as_str())) {
        // The daemon wants a whole path, which the working directory's own may be
        // too long for.  Writing to a String cannot fail.
        let _ = write!(
            config,
            "\n[vm.{}]\nsocket = \"/proc/self/cwd/{}\"\ngroup = \"uplink\"\nweight = {}\n",
            vm.name,
            socket(&vm.name),
            vm.weight,
        );
    }
    work.write(workdir::DAEMON_CONFIG, config)?;
    let options = if scenario.controls() {
        vec!["--control".into(), workdir::CONTROL.into()]
    } else {
        vec![]
    };
    let Some(program) = &scenario.daemon else {
        return Err(LabError::Scenario { field: "daemon".into(), reason: "is missing".into() });
    };
    let program = program.canonicalize().on("finding", program)?;
    let sockets: Vec<_> = vms.iter().map(|vm| socket(vm)).collect();
    fleet.start_daemon(&program, &options, &sockets)
}

fn group_config(group: &Group) -> String {
    let policy = group.policy.as_deref().unwrap_or("ctrltcp");
    let mut config = format!("[group.uplink]\npolicy = \"{policy}\"\n");
    // Writing to a String cannot fail.
    for (key, word) in [("share", &group.share), ("growth_source", &group.growth_source)] {
        if let Some(word) = word {
            let _ = writeln!(config, "{key} = \"{word}\"");
        }
    }
    if let Some(equivalent_tcps) = group.equivalent_tcps {
        let _ = writeln!(config, "equivalent_tcps = {equivalent_tcps}");
    }
    config
}

fn json(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("plain data has a JSON form");
    text + "\n"
}

/// The guests' init beside the running program.
pub fn init_beside_us() -> Result<PathBuf> {
    let own = std::env::current_exe().context(|| "finding this program".into())?;
    Ok(own.parent().unwrap_or(Path::new(".")).join("ccc-lab-guest"))
}
