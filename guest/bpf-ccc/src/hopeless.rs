// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What no other attempt mends: somebody has to do something first.
use std::{fmt, process::ExitCode};

/// EX_CONFIG of sysexits.h: the units do not start a program again that has ended so.
const STATUS: u8 = 78;

/// Why it is of no use to try again; the context of what has failed.
#[derive(Debug)]
pub struct Hopeless(pub String);

impl fmt::Display for Hopeless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Hopeless {}

/// The program's exit status after an error.
pub fn status(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Hopeless>() {
        Some(_) => ExitCode::from(STATUS),
        None => ExitCode::FAILURE,
    }
}
