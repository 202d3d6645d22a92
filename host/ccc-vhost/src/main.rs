// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `ccc-vhost`: serves the virtio congestion control coupling device.
use std::{env, io, process::ExitCode};

use ccc_vhost::{args::Args, daemon, logging};
use clap::Parser;

fn main() -> ExitCode {
    logging::start();
    if daemon::capabilities::asked_for(env::args_os().skip(1)) {
        println!("{}", daemon::capabilities::json());
        return ExitCode::SUCCESS;
    }
    if Args::asks_for_manual(env::args_os().skip(1)) {
        return match Args::write_manual(&mut io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    match daemon::run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ccc-vhost: {error:#}");
            ExitCode::FAILURE
        }
    }
}
