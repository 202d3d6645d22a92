// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Interfaces of this host by their names, and which of them can be a VM's tap or a group's uplink.
use std::{collections::BTreeMap, io};

use super::{
    host::Unseen,
    netlink::{Socket, Writer, kind, u32_at},
    requests::{
        ATTRIBUTE_LINK_INFO, ATTRIBUTE_NAME, ATTRIBUTE_PROPERTIES, FURTHER_NAME, INFO_KIND,
        LINK_BYTES, attribute, word, word_among, words_among,
    },
};

/// Kinds that stand in the host for the VM's own end: they count and filter as come in what the VM
/// receives, and what it sends leaves by the interface below.
const AT_THE_VMS_END: [&str; 4] = ["macvtap", "macvlan", "ipvtap", "ipvlan"];

/// What to name as an uplink in place of a bridge: what VMs at its ports send leaves by another
/// port, and waits there.
pub const BRIDGE_REMEDY: &str = "what its ports send each other does not pass it: name the port by which VMs \
                                 leave the host (ip link show master BRIDGE)";

/// An interface.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// What it is, where the kernel has a word for that.
    kind: Option<String>,
    /// All of its names.
    names: Vec<String>,
}

impl Link {
    /// The one that has a name in this process's network namespace, whichever of its names that is.
    pub fn named(name: &str) -> io::Result<Link> {
        Link::ask(&mut Socket::open()?, name)
    }

    /// The same, by a socket that is there.
    pub fn ask(socket: &mut Socket, name: &str) -> io::Result<Link> {
        let request = Writer::default().put(&[0; LINK_BYTES]).word(ATTRIBUTE_NAME, name);
        let answer = socket.ask(kind::GET_LINK, 0, &request)?;
        Link::told(answer.first().map(Vec::as_slice).unwrap_or_default())
    }

    /// What the kernel tells of one.
    pub fn told(body: &[u8]) -> io::Result<Link> {
        let index = u32_at(body, 4).ok_or(io::ErrorKind::InvalidData)?;
        let info = attribute(body, ATTRIBUTE_LINK_INFO).unwrap_or_default();
        let properties = attribute(body, ATTRIBUTE_PROPERTIES).unwrap_or_default();
        let further = words_among(properties, FURTHER_NAME);
        let names = word(body, ATTRIBUTE_NAME).into_iter().chain(further).map(str::to_owned);
        let kind = word_among(info, INFO_KIND).map(str::to_owned);
        Ok(Link { index, kind, names: names.collect() })
    }

    /// Whether that is one of its names.
    pub fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Its names but for that one.
    pub fn names_beside(&self, name: &str) -> Vec<String> {
        self.names.iter().filter(|other| *other != name).cloned().collect()
    }

    /// Whether it is a bridge, which no packet passes that its ports send each other.
    pub fn is_bridge(&self) -> bool {
        self.kind.as_deref() == Some("bridge")
    }

    /// Its index, if what comes in there is what a VM sends.
    pub fn as_tap(&self, tap: &str) -> Result<u32, Unseen> {
        let kind = self.kind.as_ref().filter(|kind| AT_THE_VMS_END.contains(&kind.as_str()));
        let backwards = |kind: &String| Unseen::Backwards { tap: tap.into(), kind: kind.clone() };
        kind.map_or(Ok(self.index), |kind| Err(backwards(kind)))
    }
}

/// Names of one interface, each with another of them.
pub fn names_of_one<'a>(named: impl Iterator<Item = (&'a str, u32)>) -> BTreeMap<&'a str, &'a str> {
    let mut interfaces: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    named.for_each(|(name, index)| interfaces.entry(index).or_default().push(name));
    let others = |names: Vec<&'a str>| {
        let pairs = names.clone().into_iter().zip(names.into_iter().cycle().skip(1));
        pairs.filter(|(name, other)| name != other)
    };
    interfaces.into_values().flat_map(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_known_by_its_kind() {
        let link = |kind: &str| {
            let info = Writer::default().word(INFO_KIND, kind);
            let body = Writer::default().put(&[0; LINK_BYTES]).word(ATTRIBUTE_NAME, "br0");
            Link::told(&body.nest(ATTRIBUTE_LINK_INFO, info).into_bytes()).expect("a link")
        };
        assert!(link("bridge").is_bridge() && !link("bridge_slave").is_bridge());
        assert!(!Link::told(&[0; LINK_BYTES]).expect("a link").is_bridge());
        assert!(Link::told(&[]).is_err());
    }

    #[test]
    fn a_link_has_further_names() {
        let further = Writer::default().word(FURTHER_NAME, "also0").word(FURTHER_NAME, "third0");
        let body = Writer::default().put(&[0; LINK_BYTES]).word(ATTRIBUTE_NAME, "tap0");
        let body = body.nest(ATTRIBUTE_PROPERTIES, further).into_bytes();
        let link = Link::told(&body).expect("a link");
        assert_eq!(link.names_beside("also0"), ["tap0", "third0"]);
        assert!(link.has_name("tap0") && link.has_name("third0") && !link.has_name("tap"));
        let one = Link::told(&[0; LINK_BYTES]).expect("a link");
        assert_eq!(one.names_beside("tap0"), [""; 0]);
    }

    #[test]
    fn names_of_one_interface_are_told_with_each_other() {
        let named = [("tap0", 1), ("tap1", 2), ("alt1", 2), ("also1", 2)];
        let told: Vec<_> = names_of_one(named.into_iter()).into_iter().collect();
        assert_eq!(told, [("also1", "tap1"), ("alt1", "also1"), ("tap1", "alt1")]);
    }
}
