// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! An uplink is one group's: an interface has one root qdisc, and so one tree of queues.
use std::collections::BTreeMap;

use ccc_settings::{Changes, Fault, GroupSettings};
use serde_json::json;

use super::{
    Group, Settings,
    unused::{Of, Unused},
};

/// What is left out of a group's changes where its uplink does not fit.
const FIELDS: &[&str] = &["uplink", "uplink_rate_mbit"];

impl Settings {
    /// Makes sure that no other group has the uplink of these settings of the group `name`.
    pub(super) fn check_uplink(&self, name: &str, settings: &GroupSettings) -> Result<(), Fault> {
        not_taken(&self.groups, name, settings)
    }

    /// Puts the changes of all groups over them, and looks at uplinks only then: one may have gone
    /// from one group to another.  What does not fit is as in the configuration; that, and why.
    pub(super) fn put_groups(
        &mut self,
        all: &BTreeMap<String, Changes<GroupSettings>>,
    ) -> Vec<Unused> {
        let mut unused = Vec::new();
        for (name, changes) in all {
            match self.group(name) {
                Ok(index) => {
                    let settings = &mut self.groups[index].settings;
                    *settings = changes.apply(settings);
                }
                Err(error) => unused.push(Unused::all(Of::Group(name.clone()), error)),
            }
        }
        // What one has back of the configuration may be what another has taken.
        for _ in all {
            let mut groups = self.groups.iter().enumerate();
            let misfit = groups.find_map(|(index, group)| Some((index, self.misfit(group)?)));
            let Some((index, fault)) = misfit else { break };
            let Group { name, settings, configured } = &mut self.groups[index];
            settings.uplink.clone_from(&configured.uplink);
            settings.uplink_rate_mbit = configured.uplink_rate_mbit;
            unused.push(Unused::fields(Of::Group(name.clone()), FIELDS, fault));
        }
        unused
    }

    /// Why a group cannot have what changes have made of its uplink, if so.
    fn misfit(&self, group: &Group) -> Option<Fault> {
        let Group { name, settings, configured } = group;
        let has_moved = settings.uplink != configured.uplink;
        let taken = || self.check_uplink(name, settings).err().filter(|_| has_moved);
        settings.check().err().or_else(taken)
    }
}

