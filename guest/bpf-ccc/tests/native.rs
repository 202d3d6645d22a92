// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program in user space: what each of the C programs in native/ says that has to hold.
use std::process::Command;

/// Compiles and runs one, which says on its output what does not hold.
fn holds(name: &str) {
    let program = std::env::temp_dir().join(format!("ccc-bpf-{name}-{}", std::process::id()));
    let compiled = Command::new(env!("CCC_CLANG"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["-g", "-O1", "-Wall", "-Werror", "-Wno-unused-function", "-pthread"])
        .args(["-I.", "-I..", "-I../include", "-o"])
        .arg(&program)
        .arg(format!("tests/native/{name}.c"))
        .output()
        .expect("clang");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().expect("run");
    std::fs::remove_file(&program).expect("removed");
    assert!(ran.status.success(), "{}: {}", ran.status, String::from_utf8_lossy(&ran.stdout));
}

#[test]
fn sockets_of_tenants_are_flows_while_they_send() {
    holds("flows");
}

#[test]
fn grants_are_followed_while_they_hold() {
    holds("grants");
}

#[test]
fn events_are_counted_told_and_answered() {
    holds("events");
}

#[test]
fn who_begins_says_what_it_has_to_send() {
    holds("opening");
}

#[test]
fn what_joins_is_paced() {
    holds("pacing");
}

#[test]
fn the_device_reads_what_has_happened() {
    holds("reports");
}

#[test]
fn no_slot_stays_taken_that_no_socket_knows() {
    holds("slot");
}

#[test]
fn no_slot_has_two_owners_among_threads() {
    holds("threads");
}
