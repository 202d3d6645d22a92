// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! libvirtd looks at all domains at once when it comes back.  Beside no other test, which
//! would wait for all of these.
#![allow(clippy::unwrap_used)]
mod support;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use support::{Daemon, connecting};

#[test]
fn f2_a_thousand_hooks_at_once_all_tell_the_daemon() {
    const HOOKS: usize = 1000;
    let daemon = Daemon::start();
    let at = |kind: &str, number: usize| daemon.dir.path().join(format!("{kind}{number}"));
    // As long as names of clouds are: looking for a similar one among them takes long.
    let name = |number: usize| format!("instance-of-a-customer-of-a-cloud-{number:06}");
    for number in 0..HOOKS {
        fs::write(at("xml", number), connecting(Path::new("/qemu"), &at("vm", number))).unwrap();
    }
    let began = Instant::now();
    let hooks: Vec<Child> = (0..HOOKS)
        .map(|number| {
            Command::new(env!("CARGO_BIN_EXE_cccctl"))
                .args(["hook", "--", &name(number), "prepare", "begin", "-"])
                .env("CCC_CONTROL", daemon.control())
                .env("CCCCTL_CONFIG", daemon.patient())
                .stdin(fs::File::open(at("xml", number)).unwrap())
                .stdout(Stdio::null())
                .stderr(fs::File::create(at("said", number)).unwrap())
                .spawn()
                .unwrap()
        })
        .collect();
    let statuses: Vec<_> = hooks.into_iter().map(|mut hook| hook.wait().unwrap()).collect();
    println!("{HOOKS} hooks: {:?}", began.elapsed());
    let said: Vec<String> =
        (0..HOOKS).map(|number| fs::read_to_string(at("said", number)).unwrap()).collect();
    let wrong: Vec<&String> = said.iter().filter(|said| !said.is_empty()).collect();
    assert!(wrong.is_empty(), "{} of {HOOKS} failed, the first: {}", wrong.len(), wrong[0]);
    assert!(statuses.iter().all(std::process::ExitStatus::success), "{statuses:?}");
    let vms = daemon.json(&["list"]);
    let coupled = vms["vms"].as_array().unwrap().iter();
    let coupled = coupled.filter(|vm| vm["group"] == "uplink" && vm["weight"] == 2.0).count();
    assert_eq!(coupled, HOOKS);
}
