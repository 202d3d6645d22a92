// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! An uplink is one group's: an interface has one root qdisc, and so one tree of queues.
use ccc_settings::{Fault, GroupSettings};
use serde_json::json;

use super::{Group, Settings};

impl Settings {
    /// Makes sure that no other group has the uplink of these settings of the group `name`.
    pub(super) fn check_uplink(&self, name: &str, settings: &GroupSettings) -> Result<(), Fault> {
        not_taken(&self.groups, name, settings)
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
    use ccc_settings::Changes;

    use super::*;
    use crate::settings::config;

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
}
