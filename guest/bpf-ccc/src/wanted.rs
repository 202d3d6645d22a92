// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Which tenants there are to be: the daemon's settings are the one place that says so.
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// How often the daemon is asked.
const EVERY: Duration = Duration::from_millis(500);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// No answer is longer.
const ANSWER_MAX: u64 = 64 << 20;

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
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /v1/vms HTTP/1.1\r\nHost: ccc\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    read(&answer)
}

fn read(answer: &str) -> Result<Vec<Wanted>> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the daemon broke off")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "the daemon answers {status}");
    let answer: Value = serde_json::from_str(body).context("the daemon does not speak JSON")?;
    let vms = answer["vms"].as_array().into_iter().flatten();
    let tenant = |vm: &Value| {
        let text = |name: &str| Some(vm[name].as_str()?.to_owned());
        let (place, socket) = (text("tenant")?, PathBuf::from(text("socket")?));
        Some(Wanted { name: text("name")?, place, socket })
    };
    Ok(vms.filter_map(tenant).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_with_a_device_are_no_tenants() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"vms\": [\
            {\"name\": \"a\", \"socket\": \"/a\", \"tenant\": null},\
            {\"name\": \"web\", \"socket\": \"/web\", \"tenant\": \"netns:w\"}]}";
        let wanted = read(answer).expect("an answer");
        let (name, place) = ("web".to_owned(), "netns:w".to_owned());
        assert_eq!(wanted, [Wanted { name, place, socket: "/web".into() }]);
        assert!(read("HTTP/1.1 500 x\r\n\r\n{}").is_err());
        assert!(read("").is_err());
    }
}
