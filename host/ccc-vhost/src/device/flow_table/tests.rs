// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The flow table without the engine's law, and what a guest may do to it.
use ccc_core::{Engine, EngineError, Grant, GroupConfig};
use vm_memory::Bytes;
use zerocopy::IntoBytes;

use super::*;
use crate::{device::counters::Told, device::engine::GroupInfo, virtio::chain::Array};

/// Where everything goes to one group, and what is asked for is noted.
struct FakeEngine {
    numbers: Engine,
    route: Option<usize>,
    by_rate: bool,
    most: usize,
    full: Option<usize>,
    calls: Vec<String>,
    detached: Vec<FlowId>,
}

impl FlowEngine for FakeEngine {
    fn route(&self, _: usize, _: IpAddr) -> Option<usize> {
        self.route
    }

    fn couples(&self, _: usize, group: usize) -> bool {
        self.route == Some(group)
    }

    fn group_info(&self, _: usize) -> GroupInfo<'_> {
        GroupInfo { name: "g", by_rate: self.by_rate }
    }

    fn max_flows_per_vm(&self) -> usize {
        self.most
    }

    fn full(&self) -> Option<usize> {
        self.full
    }

    fn register(
        &mut self,
        now: Micros,
        vm: usize,
        group: usize,
        report: &ccc_core::Report,
        adopted: bool,
    ) -> Result<FlowId, EngineError> {
        self.calls.push(format!("register {vm} in {group}, adopted {adopted}"));
        let (group, vm) = (self.numbers.add_group(GroupConfig::default()), self.numbers.add_vm());
        self.numbers.register(now, vm, group, report)
    }

    fn update(
        &mut self,
        now: Micros,
        flow: FlowId,
        report: &ccc_core::Report,
    ) -> Result<(), EngineError> {
        self.calls.push(format!("update {}", report.delivered_bytes));
        self.numbers.update(now, flow, report)
    }

    fn last_report(&self, flow: FlowId) -> Option<ccc_core::Report> {
        self.numbers.last_report(flow)
    }

    fn leave(&mut self, _: Micros, _: FlowId) {
        self.calls.push("leave".to_owned());
    }

    fn detach(&mut self, _: Micros, flows: &[FlowId]) {
        self.calls.push(format!("detach {}", flows.len()));
        self.detached = flows.to_vec();
    }

    fn grant(&self, _: usize, _: usize) -> Grant {
        Grant::default()
    }
}

/// The report of a flow that sends.
fn sends(generation: u32, delivered: u64) -> Report {
    Report {
        state: wire::STATE_CA,
        flags: wire::R_ACTIVE,
        priority: wire::PRIORITY_ONE.into(),
        delivered_bytes: delivered.into(),
        mss_bytes: 1448.into(),
        generation: generation.into(),
        family: 4,
        ..Report::FREE
    }
}

/// What does not tell where the flow of generation 1 belongs: it is being written, its flow
/// has left, or another has its slot.
fn unreadable() -> [Report; 3] {
    let torn = Report { seq: 1.into(), ..sends(1, 0) };
    let gone = Report { state: wire::STATE_FREE, ..sends(1, 0) };
    [torn, gone, sends(2, 0)]
}

const REPORTS: u64 = 0x1000;
const GRANTS: u64 = 0x2000;

struct World {
    mapping: Mapping,
    counters: Counters,
    engine: FakeEngine,
    table: FlowTable,
}

impl World {
    /// Four slots that were offered and scanned.
    fn new() -> World {
        let mapping = Mapping::from_ranges(&[(GuestAddress(0), 0x4000)]).expect("memory");
        let engine = FakeEngine {
            numbers: Engine::new(),
            route: Some(0),
            by_rate: false,
            most: 2,
            full: None,
            calls: Vec::new(),
            detached: Vec::new(),
        };
        let mut table = FlowTable::new(7);
        let lines = Array::of_test(8, 1, 0x3000);
        let (reports, grants) = (Array::of_test(128, 4, REPORTS), Array::of_test(16, 4, GRANTS));
        table.hold(Extent::of_test(0..4, reports, grants, lines)).expect("the first");
        let mut world = World { mapping, counters: Counters::new("a"), engine, table };
        world.with(|table, scope| assert!(table.scan_offer(&mut 9, scope).is_some()));
        world
    }

