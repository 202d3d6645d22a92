// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The flows in a device's slots: found, told to the engine, coupled where the
//! operator wants them, and answered.
use std::{net::IpAddr, ops::Range};

use ccc_core::{FlowId, Micros};
use ccc_proto::{
    CheckedReport, READ_ATTEMPTS, read_report,
    wire::{self, Report, SlotGrant},
    write_slot_grant,
};
use vm_memory::GuestAddress;

use crate::{
    device::counters::{Counters, Kind, Told},
    device::engine::{Context, FlowEngine, Grants, RemapReason},
    device::extents::{Extent, Extents, NoExtent, Refused, SlotAddresses},
    device::grant_lines::GrantLines,
    device::slot::{Alone, Counted, Member, SlotError, SlotState},
    device::slots::Slots,
    virtio::chain::{change, words},
    virtio::mapping::Mapping,
    virtio::memory::Memory,
    virtio::region::MemoryError,
};

/// What slots are read, answered and counted with while one event is served.
pub struct Scope<'a> {
    /// Guest memory.
    pub mapping: &'a Mapping,
    /// What is counted.
    pub counters: &'a mut Counters,
    /// The engine.
    pub engine: &'a mut dyn FlowEngine,
    /// The time.
    pub now: Micros,
}

impl<'a> Scope<'a> {
    /// What a device works with, in this memory.
    pub fn new(
        mapping: &'a Mapping,
        counters: &'a mut Counters,
        context: &'a mut Context<'_>,
    ) -> Scope<'a> {
        Scope { mapping, counters, engine: &mut *context.engine, now: context.now }
    }

    /// Counts a refusal and says why.
    pub fn refuse(&mut self, kind: Kind, why: &dyn std::fmt::Display) {
        self.counters.refuse(self.now, kind, why);
    }

    fn refuse_slot(&mut self, result: Result<(), SlotError>) {
        if let Err(error) = result {
            self.refuse(error.kind(), &error);
        }
    }
}

/// Why a slot is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanReason {
    /// A message says so, about this use of it.
    Message(u32),
    /// Messages may have been lost.
    Rescan,
    /// Its extent was offered; what is in it ran before this device began.
    Offer,
}

/// The slots of one VM.  Each coupled one has a flow in the engine and holds its
/// group's grant line, from when it is coupled until it is not.
#[derive(Debug)]
pub struct FlowTable {
    vm: usize,
    /// The driver knows shares by rate.
    rate_shares: bool,
    extents: Extents,
    slots: Slots,
    lines: GrantLines,
}

impl FlowTable {
    /// The slots of a VM that has none yet.
    pub fn new(vm: usize) -> FlowTable {
        FlowTable {
            vm,
            rate_shares: false,
            extents: Extents::default(),
            slots: Slots::default(),
            lines: GrantLines::default(),
        }
    }

    /// Takes what driver and device have agreed on.
    pub fn set_features(&mut self, features: u64) {
        self.rate_shares = features & 1 << wire::F_RATE_SHARE != 0;
    }

    /// Number of the VM.
    pub fn vm(&self) -> usize {
        self.vm
    }

    /// Where the slots are.
    pub fn extents(&self) -> &Extents {
        &self.extents
    }

    /// Flows there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Slots from this one on that have flows.
    pub fn from(&self, slot: u32) -> impl Iterator<Item = (u32, &SlotState)> {
        self.slots.range(slot..u32::MAX)
    }

    /// The group in which a flow is coupled.
    pub fn group(&self, member: &Member) -> Option<usize> {
        self.lines.group(member.line)
    }

    /// Holds an extent, unless it does not go with the others; where its status is.
    pub fn hold(&mut self, extent: Extent) -> Result<GuestAddress, Refused> {
        self.extents.hold(extent)
    }

    /// Scans slots of the extent that was offered, at most `left` of them; if those
    /// were the last, its slots and where its driver is told.
    pub fn scan_offer(
        &mut self,
        left: &mut u32,
        scope: &mut Scope<'_>,
    ) -> Option<(Range<u32>, GuestAddress)> {
        for slot in self.extents.take_unscanned(left) {
            self.scan_or_refuse(slot, ScanReason::Offer, scope);
        }
        self.extents.take_scanned()
    }

