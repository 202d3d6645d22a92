// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Command line.
use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use ccc_settings::{GroupSettings, LogSettings, SocketPath, VERSION, VmSettings};
use clap::{ArgGroup, Args as ClapArgs, Parser, Subcommand};

use crate::{
    changes::{OPTIONS, Options},
    form::Form,
};

/// What help and manual say below the options.
const EXIT_STATUS: &str = "Exit status: 0, done; of status and doctor: all is well; 1, it failed, and says why; \
    2, the command line is wrong; 3, of hook: the domain is not to start; 4, of status and doctor: not all \
    is well.";

/// Shows and changes how ccc-vhost couples the VMs of a host.
#[derive(Debug, Parser)]
#[command(version = VERSION, after_help = EXIT_STATUS)]
pub struct Args {
    /// The daemon's control socket
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "CCC_CONTROL",
        default_value = "/run/ccc/control/control.sock"
    )]
    pub socket: PathBuf,

    /// libvirt, for the commands on domains
    #[arg(
        long,
        global = true,
        value_name = "URI",
        env = "LIBVIRT_DEFAULT_URI",
        default_value = "qemu:///system"
    )]
    pub connect: String,

    /// Print what the daemon answers, as JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// The same, as YAML
    #[arg(long, global = true, conflicts_with = "json")]
    pub yaml: bool,

    /// The host's choices, for the hook
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "CCCCTL_CONFIG",
        default_value = "/etc/ccc/cccctl.toml"
    )]
    pub config: PathBuf,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// In which form answers are printed.
    pub fn form(&self) -> Form {
        match (self.json, self.yaml) {
            (true, _) => Form::Json,
            (false, true) => Form::Yaml,
            (false, false) => Form::Text,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say in a line or two whether all is well
    Status,
    /// Say what is not well, why, and what to do about it
    Doctor,
    /// List all VMs
    List,
    /// Show a VM and its flows
    Show {
        /// Name of the VM
        vm: String,
    },
    /// List the flows of a VM, or the largest ones of all VMs
    Flows {
        /// Name of the VM [default: all]
        vm: Option<String>,
        /// Most flows of all VMs
        #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "vm",
            allow_negative_numbers = true, value_parser = most_flows)]
        limit: u32,
    },
    /// Change a VM, in force at once
    Set(Set),
    /// Have a VM, or a group, as the daemon's configuration says again
    #[command(group(ArgGroup::new("what").args(["vm", "group"]).required(true)))]
    Reset {
        /// Name of the VM
        vm: Option<String>,
        /// Name of the group that is reset
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
    },
    /// List all groups
    Groups,
    /// Show a group, or change it
    Group(Group),
    /// List the rules that map flows to groups
    Rules,
    /// Show what is in the daemon's log, or change it until the daemon ends
    Log(Log),
    /// Show groups and VMs again and again, as bars where there is a screen
    Top {
        /// Seconds between two looks
        #[arg(long, default_value_t = 2.0, allow_negative_numbers = true, value_parser = seconds)]
        interval: f64,
        /// Looks, instead of going on until interrupted
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        count: Option<u64>,
    },
    /// Measure what coupling brings to a group's own traffic: it is coupled and not, in turn
    Trial(Trial),
    /// Give a libvirt domain the device, or change its group and weight
    Attach(Attach),
    /// Take the device from a libvirt domain
    Detach(Detach),
    /// Remove a VM that was added and is left over
    Remove {
        /// Name of the VM
        vm: String,
    },
    /// What is coupled without a device: cgroups, network namespaces, guests with an agent
    Tenant {
        /// What to do with them
        #[command(subcommand)]
        what: Tenant,
    },
    /// Tell the daemon what the metadata of running domains say
    Sync {
        /// Name of the domain [default: all, and VMs of those that stopped are removed]
        domain: Option<String>,
    },
    /// Do so whenever the metadata of a domain change, or the daemon comes back
    Watch,
    /// Tell the daemon of a domain that starts or stops: libvirt's hook
    Hook(Hook),
    /// Write the manual pages and the shells' completions of this program
    #[command(hide = true)]
    Manuals {
        /// Where to: man1, bash, zsh and fish are made there
        directory: PathBuf,
    },
}

/// What to do with tenants that have no device.
#[derive(Debug, Subcommand)]
pub enum Tenant {
    /// Couple the connections of a part of this host (ccc-bpf run), or of a guest (ccc-bpf relay)
    Add(Box<AddTenant>),
    /// List those tenants
    List,
    /// Couple them no longer
    Remove {
        /// Name of the tenant
        name: String,
    },
}

