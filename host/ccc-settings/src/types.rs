// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The settings of groups, VMs and rules.
//!
//! A field's documentation is its help text, its `range` or words are what it can be, and
//! `Default` says what it is if left out.  [`Changes`] makes sure of the ranges.
use ccc_core::{
    EquivalentTcps, GroupConfig, GrowthSource, PolicyKind, RateRange, ShareOf, TargetDelay, Weight,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::{Changes, Fault, SocketPath, changes::entries, table};

/// The group of VMs that name none.
pub const DEFAULT_GROUP: &str = "default";
/// The name of no group, kept free for that.
pub const NO_GROUP: &str = "none";
/// Longest name of a VM or a group, bytes.
const NAME_MAX: usize = 64;
/// Longest name of an interface (`IFNAMSIZ` less its last zero), bytes.
const INTERFACE_MAX: usize = 15;
/// Longest name of a part of the host, bytes.
const PLACE_MAX: usize = 255;

/// Settings of a bottleneck group.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupSettings {
    /// Coupling algorithm
    pub policy: PolicyKind,
    /// What shares are shares of
    pub share: ShareOf,
    /// How many TCPs the group is worth; of ctrltcp
    #[schemars(range(min = EquivalentTcps::MIN, max = EquivalentTcps::MAX))]
    pub equivalent_tcps: f64,
    /// Whose growth the aggregate takes; of ctrltcp
    pub growth_source: GrowthSource,
    /// Queueing delay to keep, ms; of delay
    #[schemars(range(min = TargetDelay::MIN_MS, max = TargetDelay::MAX_MS))]
    pub target_delay_ms: f64,
    /// Whether its flows are coupled, or left alone
    pub coupled: bool,
    /// What is done to a VM that takes what is others'
    pub enforce: Enforce,
    /// The interface of this host at which each VM is to have a queue of its own
    #[schemars(title = "the name of a network interface, or none")]
    #[serde(deserialize_with = "interface_or_none")]
    pub uplink: Option<String>,
    /// What may go through that interface, Mbit/s
    #[schemars(
        title = "a number from 0.1 to 1000000, or none",
        range(min = RateRange::CAP_MIN_MBIT, max = RateRange::MBIT_MAX)
    )]
    #[serde(deserialize_with = "rate_or_none")]
    pub uplink_rate_mbit: Option<f64>,
}

/// What is done to a VM that sends above its share, by what its tap counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Enforce {
    /// Nothing; nothing is counted.
    #[default]
    Off,
    /// It is said.
    Observe,
    /// It is held to its share.
    On,
}

/// What is in the daemon's log, until it ends.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// The least important lines that are told
    pub level: LogLevel,
}

/// How important a line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Something does not work at all.
    Error,
    /// Something is not as the operator wants.
    Warn,
    /// What happens.
    #[default]
    Info,
    /// What connections do.
    Debug,
    /// All.
    Trace,
}

/// Settings of a VM.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VmSettings {
    /// Its weight in any group
    #[schemars(range(min = Weight::MIN, max = Weight::MAX))]
    pub weight: f64,
    /// Its group
    #[schemars(title = "the name of a group, or none")]
    #[serde(deserialize_with = "group_or_none")]
    pub group: Option<String>,
    /// Whether its flows are coupled, or left alone
    pub coupled: bool,
    /// The interface of this host through which its packets come
    #[schemars(title = "the name of a network interface, or none")]
    #[serde(deserialize_with = "interface_or_none")]
    pub tap: Option<String>,
    /// It has no less of its group while it wants that, and is never held to less, Mbit/s
    #[schemars(range(min = 0.0, max = RateRange::MBIT_MAX))]
    pub floor_mbit: f64,
    /// It has no more of its group, whatever the others leave, Mbit/s
    #[schemars(
        title = "a number from 0.1 to 1000000, or none",
        range(min = RateRange::CAP_MIN_MBIT, max = RateRange::MBIT_MAX)
    )]
    #[serde(deserialize_with = "rate_or_none")]
    pub cap_mbit: Option<f64>,
    /// Whether its guest is to have the device; off: it is seen by its tap only
    pub device: bool,
    /// The part of this host, or the guest without the device, that it is instead of a VM
    #[schemars(title = "cgroup:PATH, netns:NAME, vsock:PATH, vsock:CID, or none")]
    #[serde(deserialize_with = "place_or_none")]
    pub tenant: Option<String>,
}

