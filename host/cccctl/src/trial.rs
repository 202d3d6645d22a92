// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What coupling brings to a group's own traffic: it is coupled and not in turn, and the
//! flows tell how they fare.
//!
//! Pairs of phases are in the order on, off, off, on, …, so that what changes slowly, as the
//! load of a day, is in both.
//!
//! The daemon is asked for each phase again and again, and couples the group again when it is
//! asked no more, whatever has become of this program.
mod difference;
mod phase;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ccc_settings::{GroupSettings, Table as _, VmSettings, Want};
use humantime::format_duration;
use serde::Serialize;
use serde_json::{Value, json};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use crate::{
    args::Trial,
    client::{Client, ClientError, path},
    commands::{Error, all_flows},
    journal,
    table::Table,
    views::{list, word},
};
use difference::Difference;
use phase::{Counts, FlowId, Look, Outcome, Phase};

/// Between two looks at the flows.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks whether somebody wants it to end.
const STEP: Duration = Duration::from_millis(50);
/// The daemon couples the group again after so long, unless it is asked for more: longer than
/// it may take to answer.
const LEASE_SECONDS: f64 = 30.0;
/// How often a phase is tried in which the daemon is started again.
const AGAIN: u32 = 3;

/// What is measured: its name in JSON and in text, and what it is of a phase.
struct Measure(&'static str, &'static str, fn(&Outcome) -> Option<f64>);

const MEASURES: [Measure; 5] = [
    Measure("goodput_mbit", "goodput, Mbit/s", |of| of.goodput_mbit),
    Measure("events_per_gbyte", "congestion events per GB", |of| of.events_per_gbyte),
    Measure("rtt_ms", "RTT, ms", |of| of.rtt_ms),
    Measure("share_error_percent", "worst share's error, %", |of| of.share_error_percent),
    Measure("completion_s", "time of flows that came, s", |of| of.completion_s),
];

/// What a trial came to.
#[derive(Debug, Serialize)]
pub struct Report {
    group: String,
    /// Each pair of phases.
    pairs: Vec<Pair>,
    /// Each measure, where all phases have it.
    measures: BTreeMap<&'static str, Option<Difference>>,
}

/// Two phases, one after the other.
#[derive(Clone, Copy, Debug, Serialize)]
struct Pair {
    coupled: Outcome,
    uncoupled: Outcome,
}

impl Pair {
    /// Of the phases that were not coupled and were, with what the VMs are to have, of which
    /// some are compared.
    fn of(phases: &[Phase; 2], wants: &BTreeMap<String, Want>, vms: &BTreeSet<String>) -> Pair {
        let [uncoupled, coupled] = phases;
        let outcome = |phase: &Phase| phase.outcome(wants, vms);
        Pair { coupled: outcome(coupled), uncoupled: outcome(uncoupled) }
    }
}

/// Couples a group and not, in turn; what came of it.
pub fn run(client: &Client, trial: &Trial) -> Result<Report, Error> {
    let group = path("groups", &trial.group);
    if has_rules(client)? {
        return Err(Error::Trial(
            "there are rules (cccctl rules), and of a flow that is not coupled nobody can tell which \
             group it would be in; a trial needs VMs whose flows are all in one group"
                .to_owned(),
        ));
    }
    let begun = client.get(&group)?;
    check(&begun, &trial.group)?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The second time at once: the daemon does the rest.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&ended))?;
        flag::register(signal, Arc::clone(&ended))?;
    }
    let (members, settings, lease) = (members(&begun), settings(&begun), Cell::default());
    let run = Run { client, trial, group, members, settings, lease, ended };
    let pairs = run.pairs();
    run.end();
    let pairs = pairs?;
    let of = |Measure(key, _, measure): &Measure| (*key, difference(&pairs, *measure));
    let measures = MEASURES.iter().map(of).collect();
    Ok(Report { group: trial.group.clone(), pairs, measures })
}

fn has_rules(client: &Client) -> Result<bool, ClientError> {
    Ok(!list(&client.get("/v1/rules")?["rules"]).is_empty())
}

/// Makes sure that a group can be tried.
fn check(group: &Value, name: &str) -> Result<(), Error> {
    let wrong = match (&group["coupled"], group.get("trial")) {
        (Value::Bool(true), Some(Value::Null)) => return Ok(()),
        (Value::Bool(true), None) => {
            "the daemon is older than this program and knows no trials that \
                                      end by themselves; upgrade ccc-vhost"
                .to_owned()
        }
        (Value::Bool(true), Some(trial)) => format!(
            "a trial of group {name} runs already, by {}; wait for its end, or end it: cccctl group \
             {name} --coupled on",
            word(&trial["by"])
        ),
        _ => format!(
            "group {name} is not coupled, so there is nothing to compare; cccctl group {name} \
             --coupled on"
        ),
    };
    Err(Error::Trial(wrong))
}

