// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Accounts as text, and as JSON.
use std::fmt::Write;

use serde_json::{Value, json};

use super::{
    account::Account,
    all::{Fault, Told},
};

/// A line for each VM, one for each of its flows that are told, and one where there is a fault.
pub fn text(Told { accounts, faults }: &Told) -> String {
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
    for Fault { vm, why } in faults {
        let _ = writeln!(text, "{vm}: not looked at: {why}");
    }
    text
}

fn mbit(of: &Account, bytes: u64) -> String {
    format!("{:.2}", bytes as f64 * 8.0 / 1e6 / of.time.as_secs_f64())
}

/// Bytes, and in how many seconds.
pub fn json(Told { accounts, faults }: &Told) -> Value {
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
    let fault = |of: &Fault| json!({"name": of.vm, "why": of.why});
    json!({
        "vms": accounts.iter().map(vm).collect::<Vec<_>>(),
        "faults": faults.iter().map(fault).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::taps::flow::Flow;

    #[test]
    fn bytes_are_told_as_rates_and_flows_and_faults_below() {
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
        let why = "cannot count at the tap amy0 of amy".to_owned();
        let faults = vec![Fault { vm: "amy".to_owned(), why }];
        let told = Told { accounts: vec![account], faults };
        let text = text(&told);
        let lines: Vec<Vec<_>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["bob", "bob0", "1.00", "4.00", "0.00", "0.50"]);
        let flow = "bob: not coupled: 10.0.0.1:4000 to 10.0.0.2:80: 3.00 Mbit/s";
        assert_eq!(lines[2].join(" "), flow);
        let fault = "amy: not looked at: cannot count at the tap amy0 of amy";
        assert_eq!(lines[3].join(" "), fault);
        let json = json(&told);
        assert_eq!(json["vms"][0]["uncoupled_bytes"], 1_000_000);
        assert_eq!(json["faults"][0]["name"], "amy");
    }
}
