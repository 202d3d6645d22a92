// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cccctl`: shows and changes how `ccc-vhost` couples the VMs of a host.
//!
//! Speaks to the daemon's control socket (`docs/openapi.yaml`).
mod args;
mod changes;
mod client;
mod commands;
mod config;
mod doctor;
mod domain;
mod form;
mod journal;
mod manuals;
// As ccc-bpf reads them.
#[path = "../../../guest/bpf-ccc/src/mounts.rs"]
mod mounts;
mod netns;
mod sockets;
mod table;
mod tenant;
mod top;
mod trial;
mod views;

use std::process::ExitCode;

use clap::Parser;

/// Status if something is found that is not well.
const FOUND: u8 = 4;
/// Status of a hook that refuses what libvirt is about to do; any other means that it
/// may go on, whatever became of this program.
const REFUSED: u8 = 3;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match commands::run(&args, &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough.
        Err(commands::Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        // It has said so.
        Err(commands::Error::Found) => ExitCode::from(FOUND),
        Err(error) => {
            journal::say(&error);
            match error {
                commands::Error::Refused(_) => ExitCode::from(REFUSED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}
