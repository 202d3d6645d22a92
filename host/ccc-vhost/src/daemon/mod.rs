// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process: how it starts, what it gets from the service manager, what it serves.
mod activation;
pub mod capabilities;
mod check;
mod interfaces;
mod sandbox;
mod server;
mod setup;
mod signals;
mod watchdog;

use std::path::{Path, PathBuf};

use crate::{
    args::Args,
    settings::{
        Settings,
        lock::{Lock, LockError},
    },
    tap::{
        host::{Hold, Host},
        kernel::Kernel,
    },
};

/// Does what the command line asks for, until the daemon is told to end.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // Whatever else may be wrong with the configuration.
    let settings = setup::settings(args);
    if let (true, Some(configuration)) = (args.release, &args.config) {
        refuse_while_it_runs(settings.ok().and_then(|settings| settings.daemon.state))?;
        return release(&mut Kernel::new(configuration)?, configuration);
    }
    let settings = settings?;
    if args.check {
        return check(&settings);
    }
    setup::serve(args, settings)
}

/// The daemon would think that it holds what is let go.  One without a state file is not seen.
fn refuse_while_it_runs(state: Option<PathBuf>) -> anyhow::Result<()> {
    match state.as_deref().map(Lock::take) {
        Some(Err(used @ LockError::InUse { .. })) => Err(used.into()),
        _ => Ok(()),
    }
}

/// Lets go what a daemon of this configuration has left held that was killed, or keeps its holds.
fn release(host: &mut dyn Host, configuration: &Path) -> anyhow::Result<()> {
    let mut faults = Vec::new();
    let held = host.left_over();
    if held.is_empty() {
        let configuration = configuration.display();
        log::info!("no tap was held by a daemon of configuration {configuration}");
    }
    // What is held is known by the file's name: of one that was removed it still can be.
    if !configuration.exists() {
        log::warn!(
            "there is no {}; if that is mistyped, nothing was let go: name the file that the daemon \
             was started with",
            configuration.display()
        );
    }
    for tap in held {
        match host.hold(&Hold { tap: tap.clone(), rate: None }) {
            Ok(()) => log::info!("tap {tap}: let go"),
            Err(error) => faults.push(error.to_string()),
        }
    }
    faults.extend(host.unqueue().iter().map(ToString::to_string));
    refuse(&faults)
}

/// Tells all that is wrong, so that it can be mended at once.
fn check(settings: &Settings) -> anyhow::Result<()> {
    for warning in check::warnings(settings) {
        log::warn!("{warning}");
    }
    refuse(&check::faults(settings, false))
}

/// Fails if there are faults, with all of them.
fn refuse(faults: &[String]) -> anyhow::Result<()> {
    anyhow::ensure!(faults.is_empty(), faults.join("\nccc-vhost: "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_runs_keeps_its_holds() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("state");
        let running = Lock::take(&state).expect("ours");
        let refused = refuse_while_it_runs(Some(state.clone())).expect_err("it runs").to_string();
        assert!(refused.contains("in use by process"), "{refused}");
        drop(running);
        assert!(refuse_while_it_runs(Some(state)).is_ok());
        assert!(refuse_while_it_runs(None).is_ok());
        assert!(refuse_while_it_runs(Some("/nowhere/state".into())).is_ok());
    }
}
