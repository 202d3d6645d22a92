// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A domain's description: what we have in it, and puts it there and away.
use std::path::PathBuf;

use serde_json::{Value, json};
use thiserror::Error;
use xot::{NameId, Node, Xot};

use super::{
    virsh::DomainId,
    wanted::{Address, Kind, PLUGGED, Plugged, WANTED, Wanted, WantedError},
};

/// Name of the device and of its character device in QEMU.
pub const DEVICE_ID: &str = "ccc";
/// Name of the port the device is behind on a PCI Express machine.
const PORT_ID: &str = "ccc-port";
/// Where the port is, or the next free slot below: libvirt counts from below, and
/// has fixed places above.
const PORT_SLOT: u64 = 0x18;
/// Where the device is on a machine without PCI Express, or the next free slot below.
pub const DEVICE_SLOT: u64 = 0x1e;
/// The chipset has those below.
const FIRST_SLOT: u64 = 2;
const QEMU_URI: &str = "http://libvirt.org/schemas/domain/qemu/1.0";
const QEMU_PREFIX: &str = "qemu";

/// Why a domain's description is of no use.
#[derive(Debug, Error)]
pub enum XmlError {
    /// It is no XML.
    #[error("libvirt's description of the domain is no XML: {0}")]
    Syntax(#[from] Box<xot::ParseError>),
    /// It cannot be worked on.
    #[error("libvirt's description of the domain cannot be edited: {0}")]
    Edit(#[from] xot::Error),
    /// It is of something else.
    #[error("the XML describes no domain, but a <{0}>")]
    NoDomain(String),
    /// It does not say which domain it is.
    #[error("libvirt's description of the domain has no <{0}>")]
    Missing(&'static str),
    /// Its metadata are wrong.
    #[error(
        "the metadata ({uri}): {0}; correct them with virsh edit for its next start; while it runs, \
         cccctl attach then puts right those it runs with", uri = WANTED.uri
    )]
    Wanted(#[from] WantedError),
    /// Nowhere to put the device.
    #[error("the domain has no free slot on its first PCI bus; take a device out of it")]
    NoSlot,
}

impl From<xot::ParseError> for XmlError {
    fn from(error: xot::ParseError) -> XmlError {
        XmlError::Syntax(Box::new(error))
    }
}

/// The highest slot up to this one that nobody has.
pub fn free_slot(highest: u64, taken: &[u64]) -> Option<u64> {
    (FIRST_SLOT..=highest).rev().find(|slot| !taken.contains(slot))
}

/// A domain's description.
#[derive(Debug)]
pub struct Domain {
    xot: Xot,
    document: Node,
    root: Node,
}

impl Domain {
    /// Reads a description.
    pub fn parse(text: &str) -> Result<Domain, XmlError> {
        let mut xot = Xot::new();
        let document = xot.parse(text)?;
        // How libvirt indents says nothing.
        xot.remove_insignificant_whitespace(document);
        let root = xot.document_element(document)?;
        let name = xot.node_name(root).map(|name| xot.local_name_str(name).to_owned());
        match name.as_deref() {
            Some("domain") => Ok(Domain { xot, document, root }),
            other => Err(XmlError::NoDomain(other.unwrap_or_default().to_owned())),
        }
    }

    /// The description as text.
    pub fn text(&self) -> Result<String, XmlError> {
        Ok(self.xot.to_string(self.document)?)
    }

    /// Which domain it is.
    pub fn id(&self) -> Result<DomainId, XmlError> {
        let text = |name: &'static str| {
            let element = self.child(self.root, name);
            let text = element.and_then(|element| self.xot.text_content_str(element));
            text.map(str::to_owned).ok_or(XmlError::Missing(name))
        };
        Ok(DomainId { name: text("name")?, uuid: text("uuid")? })
    }

    /// What is wanted of its coupling, if it has the device; what its metadata do
    /// not say is as usual.
    pub fn wanted(&self) -> Result<Option<Wanted>, XmlError> {
        Ok(self.told()?.or_else(|| self.has_device().then(Wanted::default)))
    }

    /// What the metadata say of its coupling, if anything.
    pub fn told(&self) -> Result<Option<Wanted>, XmlError> {
        let ours = self.elements_of(WANTED);
        let name =
            |node: &Node| self.xot.node_name(*node).map(|name| self.xot.local_name_str(name));
        let strangers = ours.iter().filter(|node| name(node) != Some(WANTED.name));
        let inside = ours.iter().flat_map(|node| self.xot.children(*node));
        let inside: Vec<Node> = inside.filter(|node| self.xot.is_element(*node)).collect();
        if let Some(stranger) = strangers.chain(&inside).next() {
            let name = name(stranger).unwrap_or_default().to_owned();
            return Err(WantedError::Element(name).into());
        }
        match ours.as_slice() {
            [] => Ok(None),
            [element] => Ok(Some(Wanted::read(&self.attributes(*element))?)),
            several => Err(WantedError::Several(several.len()).into()),
        }
    }

    /// Its metadata say that it is a tenant without the device.
    pub fn is_tenant(&self) -> bool {
        self.told().ok().flatten().is_some_and(|wanted| wanted.is_tenant())
    }

    /// There is something of ours in the metadata, be it right or wrong.
    pub fn has_metadata(&self) -> bool {
        !self.elements_of(WANTED).is_empty()
    }

    /// Where QEMU connects: where its command line says, whatever the domain is called
    /// by now, unless the device was plugged in later.
    pub fn socket(&self, name: &str, wanted: &Wanted) -> PathBuf {
        let arguments = self.arguments();
        let written = arguments.iter().find_map(|(_, value)| socket_of(value));
        written.filter(|_| self.plugged().is_none()).unwrap_or_else(|| wanted.socket(name))
    }

    /// The program that runs it.
    pub fn emulator(&self) -> Option<PathBuf> {
        let devices = self.child(self.root, "devices")?;
        let emulator = self.child(devices, "emulator")?;
        self.xot.text_content_str(emulator).map(PathBuf::from)
    }

    /// Its machine, as QEMU calls it.
    pub fn machine(&self) -> Option<String> {
        let os = self.child(self.root, "os")?;
        self.attribute(self.child(os, "type")?, "machine")
    }

    /// What became of the device since the domain started, if anything.
    pub fn plugged(&self) -> Option<Plugged> {
        let element = self.metadata(PLUGGED)?;
        let Some(bus) = self.attribute(element, "bus") else { return Some(Plugged::Nowhere) };
        Some(Plugged::At(Address { bus, slot: self.attribute(element, "slot") }))
    }

    /// It is the description of a domain that runs: only those have an id.
    pub fn runs(&self) -> bool {
        self.xot.name("id").is_some_and(|id| self.xot.get_attribute(self.root, id).is_some())
    }

    /// The guest's memory is one that others may map.
    pub fn shares_memory(&self) -> bool {
        let backing = self.child(self.root, "memoryBacking");
        let access = backing.and_then(|backing| self.child(backing, "access"));
        let mode = self.xot.name("mode").zip(access);
        mode.is_some_and(|(name, access)| self.xot.get_attribute(access, name) == Some("shared"))
    }

    /// Its PCI is PCI Express.
    pub fn is_express(&self) -> bool {
        self.machine().is_some_and(|machine| machine.contains("q35") || machine.starts_with("virt"))
    }

    /// It has the device: by what became of it, or by QEMU's command line.
    pub fn has_device(&self) -> bool {
        match self.plugged() {
            Some(plugged) => plugged != Plugged::Nowhere,
            None => self.is_in_commandline(),
        }
    }

    /// The device is in QEMU's command line.
    pub fn is_in_commandline(&self) -> bool {
        self.arguments().iter().any(|(_, value)| is_ours(value))
    }

    /// Puts all in that the device needs, in place of what there was of it.
    pub fn attach(&mut self, name: &str, wanted: &Wanted) -> Result<(), XmlError> {
        self.detach()?;
        self.set_metadata(wanted)?;
        self.share_memory()?;
        if !self.is_express() {
            let slot = free_slot(DEVICE_SLOT, &self.slots()).ok_or(XmlError::NoSlot)?;
            let address = Address { bus: "pci.0".to_owned(), slot: Some(format!("{slot:#x}")) };
            return self.add_device(name, wanted, &address);
        }
        let slot = free_slot(PORT_SLOT, &self.slots()).ok_or(XmlError::NoSlot)?;
        let port = json!({"driver": "pcie-root-port", "id": PORT_ID,
            "bus": "pcie.0", "addr": format!("{slot:#x}"), "chassis": 63});
        let commandline = self.commandline()?;
        self.argument(commandline, "-device", &port.to_string())?;
        self.add_device(name, wanted, &Address { bus: PORT_ID.to_owned(), slot: None })
    }

    /// Takes out what `attach` put in, but for the memory's backing: it may have
    /// been there before, and does no harm.
    pub fn detach(&mut self) -> Result<(), XmlError> {
        for element in [WANTED, PLUGGED].map(|kind| self.elements_of(kind)).concat() {
            self.xot.remove(element)?;
        }
        self.remove_arguments(is_ours)
    }

    /// Makes QEMU's command line say where the device is, for a QEMU that takes
    /// over what this one has; false if it does so.
    pub fn follow_plugs(&mut self, name: &str) -> Result<bool, XmlError> {
        let Some(plugged) = self.plugged() else { return Ok(false) };
        let wanted = self.told()?.unwrap_or_default();
        // The port stays: it cannot be unplugged.
        self.remove_arguments(|argument| is_ours(argument) && !is_port(argument))?;
        if let Plugged::At(address) = plugged {
            self.add_device(name, &wanted, &address)?;
        }
        Ok(true)
    }

    /// As JSON: QEMU makes those devices after all of libvirt's, so that none
    /// of theirs finds its place taken.
    fn add_device(
        &mut self,
        name: &str,
        wanted: &Wanted,
        address: &Address,
    ) -> Result<(), XmlError> {
        let commandline = self.commandline()?;
        let socket = wanted.socket(name);
        // Options of QEMU: a comma in a value is written twice.
        let socket = socket.display().to_string().replace(',', ",,");
        let chardev = format!("socket,id={DEVICE_ID},path={socket},reconnect-ms=100");
        self.argument(commandline, "-chardev", &chardev)?;
        self.argument(commandline, "-device", &device(address).to_string())
    }

    fn remove_arguments(&mut self, out: impl Fn(&str) -> bool) -> Result<(), XmlError> {
        let arguments = self.arguments();
        let out = arguments.iter().enumerate().filter(|(_, (_, value))| out(value));
        // Each value stands behind its option.
        let out: Vec<usize> = out.flat_map(|(index, _)| [index.wrapping_sub(1), index]).collect();
        for (index, (node, _)) in arguments.iter().enumerate() {
            if out.contains(&index) {
                self.xot.remove(*node)?;
            }
        }
        if let Some(commandline) = self.qemu_child("commandline") {
            let empty = !self.xot.children(commandline).any(|node| self.xot.is_element(node));
            if empty {
                self.xot.remove(commandline)?;
            }
        }
        Ok(())
    }

    /// Slots of the first PCI bus that devices of libvirt's have.
    fn slots(&self) -> Vec<u64> {
        let nodes = self.xot.descendants(self.root);
        let addresses = nodes.filter(|node| {
            let is = |key, value| self.attribute(*node, key).as_deref() == Some(value);
            is("type", "pci") && is("bus", "0x00")
        });
        let slots = addresses.filter_map(|node| self.attribute(node, "slot"));
        slots
            .filter_map(|slot| u64::from_str_radix(slot.trim_start_matches("0x"), 16).ok())
            .collect()
    }

    fn attribute(&self, element: Node, key: &str) -> Option<String> {
        let name = self.xot.name(key)?;
        self.xot.get_attribute(element, name).map(str::to_owned)
    }

    fn set_metadata(&mut self, wanted: &Wanted) -> Result<(), XmlError> {
        let metadata = self.child_or_new(self.root, "metadata")?;
        let namespace = self.xot.add_namespace(WANTED.uri);
        let prefix = self.xot.add_prefix(WANTED.key);
        let name = self.xot.add_name_ns(WANTED.name, namespace);
        let element = self.xot.new_element(name);
        self.xot.append(metadata, element)?;
        self.xot.set_namespace(element, prefix, namespace);
        for (key, value) in wanted.attributes() {
            let key = self.xot.add_name(key);
            self.xot.set_attribute(element, key, value);
        }
        Ok(())
    }

    fn share_memory(&mut self) -> Result<(), XmlError> {
        if self.shares_memory() {
            return Ok(());
        }
        let backing = self.child_or_new(self.root, "memoryBacking")?;
        if self.child(backing, "source").is_none() {
            let source = self.child_or_new(backing, "source")?;
            self.set(source, "type", "memfd");
        }
        let access = self.child_or_new(backing, "access")?;
        self.set(access, "mode", "shared");
        Ok(())
    }

    fn commandline(&mut self) -> Result<Node, XmlError> {
        if let Some(there) = self.qemu_child("commandline") {
            return Ok(there);
        }
        let prefix = self.xot.add_prefix(QEMU_PREFIX);
        let namespace = self.xot.add_namespace(QEMU_URI);
        self.xot.set_namespace(self.root, prefix, namespace);
        let name = self.xot.add_name_ns("commandline", namespace);
        let element = self.xot.new_element(name);
        self.xot.append(self.root, element)?;
        Ok(element)
    }

    fn argument(&mut self, commandline: Node, option: &str, value: &str) -> Result<(), XmlError> {
        let namespace = self.xot.add_namespace(QEMU_URI);
        let name = self.xot.add_name_ns("arg", namespace);
        for word in [option, value] {
            let element = self.xot.new_element(name);
            self.set(element, "value", word);
            self.xot.append(commandline, element)?;
        }
        Ok(())
    }

    fn set(&mut self, element: Node, key: &str, value: &str) {
        let key = self.xot.add_name(key);
        self.xot.set_attribute(element, key, value);
    }

    /// QEMU's further arguments, and their elements.
    fn arguments(&self) -> Vec<(Node, String)> {
        let Some(commandline) = self.qemu_child("commandline") else { return Vec::new() };
        let Some((arg, value)) = self.qemu_name("arg").zip(self.xot.name("value")) else {
            return Vec::new();
        };
        let elements = self.xot.children(commandline);
        let elements = elements.filter(|node| self.xot.node_name(*node) == Some(arg));
        elements
            .map(|node| (node, self.xot.get_attribute(node, value).unwrap_or_default().to_owned()))
            .collect()
    }

    fn metadata(&self, kind: Kind) -> Option<Node> {
        let metadata = self.child(self.root, "metadata")?;
        let name = self.xot.name_ns(kind.name, self.xot.namespace(kind.uri)?)?;
        self.named(metadata, name)
    }

    /// All elements of a namespace of ours in the metadata.
    fn elements_of(&self, kind: Kind) -> Vec<Node> {
        let metadata = self.child(self.root, "metadata");
        let elements = metadata.into_iter().flat_map(|metadata| self.xot.children(metadata));
        let ours = |node: &Node| {
            let name = self.xot.node_name(*node);
            self.xot.is_element(*node)
                && name.is_some_and(|name| self.xot.uri_str(name) == kind.uri)
        };
        elements.filter(ours).collect()
    }

    fn attributes(&self, element: Node) -> Vec<(String, String)> {
        let all = self.xot.attributes(element);
        // Those of other namespaces are others'.
        all.iter()
            .filter(|(name, _)| self.xot.uri_str(*name).is_empty())
            .map(|(name, value)| (self.xot.local_name_str(name).to_owned(), value.clone()))
            .collect()
    }

    fn qemu_name(&self, name: &str) -> Option<NameId> {
        self.xot.name_ns(name, self.xot.namespace(QEMU_URI)?)
    }

    fn qemu_child(&self, name: &str) -> Option<Node> {
        self.named(self.root, self.qemu_name(name)?)
    }

    fn child(&self, parent: Node, name: &str) -> Option<Node> {
        self.named(parent, self.xot.name(name)?)
    }

    fn named(&self, parent: Node, name: NameId) -> Option<Node> {
        self.xot.children(parent).find(|node| self.xot.node_name(*node) == Some(name))
    }

    fn child_or_new(&mut self, parent: Node, name: &str) -> Result<Node, XmlError> {
        if let Some(there) = self.child(parent, name) {
            return Ok(there);
        }
        let name = self.xot.add_name(name);
        let element = self.xot.new_element(name);
        self.xot.append(parent, element)?;
        Ok(element)
    }
}

impl Wanted {
    /// The element as `virsh metadata` takes it.
    pub fn element(&self) -> Result<String, XmlError> {
        element(WANTED, self.attributes())
    }
}

impl Plugged {
    /// The element as `virsh metadata` takes it.
    pub fn element(&self) -> Result<String, XmlError> {
        let Plugged::At(address) = self else { return element(PLUGGED, []) };
        let slot = address.slot.clone().map(|slot| ("slot", slot));
        element(PLUGGED, [("bus", address.bus.clone())].into_iter().chain(slot))
    }
}

fn element<'a>(
    kind: Kind,
    attributes: impl IntoIterator<Item = (&'a str, String)>,
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

/// The device as QEMU takes it.
pub fn device(address: &Address) -> Value {
    let mut device = json!({"driver": "vhost-user-ccc-pci", "id": DEVICE_ID, "bus": address.bus,
        "chardev": DEVICE_ID});
    if let Some(slot) = &address.slot {
        device["addr"] = json!(slot);
    }
    device
}

/// The port that `attach` wrote.
fn is_port(argument: &str) -> bool {
    serde_json::from_str::<Value>(argument).is_ok_and(|device| device["id"] == PORT_ID)
}

/// The path in the character device that `attach` wrote: a comma is written twice.
fn socket_of(argument: &str) -> Option<PathBuf> {
    if !argument.starts_with("socket,") || !is_ours(argument) {
        return None;
    }
    let (_, path) = argument.split_once(",path=")?;
    let mut written = String::new();
    let mut letters = path.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == ',' && letters.next_if_eq(&',').is_none() {
            break;
        }
        written.push(letter);
    }
    Some(PathBuf::from(written))
}

/// An argument that `attach` wrote.
fn is_ours(argument: &str) -> bool {
    if let Ok(device) = serde_json::from_str::<Value>(argument) {
        return device["id"] == DEVICE_ID || device["id"] == PORT_ID;
    }
    let id = format!("id={DEVICE_ID}");
    argument.starts_with("socket,") && argument.split(',').any(|part| part == id)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const PLAIN: &str = "<domain type='kvm' xmlns:x='urn:x'><name>web</name>\
        <metadata><x:a x:b='1'>&lt;</x:a></metadata><memory unit='KiB'>1</memory>\
        <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os><!-- kept --></domain>";

    fn wanted() -> Wanted {
        let attributes = [("group", "up\"link"), ("weight", "2.5")];
        Wanted::read(&attributes.map(|(key, value)| (key.to_owned(), value.to_owned())))
            .expect("right")
    }

    #[test]
    fn what_is_attached_is_read_again_and_detached_without_a_trace() {
        let mut domain = Domain::parse(PLAIN).expect("right");
        assert!(!domain.runs() && !domain.has_device() && domain.wanted().expect("none").is_none());
        domain.attach("web", &wanted()).expect("attached");
        let text = domain.text().expect("text");
        let mut again = Domain::parse(&text).expect("still right");
        assert_eq!(again.wanted().expect("there"), Some(wanted()));
        assert!(again.has_device() && again.shares_memory());
        assert!(text.contains("path=/run/ccc/vm/web.sock,reconnect-ms=100"), "{text}");
        assert!(text.contains("x:b=\"1\"") && text.contains("<!-- kept -->"), "{text}");
        again.attach("web", &wanted()).expect("again");
        assert_eq!(again.text().expect("text"), text, "idempotent");
        again.detach().expect("detached");
        let text = again.text().expect("text");
        assert!(!text.contains("ccc") && !text.contains("commandline"), "{text}");
    }

    /// Which an older release would not read.
    #[test]
    fn no_cap_is_not_written() {
        let mut domain = Domain::parse(PLAIN).expect("right");
        let with = |cap: &str| {
            let cap = [("cap_mbit".to_owned(), cap.to_owned())];
            Wanted::read(&cap).expect("right")
        };
        domain.attach("web", &with("2")).expect("attached");
        assert!(domain.text().expect("text").contains("cap_mbit=\"2\""));
        domain.attach("web", &with("none")).expect("attached");
        assert!(!domain.text().expect("text").contains("cap_mbit"));
    }

    #[test]
    fn other_arguments_of_qemu_stay() {
        let own = "<qemu:commandline><qemu:arg value='-device'/><qemu:arg value='edu,id=x'/>\
            <qemu:env name='A' value='b'/></qemu:commandline></domain>";
        let text = PLAIN
            .replace("</domain>", own)
            .replace("xmlns:x", "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0' xmlns:x");
        let mut domain = Domain::parse(&text).expect("right");
        let before = domain.text().expect("text");
        domain.attach("web", &wanted()).expect("attached");
        domain.detach().expect("detached");
        let after = domain.text().expect("text");
        let backing =
            "<memoryBacking><source type=\"memfd\"/><access mode=\"shared\"/></memoryBacking>";
        assert_eq!(after.replace(backing, ""), before);
    }

    #[test]
    fn machines_without_express_get_a_slot() {
        let text = PLAIN.replace("pc-q35-7.2", "pc-i440fx-7.2");
        let mut domain = Domain::parse(&text).expect("right");
        domain.attach("web", &Wanted::default()).expect("attached");
        let text = domain.text().expect("text");
        assert!(text.contains("pci.0") && !text.contains("root-port"), "{text}");
    }

    #[test]
    fn a_slot_that_is_taken_is_left_alone() {
        let taken = "<devices><rng><address type='pci' bus='0x00' slot='0x18'/></rng><rng>\
            <address type='pci' bus='0x00' slot='0x17'/></rng><rng>\
            <address type='pci' bus='0x01' slot='0x16'/></rng></devices></domain>";
        let mut domain = Domain::parse(&PLAIN.replace("</domain>", taken)).expect("right");
        domain.attach("web", &wanted()).expect("attached");
        assert!(domain.text().expect("text").contains("0x16"), "the next one");
        assert_eq!(free_slot(3, &[2, 3]), None);
    }

    #[test]
    fn a_command_line_follows_plugs() {
        let mut domain = Domain::parse(PLAIN).expect("right");
        assert!(!domain.follow_plugs("web").expect("nothing"));
        domain.attach("web", &wanted()).expect("attached");
        let text = domain.text().expect("text");
        let plugged = |attributes: &str| {
            let element = format!("<p:device xmlns:p='urn:ccc:plugged:1'{attributes}/></metadata>");
            let mut domain = Domain::parse(&text.replace("</metadata>", &element)).expect("right");
            assert!(domain.follow_plugs("web").expect("followed"));
            (domain.has_device(), domain.text().expect("text"))
        };
        let (there, text) = plugged(" bus='pci.6'");
        assert!(there && text.contains("pci.6") && text.contains("pcie-root-port"), "{text}");
        assert_eq!(text.matches("vhost-user-ccc-pci").count(), 1, "{text}");
        let (there, text) = plugged("");
        assert!(!there && !text.contains("vhost-user") && text.contains("root-port"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let told = |text: &str| Domain::parse(text).expect_err("refused").to_string();
        assert!(told("<network/>").contains("<network>"));
        assert!(told("<domain>").contains("no XML"));
    }

    fn with_metadata(elements: &str) -> Domain {
        let text = PLAIN.replace("</metadata>", &format!("{elements}</metadata>"));
        Domain::parse(&text).expect("right")
    }

    #[test]
    fn o1_metadata_that_make_no_sense_are_told() {
        let vm = |inside: &str| format!("<c:vm xmlns:c='urn:ccc:vm:1'{inside}");
        let other = "<c:vn xmlns:c='urn:ccc:vm:1' weight='3'/>";
        for (elements, words) in [
            (
                vm(" wieght='3'/>"),
                "invalid wieght: expected socket, weight, group, coupled, tap, floor_mbit, cap_mbit, device or tenant",
            ),
            (vm(" weight='3,5'/>"), "expected a number from 0.01 to 1000, got \"3,5\""),
            (vm(" weight='0'/>"), "0.01 to 1000"),
            (vm(" weight='NaN'/>"), "0.01 to 1000"),
            (vm(" coupled='false'/>"), "expected on or off, got \"false\""),
            (vm(" socket='/run/../etc/s'/>"), "got \"/run/../etc/s\""),
            (vm(" socket='/a&#10;b'/>"), "got \"/a\\nb\""),
            (vm(" a='&#10;b'/>"), "invalid a: "),
            (vm("><c:weight/></c:vm>"), "got <weight>"),
            (other.to_owned(), "got <vn>"),
            (vm("/>") + other, "got <vn>"),
            (vm("/>") + &vm(" weight='2'/>"), "expected one <vm>, got 2"),
        ] {
            let mut domain = with_metadata(&elements);
            let told = domain.told().expect_err("refused").to_string();
            assert!(told.contains(words) && told.contains("virsh edit"), "{elements}: {told}");
            assert!(domain.has_metadata());
            domain.detach().expect("taken away all the same");
            assert!(!domain.text().expect("text").contains("urn:ccc"), "{elements}");
        }
        let right = vm(" coupled='off' group='g' xmlns:x='urn:x' x:weight='x' x:group='x'/>");
        let right = with_metadata(&right);
        let told = right.told().expect("right").expect("there");
        let said = [("coupled", "off".to_owned()), ("group", "g".to_owned())];
        assert_eq!(told.attributes(), said.into());
    }

    #[test]
    fn o5_a_domain_keeps_the_socket_of_its_description() {
        let mut domain = Domain::parse(PLAIN).expect("right");
        let path = "/run/a,b,,c".to_owned();
        let commas = Wanted { socket: path.try_into().ok(), ..Wanted::default() };
        domain.attach("web", &commas).expect("attached");
        assert_eq!(domain.socket("web", &commas), Path::new("/run/a,b,,c"));
        domain.attach("web", &wanted()).expect("attached");
        assert_eq!(domain.socket("clone", &wanted()), Path::new("/run/ccc/vm/web.sock"));
        let plugged = "<p:device xmlns:p='urn:ccc:plugged:1' bus='pci.6'/></metadata>";
        let text = domain.text().expect("text").replace("</metadata>", plugged);
        let domain = Domain::parse(&text).expect("right");
        assert_eq!(domain.socket("clone", &wanted()), Path::new("/run/ccc/vm/clone.sock"));
        let none = Domain::parse(PLAIN).expect("right");
        assert_eq!(none.socket("web", &wanted()), Path::new("/run/ccc/vm/web.sock"));
    }
}
