// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Coupling algorithms behind one interface.
//!
//! A policy says what becomes of one group's aggregate: its window, its slow
//! start threshold and the epoch.  Who the members are and how the window is
//! split among them is not its business; it is told what happened, in shares.
//! `docs/algorithm.md` says where each comes from and what it does wrong.
mod cm;
mod coordinator;
mod ctrltcp;
mod delay;
mod e_tcp;
mod efcm;
mod interface;
mod lisa;
mod outside;
mod rounds;
mod slow_start;
mod uncoupled;

use crate::config::{GroupConfig, PolicyKind};
pub use interface::QueueMode;
pub(crate) use interface::{
    Ack, Aggregate, Cause, CongestionEvent, Joiner, Others, PathSample, Policy,
};
pub(crate) use slow_start::may_wait;

/// A policy for an empty group.
pub(crate) fn build(config: &GroupConfig) -> Box<dyn Policy> {
    match config.policy {
        PolicyKind::CtrlTcp => Box::new(ctrltcp::CtrlTcp::new(config)),
        PolicyKind::Uncoupled => Box::new(uncoupled::Uncoupled),
        PolicyKind::ETcp => Box::new(e_tcp::ETcp::default()),
        PolicyKind::Efcm => Box::new(efcm::Efcm),
        PolicyKind::Lisa => Box::new(lisa::Lisa::default()),
        PolicyKind::Delay => Box::new(delay::Delay::new(config)),
        PolicyKind::Cm => Box::new(cm::Cm::default()),
    }
}
