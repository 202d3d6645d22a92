// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a guest says of its flows: all of it is sound, none of it is true, and each
//! message makes the engine think again.
use ccc_proto::wire;

use super::{Attempt, Target};
use crate::support::{
    driver::{Driver, Extent, report},
    frontend::{Mode, QUEUE},
};

/// Flows in a group with the victim's, as many as there is room for messages.
const LIARS: u32 = QUEUE as u32;
const GIB: u32 = 1 << 30;

/// Says something else of each flow in each round; counts messages.
fn lie(target: &Target, attempt: &Attempt, said: impl Fn(wire::Report, u32, u32) -> wire::Report) {
    let mut driver = target.driver(Mode::Eventfd);
    let extent = driver.offer_extent(0, LIARS, 1);
    for slot in 0..LIARS {
        driver.register(&extent, slot, 1);
    }
    let mut round = 0;
    while attempt.goes_on() {
        round += 1;
        tell_all(&mut driver, &extent, |epoch| said(report(1), round, epoch));
        attempt.did(LIARS.into());
    }
}

fn tell_all(driver: &mut Driver, extent: &Extent, said: impl Fn(u32) -> wire::Report) {
    let epoch = driver.line(extent, 0).epoch.get();
    for slot in 0..LIARS {
        driver.write_slot(extent, slot, &said(epoch));
        driver.reuse_bell(wire::OP_UPDATE, slot, 1);
    }
    driver.front.kick(wire::VQ_DOORBELL);
    driver.settle();
}

/// Each flow has lost a segment of the present epoch.
pub fn losses(target: &Target, attempt: &Attempt) {
    lie(target, attempt, |report, round, epoch| wire::Report {
        congestion_events: (round as u16).into(),
        congestion_epoch: epoch.into(),
        beta: u16::MAX.into(),
        ..report
    });
}

/// Each loss is undone.
pub fn undone(target: &Target, attempt: &Attempt) {
    lie(target, attempt, |report, round, epoch| wire::Report {
        congestion_events: (round.div_ceil(2) as u16).into(),
        spurious_events: ((round / 2) as u16).into(),
        congestion_epoch: epoch.into(),
        ..report
    });
}

/// Flows are idle and come back, each time with much in flight and another RTT.
pub fn returns(target: &Target, attempt: &Attempt) {
    lie(target, attempt, |report, round, _| wire::Report {
        flags: if round % 2 == 0 { report.flags } else { 0 },
        inflight_bytes: GIB.into(),
        cwnd_bytes: GIB.into(),
        srtt_us: (1 << (round % 24)).into(),
        mss_bytes: u16::MAX.into(),
        ..report
    });
}

/// Windows grow by a gigabyte, over and over.
pub fn growth(target: &Target, attempt: &Attempt) {
    lie(target, attempt, |report, round, _| wire::Report {
        state: wire::STATE_CA,
        cwnd_growth_bytes: round.wrapping_mul(GIB).into(),
        acked_limited_bytes: (u64::from(round) * u64::from(GIB)).into(),
        delivered_bytes: (u64::from(round) * u64::from(GIB)).into(),
        ..report
    });
}
