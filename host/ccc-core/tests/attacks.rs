// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM's lies do to three honest VMs of four flows each, behind a FIFO of 10 Mbit/s:
//! they have at least what they have beside an honest fourth, within noise.
mod bottleneck;
mod common;

use std::sync::LazyLock;

use bottleneck::{MSS, Net, PACKET_US, Path};
use ccc_core::{CongestionState, FlowId, GroupConfig, PolicyKind, Report, ShareOf, VmId};
use common::Flow;

const RUN_MS: u64 = 15_000;
/// Honest VMs' part of what they have beside an honest fourth.
const LEAST_PERCENT: u64 = 97;
/// Of 100,000; an honest run has 20.
const MOST_LOST: u64 = 600;

/// Three honest VMs and a fourth one.
struct Four {
    net: Net,
    honest: Vec<VmId>,
    fourth: VmId,
}

/// What they have had.
#[derive(Clone, Copy, Debug)]
struct Had {
    honest_percent: u64,
    lost: u64,
}

static HONEST_BYTES: LazyLock<u64> =
    LazyLock::new(|| Four::new(4).run_for(1_000, |_, _| {}).honest_bytes());

impl Four {
    /// The fourth one has so many flows that send.
    fn new(flows: usize) -> Four {
        Four::with(flows, GroupConfig::default())
    }

    fn with(flows: usize, config: GroupConfig) -> Four {
        Four::beside(3, flows, config)
    }

    /// So many honest ones are there.
    fn beside(honest: usize, flows: usize, config: GroupConfig) -> Four {
        let mut net = Net::new(config);
        let honest = (0..honest).map(|_| net.vm(1.0, 4)).collect();
        let fourth = net.vm(1.0, flows);
        Four { net, honest, fourth }
    }

    fn honest_bytes(&self) -> u64 {
        self.honest.iter().map(|vm| self.net.delivered(*vm)).sum()
    }

    fn delivered(&self) -> u64 {
        self.net.senders.iter().map(|sender| sender.delivered).sum()
    }

    /// Its flows say this of themselves.
    fn lying(mut self, lies: fn(&mut Report)) -> Four {
        self.net.flows_of(self.fourth).for_each(|sender| sender.lies = lies);
        self
    }

    /// After five seconds the fourth one does this every so many milliseconds.
    fn run_for(mut self, every_ms: u64, mut lie: impl FnMut(&mut Net, VmId)) -> Four {
        self.net.run_ms(5_000);
        // What slow start loses is nobody's attack.
        (self.net.sent, self.net.dropped) = (0, 0);
        for _ in 0..RUN_MS / every_ms {
            lie(&mut self.net, self.fourth);
            self.net.run_ms(every_ms);
        }
        self
    }

    fn run(self, every_ms: u64, lie: impl FnMut(&mut Net, VmId)) -> Had {
        let run = self.run_for(every_ms, lie);
        Had {
            honest_percent: 100 * run.honest_bytes() / *HONEST_BYTES,
            lost: run.net.dropped * 100_000 / run.net.sent,
        }
    }

    /// The same with one more flow of the fourth one, which sends nothing.
    fn run_slot(self, every_ms: u64, mut lie: impl FnMut(&mut Net, &mut Flow)) -> Had {
        let mut slot = None;
        self.run(every_ms, move |net, vm| {
            let flow = slot.get_or_insert_with(|| empty_slot(net, vm));
            lie(net, flow);
        })
    }
}

fn empty_slot(net: &mut Net, vm: VmId) -> Flow {
    let times = Report { srtt_us: 100_000, min_rtt_us: 100_000, ..common::report(10) };
    net.host.flow_of(vm, &Report { mss_bytes: MSS as u16, ..times })
}

fn harmless(had: Had) {
    assert!(had.honest_percent >= LEAST_PERCENT && had.lost <= MOST_LOST, "{had:?}");
}

fn lose(net: &mut Net, flow: &mut Flow) {
    let epoch = net.host.epoch();
    net.host.lose(flow, epoch);
}

#[test]
fn losses_from_a_slot_without_traffic() {
    harmless(Four::new(0).run_slot(150, lose));
}

#[test]
fn losses_of_a_vm_that_sends() {
    harmless(Four::new(4).run_slot(150, lose));
}

