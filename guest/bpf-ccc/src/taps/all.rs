// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! All taps that are looked at: which these are, and what is told of each.
//!
//! VMs come and go between one question to the daemon and the next, and the daemon itself may: what
//! fails of one VM is told of that one, and tried again at the next look.
use std::{collections::BTreeMap, io};

use anyhow::{Context, Error, Result, bail};

use super::{
    Looks,
    account::Account,
    reported::{self, Reported, Vm},
    tap::{self, Counted, Tap},
};
use crate::{daemon::Silent, hopeless::Hopeless};

/// What one look tells.
#[derive(Debug, Default)]
pub struct Told {
    /// What VMs have sent.
    pub accounts: Vec<Account>,
    /// Of whom that is not known.
    pub faults: Vec<Fault>,
}

/// Why there is no account of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The VM.
    pub vm: String,
    /// Why.
    pub why: String,
}

impl Fault {
    fn new(vm: &str, error: &Error) -> Fault {
        Fault { vm: vm.to_owned(), why: format!("{error:#}") }
    }

    /// That of a VM which the daemon was not asked for, since it fell silent before.
    fn not_asked(vm: &str) -> Fault {
        let why = format!("{}; it is asked again at the next look", Silent::Mute);
        Fault { vm: vm.to_owned(), why }
    }
}

/// A VM that is looked at.
#[derive(Debug)]
struct Looked {
    tap: Tap,
    /// What it had reported at the look before.
    before: Reported,
    /// What was counted since, at looks for which the daemon told nothing of it.
    counted: Counted,
}

impl Looked {
    fn begin(looks: &Looks, vm: &Vm) -> Result<Looked> {
        let tap = Tap::open(&vm.tap)
            .with_context(|| format!("cannot count at the tap {} of {}", vm.tap, vm.name))?;
        let before = reported::of(&looks.control, &vm.name)?;
        Ok(Looked { tap, before, counted: Counted::default() })
    }

    /// What is counted is read before what is reported: a flow that has just begun has a slot by
    /// then.
    fn account(&mut self, looks: &Looks, vm: &Vm) -> Result<Account> {
        let counted = self.tap.take();
        self.counted.add(counted.with_context(|| format!("cannot read the counts of {}", vm.tap))?);
        let now = reported::of(&looks.control, &vm.name)?;
        let counted = std::mem::take(&mut self.counted);
        let account = Account::new(vm, counted, &self.before, &now, looks.top);
        self.before = now;
        Ok(account)
    }
}

/// All VMs that are looked at, by their names.
#[derive(Debug)]
pub struct Taps(BTreeMap<String, Looked>);

impl Taps {
    /// Begins to count; an error if there is nobody to look at, or one is named who has no tap.
    pub fn begin(looks: &Looks) -> Result<Taps> {
        let vms = wanted(looks)?;
        if let Some(Fault { why, .. }) = without_tap(looks, &vms).next() {
            bail!(why);
        }
        let mut taps = Taps(BTreeMap::new());
        let faults = taps.follow(looks, &vms, &mut false)?;
        match faults.first() {
            _ if !taps.0.is_empty() => Ok(taps),
            Some(Fault { why, .. }) => bail!(why.clone()),
            None => bail!(
                "no VM has a tap that is there; cccctl list has their names, ip link those that are"
            ),
        }
    }

    /// What has come in since the look before; an error if no other look mends it, or the daemon
    /// does not say which VMs there are.
    pub fn look(&mut self, looks: &Looks) -> Result<Told> {
        let vms = wanted(looks)?;
        let (mut told, mut is_silent) = (Told::default(), false);
        self.account(looks, &vms, &mut told, &mut is_silent);
        told.faults.extend(self.follow(looks, &vms, &mut is_silent)?);
        told.faults.extend(without_tap(looks, &vms));
        Ok(told)
    }

    /// Of those that are looked at; where the daemon falls silent the others have to wait for the
    /// next look.
    fn account(&mut self, looks: &Looks, vms: &[Vm], told: &mut Told, is_silent: &mut bool) {
        for vm in vms {
            let Some(looked) = self.0.get_mut(&vm.name) else { continue };
            if *is_silent {
                told.faults.push(Fault::not_asked(&vm.name));
                continue;
            }
            match looked.account(looks, vm) {
                Ok(account) => told.accounts.push(account),
                Err(error) => {
                    told.faults.push(Fault::new(&vm.name, &error));
                    *is_silent = error.is::<Silent>();
                }
            }
        }
    }

    /// Begins to count at taps that have come, or have come anew, and ends where they have gone.
    fn follow(&mut self, looks: &Looks, vms: &[Vm], is_silent: &mut bool) -> Result<Vec<Fault>> {
        self.0.retain(|name, of| {
            let vm = vms.iter().find(|vm| vm.name == *name);
            vm.is_some_and(|vm| of.tap.is(&vm.tap))
        });
        let mut faults = Vec::new();
        for vm in vms {
            if self.0.contains_key(&vm.name) {
                continue;
            }
            if *is_silent {
                // As below, of one that does not run.
                let is_meant = !looks.vms.is_empty() || tap::is_there(&vm.tap);
                faults.extend(is_meant.then(|| Fault::not_asked(&vm.name)));
                continue;
            }
            match Looked::begin(looks, vm) {
                Ok(looked) => {
                    self.0.insert(vm.name.clone(), looked);
                }
                Err(error) if error.is::<Hopeless>() => return Err(error),
                // A VM that does not run; who asks for all does not mean those.
                Err(error) if is_absent(&error) && looks.vms.is_empty() => {}
                Err(error) => {
                    faults.push(Fault::new(&vm.name, &error));
                    *is_silent = error.is::<Silent>();
                }
            }
        }
        Ok(faults)
    }
}

/// VMs that are to be looked at.
fn wanted(looks: &Looks) -> Result<Vec<Vm>> {
    let mut vms = reported::vms(&looks.control)
        .with_context(|| format!("cannot ask {}", looks.control.display()))?;
    vms.retain(|vm| looks.vms.is_empty() || looks.vms.contains(&vm.name));
    Ok(vms)
}

/// Who is named and has no tap, or is not there.
fn without_tap<'a>(looks: &'a Looks, vms: &'a [Vm]) -> impl Iterator<Item = Fault> + use<'a> {
    let without = looks.vms.iter().filter(|name| !vms.iter().any(|vm| vm.name == **name));
    without.map(|name| Fault {
        vm: name.clone(),
        why: format!(
            "{name} is no VM with a tap; cccctl list has them, cccctl set {name} --tap INTERFACE names one"
        ),
    })
}

/// Whether there is no such interface, or not any more.
fn is_absent(error: &Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.raw_os_error() == Some(libc::ENODEV))
}
