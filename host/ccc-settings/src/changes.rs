// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Changes of settings: fields that have been checked; those left out stay as they are.
use std::marker::PhantomData;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{Fault, Field, NO_GROUP, Table, field::list, rate::with_unit};

/// Some fields of a table.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Changes<T> {
    fields: Map<String, Value>,
    #[serde(skip)]
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Changes<T> {
    fn clone(&self) -> Changes<T> {
        Changes { fields: self.fields.clone(), of: PhantomData }
    }
}

impl<T> Default for Changes<T> {
    fn default() -> Changes<T> {
        Changes { fields: Map::new(), of: PhantomData }
    }
}

impl<T> PartialEq for Changes<T> {
    fn eq(&self, other: &Changes<T>) -> bool {
        self.fields == other.fields
    }
}

impl<T> Changes<T> {
    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The value of a field, if it is among them.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// One field of them, if it is among them.
    pub fn only(&self, name: &str) -> Changes<T> {
        let field = self.fields.get(name).map(|value| (name.to_owned(), value.clone()));
        Changes { fields: field.into_iter().collect(), of: PhantomData }
    }

    /// Those of the fields that are chosen.
    pub fn part(&self, is_chosen: impl Fn(&str) -> bool) -> Changes<T> {
        let fields = self.fields.iter().filter(|(name, _)| is_chosen(name));
        let fields = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        Changes { fields, of: PhantomData }
    }

    /// These changes and then others.
    pub fn then(&mut self, next: Changes<T>) {
        self.fields.extend(next.fields);
    }

    /// Each field with its text, as [`Changes::set_text`] reads it.
    pub fn texts(&self) -> impl Iterator<Item = (&str, String)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), text(value)))
    }
}

impl<T: Table> Changes<T> {
    /// Those that make any settings these.
    pub fn all(settings: &T) -> Changes<T> {
        Changes { fields: object(settings), of: PhantomData }
    }

    /// Reads a JSON object, or tells the first of its faults.
    pub fn read(value: Value) -> Result<Changes<T>, Fault> {
        let (changes, faults) = Changes::collect(entries(value)?);
        faults.into_iter().next().map_or(Ok(changes), Err)
    }

    /// Reads all fields that can be used, and tells the faults of the others.
    pub fn collect(entries: impl IntoIterator<Item = (String, Value)>) -> (Changes<T>, Vec<Fault>) {
        let mut changes = Changes::default();
        let read = entries.into_iter().map(|(name, value)| changes.set(&name, value).err());
        let faults = read.flatten().collect();
        (changes, faults)
    }

    /// Those of them that say otherwise than some settings.
    pub fn besides(&self, settings: &T) -> Changes<T> {
        let there = object(settings);
        let other = self.fields.iter().filter(|(name, value)| there.get(*name) != Some(*value));
        let fields = other.map(|(name, value)| (name.clone(), value.clone())).collect();
        Changes { fields, of: PhantomData }
    }

    /// Adds a field, if its value can be used.
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), Fault> {
        let field = field::<T>(name)?;
        let one = Value::Object([(name.to_owned(), value.clone())].into_iter().collect());
        match serde_json::from_value::<T>(one) {
            Ok(settings) if field.admits(&value) => {
                // As it is written everywhere: 3 becomes 3.0 where 2.5 could stand.
                self.fields.insert(name.to_owned(), json!(settings)[name].take());
                Ok(())
            }
            _ => Err(Fault::new(name, field.expected(), &value)),
        }
    }

    /// Adds a field from its text: `on` and `off`, numbers, words.
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), Fault> {
        let field = field::<T>(name)?;
        let value = match text {
            "on" if field.is_switch() => json!(true),
            "off" if field.is_switch() => json!(false),
            // What may be 0 is then not there.
            "none" if field.is_rate() && field.range().is_some_and(|(least, _)| least == 0.0) => {
                json!(0)
            }
            _ if field.is_rate() => {
                with_unit(text).or_else(|| number(text)).unwrap_or_else(|| json!(text))
            }
            _ if field.range().is_some() => number(text).unwrap_or_else(|| json!(text)),
            _ => json!(text),
        };
        self.set(name, value).map_err(|_| Fault::new(name, field.expected_text(), &json!(text)))
    }

    /// The settings after these changes.
    pub fn apply(&self, to: &T) -> T {
        let mut all = object(to);
        all.extend(self.fields.clone());
        serde_json::from_value(Value::Object(all)).expect("each field was read or is T's own")
    }
}

/// What is different, as an operator would say it: `weight 1 → 3, group a → none`; empty
/// if nothing is.
pub fn difference<T: Table>(before: &T, after: &T) -> String {
    let (before, after) = (object(before), object(after));
    let steps = after.iter().filter(|(name, value)| before[*name] != **value);
    let steps = steps.map(|(name, new)| format!("{name} {} → {}", text(&before[name]), text(new)));
    steps.collect::<Vec<_>>().join(", ")
}

