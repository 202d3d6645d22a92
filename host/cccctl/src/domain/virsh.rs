// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! libvirt, through its own client: it is wherever libvirt is, and this program
//! stays free of libvirt's library where there is none.
use std::{
    env,
    io::{self, BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::Duration,
};

use serde_json::{Value, json};
use thiserror::Error;
use tokio::{io::AsyncWriteExt, runtime::Runtime, time::timeout};

use super::wanted::{Kind, WANTED};

/// A libvirtd that lives answers sooner, but for a domain that is being started.
const PATIENCE: Duration = Duration::from_secs(30);

/// Its daemons for QEMU.
const LIBVIRTDS: [&str; 2] = ["libvirtd", "virtqemud"];

/// Where they have a file for each domain that runs.
const RUNNING: &str = "/run/libvirt/qemu";

/// Why libvirt did not do it.
#[derive(Debug, Error)]
pub enum VirshError {
    /// There is no virsh.
    #[error("cannot run virsh: {0}; install libvirt's clients")]
    Missing(io::Error),
    /// No answer in time.
    #[error("libvirt has not answered `virsh {0}` within {PATIENCE:?}; does a domain hang?")]
    Silent(String),
    /// It refused.
    #[error("libvirt: {0}")]
    Told(String),
    /// virsh knows another domain by that.
    #[error(
        "libvirt has no domain named {asked}: that is the id or UUID of domain {name}; use its name"
    )]
    NotItsName {
        /// What was asked for.
        asked: String,
        /// The name of the domain that virsh takes it for.
        name: String,
    },
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

impl VirshError {
    /// There is no such domain, or no libvirt at all.
    pub fn is_no_domain(&self) -> bool {
        match self {
            VirshError::Missing(error) => error.kind() == io::ErrorKind::NotFound,
            VirshError::Told(said) => said.contains("failed to get domain"),
            VirshError::NotItsName { .. } => true,
            _ => false,
        }
    }

    /// Nobody is there who could have domains.
    pub fn is_no_libvirt(&self) -> bool {
        matches!(self, VirshError::Told(said) if said.contains("failed to connect"))
    }
}

