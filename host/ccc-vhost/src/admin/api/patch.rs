// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Changes: what is left out stays as it is.
//!
//! The same form is a request's body and an entry of the state file.
use std::path::PathBuf;

use ccc_core::{EquivalentTcps, GrowthSource, PolicyKind, ShareOf, Weight};
use ipnet::IpNet;
use serde_json::{Map, Value, json};

use crate::{
    admin::api::{ApiError, fields::Fields},
    settings::DEFAULT_GROUP,
    settings::values::{self, Given},
};

/// A change of a VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmPatch {
    /// Its share of any group.
    pub weight: Option<Given<Weight>>,
    /// Its group, or none.
    pub group: Option<Option<String>>,
    /// Whether its flows are coupled.
    pub coupled: Option<bool>,
}

/// A VM as it is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct VmSpec {
    /// Where its front end connects.
    pub socket: PathBuf,
    /// The rest, all of it.
    pub rest: VmPatch,
}

/// A change of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupPatch {
    /// Coupling algorithm.
    pub policy: Option<PolicyKind>,
    /// What shares are shares of.
    pub share: Option<ShareOf>,
    /// How many TCPs it is worth.
    pub equivalent_tcps: Option<Given<EquivalentTcps>>,
    /// Whose growth it takes.
    pub growth_source: Option<GrowthSource>,
    /// Whether its flows are coupled.
    pub coupled: Option<bool>,
}

/// A rule by names.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSpec {
    /// The VM it is for; `None` for all.
    pub vm: Option<String>,
    /// Where its flows go; `None` for everywhere.
    pub destination: Option<IpNet>,
    /// Their group; `None` for flows that are not coupled.
    pub group: Option<String>,
}

impl VmPatch {
    /// All its fields.
    pub const FIELDS: &[&str] = &["weight", "group", "coupled"];

    /// Reads a change.
    pub fn read(value: Value, place: &str) -> Result<VmPatch, ApiError> {
        VmPatch::take(&mut Fields::of(value, place, VmPatch::FIELDS)?)
    }

    fn take(fields: &mut Fields) -> Result<VmPatch, ApiError> {
        let weight = fields.number("weight")?;
        Ok(VmPatch {
            weight: fields.value("weight", weight, values::weight)?,
            group: fields.nullable("group")?,
            coupled: fields.flag("coupled")?,
        })
    }

    /// The change as it can be read again.
    pub fn json(&self) -> Value {
        object([
            ("weight", self.weight.map(|weight| json!(weight.written))),
            ("group", self.group.as_ref().map(|group| json!(group))),
            ("coupled", self.coupled.map(|coupled| json!(coupled))),
        ])
    }

    /// This change and then another.
    pub fn then(&mut self, next: &VmPatch) {
        self.weight = next.weight.or(self.weight);
        self.group = next.group.clone().or(self.group.take());
        self.coupled = next.coupled.or(self.coupled);
    }
}

impl VmSpec {
    /// All its fields.
    pub const FIELDS: &[&str] = &["socket", "weight", "group", "coupled"];

    /// Reads a description; what is left out has its default.
    pub fn read(value: Value) -> Result<VmSpec, ApiError> {
        let mut fields = Fields::of(value, "", VmSpec::FIELDS)?;
        let mut rest = VmPatch {
            weight: Some(Given::<Weight>::ONE),
            group: Some(Some(DEFAULT_GROUP.to_owned())),
            coupled: Some(true),
        };
        rest.then(&VmPatch::take(&mut fields)?);
        let socket = VmSpec::socket(&mut fields)?;
        Ok(VmSpec { socket, rest })
    }

    /// Reads where a front end connects.
    pub fn socket(fields: &mut Fields) -> Result<PathBuf, ApiError> {
        let written = fields.string("socket")?;
        let socket = fields.value("socket", written.as_deref(), values::socket)?;
        socket.ok_or_else(|| ApiError::Missing { field: fields.path("socket") })
    }
}

impl GroupPatch {
    /// All its fields.
    pub const FIELDS: &[&str] = &["policy", "share", "equivalent_tcps", "growth_source", "coupled"];

    /// Reads a change.
    pub fn read(value: Value, place: &str) -> Result<GroupPatch, ApiError> {
        let mut fields = Fields::of(value, place, GroupPatch::FIELDS)?;
        let (policy, share) = (fields.string("policy")?, fields.string("share")?);
        let growth_source = fields.string("growth_source")?;
        let equivalent_tcps = fields.number("equivalent_tcps")?;
        Ok(GroupPatch {
            policy: fields.value("policy", policy.as_deref(), values::policy)?,
            share: fields.value("share", share.as_deref(), values::share)?,
            equivalent_tcps: fields.value(
                "equivalent_tcps",
                equivalent_tcps,
                values::equivalent_tcps,
            )?,
            growth_source: fields.value(
                "growth_source",
                growth_source.as_deref(),
                values::growth_source,
            )?,
            coupled: fields.flag("coupled")?,
        })
    }