    /// Scans a slot, and counts what is refused of it.
    pub fn scan_or_refuse(&mut self, slot: u32, reason: ScanReason, scope: &mut Scope<'_>) {
        let read = self.read_slot(slot, reason, scope.mapping);
        self.take_or_refuse(&read, scope);
    }

    /// Scans slots that messages name, each with its generation, and counts what is refused.
    /// All are read before the engine is told of the first: the code of either stays near.
    pub fn scan_all(&mut self, messages: impl Iterator<Item = (u32, u32)>, scope: &mut Scope<'_>) {
        let read = |(slot, generation)| {
            self.read_slot(slot, ScanReason::Message(generation), scope.mapping)
        };
        let reads: Vec<SlotRead> = messages.map(read).collect();
        reads.iter().for_each(|read| self.take_or_refuse(read, scope));
    }

    fn read_slot(&self, slot: u32, reason: ScanReason, mapping: &Mapping) -> SlotRead {
        SlotRead { slot, reason, report: self.read_report(slot, READ_ATTEMPTS, mapping) }
    }

    /// Tells the engine what was read of a slot, and counts what is refused of it.
    fn take_or_refuse(&mut self, read: &SlotRead, scope: &mut Scope<'_>) {
        match &read.report {
            Ok(report) => {
                let taken = self.take_report(read.slot, read.reason, report, scope);
                scope.refuse_slot(taken);
            }
            Err(error) => scope.refuse(error.kind(), error),
        }
    }

    /// Tells the engine what was read of a slot.
    fn take_report(
        &mut self,
        slot: u32,
        reason: ScanReason,
        raw: &Report,
        scope: &mut Scope<'_>,
    ) -> Result<(), SlotError> {
        let state = self.slots.get(slot);
        let now = raw.generation.get();
        let known = state.generation() == Some(now);
        match reason {
            ScanReason::Message(message) if message != now => {
                return Err(SlotError::Stale { slot, message, now });
            }
            ScanReason::Rescan | ScanReason::Offer if raw.is_free() => {
                return self.end_flow(slot, state, raw, scope);
            }
            // It has left since; the message that says so is behind this one.
            ScanReason::Message(_) if raw.is_free() && known => return Ok(()),
            _ => {}
        }
        let checked = match raw.check() {
            Ok(checked) => checked,
            Err(error) => {
                if !known {
                    self.answer(slot, refusal(now), scope.mapping)?;
                }
                return Err(SlotError::Report(slot, error));
            }
        };
        if known {
            return self.update(slot, state, &checked, scope);
        }
        self.free(slot, state, scope);
        self.register(slot, reason, &checked, scope)
    }

    /// The flow of a slot has left, which is counted if it is refused.
    pub fn leave_or_refuse(&mut self, slot: u32, generation: u32, scope: &mut Scope<'_>) {
        let left = self.leave(slot, generation, scope);
        scope.refuse_slot(left);
    }

    fn leave(
        &mut self,
        slot: u32,
        generation: u32,
        scope: &mut Scope<'_>,
    ) -> Result<(), SlotError> {
        self.addresses(slot)?;
        let state = self.slots.get(slot);
        if state.generation() != Some(generation) {
            return Err(SlotError::NotRegistered { slot, generation });
        }
        let heard = match self.read(slot, scope.mapping) {
            Ok((raw, _)) => self.end_flow(slot, state, &raw, scope),
            Err(error) => {
                self.free(slot, state, scope);
                Err(error)
            }
        };
        self.answer(slot, refusal(generation), scope.mapping)?;
        heard
    }

    /// Takes the last report of a flow that has left, if there is one, and frees its
    /// slot, whatever is wrong with the report.
    fn end_flow(
        &mut self,
        slot: u32,
        state: SlotState,
        raw: &Report,
        scope: &mut Scope<'_>,
    ) -> Result<(), SlotError> {
        // The slot may be another flow's by now.
        let is_same = state.generation() == Some(raw.generation.get());
        let heard = match is_same.then(|| raw.check_last()) {
            Some(Ok(checked)) => {
                count(&state, &checked, scope);
                let member = state.member();
                member.map_or(Ok(()), |member| report(slot, member.flow, &checked, scope))
            }
            Some(Err(error)) => Err(SlotError::Report(slot, error)),
            None => Ok(()),
        };
        self.free(slot, state, scope);
        heard
    }

