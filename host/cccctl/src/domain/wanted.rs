// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What of ours is in a domain's metadata.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ccc_settings::{Changes, Fault, NO_GROUP, SocketPath, VmSettings, VmSpec};
use serde_json::json;
use thiserror::Error;

/// Where the daemon listens for VMs: a directory that QEMU may enter, and in which
/// there is nothing else.
const SOCKETS: &str = "/run/ccc/vm";

/// An element of ours in a domain's metadata.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its namespace.
    pub uri: &'static str,
    /// Its prefix.
    pub key: &'static str,
    /// Its local name.
    pub name: &'static str,
}

/// What an operator wants of the domain's coupling.
pub const WANTED: Kind = Kind { uri: "urn:ccc:vm:1", key: "ccc", name: "vm" };
/// Where the device is since it was plugged in or out, of which libvirt knows
/// nothing.  Apart from what operators write, who would write over it.
pub const PLUGGED: Kind = Kind { uri: "urn:ccc:plugged:1", key: "ccc-plugged", name: "device" };

/// Why metadata make no sense.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WantedError {
    /// An attribute is wrong.
    #[error("<vm>: {0}")]
    Attribute(#[from] Fault),
    /// An element nobody knows.
    #[error("invalid element: expected one <vm> with nothing in it, got <{0}>")]
    Element(String),
    /// Which one?
    #[error("invalid elements: expected one <vm>, got {0}")]
    Several(usize),
}

/// What a domain's metadata say of its coupling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Where the daemon listens for it, if it is not the usual place.
    pub socket: Option<SocketPath>,
    /// What they say of the VM's settings.
    pub settings: Changes<VmSettings>,
}

impl Wanted {
    /// What the attributes of an element say.
    pub fn read(attributes: &[(String, String)]) -> Result<Wanted, WantedError> {
        let mut wanted = Wanted::default();
        for (key, value) in attributes {
            if key == "socket" {
                wanted.socket = Some(SocketPath::read(key, Some(json!(value)))?);
            } else {
                wanted.settings.set_text(key, value).map_err(VmSpec::or_socket)?;
            }
        }
        wanted.check()?;
        Ok(wanted)
    }

    /// Makes sure that the settings go together.
    pub fn check(&self) -> Result<(), WantedError> {
        Ok(self.settings.apply(&VmSettings::default()).check()?)
    }

    /// The domain is to be a tenant without the device.
    pub fn is_tenant(&self) -> bool {
        self.settings.apply(&VmSettings::default()).tenant.is_some()
    }

    /// Where the daemon listens for a domain.
    pub fn socket(&self, domain: &str) -> PathBuf {
        let usual = || Path::new(SOCKETS).join(format!("{domain}.sock"));
        self.socket.as_ref().map_or_else(usual, |socket| socket.to_path_buf())
    }

    /// The attributes of its element, in one order whoever wrote them.
    pub fn attributes(&self) -> BTreeMap<&str, String> {
        let socket = self.socket.as_ref().map(|path| ("socket", path.display().to_string()));
        // Left out it is none, too, and an older release knows no caps.
        let is_no_cap = |(name, text): &(&str, String)| *name == "cap_mbit" && text == NO_GROUP;
        self.settings.texts().filter(|said| !is_no_cap(said)).chain(socket).collect()
    }
}

/// Where the device is in a domain that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// The bus's name in QEMU.
    pub bus: String,
    /// The slot, on a bus that has several.
    pub slot: Option<String>,
}

/// What became of the device while the domain ran.
#[derive(Clone, Debug, PartialEq)]
pub enum Plugged {
    /// It was plugged in.
    At(Address),
    /// It was unplugged.
    Nowhere,
}
