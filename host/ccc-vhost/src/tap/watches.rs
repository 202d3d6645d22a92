// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The watches of all groups, and what is held by them.
use std::collections::{BTreeMap, BTreeSet};

use ccc_core::{Claims, Micros};
use ccc_settings::{Enforce, bytes_of_mbit};

use super::{
    host::{Hold, Unseen},
    thread::{Look, Received},
    watch::{Seen, Verdict, Watch, Watched},
};
use crate::settings::{Settings, Vm};

/// How often taps are looked at.
pub const PERIOD_US: Micros = 50_000;
/// What an earlier daemon has held stays so for so long, until it is judged anew.
const TAKEN_OVER_US: Micros = 5_000_000;
/// A tap that could not be held, or let go, is tried again after so long, and that is told
/// again after so long.
const FAILED_US: Micros = 5_000_000;
const TOLD_US: Micros = 600_000_000;
/// One that is held no more, though it is to be, is held again at once, unless that comes more
/// often than so with no more than this between two of them: then it is as one that could not be.
const LOSSES: u64 = 3;
const LOSSES_US: Micros = 10_000_000;
/// A group that is coupled again is not watched for so long: its flows come back one by one,
/// with the windows they had, and follow their grants from then on.
const REST_US: Micros = 5_000_000;
/// A rate that differs by less than this part is in force already.
const SAME_RATE: u64 = 128;

/// A VM whose verdict has changed.
#[derive(Debug)]
pub struct Judged {
    /// Its number.
    pub vm: usize,
    /// Index of its group.
    pub group: usize,
    /// What it is judged for now, or was.
    pub verdict: Verdict,
    /// It is so now.
    pub is_judged: bool,
}

/// The watches of all groups.
#[derive(Debug, Default)]
pub struct Watches {
    groups: BTreeMap<usize, Watch>,
    /// Taps that VMs were seen by, by the number of the VM.
    seen_by: BTreeMap<usize, String>,
    /// Why taps that are to be looked at cannot be, by the number of the VM.
    unseen: BTreeMap<usize, Unseen>,
    /// Groups that are not coupled, or were not until lately, and until when they rest.
    resting: BTreeMap<usize, Micros>,
    /// Rates in force, by tap.
    held: BTreeMap<String, u64>,
    /// Taps that an earlier daemon has left held, at a rate of its own.
    left: BTreeSet<String>,
    /// Those of them that are left so until they could be judged anew, and until when.
    taken_over: BTreeMap<String, Micros>,
    /// Taps that are being let go.
    parting: BTreeSet<String>,
    /// Taps that could not be held, or let go, until when that is not tried again.
    failed: BTreeMap<String, Micros>,
    /// When it was last told that a tap could not be.
    told: BTreeMap<String, Micros>,
    /// Taps that were held no more lately, though they were to be.
    lost: BTreeMap<String, Lost>,
}

/// A tap that was held no more, though it was to be.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// How often in a row.
    times: u64,
    /// When last, and when that was last told.
    at: Micros,
    told: Micros,
}

/// What is read of taps and reports at one time.
pub struct Reading<'a> {
    /// When.
    pub now: Micros,
    /// What has come in at taps so far, by the number of the VM.
    pub received: &'a BTreeMap<usize, Received>,
    /// What a VM's reports have claimed in its group.
    pub claims: &'a dyn Fn(usize, usize) -> Claims,
}

impl Watches {
    /// Taps that an earlier daemon has left are held on for a while.
    pub fn take_over(&mut self, now: Micros, taps: Vec<String>) {
        for tap in taps {
            self.left.insert(tap.clone());
            self.taken_over.insert(tap, now + TAKEN_OVER_US);
        }
    }

    /// Nobody is watched but for its cap in groups that are not coupled: their flows are granted
    /// nothing, so nothing else tells what they may send.  What is held there for that is to be
    /// let go.
    pub fn rest(
        &mut self,
        now: Micros,
        settings: &Settings,
        uncoupled: impl Iterator<Item = usize>,
    ) {
        self.resting.retain(|_, until| *until > now);
        self.resting.extend(uncoupled.map(|group| (group, now + REST_US)));
        let resting = self.groups.iter_mut().filter(|(group, _)| self.resting.contains_key(group));
        resting.for_each(|(_, watch)| watch.rest(|vm| has_cap(settings, vm)));
    }

    /// Taps to look at, by the number of the VM: none that two VMs name, for what comes in
    /// there is one's, and would be held against the other.
    pub fn taps(&self, settings: &Settings) -> Vec<Look> {
        let doubled = settings.doubled_taps();
        let looks = settings.vms.iter().filter_map(|(number, vm)| {
            let group = self.looked_at_in(settings, *number)?;
            let uplink = settings.groups[group].settings.uplink.clone();
            Some(Look { vm: *number, tap: vm.settings.tap.clone()?, uplink })
        });
        looks.filter(|look| !doubled.contains(look.tap.as_str())).collect()
    }

