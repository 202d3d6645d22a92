// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cccctl`: shows and changes how `ccc-vhost` couples the VMs of a host.
//!
//! Speaks to the daemon's control socket (`docs/openapi.yaml`).
mod args;
mod client;
mod commands;
mod domain;
mod table;
mod views;

use std::{io::Write, process::ExitCode};

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match commands::run(&args, &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough.
        Err(commands::Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            // There is nobody to tell if that fails too.
            let _ = writeln!(std::io::stderr(), "cccctl: {error}");
            ExitCode::FAILURE
        }
    }
}
