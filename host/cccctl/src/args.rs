// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Command line.
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

/// Shows and changes how ccc-vhost couples the VMs of a host.
#[derive(Debug, Parser)]
#[command(version)]
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

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List all VMs
    List,
    /// Show a VM and its flows
    Show {
        /// Name of the VM
        vm: String,
    },
    /// Change a VM, in force at once
    Set(Set),
    /// Have a VM as the daemon's configuration says again
    Reset {
        /// Name of the VM
        vm: String,
    },
    /// List all groups
    Groups,
    /// Show a group, or change it
    Group(Group),
    /// List the rules that map flows to groups
    Rules,
    /// Show groups and VMs again and again
    Top {
        /// Seconds between two looks
        #[arg(long, default_value_t = 2.0, value_parser = seconds)]
        interval: f64,
        /// Looks, instead of going on until interrupted
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Give a libvirt domain the device, or change its group and weight
    Attach(Attach),
    /// Take the device from a libvirt domain
    Detach(Detach),
    /// Remove a VM that was added and is left over
    Remove {
        /// Name of the VM
        vm: String,
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
}

/// How to attach a domain.
#[derive(Debug, ClapArgs)]
pub struct Attach {
    /// Name of the domain (no id, no UUID)
    pub domain: String,
    /// Its group, or `none`
    #[arg(long, value_name = "G")]
    pub group: Option<String>,
    /// Its share of any group, 0.01 to 1000
    #[arg(long, value_name = "W", value_parser = weight)]
    pub weight: Option<f64>,
    /// Where the daemon listens for it [default: /run/ccc/vm/DOMAIN.sock, or where it is]
    #[arg(long, value_name = "PATH")]
    pub vhost_socket: Option<PathBuf>,
    /// At once too, while it runs
    #[arg(long)]
    pub live: bool,
}

/// How to detach a domain.
#[derive(Debug, ClapArgs)]
pub struct Detach {
    /// Name of the domain (no id, no UUID)
    pub domain: String,
    /// At once too, while it runs
    #[arg(long)]
    pub live: bool,
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
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["weight", "group", "coupled"])))]
pub struct Set {
    /// Name of the VM
    pub vm: String,
    /// Its share of any group, 0.01 to 1000
    #[arg(long, value_name = "W")]
    pub weight: Option<f64>,
    /// Its group, or `none`
    #[arg(long, value_name = "G")]
    pub group: Option<String>,
    /// Whether its flows are coupled
    #[arg(long)]
    pub coupled: Option<Switch>,
}

/// A group, and changes of it.
#[derive(Debug, ClapArgs)]
pub struct Group {
    /// Name of the group
    pub name: String,
    /// Coupling algorithm: ctrltcp, uncoupled, e-tcp, efcm, lisa or cm
    #[arg(long)]
    pub policy: Option<String>,
    /// What shares are shares of: rate or window
    #[arg(long)]
    pub share: Option<String>,
    /// How many TCPs it is worth, 0.1 to 64
    #[arg(long, value_name = "N")]
    pub equivalent_tcps: Option<f64>,
    /// Whose growth the aggregate takes: mean, first or shortest-rtt
    #[arg(long)]
    pub growth_source: Option<String>,
    /// Whether its flows are coupled
    #[arg(long)]
    pub coupled: Option<Switch>,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

impl Switch {
    /// As the daemon writes it.
    pub fn on(self) -> bool {
        self == Switch::On
    }
}

/// A share, in the limits of the daemon.
pub fn weight(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=1000.0).contains(&value) { Ok(value) } else { Err("use 0.01 to 1000".to_owned()) }
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.05..=3600.0).contains(&value) { Ok(value) } else { Err("use 0.05 to 3600".to_owned()) }
}
