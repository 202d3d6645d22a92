// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Compiles the preload shim; the library carries it (see `launch.rs`).

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=shim/seed.c");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let status = cc::Build::new()
        .opt_level(2)
        .get_compiler()
        .to_command()
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(out.join("seed.so"))
        .arg("shim/seed.c")
        .status()
        .expect("the C compiler starts");
    assert!(status.success(), "compiling shim/seed.c failed");
}
