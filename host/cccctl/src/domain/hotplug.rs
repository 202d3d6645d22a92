// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device of a running domain.
use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    DomainError,
    virsh::{Virsh, VirshError},
    xml::{DEVICE_ID, Domain},
};

/// A guest that runs lets go of a device sooner.
const PATIENCE: Duration = Duration::from_secs(30);

/// The running domain has the device.
pub fn is_there(virsh: &Virsh, domain: &str) -> Result<bool, VirshError> {
    let devices = virsh.qemu(domain, "qom-list", json!({"path": "/machine/peripheral"}))?;
    Ok(devices.as_array().into_iter().flatten().any(|device| device["name"] == DEVICE_ID))
}

/// Plugs the device in.  What is there of it after a failure is to be unplugged.
pub fn plug(virsh: &Virsh, running: &Domain, name: &str, socket: &Path) -> Result<(), DomainError> {
    if !running.shares_memory() {
        return Err(DomainError::MemoryNotShared(name.to_owned()));
    }
    let bus = if running.is_express() { free_port(virsh, name)? } else { "pci.0".to_owned() };
    let address = json!({"type": "unix", "data": {"path": socket}});
    let backend = json!({"addr": address, "server": false, "reconnect-ms": 100});
    let chardev = json!({"id": DEVICE_ID, "backend": {"type": "socket", "data": backend}});
    virsh.qemu(name, "chardev-add", chardev)?;
    let device =
        json!({"driver": "vhost-user-ccc-pci", "id": DEVICE_ID, "chardev": DEVICE_ID, "bus": bus});
    virsh.qemu(name, "device_add", device)?;
    Ok(())
}

/// Unplugs the device, and waits until the guest has let go of it.
pub fn unplug(virsh: &Virsh, name: &str) -> Result<(), DomainError> {
    if is_there(virsh, name)? {
        virsh.qemu(name, "device_del", json!({"id": DEVICE_ID}))?;
        let asked = Instant::now();
        while is_there(virsh, name)? {
            if asked.elapsed() > PATIENCE {
                return Err(DomainError::GuestKeeps(name.to_owned()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let chardevs = virsh.qemu(name, "query-chardev", json!({}))?;
    if chardevs.as_array().into_iter().flatten().any(|chardev| chardev["label"] == DEVICE_ID) {
        virsh.qemu(name, "chardev-remove", json!({"id": DEVICE_ID}))?;
    }
    Ok(())
}

/// A port with nothing behind it: the last one, since libvirt takes the first.
fn free_port(virsh: &Virsh, name: &str) -> Result<String, DomainError> {
    let buses = virsh.qemu(name, "query-pci", json!({}))?;
    let devices = buses.as_array().into_iter().flatten();
    let devices = devices.flat_map(|bus| bus["devices"].as_array().into_iter().flatten());
    let free = devices.filter(|device| is_free(device));
    let mut free = free.filter_map(|port| port["qdev_id"].as_str());
    let last = free.next_back().ok_or_else(|| DomainError::NoPort(name.to_owned()))?;
    Ok(last.to_owned())
}

fn is_free(device: &Value) -> bool {
    let bridge = &device["pci_bridge"];
    !bridge.is_null() && bridge["devices"].as_array().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_free_if_nothing_is_behind_it() {
        assert!(is_free(&json!({"qdev_id": "p", "pci_bridge": {"bus": {"number": 1}}})));
        assert!(is_free(&json!({"qdev_id": "p", "pci_bridge": {"devices": []}})));
        assert!(!is_free(&json!({"qdev_id": "p", "pci_bridge": {"devices": [{}]}})));
        assert!(!is_free(&json!({"qdev_id": "nic"})));
    }
}
