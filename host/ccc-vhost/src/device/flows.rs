// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The flows in a device's slots: found, told to the engine, coupled where the
//! operator wants them, and answered.
use std::{net::IpAddr, rc::Rc};

use ccc_core::ShareOf;
use ccc_proto::{
    CheckedReport, ReportError, Torn, read_report,
    shared::write_slot_grant,
    wire::{self, Report, SlotGrant},
};
use thiserror::Error;

use crate::{
    coupling::Turn,
    device::Device,
    device::counters::Kind,
    device::table::{Held, Place, Units},
    virtio::memory::{Mapping, MemoryError, change, words},
};

/// Why a slot is not coupled.
#[derive(Debug, Error)]
pub enum SlotError {
    /// No chunk has it.
    #[error("slot {0} was not lent")]
    Unknown(u32),
    /// The message is about another use of the slot.
    #[error("message about use {message} of slot {slot}, which is in use {now}")]
    Stale {
        /// The slot.
        slot: u32,
        /// Generation in the message.
        message: u32,
        /// Generation in the slot.
        now: u32,
    },
    /// The flow to leave is not there.
    #[error("leave of use {generation} of slot {slot}, which is not registered")]
    NotHeld {
        /// The slot.
        slot: u32,
        /// Generation in the message.
        generation: u32,
    },
    /// The slot was being written all the time.
    #[error("slot {0}: {1}")]
    Torn(u32, Torn),
    /// The report is out of range.
    #[error("slot {0}: {1}")]
    Report(u32, ReportError),
    /// There is no line left for its group.
    #[error("slot {slot}: no line left for group {group}")]
    NoLine {
        /// The slot.
        slot: u32,
        /// Name of the group.
        group: String,
    },
    /// The driver cannot share by rate.
    #[error("slot {slot}: group {group} shares by rate, which the driver does not know")]
    NoRate {
        /// The slot.
        slot: u32,
        /// Name of the group.
        group: String,
    },
    /// The VM has as many flows as it may have.
    #[error("slot {slot}: the VM has {most} flows, as many as it may have (max_flows_per_vm)")]
    VmFull {
        /// The slot.
        slot: u32,
        /// The operator's limit.
        most: usize,
    },
    /// All VMs together have as many as they may have.
    #[error("slot {slot}: all VMs have {most} flows, as many as they may have (max_flows)")]
    HostFull {
        /// The slot.
        slot: u32,
        /// The operator's limit.
        most: usize,
    },
    /// The engine refuses it.
    #[error("slot {0}: {1}")]
    Engine(u32, ccc_core::EngineError),
    /// Its memory is gone.
    #[error("slot {0}: {1}")]
    Memory(u32, MemoryError),
}

impl SlotError {
    /// What kind of refusal it is.
    pub fn kind(&self) -> Kind {
        match self {
            SlotError::Unknown(_) => Kind::Message,
            SlotError::Stale { .. } | SlotError::NotHeld { .. } => Kind::Stale,
            SlotError::Torn(..) => Kind::Torn,
            SlotError::Report(..) => Kind::Report,
            SlotError::NoLine { .. } => Kind::Line,
            SlotError::NoRate { .. } | SlotError::Engine(..) => Kind::Flow,
            SlotError::VmFull { .. } | SlotError::HostFull { .. } => Kind::Limit,
            SlotError::Memory(..) => Kind::Memory,
        }
    }
}

/// Why a slot is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A message says so, about this use of it.
    Message(u32),
    /// Messages may have been lost.
    Rescan,
    /// The slot was lent; what is in it ran before this device began.
    Adoption,
}

