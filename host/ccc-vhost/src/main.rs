// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `ccc-vhost`: serves the virtio congestion control coupling device.
use std::{env, process::ExitCode};

use ccc_vhost::{
    args::Args, daemon::capabilities, daemon::check, daemon::setup, settings::Settings,
};
use clap::Parser;

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    if capabilities::asked_for(env::args_os().skip(1)) {
        println!("{}", capabilities::json());
        return ExitCode::SUCCESS;
    }
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ccc-vhost: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let settings = setup::settings(args)?;
    if args.check {
        return check(&settings);
    }
    setup::serve(args, settings)
}

/// Tells all that is wrong, so that it can be mended at once.
fn check(settings: &Settings) -> anyhow::Result<()> {
    for warning in check::warnings(settings) {
        log::warn!("{warning}");
    }
    let faults = check::faults(settings);
    anyhow::ensure!(faults.is_empty(), faults.join("\nccc-vhost: "));
    Ok(())
}
