// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Compiles the guest's own arithmetic, so that the model cannot depart from it.

fn main() {
    let guest = "../../guest";
    println!("cargo:rerun-if-changed=guest_rules.c");
    println!("cargo:rerun-if-changed={guest}/common");
    println!("cargo:rerun-if-changed={guest}/include");
    cc::Build::new()
        .file("guest_rules.c")
        .include(guest)
        .include(format!("{guest}/include"))
        .opt_level(2)
        .warnings(true)
        .compile("guest_rules");
}
