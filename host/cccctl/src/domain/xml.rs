// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A domain's description: what we have in it, and puts it there and away.
use std::path::{Path, PathBuf};

use thiserror::Error;
use xot::{NameId, Node, Xot};

/// Namespace of our element in a domain's metadata.
pub const METADATA_URI: &str = "urn:ccc:vm:1";
/// Its prefix there.
pub const METADATA_KEY: &str = "ccc";
/// Name of the device and of its character device in QEMU.
pub const DEVICE_ID: &str = "ccc";
/// Name of the port the device is behind on a PCI Express machine.
const PORT_ID: &str = "ccc-port";
/// Where the port is: libvirt counts from below.
const PORT_ADDRESS: &str = "0x18";
/// Where the device is on a machine without PCI Express.
const SLOT_ADDRESS: &str = "0x1e";
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
    /// A weight that is none.
    #[error("weight=\"{0}\" in the domain's metadata is no number; set it with cccctl attach")]
    Weight(String),
}

impl From<xot::ParseError> for XmlError {
    fn from(error: xot::ParseError) -> XmlError {
        XmlError::Syntax(Box::new(error))
    }
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
}

impl Wanted {
    /// Where the daemon listens for a domain.
    pub fn socket(&self, domain: &str) -> PathBuf {
        let usual = || Path::new("/run/ccc").join(format!("{domain}.sock"));
        self.socket.clone().unwrap_or_else(usual)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let group = self.group.clone().map(|group| ("group", group));
        let weight = self.weight.map(|weight| ("weight", weight.to_string()));
        let socket = self.socket.as_ref().map(|path| ("socket", path.display().to_string()));
        [group, weight, socket].into_iter().flatten().collect()
    }

    /// The element as `virsh metadata` takes it.
    pub fn element(&self) -> Result<String, XmlError> {
        let mut xot = Xot::new();
        let name = xot.add_name("vm");
        let element = xot.new_element(name);
        for (key, value) in self.attributes() {
            let key = xot.add_name(key);
            xot.set_attribute(element, key, value);
        }
        Ok(xot.to_string(element)?)
    }
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

    /// What the metadata say of its coupling, if anything.
    pub fn wanted(&self) -> Result<Option<Wanted>, XmlError> {
        let Some(element) = self.metadata() else { return Ok(None) };
        let read = |key: &str| {
            let name = self.xot.name(key)?;
            self.xot.get_attribute(element, name).map(str::to_owned)
        };
        let weight = read("weight").map(|text| text.parse().map_err(|_| XmlError::Weight(text)));
        let (group, socket) = (read("group"), read("socket").map(PathBuf::from));
        Ok(Some(Wanted { group, weight: weight.transpose()?, socket }))
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
        let os = self.child(self.root, "os").and_then(|os| self.child(os, "type"));
        let machine = self.xot.name("machine").zip(os);
        let machine = machine.and_then(|(name, os)| self.xot.get_attribute(os, name));
        machine.is_some_and(|machine| machine.contains("q35") || machine.starts_with("virt"))
    }

    /// The device is in QEMU's command line.
    pub fn has_device(&self) -> bool {
        self.arguments().iter().any(|(_, value)| is_ours(value))
    }

    /// Puts all in that the device needs, in place of what there was of it.
    pub fn attach(&mut self, name: &str, wanted: &Wanted) -> Result<(), XmlError> {
        self.detach()?;
        self.set_metadata(wanted)?;
        self.share_memory()?;
        let commandline = self.commandline()?;
        let socket = wanted.socket(name);
        // Options of QEMU: a comma in a value is written twice.
        let socket = socket.display().to_string().replace(',', ",,");
        let chardev = format!("socket,id={DEVICE_ID},path={socket},reconnect-ms=100");
        self.argument(commandline, "-chardev", &chardev)?;
        for device in self.devices() {
            self.argument(commandline, "-device", &device)?;
        }
        Ok(())
    }

    /// Takes out what `attach` put in, but for the memory's backing: it may have
    /// been there before, and does no harm.
    pub fn detach(&mut self) -> Result<(), XmlError> {
        if let Some(element) = self.metadata() {
            self.xot.remove(element)?;
        }
        let arguments = self.arguments();
        let ours = arguments.iter().enumerate().filter(|(_, (_, value))| is_ours(value));
        // Each value stands behind its option.
        let ours: Vec<usize> = ours.flat_map(|(place, _)| [place.wrapping_sub(1), place]).collect();
        for (place, (node, _)) in arguments.iter().enumerate() {
            if ours.contains(&place) {
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

    /// As JSON: QEMU makes those devices after all of libvirt's, so that none
    /// of theirs finds its place taken.
    fn devices(&self) -> Vec<String> {
        let device = |bus: &str| {
            serde_json::json!({"driver": "vhost-user-ccc-pci", "id": DEVICE_ID, "bus": bus,
                "chardev": DEVICE_ID})
        };
        if self.is_express() {
            let port = serde_json::json!({"driver": "pcie-root-port", "id": PORT_ID,
                "bus": "pcie.0", "addr": PORT_ADDRESS, "chassis": 63});
            return vec![port.to_string(), device(PORT_ID).to_string()];
        }
        let mut device = device("pci.0");
        device["addr"] = SLOT_ADDRESS.into();
        vec![device.to_string()]
    }

    fn set_metadata(&mut self, wanted: &Wanted) -> Result<(), XmlError> {
        let metadata = self.child_or_new(self.root, "metadata")?;
        let namespace = self.xot.add_namespace(METADATA_URI);
        let prefix = self.xot.add_prefix(METADATA_KEY);
        let name = self.xot.add_name_ns("vm", namespace);
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

    fn metadata(&self) -> Option<Node> {
        let metadata = self.child(self.root, "metadata")?;
        let name = self.xot.name_ns("vm", self.xot.namespace(METADATA_URI)?)?;
        self.named(metadata, name)
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

/// An argument that `attach` wrote.
fn is_ours(argument: &str) -> bool {
    if let Ok(device) = serde_json::from_str::<serde_json::Value>(argument) {
        return device["id"] == DEVICE_ID || device["id"] == PORT_ID;
    }
    let id = format!("id={DEVICE_ID}");
    argument.starts_with("socket,") && argument.split(',').any(|part| part == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "<domain type='kvm' xmlns:x='urn:x'><name>web</name>\
        <metadata><x:a x:b='1'>&lt;</x:a></metadata><memory unit='KiB'>1</memory>\
        <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os><!-- kept --></domain>";

    fn wanted() -> Wanted {
        Wanted { group: Some("up\"link".to_owned()), weight: Some(2.5), socket: None }
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
        assert!(text.contains("path=/run/ccc/web.sock,reconnect-ms=100"), "{text}");
        assert!(text.contains("x:b=\"1\"") && text.contains("<!-- kept -->"), "{text}");
        again.attach("web", &wanted()).expect("again");
        assert_eq!(again.text().expect("text"), text, "idempotent");
        again.detach().expect("detached");
        let text = again.text().expect("text");
        assert!(!text.contains("ccc") && !text.contains("commandline"), "{text}");
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
    fn what_is_wrong_is_told() {
        let told = |text: &str| Domain::parse(text).expect_err("refused").to_string();
        assert!(told("<network/>").contains("<network>"));
        assert!(told("<domain>").contains("no XML"));
        let text = PLAIN
            .replace("</metadata>", "<ccc:vm xmlns:ccc='urn:ccc:vm:1' weight='x'/></metadata>");
        let domain = Domain::parse(&text).expect("right");
        assert!(matches!(domain.wanted(), Err(XmlError::Weight(weight)) if weight == "x"));
    }
}