    /// Takes why taps cannot be looked at.  One that is not there may come back, and its VM stays
    /// judged; by any other nothing was known of a VM.
    pub fn take_unseen(&mut self, unseen: BTreeMap<usize, Unseen>) {
        let misled =
            |vm: &usize| unseen.get(vm).is_some_and(|why| !matches!(why, Unseen::Missing { .. }));
        self.seen_by.retain(|vm, _| !misled(vm));
        self.groups.values_mut().for_each(|watch| watch.retain(|vm| !misled(&vm)));
        self.unseen = unseen;
    }

    /// Why a VM's tap cannot be looked at, if it is to be.
    pub fn unseen(&self, vm: usize) -> Option<&Unseen> {
        self.unseen.get(&vm)
    }

    /// VMs that are to be looked at, and name no tap.
    pub fn without_tap(settings: &Settings) -> impl Iterator<Item = usize> {
        let vms = settings.vms.iter().filter(|(_, vm)| vm.settings.tap.is_none());
        vms.map(|(number, _)| *number).filter(|number| group_of(settings, *number).is_some())
    }

    /// Takes a reading; whose verdict has changed.
    pub fn take(&mut self, settings: &Settings, reading: &Reading<'_>) -> Vec<Judged> {
        let mut seen: BTreeMap<usize, BTreeMap<usize, Seen>> = BTreeMap::new();
        for (number, received) in reading.received {
            let Some(group) = self.watched_in(settings, *number) else { continue };
            let vm = &settings.vms[number];
            if vm.settings.tap.as_ref() != Some(&received.tap) {
                continue;
            }
            let claims = (reading.claims)(*number, group);
            seen.entry(group).or_default().insert(*number, seen_of(vm, received, claims));
        }
        let is_in = |vm, group| group_of(settings, vm) == Some(group);
        self.groups.retain(|group, _| settings.vms.keys().any(|vm| is_in(*vm, *group)));
        // What came in at another tap says nothing of what comes in at this one.
        self.seen_by.retain(|vm, tap| is_tap_of(settings, *vm, tap));
        let seen_by = &self.seen_by;
        let stays = |vm, group| is_in(vm, group) && seen_by.contains_key(&vm);
        self.groups.iter_mut().for_each(|(group, watch)| watch.retain(|vm| stays(vm, *group)));
        let seen_now = seen.values().flat_map(BTreeMap::keys);
        self.seen_by.extend(seen_now.map(|vm| (*vm, reading.received[vm].tap.clone())));
        let mut judged = Vec::new();
        for (group, seen) in seen {
            let watch = self.groups.entry(group).or_default();
            let changed = match self.resting.contains_key(&group) {
                true => watch.period_of_caps(reading.now, &seen),
                false => watch.period(reading.now, &seen),
            };
            judged.extend(changed.into_iter().filter_map(|vm| {
                let watched = watch.vm(vm)?;
                let is_judged = watched.verdict().is_some();
                Some(Judged { vm, group, verdict: *watched.latest()?, is_judged })
            }));
        }
        judged
    }

    /// What has to change at taps for what was found to be in force.
    pub fn holds(&mut self, now: Micros, settings: &Settings) -> Vec<Hold> {
        self.taken_over.retain(|_, until| *until > now);
        self.failed.retain(|_, until| *until > now);
        self.lost.retain(|_, lost| now.saturating_sub(lost.at) < LOSSES_US);
        let wanted = self.wanted(settings);
        let rests = |tap: &String| self.failed.contains_key(tap) || self.parting.contains(tap);
        let stays = |tap: &String| wanted.contains_key(tap) || self.taken_over.contains_key(tap);
        let there: BTreeSet<&String> = self.held.keys().chain(&self.left).collect();
        let gone = there.into_iter().filter(|tap| !stays(tap) && !rests(tap)).cloned();
        let gone: Vec<_> = gone.map(|tap| Hold { tap, rate: None }).collect();
        let changed = wanted.into_iter().filter(|(tap, rate)| {
            let same = |held: &u64| held.abs_diff(*rate) <= rate / SAME_RATE;
            !self.held.get(tap).is_some_and(same) && !rests(tap)
        });
        let changed: Vec<_> = changed.map(|(tap, rate)| Hold { tap, rate: Some(rate) }).collect();
        for Hold { tap, rate } in gone.iter().chain(&changed) {
            match rate {
                Some(rate) => drop(self.held.insert(tap.clone(), *rate)),
                None => drop(self.parting.insert(tap.clone())),
            }
        }
        gone.into_iter().chain(changed).collect()
    }

    /// The group a VM is watched in now, if it is.
    fn watched_in(&self, settings: &Settings, number: usize) -> Option<usize> {
        let rests = |group: &usize| self.resting.contains_key(group);
        group_of(settings, number).filter(|group| !rests(group) || has_cap(settings, number))
    }

