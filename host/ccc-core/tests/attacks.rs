// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM's lies do to three honest VMs of four flows each, behind a FIFO of 10 Mbit/s:
//! they have at least what they have beside an honest fourth, within noise.
mod bottleneck;
mod common;

use bottleneck::{MSS, Net, PACKET_US};
use ccc_core::{GroupConfig, PolicyKind, Report, VmId};
use common::Flow;

/// Three honest VMs and a fourth one.
struct Four {
    net: Net,
    fourth: VmId,
}

impl Four {
    /// The fourth one has so many flows that send.
    fn new(flows: usize, config: GroupConfig) -> Four {
        let mut net = Net::new(config);
        (0..3).for_each(|_| _ = net.vm(1.0, 4));
        let fourth = net.vm(1.0, flows);
        Four { net, fourth }
    }

    fn delivered(&self) -> u64 {
        self.net.senders.iter().map(|sender| sender.delivered).sum()
    }
}

fn empty_slot(net: &mut Net, vm: VmId) -> Flow {
    let times = Report { srtt_us: 100_000, min_rtt_us: 100_000, ..common::report(10) };
    net.host.flow_of(vm, &Report { mss_bytes: MSS as u16, ..times })
}

/// Beside a slot that claims to deliver, and never to wait: how long packets wait in the
/// mean, and what part of what the path can carry is delivered, percent.
fn beside_one_that_never_waits(policy: PolicyKind) -> (u64, u64) {
    let mut four = Four::new(0, GroupConfig { policy, ..GroupConfig::default() });
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

#[test]
fn a_flow_that_never_waits() {
    let (waits_us, percent) = beside_one_that_never_waits(PolicyKind::Delay);
    assert!(waits_us < 10_000, "{waits_us} us at a target of 5 ms");
    assert!(percent >= 95, "{percent} % delivered");
}
