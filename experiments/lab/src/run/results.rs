// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Gathers what the guests wrote into the result files of the run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::controller::script::Script;
use crate::controller::world::World;
use crate::error::{Context, LabError, Result};
use crate::plan::Plan;
use crate::scenario::Scenario;
use crate::workdir::Workdir;

const FLOWS: &str =
    "time_s,vm,flow,cwnd_packets,ssthresh_packets,srtt_us,bytes_acked,retrans,state\n";
const GOODPUT: &str = "time_s,vm,flow,bytes,segments\n";
/// The packets on cables.
pub const PACKETS: &str = "packets.pcap";
const QUEUE: &str = "time_s,backlog_packets,backlog_bytes,sent_packets,dropped_packets\n";

/// Gathers all files of a run that has ended well.
pub fn gather(scenario: &Scenario, plans: &[Plan], work: &Workdir, out: &Path) -> Result<()> {
    let mut tables = Vec::new();
    for plan in plans.iter().filter(|p| !p.senders.is_empty()) {
        tables.push(text(work, &plan.name, "flows.csv")?);
    }
    write_text(out, "flows.csv", &(FLOWS.to_owned() + &merge(&tables)))?;
    for plan in plans.iter().filter(|p| p.router.is_some()) {
        write_text(
            out,
            "goodput.csv",
            &(GOODPUT.to_owned() + &text(work, &plan.name, "goodput.csv")?),
        )?;
        write_text(out, "queue.csv", &(QUEUE.to_owned() + &text(work, &plan.name, "queue.csv")?))?;
        write_text(out, "flows.json", &text(work, &plan.name, "flows.json")?)?;
        write_text(out, "bottleneck.json", &text(work, &plan.name, "bottleneck.json")?)?;
        if scenario.cross.is_some() {
            write_text(out, "cross.json", &text(work, &plan.name, "cross.json")?)?;
        }
        for flood in plan.router.iter().flat_map(|router| &router.floods) {
            let name = format!("{}.flood.json", flood.vm);
            write_text(out, &name, &text(work, &plan.name, &name)?)?;
        }
    }
    let actions = guest_actions(plans, work)?;
    if !actions.is_empty() {
        write(out, "guest_actions.json", &actions)?;
    }
    write(out, "meta.json", &meta(scenario, plans, work)?)
}

/// Writes what the controller has done: actions on the daemon, links, faults.
pub fn write_controllers(out: &Path, script: &Script, world: &World) -> Result<()> {
    if !script.records().is_empty() {
        write(out, "actions.json", &script.records())?;
    }
    if !world.switch.links().is_empty() {
        write(out, "links.json", &world.switch.links())?;
    }
    world.switch.faults().records().map_or(Ok(()), |faults| write(out, "faults.json", &faults))
}

/// What was done in the kernels of the VMs, by VM.
fn guest_actions(plans: &[Plan], work: &Workdir) -> Result<BTreeMap<String, Value>> {
    let mut actions = BTreeMap::new();
    for plan in plans {
        for sender in plan.senders.iter().filter(|s| !s.work.is_empty()) {
            let told = text(work, &plan.name, &format!("{}.actions.json", sender.vm))?;
            let told = serde_json::from_str(&told)
                .map_err(|e| LabError::protocol(&plan.name, format!("actions: {e}")))?;
            // A VM may have had two kernels.
            let all = actions.entry(sender.vm.clone()).or_insert_with(|| json!([]));
            if let (Value::Array(all), Value::Array(told)) = (all, told) {
                all.extend(told);
            }
        }
    }
    Ok(actions)
}

/// Writes how fast the run was; alone not the same in every run.
pub fn write_speed(out: &Path, simulated_s: f64, wall_s: f64) -> Result<()> {
    let speed = json!({
        "simulated_s": simulated_s,
        "wall_s": wall_s,
        "ratio": simulated_s / wall_s,
    });
    write(out, "speed.json", &speed)
}

fn meta(scenario: &Scenario, plans: &[Plan], work: &Workdir) -> Result<Value> {
    let mut guests = BTreeMap::new();
    for plan in plans {
        let guest: Value = serde_json::from_str(&text(work, &plan.name, "meta.json")?)
            .map_err(|e| LabError::protocol(&plan.name, format!("meta.json: {e}")))?;
        guests.insert(plan.name.clone(), guest);
    }
    let digest_of = |path: Option<&Path>| path.map(digest).transpose();
    Ok(json!({
        "seed": scenario.seed,
        "module_sha256": digest_of(scenario.module.as_deref())?,
        "hostile_module_sha256": digest_of(scenario.hostile_module.as_deref())?,
        "daemon_sha256": digest_of(scenario.daemon.as_deref().filter(|_| scenario.coupled))?,
        "guests": guests,
    }))
}

fn digest(path: &Path) -> Result<String> {
    let bytes = fs::read(path).on("reading", path)?;
    Ok(Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect())
}

/// Orders rows by time; at equal times the tables keep their order.
fn merge(tables: &[String]) -> String {
    let time = |row: &&str| -> u64 {
        let text = row.split(',').next().unwrap_or_default();
        text.replace('.', "").parse().unwrap_or(u64::MAX)
    };
    let mut rows: Vec<&str> = tables.iter().flat_map(|t| t.lines()).collect();
    rows.sort_by_key(time);
    rows.into_iter().flat_map(|row| [row, "\n"]).collect()
}

fn text(work: &Workdir, guest: &str, kind: &str) -> Result<String> {
    let path = work.join(&format!("{guest}.{kind}"));
    fs::read_to_string(&path).on("reading", &path)
}

/// Writes a result as JSON.
pub fn write(out: &Path, name: &str, value: &impl Serialize) -> Result<()> {
    write_text(out, name, &json(value))
}

fn write_text(out: &Path, name: &str, text: &str) -> Result<()> {
    let path = out.join(name);
    fs::write(&path, text).on("writing", &path)
}

/// A value as JSON that people can read.
pub fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("plain data has a JSON form");
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_ordered_by_time_then_table() {
        let tables = ["0.000,a\n10.000,b\n".to_owned(), "0.000,c\n2.500,d\n".to_owned()];
        assert_eq!(merge(&tables), "0.000,a\n0.000,c\n2.500,d\n10.000,b\n");
    }
}
