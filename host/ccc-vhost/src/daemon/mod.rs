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
    let mut done: Vec<Result<(), String>> = match host.left_over() {
        Ok(held) => held.into_iter().map(|tap| let_go(host, tap)).collect(),
        Err(error) => vec![Err(format!("cannot look for taps that are held: {error}"))],
    };
    done.extend(host.unqueue().into_iter().map(|done| done.map_err(|error| error.to_string())));
    if done.is_empty() {
        log::info!(
            "no tap was held, and no uplink had queues, by a daemon of configuration {}",
            configuration.display()
        );
    }
    // What is held is known by the file's name: of one that was removed it still can be.
    if !configuration.exists() {
        log::warn!(
            "there is no {}; if that is mistyped, nothing was let go: name the file that the daemon \
             was started with",
            configuration.display()
        );
    }
    let faults: Vec<String> = done.into_iter().filter_map(Result::err).collect();
    refuse(&faults)
}

fn let_go(host: &mut dyn Host, tap: String) -> Result<(), String> {
    let hold = Hold { tap, rate: None };
    host.hold(&hold).map_err(|error| error.to_string())?;
    log::info!("tap {}: let go", hold.tap);
    Ok(())
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
    use std::io;

    use super::*;
    use crate::tap::{
        host::{Counter, HoldError, QueueError, Queued, Unseen},
        uplink::Uplink,
    };

    /// A kernel that answers nothing but that there were queues.
    struct Deaf;

    impl Host for Deaf {
        fn received(&mut self, tap: &str) -> Result<Counter, Unseen> {
            Err(Unseen::Missing { tap: tap.to_owned() })
        }

        fn index_of(&mut self, _: &str) -> Option<u32> {
            None
        }

        fn hold(&mut self, _: &Hold) -> Result<(), HoldError> {
            Ok(())
        }

        fn lost(&mut self) -> Vec<String> {
            Vec::new()
        }

        fn queue(&mut self, _: &[Uplink]) -> Vec<Queued> {
            Vec::new()
        }

        fn unqueue(&mut self) -> Vec<Result<(), QueueError>> {
            vec![Ok(())]
        }

        fn left_over(&mut self) -> io::Result<Vec<String>> {
            Err(io::ErrorKind::OutOfMemory.into())
        }
    }

    #[test]
    fn taps_that_cannot_be_looked_for_are_not_told_to_be_free() {
        let told = release(&mut Deaf, Path::new("/nowhere")).expect_err("not known").to_string();
        assert_eq!(told, "cannot look for taps that are held: out of memory");
    }

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
