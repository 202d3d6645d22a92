// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is known of a setting from its type.
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::RATE;

/// Settings that stand together; those that are left out have the values of `Default`.
/// [`table!`](crate::table) makes a type one.
pub trait Table: Clone + Default + PartialEq + Serialize + DeserializeOwned + JsonSchema {
    /// All settings, in their order.
    fn fields() -> &'static [Field];
}

/// Makes a type a [`Table`].  What is known of its settings is found out once: that takes
/// longer than to read one.
#[macro_export]
macro_rules! table {
    ($of:ty) => {
        impl $crate::Table for $of {
            fn fields() -> &'static [$crate::Field] {
                static FIELDS: std::sync::LazyLock<Vec<$crate::Field>> =
                    std::sync::LazyLock::new($crate::Field::all::<$of>);
                &FIELDS
            }
        }
    };
}

/// One setting of a table.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its JSON schema.
    pub schema: Value,
}

impl Field {
    /// All fields of a type, in their order.
    pub fn all<T: JsonSchema>() -> Vec<Field> {
        let inline =
            SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let mut schema = inline.into_generator().into_root_schema_for::<T>().to_value();
        let properties =
            schema["properties"].as_object_mut().map(std::mem::take).unwrap_or_default();
        properties.into_iter().map(|(name, schema)| Field { name, schema }).collect()
    }

    /// What it is.
    pub fn description(&self) -> &str {
        self.schema["description"].as_str().unwrap_or_default()
    }

    /// What it may be, as an operator reads it.
    pub fn expected(&self) -> String {
        if let Some(title) = self.schema["title"].as_str() {
            return title.to_owned();
        }
        let kind = self.schema["type"].as_str();
        match (self.words(), self.range(), kind) {
            (words, _, _) if !words.is_empty() => list(&words, "or"),
            (_, Some((least, most)), Some("integer")) => {
                format!("a whole number from {least} to {most}")
            }
            (_, Some((least, most)), _) => format!("a number from {least} to {most}"),
            (_, _, Some("boolean")) => "true or false".to_owned(),
            _ => "a string".to_owned(),
        }
    }

    /// The same, as [`crate::Changes::set_text`] reads it.
    pub fn expected_text(&self) -> String {
        if self.is_switch() {
            return "on or off".to_owned();
        }
        if !self.is_rate() {
            return self.expected();
        }
        let none =
            if self.range().is_some_and(|(least, _)| least == 0.0) { ", or none" } else { "" };
        format!("{}{none}; or with a unit, as 500mbit or 10gbit", self.expected())
    }

    /// The words it can be, if there are only these.
    pub fn words(&self) -> Vec<&str> {
        let variants = self.schema["oneOf"].as_array().into_iter().flatten();
        let described = variants.filter_map(|variant| variant["const"].as_str());
        let plain = self.schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        described.chain(plain).collect()
    }

    /// The least and the greatest it can be, if it is a number.
    pub fn range(&self) -> Option<(f64, f64)> {
        self.schema["minimum"].as_f64().zip(self.schema["maximum"].as_f64())
    }

    /// It is on or off.
    pub fn is_switch(&self) -> bool {
        self.schema["type"] == "boolean"
    }

    /// It is a rate in Mbit/s, whose text may have a unit.
    pub fn is_rate(&self) -> bool {
        self.name.ends_with(RATE)
    }

    /// A number is within the range; all else is.
    pub(crate) fn admits(&self, value: &Value) -> bool {
        let within = |(least, most)| value.as_f64().is_none_or(|n| (least..=most).contains(&n));
        self.range().is_none_or(within)
    }
}

/// `a`, `a or b`, `a, b or c`.
pub(crate) fn list(words: &[&str], and: &str) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} {and} {last}", others.join(", ")),
        _ => words.concat(),
    }
}
