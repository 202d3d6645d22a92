// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM has sent between two looks, beside what it has reported.
use std::time::Duration;

use super::{
    flow::Flow,
    reported::{Reported, Vm},
    tap::Counted,
};

/// Bytes of a VM between two looks: of IP packets, but for `reported`, which is of their data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The VM.
    pub vm: String,
    /// Its tap.
    pub tap: String,
    /// In what time.
    pub time: Duration,
    /// Of coupled flows.
    pub coupled: u64,
    /// Of other TCP flows.
    pub uncoupled: u64,
    /// Of all that is no data of TCP's: other protocols, and ACKs.
    pub other: u64,
    /// Data that its flows say were delivered, coupled or not.
    pub reported: u64,
    /// The largest of the flows that are not coupled.
    pub flows: Vec<(Flow, u64)>,
}

impl Account {
    /// A flow is coupled if it was at either look.
    pub fn new(
        vm: &Vm,
        counted: Counted,
        before: &Reported,
        now: &Reported,
        top: usize,
    ) -> Account {
        let is_coupled = |flow: &Flow| now.coupled.contains(flow) || before.coupled.contains(flow);
        let (coupled, mut flows): (Vec<_>, Vec<_>) =
            counted.flows.into_iter().partition(|(flow, _)| is_coupled(flow));
        let coupled = coupled.iter().map(|(_, bytes)| bytes).sum();
        flows.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        flows.truncate(top);
        Account {
            vm: vm.name.clone(),
            tap: vm.tap.clone(),
            time: counted.time,
            coupled,
            // Flows that were one too many for the map are in the sum alone.
            uncoupled: counted.tcp.saturating_sub(coupled),
            other: counted.other,
            // The daemon was started anew.
            reported: now.delivered_bytes.saturating_sub(before.delivered_bytes),
            flows,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn flow(port: u16) -> Flow {
        Flow { source: ([10, 0, 0, 1], port).into(), destination: ([10, 0, 0, 2], 80).into() }
    }

    fn reported(ports: &[u16], delivered_bytes: u64) -> Reported {
        let coupled: HashSet<Flow> = ports.iter().map(|port| flow(*port)).collect();
        Reported { coupled, delivered_bytes }
    }

    fn account(flows: &[(u16, u64)], tcp: u64, top: usize) -> Account {
        let vm = Vm { name: "bob".to_owned(), tap: "bob0".to_owned() };
        let flows = flows.iter().map(|(port, bytes)| (flow(*port), *bytes)).collect();
        let counted = Counted { tcp, other: 7, flows, ..Counted::default() };
        Account::new(&vm, counted, &reported(&[1], 500), &reported(&[2], 900), top)
    }

    #[test]
    fn what_is_not_coupled_is_told_with_its_largest_flows() {
        let account = account(&[(1, 100), (2, 200), (3, 30), (4, 400), (5, 5)], 735, 2);
        assert_eq!((account.coupled, account.uncoupled, account.other), (300, 435, 7));
        assert_eq!(account.reported, 400);
        assert_eq!(account.flows, [(flow(4), 400), (flow(3), 30)]);
    }

    #[test]
    fn flows_that_the_map_had_no_room_for_are_not_coupled() {
        assert_eq!(account(&[(1, 100)], 1000, 8).uncoupled, 900);
        assert_eq!(account(&[(1, 100)], 90, 8).uncoupled, 0, "read one after the other");
    }
}
