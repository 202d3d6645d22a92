// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What an operator asks and changes.
use serde_json::json;

use super::{Attempt, FLOWS, Target};
use crate::support::operator::Operator;

const VMS: usize = 1000;
/// Clients that change VMs at a time.
const CLIENTS: usize = 4;

/// Counts VMs added or changed.
pub fn puts(target: &Target, attempt: &Attempt) {
    let mut weight = 1.0;
    while attempt.goes_on() {
        weight = if weight > 100.0 { 1.0 } else { weight + 1.0 };
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || {
                    let numbers = (client..VMS).step_by(CLIENTS);
                    numbers
                        .take_while(|_| attempt.goes_on())
                        .for_each(|number| put(target, attempt, number, weight));
                });
            }
        });
    }
}

fn put(target: &Target, attempt: &Attempt, number: usize, weight: f64) {
    let socket = target.dir.join(format!("vm{number}"));
    let spec = json!({"socket": socket, "weight": weight});
    // Looking for a similar name among such long ones would be noticed.
    let path = format!("/v1/vms/instance-of-a-customer-of-a-cloud-{number:06}");
    let (status, body) = Operator::at(&target.control).ask("PUT", &path, Some(&spec));
    assert!((200..300).contains(&status), "{path}: {status} {body}");
    attempt.did(1);
}

/// Counts answers.
pub fn gets(target: &Target, attempt: &Attempt) {
    let _flows = target.with_flows(FLOWS);
    let operator = Operator::at(&target.control);
    while attempt.goes_on() {
        for path in ["/v1/vms", "/v1/groups"] {
            let told = operator.get(path).to_string();
            assert!(told.contains(&FLOWS.to_string()), "{path}: no {FLOWS} flows in {told}");
            attempt.did(1);
        }
    }
}