impl Device {
    /// Reads a slot and tells the engine.
    pub(crate) fn look(
        &mut self,
        mapping: &Mapping,
        slot: u32,
        why: Look,
        turn: &mut Turn<'_>,
    ) -> Result<(), SlotError> {
        let (raw, held) = self.read_slot(mapping, slot)?;
        let now = raw.generation.get();
        match why {
            Look::Message(message) if message != now => {
                return Err(SlotError::Stale { slot, message, now });
            }
            Look::Rescan | Look::Adoption if raw.is_free() => {
                return held.map_or(Ok(()), |held| self.end_flow(slot, &held, &raw, turn));
            }
            _ => {}
        }
        let same = held.filter(|held| held.generation == now);
        let checked = match raw.check() {
            Ok(checked) => checked,
            Err(error) => {
                if same.is_none() {
                    self.answer(mapping, slot, refusal(now))?;
                }
                return Err(SlotError::Report(slot, error));
            }
        };
        if let Some(held) = same {
            return self.update(mapping, slot, held, &checked, turn);
        }
        if let Some(earlier) = held {
            self.forget(slot, &earlier, turn);
        }
        self.register(mapping, slot, why, &checked, turn)
    }

    /// The flow of a slot has left.
    pub(crate) fn leave(
        &mut self,
        mapping: &Mapping,
        slot: u32,
        generation: u32,
        turn: &mut Turn<'_>,
    ) -> Result<(), SlotError> {
        let held = self.tables.slot(slot).ok_or(SlotError::Unknown(slot))?.held;
        let held = held
            .filter(|held| held.generation == generation)
            .ok_or(SlotError::NotHeld { slot, generation })?;
        let last = self.read_slot(mapping, slot);
        let heard = match &last {
            Ok((raw, _)) => self.end_flow(slot, &held, raw, turn),
            Err(_) => {
                self.forget(slot, &held, turn);
                last.map(|_| ())
            }
        };
        self.answer(mapping, slot, refusal(generation))?;
        heard
    }

    /// Takes the last report of a flow that has left, and forgets the flow, which
    /// is gone whatever is wrong with the report.
    fn end_flow(
        &mut self,
        slot: u32,
        held: &Held,
        raw: &Report,
        turn: &mut Turn<'_>,
    ) -> Result<(), SlotError> {
        // The slot may be another flow's by now.
        let last = (raw.generation.get() == held.generation).then(|| raw.check_last());
        let heard = match (last, held.place) {
            (Some(Ok(checked)), Place::Coupled { flow, .. }) => {
                self.counters.updated += 1;
                let updated = turn.coupling.engine.update(turn.now, flow, &checked.report);
                updated.map_err(|refusal| SlotError::Engine(slot, refusal))
            }
            (Some(Err(error)), _) => Err(SlotError::Report(slot, error)),
            _ => Ok(()),
        };
        self.forget(slot, held, turn);
        heard
    }

    /// Takes flows to where the operator wants them by now.  All leave before
    /// any joins, so that the lines of groups left are there for those joined.
    pub fn remap(&mut self, turn: &mut Turn<'_>) {
        let memory = Rc::clone(&self.memory);
        let mapping = memory.mapping();
        let moved: Vec<(u32, Held)> = self
            .tables
            .held()
            .filter(|(slot, held)| self.misplaced(*slot, held, turn))
            .map(|(slot, held)| (slot, *held))
            .collect();
        let (alone, joining): (Vec<_>, Vec<_>) = moved.iter().partition(|(slot, held)| {
            !matches!(self.destined(*slot, held.destination, turn), Ok(Some(_)))
        });
        self.detach(alone.into_iter().map(|(_, held)| held), turn);
        for (_, held) in joining {
            self.uncouple(&held, turn);
        }
        for (slot, held) in &moved {
            self.take_apart(mapping, *slot, held, turn);
        }
        for (slot, _) in moved {
            if let Err(error) = self.put_together(mapping, slot, turn) {
                self.counters.refuse(&self.name, turn.now, error.kind(), &error);
            }
        }
    }

    fn misplaced(&self, slot: u32, held: &Held, turn: &Turn<'_>) -> bool {
        match (held.place, self.destined(slot, held.destination, turn)) {
            (Place::Coupled { group, .. }, Ok(Some(wanted))) => group != wanted,
            (Place::Apart, Ok(None) | Err(_)) => false,
            _ => true,
        }
    }

