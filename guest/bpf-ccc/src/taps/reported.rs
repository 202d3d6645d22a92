// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What VMs have reported, as the daemon tells it.
use std::{collections::HashSet, path::Path};

use anyhow::{Context, Result};
use serde_json::Value;

use super::flow::Flow;
use crate::daemon;

/// A VM with a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// The interface through which its packets come.
    pub tap: String,
}

/// What a VM has reported at one time.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    /// Its flows that are coupled.
    pub coupled: HashSet<Flow>,
    /// Bytes that its flows have said were delivered, coupled or not, since it is there.
    pub delivered_bytes: u64,
}

/// All VMs with taps.
pub fn vms(control: &Path) -> Result<Vec<Vm>> {
    let answer = daemon::get(control, "/v1/vms")?;
    let vms = answer["vms"].as_array().into_iter().flatten();
    let vm = |vm: &Value| {
        Some(Vm { name: vm["name"].as_str()?.to_owned(), tap: vm["tap"].as_str()?.to_owned() })
    };
    Ok(vms.filter_map(vm).collect())
}

/// What one of them has reported.
pub fn of(control: &Path, name: &str) -> Result<Reported> {
    ask(control, name).with_context(|| format!("cannot ask what {name} has reported"))
}

fn ask(control: &Path, name: &str) -> Result<Reported> {
    let vm = daemon::get(control, &format!("/v1/vms/{name}"))?;
    let delivered_bytes = vm["counters"]["delivered_bytes"].as_u64().unwrap_or_default();
    let (mut coupled, mut from) = (HashSet::new(), Some(0));
    while let Some(slot) = from {
        let page = daemon::get(control, &format!("/v1/vms/{name}/flows?from={slot}"))?;
        coupled.extend(coupled_of(&page));
        from = page["next"].as_u64().filter(|next| *next > slot);
    }
    Ok(Reported { coupled, delivered_bytes })
}

fn coupled_of(page: &Value) -> impl Iterator<Item = Flow> {
    let flows = page["flows"].as_array().into_iter().flatten();
    flows.filter(|flow| flow["group"].is_string()).filter_map(Flow::of_slot)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_flow_that_is_left_alone_is_not_coupled() {
        let flow = |port, group| {
            json!({"source": "10.0.0.1", "source_port": port, "destination": "10.0.0.2",
                "destination_port": 80, "group": group})
        };
        let page = json!({"flows": [flow(1, Some("uplink")), flow(2, None)]});
        let ports: Vec<u16> = coupled_of(&page).map(|flow| flow.source.port()).collect();
        assert_eq!(ports, [1]);
    }
}
