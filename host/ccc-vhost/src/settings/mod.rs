// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the operator decides: groups, VMs, and which flow is coupled where.
pub mod config;
pub mod keeper;
pub mod lock;
pub mod state;
pub mod told;
pub mod values;

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use ccc_core::{EquivalentTcps, GroupConfig, Weight};
use ipnet::IpNet;

use crate::settings::values::Given;

/// The group of VMs that name none.
pub const DEFAULT_GROUP: &str = "default";
/// Most rules there may be: each new flow is held against all of them.
pub const MAX_RULES: usize = 256;

/// What the operator decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Bottleneck groups.
    pub groups: Vec<Group>,
    /// VMs, by number: those of the file, and those that were added.
    pub vms: BTreeMap<usize, Vm>,
    /// The first that matches a flow says where it is coupled.
    pub rules: Vec<Rule>,
    /// How many flows there may be.
    pub limits: Limits,
}

/// What VMs may have of the daemon: a flow takes 300 to 600 bytes of its memory, and
/// all of a guest's memory addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Coupled flows of all VMs together.
    pub flows: usize,
    /// Flows of one VM.
    pub flows_per_vm: usize,
    /// Guest memory of one VM, in GiB.
    pub memory_gib_per_vm: usize,
}

impl Limits {
    /// Guest memory of one VM, in bytes.
    pub fn memory_per_vm(&self) -> u64 {
        (self.memory_gib_per_vm as u64) << 30
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { flows: 131_072, flows_per_vm: 16_384, memory_gib_per_vm: 1024 }
    }
}

/// A bottleneck group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// What the engine is told of it.
    pub config: GroupConfig,
    /// How many TCPs it is worth.
    pub equivalent_tcps: Given<EquivalentTcps>,
    /// Its flows are coupled.
    pub coupled: bool,
}

/// A VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Where its front end connects.
    pub socket: PathBuf,
    /// Index of its group in [`Settings::groups`], if it has one.
    pub group: Option<usize>,
    /// Its share of any group.
    pub weight: Given<Weight>,
    /// Its flows are coupled.
    pub coupled: bool,
    /// An operator added it, and may remove it; the file does not have it.
    pub added: bool,
}

/// Which flows are coupled where.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Number in [`Settings::vms`] of the VM it is for; `None` for all.
    pub vm: Option<usize>,
    /// Where its flows go; `None` for everywhere.
    pub destination: Option<IpNet>,
    /// Index of their group; `None` for flows that are not coupled.
    pub group: Option<usize>,
}

impl Group {
    /// One with the defaults.
    pub fn new(name: &str) -> Group {
        Group {
            name: name.to_owned(),
            config: GroupConfig::default(),
            equivalent_tcps: Given::<EquivalentTcps>::ONE,
            coupled: true,
        }
    }
}

impl Rule {
    fn matches(&self, vm: usize, to: IpAddr) -> bool {
        self.vm.is_none_or(|only| only == vm)
            && self.destination.is_none_or(|net| net.contains(&to))
    }
}

impl Settings {
    /// The group in which a flow is coupled, if it is.
    pub fn route(&self, vm: usize, to: IpAddr) -> Option<usize> {
        let settings = self.vms.get(&vm).filter(|settings| settings.coupled)?;
        // A socket for both families writes IPv4 addresses as IPv6 ones.
        let to = to.to_canonical();
        let rule = self.rules.iter().find(|rule| rule.matches(vm, to));
        let group = rule.map_or(settings.group, |rule| rule.group)?;
        self.groups.get(group).filter(|group| group.coupled).map(|_| group)
    }

    /// Index of the group with this name.
    pub fn group(&self, name: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.name == name)
    }

    /// Number of the VM with this name.
    pub fn vm(&self, name: &str) -> Option<usize> {
        self.vms.iter().find(|(_, vm)| vm.name == name).map(|(number, _)| *number)
    }

    /// Gives a VM the next number.
    pub fn add_vm(&mut self, vm: Vm) -> usize {
        let number = self.vms.last_key_value().map_or(0, |(last, _)| last + 1);
        self.vms.insert(number, vm);
        number
    }

    /// Takes a VM out, with the rules that are for it only.
    pub fn remove_vm(&mut self, number: usize) {
        self.vms.remove(&number);
        self.rules.retain(|rule| rule.vm != Some(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let vm = |name: &str, group| Vm {
            name: name.to_owned(),
            socket: PathBuf::from(name),
            group,
            weight: Given::<Weight>::ONE,
            coupled: true,
            added: false,
        };
        let net = |text: &str| Some(text.parse().expect("prefix"));
        Settings {
            groups: vec![Group::new("g"), Group::new("h")],
            vms: [vm("a", Some(0)), vm("b", None)].into_iter().enumerate().collect(),
            rules: vec![
                Rule { vm: Some(0), destination: net("10.1.0.0/16"), group: None },
                Rule { vm: None, destination: net("10.0.0.0/8"), group: Some(1) },
                Rule { vm: Some(1), destination: net("2001:db8::/32"), group: Some(0) },
            ],
            ..Settings::default()
        }
    }

    fn to(address: &str) -> IpAddr {
        address.parse().expect("address")
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let settings = settings();
        assert_eq!(settings.route(0, to("10.1.2.3")), None);
        assert_eq!(settings.route(1, to("10.1.2.3")), Some(1));
        assert_eq!(settings.route(0, to("10.2.2.3")), Some(1));
        assert_eq!(settings.route(0, to("::ffff:10.2.2.3")), Some(1), "the same address");
        assert_eq!(settings.route(0, to("2001:db8::1")), Some(0), "that of its VM");
        assert_eq!(settings.route(1, to("2001:db8::1")), Some(0));
        assert_eq!(settings.route(1, to("192.0.2.1")), None);
        assert_eq!(settings.route(2, to("10.2.2.3")), None, "no such VM");
    }

    #[test]
    fn what_is_not_coupled_goes_nowhere() {
        let mut settings = settings();
        settings.groups[1].coupled = false;
        assert_eq!(settings.route(0, to("10.2.2.3")), None);
        settings.vms.get_mut(&0).expect("there").coupled = false;
        assert_eq!(settings.route(0, to("192.0.2.1")), None);
    }
}
