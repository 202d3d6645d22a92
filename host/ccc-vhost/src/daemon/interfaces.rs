// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a configuration says of interfaces, and what is not so on this host now.
use std::{collections::BTreeMap, io};

use crate::{
    settings::{Settings, Vm},
    tap::{
        host::Unseen,
        link::{self, Link, names_of_one},
    },
};

/// Taps and uplinks that are not there, or cannot be what they are to be, and one interface that
/// two VMs or two groups have.
pub fn warnings(settings: &Settings) -> Vec<String> {
    [of_taps(settings), of_uplinks(settings)].concat()
}

fn of_taps(settings: &Settings) -> Vec<String> {
    let mut there = Vec::new();
    let mut unseen = Vec::new();
    for vm in settings.vms.values() {
        let Some(tap) = vm.settings.tap.as_deref() else { continue };
        match index_of_tap(settings, vm, tap) {
            Ok(Some(index)) => there.push((vm, tap, index)),
            Ok(None) => {}
            Err(why) => unseen.push((vm, why)),
        }
    }
    let shared = names_of_one(there.iter().map(|(_, tap, index)| (*tap, *index)));
    unseen.extend(there.iter().filter_map(|(vm, tap, _)| {
        let (tap, other) = ((*tap).to_owned(), (*shared.get(tap)?).to_owned());
        Some((*vm, Unseen::Shared { tap, other }))
    }));
    let told = unseen.into_iter().map(|(vm, why)| match why {
        Unseen::Missing { .. } => format!("VM {}: {why} now: nobody looks at it", vm.name),
        _ => format!("VM {}: {why}: nobody looks at it", vm.name),
    });
    told.collect()
}

/// The index of a VM's tap, if it can be one, and the kernel says.
fn index_of_tap(settings: &Settings, vm: &Vm, tap: &str) -> Result<Option<u32>, Unseen> {
    if is_absent(tap) {
        return Err(Unseen::Missing { tap: tap.to_owned() });
    }
    let Ok(link) = Link::named(tap) else { return Ok(None) };
    let index = link.as_tap(tap)?;
    let uplink = vm.group().and_then(|group| settings.groups[group].settings.uplink.clone());
    let is_it = |uplink: &String| Link::named(uplink).is_ok_and(|link| link.index == index);
    let uplink = uplink.filter(is_it);
    uplink.map_or(Ok(Some(index)), |uplink| Err(Unseen::Uplink { tap: tap.to_owned(), uplink }))
}

fn of_uplinks(settings: &Settings) -> Vec<String> {
    let (mut gone, mut shared) = (Vec::new(), Vec::new());
    let mut known = BTreeMap::new();
    for group in &settings.groups {
        let (name, Some(uplink)) = (&group.name, &group.settings.uplink) else { continue };
        if is_absent(uplink) {
            gone.push(format!(
                "group {name}: its uplink {uplink} is not there now: VMs have no queues at it"
            ));
        }
        let Ok(link) = Link::named(uplink) else { continue };
        if link.is_bridge() {
            gone.push(format!(
                "group {name}: its uplink {uplink} is a bridge, and VMs have no queues at it: {}",
                link::BRIDGE_REMEDY
            ));
        }
        if let Some((other, others)) = known.insert(link.index, (name, uplink)) {
            shared.push(format!(
                "groups {other} and {name} have one uplink, for {others} and {uplink} are names of one \
                 interface, and that has one tree of queues: put VMs that share it into one group"
            ));
        }
    }
    [gone, shared].concat()
}

/// Where the kernel does not say, it is there for all one knows.
fn is_absent(interface: &str) -> bool {
    let absent = |error: io::Error| error.raw_os_error() == Some(libc::ENODEV);
    Link::named(interface).err().is_some_and(absent)
}
