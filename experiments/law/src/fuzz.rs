// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Many cases, on all processors, and what was found in them.
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use serde::Serialize;

use crate::{
    draw::{Case, draw},
    judge::{Finding, INVARIANTS, judge},
    known::Known,
    shrink::shrink,
};

/// What is searched.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// How many conditions.
    pub runs: u64,
    /// Decides them all.
    pub seed: u64,
    /// So many of the worst cases of an invariant are shrunk and written.
    pub shrink: usize,
}

/// A violated bound of one case.
#[derive(Clone, Debug)]
struct Violation {
    run: u64,
    finding: Finding,
}

/// What is known of an invariant after all runs.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Runs that violate it.
    pub violations: u64,
    /// The same of all runs, percent.
    pub percent: f64,
    /// Percent up to which that is known.
    pub known_percent: f64,
    /// Why it is.
    pub known_reason: String,
    /// Their numbers and excesses, the worst first.
    pub cases: Vec<(u64, f64)>,
    /// The worst cases, shrunk.
    pub worst: Vec<Worst>,
}

/// A counterexample.
#[derive(Debug, Serialize)]
pub struct Worst {
    /// Its number: the run that found it.
    pub run: u64,
    /// As it was found.
    pub found: Finding,
    /// As simple as could be.
    pub shrunk: Finding,
    /// The simple scenario's file.
    pub file: String,
}

/// Everything that is found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How many cases.
    pub runs: u64,
    /// The seed that decides them.
    pub seed: u64,
    /// How long it took.
    pub seconds: f64,
    /// By invariant.
    pub invariants: BTreeMap<&'static str, Summary>,
}

impl Report {
    /// No bound is violated more often than is known.
    pub fn holds(&self) -> bool {
        self.invariants.values().all(|summary| summary.percent <= summary.known_percent)
    }
}

/// The case of a number; each number has its own, whatever the order.
pub fn case_of(seed: u64, run: u64) -> Case {
    draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ run.wrapping_mul(0xd1b5_4a32_d192_ed03))
}

/// Judges the cases, writes the worst into `out`.
pub fn fuzz(search: &Search, known: &[Known], out: &Path) -> std::io::Result<Report> {
    let began = Instant::now();
    let violations = violations(search, began);
    let mut invariants = BTreeMap::new();
    fs::create_dir_all(out)?;
    for invariant in INVARIANTS {
        let of = violations.iter().filter(|one| one.finding.invariant == invariant);
        let mut summary = summary(invariant, of.cloned().collect(), search, out)?;
        if let Some(known) = known.iter().find(|known| known.invariant == invariant) {
            summary.known_percent = known.most_percent;
            summary.known_reason.clone_from(&known.reason);
        }
        invariants.insert(invariant, summary);
    }
    let Search { runs, seed, .. } = *search;
    let report = Report { runs, seed, seconds: began.elapsed().as_secs_f64(), invariants };
    fs::write(out.join("result.json"), serde_json::to_string_pretty(&report)? + "\n")?;
    Ok(report)
}

fn violations(search: &Search, began: Instant) -> Vec<Violation> {
    let Search { runs, seed, .. } = *search;
    let (done, found) = (AtomicU64::new(0), AtomicU64::new(0));
    on_all_cores(runs, |run| {
        let own = judge(&case_of(seed, run));
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        let own_count = own.len() as u64;
        let found = found.fetch_add(own_count, Ordering::Relaxed) + own_count;
        if done % (runs / 20).max(1) == 0 {
            let seconds = began.elapsed().as_secs_f64();
            eprintln!("law: {done} of {runs} runs, {found} findings, {seconds:.0} s");
        }
        own.into_iter().map(|finding| Violation { run, finding }).collect()
    })
}

/// What so many runs come to, in their order, on any number of processors.
pub(crate) fn on_all_cores<T: Send>(runs: u64, of: impl Fn(u64) -> Vec<T> + Sync) -> Vec<T> {
    let (next, found) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let worker = || loop {
        let run = next.fetch_add(1, Ordering::Relaxed);
        if run >= runs {
            return;
        }
        let own = of(run);
        found.lock().expect("no thread has panicked").push((run, own));
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    let mut found = found.into_inner().expect("no thread has panicked");
    found.sort_by_key(|(run, _)| *run);
    found.into_iter().flat_map(|(_, own)| own).collect()
}

fn summary(
    invariant: &'static str,
    mut violations: Vec<Violation>,
    search: &Search,
    out: &Path,
) -> std::io::Result<Summary> {
    let count = violations.len() as u64;
    violations.sort_by(|a, b| b.finding.excess.total_cmp(&a.finding.excess));
    let cases = violations.iter().map(|one| (one.run, one.finding.excess)).collect();
    violations.truncate(search.shrink);
    let worst: std::io::Result<Vec<Worst>> = violations
        .into_iter()
        .enumerate()
        .map(|(rank, violation)| written(invariant, rank, violation, search.seed, out))
        .collect();
    Ok(Summary {
        violations: count,
        percent: 100.0 * count as f64 / search.runs.max(1) as f64,
        known_percent: 0.0,
        known_reason: String::new(),
        cases,
        worst: worst?,
    })
}

fn written(
    invariant: &str,
    rank: usize,
    violation: Violation,
    seed: u64,
    out: &Path,
) -> std::io::Result<Worst> {
    let Violation { run, finding } = violation;
    let (mut case, shrunk) = shrink(case_of(seed, run), finding.clone());
    case.scenario.name = format!("law {invariant} {run}");
    let file = format!("{invariant}-{}.json", rank + 1);
    fs::write(out.join(&file), serde_json::to_string_pretty(&case.scenario)? + "\n")?;
    Ok(Worst { run, found: finding, shrunk, file })
}