    /// Takes flows to where the operator wants them by now.  All leave before
    /// any joins, so that the lines of groups left are there for those joined.
    pub fn remap(&mut self, reason: RemapReason, scope: &mut Scope<'_>) {
        let flows = self.from(0);
        let moved: Vec<Move> =
            flows.filter_map(|(slot, state)| self.moves(slot, state, reason, scope)).collect();
        let (alone, joining): (Vec<Move>, Vec<Move>) =
            moved.iter().copied().partition(|moved| moved.stays_alone);
        self.detach(alone.into_iter().map(|moved| moved.from), scope);
        for moved in joining {
            self.uncouple(moved.from, scope);
        }
        for Move { slot, until_then, .. } in &moved {
            self.slots.set(*slot, SlotState::Alone(*until_then));
            let told = self.answer(*slot, refusal(until_then.generation), scope.mapping);
            scope.refuse_slot(told);
        }
        for Move { slot, .. } in moved.into_iter().filter(|moved| moved.is_readable) {
            let placed = self.recouple(slot, scope);
            scope.refuse_slot(placed);
        }
    }

    /// How a flow moves, if it is not where the operator wants it.  One whose slot does not
    /// tell now where that is stays while it is still coupled where it was routed to, and
    /// waits for its next message otherwise.
    fn moves(
        &self,
        slot: u32,
        state: &SlotState,
        reason: RemapReason,
        scope: &Scope<'_>,
    ) -> Option<Move> {
        // Of all slots each is read once only: a guest can keep any number of them unreadable.
        let read = self.read_known(slot, state, 1, scope.mapping).ok().flatten();
        let wanted = read.map(|checked| self.destined(slot, checked.destination, scope));
        let is_placed = match (state, &wanted) {
            (SlotState::Coupled(member), Some(Ok(group))) => self.group(member) == *group,
            (SlotState::Coupled(member), None) if reason == RemapReason::Coupling => {
                self.group(member).is_some_and(|group| self.couples(group, scope))
            }
            (SlotState::Alone(alone), Some(Ok(None) | Err(_))) => !alone.waits,
            _ => false,
        };
        let stays_alone = matches!(wanted, Some(Ok(None) | Err(_)));
        let until_then = (!is_placed).then(|| state.waiting(scope.engine))??;
        let is_readable = wanted.is_some();
        Some(Move { slot, from: *state, until_then, is_readable, stays_alone })
    }

    fn recouple(&mut self, slot: u32, scope: &mut Scope<'_>) -> Result<(), SlotError> {
        let state = self.slots.get(slot);
        let known = self.read_known(slot, &state, READ_ATTEMPTS, scope.mapping)?;
        let Some(checked) = known else { return Ok(()) };
        let told = told(&state, &checked, scope.engine);
        let placed = self.place(slot, &checked, ScanReason::Rescan, scope);
        scope.counters.take(&told, self.slots.get(slot).member().is_some());
        placed
    }

    fn update(
        &mut self,
        slot: u32,
        state: SlotState,
        checked: &CheckedReport,
        scope: &mut Scope<'_>,
    ) -> Result<(), SlotError> {
        count(&state, checked, scope);
        match state {
            SlotState::Free => Ok(()),
            SlotState::Coupled(member) => report(slot, member.flow, checked, scope),
            SlotState::Alone(alone) if !alone.waits => {
                self.slots.set(slot, SlotState::Alone(Alone::new(checked, false)));
                Ok(())
            }
            SlotState::Alone(_) => {
                // It was refused when it began to wait; that need not be
                // repeated with each of its messages.
                let tried = self.place(slot, checked, ScanReason::Rescan, scope);
                tried.or_else(|error| if error.is_temporary() { Ok(()) } else { Err(error) })
            }
        }
    }

    fn register(
        &mut self,
        slot: u32,
        reason: ScanReason,
        checked: &CheckedReport,
        scope: &mut Scope<'_>,
    ) -> Result<(), SlotError> {
        let most = scope.engine.max_flows_per_vm();
        if self.len() >= most {
            scope.counters.is_over("max_flows_per_vm");
            self.answer(slot, refusal(checked.generation), scope.mapping)?;
            return Err(SlotError::VmFull { slot, most });
        }
        scope.counters.registered += 1;
        if !self.is_adopted(slot, reason) {
            // Its first message may have been lost.
            scope.counters.take(&Counted::default().told_until(&checked.report), false);
        }
        self.place(slot, checked, reason, scope)
    }

