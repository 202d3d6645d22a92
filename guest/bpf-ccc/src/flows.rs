// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The flows of this machine's tenants: a BPF program can add nothing to what `ss` shows.
//!
//! They are read from the pinned tables, so the list needs no daemon and no loader that runs, and
//! no rights in the host of a guest.
use std::{
    io::{self, Write},
    net::{IpAddr, Ipv6Addr},
    path::Path,
};

use anyhow::Result;
use ccc_proto::wire::{self, Report};
use serde_json::{Value, json};

use crate::{lent::Lent, program::Tables, serve::now_us, table::Table};

const COLUMNS: [&str; 10] = [
    "TENANT",
    "SLOT",
    "SOURCE",
    "DESTINATION",
    "CC",
    "STATE",
    "COUPLED",
    "PRIORITY",
    "CWND",
    "SRTT MS",
];
const STATES: [&str; 5] = ["free", "slow start", "avoidance", "recovery", "loss"];

/// A flow that has a slot.
#[derive(Debug)]
struct Flow {
    tenant: String,
    slot: u32,
    report: Report,
    coupled: bool,
}

/// Prints all flows, by tenants and slots.
pub fn print(pins: &Path, as_json: bool, to: &mut impl Write) -> Result<()> {
    let mut flows = Vec::new();
    for (tenant, table) in Table::left(&Tables::pinned(pins)?)? {
        let leased = now_us() < table.leased_until_us();
        flows.extend(of_table(&tenant, table.lent(), leased));
    }
    flows.sort_by(|a, b| (&a.tenant, a.slot).cmp(&(&b.tenant, b.slot)));
    match as_json {
        true => {
            writeln!(to, "{}", json!({"flows": flows.iter().map(Flow::json).collect::<Vec<_>>()}))?
        }
        false => write_columns(&flows, to)?,
    }
    Ok(())
}

/// Of a table; grants hold in it if it is leased.
fn of_table(tenant: &str, lent: &Lent, leased: bool) -> Vec<Flow> {
    let taken = |slot| lent.report(slot).filter(|report| report.state != wire::STATE_FREE);
    let reports = (0..lent.layout().slots).filter_map(|slot| Some((slot, taken(slot)?)));
    let flow = |(slot, report)| {
        let coupled = leased && lent.is_accepted() && is_granted(lent, slot, &report);
        Flow { tenant: tenant.to_owned(), slot, report, coupled }
    };
    reports.map(flow).collect()
}

/// As the program sees it at an ACK (bpf/grant.h).
fn is_granted(lent: &Lent, slot: u32, report: &Report) -> bool {
    let (grant, lines) = (lent.slot_grant(slot), lent.layout().lines);
    let number = u32::from(grant.line.get());
    if grant.generation != report.generation
        || grant.flags.get() & wire::G_ACCEPTED == 0
        || number >= lines
    {
        return false;
    }
    lent.line(number).is_some_and(|line| {
        line.flags.get() & wire::L_COUPLED != 0 && line.level.get() != wire::LEVEL_UNSET
    })
}

impl Flow {
    fn source(&self) -> (IpAddr, u16) {
        (address(self.report.family, self.report.saddr), self.report.sport.get())
    }

    fn destination(&self) -> (IpAddr, u16) {
        (address(self.report.family, self.report.daddr), self.report.dport.get())
    }

    fn is_active(&self) -> bool {
        self.report.flags & wire::R_ACTIVE != 0
    }

    fn state(&self) -> &'static str {
        STATES.get(usize::from(self.report.state)).copied().unwrap_or("unknown")
    }

    fn algorithm(&self) -> String {
        let name = self.report.algorithm.iter().take_while(|byte| **byte != 0);
        name.map(|byte| char::from(*byte)).collect()
    }

    fn priority(&self) -> f64 {
        f64::from(self.report.priority.get()) / f64::from(wire::PRIORITY_ONE)
    }

    /// With the names that the daemon's flows have.
    fn json(&self) -> Value {
        let ((source, source_port), (destination, destination_port)) =
            (self.source(), self.destination());
        json!({
            "tenant": self.tenant,
            "slot": self.slot,
            "source": source,
            "source_port": source_port,
            "destination": destination,
            "destination_port": destination_port,
            "algorithm": self.algorithm(),
            "state": self.state(),
            "active": self.is_active(),
            "coupled": self.coupled,
            "priority": self.priority(),
            "cwnd": self.report.cwnd_bytes.get(),
            "srtt_us": self.report.srtt_us.get(),
        })
    }

    fn words(&self) -> [String; COLUMNS.len()] {
        [
            self.tenant.clone(),
            self.slot.to_string(),
            endpoint(self.source()),
            endpoint(self.destination()),
            self.algorithm(),
            if self.is_active() { self.state() } else { "idle" }.to_owned(),
            if self.coupled { "coupled" } else { "alone" }.to_owned(),
            format!("{:.2}", self.priority()),
            self.report.cwnd_bytes.to_string(),
            format!("{:.1}", f64::from(self.report.srtt_us.get()) / 1000.0),
        ]
    }
}

