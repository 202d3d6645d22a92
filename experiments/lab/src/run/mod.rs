// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One run from its scenario to its results.

pub mod daemon;
pub mod programs;
pub mod results;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::controller::Controller;
use crate::controller::script::{Script, ScriptedAction};
use crate::controller::taps::Taps;
use crate::controller::world::World;
use crate::error::{Context, Result};
use crate::ipc::poller::Poller;
use crate::plan::addresses::nic_mac;
use crate::plan::{CLOCK_START_NS, LEAD_NS, NETWORK_GUEST, Plan, WRITING_NS, plans};
use crate::random::Rng;
use crate::relay::{Relay, Sockets};
use crate::scenario::Scenario;
use crate::scenario::vm::Vm;
use crate::switch::Switch;
use crate::switch::capture::Capture;
use crate::switch::faults::Faults;
use crate::switch::nic::Socket;
use crate::time::scheduler::{Scheduler, Settings, guest_number};
use crate::units::ns_of_s;
use crate::workdir::{self, Workdir};
use programs::{DAEMON, Guest, Programs};

/// Simulated time the guests have after the traffic to write their results.
const END_NS: u64 = 30_000_000_000;

/// How a run is to be done; nothing here changes its results.
pub struct Options {
    /// Where the results go.
    pub out: PathBuf,
    /// Has the packets on the VMs' cables in `packets.pcap`.
    pub pcap: bool,
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
    if options.pcap {
        scenario.check_cables("--pcap")?;
    }
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
    programs::install(work, &init)?;
    for plan in plans {
        work.write(&format!("{}.plan.json", plan.name), results::json(plan))?;
    }
    let modules =
        [(&scenario.module, workdir::MODULE), (&scenario.hostile_module, workdir::HOSTILE_MODULE)];
    for (module, name) in modules {
        if let Some(module) = module {
            fs::copy(module, work.join(name)).on("copying", module)?;
        }
    }
    results::write(&options.out, "scenario.json", scenario)
}

fn simulate(scenario: &Scenario, plans: &[Plan], work: &Workdir, options: &Options) -> Result<()> {
    // The daemon is the first client: it serves the others' start.
    let background: &[&str] = if scenario.coupled { &[DAEMON] } else { &[] };
    let guests = plans.iter().map(|p| p.name.as_str());
    let clients: Vec<_> = background.iter().copied().chain(guests).map(String::from).collect();
    let poller = Poller::new().context(|| "epoll_create".into())?;
    let world = world(scenario, plans, clients, work, options, &poller)?;
    let control = scenario.coupled.then(|| work.socket(workdir::CONTROL));
    let script = Script::new(actions(scenario, plans), control.as_deref());
    let mut controller = Controller::new(world, script, poller)?;
    let mut programs = Programs::new(work, &options.out, scenario.seed, options.stop.clone());
    if scenario.coupled {
        daemon::start(scenario, &devices(scenario, plans), work, &mut programs)?;
    }
    let kernel = scenario.kernel.as_deref().unwrap_or(Path::new("linux"));
    for (place, plan) in plans.iter().enumerate() {
        let guest = guest(scenario, plan, plans, guest_number(place + background.len()));
        if plan.is_first() {
            programs.launch_guest(kernel, &guest)?;
        } else {
            programs.keep_guest(kernel, guest);
        }
    }
    controller.run(background, options.patience, &mut programs)?;
    let (mut world, script) = controller.finish();
    world.switch.end_capture()?;
    results::write_controllers(&options.out, &script, &world)?;
    // While it is still connected: a lost scheduler is an error to it.
    programs.stop_daemon()
}

