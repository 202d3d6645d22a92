// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! VMs with flows behind one bottleneck, whose reports come in random order.
use ccc_core::{
    CongestionState, Engine, FlowId, Grant, GroupConfig, GroupId, Micros, RateRange, Report, VmId,
};

const MSS: u32 = 1448;
const RTT_US: u32 = 100_000;
/// The machine has run for a while.
const BEGINS_NS: u64 = 60_000_000_000;
/// Of so many reports one tells of a loss.
const LOSES: u64 = 128;

/// How many there are.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub flows: usize,
    pub vms: usize,
    /// No flow uses what it is given.
    pub limited: bool,
    /// So many of the VMs have a floor and a cap.
    pub bounded: usize,
}

const fn case(name: &'static str, flows: usize, vms: usize) -> Case {
    Case { name, flows, vms, limited: false, bounded: 0 }
}

impl Case {
    const fn limited(self) -> Case {
        Case { limited: true, ..self }
    }

    const fn bounded(self, bounded: usize) -> Case {
        Case { bounded, ..self }
    }
}

pub const CASES: [Case; 11] = [
    case("flows-10-vms-2", 10, 2),
    case("flows-1000-vms-2", 1000, 2),
    case("flows-100000-vms-2", 100_000, 2),
    case("flows-1000-vms-100", 1000, 100),
    case("flows-1000-vms-1000", 1000, 1000),
    case("limited-flows-1000-vms-100", 1000, 100).limited(),
    case("limited-flows-1000-vms-1000", 1000, 1000).limited(),
    case("one-bounded-flows-1000-vms-2", 1000, 2).bounded(1),
    case("one-bounded-flows-1000-vms-100", 1000, 100).bounded(1),
    case("one-bounded-flows-1000-vms-1000", 1000, 1000).bounded(1),
    case("all-bounded-flows-1000-vms-1000", 1000, 1000).bounded(1000),
];

/// Floors and caps as of operators' plans, Mbit/s: some of the caps bind, and some do not.
fn range(number: usize) -> RateRange {
    let cap = [0.5, 1.0, 2.0, 5.0, 10.0, 100.0][number % 6];
    RateRange::from_mbit(cap / 8.0, Some(cap)).unwrap()
}

struct Flow {
    id: FlowId,
    vm: VmId,
    report: Report,
}

/// An engine and what reports to it.
pub struct Load {
    engine: Engine,
    group: GroupId,
    flows: Vec<Flow>,
    now_ns: u64,
    random: u64,
    limited: bool,
}

impl Load {
    pub fn new(case: &Case) -> Load {
        let mut engine = Engine::new();
        let group = engine.add_group(GroupConfig::default());
        let vms: Vec<VmId> = (0..case.vms).map(|_| engine.add_vm()).collect();
        for (number, vm) in vms.iter().take(case.bounded).enumerate() {
            engine.set_range(*vm, group, range(number)).unwrap();
        }
        let report = Report {
            active: true,
            cwnd_limited: !case.limited,
            cwnd_bytes: 10 * MSS,
            inflight_bytes: 10 * MSS,
            srtt_us: RTT_US,
            min_rtt_us: RTT_US,
            rtt_us: RTT_US,
            mss_bytes: MSS as u16,
            ..Report::default()
        };
        let flow = |number: usize| {
            let vm = vms[number % vms.len()];
            let id = engine.register(BEGINS_NS / 1000, vm, group, &report).unwrap();
            Flow { id, vm, report }
        };
        let flows = (0..case.flows).map(flow).collect();
        Load { engine, group, flows, now_ns: BEGINS_NS, random: 1, limited: case.limited }
    }

    pub fn run(&mut self, reports: usize) {
        for _ in 0..reports {
            self.step();
        }
    }

    /// One report, and what its VM is granted then.  Each flow makes one in a round trip.
    pub fn step(&mut self) -> Grant {
        self.now_ns += u64::from(RTT_US) * 1000 / self.flows.len() as u64;
        let now: Micros = self.now_ns / 1000;
        // Knuth's linear congruential generator; its high bits are the random ones.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let random = self.random >> 32;
        let number = random as usize % self.flows.len();
        let loses = !self.limited && random / 7 % LOSES == 0;
        let epoch = self.engine.grant(self.flows[number].vm, self.group).epoch;
        let flow = &mut self.flows[number];
        progress(&mut flow.report, self.limited, loses.then_some(epoch));
        self.engine.update(now, flow.id, &flow.report).unwrap();
        self.engine.grant(flow.vm, self.group)
    }
}

/// What a flow reports a round trip later.
fn progress(report: &mut Report, limited: bool, loses_in: Option<u32>) {
    let acked = u64::from(report.inflight_bytes);
    report.delivered_bytes += acked;
    if !limited {
        report.state = CongestionState::Avoidance;
        report.ssthresh_bytes = Some(5 * MSS);
        report.acked_limited_bytes += acked;
        report.cwnd_growth_bytes = report.cwnd_growth_bytes.wrapping_add(MSS);
    }
    if let Some(epoch) = loses_in {
        report.congestion_events = report.congestion_events.wrapping_add(1);
        report.congestion_epoch = epoch;
    }
}
