// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `--print-capabilities`, by the conventions of vhost-user back ends.
use serde_json::json;

/// The back end's type and its optional features.
pub fn json() -> String {
    json!({"type": "ccc", "features": ["inband-notifications", "time-travel"]}).to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn capabilities_name_the_type() {
        assert!(super::json().contains(r#""type":"ccc""#));
    }
}
