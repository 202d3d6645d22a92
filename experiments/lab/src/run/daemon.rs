// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon of a run: its configuration, its sockets, its options.

use std::fmt::Write;
use std::path::Path;

use super::programs::Programs;
use crate::error::{Context, Result};
use crate::scenario::Scenario;
use crate::scenario::daemon::Group;
use crate::workdir::{self, Workdir};

/// Starts the daemon for these VMs and waits until it listens.
pub fn start(
    scenario: &Scenario,
    vms: &[&str],
    work: &Workdir,
    programs: &mut Programs<'_>,
) -> Result<()> {
    let relays = scenario.relays();
    let socket = if relays { workdir::relayed_socket } else { workdir::device_socket };
    let mut config = group_config(&scenario.group);
    for vm in scenario.vms.iter().filter(|vm| vms.contains(&vm.name.as_str())) {
        // The daemon wants a whole path, which the working directory's own may be
        // too long for.  Writing to a String cannot fail.
        let _ = write!(
            config,
            "\n[vm.{}]\nsocket = \"/proc/self/cwd/{}\"\ngroup = \"uplink\"\nweight = {}\n",
            vm.name,
            socket(&vm.name),
            vm.weight,
        );
    }
    work.write(workdir::DAEMON_CONFIG, config)?;
    let control = ["--control".into(), workdir::CONTROL.into()];
    let options: &[String] = if scenario.controls() { &control } else { &[] };
    let program = scenario.daemon.as_deref().unwrap_or(Path::new("ccc-vhost"));
    let program = program.canonicalize().on("finding", program)?;
    let sockets: Vec<_> = vms.iter().map(|vm| socket(vm)).collect();
    programs.start_daemon(&program, options, &sockets)
}

fn group_config(group: &Group) -> String {
    let policy = group.policy.as_deref().unwrap_or("ctrltcp");
    let mut config = format!("[group.uplink]\npolicy = \"{policy}\"\n");
    // Writing to a String cannot fail.
    for (key, word) in [("share", &group.share), ("growth_source", &group.growth_source)] {
        if let Some(word) = word {
            let _ = writeln!(config, "{key} = \"{word}\"");
        }
    }
    if let Some(equivalent_tcps) = group.equivalent_tcps {
        let _ = writeln!(config, "equivalent_tcps = {equivalent_tcps}");
    }
    config
}