#[test]
fn two_honest_ones_are_enough_to_say_who_loses_alone() {
    let bytes = |every_ms| {
        let mut slot = None;
        let three = Four::beside(2, 4, GroupConfig::default());
        let run = three.run_for(every_ms, move |net, vm| {
            let flow = slot.get_or_insert_with(|| empty_slot(net, vm));
            if every_ms < RUN_MS {
                lose(net, flow);
            }
        });
        run.honest_bytes()
    };
    let [honest, attacked] = [RUN_MS, 150].map(bytes);
    assert!(attacked * 100 >= honest * LEAST_PERCENT, "{attacked} of {honest} bytes");
}

#[test]
fn what_cannot_be_is_counted() {
    let lies: [fn(&mut Net, &mut Flow); 3] = [
        |net, flow| told_of_a_gigabyte(net, flow, 0),
        |net, flow| {
            flow.report.state = CongestionState::Avoidance;
            (flow.report.inflight_bytes, flow.report.cwnd_bytes) = (1 << 30, 1 << 30);
            let vm = flow.vm;
            let brings = net.host.flow_of(vm, &flow.report);
            net.host.leave(brings);
        },
        |net, flow| {
            flow.report.mss_bytes = u16::MAX;
            net.host.send(flow);
            net.host.send(flow);
        },
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut four = Four::new(0);
        four.net.run_ms(5_000);
        let mut flow = empty_slot(&mut four.net, four.fourth);
        lie(&mut four.net, &mut flow);
        let conduct = four.net.host.engine.conduct(four.fourth, four.net.host.group);
        assert!(conduct.beyond_bytes > 0, "{number}: {conduct:?}");
    }
}

#[test]
fn losses_that_take_the_epoch() {
    harmless(Four::new(4).run_slot(50, |net, flow| {
        flow.report.beta = u16::MAX;
        lose(net, flow);
    }));
}

#[test]
fn losses_that_are_paid_for_with_bytes_that_were_not_delivered() {
    harmless(Four::new(0).run_slot(150, |net, flow| {
        flow.report.delivered_bytes += 1 << 30;
        lose(net, flow);
    }));
}

#[test]
fn losses_that_are_not_told() {
    let mut four = Four::new(4);
    four.net.flows_of(four.fourth).for_each(|sender| sender.tells_losses = false);
    harmless(four.run(1_000, |_, _| {}));
}

/// It takes their part of the bytes from the others, and with it what pays for losses.
#[test]
fn losses_that_are_not_told_of_four_times_the_bytes() {
    let mut four = Four::new(4).lying(|report| {
        report.delivered_bytes *= 4;
        report.acked_limited_bytes *= 4;
    });
    four.net.flows_of(four.fourth).for_each(|sender| sender.tells_losses = false);
    four.net.run_ms(200_000);
    let before = four.honest_bytes();
    four.net.run_ms(100_000);
    let [honest, all] = [four.honest_bytes() - before, four.delivered()];
    let even = all / 3 / 4 * 3;
    assert!(honest * 100 >= even * 90, "{honest} of {even} bytes");
    for vm in &four.honest {
        assert!(!four.net.host.engine.conduct(*vm, four.net.host.group).alone);
    }
}

#[test]
fn a_loss_that_is_undone_at_once() {
    harmless(Four::new(4).run_slot(100, |net, flow| {
        let report = &mut flow.report;
        if report.congestion_events == report.spurious_events {
            lose(net, flow);
        } else {
            report.spurious_events = report.congestion_events;
            net.host.send(flow);
        }
    }));
}

#[test]
fn a_round_trip_time_of_ten_seconds_that_is_not_what_windows_take() {
    let had = Four::new(4).lying(|report| report.srtt_us = 10_000_000).run(1_000, |_, _| {});
    // The first seconds are counted, in which nothing is known.
    assert!(had.honest_percent >= 90 && had.lost <= MOST_LOST, "{had:?}");
}

#[test]
fn a_round_trip_time_of_ten_seconds_and_a_quarter_of_the_bytes() {
    let four = Four::new(4).lying(|report| {
        report.srtt_us = 10_000_000;
        report.delivered_bytes /= 4;
        report.acked_limited_bytes /= 4;
    });
    let had = four.run(1_000, |_, _| {});
    // Only the tap sees what it sends.
    assert!(had.honest_percent >= 48 && had.lost <= 2 * MOST_LOST, "{had:?}");
}

