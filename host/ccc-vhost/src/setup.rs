// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! From the command line to what the server is made of.
use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{args::Args, clock::Clock, config::Config, listener::Endpoint, timetravel};

/// The configuration the command line asks for.
pub fn config(args: &Args) -> Result<Config> {
    match (&args.config, &args.socket_path) {
        (Some(file), _) => read(file),
        (None, Some(socket)) => Ok(Config::single(socket)),
        (None, None) => Ok(Config::single(Path::new(""))),
    }
}

fn read(file: &Path) -> Result<Config> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Config::parse(&file.display().to_string(), &text)?)
}

/// One endpoint for each VM of the configuration, in its order.
pub fn endpoints(args: &Args, config: &Config) -> Result<Vec<Endpoint>> {
    if let Some(fd) = args.fd {
        return Ok(vec![Endpoint::inherited(fd)?]);
    }
    config.vms.iter().map(|vm| Ok(Endpoint::bind(&vm.socket)?)).collect()
}

/// The clock the command line asks for.
pub fn clock(args: &Args) -> Result<Clock> {
    Ok(match &args.time_travel {
        Some(controller) => Clock::TimeTravel(timetravel::Client::connect(controller)?),
        None => Clock::monotonic()?,
    })
}
