// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is known of a slot.
use std::net::IpAddr;

use ccc_core::FlowId;
use ccc_proto::{CheckedReport, ReportError, Torn};
use thiserror::Error;

use crate::{
    device::counters::{Kind, Told},
    virtio::region::MemoryError,
};

/// A slot, from one use to the next.
///
/// A report of another generation begins a flow: the slot is coupled if the operator
/// wants that and it can be done, waiting if others have to leave first, and
/// uncoupled otherwise.  Each report of a waiting flow, and each change of the
/// operator's that concerns a flow, tries again.  A flow that leaves, or whose
/// extent is released, frees its slot.
#[derive(Clone, Copy, Debug, Default)]
pub enum SlotState {
    /// No flow that was seen.
    #[default]
    Free,
    /// Left alone, because the operator says so or because it has to be.
    Uncoupled(Flow),
    /// To be coupled as soon as that can be done.
    Waiting(Flow),
    /// Coupled.
    Coupled(Flow, Member),
}

/// The flow in a slot.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Use of the slot.
    pub generation: u32,
    /// Where the flow sends to, as it said when it was found.
    pub destination: IpAddr,
    /// How it counts within its VM, by its latest report.
    pub units: Units,
    /// Congestion events, by the same report; they wrap around.
    pub events: u16,
    /// Bytes delivered, by the same report.
    pub delivered_bytes: u64,
}

/// What a coupled flow has: its VM's grant line in a group, and a place in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The engine's number for it.
    pub flow: FlowId,
    /// The group.
    pub group: usize,
    /// The group's grant line.
    pub line: u16,
}

impl SlotState {
    /// The flow in it.
    pub fn flow(&self) -> Option<&Flow> {
        match self {
            SlotState::Free => None,
            SlotState::Uncoupled(flow) | SlotState::Waiting(flow) | SlotState::Coupled(flow, _) => {
                Some(flow)
            }
        }
    }

    /// What its flow has if it is coupled.
    pub fn member(&self) -> Option<Member> {
        match self {
            SlotState::Coupled(_, member) => Some(*member),
            _ => None,
        }
    }
}

impl Flow {
    /// The flow a slot tells of.
    pub fn new(checked: &CheckedReport) -> Flow {
        Flow {
            generation: checked.generation,
            destination: checked.destination,
            units: Units::new(&checked.report),
            events: checked.report.congestion_events,
            delivered_bytes: checked.report.delivered_bytes,
        }
    }

    /// The same before it had done anything.
    pub fn fresh(self) -> Flow {
        Flow { events: 0, delivered_bytes: 0, ..self }
    }

    /// The same one, by a later report.
    pub fn heard(self, checked: &CheckedReport) -> Flow {
        let Flow { generation, destination, .. } = self;
        Flow { generation, destination, ..Flow::new(checked) }
    }

    /// What a later report tells of.  A counter that goes back tells nothing.
    pub fn told_until(&self, checked: &CheckedReport) -> Told {
        let report = &checked.report;
        let delivered = report.delivered_bytes.wrapping_sub(self.delivered_bytes) as i64;
        let delivered_bytes = u64::try_from(delivered).unwrap_or(0);
        let events = report.congestion_events.wrapping_sub(self.events) as i16;
        let rtt_bytes = if report.srtt_us > 0 { delivered_bytes } else { 0 };
        Told {
            delivered_bytes,
            congestion_events: u64::try_from(events).unwrap_or(0),
            rtt_bytes,
            rtt_byte_us: u128::from(rtt_bytes) * u128::from(report.srtt_us),
        }
    }
}

/// What a flow's grant is counted by.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// Has data outstanding or to send.
    pub active: bool,
    /// Share within the VM, 8 fraction bits.
    pub priority: u16,
    /// Smoothed round-trip time; 0 if not known.
    pub srtt_us: u32,
}

impl Units {
    /// Those of a report.
    pub fn new(report: &ccc_core::Report) -> Units {
        Units { active: report.active, priority: report.priority, srtt_us: report.srtt_us }
    }
}

/// Why a slot is not coupled.
#[derive(Debug, Error)]
pub enum SlotError {
    #[error("slot {0} is in no extent; expected one of an extent that is held")]
    Unknown(u32),
    #[error("slot {slot}: message about generation {message}; the slot has {now}")]
    Stale { slot: u32, message: u32, now: u32 },
    #[error("slot {slot}: leave of generation {generation}, which is not registered")]
    NotRegistered { slot: u32, generation: u32 },
    #[error("slot {0}: {1}")]
    Torn(u32, Torn),
    #[error("slot {0}: {1}")]
    Report(u32, ReportError),
    #[error("slot {slot}: no grant line is left for group {group}; the driver offered {lines}")]
    NoLine { slot: u32, group: String, lines: usize },
    #[error(
        "slot {slot}: group {group} shares by rate, and the driver did not accept \
         VIRTIO_CCC_F_RATE_SHARE"
    )]
    NoRate { slot: u32, group: String },
    #[error("slot {slot}: the VM has {most} flows, as many as it may have (max_flows_per_vm)")]
    VmFull { slot: u32, most: usize },
    #[error("slot {slot}: all VMs have {most} flows, as many as they may have (max_flows)")]
    HostFull { slot: u32, most: usize },
    #[error("slot {0}: {1}")]
    Engine(u32, ccc_core::EngineError),
    #[error("slot {0}: {1}")]
    Memory(u32, MemoryError),
}

impl SlotError {
    /// What kind of refusal it is.
    pub fn kind(&self) -> Kind {
        match self {
            SlotError::Unknown(_) => Kind::Message,
            SlotError::Stale { .. }
            | SlotError::NotRegistered { .. }
            | SlotError::Report(_, ReportError::Free) => Kind::Stale,
            SlotError::Torn(..) => Kind::Torn,
            SlotError::Report(..) => Kind::Report,
            SlotError::NoLine { .. } => Kind::Line,
            SlotError::NoRate { .. } | SlotError::Engine(..) => Kind::Flow,
            SlotError::VmFull { .. } | SlotError::HostFull { .. } => Kind::Limit,
            SlotError::Memory(..) => Kind::Memory,
        }
    }

    /// The flow can be coupled when others have left.
    pub fn is_temporary(&self) -> bool {
        matches!(self, SlotError::NoLine { .. } | SlotError::HostFull { .. })
    }
}
