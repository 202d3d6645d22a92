// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The daemon of a run: its configuration, its sockets, its options.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

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
    let watches = scenario.watches_taps();
    for vm in scenario.vms.iter().filter(|vm| watches || vms.contains(&vm.name.as_str())) {
        // The daemon wants a whole path, which the working directory's own may be
        // too long for.  Writing to a String cannot fail.
        let _ = write!(
            config,
            "\n[vm.{}]\nsocket = \"/proc/self/cwd/{}\"\ngroup = \"uplink\"\nweight = {}\n",
            vm.name,
            socket(&vm.name),
            vm.weight,
        );
        if watches {
            let _ = writeln!(config, "tap = \"{}\"", vm.name);
        }
    }
    work.write(workdir::DAEMON_CONFIG, config)?;
    let option = |name: &str, value: &str| [name.to_owned(), value.to_owned()];
    let control = scenario.controls().then(|| option("--control", workdir::CONTROL));
    let taps = watches.then(|| option("--taps", workdir::TAPS));
    let options: Vec<String> = control.into_iter().chain(taps).flatten().collect();
    let program = scenario.daemon.as_deref().unwrap_or(Path::new("ccc-vhost"));
    let program = program.canonicalize().on("finding", program)?;
    let sockets: Vec<_> = vms.iter().map(|vm| socket(vm)).collect();
    programs.start_daemon(&program, &options, &sockets)
}

/// The group's table; numbers and plain words are in TOML what they are in JSON.
fn group_config(group: &Group) -> String {
    let default = Group::from([("policy".into(), "ctrltcp".into())]);
    let given = group.iter().filter(|(_, value)| !value.is_null());
    let left_out = default.iter().filter(|(name, _)| group.get(*name).is_none_or(Value::is_null));
    let lines = left_out.chain(given).map(|(name, value)| format!("{name} = {value}\n"));
    "[group.uplink]\n".to_owned() + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_what_was_given_and_a_policy() {
        let group = |json| group_config(&serde_json::from_str(json).expect("JSON"));
        assert_eq!(group("{}"), "[group.uplink]\npolicy = \"ctrltcp\"\n");
        let given = r#"{"policy": "cm", "share": null, "equivalent_tcps": 2.5}"#;
        assert_eq!(group(given), "[group.uplink]\nequivalent_tcps = 2.5\npolicy = \"cm\"\n");
    }
}
