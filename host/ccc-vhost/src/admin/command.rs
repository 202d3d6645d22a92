// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What an operator asks for.
use crate::{coupling::TrialSpec, settings::state::Change};

/// What an operator asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// The daemon as a whole.
    Status,
    /// All VMs.
    Vms,
    /// One VM.
    Vm(String),
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
    /// All rules.
    Rules,
    /// What a monitoring system asks for again and again.
    Metrics,
    /// A trial of a group as described, or its end.
    Trial(String, Option<TrialSpec>),
    /// A change of the settings.
    Change(Change),
}

impl Command {
    /// It looks at all VMs, so it takes some time where there are many.
    pub fn is_long(&self) -> bool {
        match self {
            Command::Vm(_) => false,
            Command::Change(change) => match change {
                Change::UpdateVm(..) | Change::PutVm(..) => false,
                Change::DeleteVm(_) | Change::ResetVm(_) => false,
                Change::UpdateGroup(..) | Change::ResetGroup(_) | Change::SetRules(_) => true,
            },
            Command::Status | Command::Vms | Command::Groups | Command::Group(_) => true,
            Command::Flows { .. } | Command::Rules | Command::Metrics | Command::Trial(..) => true,
        }
    }
}
