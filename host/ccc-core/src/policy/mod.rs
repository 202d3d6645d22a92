// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Coupling algorithms behind one interface.
//!
//! A policy says what becomes of one group's aggregate: its window, its slow
//! start threshold and the epoch.  Who the members are and how the window is
//! split among them is not its business; it is told what happened, in shares.
//! `docs/algorithm.md` says where each comes from and what it does wrong.
mod aggregate;
mod cm;
mod ctrltcp;
mod e_tcp;
mod efcm;
mod growth_source;
mod interface;
mod lisa;
mod signal;
mod single;
mod slow_start;
mod uncoupled;

use crate::fixed::EquivalentTcps;
pub(crate) use aggregate::Aggregate;
pub use growth_source::GrowthSource;
pub(crate) use interface::Policy;
pub(crate) use signal::{Ack, Cause, CongestionEvent, Joiner, PathSample};

/// Coupling algorithm of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum PolicyKind {
    /// ctrlTCP (Islam, Welzl et al.), with the repairs of `docs/algorithm.md`.
    #[default]
    #[cfg_attr(feature = "serde", serde(rename = "ctrltcp"))]
    CtrlTcp,
    /// Each flow is its own controller.
    Uncoupled,
    /// Ensemble-TCP (Eggert, Heidemann, Touch).
    ETcp,
    /// Ensemble Flow Congestion Management (Savorić, Karl, Wolisz et al.).
    Efcm,
    /// Windows are shared by flows in slow start only, after LISA (Barik,
    /// Welzl, Ferlin, Alay).
    Lisa,
    /// Congestion Manager (Balakrishnan, Seshan; RFC 3124).
    Cm,
}

impl PolicyKind {
    /// A policy for an empty group.  `equivalent_tcps` and `growth_source` are ctrlTCP's.
    pub(crate) fn build(
        self,
        equivalent_tcps: EquivalentTcps,
        growth_source: GrowthSource,
    ) -> Box<dyn Policy> {
        match self {
            PolicyKind::CtrlTcp => Box::new(ctrltcp::CtrlTcp::new(equivalent_tcps, growth_source)),
            PolicyKind::Uncoupled => Box::new(uncoupled::Uncoupled),
            PolicyKind::ETcp => Box::new(e_tcp::ETcp::default()),
            PolicyKind::Efcm => Box::new(efcm::Efcm),
            PolicyKind::Lisa => Box::new(lisa::Lisa::default()),
            PolicyKind::Cm => Box::new(cm::Cm::default()),
        }
    }
}
