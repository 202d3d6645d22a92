// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A host with one group, and guests that behave like Reno as far as a
//! coupling engine can see.
#![allow(dead_code, reason = "each test file uses a part")]
use ccc_core::{
    CongestionState, Engine, FlowId, Grant, GroupConfig, GroupId, GroupStatus, Micros, Report,
    ShareOf, VmId, Weight,
};

pub const MSS: u32 = 1000;

/// A flow and the report it made last.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub vm: VmId,
    pub id: FlowId,
    pub report: Report,
    carry: u64,
}

pub struct Host {
    pub engine: Engine,
    pub group: GroupId,
    pub now: Micros,
}

impl Host {
    pub fn new() -> Host {
        Host::with(GroupConfig { share: ShareOf::Window, ..GroupConfig::default() })
    }

    pub fn with(config: GroupConfig) -> Host {
        let mut engine = Engine::new();
        let group = engine.add_group(config);
        Host { engine, group, now: 0 }
    }

    pub fn vm(&mut self, weight: f64) -> VmId {
        let vm = self.engine.add_vm();
        let weight = Weight::from_f64(weight).expect("weight in range");
        self.engine.set_weight(vm, self.group, weight).expect("group is known");
        vm
    }

    /// An active flow whose own window is `segments`.
    pub fn flow(&mut self, vm: VmId, segments: u32) -> Flow {
        self.flow_with(vm, segments, 256)
    }

    pub fn flow_with(&mut self, vm: VmId, segments: u32, priority: u16) -> Flow {
        let report = Report { srtt_us: 100_000, min_rtt_us: 100_000, priority, ..report(segments) };
        self.flow_of(vm, &report)
    }

    /// A flow that reports this.
    pub fn flow_of(&mut self, vm: VmId, report: &Report) -> Flow {
        let id = self.engine.register(self.now, vm, self.group, report).expect("registered");
        Flow { vm, id, report: *report, carry: 0 }
    }

    /// A flow that was running before and reports this.
    pub fn adopted(&mut self, vm: VmId, report: &Report) -> Flow {
        let id = self.engine.adopt(self.now, vm, self.group, report).expect("registered");
        Flow { vm, id, report: *report, carry: 0 }
    }

    /// Reports `flow` as it stands.
    pub fn send(&mut self, flow: &Flow) {
        self.engine.update(self.now, flow.id, &flow.report).expect("known flow");
    }

    pub fn leave(&mut self, flow: Flow) {
        self.engine.leave(self.now, flow.id);
    }

    /// One segment of `flow` is acknowledged; its Reno grows as RFC 5681 says.
    pub fn ack(&mut self, flow: &mut Flow) {
        let grant = self.grant(flow.vm);
        let window = grant.cwnd_bytes(units(&flow.report, grant.rate_shares)).max(u64::from(MSS));
        flow.report.state =
            if grant.slow_start { CongestionState::SlowStart } else { CongestionState::Avoidance };
        flow.report.cwnd_bytes = window as u32;
        flow.report.acked_limited_bytes += u64::from(MSS);
        flow.report.delivered_bytes += u64::from(MSS);
        flow.carry += u64::from(MSS);
        let needed = if grant.slow_start { u64::from(MSS) } else { window };
        if flow.carry >= needed {
            flow.carry -= needed;
            flow.report.cwnd_growth_bytes = flow.report.cwnd_growth_bytes.wrapping_add(MSS);
        }
        self.send(flow);
    }

    /// One round-trip time: every flow has its window acknowledged, in turn.
    pub fn round(&mut self, flows: &mut [Flow]) {
        let windows: Vec<u64> = flows.iter().map(|f| self.segments_of(f)).collect();
        let most = windows.iter().copied().max().unwrap_or(0);
        for turn in 0..most {
            for (flow, window) in flows.iter_mut().zip(&windows) {
                if turn < *window {
                    self.ack(flow);
                }
            }
        }
        self.now += 100_000;
    }

    /// The flow enters fast recovery for a segment sent under `epoch`.
    pub fn lose(&mut self, flow: &mut Flow, epoch: u32) {
        flow.report.state = CongestionState::Recovery;
        flow.report.congestion_events = flow.report.congestion_events.wrapping_add(1);
        flow.report.congestion_epoch = epoch;
        self.send(flow);
    }

    /// The flow's retransmission timer expires for a segment sent under `epoch`.
    pub fn time_out(&mut self, flow: &mut Flow, epoch: u32) {
        if flow.report.state != CongestionState::Recovery {
            flow.report.congestion_events = flow.report.congestion_events.wrapping_add(1);
            flow.report.congestion_epoch = epoch;
        }
        flow.report.state = CongestionState::Loss;
        flow.report.timeouts = flow.report.timeouts.wrapping_add(1);
        self.send(flow);
    }

    pub fn recover(&mut self, flow: &mut Flow) {
        flow.report.state = CongestionState::Avoidance;
        self.send(flow);
    }

    pub fn grant(&self, vm: VmId) -> Grant {
        self.engine.grant(vm, self.group)
    }

    pub fn status(&self) -> GroupStatus {
        self.engine.status(self.group).expect("group is known")
    }

    pub fn epoch(&self) -> u32 {
        self.status().epoch
    }

    pub fn configure(&mut self, config: GroupConfig) {
        self.engine.set_group(self.now, self.group, config).expect("group is known");
    }

    /// Aggregate window in segments.
    pub fn segments(&self) -> u64 {
        self.status().cwnd_bytes / u64::from(MSS)
    }

    /// Aggregate window and threshold in bytes.
    pub fn aggregate(&self) -> (u64, Option<u64>) {
        let status = self.status();
        (status.cwnd_bytes, status.ssthresh_bytes)
    }

    /// A flow's granted window, bytes.
    pub fn window_of(&self, flow: &Flow) -> u64 {
        let grant = self.grant(flow.vm);
        grant.cwnd_bytes(units(&flow.report, grant.rate_shares))
    }

    pub fn segments_of(&self, flow: &Flow) -> u64 {
        (self.window_of(flow) / u64::from(MSS)).max(1)
    }
}

/// That of an active flow whose own window is `segments`.
pub fn report(segments: u32) -> Report {
    Report {
        active: true,
        cwnd_limited: true,
        cwnd_bytes: segments * MSS,
        mss_bytes: MSS as u16,
        ..Report::default()
    }
}

/// What a flow's window is counted in, as its guest counts it.
pub fn units(report: &Report, rate: bool) -> u64 {
    let srtt = match report.srtt_us {
        0 => 100_000,
        us => us.min(1 << 20),
    };
    u64::from(report.priority) * if rate { u64::from(srtt) } else { 1 }
}

/// A host whose aggregate is `segments` and in congestion avoidance, with one
/// VM for each entry of `flows` and as many flows in it.
pub fn steady(segments: u64, flows: &[usize]) -> (Host, Vec<Vec<Flow>>) {
    let mut host = Host::new();
    let mut vms: Vec<Vec<Flow>> = Vec::new();
    for count in flows {
        let vm = host.vm(1.0);
        vms.push((0..*count).map(|_| host.flow(vm, 10)).collect());
    }
    let first = &mut vms[0][0];
    while host.segments() < 2 * segments {
        // As much as was granted is acknowledged in a round trip, and no more.
        host.now += 100_000;
        host.ack(first);
    }
    host.lose(first, host.epoch());
    host.recover(first);
    host.now += 100_000;
    vms.iter().flatten().for_each(|flow| host.send(flow));
    assert_eq!(host.segments(), segments, "steady state could not be set up");
    (host, vms)
}
