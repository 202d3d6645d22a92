// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tenants of `ccc-vhost` without a device: cgroups and network namespaces of its host, and VMs
//! whose guests have this program instead of a module.  Loads the BPF program, and stands between
//! it and the daemon; on the host of such guests it relays what their agents say.  Shows what VMs
//! send through their taps, by another BPF program.
//!
//! A program of its own, so that the daemon stays without rights: this one needs CAP_BPF and
//! CAP_NET_ADMIN where it loads the BPF program, hands the daemon the tables' descriptors, and
//! reads nothing that a tenant of its machine has written.
mod alone;
mod back_off;
mod daemon;
mod flows;
mod frames;
mod front;
mod front_end;
mod hopeless;
mod lent;
mod log_limit;
mod mark;
mod mounts;
mod pins;
mod places;
mod placing;
mod privileged;
mod program;
mod relay;
mod remote;
mod round;
mod serve;
mod shared;
mod table;
mod taps;
mod tenants;
mod wait;
mod wanted;
mod watch;
mod watchdog;

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    places::Place,
    program::Program,
    remote::Address,
    taps::Looks,
    tenants::{Daemon, Tenant, Tenants},
    wanted::Wanted,
};

/// What the manual says below the options.
const NEEDS: &str = "run and agent need Linux 6.1 or newer with BTF and the BPF JIT, a bpffs for --pins, and \
    root, or the capabilities that their units have. taps needs Linux 5.8 or newer, and root, or CAP_BPF and \
    CAP_NET_RAW.\n\n\
    Exit status: 0, it has ended as it was told to; 1, it failed, and may not the next time; 2, an option \
    is wrong; 78, what no other attempt mends.  A message says what was expected.";

/// Couples connections by BPF: those of cgroups and network namespaces of this host, or of a guest
#[derive(Debug, Parser)]
#[command(version = VERSION, after_help = NEEDS)]
struct Args {
    /// What to do
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load the program, unless it is there, and serve the daemon's tenants of this host
    Run {
        /// Where the daemon is asked which these are
        #[command(flatten)]
        control: Control,
        /// Where the program is
        #[command(flatten)]
        pinned: Pinned,
    },
    /// In a guest: load the program, and couple all of the guest by the relay on its host
    Agent {
        /// CID of the host
        #[arg(long, value_name = "CID", default_value_t = 2)]
        cid: u32,
        /// The relay's port
        #[arg(long, value_name = "PORT", default_value_t = PORT)]
        port: u32,
        /// A relay on this machine instead, by its socket
        #[arg(long, value_name = "PATH", conflicts_with_all = ["cid", "port"])]
        unix: Option<PathBuf>,
        /// Couple the connections of this cgroup only [default: of all]
        #[arg(long, value_name = "PATH", default_value = "/", hide_default_value = true)]
        cgroup: String,
        /// Where the program is
        #[command(flatten)]
        pinned: Pinned,
    },
    /// On the host: relay what agents say in the daemon's tenants that are VMs with vsock
    Relay {
        /// Where the daemon is asked which these are
        #[command(flatten)]
        control: Control,
        /// The port that agents connect to
        #[arg(long, value_name = "PORT", default_value_t = PORT)]
        port: u32,
    },
    /// List the tenants' flows of this host, or of this guest, with what each last told
    Flows {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Where the program is
        #[command(flatten)]
        pinned: Pinned,
    },
    /// Show what VMs send through their taps: coupled, not coupled, and which flows are not
    Taps {
        /// VMs by their names [default: all that have a tap]
        #[arg(value_name = "VM")]
        vms: Vec<String>,
        /// Time between two looks
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
        interval: Duration,
        /// How many looks [default: until it is interrupted]
        #[arg(long, value_name = "N")]
        count: Option<u32>,
        /// Most flows to tell of each VM
        #[arg(long, value_name = "N", default_value_t = 8)]
        top: usize,
        /// As JSON, a line each look
        #[arg(long)]
        json: bool,
        /// Where the daemon is asked for VMs, taps and flows
        #[command(flatten)]
        control: Control,
    },
    /// Remove the program; connections go on alone
    Unload {
        /// Wherever it is pinned: in every bpffs that is mounted here
        #[arg(long, conflicts_with = "pins")]
        all: bool,
        /// Where the program is
        #[command(flatten)]
        pinned: Pinned,
    },
    /// Print the manual page
    #[command(hide = true)]
    Manual,
}

#[derive(Debug, clap::Args)]
struct Control {
    /// The daemon's control socket
    #[arg(
        long,
        value_name = "PATH",
        env = "CCC_CONTROL",
        default_value = "/run/ccc/control/control.sock"
    )]
    control: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Pinned {
    /// Where the program and its maps are pinned: a directory in a bpffs
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/ccc")]
    pins: PathBuf,
}

