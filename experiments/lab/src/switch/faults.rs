// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Segments that are lost on purpose, on the cable from a VM to the router.

use serde_json::json;

use crate::error::Result;
use crate::plan::{LEAD_NS, Plan};
use crate::scenario::field::Field;
use crate::scenario::path::Fault;
use crate::units::ns_of_s;

/// The faults of a run, and what came of them.
#[derive(Debug, Default)]
pub struct Faults(Vec<Armed>);

#[derive(Debug)]
struct Armed {
    fault: Fault,
    port: u16,
    from_ns: u64,
    until_ns: u64,
    /// Segments still to be lost.
    left: u32,
    /// When segments were lost.
    lost_s: Vec<f64>,
}

impl Faults {
    /// Finds the flows that are meant.
    pub fn new(faults: &[Fault], plans: &[Plan]) -> Result<Self> {
        faults.iter().map(|fault| Armed::new(fault, plans)).collect::<Result<_>>().map(Self)
    }

    /// Whether this Ethernet frame is lost at simulated time `now`.
    pub fn take(&mut self, now: u64, frame: &[u8]) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Some(segment) = Segment::of(frame) else {
            return false;
        };
        let mut armed = self.0.iter_mut();
        let Some(fault) = armed.find(|fault| fault.meets(now, &segment)) else {
            return false;
        };
        fault.left -= 1;
        fault.lost_s.push((now - LEAD_NS) as f64 / 1e9);
        true
    }

    /// What was lost, for the results; none if nothing was to be.
    pub fn records(&self) -> Option<serde_json::Value> {
        let record = |armed: &Armed| {
            let Fault { vm, flow, at_s, .. } = &armed.fault;
            json!({"vm": vm, "flow": flow, "at_s": at_s, "lost_s": armed.lost_s})
        };
        (!self.0.is_empty()).then(|| self.0.iter().map(record).collect())
    }
}

impl Armed {
    fn new(fault: &Fault, plans: &[Plan]) -> Result<Self> {
        let mut flows = plans.iter().flat_map(|p| &p.senders).flat_map(|s| &s.flows);
        let flow = flows.find(|flow| flow.vm == fault.vm && flow.flow == fault.flow);
        let Some(flow) = flow else {
            let got = format!("flow {} of '{}'", fault.flow, fault.vm);
            return Field::root().at("faults").refuse("flows that are there", got);
        };
        let from_ns = LEAD_NS + ns_of_s(fault.at_s);
        Ok(Self {
            fault: fault.clone(),
            port: flow.port,
            from_ns,
            until_ns: fault.for_s.map_or(u64::MAX, |time| from_ns + ns_of_s(time)),
            left: fault.packets.unwrap_or(u32::MAX),
            lost_s: Vec::new(),
        })
    }

    fn meets(&self, now: u64, segment: &Segment) -> bool {
        let counted = self.fault.for_s.is_some() || segment.has_data;
        let due = (self.from_ns..self.until_ns).contains(&now) && self.left > 0;
        due && counted && segment.port == self.port
    }
}

/// A TCP segment on its way to a receiver.
struct Segment {
    port: u16,
    has_data: bool,
}

impl Segment {
    fn of(frame: &[u8]) -> Option<Self> {
        const ETHERNET: usize = 14;
        const TCP: u8 = 6;
        let word = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
        let (header, end) = match word(12)? {
            0x0800 if *frame.get(ETHERNET + 9)? == TCP => {
                let header = usize::from(frame.get(ETHERNET)? & 15) * 4;
                (ETHERNET + header, ETHERNET + usize::from(word(ETHERNET + 2)?))
            }
            0x86dd if *frame.get(ETHERNET + 6)? == TCP => {
                (ETHERNET + 40, ETHERNET + 40 + usize::from(word(ETHERNET + 4)?))
            }
            _ => return None,
        };
        let data = header + usize::from(frame.get(header + 12)? >> 4) * 4;
        Some(Self { port: word(header + 2)?, has_data: data < end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Flow, Sender};

    fn plans() -> Vec<Plan> {
        let flow = |flow, port| Flow { vm: "vm1".into(), flow, port, ..Flow::default() };
        let sender = Sender { flows: vec![flow(0, 10_000), flow(1, 10_001)], ..Sender::default() };
        vec![Plan { senders: vec![sender], ..Plan::default() }]
    }

    fn fault(packets: Option<u32>, for_s: Option<f64>) -> Fault {
        Fault { vm: "vm1".into(), flow: 1, at_s: 2.0, packets, for_s }
    }

    /// An IPv4 or IPv6 segment to `port` with `data` bytes.
    fn frame(six: bool, port: u16, data: usize) -> Vec<u8> {
        let mut frame = vec![0; 12];
        let header = if six {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, (20 + data) as u8, 6]);
            54
        } else {
            frame.extend([8, 0, 0x45, 0, 0, (40 + data) as u8, 0, 0, 0, 0, 64, 6]);
            34
        };
        frame.resize(header + 2, 0);
        frame.extend(port.to_be_bytes());
        frame.resize(header + 12, 0);
        frame.extend([5 << 4, 0]);
        // Padded, as short frames are.
        frame.resize((header + 20 + data).max(60), 0);
        frame
    }

    fn at(s: f64) -> u64 {
        LEAD_NS + ns_of_s(s)
    }

    #[test]
    fn a_number_of_segments_with_data_is_lost() {
        let mut faults = Faults::new(&[fault(Some(2), None)], &plans()).expect("known");
        assert!(!faults.take(at(1.9), &frame(false, 10_001, 100)), "too early");
        assert!(!faults.take(at(2.0), &frame(false, 10_001, 0)), "no data");
        assert!(!faults.take(at(2.0), &frame(false, 10_000, 100)), "another flow");
        assert!(faults.take(at(2.0), &frame(false, 10_001, 100)));
        assert!(faults.take(at(2.5), &frame(true, 10_001, 100)));
        assert!(!faults.take(at(2.6), &frame(false, 10_001, 100)), "all are lost");
        let records = faults.records().expect("there");
        assert_eq!(records[0]["lost_s"], json!([2.0, 2.5]));
    }

    #[test]
    fn everything_is_lost_for_a_time() {
        let mut faults = Faults::new(&[fault(None, Some(0.5))], &plans()).expect("known");
        assert!(faults.take(at(2.4), &frame(false, 10_001, 0)));
        assert!(!faults.take(at(2.5), &frame(false, 10_001, 100)));
    }

    #[test]
    fn other_frames_and_short_ones_pass() {
        let mut faults = Faults::new(&[fault(None, Some(9.0))], &plans()).expect("known");
        for length in 0..54 {
            assert!(!faults.take(at(3.0), &frame(false, 10_001, 100)[..length.min(37)]));
        }
    }

    #[test]
    fn a_fault_is_of_a_flow_that_is_there() {
        let other = Fault { flow: 7, ..fault(Some(1), None) };
        let told = Faults::new(&[other], &plans()).expect_err("refused").to_string();
        assert!(told.contains("expected flows that are there, got flow 7 of 'vm1'"), "{told}");
    }
}