    /// Tells the driver that a flow is coupled no longer.
    fn take_apart(&mut self, mapping: &Mapping, slot: u32, held: &Held, turn: &Turn<'_>) {
        self.hold(slot, Held { place: Place::Waiting, ..*held });
        if let Err(error) = self.answer(mapping, slot, refusal(held.generation)) {
            self.counters.refuse(&self.name, turn.now, error.kind(), &error);
        }
    }

    fn put_together(
        &mut self,
        mapping: &Mapping,
        slot: u32,
        turn: &mut Turn<'_>,
    ) -> Result<(), SlotError> {
        let (raw, held) = self.read_slot(mapping, slot)?;
        let Some(held) = held.filter(|held| held.generation == raw.generation.get()) else {
            // The driver has begun to use it anew; its message comes.
            return Ok(());
        };
        let checked = raw.check().map_err(|error| SlotError::Report(slot, error))?;
        self.settle_in(mapping, slot, held, &checked, Look::Rescan, turn)
    }

    fn read_slot(
        &mut self,
        mapping: &Mapping,
        slot: u32,
    ) -> Result<(Report, Option<Held>), SlotError> {
        let places = self.tables.slot(slot).ok_or(SlotError::Unknown(slot))?;
        let words = words(mapping, places.report).map_err(|e| SlotError::Memory(slot, e))?;
        let raw = read_report(&words).map_err(|torn| SlotError::Torn(slot, torn))?;
        Ok((raw, places.held))
    }

    fn update(
        &mut self,
        mapping: &Mapping,
        slot: u32,
        held: Held,
        checked: &CheckedReport,
        turn: &mut Turn<'_>,
    ) -> Result<(), SlotError> {
        let held = Held { units: Units::of(&checked.report), ..held };
        self.hold(slot, held);
        match held.place {
            Place::Coupled { flow, .. } => {
                self.counters.updated += 1;
                let engine = &mut turn.coupling.engine;
                let updated = engine.update(turn.now, flow, &checked.report);
                updated.map_err(|refusal| SlotError::Engine(slot, refusal))
            }
            Place::Apart => Ok(()),
            Place::Waiting => {
                // It was refused when it began to wait; that need not be
                // repeated with each of its messages.
                let tried = self.settle_in(mapping, slot, held, checked, Look::Rescan, turn);
                tried.or_else(|error| if is_wait(&error) { Ok(()) } else { Err(error) })
            }
        }
    }

    fn register(
        &mut self,
        mapping: &Mapping,
        slot: u32,
        why: Look,
        checked: &CheckedReport,
        turn: &mut Turn<'_>,
    ) -> Result<(), SlotError> {
        let most = turn.coupling.settings().daemon.max_flows_per_vm;
        if self.flows() >= most {
            self.answer(mapping, slot, refusal(checked.generation))?;
            return Err(SlotError::VmFull { slot, most });
        }
        self.counters.registered += 1;
        let held = Held {
            generation: checked.generation,
            destination: checked.destination,
            place: Place::Waiting,
            units: Units::of(&checked.report),
        };
        self.settle_in(mapping, slot, held, checked, why, turn)
    }

    /// Couples a flow where it belongs, and answers its slot.
    fn settle_in(
        &mut self,
        mapping: &Mapping,
        slot: u32,
        held: Held,
        checked: &CheckedReport,
        why: Look,
        turn: &mut Turn<'_>,
    ) -> Result<(), SlotError> {
        let placed = self.couple(slot, &held, checked, why, turn);
        let place = match &placed {
            Ok(place) => *place,
            Err(error) if is_wait(error) => Place::Waiting,
            Err(_) => Place::Apart,
        };
        self.hold(slot, Held { place, ..held });
        let mut grant = refusal(held.generation);
        if let Place::Coupled { line, .. } = place {
            (grant.line, grant.flags) = (line.into(), wire::G_ACCEPTED.into());
        }
        self.answer(mapping, slot, grant)?;
        placed.map(|_| ())
    }

