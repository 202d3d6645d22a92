// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device of a running domain.
use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    DomainError,
    virsh::{DomainId, Virsh, VirshError},
    wanted::Address,
    xml::{DEVICE_ID, DEVICE_SLOT, Domain, device, free_slot},
};

/// A guest that runs lets go of a device sooner.
const PATIENCE: Duration = Duration::from_secs(30);

/// The running domain has the device.
pub fn is_there(virsh: &Virsh, domain: &DomainId) -> Result<bool, VirshError> {
    let devices = virsh.qemu(domain, "qom-list", json!({"path": "/machine/peripheral"}))?;
    Ok(items(&devices).any(|device| device["name"] == DEVICE_ID))
}

/// Plugs the device in; where.  What is there of it after a failure is to be
/// unplugged.
pub fn plug(
    virsh: &Virsh,
    running: &Domain,
    id: &DomainId,
    socket: &Path,
) -> Result<Address, DomainError> {
    if !running.shares_memory() {
        return Err(DomainError::MemoryNotShared(id.name.clone()));
    }
    let buses = virsh.qemu(id, "query-pci", json!({}))?;
    let devices: Vec<&Value> = items(&buses).flat_map(|bus| items(&bus["devices"])).collect();
    let address = if running.is_express() { free_port(&devices) } else { free_address(&devices) };
    let address = address.ok_or_else(|| DomainError::NoAddress(id.name.clone()))?;
    let socket = json!({"type": "unix", "data": {"path": socket}});
    let backend = json!({"addr": socket, "server": false, "reconnect-ms": 100});
    let chardev = json!({"id": DEVICE_ID, "backend": {"type": "socket", "data": backend}});
    virsh.qemu(id, "chardev-add", chardev)?;
    virsh.qemu(id, "device_add", device(&address))?;
    Ok(address)
}

/// Unplugs the device, and waits until the guest has let go of it.
pub fn unplug(virsh: &Virsh, id: &DomainId) -> Result<(), DomainError> {
    if is_there(virsh, id)? {
        virsh.qemu(id, "device_del", json!({"id": DEVICE_ID}))?;
        let asked = Instant::now();
        while is_there(virsh, id)? {
            if asked.elapsed() > PATIENCE {
                return Err(DomainError::GuestKeeps(id.name.clone()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let chardevs = virsh.qemu(id, "query-chardev", json!({}))?;
    if items(&chardevs).any(|chardev| chardev["label"] == DEVICE_ID) {
        virsh.qemu(id, "chardev-remove", json!({"id": DEVICE_ID}))?;
    }
    Ok(())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A port with nothing behind it: the last one, since libvirt takes the first.
fn free_port(devices: &[&Value]) -> Option<Address> {
    let last = devices.iter().rfind(|device| is_free(device) && device["qdev_id"].is_string())?;
    Some(Address { bus: last["qdev_id"].as_str()?.to_owned(), slot: None })
}

fn is_free(device: &Value) -> bool {
    let bridge = &device["pci_bridge"];
    !bridge.is_null() && items(&bridge["devices"]).next().is_none()
}

/// A slot with nothing in it.
fn free_address(devices: &[&Value]) -> Option<Address> {
    let taken: Vec<u64> = devices.iter().filter_map(|device| device["slot"].as_u64()).collect();
    let slot = free_slot(DEVICE_SLOT, &taken)?;
    Some(Address { bus: "pci.0".to_owned(), slot: Some(format!("{slot:#x}")) })
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

    #[test]
    fn the_last_free_one_is_taken() {
        let (first, second) = (json!({"qdev_id": "p1", "pci_bridge": {}}), json!({"slot": 0x1e}));
        let port = free_port(&[&first, &second]).expect("free");
        assert_eq!((port.bus.as_str(), port.slot), ("p1", None));
        let slot = free_address(&[&first, &second]).expect("free");
        assert_eq!((slot.bus.as_str(), slot.slot.as_deref()), ("pci.0", Some("0x1d")));
        assert!(free_port(&[&second]).is_none());
    }
}
