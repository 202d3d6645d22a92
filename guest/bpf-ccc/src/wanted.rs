// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Which tenants there are to be: the daemon's settings are the one place that says so.
use std::{
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::daemon;

/// How often the daemon is asked.
const EVERY: Duration = Duration::from_millis(500);

/// A tenant as the daemon has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// What it is, as it was set: `cgroup:PATH`, `netns:NAME` or `vsock:PATH`.
    pub place: String,
    /// Where the daemon listens for it.
    pub socket: PathBuf,
}

/// Asks again and again, on a thread of its own: nobody waits for a daemon that is slow.
///
/// # Errors
/// If there may be no more threads.
pub fn watch(control: PathBuf) -> Result<Receiver<Vec<Wanted>>> {
    let (sender, receiver) = mpsc::channel();
    let asks = move || {
        let mut told = None;
        loop {
            match ask(&control) {
                Ok(wanted) => {
                    if sender.send(wanted).is_err() {
                        return;
                    }
                    told = None;
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    if told.as_ref() != Some(&error) {
                        log::warn!("cannot ask {}: {error}", control.display());
                    }
                    told = Some(error);
                }
            }
            thread::sleep(EVERY);
        }
    };
    thread::Builder::new().spawn(asks).context("no thread that asks the daemon")?;
    Ok(receiver)
}

fn ask(control: &Path) -> Result<Vec<Wanted>> {
    Ok(read(&daemon::get(control, "/v1/vms")?))
}

fn read(answer: &Value) -> Vec<Wanted> {
    let vms = answer["vms"].as_array().into_iter().flatten();
    let tenant = |vm: &Value| {
        let text = |name: &str| Some(vm[name].as_str()?.to_owned());
        let (place, socket) = (text("tenant")?, PathBuf::from(text("socket")?));
        Some(Wanted { name: text("name")?, place, socket })
    };
    vms.filter_map(tenant).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn vms_with_a_device_are_no_tenants() {
        let answer = json!({"vms": [
            {"name": "a", "socket": "/a", "tenant": null},
            {"name": "web", "socket": "/web", "tenant": "netns:w"}]});
        let wanted = read(&answer);
        let (name, place) = ("web".to_owned(), "netns:w".to_owned());
        assert_eq!(wanted, [Wanted { name, place, socket: "/web".into() }]);
    }
}