/// Makes sure that none of these groups has the uplink of these settings of another.
pub(super) fn not_taken(
    groups: &[Group],
    name: &str,
    settings: &GroupSettings,
) -> Result<(), Fault> {
    let Some(uplink) = &settings.uplink else { return Ok(()) };
    let has = |group: &&Group| group.name != name && group.settings.uplink.as_ref() == Some(uplink);
    let Some(other) = groups.iter().find(has) else { return Ok(()) };
    let expected = format!("an interface that group `{}` does not have", other.name);
    let remedy = "an interface has one tree of queues: put VMs that share it into one group";
    Err(Fault::new("uplink", expected, &json!(uplink)).remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{config, state::State};

    const ONE: &str = "[daemon]\ncontrol = \"/run/c\"\n[group.a]\nuplink = \"eth0\"\n\
                       uplink_rate_mbit = 950.0\n[group.b]\nuplink_rate_mbit = 10.0\n";

    #[test]
    fn an_uplink_is_one_groups_and_has_a_rate() {
        let told = |more: &str| config::parse("f", &format!("{ONE}{more}")).map(drop);
        assert_eq!(told("uplink = \"eth1\"\n"), Ok(()));
        let twice = told("uplink = \"eth0\"\n").expect_err("refused").to_string();
        let expected = "invalid group.b.uplink: expected an interface that group `a` does not have";
        assert!(twice.contains(expected), "{twice}");
        let without = told("[group.c]\nuplink = \"eth2\"\n").expect_err("refused").to_string();
        assert!(
            without.contains("invalid group.c.uplink_rate_mbit: expected the rate"),
            "{without}"
        );
    }

    #[test]
    fn a_change_keeps_to_that_too() {
        let mut settings = config::parse("f", ONE).expect("right");
        let mut change = |group: &str, what| {
            let changes = Changes::read(what).expect("each field is right");
            settings.change_group(group, &changes).map(drop).map_err(|error| error.to_string())
        };
        assert!(change("b", json!({"uplink": "eth0"})).expect_err("a's").contains("group `a`"));
        assert!(
            change("a", json!({"uplink_rate_mbit": null})).expect_err("no rate").contains("rate")
        );
        assert_eq!(change("a", json!({"uplink": null, "uplink_rate_mbit": null})), Ok(()));
        assert_eq!(change("b", json!({"uplink": "eth0"})), Ok(()));
    }

    const ONE_OF_A: &str = "[group.a]\nuplink = \"eth0\"\nuplink_rate_mbit = 9.0\n\
                            [group.b]\nuplink_rate_mbit = 8.0\n";

    /// The settings after a start with this configuration and these changes of groups, and what
    /// of the changes is not in force.
    fn started(config: &str, groups: serde_json::Value) -> (Settings, Vec<String>) {
        let config = format!("[daemon]\ncontrol = \"/run/c\"\n{config}");
        let mut settings = config::parse("f", &config).expect("right");
        let kept = json!({"version": 1, "groups": groups});
        let unused = State::from_json(kept).expect("right").apply(&mut settings);
        (settings, unused.iter().map(Unused::told).collect())
    }

    fn of<'a>(settings: &'a Settings, group: &str) -> &'a GroupSettings {
        &settings.groups[settings.group(group).expect("there")].settings
    }

    #[test]
    fn an_uplink_that_has_moved_is_there_after_a_restart() {
        for (old, new) in [("a", "b"), ("b", "a")] {
            let config = format!(
                "[group.{old}]\nuplink = \"eth0\"\nuplink_rate_mbit = 9.0\n[group.{new}]\n"
            );
            let moved = json!({
                old: {"uplink": null},
                new: {"uplink": "eth0", "uplink_rate_mbit": 10, "enforce": "on", "coupled": false},
            });
            let (settings, unused) = started(&config, moved);
            assert_eq!((of(&settings, old).uplink.as_deref(), unused.len()), (None, 0));
            let new = of(&settings, new);
            assert_eq!((new.uplink.as_deref(), new.coupled), (Some("eth0"), false), "{unused:?}");
        }
    }

    #[test]
    fn of_an_uplink_that_does_not_fit_any_more_only_that_is_left_out() {
        let change = json!({"uplink": "eth0", "uplink_rate_mbit": 10, "coupled": false});
        let (settings, unused) = started(ONE_OF_A, json!({"b": change}));
        let b = of(&settings, "b");
        assert_eq!((b.uplink.as_deref(), b.uplink_rate_mbit, b.coupled), (None, Some(8.0), false));
        let told = "state of group b, uplink and uplink_rate_mbit, not used: invalid uplink: \
                    expected an interface that group `a` does not have";
        assert!(unused[0].starts_with(told) && unused.len() == 1, "{unused:?}");
        // Its rate was the configuration's, which has none any more.
        let (settings, unused) =
            started("[group.a]\n", json!({"a": {"uplink": "eth0", "coupled": false}}));
        let a = of(&settings, "a");
        assert_eq!((a.uplink.as_deref(), a.coupled, unused.len()), (None, false, 1));
    }

    #[test]
    fn who_has_its_own_uplink_back_takes_it_from_whom_it_had_gone_to() {
        let config = "[group.a]\n[group.b]\nuplink = \"eth1\"\nuplink_rate_mbit = 9.0\n\
                      [group.c]\nuplink = \"eth0\"\nuplink_rate_mbit = 9.0\n";
        let exchanged =
            json!({"a": {"uplink": "eth1", "uplink_rate_mbit": 9}, "b": {"uplink": "eth0"}});
        let (settings, unused) = started(config, exchanged);
        let uplinks = ["a", "b", "c"].map(|group| of(&settings, group).uplink.as_deref());
        assert_eq!((uplinks, unused.len()), ([None, Some("eth1"), Some("eth0")], 2), "{unused:?}");
    }
}