fn address(family: u8, bytes: [u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = bytes;
    match family {
        6 => IpAddr::V6(Ipv6Addr::from(bytes)),
        _ => IpAddr::from([a, b, c, d]),
    }
}

fn endpoint((address, port): (IpAddr, u16)) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

fn write_columns(flows: &[Flow], to: &mut impl Write) -> io::Result<()> {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(flows.iter().map(Flow::words));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(width);
    for row in &rows {
        let words = row.iter().zip(widths).map(|(word, width)| format!("{word:<width$}"));
        writeln!(to, "{}", words.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ccc_proto::wire::{ExtentStatus, GrantLine, SlotGrant};

    use super::*;
    use crate::lent::Layout;

    fn reported(state: u8) -> Report {
        let mut report = Report::FREE;
        (report.state, report.generation, report.family) = (state, 7.into(), 4);
        (report.sport, report.dport) = (4000.into(), 80.into());
        report.saddr[..4].copy_from_slice(&[10, 0, 0, 1]);
        report.daddr[..4].copy_from_slice(&[10, 0, 0, 2]);
        report.algorithm[..4].copy_from_slice(b"reno");
        (report.flags, report.priority) = (wire::R_ACTIVE, wire::PRIORITY_ONE.into());
        (report.cwnd_bytes, report.srtt_us) = (14600.into(), 20500.into());
        report
    }

    /// A flow in slot 2, which is granted something by line 1.
    fn granted() -> Lent {
        let lent = Lent::create(Layout::of(64, 4)).expect("memory");
        lent.set_report(2, &reported(wire::STATE_CA));
        let mut status: ExtentStatus = zerocopy::transmute!([0u8; 64]);
        status.status = wire::EXTENT_ACCEPTED.into();
        lent.set_status(&status);
        let mut line: GrantLine = zerocopy::transmute!([0u8; 64]);
        (line.flags, line.level) = (wire::L_COUPLED.into(), 9.into());
        lent.set_line(1, &line);
        lent.set_slot_grant(2, &grant(7, 1));
        lent
    }

    fn grant(generation: u32, line: u16) -> SlotGrant {
        let mut grant: SlotGrant = zerocopy::transmute!([0u8; 16]);
        (grant.generation, grant.line) = (generation.into(), line.into());
        grant.flags = wire::G_ACCEPTED.into();
        grant
    }

    fn is_coupled(lent: &Lent, leased: bool) -> bool {
        of_table("web", lent, leased)[0].coupled
    }

    #[test]
    fn a_flow_is_one_line() {
        let flows = of_table("web", &granted(), true);
        let mut text = Vec::new();
        write_columns(&flows, &mut text).expect("memory");
        let text = String::from_utf8(text).expect("text");
        let words: Vec<_> = text.lines().nth(1).expect("a flow").split_whitespace().collect();
        let wanted = "web 2 10.0.0.1:4000 10.0.0.2:80 reno avoidance coupled 1.00 14600 20.5";
        assert_eq!((flows.len(), words.join(" ").as_str()), (1, wanted));
        assert_eq!(flows[0].json()["source"], "10.0.0.1");
    }

    #[test]
    fn a_slot_that_is_free_has_no_flow() {
        let lent = granted();
        lent.set_report(2, &reported(wire::STATE_FREE));
        assert!(of_table("web", &lent, true).is_empty());
    }

    #[test]
    fn coupled_is_who_follows_a_grant() {
        let lent = granted();
        assert!(is_coupled(&lent, true));
        assert!(!is_coupled(&lent, false), "no lease");
        for other in [grant(8, 1), grant(7, 2), grant(7, 4)] {
            lent.set_slot_grant(2, &other);
            assert!(!is_coupled(&lent, true), "{other:?}");
        }
        lent.set_slot_grant(2, &grant(7, 1));
        lent.withdraw();
        assert!(!is_coupled(&lent, true), "not accepted");
    }
}
