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
        default_value = "/run/ccc/control.sock"
    )]
    pub socket: PathBuf,

    /// Print what the daemon answers, as JSON
    #[arg(long, global = true)]
    pub json: bool,

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
    pub aggression: Option<f64>,
    /// Whose growth the aggregate takes: mean, first or shortest-rtt
    #[arg(long)]
    pub coco: Option<String>,
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

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.05..=3600.0).contains(&value) { Ok(value) } else { Err("use 0.05 to 3600".to_owned()) }
}
