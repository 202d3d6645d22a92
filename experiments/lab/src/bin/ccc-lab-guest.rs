// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Init of every guest of the laboratory; not to be run by hand.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1) {
        // The kernel hands over what follows "--" on its command line.
        Some(name) if std::process::id() == 1 => ccc_lab::guest::init::main(&name),
        _ => {
            eprintln!("ccc-lab-guest: runs as a guest's first process only; use ccc-lab");
            ExitCode::FAILURE
        }
    }
}
