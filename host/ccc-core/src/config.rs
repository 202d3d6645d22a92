// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What an operator decides about a group.
use crate::fixed::{EquivalentTcps, TargetDelay};

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
    /// One aggregate that keeps its bottleneck's queue at a target delay.
    Delay,
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

/// What a share is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum ShareOf {
    /// The window: equal weights give equal windows, as in the papers.
    Window,
    /// The rate: equal weights give equal rates, whatever the round-trip
    /// times (B20).
    #[default]
    Rate,
}

impl ShareOf {
    /// Longer smoothed round-trip times count as this one, so that units stay
    /// within 32 bits.
    const SRTT_MAX_US: u32 = 1 << 20;
    /// A flow without a measured round-trip time counts as if it had this one.
    pub(crate) const SRTT_UNKNOWN_US: u32 = 100_000;

    /// Units of window that a flow holds.
    pub(crate) fn units(self, priority: u16, srtt_us: u32) -> u64 {
        let factor = match (self, srtt_us) {
            (ShareOf::Window, _) => 1,
            (ShareOf::Rate, 0) => ShareOf::SRTT_UNKNOWN_US,
            (ShareOf::Rate, us) => us.min(ShareOf::SRTT_MAX_US),
        };
        u64::from(priority) * u64::from(factor)
    }
}

/// Whose growth the aggregate takes in congestion avoidance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum GrowthSource {
    /// The share-weighted mean of all.
    #[default]
    Mean,
    /// The first flow's.
    First,
    /// That of the flow with the shortest round-trip time.
    ShortestRtt,
}

/// How a group is coupled.  `Default` is ctrlTCP, shares of the rate, worth one
/// TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupConfig {
    /// Coupling algorithm.
    pub policy: PolicyKind,
    /// What shares are shares of.
    pub share: ShareOf,
    /// How many TCPs ctrlTCP's aggregate is worth.
    pub equivalent_tcps: EquivalentTcps,
    /// Whose growth ctrlTCP's aggregate takes.
    pub growth_source: GrowthSource,
    /// The queueing delay that `delay` keeps.
    pub target_delay: TargetDelay,
}
