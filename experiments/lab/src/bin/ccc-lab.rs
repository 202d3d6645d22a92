// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The laboratory's command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ccc_lab::error::{Context, Result};
use ccc_lab::run::{Options, init_beside_us, run};
use ccc_lab::scenario::Scenario;
use clap::{Parser, Subcommand};

/// Virtual-time laboratory: real kernels on one simulated clock.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a scenario and writes its raw data.
    Run {
        /// The scenario (JSON).
        scenario: PathBuf,
        /// Directory for the results.
        #[arg(long)]
        out: PathBuf,
        /// Also write the packets on the VMs' cables, as packets.pcap.
        #[arg(long)]
        pcap: bool,
        /// Processor for all programs of the run; give parallel runs
        /// different ones. Default: the first one allowed.
        #[arg(long)]
        cpu: Option<usize>,
        /// Seconds without progress that end the run: in which all its programs
        /// sleep, or of processor time that they use.
        #[arg(long, default_value_t = 30)]
        patience: u64,
    },
    /// Prints what a scenario may say, as a JSON Schema.
    Schema,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Run { scenario, out, pcap, cpu, patience } => {
            run_scenario(&scenario, out, pcap, cpu, patience)
        }
        Command::Schema => {
            println!("{:#}", Scenario::schema());
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ccc-lab: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run_scenario(
    path: &std::path::Path,
    out: PathBuf,
    pcap: bool,
    cpu: Option<usize>,
    patience: u64,
) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).context(|| "watching signals".into())?;
    }
    let scenario = Scenario::load(path)?;
    let options = Options {
        out,
        pcap,
        cpu,
        init: init_beside_us()?,
        patience: Duration::from_secs(patience),
        stop,
    };
    let speed = run(&scenario, &options)?;
    println!(
        "{}: {} s simulated in {:.2} s ({:.1} times real time)",
        scenario.name,
        speed.simulated_s,
        speed.wall_s,
        speed.simulated_s / speed.wall_s,
    );
    Ok(())
}
