// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether a VM has more flows than the operator lets be coupled.
use serde_json::Value;

use super::{Finding, REFUSED_MS};

/// Some of its flows are over a limit.  Those over `max_flows_per_vm` have no slot, so its flows
/// do not count them.  An older daemon does not say.
pub fn over(vm: &Value) -> Option<Finding> {
    let (limit, ms) = (vm["counters"]["limit"].as_str()?, vm["counters"]["limit_ms"].as_u64()?);
    (ms < REFUSED_MS).then(|| {
        Finding::new(
            vm,
            format!("flows over {limit} are not coupled, seen {} s ago", ms / 1000),
            format!(
                "raise {limit} in [daemon] of the configuration, then systemctl restart ccc-vhost, \
                 which ends no flow"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_is_over_a_limit_is_told_which_and_when_for_as_long_as_that_matters() {
        // As `t9_a_guest_over_its_limit_…` has it of the daemon.
        let of = |limit, ms| {
            let counters = json!({"over_limit": 1, "limit": limit, "limit_ms": ms});
            let vm = json!({"name": "web", "group": "uplink", "coupled": true, "state": "active",
                "flows": 3, "coupled_flows": 3, "counters": counters});
            let groups = json!({"groups": [{"name": "uplink", "coupled": true}]});
            let vms = json!({"vms": [vm]});
            crate::doctor::findings("/nowhere".as_ref(), &json!({}), &vms, &groups)
        };
        for limit in ["max_flows", "max_flows_per_vm"] {
            let found = of(json!(limit), json!(9_500));
            assert_eq!(found.len(), 1, "{found:?}");
            let told = format!("flows over {limit} are not coupled, seen 9 s ago");
            assert_eq!(found[0].what, told);
            assert!(
                found[0].remedy.starts_with(&format!("raise {limit} in [daemon]")),
                "{found:?}"
            );
            assert_eq!(of(json!(limit), json!(REFUSED_MS)), [], "it is over");
        }
        assert_eq!(of(Value::Null, Value::Null), [], "all are coupled");
    }
}
