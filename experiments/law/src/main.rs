// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `ccc-law`: runs scenarios of the laboratory in the model.
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ccc_lab::scenario::Scenario;
use ccc_law::{
    attack,
    fuzz::{self, Search},
    known, life,
    measure::Run,
    setup::Setup,
    watched, world,
};
use clap::{Parser, Subcommand};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(about = "A fast model of guests around the coupling engine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a scenario coupled and uncoupled and prints what each second had
    Run {
        /// A scenario of the laboratory
        scenario: PathBuf,
        /// Prints all numbers as JSON
        #[arg(long)]
        json: bool,
        /// Length of the intervals, seconds
        #[arg(long, default_value_t = 1.0)]
        interval: f64,
    },
    /// Draws conditions at random and looks for bounds that do not hold
    Fuzz {
        /// How many
        #[arg(long, default_value_t = 2000)]
        runs: u64,
        /// Decides them all
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where result.json and the counterexamples go
        #[arg(long, default_value = "out/law")]
        out: PathBuf,
        /// What is known: a JSON list of invariant, most_percent and reason
        #[arg(long)]
        known: Option<PathBuf>,
        /// How many of the worst of each invariant are shrunk and written
        #[arg(long, default_value_t = 2)]
        shrink: usize,
    },
    /// Composes lies of a hostile VM at random and looks for the worst
    Attack {
        /// How many
        #[arg(long, default_value_t = 1000)]
        runs: u64,
        /// Decides them all
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where result.json and the scenarios go
        #[arg(long, default_value = "out/attack-search")]
        out: PathBuf,
    },
    /// Draws honest VMs at random, and looks for those that taps judge
    Watch {
        /// How many conditions
        #[arg(long, default_value_t = 10_000)]
        runs: u64,
        /// Decides them all
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Lives long with one group whose flows come and go, and looks whether all goes on
    Days {
        /// How many
        #[arg(long, default_value_t = 7.0)]
        days: f64,
        /// Decides them
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Prints a case of a search as a scenario
    Case {
        /// The search's seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The case's number
        number: u64,
    },
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let done = match command {
        Command::Run { scenario, json, interval } => run(&scenario, json, interval),
        Command::Fuzz { runs, seed, out, known, shrink } => {
            fuzz(&Search { runs, seed, shrink }, &out, known.as_deref())
        }
        Command::Attack { runs, seed, out } => attack(runs, seed, &out),
        Command::Watch { runs, seed } => watch(runs, seed),
        Command::Days { days, seed } => Ok(lived(days, seed)),
        Command::Case { seed, number } => case(seed, number),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ccc-law: {error}");
            ExitCode::from(2)
        }
    }
}

/// A scenario file.  Kernel, modules and daemon are not needed, and not looked at.
fn load(path: &Path) -> Result<Scenario> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut value: serde_json::Value = serde_json::from_str(&text)?;
    if let Some(fields) = value.as_object_mut() {
        for file in ["daemon", "hostile_module"] {
            if fields.get(file).is_none_or(serde_json::Value::is_null) {
                fields.insert(file.into(), "none".into());
            }
        }
    }
    Ok(Scenario::parse(&value.to_string())?)
}

fn run(path: &Path, json: bool, interval_s: f64) -> Result<bool> {
    let setup = Setup::of(&load(path)?)?;
    let interval_ns = (interval_s * 1e9) as u64;
    let runs = [false, true].map(|coupled| world::run(&setup, coupled, interval_ns));
    if json {
        let [uncoupled, coupled] = &runs;
        let both = serde_json::json!({"uncoupled": uncoupled, "coupled": coupled});
        println!("{}", serde_json::to_string_pretty(&both)?);
        return Ok(true);
    }
    for (run, kind) in runs.iter().zip(["uncoupled", "coupled"]) {
        print_run(&setup, run, kind);
    }
    Ok(true)
}

fn case(seed: u64, number: u64) -> Result<bool> {
    println!("{}", serde_json::to_string_pretty(&fuzz::case_of(seed, number).scenario)?);
    Ok(true)
}

