// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Coupling engine of the CCC service.
//!
//! The engine makes the TCP flows of all VMs behind one bottleneck (a *group*)
//! behave like one TCP, and splits that TCP's window by VM weight, and inside
//! a VM by flow priority.  It is a library without I/O: the caller passes the
//! time in, hands over what guests report ([`Report`]) and reads back what to
//! grant ([`Grant`]).  Every call but an operator's is O(1) in the number of flows,
//! in fixed point, and allocates only when something is added.
//!
//! `docs/algorithm.md` derives each rule from the ctrlTCP papers and says
//! where and why it departs from them.
//!
//! ```
//! use ccc_core::{Engine, GroupConfig, Report, ShareOf};
//!
//! let mut engine = Engine::new();
//! let uplink = engine.add_group(GroupConfig { share: ShareOf::Window, ..GroupConfig::default() });
//! let vm = engine.add_vm();
//! let report = Report { cwnd_bytes: 14480, active: true, cwnd_limited: true, ..Report::default() };
//! let flow = engine.register(0, vm, uplink, &report)?;
//!
//! // 10 segments acknowledged in slow start: the aggregate grows by them.
//! engine.update(100_000, flow, &Report {
//!     acked_limited_bytes: 14480,
//!     delivered_bytes: 14480,
//!     ..report
//! })?;
//! assert_eq!(engine.grant(vm, uplink).cwnd_bytes(report.priority.into()), 28960);
//! # Ok::<(), ccc_core::EngineError>(())
//! ```
mod alone;
mod bounds;
mod claims;
mod config;
mod engine;
mod fixed;
mod flow;
mod grant;
mod group;
#[cfg(test)]
mod lemmas;
mod lru;
mod mean;
mod median;
mod members;
mod path;
mod policy;
mod range;
mod report;
mod reports;
mod times;
mod witness;

pub use bounds::Conduct;
pub use claims::Claims;
pub use config::{GroupConfig, GrowthSource, PolicyKind, ShareOf};
pub use engine::{Engine, EngineError, FlowId, GroupId, IDLE_AFTER_US, VmId};
pub use fixed::{EquivalentTcps, Micros, TargetDelay, Weight};
pub use grant::Grant;
pub use group::GroupStatus;
pub use path::PathState;
pub use policy::QueueMode;
pub use range::RateRange;
pub use report::{CongestionState, Report};
pub use witness::Evidence;
