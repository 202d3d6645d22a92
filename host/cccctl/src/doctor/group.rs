// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is said of a group as a whole: whether it is coupled, tried, or promises too much.
use serde_json::Value;

use super::Finding;
use crate::views::word;

/// Its flows are not coupled, whatever is said of its VMs.
pub fn left_alone(group: &Value) -> Option<Finding> {
    (group["coupled"] == false).then(|| {
        let remedy = format!(
            "cccctl group {} --coupled on, if that is not on purpose",
            word(&group["name"])
        );
        // Queues at its uplink are a reason to leave it so.
        let enforce = group["enforce"].as_str().filter(|enforce| *enforce != "off");
        let vain = enforce.filter(|_| group["uplink"].is_null()).map(|enforce| {
            format!(", so enforce = \"{enforce}\" does nothing to its VMs but for their caps")
        });
        let what = format!("the flows of the group are left alone{}", vain.unwrap_or_default());
        Finding::new(group, what, remedy)
    })
}

/// Somebody tries what it is like without coupling.  Another release may say less of that.
pub fn tried(group: &Value) -> Option<Finding> {
    let trial = Some(&group["trial"]).filter(|trial| trial.is_object())?;
    let how = match trial["coupled"].as_bool() {
        Some(true) => "its flows are coupled now, and ",
        Some(false) => "its flows are left alone now, and ",
        None => "its flows are ",
    };
    let ends = trial["ends_ms"].as_u64();
    let ends = ends.map_or("soon".to_owned(), |ms| format!("{} s", ms / 1000));
    let what = format!(
        "a trial runs, by {}: {how}coupled again {ends} after its client has gone",
        word(&trial["by"]),
    );
    let remedy = format!("wait, or end it: cccctl group {} --coupled on", word(&group["name"]));
    Some(Finding::new(group, what, remedy))
}

/// The floors of its VMs leave too little at its uplink to the host and all else.  An older daemon does
/// not say.
pub fn floors_above_uplink(group: &Value) -> Option<Finding> {
    let bytes = |key| group["queues"][key].as_u64();
    let (floors, at_most) = (bytes("floors")?, bytes("floors_at_most")?);
    if floors <= at_most {
        return None;
    }
    let mbit = |bytes: u64| bytes as f64 * 8.0 / 1e6;
    let [name, uplink] = ["name", "uplink"].map(|key| word(&group[key]));
    let rate = group["uplink_rate_mbit"].as_f64()?;
    let what = format!(
        "the floors of its VMs are {:.1} Mbit/s together, and its uplink {uplink} takes {rate:.1}, of which \
         {:.1} are of the host and all else: each VM has {:.0} % of its floor there",
        mbit(floors),
        rate - mbit(at_most),
        100.0 * at_most as f64 / floors as f64
    );
    let remedy = format!(
        "lower floors (cccctl set VM --floor RATE) to {:.1} Mbit/s together, or give VMs another uplink; if it \
         takes more: cccctl group {name} --uplink-rate RATE",
        mbit(at_most)
    );
    Some(Finding::new(group, what, remedy))
}

/// Its VMs are promised more than there is.  An older daemon does not say.
pub fn floors_not_met(group: &Value) -> Option<Finding> {
    let mbit = |key| group["shortfall"][key].as_u64().map(|bytes| bytes as f64 * 8.0 / 1e6);
    let what = format!(
        "its floors cannot be met: those of VMs that want them are {:.1} Mbit/s together, and all \
         VMs have {:.1}",
        mbit("floors")?,
        mbit("delivered")?
    );
    let remedy = format!(
        "cccctl group {} has its VMs and what is due to each; lower floors (cccctl set VM --floor \
         RATE), or give VMs another uplink; VMs without a floor have next to nothing meanwhile",
        word(&group["name"])
    );
    Some(Finding::new(group, what, remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::answers::{findings, of_both};

    #[test]
    fn a_trial_that_runs_is_told() {
        let trial = json!({"coupled": false, "ends_ms": 29_500, "by": "uid 0 pid 7"});
        let group = json!({"name": "uplink", "coupled": true, "trial": trial});
        let found = findings(&json!({}), &json!({"vms": []}), &json!({"groups": [group]}));
        assert_eq!(found.len(), 1, "{found:?}");
        let told = "a trial runs, by uid 0 pid 7: its flows are left alone now, and coupled again 29 s \
                    after its client has gone";
        assert_eq!(found[0].what, told);
        assert!(found[0].remedy.contains("cccctl group uplink --coupled on"), "{found:?}");
    }

    #[test]
    fn a_trial_of_which_little_is_said_is_told() {
        let of = |trial: Value| of_both(json!({}), json!({"trial": trial}));
        let told = of(json!({}));
        assert_eq!(told.len(), 1, "{told:?}");
        let what = "a trial runs, by -: its flows are coupled again soon after its client has gone";
        assert_eq!(told[0].what, what);
        assert_eq!(of(json!([])), []);
    }

    #[test]
    fn floors_that_leave_the_host_too_little_of_an_uplink_are_told() {
        let of = |floors: u64| {
            let queues = json!({"there": true, "trouble": null, "vms": 2, "wanted": 2,
                "floors": floors, "floors_at_most": 112_812_500});
            let group = json!({"name": "wan", "coupled": true, "uplink": "eth0",
                "uplink_rate_mbit": 950.0, "queues": queues});
            findings(&json!({}), &json!({"vms": []}), &json!({"groups": [group]}))
        };
        assert_eq!(of(112_812_500), [], "all but a twentieth");
        let found = of(118_750_000);
        assert_eq!(
            found[0].what,
            "the floors of its VMs are 950.0 Mbit/s together, and its uplink eth0 takes 950.0, of which \
             47.5 are of the host and all else: each VM has 95 % of its floor there"
        );
        let remedy = "lower floors (cccctl set VM --floor RATE) to 902.5 Mbit/s together";
        assert!(found.len() == 1 && found[0].remedy.starts_with(remedy), "{found:?}");
    }

    #[test]
    fn floors_that_are_more_than_there_is_are_told() {
        let of = |shortfall| of_both(json!({}), json!({"shortfall": shortfall}));
        let found = of(json!({"floors": 1_500_000, "delivered": 625_000}));
        assert_eq!((found.len(), found[0].of.as_str()), (1, "uplink"));
        let what = "its floors cannot be met: those of VMs that want them are 12.0 Mbit/s together, \
                    and all VMs have 5.0";
        assert_eq!(found[0].what, what);
        assert!(found[0].remedy.starts_with("cccctl group uplink has its VMs"), "{found:?}");
        assert_eq!(of(Value::Null), []);
    }

    #[test]
    fn a_group_that_is_left_alone_is_told() {
        let groups = json!({"groups": [{"name": "uplink", "coupled": false}]});
        let text = crate::doctor::text(&findings(&json!({}), &json!({"vms": []}), &groups));
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("uplink ")), "{text}");
    }
}