/// Which flows are coupled where; what is left out fits every flow.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSettings {
    /// The VM it is for; every VM if left out
    #[schemars(title = "the name of a VM")]
    pub vm: Option<String>,
    /// Where its flows go; everywhere if left out
    #[schemars(title = "a prefix of addresses such as 10.0.0.0/8 or 2001:db8::/32")]
    pub destination: Option<String>,
    /// Their group
    #[schemars(title = "the name of a group, or none")]
    #[serde(deserialize_with = "group_or_none")]
    pub group: Option<String>,
}

table!(GroupSettings);
table!(LogSettings);
table!(VmSettings);
table!(RuleSettings);

impl Default for GroupSettings {
    fn default() -> GroupSettings {
        GroupSettings {
            policy: PolicyKind::default(),
            share: ShareOf::default(),
            equivalent_tcps: 1.0,
            growth_source: GrowthSource::default(),
            target_delay_ms: TargetDelay::DEFAULT.ms(),
            coupled: true,
            enforce: Enforce::default(),
            uplink: None,
            uplink_rate_mbit: None,
        }
    }
}

impl Default for VmSettings {
    fn default() -> VmSettings {
        VmSettings {
            weight: 1.0,
            group: Some(DEFAULT_GROUP.to_owned()),
            coupled: true,
            tap: None,
            floor_mbit: 0.0,
            cap_mbit: None,
            device: true,
            tenant: None,
        }
    }
}

impl GroupSettings {
    /// What the engine is told of it.
    pub fn config(&self) -> GroupConfig {
        GroupConfig {
            policy: self.policy,
            share: self.share,
            equivalent_tcps: EquivalentTcps::from_f64(self.equivalent_tcps)
                .unwrap_or(EquivalentTcps::ONE),
            growth_source: self.growth_source,
            target_delay: TargetDelay::from_ms(self.target_delay_ms).unwrap_or_default(),
        }
    }

    /// Makes sure of what no field can tell by itself: an uplink has a rate.
    pub fn check(&self) -> Result<(), Fault> {
        if self.uplink.is_none() || self.uplink_rate_mbit.is_some() {
            return Ok(());
        }
        let expected = "the rate of the uplink, from 0.1 to 1000000";
        let remedy = "queues form where the kernel knows the rate: say a little less than what the \
                      interface, or what is behind it, takes";
        Err(Fault::missing("uplink_rate_mbit", expected).remedy(remedy))
    }
}

impl VmSettings {
    /// What the engine is told of it.
    pub fn engine_weight(&self) -> Weight {
        Weight::from_f64(self.weight).unwrap_or(Weight::ONE)
    }

    /// What the engine is told of its floor and cap.
    pub fn engine_range(&self) -> RateRange {
        RateRange::from_mbit(self.floor_mbit, self.cap_mbit).unwrap_or_default()
    }

    /// Makes sure of what no field can tell by itself: a cap is no less than the floor.
    pub fn check(&self) -> Result<(), Fault> {
        let (floor, Some(cap)) = (self.floor_mbit, self.cap_mbit) else { return Ok(()) };
        if cap >= floor {
            return Ok(());
        }
        let expected = format!("no less than floor_mbit, which is {floor}, or none");
        let remedy = "a VM cannot have more than its cap: raise that, or lower the floor";
        Err(Fault::new("cap_mbit", expected, &json!(cap)).remedy(remedy))
    }

    /// The same of settings that were others before: with the cap of before, the floor is wrong.
    pub fn check_change(&self, before: &VmSettings) -> Result<(), Fault> {
        match (self.check(), self.cap_mbit) {
            (Err(_), Some(cap)) if before.cap_mbit == self.cap_mbit => {
                let expected = format!("no more than cap_mbit, which is {cap}");
                let remedy = "a VM cannot have more than its cap: lower the floor, or raise that";
                Err(Fault::new("floor_mbit", expected, &json!(self.floor_mbit)).remedy(remedy))
            }
            (checked, _) => checked,
        }
    }
}

/// A VM as it is to be: where its front end connects, and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct VmSpec {
    /// Where its front end connects.
    pub socket: SocketPath,
    /// All the rest.
    pub settings: VmSettings,
}

impl VmSpec {
    /// Reads a JSON object; what is left out has its default.
    pub fn read(value: Value) -> Result<VmSpec, Fault> {
        let (socket, changes, faults) = VmSpec::collect(entries(value)?);
        match (socket, faults.into_iter().next()) {
            (Some(socket), None) => {
                let settings = changes.apply(&VmSettings::default());
                settings.check()?;
                Ok(VmSpec { socket, settings })
            }
            (_, fault) => Err(fault.unwrap_or_else(|| Fault::missing("socket", ""))),
        }
    }

