// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What one report costs the engine: time by criterion, and for who counts instructions
//! (`make bench`) so many reports of one case: `engine --count CASE REPORTS`.
#![allow(clippy::unwrap_used, missing_docs)]
mod load;

use criterion::Criterion;
use load::{CASES, Case, Load};

/// Reports before any is measured: each flow of the largest case has made one.
const BEFORE: usize = 200_000;

fn time(case: &Case, criterion: &mut Criterion) {
    let mut load = Load::new(case);
    load.run(BEFORE);
    criterion.bench_function(case.name, |bencher| bencher.iter(|| load.step()));
}

/// Makes so many reports of a case, and nothing else.
fn count(name: &str, reports: &str) {
    let case = CASES.iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("invalid case {name}: expected one of {CASES:?}"));
    let reports = reports.parse();
    Load::new(case).run(reports.expect("invalid number of reports: expected a whole one"));
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--count") {
        return count(&arguments[at + 1], &arguments[at + 2]);
    }
    // `cargo test --all-targets` builds and starts it, too.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    CASES.iter().for_each(|case| time(case, &mut criterion));
    criterion.final_summary();
}