fn difference(pairs: &[Pair], measure: fn(&Outcome) -> Option<f64>) -> Option<Difference> {
    let both = |pair: &Pair| Some((measure(&pair.coupled)?, measure(&pair.uncoupled)?));
    Difference::of(&pairs.iter().map(both).collect::<Option<Vec<_>>>()?)
}

/// A trial that runs.
struct Run<'a> {
    client: &'a Client,
    trial: &'a Trial,
    /// Path of the group.
    group: String,
    /// Its VMs as they were when it began: phases of others are not to be compared.
    members: BTreeMap<String, Member>,
    /// Its settings, as they were then.
    settings: Vec<Value>,
    /// What the daemon has given, until it is gone.
    lease: Cell<Option<Lease>>,
    ended: Arc<AtomicBool>,
}

/// A trial at the daemon: what others do there is none of it.
#[derive(Clone, Copy, Debug)]
struct Lease {
    /// Which it is; an older daemon does not say.
    id: Option<u64>,
    /// The daemon.
    by: Option<i32>,
}

impl Run<'_> {
    /// Of the shares of VMs only those are compared that had something to send in all phases.
    fn pairs(&self) -> Result<Vec<Pair>, Error> {
        let phases: Vec<[Phase; 2]> =
            (0..self.trial.times).map(|number| self.pair(number)).collect::<Result<_, _>>()?;
        let active = phases.iter().flatten().map(Phase::always_active);
        let compared = active.reduce(|some, others| &some & &others).unwrap_or_default();
        let wants = self.members.iter().map(|(vm, member)| (vm.clone(), member.want)).collect();
        Ok(phases.iter().map(|pair| Pair::of(pair, &wants, &compared)).collect())
    }

    /// The phases that are not coupled and are, of which every other pair begins with another.
    fn pair(&self, number: u32) -> Result<[Phase; 2], Error> {
        let phase = |coupled| again(|| self.phase(number, coupled));
        if number % 2 == 0 {
            let coupled = phase(true)?;
            Ok([phase(false)?, coupled])
        } else {
            Ok([phase(false)?, phase(true)?])
        }
    }

    /// A phase with one daemon from its begin to its end.
    fn phase(&self, number: u32, coupled: bool) -> Result<Phase, Error> {
        let Trial { group, times, off, settle, .. } = self.trial;
        let how = if coupled { "coupled" } else { "not coupled" };
        journal::say(&format!(
            "{group}: {how} for {} (the first {} count for nothing; pair {} of {times})",
            format_duration(*off + *settle),
            format_duration(*settle),
            number + 1
        ));
        self.couple(coupled)?;
        let settling = Instant::now();
        while settling.elapsed() < *settle {
            self.wait(INTERVAL.min(settle.saturating_sub(settling.elapsed())))?;
            self.go_on(coupled)?;
        }
        self.go_on(coupled)?;
        let (began, mut phase) = (Instant::now(), Phase::new(*off));
        loop {
            let at = began.elapsed();
            phase.look(at, self.look()?);
            if at >= *off {
                return Ok(phase);
            }
            self.wait(INTERVAL.min(off.saturating_sub(began.elapsed())))?;
            self.go_on(coupled)?;
        }
    }

    /// Has the group coupled or not for a while.
    fn couple(&self, coupled: bool) -> Result<(), Error> {
        let mut wanted = json!({"coupled": coupled, "seconds": LEASE_SECONDS});
        let before = self.lease.get();
        if let Some(id) = before.and_then(|lease| lease.id) {
            wanted["id"] = json!(id);
        }
        let group = match (self.client.put(&format!("{}/trial", self.group), &wanted), before) {
            (Err(error), Some(_)) if error.is_refusal() => return Err(self.lost()?),
            (answer, _) => answer?,
        };
        if before.is_none() {
            let (id, by) = (group["trial"]["id"].as_u64(), self.client.listener()?);
            self.lease.set(Some(Lease { id, by }));
        }
        Ok(())
    }

    /// The daemon knows this trial no more: why that is.
    fn lost(&self) -> Result<Error, ClientError> {
        let before = self.lease.take();
        let now = self.client.listener()?;
        Ok(if before.is_none_or(|lease| lease.by == now) {
            Error::Changed(self.trial.group.clone())
        } else {
            Error::Restarted
        })
    }

    /// Has the group coupled again at once, where the daemon answers.
    fn end(&self) {
        let Some(Lease { id, .. }) = self.lease.take() else { return };
        let which = id.map(|id| format!("?id={id}")).unwrap_or_default();
        match self.client.delete(&format!("{}/trial{which}", self.group)) {
            Err(error) if !error.is_refusal() => journal::say(&format!(
                "the daemon couples group {} again by itself within {LEASE_SECONDS} s: {error}",
                self.trial.group
            )),
            // Or somebody else has ended it.
            _ => {}
        }
    }

    /// Waits, unless somebody wants it to end.
    fn wait(&self, time: Duration) -> Result<(), Error> {
        let began = Instant::now();
        while began.elapsed() < time {
            if self.ended.load(Ordering::Relaxed) {
                return Err(Error::Trial("interrupted; the group is coupled again".to_owned()));
            }
            thread::sleep(STEP.min(time.saturating_sub(began.elapsed())));
        }
        Ok(())
    }

    /// Asks the daemon to leave the group as this phase has it, if it is so, with the
    /// settings, VMs and rules of before.
    fn go_on(&self, coupled: bool) -> Result<(), Error> {
        let group = self.client.get(&self.group)?;
        let Some(Lease { id, .. }) = self.lease.get() else { return Err(self.lost()?) };
        if group["trial"]["coupled"] != coupled || group["trial"]["id"].as_u64() != id {
            return Err(self.lost()?);
        }
        let is_so = members(&group) == self.members && settings(&group) == self.settings;
        if !is_so || has_rules(self.client)? {
            return Err(Error::Changed(self.trial.group.clone()));
        }
        self.couple(coupled)
    }

    /// Their flows: without rules all are of this group.
    fn look(&self) -> Result<Look, Error> {
        let mut look = Look::default();
        for vm in self.members.keys() {
            let path = path("vms", vm);
            let counts = counts(&self.client.get(&path)?["counters"]);
            look.counts.extend(counts.map(|counts| (vm.clone(), counts)));
            let flows = all_flows(self.client, &path)?;
            look.flows.extend(flows.iter().filter_map(|flow| one(vm, flow)));
        }
        Ok(look)
    }
}

