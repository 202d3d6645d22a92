// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Walks a JSON object, so that what is wrong is told by its field.
use serde_json::{Map, Value};

use crate::{admin::api::ApiError, settings::values::ValueError};

/// An object of which nothing unknown is left.
#[derive(Debug)]
pub struct Fields {
    /// Where the object is: empty, or a path that ends in `.`.
    place: String,
    map: Map<String, Value>,
}

impl Fields {
    /// The fields of the object at `place`, which has none but these.
    pub fn of(value: Value, place: &str, known: &[&str]) -> Result<Fields, ApiError> {
        let Value::Object(map) = value else {
            let field = if place.is_empty() { "body" } else { place };
            return Err(ApiError::Object { field: field.to_owned() });
        };
        let place = if place.is_empty() { String::new() } else { format!("{place}.") };
        if let Some(field) = map.keys().find(|key| !known.contains(&key.as_str())) {
            let field = format!("{place}{field}");
            return Err(ApiError::UnknownField { field, known: known.join(", ") });
        }
        Ok(Fields { place, map })
    }

    /// Path of a field.
    pub fn path(&self, key: &str) -> String {
        format!("{}{key}", self.place)
    }

    /// A field as it is.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    /// A field that must be there.
    pub fn require(&mut self, key: &str) -> Result<Value, ApiError> {
        self.take(key).ok_or_else(|| ApiError::Missing { field: self.path(key) })
    }

    /// A number.
    pub fn number(&mut self, key: &str) -> Result<Option<f64>, ApiError> {
        self.typed(key, "a number", |value| value.as_f64())
    }

    /// True or false.
    pub fn flag(&mut self, key: &str) -> Result<Option<bool>, ApiError> {
        self.typed(key, "true or false", |value| value.as_bool())
    }

    /// A string.
    pub fn string(&mut self, key: &str) -> Result<Option<String>, ApiError> {
        self.typed(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// A string, or null.
    pub fn nullable(&mut self, key: &str) -> Result<Option<Option<String>>, ApiError> {
        self.typed(key, "a string or null", |value| match value {
            Value::Null => Some(None),
            Value::String(string) => Some(Some(string.clone())),
            _ => None,
        })
    }

    /// What `read` makes of a field that is there.
    pub fn value<T, U>(
        &self,
        key: &str,
        given: Option<T>,
        read: impl FnOnce(T) -> Result<U, ValueError>,
    ) -> Result<Option<U>, ApiError> {
        let wrong = |error| ApiError::Value { field: self.path(key), error };
        given.map(|given| read(given).map_err(wrong)).transpose()
    }

    fn typed<T>(
        &mut self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.map.remove(key) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| ApiError::Type { field: self.path(key), expected })
    }
}