    /// The group for which a VM's tap is looked at, if it is: that it can be counts for a queue, too, and
    /// of a VM of several groups, which nobody judges, it is told if it cannot.
    fn looked_at_in(&self, settings: &Settings, number: usize) -> Option<usize> {
        let has_queue = |group: &usize| {
            let group = &settings.groups[*group].settings;
            group.enforce == Enforce::On && group.uplink.is_some()
        };
        if settings.only_group(number).is_none() {
            return enforcing(settings, number).next();
        }
        let watched = self.watched_in(settings, number);
        watched.or_else(|| group_of(settings, number).filter(has_queue))
    }

    /// Taps of VMs that are to be held, and their rates.
    fn wanted(&self, settings: &Settings) -> BTreeMap<String, u64> {
        let on = |group: &usize| settings.groups[*group].settings.enforce == Enforce::On;
        let doubled = settings.doubled_taps();
        let wanted = settings.vms.keys().filter_map(|number| {
            let group = group_of(settings, *number).filter(on)?;
            let watched = self.vm(group, *number)?;
            watched.verdict()?;
            let tap = self.seen_by.get(number).filter(|tap| is_tap_of(settings, *number, tap))?;
            Some((tap.clone(), watched.share()))
        });
        wanted.filter(|(tap, _)| !doubled.contains(tap.as_str())).collect()
    }

    /// Takes what came of a hold; whether it is to be told that it failed.  A tap that could
    /// not be let go is held on, and one that an earlier daemon has left is so until then.
    pub fn take_hold(&mut self, now: Micros, Hold { tap, rate }: &Hold, done: bool) -> bool {
        self.parting.remove(tap);
        if rate.is_none() == done {
            self.held.remove(tap);
        }
        if done {
            self.left.remove(tap);
            self.told.remove(tap);
            return false;
        }
        self.failed.insert(tap.clone(), now + FAILED_US);
        let again = self.told.get(tap).is_none_or(|told| now.saturating_sub(*told) >= TOLD_US);
        if again {
            self.told.insert(tap.clone(), now);
        }
        again
    }

    /// A tap is not held, though it is to be: that is seen to; whether it is to be told.
    pub fn take_lost(&mut self, now: Micros, tap: &str) -> bool {
        self.held.remove(tap);
        let before = self.lost.get(tap).copied();
        let times = before.map_or(0, |before| before.times) + 1;
        let is_often = times > LOSSES;
        if is_often {
            self.failed.insert(tap.to_owned(), now + FAILED_US);
        }
        let is_soon = |before: Lost| now.saturating_sub(before.told) < TOLD_US;
        let told = before.filter(|before| is_often && is_soon(*before)).map(|before| before.told);
        let lost = Lost { times, at: now, told: told.unwrap_or(now) };
        self.lost.insert(tap.to_owned(), lost);
        told.is_none()
    }

    /// What is known of a VM by its tap.
    pub fn vm(&self, group: usize, vm: usize) -> Option<&Watched> {
        self.groups.get(&group)?.vm(vm)
    }

    /// Whether a tap is held, at whatever rate.
    pub fn is_held(&self, tap: &str) -> bool {
        self.held.contains_key(tap) || self.left.contains(tap)
    }

    /// Whether any tap is held, or is to be let go yet.
    pub fn holds_any(&self) -> bool {
        !(self.held.is_empty()
            && self.left.is_empty()
            && self.parting.is_empty()
            && self.failed.is_empty())
    }

    /// Whether a tap is held as an earlier daemon has left it.
    pub fn is_left(&self, tap: &str) -> bool {
        self.left.contains(tap) && !self.held.contains_key(tap)
    }

    /// The rate a tap is held to, bytes a second; none that an earlier daemon chose.
    pub fn held(&self, tap: &str) -> Option<u64> {
        self.held.get(tap).copied()
    }
}

/// The group a VM is watched in while that is coupled, if it is: a tap does not tell which bottleneck bytes go
/// to, so there has to be only one.
fn group_of(settings: &Settings, number: usize) -> Option<usize> {
    let group = settings.only_group(number)?;
    let enforce = settings.groups[group].settings.enforce;
    (enforce != Enforce::Off).then_some(group)
}

/// All groups of a VM that are to do something to those who take what is others'.
pub fn enforcing(settings: &Settings, number: usize) -> impl Iterator<Item = usize> {
    let enforces = |group: &usize| settings.groups[*group].settings.enforce != Enforce::Off;
    settings.groups_of(number).into_iter().filter(enforces)
}

fn is_tap_of(settings: &Settings, number: usize, tap: &str) -> bool {
    settings.vms.get(&number).is_some_and(|vm| vm.settings.tap.as_deref() == Some(tap))
}

fn has_cap(settings: &Settings, number: usize) -> bool {
    settings.vms.get(&number).is_some_and(|vm| vm.settings.cap_mbit.is_some())
}

fn seen_of(vm: &Vm, received: &Received, claims: Claims) -> Seen {
    Seen {
        at: received.at,
        interface: received.counter.interface,
        received_bytes: received.counter.bytes,
        claims,
        weight: (vm.settings.weight * 256.0).max(1.0) as u32,
        floor: bytes_of_mbit(vm.settings.floor_mbit),
        cap: vm.settings.cap_mbit.map(bytes_of_mbit),
    }
}

#[cfg(test)]
mod tests;
