// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What holds whatever guests do, and in whatever order it is reported.
mod common;

use ccc_core::{
    CongestionState, GroupConfig, GrowthSource, IDLE_AFTER_US, PolicyKind, Report, ShareOf, Weight,
};
use common::{Flow, Host, MSS};
use proptest::{prelude::*, sample::select};

/// Something that happens to flow number `.0` of those alive.
#[derive(Clone, Debug)]
enum Step {
    Join { vm: usize, priority: u16 },
    Leave(usize),
    Ack(usize),
    Lose { flow: usize, stale: bool },
    TimeOut(usize),
    Recover(usize),
    Undo(usize),
    Repeat(usize),
    Rest(u64),
    Garbage { flow: usize, report: Report },
}

/// That of all flows, but for what garbage says.
const SRTT_US: u32 = 100_000;

const SHARES: [ShareOf; 2] = [ShareOf::Window, ShareOf::Rate];

const POLICIES: [PolicyKind; 7] = [
    PolicyKind::CtrlTcp,
    PolicyKind::Delay,
    PolicyKind::Uncoupled,
    PolicyKind::ETcp,
    PolicyKind::Efcm,
    PolicyKind::Lisa,
    PolicyKind::Cm,
];

const GROWTH_SOURCES: [GrowthSource; 3] =
    [GrowthSource::Mean, GrowthSource::First, GrowthSource::ShortestRtt];

const STATES: [CongestionState; 4] = [
    CongestionState::SlowStart,
    CongestionState::Avoidance,
    CongestionState::Recovery,
    CongestionState::Loss,
];

