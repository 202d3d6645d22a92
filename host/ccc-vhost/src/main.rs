// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `ccc-vhost`: serves the virtio congestion control coupling device.
use std::{env, process::ExitCode};

use ccc_vhost::{
    args::Args, daemon::capabilities, daemon::check, daemon::setup, settings::config::Config,
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
    let config = setup::config(args)?;
    if args.check {
        return check(&config);
    }
    setup::serve(args, config)
}

/// Tells all that is wrong, so that it can be mended at once.
fn check(config: &Config) -> anyhow::Result<()> {
    for warning in check::warnings(config) {
        log::warn!("{warning}");
    }
    let faults = check::faults(config);
    anyhow::ensure!(faults.is_empty(), faults.join("\nccc-vhost: "));
    Ok(())
}
