// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What an operator asks for.
use ccc_settings::{Changes, LogSettings};

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
    /// The flows that are granted most, of all VMs.
    Largest {
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
    /// What is logged.
    Log,
    /// Other lines in the log from now on.
    SetLog(Changes<LogSettings>),
    /// A trial of a group as described.
    Trial(String, TrialSpec),
    /// The end of the trial of a group that has this number.
    EndTrial(String, u64),
    /// A change of the settings.
    Change(Change),
}

impl Command {
    /// It changes nothing, so that whoever may look may ask for it.
    pub fn only_looks(&self) -> bool {
        match self {
            Command::Status | Command::Vms | Command::Vm(_) | Command::Flows { .. } => true,
            Command::Largest { .. } | Command::Groups | Command::Group(_) | Command::Rules => true,
            Command::Metrics | Command::Log => true,
            Command::SetLog(_) | Command::Change(_) => false,
            Command::Trial(..) | Command::EndTrial(..) => false,
        }
    }

    /// It looks at all VMs, so it takes some time where there are many.
    pub fn is_long(&self) -> bool {
        match self {
            Command::Vm(_) | Command::Log | Command::SetLog(_) => false,
            Command::Change(change) => match change {
                Change::UpdateVm(..) | Change::PutVm(..) => false,
                Change::DeleteVm(_) | Change::ResetVm(_) => false,
                Change::UpdateGroup(..) | Change::ResetGroup(_) | Change::SetRules(_) => true,
            },
            Command::Status | Command::Vms | Command::Groups | Command::Group(_) => true,
            Command::Largest { .. }
            | Command::Flows { .. }
            | Command::Rules
            | Command::Metrics
            | Command::Trial(..)
            | Command::EndTrial(..) => true,
        }
    }
}