prop_compose! {
    /// Any report that is not refused.
    fn garbage()(
        state in select(&STATES[..]),
        [active, cwnd_limited, opening] in any::<[bool; 3]>(),
        [acked_limited_bytes, delivered_bytes] in any::<[u64; 2]>(),
        [congestion_events, timeouts, spurious_events, beta] in any::<[u16; 4]>(),
        [priority, mss_bytes] in [1..=u16::MAX, 1..=u16::MAX],
        [cwnd_growth_bytes, congestion_epoch, cwnd_bytes, ssthresh] in any::<[u32; 4]>(),
        [min_rtt_us, rtt_us, inflight_bytes] in any::<[u32; 3]>(),
        srtt_us in prop_oneof![Just(SRTT_US), any::<u32>()],
    ) -> Report {
        let ssthresh_bytes = Some(ssthresh);
        Report {
            state, active, cwnd_limited, opening, priority, acked_limited_bytes, delivered_bytes,
            cwnd_growth_bytes, congestion_events, timeouts, spurious_events, beta,
            congestion_epoch, cwnd_bytes, ssthresh_bytes, srtt_us, min_rtt_us, rtt_us,
            inflight_bytes, mss_bytes,
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let flow = 0..64_usize;
    prop_oneof![
        2 => (0..3_usize, 1..=2560_u16).prop_map(|(vm, priority)| Step::Join { vm, priority }),
        1 => flow.clone().prop_map(Step::Leave),
        12 => flow.clone().prop_map(Step::Ack),
        2 => (flow.clone(), any::<bool>()).prop_map(|(flow, stale)| Step::Lose { flow, stale }),
        1 => flow.clone().prop_map(Step::TimeOut),
        3 => flow.clone().prop_map(Step::Recover),
        1 => flow.clone().prop_map(Step::Undo),
        2 => flow.clone().prop_map(Step::Repeat),
        1 => (0..3_000_000_u64).prop_map(Step::Rest),
        1 => (flow, garbage()).prop_map(|(flow, report)| Step::Garbage { flow, report }),
    ]
}

prop_compose! {
    fn config()(
        policy in prop_oneof![1 => Just(PolicyKind::CtrlTcp), 2 => select(&POLICIES[..])],
        growth_source in select(&GROWTH_SOURCES[..]),
        share in select(&SHARES[..]),
    ) -> GroupConfig {
        GroupConfig { policy, growth_source, share, ..GroupConfig::default() }
    }
}

prop_compose! {
    /// A VM's weight and its flows' report, at the ends of what operator and guest
    /// may say.
    fn extreme()(
        weight in select(vec![Weight::MIN, 1.0, Weight::MAX]),
        priority in select(vec![1, 256, u16::MAX]),
        srtt_us in select(vec![0, 1, 1 << 20, u32::MAX]),
    ) -> (f64, Report) {
        (weight, Report { priority, srtt_us, min_rtt_us: srtt_us, ..common::report(10) })
    }
}

struct World {
    host: Host,
    vms: Vec<ccc_core::VmId>,
    flows: Vec<Flow>,
    /// Some report said that packets wait.
    has_waited: bool,
}

impl World {
    fn new(config: GroupConfig) -> World {
        let mut host = Host::with(config);
        let vms = [1.0, 3.0, 0.5].map(|weight| host.vm(weight)).to_vec();
        World { host, vms, flows: Vec::new(), has_waited: false }
    }

    fn take(&mut self, step: &Step) {
        let epoch = self.host.epoch();
        match step {
            Step::Join { vm, priority } if self.flows.len() < 64 => {
                let flow = self.host.flow_with(self.vms[*vm], 10, *priority);
                self.flows.push(flow);
            }
            Step::Leave(i) if !self.flows.is_empty() => {
                let flow = self.flows.remove(i % self.flows.len());
                self.host.leave(flow);
            }
            Step::Rest(time) => {
                self.host.now += time;
                self.host.engine.tick(self.host.now);
            }
            Step::Ack(i) => self.with(*i, |host, flow| host.ack(flow)),
            Step::Lose { flow, stale } => {
                let sent_under = epoch.wrapping_sub(u32::from(*stale));
                self.with(*flow, |host, flow| host.lose(flow, sent_under));
            }
            Step::TimeOut(i) => self.with(*i, |host, flow| host.time_out(flow, epoch)),
            Step::Recover(i) => self.with(*i, |host, flow| host.recover(flow)),
            Step::Undo(i) => self.with(*i, |host, flow| {
                flow.report.spurious_events = flow.report.spurious_events.wrapping_add(1);
                host.send(flow);
            }),
            Step::Repeat(i) => self.with(*i, |host, flow| host.send(flow)),
            Step::Garbage { flow, report } => {
                self.has_waited |= report.min_rtt_us > 0 && report.rtt_us > report.min_rtt_us;
                self.with(*flow, |host, flow| {
                    flow.report = *report;
                    host.send(flow);
                });
            }
            Step::Join { .. } | Step::Leave(_) => {}
        }
    }

    fn with(&mut self, i: usize, act: impl FnOnce(&mut Host, &mut Flow)) {
        if self.flows.is_empty() {
            return;
        }
        let i = i % self.flows.len();
        act(&mut self.host, &mut self.flows[i]);
    }

    /// Some flow takes its window from the aggregate.
    fn is_coupled(&self) -> bool {
        self.vms.iter().any(|vm| self.host.grant(*vm).coupled)
    }

    /// A VM has less than its part: it loses alone, or says that it is very far away.
    fn withholds(&self) -> bool {
        self.vms.iter().any(|vm| {
            let conduct = self.host.engine.conduct(*vm, self.host.group);
            conduct.own_cwnd_bytes.is_some() || conduct.far_reports > 0
        })
    }

    /// Who fell idle gives up its place, and it is known of all others whether they want
    /// all they can have.
    fn settle(&mut self) {
        self.host.now += IDLE_AFTER_US;
        for i in 0..self.flows.len() {
            self.with(i, |host, flow| host.send(flow));
        }
        self.host.engine.tick(self.host.now);
    }

    /// Nobody leaves a part of its share to others, and may come to want it again.
    fn is_backlogged(&self) -> bool {
        self.flows.iter().all(|flow| !flow.report.active || flow.report.cwnd_limited)
    }

    /// All are as far away, and nobody has said that packets wait: a window is a rate.
    fn is_as_far(&self) -> bool {
        !self.has_waited && self.flows.iter().all(|flow| flow.report.srtt_us == SRTT_US)
    }

    /// Windows granted to the flows that count, summed.
    fn granted(&self) -> u64 {
        self.vms
            .iter()
            .map(|vm| {
                let grant = self.host.grant(*vm);
                let units = self.units(*vm, grant.rate_shares);
                if grant.coupled { grant.cwnd_bytes(units) } else { 0 }
            })
            .fold(0, u64::saturating_add)
    }

    /// Units of a VM's flows that count.
    fn units(&self, vm: ccc_core::VmId, rate: bool) -> u64 {
        let flows = self.flows.iter().filter(|flow| flow.vm == vm && flow.report.active);
        flows.map(|flow| common::units(&flow.report, rate)).sum()
    }

    /// Bytes by which what is granted may be below the aggregate: a unit's level is
    /// rounded down, and so is each VM's window.
    fn rounding(&self) -> u64 {
        let of = |vm: &ccc_core::VmId| (self.units(*vm, true) >> 32) + 1;
        self.vms.iter().map(of).sum::<u64>()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn shares_sum_to_the_aggregate(
        config in config(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(config);
        for step in &steps {
            // Time alone makes flows idle here; who is idle then is not this property.
            if !matches!(step, Step::Rest(_)) {
                world.take(step);
            }
        }
        world.settle();
        let status = world.host.status();
        if status.active_flows > 0 && world.is_coupled() && world.is_backlogged() {
            let granted = world.granted();
            prop_assert!(granted <= status.cwnd_bytes, "{granted} of {} granted", status.cwnd_bytes);
            let rounding = 64 * 10 + status.cwnd_bytes / 1_000_000 + world.rounding();
            prop_assert!(
                status.cwnd_bytes - granted <= rounding || world.withholds(),
                "{granted} of {}", status.cwnd_bytes
            );
        }
    }

    #[test]
    fn one_loss_event_is_one_reduction(losers in prop::collection::vec(0..8_usize, 1..40)) {
        let (mut host, vms) = common::steady(80, &[4, 4]);
        let mut flows = vms.concat();
        let epoch = host.epoch();
        for loser in losers {
            host.lose(&mut flows[loser], epoch);
            host.recover(&mut flows[loser]);
        }
        prop_assert_eq!(host.segments(), 40);
    }

    #[test]
    fn no_sequence_of_reports_leads_outside(
        config in config(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(config);
        for step in &steps {
            let (before, as_far) = (world.host.status(), world.is_as_far());
            world.take(step);
            let after = world.host.status();
            // Where flows are left alone, the sum is what they say; who is farther has
            // more at the same rate.  Twice what is left of a byte can be another one.
            let bounded = world.is_coupled() && as_far && world.is_as_far();
            prop_assert!(!bounded || after.cwnd_bytes <= (2 * before.cwnd_bytes + 1).max(40 * 65_536),
                "{} grew to {} at once", before.cwnd_bytes, after.cwnd_bytes);
            prop_assert!(after.active_flows as usize <= world.flows.len());
        }
        for flow in std::mem::take(&mut world.flows) {
            world.host.leave(flow);
        }
        prop_assert_eq!(world.host.status().active_flows, 0);
        let fresh = world.host.flow(world.vms[0], 10);
        prop_assert!(!world.is_coupled() || world.host.window_of(&fresh) >= u64::from(MSS));
    }
}

/// What the window grows by out of slow start, when the window of each flow is
/// acknowledged and each grows by a segment.
fn growth_of_a_round(host: &mut Host, all: &mut [Flow]) -> u64 {
    host.lose(&mut all[0], host.epoch());
    host.recover(&mut all[0]);
    // Longer than any smoothed round-trip time that counts.
    host.now += 200_000_000;
    for flow in &*all {
        host.send(flow);
    }
    let before = host.status().cwnd_bytes;
    for flow in all {
        flow.report.acked_limited_bytes += u64::from(MSS);
        flow.report.delivered_bytes += u64::from(MSS);
        flow.report.cwnd_growth_bytes += MSS;
        host.send(flow);
    }
    host.status().cwnd_bytes - before
}

proptest! {
    // Thousands of VMs take their time.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn e7_no_number_of_vms_overflows_a_sum(
        (count, flows) in prop_oneof![
            3 => (1..50_usize, 1..4_usize),
            1 => (1_000..3_000_usize, Just(1)),
        ],
        extremes in prop::collection::vec(extreme(), 1..8),
        share in select(&SHARES[..]),
    ) {
        let mut host = Host::with(GroupConfig { share, ..GroupConfig::default() });
        let mut all: Vec<Flow> = Vec::new();
        for (weight, report) in extremes.iter().cycle().take(count) {
            let vm = host.vm(*weight);
            all.extend((0..flows).map(|_| host.flow_of(vm, report)));
        }
        let grown = growth_of_a_round(&mut host, &mut all);
        prop_assert!(grown <= u64::from(MSS) + 1, "{grown} bytes in one round");
        let whole = host.status().cwnd_bytes;
        let granted: u64 = all.iter().map(|flow| host.window_of(flow)).sum();
        prop_assert!(granted <= whole, "{granted} of {whole} granted");
    }
}

#[test]
fn e7_ten_thousand_vms_of_the_largest_weight_grow_as_one() {
    // 400 Gbit/s times a second, twice: the round begins with a loss.
    for (count, cwnd_bytes) in [(1_060, 94_339_623), (10_000, 10_000_000)] {
        let mut host = Host::with(GroupConfig::default());
        let state = CongestionState::Avoidance;
        let ssthresh_bytes = Some(cwnd_bytes);
        let far =
            Report { srtt_us: 1_050_000, state, cwnd_bytes, ssthresh_bytes, ..common::report(10) };
        let mut all: Vec<Flow> = Vec::new();
        for _ in 0..count {
            let vm = host.vm(Weight::MAX);
            all.push(host.adopted(vm, &far));
        }
        let before = host.status().cwnd_bytes;
        assert!(before.abs_diff(100_000_000_000) <= 1_000, "{before} bytes to begin with");
        let grown = growth_of_a_round(&mut host, &mut all);
        assert!(
            grown.abs_diff(MSS.into()) <= 1,
            "{grown} bytes in one round of {count}, not {MSS}"
        );
    }
}

/// A report of a liar's, each at another time.
#[derive(Clone, Debug)]
struct Lie {
    report: Report,
    after_us: u64,
    leaves: bool,
    undoes: bool,
}

prop_compose! {
    fn lie()(
        report in garbage(), after_us in 0..20_000_u64, leaves in prop::bool::weighted(0.1),
        undoes in any::<bool>(), present in any::<bool>(),
    ) -> (Lie, bool) {
        (Lie { report, after_us, leaves, undoes }, present)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Three honest VMs say nothing but that they are there; a fourth one says anything.
    #[test]
    fn no_lies_of_one_take_more_than_three_events_from_the_others(
        share in select(&SHARES[..]),
        lies in prop::collection::vec(lie(), 1..400),
    ) {
        let (mut host, vms) = common::steady(400, &[1, 1, 1]);
        host.configure(GroupConfig { share, ..GroupConfig::default() });
        let liar = host.vm(1.0);
        let others = |host: &Host| vms.iter().map(|vm| host.window_of(&vm[0])).sum::<u64>();
        let before = others(&host);
        let mut flow = host.flow(liar, 10);
        for (lie, present) in &lies {
            host.now += lie.after_us;
            let epoch = host.epoch();
            flow.report = lie.report;
            if *present {
                flow.report.congestion_epoch = epoch;
            }
            host.send(&flow);
            if lie.undoes {
                flow.report.spurious_events = flow.report.spurious_events.wrapping_add(1);
                host.send(&flow);
            }
            if lie.leaves {
                host.leave(flow);
                flow = host.flow(liar, 10);
            }
        }
        host.leave(flow);
        let after = others(&host);
        // An event takes at most 0.7, and three can be paid for.
        prop_assert!(after + 4 * u64::from(MSS) >= before * 27 / 1000, "{before} became {after}");
    }
}
