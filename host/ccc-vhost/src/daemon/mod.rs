// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process: how it starts, what it gets from the service manager, what it serves.
mod activation;
pub mod capabilities;
mod check;
mod server;
mod setup;
mod signals;
mod watchdog;

use crate::{
    args::Args,
    settings::Settings,
    tap::{
        host::{Hold, Host},
        kernel::Kernel,
    },
};

/// Does what the command line asks for, until the daemon is told to end.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // Whatever else may be wrong with the configuration.
    if let (true, Some(configuration)) = (args.release, &args.config) {
        return release(&mut Kernel::new(configuration)?);
    }
    let settings = setup::settings(args)?;
    if args.check {
        return check(&settings);
    }
    setup::serve(args, settings)
}

/// Lets go what a daemon has left held that was killed, or keeps its holds.
fn release(host: &mut dyn Host) -> anyhow::Result<()> {
    let mut faults = Vec::new();
    for tap in host.left_over() {
        match host.hold(&Hold { tap: tap.clone(), rate: None }) {
            Ok(()) => log::info!("tap {tap}: let go"),
            Err(error) => faults.push(error.to_string()),
        }
    }
    anyhow::ensure!(faults.is_empty(), faults.join("\nccc-vhost: "));
    Ok(())
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