/// What is set of a VM of the group.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Member {
    want: Want,
    coupled: bool,
}

/// The settings of a group's answer.
fn settings(group: &Value) -> Vec<Value> {
    GroupSettings::fields().iter().map(|field| group[&field.name].clone()).collect()
}

/// The VMs of a group's answer.
fn members(group: &Value) -> BTreeMap<String, Member> {
    // An older daemon does not say whether they are coupled.
    let member = |vm| Member { want: want(vm), coupled: vm["coupled"] != false };
    list(&group["vms"]).iter().map(|vm| (word(&vm["name"]), member(vm))).collect()
}

/// What a VM of an answer is to have, by floor, cap and weight.
fn want(vm: &Value) -> Want {
    let number = |name: &str| vm[name].as_f64();
    Want::of(&VmSettings {
        weight: number("weight").unwrap_or(1.0),
        floor_mbit: number("floor_mbit").unwrap_or(0.0),
        cap_mbit: number("cap_mbit"),
        ..VmSettings::default()
    })
}

/// A flow of an answer, and whether it has something to send.
fn one(vm: &str, flow: &Value) -> Option<(FlowId, bool)> {
    let id = (vm.to_owned(), flow["slot"].as_u64()?, flow["generation"].as_u64()?);
    Some((id, flow["active"].as_bool()?))
}

/// What a VM of an answer has counted; an older daemon does not say all of it.
fn counts(of: &Value) -> Option<Counts> {
    Some(Counts {
        came: of["registered"].as_u64()?,
        delivered_bytes: of["delivered_bytes"].as_u64()?,
        events: of["congestion_events"].as_u64()?,
        rtt_bytes: of["rtt_bytes"].as_u64()?,
        rtt_byte_ms: of["rtt_byte_ms"].as_u64()?,
    })
}

/// Does something again if the daemon was started again in the midst of it.
fn again<T>(mut work: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..AGAIN {
        match work() {
            Err(Error::Restarted) => journal::say(&Error::Restarted),
            done => return done,
        }
    }
    work()
}

/// As text: a line for each measure.
pub fn text(report: &Report) -> String {
    let mut table = Table::new(["", "COUPLED", "UNCOUPLED", "DIFFERENCE", "95 %", ""]);
    for Measure(key, name, _) in MEASURES {
        let cells = match report.measures.get(key).copied().flatten() {
            Some(told) => [
                number(told.coupled),
                number(told.uncoupled),
                format!("{:+.3}", told.difference),
                format!("± {}", number(told.interval)),
                if told.is_sure() { "" } else { "may be chance" }.to_owned(),
            ],
            None => ["-", "-", "-", "-", ""].map(str::to_owned),
        };
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    table.text()
}

fn number(value: f64) -> String {
    format!("{value:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_tried_again_while_daemons_come_and_go() {
        for (restarts, done) in [(0, true), (2, true), (3, false)] {
            let mut tries = 0;
            let tried = again(|| {
                tries += 1;
                if tries > restarts { Ok(()) } else { Err(Error::Restarted) }
            });
            assert_eq!((tried.is_ok(), tries), (done, 3.min(restarts + 1)));
        }
        let mut tries = 0;
        let other = again(|| {
            tries += 1;
            Err::<(), _>(Error::Found)
        });
        assert!(matches!(other, Err(Error::Found)) && tries == 1);
    }
}