/// A domain that libvirt has.  virsh is told its UUID: a name of digits it would take for
/// the id of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainId {
    /// Its name, for people and for the daemon.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
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

    /// It is on this machine: its URI names no other.
    pub fn is_local(&self) -> bool {
        self.uri.split_once("://").is_none_or(|(_, rest)| rest.starts_with('/'))
    }

    /// Somebody could answer there some time: not where this host has its client only.
    pub fn is_installed(&self) -> bool {
        let path = env::var_os("PATH").unwrap_or_default();
        !self.is_local() || env::split_paths(&path).any(|directory| has_libvirtd(&directory))
    }

    /// A domain of this name may run: of those here libvirt has that in a file, which outlives it.
    pub fn may_run(&self, name: &str) -> bool {
        !self.is_local() || may_run_by(Path::new(RUNNING), name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("virsh");
        // Its messages are told on, and its answers read.
        command.env("LC_ALL", "C").args(["-q", "-c", &self.uri]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str], input: &str) -> Result<String, VirshError> {
        let Output { status, stdout, stderr } = runtime()
            .and_then(|runtime| runtime.block_on(timely(self.command(arguments), input)))
            .map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => VirshError::Silent(arguments.join(" ")),
                _ => VirshError::Missing(error),
            })?;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&stderr);
        let said = said.lines().map(|line| line.trim_start_matches("error: "));
        let said: Vec<&str> = said.filter(|line| !line.is_empty()).collect();
        Err(VirshError::Told(said.join("; ")))
    }

    /// Description of a domain as it is at its next start.
    pub fn persistent(&self, domain: &DomainId) -> Result<String, VirshError> {
        self.run(&["dumpxml", "--inactive", "--security-info", "--domain", &domain.uuid], "")
    }

    /// Description of a domain as it is; of one that does not run, as it is at
    /// its next start.  virsh looks for an id, then for a UUID, and only then for a
    /// name: whoever has a name has to look whose description this is.
    pub fn current(&self, domain: &str) -> Result<String, VirshError> {
        self.run(&["dumpxml", "--domain", domain], "")
    }

    /// Names of the domains that run.
    pub fn running(&self) -> Result<Vec<String>, VirshError> {
        let names = self.run(&["list", "--name"], "")?;
        Ok(names.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// UUID of the domain with this very name.
    pub fn uuid_of(&self, name: &str) -> Result<Option<String>, VirshError> {
        let domains = self.run(&["list", "--all", "--uuid", "--name"], "")?;
        Ok(uuid_in(&domains, name).map(str::to_owned))
    }

    /// It has a next start: libvirt keeps its description when it stops.
    pub fn is_persistent(&self, domain: &DomainId) -> Result<bool, VirshError> {
        let uuids = self.run(&["list", "--all", "--persistent", "--uuid"], "")?;
        Ok(uuids.lines().any(|uuid| uuid.trim() == domain.uuid))
    }

    /// Puts a description in the place of a domain's.
    pub fn define(&self, description: &str) -> Result<(), VirshError> {
        self.run(&["define", "--validate", "/dev/stdin"], description).map(drop)
    }

    /// Sets or removes an element of ours in a running domain's metadata.
    pub fn set_metadata(
        &self,
        domain: &DomainId,
        kind: Kind,
        element: Option<&str>,
    ) -> Result<(), VirshError> {
        self.set_metadata_of("--live", domain, kind, element)
    }

    /// Sets an element of ours in the metadata that a domain has from its next start on.
    pub fn set_next_metadata(
        &self,
        domain: &DomainId,
        kind: Kind,
        element: &str,
    ) -> Result<(), VirshError> {
        self.set_metadata_of("--config", domain, kind, Some(element))
    }

    fn set_metadata_of(
        &self,
        which: &str,
        domain: &DomainId,
        kind: Kind,
        element: Option<&str>,
    ) -> Result<(), VirshError> {
        let of = ["metadata", which, "--domain", &domain.uuid, "--uri", kind.uri];
        let change = match element {
            Some(element) => vec!["--key", kind.key, "--set", element],
            None => vec!["--remove"],
        };
        self.run(&[&of, change.as_slice()].concat(), "").map(drop)
    }

    /// What the QEMU of a running domain answers.
    pub fn qemu(
        &self,
        domain: &DomainId,
        command: &str,
        arguments: Value,
    ) -> Result<Value, VirshError> {
        let text = json!({"execute": command, "arguments": arguments}).to_string();
        let answer = self.run(&["qemu-monitor-command", "--domain", &domain.uuid, &text], "")?;
        let mut answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => {
                let reason = answer["error"]["desc"].as_str().unwrap_or("no answer").to_owned();
                Err(VirshError::Qemu { command: command.to_owned(), reason })
            }
        }
    }

    /// Changes of domains, from now on.
    pub fn events(&self) -> Result<Events, VirshError> {
        let mut child = self
            .command(&["event", "--all", "--loop"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(VirshError::Missing)?;
        let (told, changed) = mpsc::channel();
        let lines = child.stdout.take().map(BufReader::new);
        // Whoever waits for the next one has other things to do meanwhile.  It ends
        // with virsh.
        std::thread::spawn(move || {
            let lines = lines.into_iter().flat_map(BufRead::lines).map_while(Result::ok);
            for line in lines {
                if let Some(domain) = changed_domain(&line) {
                    if told.send(domain.to_owned()).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Events { child, changed })
    }
}

/// It is in a directory of programs, or in that of the administrator's beside it, which users do
/// not have in their PATH.
fn has_libvirtd(directory: &Path) -> bool {
    let places = [directory.to_owned(), directory.join("../sbin")];
    places.iter().any(|place| LIBVIRTDS.iter().any(|name| place.join(name).is_file()))
}

/// Whatever cannot be looked at may be there.
fn may_run_by(directory: &Path, name: &str) -> bool {
    !matches!(directory.join(format!("{name}.xml")).try_exists(), Ok(false))
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Runs a program that must end in time.
async fn timely(command: Command, input: &str) -> io::Result<Output> {
    let mut child = tokio::process::Command::from(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdin = child.stdin.take();
    let talk = async {
        if let Some(mut stdin) = stdin {
            // One that does not read has its reason, which it tells.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    timeout(PATIENCE, talk).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Changes of domains.
#[derive(Debug)]
pub struct Events {
    child: Child,
    changed: Receiver<String>,
}

impl Events {
    /// The domain that was changed next, if there is one before long: it was started
    /// or stopped, or its coupling was changed.
    pub fn next(&mut self, patience: Duration) -> Result<Option<String>, VirshError> {
        match self.changed.recv_timeout(patience) {
            Ok(domain) => Ok(Some(domain)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(VirshError::EventsEnded),
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

/// The UUID before a name, in lines of both; virsh may fill them up with spaces.
fn uuid_in<'a>(domains: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = domains.lines().filter_map(|line| line.split_once(' '));
    let (uuid, _) = lines.find(|(_, its)| its.trim_end() == name)?;
    Some(uuid)
}

/// The domain of an event that is of our concern.
fn changed_domain(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("event '")?;
    let (event, rest) = rest.split_once("' for domain '")?;
    let (domain, what) = rest.rsplit_once("': ")?;
    let ours = match event {
        "metadata-change" => what.trim_end().ends_with(WANTED.uri),
        "lifecycle" => ["Started", "Stopped"].iter().any(|begin| what.starts_with(begin)),
        _ => false,
    };
    ours.then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_the_client_only_has_no_libvirt() {
        let dir = tempfile::tempdir().expect("directory");
        let [bin, sbin] = ["bin", "sbin"].map(|name| dir.path().join(name));
        for directory in [&bin, &sbin] {
            std::fs::create_dir(directory).expect("made");
        }
        std::fs::write(bin.join("virsh"), "").expect("written");
        assert!(!has_libvirtd(&bin));
        std::fs::write(sbin.join("virtqemud"), "").expect("written");
        assert!(has_libvirtd(&bin) && has_libvirtd(&sbin));
        assert!(Virsh::at("qemu+ssh://elsewhere/system").is_installed(), "for all one knows");
    }

    #[test]
    fn a_domain_that_runs_is_seen_while_libvirt_is_down() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::write(dir.path().join("web.xml"), "").expect("written");
        assert!(may_run_by(dir.path(), "web") && !may_run_by(dir.path(), "we"));
        assert!(!may_run_by(&dir.path().join("none"), "web"));
        assert!(Virsh::at("qemu+ssh://elsewhere/system").may_run("web"), "for all one knows");
    }

    #[test]
    fn a_name_is_found_as_it_is_written() {
        let domains = "11-aa 6 \n22-bb web 6\n33-cc 66\n\n";
        assert_eq!(uuid_in(domains, "6"), Some("11-aa"));
        assert_eq!(uuid_in(domains, "web 6"), Some("22-bb"));
        assert_eq!(uuid_in(domains, "web"), None);
        assert_eq!(uuid_in(domains, "11-aa"), None);
    }

    #[test]
    fn events_of_others_are_none_of_ours() {
        let line = "event 'metadata-change' for domain 'it's': type element, uri urn:ccc:vm:1\n";
        assert_eq!(changed_domain(line), Some("it's"));
        assert_eq!(changed_domain(&line.replace("urn:ccc:vm:1", "urn:other")), None);
        assert_eq!(changed_domain("event loop timed out\n"), None);
        let begins = "event 'lifecycle' for domain 'web': Started Booted\n";
        assert_eq!(changed_domain(begins), Some("web"));
        assert_eq!(changed_domain(&begins.replace("Started", "Suspended")), None);
        assert_eq!(changed_domain(&begins.replace("lifecycle", "reboot")), None);
    }
}