#[test]
fn a_round_trip_time_of_a_microsecond() {
    harmless(Four::new(4).lying(|report| report.srtt_us = 1).run(1_000, |_, _| {}));
}

#[test]
fn round_trip_times_that_rise_before_a_flow_leaves() {
    harmless(Four::new(0).run(10, |net, vm| {
        let near = Report { srtt_us: 1, ..empty_slot(net, vm).report };
        let mut flow = net.host.flow_of(vm, &near);
        flow.report.srtt_us = 10_000_000;
        net.host.send(&flow);
        net.host.leave(flow);
    }));
}

#[test]
fn flows_that_bring_a_gigabyte() {
    // Who is idle for less than a second keeps its place, and brings nothing.
    harmless(Four::new(0).run_slot(1_100, |net, flow| {
        let report = &mut flow.report;
        report.state = CongestionState::Avoidance;
        (report.inflight_bytes, report.cwnd_bytes) = (1 << 30, 1 << 30);
        report.active = !report.active;
        net.host.send(flow);
    }));
}

fn told_of_a_gigabyte(net: &mut Net, flow: &mut Flow, growth: u32) {
    let report = &mut flow.report;
    report.state = CongestionState::Avoidance;
    report.acked_limited_bytes += 1 << 30;
    report.delivered_bytes += 1 << 30;
    report.cwnd_growth_bytes = report.cwnd_growth_bytes.wrapping_add(growth);
    net.host.send(flow);
}

#[test]
fn growth_of_a_gigabyte() {
    harmless(Four::new(0).run_slot(100, |net, flow| told_of_a_gigabyte(net, flow, 1 << 30)));
}

/// No more than a segment or two are lost at each reduction, as without it.
#[test]
fn growth_of_a_gigabyte_loses_as_little_as_reno_does() {
    let gigabyte = |net: &mut Net, flow: &mut Flow| told_of_a_gigabyte(net, flow, 1 << 30);
    let had = Four::new(0).run_slot(100, gigabyte);
    assert!(had.lost <= 40, "{had:?}");
}

/// Slow start ends at what the path holds, whatever one says that is delivered, at an honest RTT.
#[test]
fn a_gigabyte_that_is_told_of_in_slow_start() {
    let mut four = Four::new(0);
    let mut slot = empty_slot(&mut four.net, four.fourth);
    slot.report.priority = 2560;
    for _ in 0..50 {
        told_of_a_gigabyte(&mut four.net, &mut slot, 1 << 30);
        four.net.run_ms(100);
    }
    assert!(four.net.dropped <= 12, "{}", four.net.dropped);
}

/// Within four seconds it is known not to be as far away as it says.
#[test]
fn growth_of_a_gigabyte_before_others_come() {
    let mut net = Net::new(GroupConfig::default());
    let liar = net.vm(1.0, 0);
    let mut slot = empty_slot(&mut net, liar);
    for _ in 0..40 {
        net.host.now += 100_000;
        told_of_a_gigabyte(&mut net, &mut slot, 1 << 30);
    }
    for _ in 0..3 {
        net.vm(1.0, 4);
    }
    for _ in 0..200 {
        told_of_a_gigabyte(&mut net, &mut slot, 1 << 30);
        net.run_ms(100);
    }
    let lost = net.dropped * 100_000 / net.sent;
    // What slow start loses is counted.
    assert!(lost <= 2 * MOST_LOST, "{lost} of 100,000");
}

#[test]
fn growth_of_a_gigabyte_where_shares_are_windows() {
    for every_ms in [2, 100] {
        let config = GroupConfig { share: ShareOf::Window, ..GroupConfig::default() };
        let four = Four::with(0, config);
        let had = four.run_slot(every_ms, |net, flow| told_of_a_gigabyte(net, flow, 1 << 30));
        assert!(had.lost < 5 * MOST_LOST, "each {every_ms} ms: {had:?}");
    }
}