    fn with<R>(&mut self, work: impl FnOnce(&mut FlowTable, &mut Scope<'_>) -> R) -> R {
        let mut context = Context { engine: &mut self.engine, now: 1 };
        let scope = &mut Scope::new(&self.mapping, &mut self.counters, &mut context);
        work(&mut self.table, scope)
    }

    fn write(&self, slot: u32, generation: u32, delivered: u64) {
        self.write_report(slot, &sends(generation, delivered));
    }

    fn write_report(&self, slot: u32, report: &Report) {
        let at = GuestAddress(REPORTS + 128 * u64::from(slot));
        self.mapping.write_slice(report.as_bytes(), at).expect("in memory");
    }

    fn remap(&mut self, reason: RemapReason) {
        self.with(|table, scope| table.remap(reason, scope));
    }

    /// A message about a slot, and what its driver finds: coupled or not.
    fn scan(&mut self, slot: u32, generation: u32) -> bool {
        let reason = ScanReason::Message(generation);
        self.with(|table, scope| table.scan_or_refuse(slot, reason, scope));
        assert_eq!(self.answer(slot) as u32, generation, "answered");
        self.is_accepted(slot)
    }

    fn answer(&self, slot: u32) -> u64 {
        let at = GuestAddress(GRANTS + 16 * u64::from(slot));
        let [word, _]: [u64; 2] = self.mapping.read_obj(at).expect("in memory");
        word
    }

    /// Its driver finds it coupled.
    fn is_accepted(&self, slot: u32) -> bool {
        self.answer(slot) >> 48 & u64::from(wire::G_ACCEPTED) != 0
    }

    fn waits(&self, slot: u32) -> bool {
        matches!(self.table.slots.get(slot), SlotState::Alone(Alone { waits: true, .. }))
    }

    fn calls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.engine.calls)
    }
}

#[test]
fn a_slot_is_coupled_reports_and_is_used_anew() {
    let mut world = World::new();
    world.write(2, 5, 0);
    assert!(world.scan(2, 5));
    assert_eq!(world.calls(), ["register 7 in 0, adopted false"]);
    world.write(2, 5, 9);
    assert!(world.scan(2, 5));
    world.write(2, 6, 0);
    assert!(world.scan(2, 6));
    assert_eq!(world.calls(), ["update 9", "leave", "register 7 in 0, adopted false"]);
    world.with(|table, scope| table.leave_or_refuse(2, 6, scope));
    assert_eq!(world.calls(), ["update 0", "leave"]);
    assert!(matches!(world.table.slots.get(2), SlotState::Free));
}

#[test]
fn slots_that_are_read_together_are_taken_as_their_messages_come() {
    let mut world = World::new();
    world.write(2, 5, 9);
    world.write(1, 6, 7);
    let messages = [(2, 5), (3, 4), (1, 6), (9, 1), (2, 5), (2, 4)];
    world.with(|table, scope| table.scan_all(messages.into_iter(), scope));
    let begins = "register 7 in 0, adopted false";
    assert_eq!(world.calls(), [begins, begins, "update 9"], "the second time nothing is new");
    let refused = [Kind::Stale, Kind::Message].map(|kind| world.counters.refused(kind));
    assert_eq!(refused, [2, 1], "and no other is kept from anything");
    assert_eq!(world.counters.told.delivered_bytes, 9 + 7);
}

#[test]
fn a_report_that_is_read_after_its_flow_has_left_is_no_fault() {
    let mut world = World::new();
    world.write(2, 5, 0);
    assert!(world.scan(2, 5));
    world.calls();
    world.write(2, 5, 9);
    let at = GuestAddress(REPORTS + 128 * 2 + std::mem::offset_of!(Report, state) as u64);
    world.mapping.write_obj(wire::STATE_FREE, at).expect("in memory");
    assert!(world.scan(2, 5));
    assert_eq!(world.calls(), [""; 0], "the message that it has left comes behind");
    world.with(|table, scope| table.leave_or_refuse(2, 5, scope));
    assert_eq!(world.calls(), ["update 9", "leave"]);
    assert_eq!(world.counters.refused(Kind::Report), 0);
}

#[test]
fn what_flows_tell_is_added_up_to_their_last_report_coupled_or_not() {
    for route in [Some(0), None] {
        let mut world = World::new();
        world.engine.route = route;
        // Its first message was lost, and it does not know its round-trip time yet.
        world.write(1, 5, 500);
        world.scan(1, 5);
        let later = Report { srtt_us: 20_000.into(), congestion_events: 2.into(), ..sends(5, 900) };
        world.write_report(1, &later);
        world.scan(1, 5);
        let last = Report {
            state: wire::STATE_FREE,
            delivered_bytes: 1_500.into(),
            srtt_us: 40_000.into(),
            congestion_events: 3.into(),
            ..later
        };
        world.write_report(1, &last);
        world.with(|table, scope| table.leave_or_refuse(1, 5, scope));
        let told = Told {
            delivered_bytes: 1_500,
            congestion_events: 3,
            rtt_bytes: 400 + 600,
            rtt_byte_us: 400 * 20_000 + 600 * 40_000,
        };
        assert_eq!(world.counters.told, told, "{route:?}");
        assert_eq!(world.counters.events, if route.is_some() { 3 } else { 0 });
    }
}

#[test]
fn of_a_flow_that_ran_before_only_what_it_does_from_now_on_is_added() {
    let mut world = World::new();
    world.write(1, 5, 500);
    world.with(|table, scope| table.scan_or_refuse(1, ScanReason::Offer, scope));
    world.write(1, 5, 700);
    world.scan(1, 5);
    // An old report that is read late tells nothing.
    world.write(1, 5, 600);
    world.scan(1, 5);
    assert_eq!(world.counters.told.delivered_bytes, 200);
}

