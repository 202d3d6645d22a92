// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What counts at taps, and holds them.
use std::{collections::BTreeSet, io};

use thiserror::Error;

use super::{link, uplink::Uplink};

/// What to do where the daemon may not.
pub const REMEDY: &str = "the daemon needs CAP_NET_ADMIN: AmbientCapabilities=CAP_NET_ADMIN and \
                          CapabilityBoundingSet=CAP_NET_ADMIN in a drop-in of ccc-vhost.service";

/// Why nobody looks at the tap of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unseen {
    /// It is not there.
    #[error("its tap {tap} is not there")]
    Missing {
        /// The tap.
        tap: String,
    },
    /// It counts the other way round.
    #[error(
        "its tap {tap} is a {kind}, and what comes in there is what the VM receives: give the VM a tap \
         at a bridge in place of it (in libvirt <interface type='bridge'>)"
    )]
    Backwards {
        /// The tap.
        tap: String,
        /// What it is.
        kind: String,
    },
    /// Another VM has it, by another of its names.
    #[error(
        "its tap {tap} is {other}, which is another VM's, and what comes in at a tap is one VM's"
    )]
    Shared {
        /// The tap.
        tap: String,
        /// The other VM's name of it.
        other: String,
    },
    /// All VMs of its group have it.
    #[error(
        "its tap {tap} is {uplink}, the uplink of its group, and what comes in there is what all of its VMs \
         receive"
    )]
    Uplink {
        /// The tap.
        tap: String,
        /// The group's name of it.
        uplink: String,
    },
}

/// Why a tap is not held, or not let go.
#[derive(Debug, Error)]
pub enum HoldError {
    /// What would be held there is not what the VM sends.
    #[error("{0}")]
    Unseen(#[from] Unseen),
    /// Something of others' is there.
    #[error(
        "tap {tap} has an ingress qdisc of somebody else's, and there can be only one: remove it \
         (tc qdisc del dev {tap} ingress), or set `enforce = \"observe\"`"
    )]
    Others {
        /// The tap.
        tap: String,
    },
    /// The kernel does not do it.
    #[error("cannot {what} of tap {tap}: {why}{}", remedy(.why))]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The tap.
        tap: String,
        /// What the kernel says.
        why: io::Error,
    },
    /// It is held on, though it is not to be.
    #[error(
        "tap {tap} is held on, and not to be: cannot {what}: {why}{}; it is tried again; by hand: \
         tc qdisc del dev {tap} ingress; ip link del {device}", remedy(.why)
    )]
    Left {
        /// What was tried.
        what: &'static str,
        /// The tap.
        tap: String,
        /// The device through which it leads.
        device: String,
        /// What the kernel says.
        why: io::Error,
    },
}

/// Why VMs have no queues at an uplink.
#[derive(Debug, Error)]
pub enum QueueError {
    /// Something of others' is there.
    #[error(
        "{uplink} has a root qdisc of somebody else's, and there can be only one: remove it (tc \
         qdisc del dev {uplink} root), or take `uplink` out of the group's settings"
    )]
    Others {
        /// The uplink.
        uplink: String,
    },
    /// Another daemon's queues are there.
    #[error(
        "{uplink} has a root qdisc of somebody else's, as a ccc-vhost of another configuration makes \
         it: if that one runs no more, let it go (ccc-vhost --config ITS_CONFIGURATION --release)"
    )]
    AnotherDaemons {
        /// The uplink.
        uplink: String,
    },
    /// Another group's queues are there, for which it has another name.
    #[error(
        "{uplink} is {other}, which has queues of another group, and an interface has one tree of \
         them: put VMs that share it into one group"
    )]
    AnotherGroups {
        /// The uplink.
        uplink: String,
        /// The other group's name of it.
        other: String,
    },
    /// Nothing waits there.
    #[error("{uplink} is a bridge: {}", link::BRIDGE_REMEDY)]
    Bridge {
        /// The uplink.
        uplink: String,
    },
    /// The uplink is not there.
    #[error("no interface {uplink}")]
    NoInterface {
        /// The uplink.
        uplink: String,
    },
    /// The kernel cannot tell whose packets are whose.
    #[error(
        "the kernel has no u32 filters: load them (modprobe cls_u32; some distributions have it in a \
         package of further modules), or take `uplink` out of the group's settings"
    )]
    NoFilters,
    /// The kernel has no such queues.
    #[error(
        "the kernel has no HTB: load it (modprobe sch_htb; some distributions have it in a package \
         of further modules), or take `uplink` out of the group's settings"
    )]
    NoHtb,
    /// Some are there on, though they are not to be.
    #[error("cannot {what}: {why}{}", remedy(.why))]
    Left {
        /// What was tried.
        what: String,
        /// What the kernel says.
        why: io::Error,
    },
    /// The kernel does not do it.
    #[error("cannot {what} of {uplink}: {why}{}", remedy(.why))]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The uplink.
        uplink: String,
        /// What the kernel says.
        why: io::Error,
    },
}

/// What came of the queues of an uplink.
#[derive(Debug)]
pub struct Queued {
    /// The uplink.
    pub uplink: String,
    /// Its queues, if they are there.
    pub outcome: Result<Made, QueueError>,
}

/// The queues of an uplink that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// VMs that have one, and whose packets the kernel leads there.
    pub vms: usize,
    /// Taps that are not there: most are of VMs that are off.
    pub absent: BTreeSet<String>,
    /// What each is.
    pub leaf: Leaf,
    /// Why one of them is not: what waits there is the kernel's own until it can be made.
    pub fault: Option<String>,
    /// So many were not there any more, and are made anew.
    pub mended: usize,
}

/// What each VM's queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// One for each of its flows, none of which becomes long (`fq_codel`).
    FairQueues,
    /// First in, first out, for the kernel has nothing better.
    Fifo,
}

/// What to do about what the kernel says, if that is known.
fn remedy(why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::PermissionDenied => format!("; {REMEDY}"),
        _ => String::new(),
    }
}

/// A tap that is to be held, or no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The interface.
    pub tap: String,
    /// Bytes a second; `None` for as many as it likes.
    pub rate: Option<u64>,
}

/// What an interface has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its index: another one has counted from another time on; 0 where interfaces have none.
    pub interface: u32,
    /// Bytes that have come in.
    pub bytes: u64,
}

/// What has taps.
pub trait Host {
    /// What has come in at a tap so far.
    fn received(&mut self, tap: &str) -> Result<Counter, Unseen>;

    /// The other names of the interface of a tap that could be looked at just now.
    fn also_named(&self, _tap: &str) -> Vec<String> {
        Vec::new()
    }

    /// The index of an interface, if it is there and has one.
    fn index_of(&mut self, interface: &str) -> Option<u32>;

    /// Holds a tap to a rate, or no more.
    fn hold(&mut self, hold: &Hold) -> Result<(), HoldError>;

    /// Taps that it holds no more, though nobody said so to it: they were made anew, or
    /// somebody has taken away what holds them.
    fn lost(&mut self) -> Vec<String>;

    /// Makes the queues of these uplinks as they are to be, and takes away all others of ours,
    /// also those that an earlier daemon has left.
    fn queue(&mut self, uplinks: &[Uplink]) -> Vec<Queued>;

    /// Takes away all queues of ours, also an earlier daemon's; what came of each.
    fn unqueue(&mut self) -> Vec<Result<(), QueueError>>;

    /// Taps that an earlier daemon has held, and that still are.
    fn left_over(&mut self) -> io::Result<Vec<String>>;
}