/// That of its package, where it is of one.
const VERSION: &str = match option_env!("CCC_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};
/// Of the relay, unless something else is said.
const PORT: u32 = 1063;

fn run(args: Args) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&stop))?;
    signal_hook::flag::register(SIGINT, Arc::clone(&stop))?;
    match args.command {
        Command::Manual => Ok(manual(&mut io::stdout())?),
        Command::Flows { json, pinned } => flows::print(&pinned.pins, json, &mut io::stdout()),
        Command::Taps { vms, interval, count, top, json, control: Control { control } } => {
            let looks = Looks { control, vms, interval, count, top, json };
            taps::run(&looks, &stop, &mut io::stdout())
        }
        Command::Unload { all: true, .. } => pins::unload_all(&mut io::stdout()),
        Command::Unload { pinned, .. } => pins::unload(&pinned.pins, &mut io::stdout()),
        Command::Run { control, pinned } => {
            let asked = wanted::watch(control.control)?;
            let latest = move || {
                let wanted = asked.try_iter().last()?;
                Some(wanted.into_iter().filter_map(of_this_host).collect())
            };
            serve::run(tenants(&pinned.pins)?, latest, &stop)
        }
        Command::Agent { cid, port, unix, cgroup, pinned } => {
            let address = unix.map_or(Address::Vsock { cid, port }, Address::Unix);
            let (name, place) = ("guest".to_owned(), Place::Cgroup(cgroup));
            let guest = vec![Tenant { name, place, daemon: Daemon::Relay(address) }];
            // Each time: what failed before, as for want of memory, is tried again.
            serve::run(tenants(&pinned.pins)?, move || Some(guest.clone()), &stop)
        }
        Command::Relay { control, port } => relay::run(control.control, port, &stop),
    }
}

/// A time that somebody can wait for.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    let seconds = seconds.ok_or("expected a number of seconds from 0.1 to 3600")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// In section 8, as clap knows the command line: all subcommands are on one page.
fn manual(to: &mut impl io::Write) -> io::Result<()> {
    let mut command = Args::command();
    command.build();
    let all = clap_mangen::Man::new(command.clone()).section("8");
    all.render_title(to)?;
    all.render_name_section(to)?;
    all.render_synopsis_section(to)?;
    all.render_description_section(to)?;
    let told =
        command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    for sub in told {
        let (man, mut text) = (clap_mangen::Man::new(sub.clone()), Vec::new());
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        // A section of its own has no sections, but parts.
        let parts = String::from_utf8_lossy(&text).replace(".SH ", ".SS ");
        write!(to, ".SH {}\n{parts}", sub.get_name().to_uppercase())?;
    }
    all.render_options_section(to)?;
    all.render_extra_section(to)?;
    all.render_version_section(to)
}

fn tenants(pins: &Path) -> Result<Tenants> {
    let cgroup_root = places::cgroup_root()?;
    let program = Program::open(pins, &cgroup_root)?;
    let tenants = Tenants::new(program, cgroup_root)?;
    log::info!("serving");
    Ok(tenants)
}

fn of_this_host(wanted: Wanted) -> Option<Tenant> {
    let Wanted { name, place, socket } = wanted;
    Some(Tenant { name, place: Place::parse(&place)?, daemon: Daemon::Here(socket) })
}

/// Each tenant takes several descriptors, and there may be a thousand of them: what whoever
/// starts this has by default is for fewer.
fn raise_limit_of_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        log::warn!("descriptors stay limited to {:?}: {error}", limit.current);
    }
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    raise_limit_of_descriptors();
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            hopeless::status(&error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_names_no_other_page_and_each_section_once() {
        let mut page = Vec::new();
        manual(&mut page).expect("written");
        let page = String::from_utf8(page).expect("text");
        assert!(!page.contains("run(8)") && !page.contains("(1)"), "{page}");
        let mut sections: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        assert!(
            ["RUN", "AGENT", "RELAY", "FLOWS", "TAPS", "UNLOAD"]
                .iter()
                .all(|sub| sections.contains(sub))
        );
        let all = sections.len();
        sections.sort_unstable();
        sections.dedup();
        assert_eq!(sections.len(), all, "{sections:?}");
    }

    #[test]
    fn only_who_uses_the_program_is_told_where_it_is() {
        Args::command().debug_assert();
        let mut all = Args::command();
        let mut help = |name: &str| {
            let sub = all.find_subcommand_mut(name).expect("one of ours");
            sub.render_long_help().to_string()
        };
        for name in ["run", "agent", "flows", "unload"] {
            assert!(help(name).contains("--pins"), "{name}");
        }
        assert!(!help("relay").contains("--pins"));
        assert!(!help("taps").contains("--pins"));
    }
}
