// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Updates through real queues.
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, Member},
    options::Options,
};

/// So many updates, in batches, of VMs that take turns.  Of each batch the device is told
/// when all of it is there.
pub fn batches(options: &Options) -> Value {
    let [vms, flows] = ["vms", "flows"].map(|name| options.number(name));
    let (batch, updates) = (options.number("batch"), options.number("updates"));
    let mut fleet = Fleet::start(vms, flows);
    let worked = fleet.worked(|fleet| {
        let turns = (0..updates / batch).map(|turn| turn % vms);
        for vm in turns {
            let member = &mut fleet.members[vm];
            member.drain();
            (0..batch).for_each(|_| member.offer());
            member.kick(batch as u16);
        }
        fleet.members.iter().for_each(Member::drain);
    });
    let kicks: u64 = fleet.members.iter().map(|member| member.kicks).sum();
    let done = (updates / batch * batch) as f64;
    let ns = worked.as_nanos() as f64 / done;
    json!({ "cpu_ns": ns, "updates_per_core_s": 1e9 / ns, "kicks_per_update": kicks as f64 / done })
}

/// So many updates of one VM as fast as its ring takes them.
pub fn stream(options: &Options) -> Value {
    let (flows, updates) = (options.number("flows"), options.number("updates"));
    let mut fleet = Fleet::start(1, flows);
    let worked = fleet.worked(|fleet| {
        let member = &mut fleet.members[0];
        for _ in 0..updates {
            while member.waiting() >= 255 {
                std::thread::yield_now();
            }
            member.offer();
            member.kick(1);
        }
        member.drain();
    });
    let ns = worked.as_nanos() as f64 / updates as f64;
    let kicks = fleet.members[0].kicks as f64 / updates as f64;
    json!({ "cpu_ns": ns, "updates_per_core_s": 1e9 / ns, "kicks_per_update": kicks })
}
