// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Trials: a client has a group coupled or not for a while, which ends by itself unless the
//! client asks again.
//!
//! Nothing of it is kept: where the client, or this daemon, is killed, the group is coupled.
use ccc_core::Micros;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Coupling;
use crate::admin::authorization::Peer;

/// Largest number of a trial: larger ones are not whole in all readers of JSON.
pub const ID_MAX: u64 = 1 << 53;

/// What a client wants of a trial.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrialSpec {
    /// Whether the group is coupled
    pub coupled: bool,
    /// For how long, unless it is asked for again
    #[schemars(range(min = 1.0, max = 300.0))]
    pub seconds: f64,
    /// Which trial goes on; another begins without
    #[schemars(range(min = 1, max = ID_MAX))]
    pub id: Option<u64>,
}

ccc_settings::table!(TrialSpec);

impl Default for TrialSpec {
    fn default() -> TrialSpec {
        TrialSpec { coupled: false, seconds: 30.0, id: None }
    }
}

/// A trial that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Which it is, which its owner knows: a group's trials begin at different times.
    pub id: u64,
    /// Whether the group is coupled.
    pub coupled: bool,
    /// When it ends, in real time.
    pub until: Micros,
    /// Whose it is.
    pub by: Peer,
}

/// Why there can be no trial.
#[derive(Debug, Error)]
pub enum TrialError {
    /// There is nothing to compare.
    #[error("group `{0}` is left alone, so there is nothing to try; couple it first")]
    LeftAlone(String),
    /// Somebody else's runs.
    #[error(
        "a trial of group `{group}` runs already, by {by}; wait for its end, or end it: cccctl group {group} --coupled on"
    )]
    Runs {
        /// The group.
        group: String,
        /// Whose it is.
        by: Peer,
    },
    /// It goes on no more.
    #[error("that trial of group `{0}` has ended; to begin another, leave id out")]
    Ended(String),
}

impl Coupling {
    /// Begins a trial of a group, as its client wants it from `now` on, or goes on with it.
    pub fn set_trial(
        &mut self,
        group: usize,
        wanted: &TrialSpec,
        now: Micros,
        by: &Peer,
    ) -> Result<(), TrialError> {
        let settings = &self.settings.groups[group];
        if !settings.settings.coupled {
            return Err(TrialError::LeftAlone(settings.name.clone()));
        }
        self.check_trial(group, wanted.id)?;
        if wanted.id.is_some() && self.trial(group).is_none() {
            return Err(TrialError::Ended(settings.name.clone()));
        }
        self.groups[group].trial = Some(Trial {
            id: wanted.id.unwrap_or(now.clamp(1, ID_MAX)),
            coupled: wanted.coupled,
            until: now + (wanted.seconds * 1e6) as Micros,
            by: by.clone(),
        });
        Ok(())
    }

    /// Makes sure that no other trial of a group runs.
    pub fn check_trial(&self, group: usize, id: Option<u64>) -> Result<(), TrialError> {
        match self.trial(group).filter(|trial| Some(trial.id) != id) {
            Some(other) => {
                let group = self.settings.groups[group].name.clone();
                Err(TrialError::Runs { group, by: other.by.clone() })
            }
            None => Ok(()),
        }
    }

    /// Ends the trial of a group, if one runs.
    pub fn end_trial(&mut self, group: usize) -> Option<Trial> {
        self.groups[group].trial.take()
    }

    /// The trial of a group, if one runs.
    pub fn trial(&self, group: usize) -> Option<&Trial> {
        self.groups[group].trial.as_ref()
    }

    /// Groups whose trials are over by a time.
    pub fn overdue_trials(&self, now: Micros) -> Vec<usize> {
        let over = |group: &usize| self.trial(*group).is_some_and(|trial| trial.until <= now);
        (0..self.groups.len()).filter(over).collect()
    }

    /// When the first trial is over.
    pub fn next_trial_end(&self) -> Option<Micros> {
        self.groups.iter().filter_map(|group| Some(group.trial.as_ref()?.until)).min()
    }

    /// Whether the flows of a group are coupled now.
    pub fn is_coupled(&self, group: usize) -> bool {
        let tried = self.trial(group).is_none_or(|trial| trial.coupled);
        tried && self.settings.groups[group].settings.coupled
    }
}
