// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! libvirt, through its own client: it is wherever libvirt is, and this program
//! stays free of libvirt's library where there is none.
use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use serde_json::{Value, json};
use thiserror::Error;

use super::xml::{Kind, WANTED};

/// Why libvirt did not do it.
#[derive(Debug, Error)]
pub enum VirshError {
    /// There is no virsh.
    #[error("cannot run virsh: {0}; install libvirt's clients")]
    Missing(io::Error),
    /// It refused.
    #[error("libvirt: {0}")]
    Told(String),
    /// QEMU refused.
    #[error("QEMU refuses {command}: {reason}")]
    Qemu {
        /// What it was asked for.
        command: String,
        /// Why it did not do it.
        reason: String,
    },
    /// No more events.
    #[error("libvirt ended the events; is libvirtd running?")]
    EventsEnded,
}

/// libvirt at one URI.
#[derive(Debug)]
pub struct Virsh {
    uri: String,
}

impl Virsh {
    /// libvirt at this URI.
    pub fn at(uri: &str) -> Virsh {
        Virsh { uri: uri.to_owned() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("virsh");
        // Its messages are told on, and its answers read.
        command.env("LC_ALL", "C").args(["-q", "-c", &self.uri]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str], input: &str) -> Result<String, VirshError> {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(VirshError::Missing)?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read has its reason, which it tells.
            let _ = stdin.write_all(input.as_bytes());
        }
        let Output { status, stdout, stderr } =
            child.wait_with_output().map_err(VirshError::Missing)?;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&stderr);
        let said = said.lines().map(|line| line.trim_start_matches("error: "));
        let said: Vec<&str> = said.filter(|line| !line.is_empty()).collect();
        Err(VirshError::Told(said.join("; ")))
    }

    /// Description of a domain as it is at its next start.
    pub fn persistent(&self, domain: &str) -> Result<String, VirshError> {
        self.run(&["dumpxml", "--inactive", "--security-info", "--domain", domain], "")
    }

    /// Description of a domain as it is; of one that does not run, as it is at
    /// its next start.
    pub fn current(&self, domain: &str) -> Result<String, VirshError> {
        self.run(&["dumpxml", "--domain", domain], "")
    }

    /// Names of the domains that run.
    pub fn running(&self) -> Result<Vec<String>, VirshError> {
        let names = self.run(&["list", "--name"], "")?;
        Ok(names.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Puts a description in the place of a domain's.
    pub fn define(&self, description: &str) -> Result<(), VirshError> {
        self.run(&["define", "--validate", "/dev/stdin"], description).map(drop)
    }

    /// Sets or removes an element of ours in a running domain's metadata.
    pub fn set_metadata(
        &self,
        domain: &str,
        kind: Kind,
        element: Option<&str>,
    ) -> Result<(), VirshError> {
        let place = ["metadata", "--live", "--domain", domain, "--uri", kind.uri];
        let change = match element {
            Some(element) => vec!["--key", kind.key, "--set", element],
            None => vec!["--remove"],
        };
        self.run(&[&place, change.as_slice()].concat(), "").map(drop)
    }

    /// What the QEMU of a running domain answers.
    pub fn qemu(&self, domain: &str, command: &str, arguments: Value) -> Result<Value, VirshError> {
        let text = json!({"execute": command, "arguments": arguments}).to_string();
        let answer = self.run(&["qemu-monitor-command", "--domain", domain, &text], "")?;
        let mut answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => {
                let reason = answer["error"]["desc"].as_str().unwrap_or("no answer").to_owned();
                Err(VirshError::Qemu { command: command.to_owned(), reason })
            }
        }
    }

    /// Changes of metadata, from now on.
    pub fn metadata_events(&self) -> Result<Events, VirshError> {
        let mut child = self
            .command(&["event", "--event", "metadata-change", "--loop"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(VirshError::Missing)?;
        let lines = child.stdout.take().map(BufReader::new);
        Ok(Events { child, lines })
    }
}

/// Changes of domains' metadata.
#[derive(Debug)]
pub struct Events {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Events {
    /// The domain whose coupling was changed next.
    pub fn next(&mut self) -> Result<String, VirshError> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.lines.as_mut().map(|lines| lines.read_line(&mut line));
            if !matches!(read, Some(Ok(1..))) {
                return Err(VirshError::EventsEnded);
            }
            if let Some(domain) = changed_domain(&line) {
                return Ok(domain.to_owned());
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The domain of an event of ours.
fn changed_domain(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("event 'metadata-change' for domain '")?;
    let (domain, what) = rest.rsplit_once("': ")?;
    what.trim_end().ends_with(WANTED.uri).then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_others_are_none_of_ours() {
        let line = "event 'metadata-change' for domain 'it's': type element, uri urn:ccc:vm:1\n";
        assert_eq!(changed_domain(line), Some("it's"));
        assert_eq!(changed_domain(&line.replace("urn:ccc:vm:1", "urn:other")), None);
        assert_eq!(changed_domain("event loop timed out\n"), None);
    }
}