    /// The change as it can be read again.
    pub fn json(&self) -> Value {
        object([
            ("policy", self.policy.map(|policy| json!(values::policy_name(policy)))),
            ("share", self.share.map(|share| json!(values::share_name(share)))),
            (
                "equivalent_tcps",
                self.equivalent_tcps.map(|equivalent_tcps| json!(equivalent_tcps.written)),
            ),
            (
                "growth_source",
                self.growth_source.map(|growth_source| json!(values::coco_name(growth_source))),
            ),
            ("coupled", self.coupled.map(|coupled| json!(coupled))),
        ])
    }

    /// This change and then another.
    pub fn then(&mut self, next: &GroupPatch) {
        self.policy = next.policy.or(self.policy);
        self.share = next.share.or(self.share);
        self.equivalent_tcps = next.equivalent_tcps.or(self.equivalent_tcps);
        self.growth_source = next.growth_source.or(self.growth_source);
        self.coupled = next.coupled.or(self.coupled);
    }
}

impl RuleSpec {
    /// All its fields.
    pub const FIELDS: &[&str] = &["vm", "destination", "group"];

    /// Reads `{"rules": [...]}`.
    pub fn read_all(value: Value) -> Result<Vec<RuleSpec>, ApiError> {
        let rules = Fields::of(value, "", &["rules"])?.require("rules")?;
        RuleSpec::read_list(rules)
    }

    /// Reads a list of rules.
    pub fn read_list(value: Value) -> Result<Vec<RuleSpec>, ApiError> {
        let Value::Array(rules) = value else {
            return Err(ApiError::Type { field: "rules".to_owned(), expected: "a list" });
        };
        let numbered = rules.into_iter().enumerate();
        numbered.map(|(number, rule)| RuleSpec::read(rule, &format!("rules[{number}]"))).collect()
    }

    fn read(value: Value, place: &str) -> Result<RuleSpec, ApiError> {
        let mut fields = Fields::of(value, place, RuleSpec::FIELDS)?;
        let destination = fields.nullable("destination")?.flatten();
        let group = fields.nullable("group")?;
        Ok(RuleSpec {
            vm: fields.nullable("vm")?.flatten(),
            destination: fields.value("destination", destination.as_deref(), values::prefix)?,
            group: group.ok_or_else(|| ApiError::Missing { field: fields.path("group") })?,
        })
    }

    /// The rule as it can be read again.
    pub fn json(&self) -> Value {
        let destination = self.destination.map(|net| net.to_string());
        json!({"vm": self.vm, "destination": destination, "group": self.group})
    }
}

fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let there = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(there.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(result: Result<impl std::fmt::Debug, ApiError>) -> (String, String) {
        let error = result.expect_err("refused");
        (error.field().unwrap_or_default().to_owned(), error.to_string())
    }

    #[test]
    fn changes_are_read_as_they_were_written() {
        for text in [
            r#"{"coupled":false,"group":"g","weight":0.5}"#,
            r#"{"group":null}"#,
            r#"{"weight":3.0}"#,
            "{}",
        ] {
            let value: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(VmPatch::read(value, "").expect("right").json().to_string(), text);
        }
        let text = r#"{"coupled":true,"equivalent_tcps":2.0,"growth_source":"first","policy":"e-tcp","share":"window"}"#;
        let value = serde_json::from_str(text).expect("JSON");
        assert_eq!(GroupPatch::read(value, "").expect("right").json().to_string(), text);
    }

    #[test]
    fn a_later_change_goes_over_an_earlier_one() {
        let read = |value| VmPatch::read(value, "").expect("right");
        let mut all = read(json!({"weight": 2, "group": "g"}));
        all.then(&read(json!({"group": null, "coupled": false})));
        assert_eq!(all, read(json!({"weight": 2, "group": null, "coupled": false})));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let vm = |value| wrong(VmPatch::read(value, ""));
        assert_eq!(vm(json!([])).0, "body");
        assert_eq!(vm(json!({"wieght": 1})).0, "wieght");
        assert_eq!(vm(json!({"weight": "1"})).1, "`weight` is not a number");
        assert_eq!(vm(json!({"weight": 0})).1, "weight 0 is out of range; use 0.01 to 1000");
        assert_eq!(vm(json!({"group": 1})).1, "`group` is not a string or null");
        assert_eq!(vm(json!({"coupled": null})).0, "coupled");
        let group = |value| wrong(GroupPatch::read(value, "")).0;
        assert_eq!(group(json!({"policy": "x"})), "policy");
        assert_eq!(group(json!({"growth_source": "x"})), "growth_source");
        assert_eq!(group(json!({"share": 1})), "share");
        assert_eq!(group(json!({"equivalent_tcps": 65})), "equivalent_tcps");
        let rules = |value| wrong(RuleSpec::read_all(value)).0;
        assert_eq!(rules(json!({})), "rules");
        assert_eq!(rules(json!({"rules": {}})), "rules");
        assert_eq!(rules(json!({"rules": [1]})), "rules[0]");
        assert_eq!(rules(json!({"rules": [{"group": null}, {}]})), "rules[1].group");
        let net = json!({"rules": [{"group": null, "destination": "x"}]});
        assert_eq!(rules(net), "rules[0].destination");
        assert_eq!(rules(json!({"rules": [{"group": null, "to": 1}]})), "rules[0].to");
    }
}