    /// Couples a flow where it belongs, and answers its slot.
    fn place(
        &mut self,
        slot: u32,
        checked: &CheckedReport,
        reason: ScanReason,
        scope: &mut Scope<'_>,
    ) -> Result<(), SlotError> {
        let coupled = self.couple(slot, checked, reason, scope);
        let mut grant = refusal(checked.generation);
        let state = match &coupled {
            Ok(Some(member)) => {
                (grant.line, grant.flags) = (member.line.into(), wire::G_ACCEPTED.into());
                SlotState::Coupled(*member)
            }
            Err(error) => SlotState::Alone(Alone::new(checked, error.is_temporary())),
            Ok(None) => SlotState::Alone(Alone::new(checked, false)),
        };
        self.slots.set(slot, state);
        self.answer(slot, grant, scope.mapping)?;
        coupled.map(drop)
    }

    /// Hands a flow to the engine, if the operator wants it coupled.
    fn couple(
        &mut self,
        slot: u32,
        checked: &CheckedReport,
        reason: ScanReason,
        scope: &mut Scope<'_>,
    ) -> Result<Option<Member>, SlotError> {
        let destined = self.destined(slot, checked.destination, scope)?;
        let Some(group) = destined else { return Ok(None) };
        if let Some(most) = scope.engine.full() {
            scope.counters.is_over("max_flows");
            return Err(SlotError::HostFull { slot, most });
        }
        let lines = self.extents.grant_lines().map_or(0, |lines| lines.len());
        let line = self.lines.acquire(group, lines).ok_or_else(|| {
            let group = scope.engine.group_info(group).name.to_owned();
            SlotError::NoLine { slot, group, lines }
        })?;
        let adopted = self.is_adopted(slot, reason);
        match scope.engine.register(scope.now, self.vm, group, &checked.report, adopted) {
            Ok(flow) => Ok(Some(Member { generation: checked.generation, flow, line })),
            Err(error) => {
                self.lines.release(line);
                Err(SlotError::Engine(slot, error))
            }
        }
    }

    /// It ran before this device began.
    fn is_adopted(&self, slot: u32, reason: ScanReason) -> bool {
        reason == ScanReason::Offer || self.extents.is_unscanned(slot)
    }

    /// The group in which a flow is to be coupled, if it is.
    fn destined(
        &self,
        slot: u32,
        to: IpAddr,
        scope: &Scope<'_>,
    ) -> Result<Option<usize>, SlotError> {
        let Some(group) = scope.engine.route(self.vm, to) else { return Ok(None) };
        if !self.knows_shares(group, scope) {
            let group = scope.engine.group_info(group).name.to_owned();
            return Err(SlotError::NoRate { slot, group });
        }
        Ok(Some(group))
    }

    /// The driver knows how a group shares.
    fn knows_shares(&self, group: usize, scope: &Scope<'_>) -> bool {
        self.rate_shares || !scope.engine.group_info(group).by_rate
    }

    /// Flows that are routed to a group are coupled there.
    fn couples(&self, group: usize, scope: &Scope<'_>) -> bool {
        scope.engine.couples(self.vm, group) && self.knows_shares(group, scope)
    }

    /// Takes a flow out of the engine, if it is there.
    fn uncouple(&mut self, state: SlotState, scope: &mut Scope<'_>) {
        if let Some(member) = state.member() {
            scope.engine.leave(scope.now, member.flow);
            self.lines.release(member.line);
        }
    }

    /// Takes flows out of the engine that go on alone, and so keep what they
    /// have of the path.
    fn detach(&mut self, states: impl Iterator<Item = SlotState>, scope: &mut Scope<'_>) {
        let members: Vec<Member> = states.filter_map(|state| state.member()).collect();
        for member in &members {
            self.lines.release(member.line);
        }
        let flows: Vec<FlowId> = members.into_iter().map(|member| member.flow).collect();
        scope.engine.detach(scope.now, &flows);
    }

    /// Releases the extent that begins at a slot, and with the first all others;
    /// their flows go on alone.  Heads of the chains, the one offered first in front.
    pub fn release(&mut self, slot: u32, scope: &mut Scope<'_>) -> Result<Vec<u16>, NoExtent> {
        let released = self.extents.release(slot)?;
        let gone: Vec<SlotState> =
            released.slots.into_iter().flat_map(|slots| self.slots.take(slots)).collect();
        scope.counters.left += gone.len() as u64;
        self.detach(gone.into_iter(), scope);
        if self.extents.is_empty() {
            self.lines.clear();
        }
        Ok(released.heads)
    }