/// A tenant without a device, as it is to be coupled.
#[derive(Debug, ClapArgs)]
#[command(
    group(ArgGroup::new("place").required(true)),
    // Of the settings those of a VM with a device, and what is said by its place.
    mut_arg("tenant", |arg| arg.hide(true)),
    mut_arg("device", |arg| arg.hide(true).conflicts_with("place")),
)]
pub struct AddTenant {
    /// Name of the tenant
    pub name: String,
    /// Path of a cgroup: system.slice/nginx.service
    #[arg(long, value_name = "PATH", group = "place", conflicts_with = "tenant")]
    pub cgroup: Option<String>,
    /// Name of a network namespace (ip netns), or the path of its file
    #[arg(long, value_name = "NAME", group = "place", conflicts_with = "tenant")]
    pub netns: Option<String>,
    /// A VM with an agent in its guest: its CID, or its VMM's vsock socket, without _PORT
    #[arg(long, value_name = "CID|PATH", group = "place", conflicts_with = "tenant")]
    pub vsock: Option<String>,
    /// What is wanted of its coupling
    #[command(flatten)]
    pub settings: Options<VmSettings>,
    /// Where the daemon listens for it [default: /run/ccc/tenant/NAME.sock]
    #[arg(long, value_name = "PATH", value_parser = socket)]
    pub vhost_socket: Option<SocketPath>,
}

/// How to attach a domain.
#[derive(Debug, ClapArgs)]
pub struct Attach {
    /// Name of the domain (no id, no UUID)
    pub domain: String,
    /// What is wanted of its coupling
    #[command(flatten)]
    pub settings: Options<VmSettings>,
    /// Where the daemon listens for it [default: /run/ccc/vm/DOMAIN.sock, or where it is]
    #[arg(long, value_name = "PATH", value_parser = socket)]
    pub vhost_socket: Option<SocketPath>,
    /// Also plug the device in now, while the domain runs
    #[arg(long)]
    pub live: bool,
}

/// How to detach a domain.
#[derive(Debug, ClapArgs)]
pub struct Detach {
    /// Name of the domain (no id, no UUID)
    pub domain: String,
    /// Also unplug the device now, while the domain runs
    #[arg(long)]
    pub live: bool,
}

/// How to try what coupling brings.
#[derive(Debug, ClapArgs)]
pub struct Trial {
    /// Name of the group
    pub group: String,
    /// For how long it is not coupled at a time, and coupled as long, after --settle: 90s, 5m
    #[arg(long, value_name = "TIME", default_value = "5m", allow_hyphen_values = true,
        value_parser = phase)]
    pub off: Duration,
    /// How often it is coupled and not
    #[arg(long, value_name = "N", default_value_t = 3, allow_negative_numbers = true,
        value_parser = times)]
    pub times: u32,
    /// For how long after each change nothing counts
    #[arg(long, value_name = "TIME", default_value = "10s", allow_hyphen_values = true,
        value_parser = settle)]
    pub settle: Duration,
}

/// What libvirt calls a hook with; the domain's description is on its input.
#[derive(Debug, ClapArgs)]
pub struct Hook {
    /// Name of the domain
    pub domain: String,
    /// What is being done with it
    pub operation: String,
    /// Where in that it is, and why
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<String>,
}

/// Change of a VM.
#[derive(Debug, ClapArgs)]
#[command(mut_group(OPTIONS, |options| options.required(true)))]
pub struct Set {
    /// Name of the VM
    pub vm: String,
    /// What is to be changed
    #[command(flatten)]
    pub changes: Options<VmSettings>,
}

/// What is to be in the log.
#[derive(Debug, ClapArgs)]
pub struct Log {
    /// What is to be changed
    #[command(flatten)]
    pub changes: Options<LogSettings>,
}

/// A group, and changes of it.
#[derive(Debug, ClapArgs)]
pub struct Group {
    /// Name of the group
    pub name: String,
    /// What is to be changed
    #[command(flatten)]
    pub changes: Options<GroupSettings>,
}

fn socket(text: &str) -> Result<SocketPath, String> {
    SocketPath::try_from(text.to_owned()).map_err(|expected| format!("expected {expected}"))
}

fn times(text: &str) -> Result<u32, String> {
    number(text, 2..=100)
}

fn most_flows(text: &str) -> Result<u32, String> {
    number(text, 1..=1000)
}

fn number(text: &str, allowed: RangeInclusive<u32>) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| format!("expected {} to {}", allowed.start(), allowed.end()))
}

fn phase(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_secs(2)..=Duration::from_secs(86_400);
    let time = humantime::parse_duration(text).ok().filter(|time| allowed.contains(time));
    time.ok_or_else(|| "expected 2s to 1day, such as 90s or 5m".to_owned())
}

fn settle(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "expected a time such as 10s or 2m".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.05..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "expected 0.05 to 3600 seconds".to_owned())
}