/// The clock, the cables and the relays of a run.
fn world(
    scenario: &Scenario,
    plans: &[Plan],
    clients: Vec<String>,
    work: &Workdir,
    options: &Options,
    poller: &Poller,
) -> Result<World> {
    let settings = Settings {
        clock_start_ns: CLOCK_START_NS,
        end_ns: LEAD_NS + ns_of_s(scenario.duration_s) + END_NS,
        patience: options.patience,
    };
    let scheduler = Scheduler::new(&work.socket(workdir::TIME), clients, settings, poller)?;
    let capture = options.pcap.then(|| Capture::create(&options.out.join(results::PACKETS)));
    let mut switch = Switch::new(Faults::new(&scenario.faults, plans)?, capture.transpose()?);
    plug(&mut switch, plans, work, poller)?;
    // Other numbers than those of the flows' starts.
    let mut seeds = Rng(!scenario.seed);
    for vm in &scenario.vms {
        let seed = seeds.next_u64();
        vm.link.iter().for_each(|link| switch.limit(&vm.name, link));
        vm.stalls.iter().for_each(|stalls| switch.stall(&vm.name, stalls, seed));
    }
    let delay = scenario.doorbell_delay_ms.map(|ms| ns_of_s(ms / 1e3));
    let relayed = if scenario.relays() { devices(scenario, plans) } else { vec![] };
    let relay = |(index, vm): (usize, &&str)| {
        let [own, daemon] = [workdir::device_socket(vm), workdir::relayed_socket(vm)];
        let [own, daemon] = [own, daemon].map(|name| work.socket(&name));
        Relay::new(Sockets { vm: (*vm).to_owned(), own, daemon }, delay, index, poller)
    };
    let relays = relayed.iter().enumerate().map(relay).collect::<Result<_>>()?;
    let taps = scenario.watches_taps().then(|| Taps::new(&work.socket(workdir::TAPS), poller));
    Ok(World { scheduler, switch, relays, taps: taps.transpose()? })
}

fn guest(scenario: &Scenario, plan: &Plan, plans: &[Plan], number: u64) -> Guest {
    Guest {
        name: plan.name.clone(),
        number,
        clock_ns: CLOCK_START_NS + started_at(plan, plans),
        flows: plan.flows(),
        nics: (0..nics(plan)).map(|n| workdir::nic_socket(plan.machine(), n)).collect(),
        device: device(scenario, plan).map(workdir::device_socket),
    }
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
fn actions(scenario: &Scenario, plans: &[Plan]) -> Vec<(u64, ScriptedAction)> {
    let actions = scenario.actions.iter();
    let actions = actions.map(|a| (LEAD_NS + ns_of_s(a.at_s), ScriptedAction::Daemon(a.clone())));
    let reboots = plans.iter().filter_map(|plan| {
        let to = plan.successor(plans)?.name.clone();
        Some((killed_at(plan), ScriptedAction::Reboot { from: plan.name.clone(), to }))
    });
    actions.chain(reboots).collect()
}

/// Joins each tenant's NIC with the network guest's NIC for it.
fn plug(switch: &mut Switch, plans: &[Plan], work: &Workdir, poller: &Poller) -> Result<()> {
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
            .map(|tenant| nic(&tenant.name, 0, nic_mac(tenant.senders[0].number, false)));
        let gateway = nic_mac(tenants[0].senders[0].gateway, true);
        switch.connect(ends.collect(), nic(&net.name, index, gateway), poller)?;
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
    let here = |vm: &&Vm| plan.senders.iter().any(|s| s.vm == vm.name);
    let vm = scenario.vms.iter().filter(here).find(|vm| scenario.has_device(vm))?;
    Some(&vm.name)
}

/// The VMs that have a device.
fn devices<'a>(scenario: &'a Scenario, plans: &[Plan]) -> Vec<&'a str> {
    plans.iter().filter(|plan| plan.is_first()).filter_map(|p| device(scenario, p)).collect()
}

/// The guests' init beside the running program.
pub fn init_beside_us() -> Result<PathBuf> {
    let own = std::env::current_exe().context(|| "finding this program".into())?;
    Ok(own.parent().unwrap_or(Path::new(".")).join("ccc-lab-guest"))
}
