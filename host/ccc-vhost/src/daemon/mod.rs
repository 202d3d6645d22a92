// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process: how it starts, what it gets from the service manager, what it serves.
mod activation;
pub mod capabilities;
mod check;
mod server;
mod setup;
mod signals;
mod watchdog;

use crate::{args::Args, settings::Settings};

/// Does what the command line asks for, until the daemon is told to end.
pub fn run(args: &Args) -> anyhow::Result<()> {
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