#[test]
fn who_has_left_takes_no_floor_from_others() {
    let mut four = Four::new(0);
    let slots: Vec<Flow> = (0..200).map(|_| empty_slot(&mut four.net, four.fourth)).collect();
    slots.iter().for_each(|flow| four.net.host.send(flow));
    slots.into_iter().for_each(|flow| four.net.host.leave(flow));
    four.net.run_ms(RUN_MS);
    let floor = 12 * u64::from(MSS);
    assert!(four.net.host.status().cwnd_bytes >= floor);
}

#[test]
fn a_window_that_closes_without_an_event() {
    let closed = (1_u32 << 30).wrapping_neg();
    harmless(Four::new(0).run_slot(100, |net, flow| told_of_a_gigabyte(net, flow, closed)));
}

#[test]
fn slots_that_claim_a_floor() {
    let mut slots: Vec<Flow> = Vec::new();
    harmless(Four::new(0).run(900, move |net, vm| {
        if slots.is_empty() {
            slots = (0..256).map(|_| empty_slot(net, vm)).collect();
            slots.iter_mut().for_each(|flow| flow.report.mss_bytes = u16::MAX);
        }
        slots.iter().for_each(|flow| net.host.send(flow));
    }));
}

#[test]
fn resets_of_the_device() {
    let mut slot: Option<FlowId> = None;
    harmless(Four::new(0).run(100, move |net, vm| {
        let now = net.host.now;
        slot.take().into_iter().for_each(|flow| net.host.engine.detach(now, &[flow]));
        slot = Some(empty_slot(net, vm).id);
    }));
}

#[test]
fn a_vm_that_loses_alone_is_said_to_and_then_no_longer() {
    let mut net = Four::new(4);
    let conduct = |four: &Four| four.net.host.engine.conduct(four.fourth, four.net.host.group);
    net = net.run_for(1_000, |_, _| {});
    let honest = [&net.honest[..], &[net.fourth]].concat();
    let of = |vm: &VmId| net.net.host.engine.conduct(*vm, net.net.host.group);
    assert!(honest.iter().all(|vm| !of(vm).alone && of(vm).lone_events <= of(vm).shared_events));
    let mut flow = empty_slot(&mut net.net, net.fourth);
    net = net.run_for(150, |net, _| lose(net, &mut flow));
    assert!(conduct(&net).alone, "{:?}", conduct(&net));
    let verdicts = net.net.host.engine.verdicts(net.net.host.group);
    // Others lose some ten times meanwhile.
    for _ in 0..12 {
        net = net.run_for(1_000, |_, _| {});
    }
    assert!(!conduct(&net).alone, "{:?}", conduct(&net));
    assert_eq!(net.net.host.engine.verdicts(net.net.host.group), verdicts + 1);
}

#[test]
fn what_another_has_confirmed_is_not_undone() {
    let mut four = Four::new(0);
    four.net.run_ms(10_000);
    let mut liar = empty_slot(&mut four.net, four.fourth);
    let mut honest = empty_slot(&mut four.net, four.honest[0]);
    let (epoch, before) = (four.net.host.epoch(), four.net.host.status().cwnd_bytes);
    four.net.host.lose(&mut liar, epoch);
    four.net.host.lose(&mut honest, epoch);
    liar.report.spurious_events += 1;
    four.net.host.send(&liar);
    let after = four.net.host.status().cwnd_bytes;
    assert!(after < before, "{before} became {after}");
    assert_eq!(four.net.host.engine.conduct(four.fourth, four.net.host.group).refused_undos, 1);
}

#[test]
fn who_claims_a_gigabyte_in_slow_start_has_four_windows_after_a_round_trip_at_most() {
    let mut net = Net::new(GroupConfig::default());
    let vm = net.vm(1.0, 0);
    let mut flow = empty_slot(&mut net, vm);
    for round in 0..8 {
        let before = net.host.status().cwnd_bytes;
        for _ in 0..100 {
            net.host.now += 1_000;
            told_of_a_gigabyte(&mut net, &mut flow, 1 << 30);
        }
        let after = net.host.status().cwnd_bytes;
        // What fills while a window is told of may be told, too; at first a window more.
        let most = if round == 0 { 5 * before } else { 4 * before };
        assert!(after <= most, "round {round}: {before} became {after}");
    }
}