fn attack(runs: u64, seed: u64, out: &Path) -> Result<bool> {
    for found in attack::search(runs, seed, out)? {
        let attack::Harm { kept, taken, loss_percent } = found.harm;
        println!(
            "  {:<8} honest VMs keep {kept:.3}, the attacker has {taken:.2} of its share, \
             {loss_percent:.2} % lost: {} flows beside {} VMs{}, {} ({})",
            found.aim,
            found.flows,
            found.honest,
            found.link_mbit.map_or(String::new(), |mbit| format!(", a link of {mbit} Mbit/s")),
            found.options,
            out.join(&found.file).display(),
        );
    }
    Ok(true)
}

fn watch(runs: u64, seed: u64) -> Result<bool> {
    let found = watched::watched(runs, seed);
    for case in &found {
        for judged in &case.judged {
            let at_s = judged.verdict.since as f64 / 1e6;
            println!("  case {}: VM {} at {at_s:.2} s {}", case.run, judged.vm, judged.verdict);
        }
    }
    println!("{} of {runs} runs of seed {seed} with an honest VM judged", found.len());
    Ok(found.is_empty())
}

/// One life, coupled beside uncoupled; whether all bounds of the coupled one hold.
fn lived(days: f64, seed: u64) -> bool {
    let setup = life::drawn(seed, days);
    println!(
        "{days} days of seed {seed}: {} joins, {} changes of weights, {} restarts",
        setup.flows.len(),
        setup.weight_changes.len(),
        setup.restarts.len(),
    );
    let [_, coupled] = [false, true].map(|coupled| {
        let lived = life::live(&setup, coupled);
        println!("  {}: {lived}", if coupled { "coupled" } else { "uncoupled" });
        lived
    });
    for judged in &coupled.judged {
        let at_s = judged.verdict.since as f64 / 1e6;
        println!("  VM {} at {at_s:.2} s {}", judged.vm, judged.verdict);
    }
    coupled.holds()
}

fn fuzz(search: &Search, out: &Path, known: Option<&Path>) -> Result<bool> {
    let known = known.map(known::load).transpose()?.unwrap_or_default();
    let report = fuzz::fuzz(search, &known, out)?;
    for (invariant, summary) in &report.invariants {
        let mark = match (summary.percent, summary.known_percent) {
            (0.0, _) => "ok",
            (found, known) if found <= known => "known",
            _ => "FAILED",
        };
        println!("  {mark} {invariant}: {:.2} % of the runs", summary.percent);
        for worst in &summary.worst {
            println!("      {} ({})", worst.shrunk.detail, out.join(&worst.file).display());
        }
        if mark == "known" {
            println!("      at most {} %: {}", summary.known_percent, summary.known_reason);
        }
    }
    println!("{} runs of seed {}, {:.0} s", report.runs, report.seed, report.seconds);
    Ok(report.holds())
}

fn print_run(setup: &Setup, run: &Run, kind: &str) {
    let burst = setup.burst_segments;
    println!("{kind} ({burst} segments at a time)");
    print!("{:>8}", "from s");
    setup.vms.iter().for_each(|vm| print!("{:>10}", vm.name));
    println!("{:>10}{:>8}{:>8}   Mbit/s; segments", "sum", "drops", "queue");
    let mbit = |bytes: u64| bytes as f64 * 8.0 / 1e6 / run.interval_s;
    for (at, sum) in run.sums().iter().enumerate() {
        print!("{:8.2}", at as f64 * run.interval_s);
        run.vm_bytes.iter().for_each(|vm| print!("{:10.3}", mbit(vm[at])));
        let drops = run.dropped_segments.get(at).unwrap_or(&0);
        let queue = run.queue_segments.get(at).unwrap_or(&0.0);
        println!("{:10.3}{drops:8}{queue:8.1}", mbit(*sum));
    }
    let duration_s = setup.duration_ns as f64 / 1e9;
    let total = |bytes: u64| bytes as f64 * 8.0 / 1e6 / duration_s;
    let vms: Vec<String> =
        run.vm_bytes.iter().map(|vm| format!("{:.3}", total(vm.iter().sum()))).collect();
    println!(
        "whole: {:.3} Mbit/s ({}), {} dropped, {} timeouts, {} reductions, S {:.1} segments\n",
        total(run.total_bytes()),
        vms.join(" + "),
        run.total_dropped(),
        run.timeouts,
        run.epochs,
        run.aggregate_segments,
    );
}