    /// Forgets all extents; the engine's flows that were in them.
    pub fn clear(&mut self, counters: &mut Counters) -> Vec<FlowId> {
        counters.left += self.slots.len() as u64;
        self.extents.clear();
        self.lines.clear();
        let slots = std::mem::take(&mut self.slots);
        let members = slots.range(0..u32::MAX).filter_map(|(_, state)| state.member());
        members.map(|member| member.flow).collect()
    }

    /// Writes the grant lines that have changed; their number.
    pub fn publish(&mut self, memory: &Memory, grants: &dyn Grants) -> Result<u64, MemoryError> {
        let extents = &self.extents;
        self.lines.publish(memory, |line| extents.grant_lines()?.address(line), grants)
    }

    /// Frees a slot that has a flow.
    fn free(&mut self, slot: u32, state: SlotState, scope: &mut Scope<'_>) {
        if !state.is_free() {
            self.uncouple(state, scope);
            scope.counters.left += 1;
            self.slots.set(slot, SlotState::Free);
        }
    }

    fn addresses(&self, slot: u32) -> Result<SlotAddresses, SlotError> {
        self.extents.slot(slot).ok_or(SlotError::Unknown(slot))
    }

    /// What the driver says of a slot, and what is known of it.
    pub fn read(&self, slot: u32, mapping: &Mapping) -> Result<(Report, SlotState), SlotError> {
        Ok((self.read_report(slot, READ_ATTEMPTS, mapping)?, self.slots.get(slot)))
    }

    fn read_report(
        &self,
        slot: u32,
        attempts: u32,
        mapping: &Mapping,
    ) -> Result<Report, SlotError> {
        let at = self.addresses(slot)?.report;
        let words = words(mapping, at).map_err(|error| SlotError::Memory(slot, error))?;
        read_report(words, attempts).map_err(|torn| SlotError::Torn(slot, torn))
    }

    /// What the driver says of the flow that is known of a slot; `None` if it has begun to
    /// use the slot anew, of which a message comes.
    fn read_known(
        &self,
        slot: u32,
        state: &SlotState,
        attempts: u32,
        mapping: &Mapping,
    ) -> Result<Option<CheckedReport>, SlotError> {
        let raw = self.read_report(slot, attempts, mapping)?;
        if state.generation() != Some(raw.generation.get()) {
            return Ok(None);
        }
        raw.check().map(Some).map_err(|error| SlotError::Report(slot, error))
    }

    fn answer(&self, slot: u32, grant: SlotGrant, mapping: &Mapping) -> Result<(), SlotError> {
        let at = self.addresses(slot)?.grant;
        change(mapping, at, |words| write_slot_grant(words, &grant))
            .map_err(|error| SlotError::Memory(slot, error))
    }
}

/// What was read of a slot, of which the engine is told later.
#[derive(Debug)]
struct SlotRead {
    slot: u32,
    reason: ScanReason,
    report: Result<Report, SlotError>,
}

/// A flow on its way to where the operator wants it.
#[derive(Clone, Copy, Debug)]
struct Move {
    slot: u32,
    from: SlotState,
    /// What it is until it is there.
    until_then: Alone,
    /// Its slot tells where it belongs.
    is_readable: bool,
    /// It is not to be coupled there.
    stays_alone: bool,
}

/// What a report of a flow tells since its last one.
fn told(state: &SlotState, checked: &CheckedReport, engine: &dyn FlowEngine) -> Told {
    let before = state.counted(engine);
    before.map_or_else(Told::default, |before| before.told_until(&checked.report))
}

fn count(state: &SlotState, checked: &CheckedReport, scope: &mut Scope<'_>) {
    let told = told(state, checked, scope.engine);
    scope.counters.take(&told, state.member().is_some());
}

/// Hands a report of a coupled flow to the engine.
fn report(
    slot: u32,
    flow: FlowId,
    checked: &CheckedReport,
    scope: &mut Scope<'_>,
) -> Result<(), SlotError> {
    scope.counters.updated += 1;
    let updated = scope.engine.update(scope.now, flow, &checked.report);
    updated.map_err(|error| SlotError::Engine(slot, error))
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

#[cfg(test)]
mod tests;