/// Beside a slot that claims to deliver, and never to wait: how long packets wait in the
/// mean, and what part of what the path can carry is delivered, percent.
fn beside_one_that_never_waits(policy: PolicyKind) -> (u64, u64) {
    let mut four = Four::with(0, GroupConfig { policy, ..GroupConfig::default() });
    let mut flow = empty_slot(&mut four.net, four.fourth);
    flow.report.rtt_us = flow.report.min_rtt_us;
    let (mut sum_us, mut before) = (0, 0);
    for step in 0..6_000 {
        flow.report.delivered_bytes += u64::from(MSS);
        flow.report.acked_limited_bytes += u64::from(MSS);
        four.net.host.send(&flow);
        four.net.run_ms(10);
        if step < 3_000 {
            before = four.delivered();
        } else {
            sum_us += four.net.waits_us();
        }
    }
    let packets = (four.delivered() - before) / u64::from(MSS);
    (sum_us / 3_000, packets * PACKET_US * 100 / 30_000_000)
}

/// A slot that claims to deliver so much each 10 ms, a microsecond away: the largest
/// window, and what part of what the path can carry the others have, percent.
fn beside_one_of_a_microsecond(bytes: u64) -> (u64, u64) {
    let config = GroupConfig { policy: PolicyKind::Delay, ..GroupConfig::default() };
    let mut four = Four::with(0, config);
    let mut flow = empty_slot(&mut four.net, four.fourth);
    let report = &mut flow.report;
    (report.srtt_us, report.rtt_us, report.min_rtt_us) = (1, 1, 1);
    let mut most_bytes = 0;
    for _ in 0..6_000 {
        flow.report.delivered_bytes += bytes;
        flow.report.acked_limited_bytes += bytes;
        four.net.host.send(&flow);
        four.net.run_ms(10);
        most_bytes = most_bytes.max(four.net.host.status().cwnd_bytes);
    }
    let packets = four.delivered() / u64::from(MSS);
    (most_bytes, packets * PACKET_US * 100 / 60_000_000)
}

#[test]
fn a_flow_a_microsecond_away_beside_a_target() {
    let (most_bytes, percent) = beside_one_of_a_microsecond(65_536);
    // Ten times what path and queue hold.
    assert!(most_bytes < 2_500_000, "{most_bytes} bytes");
    assert!(percent >= 90, "{percent} % delivered");
}

#[test]
fn a_flow_that_never_waits() {
    let (waits_us, percent) = beside_one_that_never_waits(PolicyKind::Delay);
    assert!(waits_us < 10_000, "{waits_us} us at a target of 5 ms");
    assert!(percent >= 95, "{percent} % delivered");
}

/// What three VMs of four flows have in their first seconds at a gigabit a second, 20 ms away,
/// beside one that has a slot 250 ms away for a millisecond of so many.
fn beside_a_slot_that_comes_and_goes(every_ms: Option<u64>) -> u64 {
    let path = Path { packet_us: 12, delay_us: 20_000 };
    let mut net = Net::on(path, GroupConfig::default());
    let honest: Vec<VmId> = (0..3).map(|_| net.vm(1.0, 4)).collect();
    let vm = net.vm(1.0, 0);
    let us = 250_000;
    let far = Report { srtt_us: us, min_rtt_us: us, rtt_us: us, ..common::report(10) };
    let every_ms_or_all = every_ms.unwrap_or(3_000);
    for _ in 0..3_000 / every_ms_or_all {
        let slot = every_ms.map(|_| net.host.flow_of(vm, &far));
        net.run_ms(1);
        slot.into_iter().for_each(|slot| net.host.leave(slot));
        net.run_ms(every_ms_or_all - 1);
    }
    honest.iter().map(|vm| net.delivered(*vm)).sum()
}

/// Each return cut the aggregate to what there was as it left: 11 % were kept.
#[test]
fn a_slot_that_comes_from_far_again_and_again_keeps_nobody_from_growing() {
    let without = beside_a_slot_that_comes_and_goes(None);
    for every_ms in [50, 200, 300] {
        let kept = 100 * beside_a_slot_that_comes_and_goes(Some(every_ms)) / without;
        assert!(kept >= 90, "each {every_ms} ms: {kept} % kept");
    }
}
