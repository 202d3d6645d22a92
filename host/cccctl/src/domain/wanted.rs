// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What of ours is in a domain's metadata.
use std::path::{Path, PathBuf};

use thiserror::Error;
use xot::Xot;

use super::xml::XmlError;
use crate::args;

/// Where the daemon listens for VMs: a directory that QEMU may enter, and in which
/// there is nothing else.
const SOCKETS: &str = "/run/ccc/vm";

/// Longest path a Unix socket can have (`sun_path`).
pub const SOCKET_PATH_MAX: usize = 107;
/// What paths of sockets have to be.
pub const SOCKET_PATH: &str = "an absolute path of at most 107 bytes, without `.`, `..`, empty \
                               parts and control characters";

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
    /// An attribute nobody knows.
    #[error("unknown attribute {key}={value:?} of <vm>: it has group, weight, socket and coupled")]
    Attribute {
        /// Its name.
        key: String,
        /// Its value.
        value: String,
    },
    /// An element nobody knows.
    #[error("unknown element <{0}> of ours: there is one <vm>, with nothing in it")]
    Element(String),
    /// Which one?
    #[error("{0} elements <vm> of ours: only one is allowed")]
    Several(usize),
    /// A weight that is none.
    #[error("weight={0:?} is no weight: a number from 0.01 to 1000, with a point")]
    Weight(String),
    /// Neither.
    #[error("coupled={0:?} is neither on nor off")]
    Switch(String),
    /// Nobody can listen there.
    #[error("socket={0:?} is no place for a socket: {SOCKET_PATH}")]
    Socket(String),
}

/// What a domain's metadata say of its coupling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Its group; the daemon's default group if it names none.
    pub group: Option<String>,
    /// Its weight, if it has one.
    pub weight: Option<f64>,
    /// Where the daemon listens for it, if it is not the usual place.
    pub socket: Option<PathBuf>,
    /// Whether its flows are coupled; they are if it does not say.
    pub coupled: Option<bool>,
}

impl Wanted {
    /// What the attributes of an element say.
    pub fn read(attributes: &[(String, String)]) -> Result<Wanted, WantedError> {
        let mut wanted = Wanted::default();
        for (key, value) in attributes {
            match key.as_str() {
                "group" => wanted.group = Some(value.clone()),
                "weight" => wanted.weight = Some(weight(value)?),
                "socket" => wanted.socket = Some(socket(value)?),
                "coupled" => wanted.coupled = Some(switch(value)?),
                _ => {
                    let (key, value) = (key.clone(), value.clone());
                    return Err(WantedError::Attribute { key, value });
                }
            }
        }
        Ok(wanted)
    }

    /// Where the daemon listens for a domain.
    pub fn socket(&self, domain: &str) -> PathBuf {
        let usual = || Path::new(SOCKETS).join(format!("{domain}.sock"));
        self.socket.clone().unwrap_or_else(usual)
    }

    /// The attributes of its element.
    pub fn attributes(&self) -> Vec<(&'static str, String)> {
        let group = self.group.clone().map(|group| ("group", group));
        let weight = self.weight.map(|weight| ("weight", weight.to_string()));
        let socket = self.socket.as_ref().map(|path| ("socket", path.display().to_string()));
        let coupled = self.coupled.map(|on| ("coupled", if on { "on" } else { "off" }.to_owned()));
        [group, weight, socket, coupled].into_iter().flatten().collect()
    }

    /// The element as `virsh metadata` takes it.
    pub fn element(&self) -> Result<String, XmlError> {
        element(WANTED, self.attributes())
    }
}

/// Where the device is in a domain that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The bus's name in QEMU.
    pub bus: String,
    /// The slot, on a bus that has several.
    pub slot: Option<String>,
}

/// What became of the device while the domain ran.
#[derive(Clone, Debug, PartialEq)]
pub enum Plugged {
    /// It was plugged in.
    At(Place),
    /// It was unplugged.
    Nowhere,
}

impl Plugged {
    /// The element as `virsh metadata` takes it.
    pub fn element(&self) -> Result<String, XmlError> {
        let Plugged::At(place) = self else { return element(PLUGGED, []) };
        let slot = place.slot.clone().map(|slot| ("slot", slot));
        element(PLUGGED, [("bus", place.bus.clone())].into_iter().chain(slot))
    }
}

fn element(
    kind: Kind,
    attributes: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<String, XmlError> {
    let mut xot = Xot::new();
    let name = xot.add_name(kind.name);
    let element = xot.new_element(name);
    for (key, value) in attributes {
        let key = xot.add_name(key);
        xot.set_attribute(element, key, value);
    }
    Ok(xot.to_string(element)?)
}

fn weight(text: &str) -> Result<f64, WantedError> {
    args::weight(text).map_err(|_| WantedError::Weight(text.to_owned()))
}

fn socket(text: &str) -> Result<PathBuf, WantedError> {
    if is_socket(text) {
        Ok(PathBuf::from(text))
    } else {
        Err(WantedError::Socket(text.to_owned()))
    }
}

/// The daemon takes this for the path of a socket.  It goes down only, so that two that
/// differ are two places, and makes one line of a log.
pub fn is_socket(path: &str) -> bool {
    path.len() <= SOCKET_PATH_MAX
        && !path.chars().any(char::is_control)
        && path
            .strip_prefix('/')
            .is_some_and(|path| path.split('/').all(|step| !matches!(step, "" | "." | "..")))
}

fn switch(text: &str) -> Result<bool, WantedError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(WantedError::Switch(text.to_owned())),
    }
}
