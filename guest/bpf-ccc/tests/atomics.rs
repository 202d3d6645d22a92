// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the program has to order on processors that reorder: of BPF's atomic instructions only
//! those that fetch do, and the compiler takes one that does not where nothing uses what is
//! fetched.
use std::process::Command;

/// The atomic instructions of the program for these machines, as the assembler has them.
fn atomics(machine: &str) -> Vec<String> {
    let args = env!("CCC_CLANG_ARGS").split(' ').chain(["-I/usr/include", "-fno-stack-protector"]);
    let compiled = Command::new(env!("CCC_CLANG"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(args)
        .arg(format!("-D__TARGET_ARCH_{machine}"))
        .args(["-g", "-O2", "-target", "bpf", "-S", "bpf/ccc.bpf.c", "-o", "-"])
        .output()
        .expect("clang");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let assembly = String::from_utf8(compiled.stdout).expect("text");
    let atomic = |line: &&str| line.contains("atomic_fetch") || line.starts_with("lock ");
    assembly.lines().map(str::trim).filter(atomic).map(str::to_owned).collect()
}

#[test]
fn a_slot_is_dropped_after_what_was_written_for_it() {
    for machine in ["x86", "arm64"] {
        let atomics = atomics(machine);
        assert!(
            atomics.iter().any(|one| one.contains("atomic_fetch_and")),
            "{machine}: {atomics:?}"
        );
        assert!(!atomics.iter().any(|one| one.contains("&=")), "{machine}: {atomics:?}");
    }
}

#[test]
fn a_barrier_is_one_where_processors_reorder() {
    let atomics = atomics("arm64");
    let of_stack = |one: &&String| one.contains("r10");
    let fetching = atomics.iter().filter(of_stack).all(|one| one.contains("atomic_fetch_add"));
    assert!(atomics.iter().any(|one| of_stack(&one)) && fetching, "{atomics:?}");
}