    /// Reads all fields that can be used, and tells the faults of the others.
    pub fn collect(
        entries: impl IntoIterator<Item = (String, Value)>,
    ) -> (Option<SocketPath>, Changes<VmSettings>, Vec<Fault>) {
        let (sockets, rest): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(name, _)| name == "socket");
        let (changes, faults) = Changes::collect(rest);
        let mut faults: Vec<_> = faults.into_iter().map(VmSpec::or_socket).collect();
        let socket = SocketPath::read("socket", sockets.into_iter().next().map(|(_, path)| path));
        (socket.map_err(|fault| faults.push(fault)).ok(), changes, faults)
    }

    /// A fault of a VM's settings, where a socket could stand, too.
    pub fn or_socket(fault: Fault) -> Fault {
        match fault.got == Fault::UNKNOWN {
            true => Fault { expected: format!("socket, {}", fault.expected), ..fault },
            false => fault,
        }
    }
}

impl RuleSettings {
    /// Reads a JSON object.
    pub fn read(value: Value) -> Result<RuleSettings, Fault> {
        let (rule, faults) = RuleSettings::collect(entries(value)?);
        faults.into_iter().next().map_or(Ok(rule), Err)
    }

    /// Reads all fields that can be used, and tells the faults of the others.  Its group
    /// cannot be left out.
    pub fn collect(
        entries: impl IntoIterator<Item = (String, Value)>,
    ) -> (RuleSettings, Vec<Fault>) {
        let entries: Vec<_> = entries.into_iter().collect();
        let without = !entries.iter().any(|(name, _)| name == "group");
        let (changes, mut faults) = Changes::collect(entries);
        if without {
            faults.push(Fault::missing("group", "the name of a group, or none"));
        }
        (changes.apply(&RuleSettings::default()), faults)
    }
}

fn group_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.filter(|name| name != NO_GROUP))
}

/// A number, or nothing for `none`; [`Changes`] makes sure of its range.
fn rate_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    match Option::<Value>::deserialize(from)? {
        None => Ok(None),
        Some(Value::String(word)) if word == NO_GROUP => Ok(None),
        Some(Value::Number(number)) if number.is_f64() || number.is_i64() || number.is_u64() => {
            Ok(number.as_f64())
        }
        Some(_) => Err(serde::de::Error::custom("neither a number nor none")),
    }
}

/// What the kernel takes for the name of an interface (`dev_valid_name`), and no more than
/// can stand in a line.
fn interface_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = group_or_none(from)?;
    let odd = |c: char| !c.is_ascii_graphic() || matches!(c, '/' | ':');
    let fits = |name: &String| {
        (1..=INTERFACE_MAX).contains(&name.len())
            && name != "."
            && name != ".."
            && !name.contains(odd)
    };
    match name.is_none() || name.as_ref().is_some_and(fits) {
        true => Ok(name),
        false => Err(serde::de::Error::custom("not the name of an interface")),
    }
}

/// A path of a cgroup, the name or path of a namespace, or a CID or the path of a VMM's vsock, which
/// goes down only and can stand in a line.
fn place_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let place = group_or_none(from)?;
    let fits = |place: &String| {
        let of = |kind: &str| place.strip_prefix(kind);
        let is_cid =
            |text: &str| text.parse().is_ok_and(|cid| (1..u32::MAX).contains(&cid) && cid != 2);
        let vsock = || of("vsock:").filter(|at| at.starts_with('/') || is_cid(at));
        let name = of("cgroup:").or_else(|| of("netns:")).or_else(vsock);
        let graphic = |name: &str| name.chars().all(|c| c.is_ascii_graphic());
        name.is_some_and(|name| {
            (1..=PLACE_MAX).contains(&name.len())
                && graphic(name)
                && !name.split('/').any(|part| matches!(part, "." | ".."))
        })
    };
    match place.as_ref().is_none_or(fits) {
        true => Ok(place),
        false => Err(serde::de::Error::custom("not a part of the host")),
    }
}

/// Makes sure that a VM or a group can have this name; `field` is that of a fault.
pub fn check_name(field: &str, name: &str) -> Result<(), Fault> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    let expected = format!("1 to {NAME_MAX} letters, digits, `.`, `_` and `-`");
    Err(Fault::new(field, expected, &json!(name)))
}
