// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The network inside a guest: namespaces, interfaces, queues.

mod ipv6;
mod links;
mod namespaces;
mod offload;
pub mod path;
pub mod queue_stats;
mod queues;
mod sysctls;

use std::collections::BTreeMap;

use crate::error::Result;
use crate::guest::system::batch;
use crate::plan::Plan;
use crate::plan::addresses::RECEIVER;
use namespaces::Namespaces;
use sysctls::Sysctls;

/// What has been set up.
pub struct Network {
    /// Sysctls of each namespace as read back.
    pub sysctls: BTreeMap<String, Sysctls>,
    /// The queues as `tc` shows them.
    pub qdiscs: Vec<String>,
    /// Where senders and receivers are, if not in the first namespace.
    pub namespaces: Namespaces,
}

/// Sets everything up as the plan says.
pub fn set_up(plan: &Plan) -> Result<Network> {
    let mut namespaces = Namespaces::default();
    for sender in plan.senders.iter().filter(|s| s.namespace) {
        namespaces.add(&sender.vm)?;
    }
    if plan.router.is_some() {
        namespaces.add(RECEIVER)?;
    }
    let sysctls = sysctls::apply(plan, &namespaces)?;
    if let Some(router) = &plan.router {
        batch("ip", None, &links::of_router(router, &plan.senders))?;
        batch("ip", Some(RECEIVER), &links::of_receiver(router))?;
    }
    for sender in &plan.senders {
        let namespace = sender.namespace.then_some(sender.vm.as_str());
        batch("ip", namespace, &links::of_sender(sender))?;
    }
    if plan.ipv6 {
        ipv6::set_up(plan, &namespaces)?;
    }
    offload::turn_off()?;
    namespaces.in_each(offload::turn_off)?;
    let qdiscs = plan.router.as_ref().map_or(Ok(Vec::new()), path::set_up)?;
    Ok(Network { sysctls, qdiscs, namespaces })
}