    /// Hands a flow to the engine.
    fn couple(
        &mut self,
        slot: u32,
        held: &Held,
        checked: &CheckedReport,
        why: Look,
        turn: &mut Turn<'_>,
    ) -> Result<Place, SlotError> {
        let Some(group) = self.destined(slot, held.destination, turn)? else {
            return Ok(Place::Apart);
        };
        let most = turn.coupling.settings().daemon.max_flows;
        if turn.coupling.engine.flows() >= most {
            return Err(SlotError::HostFull { slot, most });
        }
        let lent = self.tables.lines().map_or(0, |lines| lines.len());
        let line = self.lines.take(group, lent).ok_or_else(|| SlotError::NoLine {
            slot,
            group: turn.coupling.settings().groups[group].name.clone(),
        })?;
        let adopted = why == Look::Adoption || self.is_new(slot);
        match turn.coupling.join(turn.now, self.vm, group, &checked.report, adopted) {
            Ok(flow) => Ok(Place::Coupled { flow, group, line }),
            Err(refusal) => {
                self.lines.put(line);
                Err(SlotError::Engine(slot, refusal))
            }
        }
    }

    /// The group in which a flow is to be coupled, if it is.
    fn destined(&self, slot: u32, to: IpAddr, turn: &Turn<'_>) -> Result<Option<usize>, SlotError> {
        let settings = turn.coupling.settings();
        let Some(index) = settings.route(self.vm, to) else { return Ok(None) };
        let group = &settings.groups[index];
        let by_rate = group.settings.share == ShareOf::Rate;
        if by_rate && self.features & 1 << wire::F_RATE_SHARE == 0 {
            return Err(SlotError::NoRate { slot, group: group.name.clone() });
        }
        Ok(Some(index))
    }

    /// Takes a flow out of the engine, if it is there.
    pub(crate) fn uncouple(&mut self, held: &Held, turn: &mut Turn<'_>) {
        if let Place::Coupled { flow, line, .. } = held.place {
            turn.coupling.engine.leave(turn.now, flow);
            self.lines.put(line);
        }
    }

    /// Takes flows out of the engine that go on alone, and so keep what they
    /// have of the path.
    pub(crate) fn detach(&mut self, flows: impl Iterator<Item = Held>, turn: &mut Turn<'_>) {
        let mut detached = Vec::new();
        for held in flows {
            if let Place::Coupled { flow, line, .. } = held.place {
                detached.push(flow);
                self.lines.put(line);
            }
        }
        turn.coupling.engine.detach(turn.now, &detached);
    }

    fn forget(&mut self, slot: u32, held: &Held, turn: &mut Turn<'_>) {
        self.uncouple(held, turn);
        self.counters.left += 1;
        self.tables.forget(slot);
    }

    fn hold(&mut self, slot: u32, held: Held) {
        self.tables.hold(slot, held);
    }

    fn answer(&mut self, mapping: &Mapping, slot: u32, grant: SlotGrant) -> Result<(), SlotError> {
        let places = self.tables.slot(slot).ok_or(SlotError::Unknown(slot))?;
        change(mapping, places.grant, |words| write_slot_grant(words, &grant))
            .map_err(|e| SlotError::Memory(slot, e))
    }
}

/// The flow can be coupled when others have left.
fn is_wait(error: &SlotError) -> bool {
    matches!(error, SlotError::NoLine { .. } | SlotError::HostFull { .. })
}

/// The answer to a flow that is not coupled.
fn refusal(generation: u32) -> SlotGrant {
    SlotGrant {
        generation: generation.into(),
        line: 0.into(),
        flags: 0.into(),
        cap_bytes: wire::CAP_NONE.into(),
    }
}