/// The fields of a JSON object.
pub(crate) fn entries(value: Value) -> Result<Map<String, Value>, Fault> {
    match value {
        Value::Object(map) => Ok(map),
        other => Err(Fault::new("body", "an object", &other)),
    }
}

fn field<T: Table>(name: &str) -> Result<&'static Field, Fault> {
    T::fields().iter().find(|field| field.name == name).ok_or_else(|| {
        let names: Vec<&str> = T::fields().iter().map(|field| field.name.as_str()).collect();
        Fault::unknown(name, list(&names, "or"))
    })
}

fn object<T: Serialize>(settings: &T) -> Map<String, Value> {
    match json!(settings) {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn number(text: &str) -> Option<Value> {
    // No whole number is -0.
    let whole = text.parse::<i64>().ok().filter(|number| *number != 0 || !text.starts_with('-'));
    let whole = whole.map(|number| json!(number));
    // What JSON does not have would be nothing there, which a setting may be.
    let finite = || text.parse().ok().filter(|number: &f64| number.is_finite());
    whole.or_else(|| finite().map(|number| json!(number)))
}

/// A value as an operator says it.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => NO_GROUP.to_owned(),
        Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::String(word) => word.clone(),
        number => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupSettings, RuleSettings, VmSettings};

    fn vm(value: Value) -> Result<Changes<VmSettings>, String> {
        Changes::read(value).map_err(|fault| fault.to_string())
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
            assert_eq!(json!(vm(value).expect("right")).to_string(), text);
        }
        let all = json!(GroupSettings::default());
        let changes = Changes::<GroupSettings>::read(all.clone()).expect("right");
        assert_eq!(json!(changes), all);
        let numbers = vm(json!({"weight": 0.01, "group": "none"})).expect("right");
        let settings = numbers.apply(&VmSettings::default());
        assert_eq!((settings.weight, settings.group), (0.01, None), "as written");
        assert_eq!(vm(json!({"weight": 3})), vm(json!({"weight": 3.0})));
    }

    #[test]
    fn a_later_change_goes_over_an_earlier_one() {
        let read = |value| vm(value).expect("right");
        let mut all = read(json!({"weight": 2, "group": "g"}));
        all.then(read(json!({"group": null, "coupled": false})));
        assert_eq!(all, read(json!({"weight": 2, "group": null, "coupled": false})));
    }

    #[test]
    fn every_wrong_field_is_named_with_what_it_can_be() {
        let wrong = |value| vm(value).expect_err("refused");
        let range = "expected a number from 0.01 to 1000, got";
        assert_eq!(wrong(json!([])), "invalid body: expected an object, got []");
        let unknown = "invalid wieght: expected weight, group, coupled, tap, floor_mbit, cap_mbit, device or tenant, got an unknown key";
        assert_eq!(wrong(json!({"wieght": 1})), unknown);
        for value in [json!("1"), json!(0), json!(0.009), json!(1001), json!(-1), json!(null)] {
            assert_eq!(wrong(json!({"weight": value})), format!("invalid weight: {range} {value}"));
        }
        let group = "invalid group: expected the name of a group, or none, got 1";
        assert_eq!(wrong(json!({"group": 1})), group);
        let coupled = "invalid coupled: expected true or false, got null";
        assert_eq!(wrong(json!({"coupled": null})), coupled);
        let rule = Changes::<RuleSettings>::read(json!({"to": 1})).expect_err("refused");
        assert_eq!(rule.field, "to");
    }

    #[test]
    fn every_setting_of_a_group_takes_what_it_says_and_nothing_else() {
        let set = |name: &str, value: Value| Changes::<GroupSettings>::default().set(name, value);
        // As an operator would write it: 3, not 3.0.
        let number = |n: f64| if n.fract() == 0.0 { json!(n as i64) } else { json!(n) };
        for field in GroupSettings::fields() {
            assert!(!field.description().is_empty(), "{}", field.name);
            let words = field.words();
            for word in &words {
                assert_eq!(set(&field.name, json!(word)), Ok(()));
                assert!(field.expected().contains(word));
            }
            if let Some((least, most)) = field.range() {
                assert_eq!(set(&field.name, number(least)), Ok(()));
                assert_eq!(set(&field.name, number(most)), Ok(()));
                for out in [json!(least * 0.9), json!(most * 1.1), json!(-1)] {
                    assert!(set(&field.name, out).is_err(), "{}", field.name);
                }
            }
            let may_be_none = field.expected().ends_with("or none");
            assert_eq!(set(&field.name, json!(null)).is_ok(), may_be_none, "{}", field.name);
            let is_name = may_be_none && !field.is_rate();
            assert!(field.is_switch() || field.range().is_some() || words.len() > 1 || is_name);
            let word = if is_name { json!("a/b") } else { json!("x") };
            let wrongs = [word, json!(1e9), json!([]), json!(null)];
            for wrong in wrongs.into_iter().filter(|wrong| !(may_be_none && wrong.is_null())) {
                let fault = set(&field.name, wrong.clone()).expect_err("refused");
                assert_eq!((fault.field, fault.got), (field.name.clone(), wrong.to_string()));
            }
        }
    }

    #[test]
    fn texts_are_read_as_they_are_said() {
        let mut changes = Changes::<VmSettings>::default();
        for (name, text) in [("weight", "2.5"), ("group", "none"), ("coupled", "off")] {
            changes.set_text(name, text).expect("right");
        }
        assert_eq!(
            changes,
            vm(json!({"weight": 2.5, "group": null, "coupled": false})).expect("right")
        );
        let said: Vec<_> = changes.texts().map(|(name, text)| format!("{name}={text}")).collect();
        assert_eq!(said, ["weight=2.5", "group=none", "coupled=off"]);
        let wrong = |name: &str, text: &str| {
            Changes::<VmSettings>::default().set_text(name, text).expect_err("refused").to_string()
        };
        let rate = |text: &str| {
            let mut changes = Changes::<VmSettings>::default();
            changes.set_text("cap_mbit", text).expect("right");
            changes.apply(&VmSettings::default()).cap_mbit
        };
        assert_eq!(["2", "500kbit", "10gbit"].map(rate), [2.0, 0.5, 10_000.0].map(Some));
        assert_eq!(rate("none"), None);
        assert_eq!([rate("100000bit"), rate("3300kbit")], [Some(0.1), Some(3.3)]);
        let mut without = Changes::<VmSettings>::default();
        without.set_text("floor_mbit", "none").expect("as a cap");
        assert_eq!(without.apply(&VmSettings::default()).floor_mbit, 0.0);
        let range = "expected a number from 0.1 to 1000000, or none; or with a unit, as 500mbit or \
                     10gbit, got";
        for text in ["0", "-1", "10kbit", "2tbit", "1gb", "fast", "", "-1gbit", "NaN"] {
            assert_eq!(wrong("cap_mbit", text), format!("invalid cap_mbit: {range} {text:?}"));
        }
        assert!(wrong("floor_mbit", "-1").contains("a number from 0 to 1000000, or none; or with"));
        assert!(wrong("weight", "3,5").ends_with("from 0.01 to 1000, got \"3,5\""));
        assert!(wrong("weight", "NaN").contains("0.01 to 1000"));
        assert!(wrong("weight", "-0").ends_with("got \"-0\""));
        assert_eq!(number("-0"), Some(json!(-0.0)), "a whole number is refused");
        assert_eq!(wrong("coupled", "false"), "invalid coupled: expected on or off, got \"false\"");
    }

    #[test]
    fn a_cap_below_the_floor_is_told_with_what_to_do() {
        let of =
            |floor_mbit, cap_mbit| VmSettings { floor_mbit, cap_mbit, ..VmSettings::default() };
        for (floor, cap) in [(0.0, None), (6.0, None), (2.0, Some(2.0)), (0.0, Some(0.1))] {
            assert_eq!(of(floor, cap).check(), Ok(()));
        }
        let told = of(6.0, Some(2.0)).check().expect_err("refused").to_string();
        let expected = "invalid cap_mbit: expected no less than floor_mbit, which is 6, or none, got \
                        2.0; a VM cannot have more than its cap: raise that, or lower the floor";
        assert_eq!(told, expected);
        let spec = json!({"socket": "/s", "floor_mbit": 6, "cap_mbit": 2});
        assert_eq!(crate::VmSpec::read(spec).expect_err("refused").to_string(), expected);
    }

    #[test]
    fn an_uplink_without_a_rate_is_told_with_what_to_do() {
        let of = |uplink: Option<&str>, uplink_rate_mbit| GroupSettings {
            uplink: uplink.map(str::to_owned),
            uplink_rate_mbit,
            ..GroupSettings::default()
        };
        for (uplink, rate) in [(None, None), (None, Some(950.0)), (Some("eth0"), Some(950.0))] {
            assert_eq!(of(uplink, rate).check(), Ok(()));
        }
        let told = of(Some("eth0"), None).check().expect_err("refused").to_string();
        assert!(
            told.starts_with("invalid uplink_rate_mbit: expected the rate of the uplink"),
            "{told}"
        );
    }

    #[test]
    fn a_table_is_described_once() {
        assert!(std::ptr::eq(VmSettings::fields(), VmSettings::fields()));
        assert!(!std::ptr::eq(VmSettings::fields(), GroupSettings::fields()));
    }

    #[test]
    fn what_is_different_is_said_in_their_order() {
        let before = VmSettings::default();
        let after = VmSettings { weight: 0.5, group: None, coupled: false, ..before.clone() };
        let said = "weight 1 → 0.5, group default → none, coupled on → off";
        assert_eq!(difference(&before, &after), said);
        assert_eq!(difference(&before, &before), "");
    }
}
