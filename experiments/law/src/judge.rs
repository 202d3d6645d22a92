// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Compares coupled runs of a case with uncoupled ones.
//!
//! One pair of runs says where to look.  What it shows is run again with other start
//! phases, both ways: a finding is what lies outside the spread that uncoupled runs have
//! among themselves.
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

use crate::{
    draw::Case,
    invariants::{Compared, Trial},
    measure::Run,
    setup::Setup,
    world,
};

pub use crate::invariants::INVARIANTS;

/// Start phases of a trial; it is repeated with as many others.
const PHASES: u64 = 5;
/// A finding in bursts is one in bursts of this part, too.
const FINER: u32 = 4;

/// A bound that does not hold.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Which.
    pub invariant: &'static str,
    /// How far beyond the bound: 1 is at it.
    pub excess: f64,
    /// The numbers.
    pub detail: String,
}

/// One start phase, both ways.
pub struct Both {
    /// What was run.
    pub setup: Setup,
    /// Without coupling.
    pub uncoupled: Run,
    /// And with it.
    pub coupled: Run,
    /// One flow of the group, uncoupled, beside the flow outside it, if there is one.
    pub as_one: Option<Run>,
}

/// What of a case lies beyond its bounds by more than chance.
pub fn judge(case: &Case) -> Vec<Finding> {
    judged(case).unwrap_or_else(|panic| vec![panic])
}

/// The error is a panic of the engine.
fn judged(case: &Case) -> Result<Vec<Finding>, Finding> {
    let mut trial = Trial::default();
    extend(&mut trial, case, 0..1, 1)?;
    let burst = trial.burst_segments();
    // Each step costs more than the one before, and is taken for what is left.
    let mut left = beyond(&trial, INVARIANTS.to_vec());
    for phases in [1..PHASES, PHASES..2 * PHASES] {
        if !left.is_empty() {
            extend(&mut trial, case, phases, 1)?;
            left = beyond(&trial, left);
        }
    }
    let mut found = findings(&trial, &left);
    if burst > 1 && !found.is_empty() {
        let mut fine = Trial::default();
        extend(&mut fine, case, 0..PHASES, FINER)?;
        let still = beyond(&fine, left);
        found.retain(|one| still.contains(&one.invariant));
    }
    Ok(found)
}

/// Runs more phases, with bursts of a part of what they are.
fn extend(
    trial: &mut Trial,
    case: &Case,
    phases: std::ops::Range<u64>,
    finer: u32,
) -> Result<(), Finding> {
    for phase in phases {
        let mut scenario = case.scenario.clone();
        scenario.seed = scenario.seed.wrapping_add(phase);
        let mut setup = Setup::of(&scenario).expect("drawn of what is modelled");
        setup.burst_segments = (setup.burst_segments / finer).max(1);
        trial.add(run_both(setup, case.interval_ns)?);
    }
    Ok(())
}

fn run_both(setup: Setup, interval_ns: u64) -> Result<Both, Finding> {
    let uncoupled = world::run(&setup, false, interval_ns);
    let coupled = catch_unwind(AssertUnwindSafe(|| world::run(&setup, true, interval_ns)));
    let told = |panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<String>().cloned();
        let detail = text.unwrap_or_else(|| "the engine panicked".into());
        Finding { invariant: "engine", excess: f64::MAX, detail }
    };
    let coupled = coupled.map_err(told)?;
    let as_one = setup.as_one().map(|one| world::run(&one, false, interval_ns));
    Ok(Both { setup, uncoupled, coupled, as_one })
}

fn beyond(trial: &Trial, of: Vec<&'static str>) -> Vec<&'static str> {
    let beyond = |name: &&'static str| trial.compare(name).is_some_and(|one| one.is_beyond());
    of.into_iter().filter(beyond).collect()
}

fn findings(trial: &Trial, of: &[&'static str]) -> Vec<Finding> {
    let compared = of.iter().filter_map(|name| trial.compare(name));
    compared.map(|one: Compared| one.finding()).collect()
}
