// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Cgroups and network namespaces of this host as tenants of `ccc-vhost`: loads the BPF
//! program, and stands between it and the daemon.
//!
//! A program of its own, so that the daemon stays without rights: this one needs CAP_BPF and
//! CAP_NET_ADMIN, hands the daemon the tables' descriptors, and reads nothing that a tenant
//! has written.
mod front_end;
mod places;
mod program;
mod relay;
mod shared;
mod table;
mod tenants;
mod wanted;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::Result;
use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{program::Program, tenants::Tenants};

/// Couples the connections of cgroups and network namespaces of this host
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where the program and its maps are pinned: a directory in a bpffs
    #[arg(long, global = true, value_name = "DIR", default_value = "/sys/fs/bpf/ccc")]
    pins: PathBuf,

    /// What to do
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load the program, unless it is there, and serve the daemon's tenants of this host
    Run {
        /// The daemon's control socket
        #[arg(
            long,
            value_name = "PATH",
            env = "CCC_CONTROL",
            default_value = "/run/ccc/control/control.sock"
        )]
        control: PathBuf,
    },
    /// Remove the program; connections go on alone
    Unload,
}

fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Unload => program::unload(&args.pins),
        Command::Run { control } => {
            let stop = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(SIGTERM, Arc::clone(&stop))?;
            signal_hook::flag::register(SIGINT, Arc::clone(&stop))?;
            let cgroup_root = places::cgroup_root()?;
            let program = Program::open(&args.pins, &cgroup_root)?;
            let tenants = Tenants::new(program, cgroup_root)?;
            log::info!("serving");
            relay::run(tenants, &control, &stop)
        }
    }
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
