// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What VMs send, flow by flow, by a BPF program at their taps, beside the flows that they have
//! reported: which flow makes a VM take what is others'.
//!
//! Of this program, and not of the daemon, so that the daemon stays without rights.  Each look takes
//! what was counted since the one before.  Flows are found in slots by their addresses and ports.
mod account;
mod flow;
mod reported;
mod socket;
mod tap;
mod view;

use std::{
    collections::BTreeMap,
    io::Write,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use self::{
    account::Account,
    reported::{Reported, Vm},
    tap::Tap,
};

/// How soon it is seen that this is to end.
const TURN: Duration = Duration::from_millis(100);

/// What is looked at, and how often.
#[derive(Clone, Debug)]
pub struct Looks {
    /// The daemon's control socket.
    pub control: PathBuf,
    /// VMs by their names; all that have a tap if none is named.
    pub vms: Vec<String>,
    /// Time between two looks.
    pub interval: Duration,
    /// How many looks; until it is told to end if `None`.
    pub count: Option<u32>,
    /// Flows told of each VM.
    pub top: usize,
    /// As JSON, a line each look.
    pub json: bool,
}

/// A VM that is looked at.
#[derive(Debug)]
struct Looked {
    tap: Tap,
    /// What it had reported at the look before.
    before: Reported,
}

/// Looks at taps until it is told to end; nothing of it is left then.
pub fn run(looks: &Looks, stop: &Arc<AtomicBool>, to: &mut impl Write) -> Result<()> {
    let mut looked = BTreeMap::new();
    begin(looks, &mut looked)?;
    if looked.is_empty() {
        bail!("no VM has a tap that is there; cccctl list has their names, ip link those that are");
    }
    let mut left = looks.count;
    while left != Some(0) && wait(looks.interval, stop) {
        let accounts = look(looks, &mut looked)?;
        match looks.json {
            true => writeln!(to, "{}", view::json(&accounts))?,
            false => write!(to, "{}", view::text(&accounts))?,
        }
        to.flush()?;
        begin(looks, &mut looked)?;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Whether it goes on after that time.
fn wait(interval: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + interval;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(TURN));
    }
    false
}

/// Begins to count at taps that have come, or have come anew, and ends where they have gone.
fn begin(looks: &Looks, looked: &mut BTreeMap<String, Looked>) -> Result<()> {
    let vms = wanted(looks)?;
    looked.retain(|name, of| {
        let vm = vms.iter().find(|vm| vm.name == *name);
        vm.is_some_and(|vm| of.tap.is(&vm.tap))
    });
    let is_new = |vm: &Vm| !looked.contains_key(&vm.name) && tap::is_there(&vm.tap);
    let new: Vec<Vm> = vms.into_iter().filter(is_new).collect();
    for vm in new {
        let tap = Tap::open(&vm.tap)
            .with_context(|| format!("cannot count at the tap {} of {}", vm.tap, vm.name))?;
        let before = reported::of(&looks.control, &vm.name)?;
        looked.insert(vm.name, Looked { tap, before });
    }
    Ok(())
}

/// VMs that are to be looked at; an error if one of those named is not there, or has no tap.
fn wanted(looks: &Looks) -> Result<Vec<Vm>> {
    let mut vms = reported::vms(&looks.control)
        .with_context(|| format!("cannot ask {}", looks.control.display()))?;
    if looks.vms.is_empty() {
        return Ok(vms);
    }
    if let Some(name) = looks.vms.iter().find(|name| !vms.iter().any(|vm| vm.name == **name)) {
        bail!(
            "{name} is no VM with a tap; cccctl list has them, cccctl set {name} --tap INTERFACE names one"
        );
    }
    vms.retain(|vm| looks.vms.contains(&vm.name));
    Ok(vms)
}

/// What has come in since the look before.  What is counted is read before what is reported: a
/// flow that has just begun has a slot by then.
fn look(looks: &Looks, looked: &mut BTreeMap<String, Looked>) -> Result<Vec<Account>> {
    let mut accounts = Vec::new();
    let vms = wanted(looks)?;
    for vm in vms.into_iter() {
        let Some(of) = looked.get_mut(&vm.name) else { continue };
        let counted =
            of.tap.take().with_context(|| format!("cannot read what came in at {}", vm.tap))?;
        let now = reported::of(&looks.control, &vm.name)?;
        accounts.push(Account::new(&vm, counted, &of.before, &now, looks.top));
        of.before = now;
    }
    Ok(accounts)
}
