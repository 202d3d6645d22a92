// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Command line.
use std::{ffi::OsString, io, os::fd::RawFd, path::PathBuf};

use clap::{ArgGroup, CommandFactory, Parser};

/// vhost-user back end of the virtio congestion control coupling device.
#[derive(Debug, Parser)]
#[command(version = ccc_settings::VERSION, group(ArgGroup::new("source").required(true)
    .args(["config", "socket_path", "fd"])))]
pub struct Args {
    /// Groups and VMs to serve
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Serve one VM, with weight 1 in a group of its own, on this socket
    #[arg(long, value_name = "PATH")]
    pub socket_path: Option<PathBuf>,

    /// Serve one VM on an inherited socket, listening or connected
    #[arg(long, value_name = "N")]
    pub fd: Option<RawFd>,

    /// Print what this back end can do, as JSON, and exit, whatever else is given
    #[arg(long)]
    pub print_capabilities: bool,

    /// Check the configuration, and what it names on this host, and exit
    #[arg(long, requires = "config")]
    pub check: bool,

    /// Let go all taps that a daemon of this configuration has left held, and its queues at uplinks,
    /// and exit
    #[arg(long, requires = "config", conflicts_with = "check")]
    pub release: bool,

    /// Serve operators on this socket
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,

    /// Look at the taps of the laboratory at this socket, in virtual time
    #[arg(long, value_name = "SOCKET", requires = "time_travel")]
    pub taps: Option<PathBuf>,

    /// Live in the virtual time of the controller at this socket
    #[arg(long, value_name = "[ID:]SOCKET")]
    pub time_travel: Option<String>,
}

impl Args {
    /// Whether the manual page is asked for, and nothing else, for which clap knows no way
    /// beside what is required.
    pub fn asks_for_manual(arguments: impl IntoIterator<Item = OsString>) -> bool {
        arguments.into_iter().eq([OsString::from("--print-manual")])
    }

    /// The manual page, in section 8, as clap knows the command line.
    pub fn write_manual(to: &mut impl io::Write) -> io::Result<()> {
        clap_mangen::Man::new(Args::command()).section("8").render(to)
    }
}
