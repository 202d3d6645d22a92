// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Accounts as text, and as JSON.
use std::fmt::Write;

use serde_json::{Value, json};

use super::account::Account;

/// A line for each VM, and one for each of its flows that are told.
pub fn text(accounts: &[Account]) -> String {
    let mut text = String::new();
    // To a string nothing fails.
    let mut line = |cells: [&str; 6]| {
        let [vm, tap, numbers @ ..] = cells;
        let numbers: Vec<_> = numbers.iter().map(|cell| format!("{cell:>11}")).collect();
        let _ = writeln!(text, "{vm:<16} {tap:<15} {}", numbers.join(" "));
    };
    line(["VM", "TAP", "COUPLED", "NOT COUPLED", "OTHER", "REPORTED"]);
    for of in accounts {
        let all = [of.coupled, of.uncoupled, of.other, of.reported];
        let [coupled, uncoupled, other, reported] = all.map(|bytes| mbit(of, bytes));
        line([&of.vm, &of.tap, &coupled, &uncoupled, &other, &reported]);
    }
    for account in accounts {
        for (flow, bytes) in &account.flows {
            let (vm, from, to) = (&account.vm, flow.source, flow.destination);
            let _ = writeln!(
                text,
                "{vm}: not coupled: {from} to {to}: {} Mbit/s",
                mbit(account, *bytes)
            );
        }
    }
    text
}

fn mbit(of: &Account, bytes: u64) -> String {
    format!("{:.2}", bytes as f64 * 8.0 / 1e6 / of.time.as_secs_f64())
}

/// Bytes, and in how many seconds.
pub fn json(accounts: &[Account]) -> Value {
    let vm = |of: &Account| {
        let flows = of.flows.iter().map(|(flow, bytes)| {
            json!({
                "source": flow.source.ip(),
                "source_port": flow.source.port(),
                "destination": flow.destination.ip(),
                "destination_port": flow.destination.port(),
                "bytes": bytes,
            })
        });
        json!({
            "name": of.vm,
            "tap": of.tap,
            "seconds": of.time.as_secs_f64(),
            "coupled_bytes": of.coupled,
            "uncoupled_bytes": of.uncoupled,
            "other_bytes": of.other,
            "reported_bytes": of.reported,
            "uncoupled": flows.collect::<Vec<_>>(),
        })
    };
    json!({"vms": accounts.iter().map(vm).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::taps::flow::Flow;

    #[test]
    fn bytes_are_told_as_rates_and_the_largest_flows_below() {
        let flow =
            Flow { source: ([10, 0, 0, 1], 4000).into(), destination: ([10, 0, 0, 2], 80).into() };
        let (vm, tap) = ("bob".to_owned(), "bob0".to_owned());
        let (coupled, uncoupled, other, reported) = (250_000, 1_000_000, 0, 125_000);
        let flows = vec![(flow, 750_000)];
        let account = Account {
            vm,
            tap,
            time: Duration::from_secs(2),
            coupled,
            uncoupled,
            other,
            reported,
            flows,
        };
        let text = text(&[account]);
        let lines: Vec<Vec<_>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["bob", "bob0", "1.00", "4.00", "0.00", "0.50"]);
        let told = "bob: not coupled: 10.0.0.1:4000 to 10.0.0.2:80: 3.00 Mbit/s";
        assert_eq!(lines[2].join(" "), told);
    }
}
