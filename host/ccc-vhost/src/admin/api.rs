// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators ask for on the control socket, and what they are told.
//!
//! `docs/openapi.yaml` describes it for them.  [`routes`] turns a request into
//! a [`Command`], which the event loop carries out ([`crate::admin::operate`]) and
//! answers with a [`Reply`]; [`http`] is the server around that.
//!
//! # Threat model
//! Whoever is let in ([`crate::admin::access`]) is an operator, but programs err: a
//! request can be of any form and length, and a client may stop anywhere.  None
//! of that reaches the event loop, which sees whole commands only, a bounded
//! number in a turn.
pub mod error;
pub mod fields;
pub mod http;
pub mod patch;
pub mod routes;
pub mod seats;
pub mod view;

pub use error::ApiError;
pub use patch::{GroupPatch, RuleSpec, VmPatch, VmSpec};
pub use view::Reply;

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// The daemon as a whole.
    Status,
    /// All VMs.
    Vms,
    /// One VM.
    Vm(String),
    /// Change a VM.
    PatchVm(String, VmPatch),
    /// Have a VM, as described.
    PutVm(String, VmSpec),
    /// Have it no longer.
    DeleteVm(String),
    /// Have it as the configuration says again.
    ResetVm(String),
    /// Flows of a VM.
    Flows {
        /// The VM.
        vm: String,
        /// First slot to look at.
        from: u32,
        /// Most flows to tell.
        limit: usize,
    },
    /// All groups.
    Groups,
    /// One group.
    Group(String),
    /// Change a group.
    PatchGroup(String, GroupPatch),
    /// Have it as the configuration says again.
    ResetGroup(String),
    /// All rules.
    Rules,
    /// Put these rules in the place of all.
    PutRules(Vec<RuleSpec>),
    /// Have those of the configuration again.
    ResetRules,
}

impl Command {
    /// It looks at all VMs, so it takes some time where there are many.
    pub fn is_long(&self) -> bool {
        match self {
            Command::Vm(_) | Command::PatchVm(..) | Command::PutVm(..) => false,
            Command::DeleteVm(_) | Command::ResetVm(_) => false,
            Command::Status | Command::Vms | Command::Groups | Command::Group(_) => true,
            Command::Flows { .. } | Command::Rules => true,
            Command::PatchGroup(..) | Command::ResetGroup(_) => true,
            Command::PutRules(_) | Command::ResetRules => true,
        }
    }

    /// It asks for a change.
    pub fn changes(&self) -> bool {
        match self {
            Command::PatchVm(..) | Command::PutVm(..) | Command::DeleteVm(_) => true,
            Command::PatchGroup(..) | Command::PutRules(_) => true,
            Command::ResetVm(_) | Command::ResetGroup(_) | Command::ResetRules => true,
            Command::Status | Command::Vms | Command::Vm(_) | Command::Flows { .. } => false,
            Command::Groups | Command::Group(_) | Command::Rules => false,
        }
    }
}
