// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a configuration says of interfaces, and what is not so on this host now.
use std::collections::BTreeMap;

use rustix::{
    io::{self, Errno},
    net::{AddressFamily, SocketType, netdevice::name_to_index, socket},
};

use crate::settings::Settings;

/// Taps and uplinks that are not there, and an uplink that two groups have.
pub fn warnings(settings: &Settings) -> Vec<String> {
    let taps = settings.vms.values().filter_map(|vm| {
        let tap = vm.settings.tap.as_deref().filter(|tap| is_absent(tap))?;
        Some(format!("VM {}: its tap {tap} is not there now: nobody looks at it", vm.name))
    });
    let (mut gone, mut shared) = (Vec::new(), Vec::new());
    let mut known = BTreeMap::new();
    for group in &settings.groups {
        let (name, Some(uplink)) = (&group.name, &group.settings.uplink) else { continue };
        if is_absent(uplink) {
            gone.push(format!(
                "group {name}: its uplink {uplink} is not there now: VMs have no queues at it"
            ));
        }
        let Ok(index) = index(uplink) else { continue };
        if let Some((other, others)) = known.insert(index, (name, uplink)) {
            shared.push(format!(
                "groups {other} and {name} have one uplink, for {others} and {uplink} are names of one \
                 interface, and that has one tree of queues: put VMs that share it into one group"
            ));
        }
    }
    taps.chain(gone).chain(shared).collect()
}

/// Where the kernel does not say, it is there for all one knows.
fn is_absent(interface: &str) -> bool {
    index(interface) == Err(Errno::NODEV)
}

/// The kernel's number of an interface, by any of its names.
fn index(interface: &str) -> io::Result<u32> {
    name_to_index(socket(AddressFamily::UNIX, SocketType::DGRAM, None)?, interface)
}
