// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is known of a slot.
use ccc_core::FlowId;
use ccc_proto::{CheckedReport, ReportError, Torn};
use thiserror::Error;

use crate::{
    device::counters::{Kind, Told},
    device::engine::FlowEngine,
    virtio::region::MemoryError,
};

/// A slot, from one use to the next.
///
/// A report of another generation begins a flow: the slot is coupled if the operator
/// wants that and it can be done, waiting if others have to leave first, and left
/// alone otherwise.  Each report of a waiting flow, and each change of the
/// operator's that concerns a flow, tries again.  A flow that leaves, or whose
/// extent is released, frees its slot.
#[derive(Clone, Copy, Debug, Default)]
pub enum SlotState {
    /// No flow that was seen.
    #[default]
    Free,
    /// Left alone.
    Alone(Alone),
    /// Coupled.
    Coupled(Member),
}

const _: () = assert!(size_of::<SlotState>() == 16, "a VM may have 65,536 of them");

/// A flow that is left alone: nobody else keeps what it has told.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    /// Use of the slot.
    pub generation: u32,
    /// To be coupled as soon as that can be done; if not, it is alone because the operator
    /// says so or because it has to be.
    pub waits: bool,
    /// Has data outstanding or to send, by its latest report.
    pub active: bool,
    events: u16,
    delivered_bytes: u64,
}

/// What a coupled flow has: its VM's grant line in a group, and a place in the engine, which
/// keeps its latest report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Use of the slot.
    pub generation: u32,
    /// The engine's number for it.
    pub flow: FlowId,
    /// The group's grant line.
    pub line: u16,
}

impl SlotState {
    /// There is no flow in it.
    pub fn is_free(&self) -> bool {
        matches!(self, SlotState::Free)
    }

    /// Which use of the slot its flow is.
    pub fn generation(&self) -> Option<u32> {
        match self {
            SlotState::Free => None,
            SlotState::Alone(alone) => Some(alone.generation),
            SlotState::Coupled(member) => Some(member.generation),
        }
    }

    /// What its flow has if it is coupled.
    pub fn member(&self) -> Option<Member> {
        match self {
            SlotState::Coupled(member) => Some(*member),
            _ => None,
        }
    }

    /// Its flow left alone until it can be coupled.
    pub fn waiting(&self, engine: &dyn FlowEngine) -> Option<Alone> {
        match self {
            SlotState::Free => None,
            SlotState::Alone(alone) => Some(Alone { waits: true, ..*alone }),
            SlotState::Coupled(Member { generation, flow, .. }) => {
                engine.last_report(*flow).map(|report| Alone::with(*generation, &report, true))
            }
        }
    }

    /// What its flow has counted, as it last told.
    pub fn counted(&self, engine: &dyn FlowEngine) -> Option<Counted> {
        match self {
            SlotState::Free => None,
            SlotState::Alone(alone) => Some(alone.counted()),
            SlotState::Coupled(member) => {
                engine.last_report(member.flow).map(|report| Counted::of(&report))
            }
        }
    }

    /// Its flow has data outstanding or to send, as it last told.
    pub fn is_active(&self, engine: &dyn FlowEngine) -> bool {
        match self {
            SlotState::Free => false,
            SlotState::Alone(alone) => alone.active,
            SlotState::Coupled(member) => {
                engine.last_report(member.flow).is_some_and(|report| report.active)
            }
        }
    }
}

impl Alone {
    /// A flow with this report.
    pub fn new(checked: &CheckedReport, waits: bool) -> Alone {
        Alone::with(checked.generation, &checked.report, waits)
    }

    fn with(generation: u32, report: &ccc_core::Report, waits: bool) -> Alone {
        let Counted { events, delivered_bytes } = Counted::of(report);
        Alone { generation, waits, active: report.active, events, delivered_bytes }
    }

    fn counted(&self) -> Counted {
        Counted { events: self.events, delivered_bytes: self.delivered_bytes }
    }
}

/// What a flow has counted of that which is added up of a VM.  `Default` is that of one that
/// has done nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Congestion events; they wrap around.
    events: u16,
    delivered_bytes: u64,
}

impl Counted {
    fn of(report: &ccc_core::Report) -> Counted {
        let ccc_core::Report { congestion_events, delivered_bytes, .. } = *report;
        Counted { events: congestion_events, delivered_bytes }
    }

    /// What a later report tells of.  A counter that goes back tells nothing.
    pub fn told_until(&self, report: &ccc_core::Report) -> Told {
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
