// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Every conformance clause of `docs/virtio-ccc.md` has a test that exists.
#![allow(clippy::unwrap_used)]
use std::{collections::BTreeSet, fs, path::PathBuf};

fn project() -> PathBuf {
    PathBuf::from("../..")
}

fn document() -> (String, String) {
    let text = fs::read_to_string(project().join("docs/virtio-ccc.md")).unwrap();
    let (clauses, tests) = text.split_once("\n## Tests\n").unwrap();
    (clauses.to_owned(), tests.to_owned())
}

/// Names of clauses in the text: `**[X-WORD-1]**`.
fn clauses(text: &str) -> Vec<String> {
    let after = text.split("**[").skip(1);
    after.map(|rest| rest.split_once("]**").unwrap().0.to_owned()).collect()
}

/// Rows of the table: a clause and its test.
fn rows(text: &str) -> Vec<(String, String)> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter(|row| row.starts_with("DRV-") || row.starts_with("DEV-"))
        .map(|row| {
            let (clause, test) = row.trim_end_matches(" |").split_once(" | ").unwrap();
            (clause.to_owned(), test.replace('`', ""))
        })
        .collect()
}

/// A Rust or Python test, or a KUnit case.
fn exists(test: &str) -> bool {
    if let Some(case) = test.strip_prefix("KUnit ") {
        let file = project().join("guest/common/tests/arithmetic.c");
        return fs::read_to_string(file).unwrap().contains(&format!("KUNIT_CASE({case})"));
    }
    let Some((file, name)) = test.split_once("::") else { return false };
    let Ok(text) = fs::read_to_string(project().join(file)) else { return false };
    if file.ends_with(".py") {
        return name.starts_with("test_") && text.contains(&format!("\ndef {name}("));
    }
    let before = text.split_once(&format!("fn {name}(")).map(|(before, _)| before);
    before.is_some_and(|before| before.trim_end().ends_with("#[test]"))
}

#[test]
fn every_clause_has_a_name_of_its_own() {
    let all = clauses(&document().0);
    let names: BTreeSet<_> = all.iter().collect();
    assert!(all.len() > 40 && names.len() == all.len(), "{all:?}");
}

#[test]
fn every_clause_has_a_test_and_every_row_a_clause() {
    let (text, table) = document();
    let clauses: BTreeSet<String> = clauses(&text).into_iter().collect();
    let rows: BTreeSet<String> = rows(&table).into_iter().map(|(clause, _)| clause).collect();
    assert_eq!(clauses, rows);
}

#[test]
fn every_test_named_is_there() {
    let missing: Vec<_> = rows(&document().1).into_iter().filter(|(_, t)| !exists(t)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn what_is_no_test_is_not_taken_for_one() {
    assert!(!exists("KUnit nothing"));
    assert!(!exists("host/ccc-vhost/tests/clauses.rs::nothing"));
    assert!(!exists("host/ccc-vhost/tests/clauses.rs::project"), "a function, but no test");
    assert!(!exists("nowhere.rs::nothing") && !exists("nothing"));
}