#[test]
fn a_flow_waits_while_the_host_is_full_and_is_refused_once() {
    let mut world = World::new();
    world.engine.full = Some(3);
    world.write(0, 1, 0);
    assert!(!world.scan(0, 1) && !world.scan(0, 1));
    assert_eq!(world.counters.refused(Kind::Limit), 1);
    assert!(matches!(world.table.slots.get(0), SlotState::Alone(Alone { waits: true, .. })));
    world.engine.full = None;
    assert!(world.scan(0, 1));
    assert!(matches!(world.table.slots.get(0), SlotState::Coupled(_)));
}

#[test]
fn flows_move_where_the_operator_wants_them() {
    let mut world = World::new();
    world.write(1, 1, 0);
    assert!(world.scan(1, 1));
    world.engine.route = None;
    world.remap(RemapReason::Routes);
    assert!(matches!(world.table.slots.get(1), SlotState::Alone(Alone { waits: false, .. })));
    assert_eq!(world.calls()[1..], ["detach 1"], "it goes on alone");
    world.engine.route = Some(1);
    world.remap(RemapReason::Routes);
    assert_eq!(world.calls(), ["detach 0", "register 7 in 1, adopted false"]);
}

#[test]
fn what_a_flow_tells_while_it_moves_is_added_up_once() {
    let mut world = World::new();
    world.write(1, 1, 100);
    assert!(world.scan(1, 1));
    for (route, delivered) in [(None, 300), (Some(1), 600)] {
        world.engine.route = route;
        world.write(1, 1, delivered);
        world.remap(RemapReason::Routes);
        assert_eq!(world.counters.told.delivered_bytes, delivered);
        world.scan(1, 1);
        assert_eq!(world.counters.told.delivered_bytes, delivered);
    }
}

#[test]
fn a_flow_whose_slot_does_not_tell_where_it_belongs_waits_for_its_next_message() {
    for unreadable in unreadable() {
        for (before, after) in [(Some(0), Some(0)), (None, Some(0)), (Some(0), None)] {
            let mut world = World::new();
            world.engine.route = before;
            world.write(1, 1, 0);
            assert_eq!(world.scan(1, 1), before.is_some());
            world.engine.route = after;
            world.write_report(1, &unreadable);
            world.remap(RemapReason::Routes);
            assert!(world.waits(1));
            assert_eq!(world.counters.all_refused(), 0);
            world.write(1, 1, 0);
            assert_eq!(world.scan(1, 1), after.is_some(), "{unreadable:?}");
        }
    }
}

#[test]
fn a_flow_whose_slot_does_not_tell_where_it_belongs_stays_while_its_group_is_coupled() {
    for unreadable in unreadable() {
        for (route, by_rate, stays) in [
            (Some(0), false, true),
            (Some(1), false, false),
            (None, false, false),
            (Some(0), true, false),
        ] {
            let mut world = World::new();
            world.write(1, 1, 0);
            assert!(world.scan(1, 1));
            (world.engine.route, world.engine.by_rate) = (route, by_rate);
            world.write_report(1, &unreadable);
            world.remap(RemapReason::Coupling);
            assert_eq!(world.is_accepted(1), stays, "{unreadable:?} {route:?} {by_rate}");
            assert_eq!(world.waits(1), !stays);
            assert_eq!(world.counters.all_refused(), 0);
        }
    }
}

#[test]
fn a_vm_has_no_more_flows_than_it_may_and_they_go_with_their_extent() {
    let mut world = World::new();
    for slot in 0..3 {
        world.write(slot, 1, 0);
        assert_eq!(world.scan(slot, 1), slot < 2);
    }
    assert_eq!((world.table.len(), world.counters.refused(Kind::Limit)), (2, 1));
    world.calls();
    world.with(|table, scope| table.release(0, scope)).expect("there");
    assert_eq!((world.calls(), world.table.len()), (vec!["detach 2".to_owned()], 0));
}

#[test]
fn flows_go_in_the_order_in_which_their_extents_were_offered() {
    for (released, slots) in [(8, vec![9, 11, 3, 13]), (0, vec![3]), (12, vec![13])] {
        let mut world = World::new();
        world.engine.most = 4;
        world.table = FlowTable::new(7);
        for (first, lines) in [(8, 1), (0, 0), (12, 0)] {
            let array =
                |size: usize, base| Array::of_test(size, 4, base + size as u64 * u64::from(first));
            let extent = Extent::of_test(
                first..first + 4,
                array(128, REPORTS),
                array(16, GRANTS),
                Array::of_test(8, lines, 0x3000),
            );
            world.table.hold(extent).expect("it goes with the others");
            world.with(|table, scope| assert!(table.scan_offer(&mut 9, scope).is_some()));
        }
        for slot in [13, 3, 11, 9] {
            world.write(slot, 1, 0);
            assert!(world.scan(slot, 1));
        }
        let flow = |slot| world.table.slots.get(slot).member().expect("coupled").flow;
        let flows: Vec<FlowId> = slots.into_iter().map(flow).collect();
        world.with(|table, scope| table.release(released, scope)).expect("there");
        assert_eq!(world.engine.detached, flows);
        assert_eq!(world.table.len(), 4 - flows.len(), "the others stay");
        assert_eq!(world.counters.left, flows.len() as u64);
    }
}
