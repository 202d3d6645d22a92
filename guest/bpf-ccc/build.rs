// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Compiles the BPF programs, and makes the modules by which Rust knows them.
use std::{env, path::PathBuf, process::Command};

use libbpf_cargo::SkeletonBuilder;

/// The first of these that is there, unless CLANG names one.
const CLANGS: [&str; 4] = ["clang", "clang-19", "clang-16", "clang-14"];

fn clang() -> String {
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let found = || CLANGS.iter().find(works).copied().unwrap_or("clang").to_owned();
    env::var("CLANG").unwrap_or_else(|_| found())
}

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Debian 12's clang compiles for the first BPF machine if not told.
    let args = "-mcpu=v3 -ffreestanding -Wall -Werror -Wno-unused-function -I.. -I../include";
    let clang = clang();
    println!("cargo:rustc-env=CCC_CLANG={clang}");
    println!("cargo:rustc-env=CCC_CLANG_ARGS={args}");
    for name in ["ccc", "tap"] {
        SkeletonBuilder::new()
            .source(format!("bpf/{name}.bpf.c"))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang(&clang)
            .clang_args(args.split(' '))
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .expect("the BPF program does not compile; CLANG names another compiler");
    }
    for input in ["bpf", "../common", "../include"] {
        println!("cargo:rerun-if-changed={input}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
}
