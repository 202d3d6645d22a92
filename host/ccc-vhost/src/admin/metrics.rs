// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a monitoring system is told, in the text format of OpenMetrics 1.0 for those that
//! ask for it, as Prometheus does, else in the one before: units in names, counters end
//! with `_total`.
//!
//! Nothing is counted here: everything is read when it is asked for, so what is told
//! is what the rest of the control socket tells.
use std::{
    collections::BTreeSet,
    fmt::{self, Debug},
};

use ccc_settings::{Enforce, bytes_of_mbit};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};

use super::reply::{CountersView, GroupView, MemberView, MetricsView, VmView};
use crate::{device::inspect::SILENT, event_loop::busy_poll::Counts};

/// What all names begin with.
const PREFIX: &str = "ccc";

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// What was before it: Prometheus' text format 0.0.4.
    Plain,
}

impl Format {
    /// That of a request's `Accept`.
    pub fn accepted(header: &str) -> Format {
        if header.contains("application/openmetrics-text") {
            Format::OpenMetrics
        } else {
            Format::Plain
        }
    }

    /// Type of the answer's body.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Everything, as it stands.
pub fn text(view: MetricsView, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(view));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(if format == Format::Plain { plain(&text) } else { text })
}

/// In the plain format counters are described by the names that they have in samples.
fn plain(text: &str) -> String {
    let counters: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let described = |line: &str| {
        let (kind, rest) = line.strip_prefix("# ")?.split_once(' ')?;
        let (name, words) = rest.split_once(' ')?;
        counters.contains(name).then(|| format!("# {kind} {name}_total {words}\n"))
    };
    let lines = text.lines().filter(|line| *line != "# EOF");
    lines.map(|line| described(line).unwrap_or_else(|| format!("{line}\n"))).collect()
}

/// A number of each VM: its name, what it says, and how to tell it.
struct OfVm(&'static str, &'static str, fn(&VmView) -> f64);
/// A count of each VM.
struct CountOfVm(&'static str, &'static str, fn(&CountersView) -> u64);
/// A number of each group, if it is known.
struct OfGroup(&'static str, &'static str, fn(&GroupView) -> Option<f64>);
/// A number of each VM in each group, if it is known.
struct OfSome(&'static str, &'static str, fn(&MemberView) -> Option<f64>);
/// A number of each VM in each group.
struct OfMember(&'static str, &'static str, fn(&MemberView) -> f64);

const OF_VM: [OfVm; 11] = [
    OfVm("vm_device", "Whether its guest is to have the device", |vm| truth(vm.settings.device)),
    OfVm("vm_served", "Whether a front end can connect", |vm| truth(vm.unserved.is_none())),
    OfVm("vm_connected", "Whether a front end is connected", |vm| truth(vm.connected)),
    OfVm("vm_weight", "The weight in force", |vm| vm.settings.weight),
    OfVm("vm_floor_bytes_per_second", "It has no less of its group while it wants that", |vm| {
        bytes_of_mbit(vm.settings.floor_mbit) as f64
    }),
    OfVm("vm_flows", "Flows in the slots of its guest", |vm| vm.flows as f64),
    OfVm("vm_coupled_flows", "Those that are coupled", |vm| vm.coupled_flows as f64),
    OfVm(
        "vm_apart",
        "Whether it does not seem to be behind the bottleneck of a group of its flows",
        |vm| truth(!vm.apart.is_empty()),
    ),
    OfVm("vm_alone", "Whether it loses where no other VM of its groups does, or says so", |vm| {
        truth(!vm.alone.is_empty())
    }),
    OfVm("vm_silent", "Whether flows of it have data to send and nothing is heard of them", |vm| {
        truth(vm.state == SILENT)
    }),
    OfVm("vm_judged", "Whether its tap shows what its reports do not", |vm| {
        truth(vm.judged.is_some())
    }),
];

const COUNTS_OF_VM: [CountOfVm; 7] = [
    CountOfVm("vm_messages", "Messages taken from its guest", |of| of.messages),
    CountOfVm("vm_flows_registered", "Flows that came", |of| of.registered),
    CountOfVm("vm_flows_left", "Flows that went", |of| of.left),
    CountOfVm("vm_reports", "Reports of coupled flows", |of| of.updated),
    CountOfVm("vm_losses", "Congestion events that its flows told of", |of| of.events),
    CountOfVm("vm_rescans", "Times all its slots were looked at", |of| of.rescans),
    CountOfVm("vm_grant_lines_written", "Grant lines written for it", |of| of.published),
];

const OF_GROUP: [OfGroup; 9] = [
    OfGroup("group_coupled", "Whether its flows are coupled now", |of| Some(truth(is_coupled(of)))),
    OfGroup("group_window_bytes", "Aggregate window of its flows", |of| Some(of.window as f64)),
    OfGroup(
        "group_ssthresh_bytes",
        "Aggregate slow start threshold, after the first event",
        |of| of.ssthresh.map(|bytes| bytes as f64),
    ),
    OfGroup(
        "group_rate_bytes_per_second",
        "What its flows delivered in the latest round trip",
        |of| Some(of.path.rate as f64),
    ),
    OfGroup("group_floors_unmet", "Whether its VMs want more by their floors than it has", |of| {
        Some(truth(of.shortfall.is_some()))
    }),
    OfGroup("group_queue_seconds", "How long packets waited on its path", |of| {
        Some(of.path.queue_us as f64 / 1e6)
    }),
    OfGroup("group_active_flows", "Flows that have data to send", |of| {
        Some(of.active_flows as f64)
    }),
    OfGroup("group_queued_vms", "VMs that have a queue of their own at its uplink", |of| {
        Some(of.queues.as_ref()?.vms as f64)
    }),
    OfGroup("group_queued_vms_wanted", "VMs that are to have one", |of| {
        Some(of.queues.as_ref()?.wanted as f64)
    }),
];

const OF_MEMBER: [OfMember; 4] = [
    OfMember("group_vm_weight", "Weight of a VM in a group", |of| of.weight),
    OfMember("group_vm_flows", "Coupled flows of a VM in a group", |of| of.flows as f64),
    OfMember("group_vm_window_bytes", "What is granted to the flows of a VM in a group", |of| {
        of.part as f64
    }),
    OfMember("group_vm_delivered_ratio", "Its part of what was delivered of late", |of| {
        f64::from(of.conduct.delivered_permille) / 1e3
    }),
];

const OF_SOME: [OfSome; 2] = [
    OfSome("group_vm_due_ratio", "Its due of that, by floor, cap and weight", |of| {
        of.due_permille.map(|due| f64::from(due) / 1e3)
    }),
    OfSome("group_vm_rtt_seconds", "Mean round-trip time of its flows that send", |of| {
        of.srtt_us.map(|us| us as f64 / 1e6)
    }),
];

fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

impl Collector for MetricsView {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let MetricsView { status, vms, groups, latency, polls } = self;
        let build = [([("version", status.version)], 1.0)];
        gauges(&mut to, "build_info", "The program that runs", build)?;
        let kept = [([("what", "changes")], truth(status.not_kept.is_none()))];
        let help = "Whether changes are kept for the next start, and earlier ones in force";
        gauges(&mut to, "state_kept", help, kept)?;
        let in_vain = |group: &GroupView| group.settings.enforce == Enforce::On && !status.may_hold;
        let vain =
            groups.iter().map(|group| ([("group", group.name.clone())], truth(in_vain(group))));
        gauges(
            &mut to,
            "group_powerless",
            "Whether it is to hold VMs and the daemon may not",
            vain,
        )?;
        for OfVm(name, help, value) in OF_VM {
            let of = |(vm, _): &(VmView, _)| ([("vm", vm.name.clone())], value(vm));
            gauges(&mut to, name, help, vms.iter().map(of))?;
        }
        let heard = vms
            .iter()
            .filter_map(|(vm, _)| Some(([("vm", vm.name.clone())], vm.heard_ms? as f64 / 1e3)));
        gauges(&mut to, "vm_heard_seconds", "Time since its driver last used a queue", heard)?;
        let held =
            vms.iter().filter_map(|(vm, _)| Some(([("vm", vm.name.clone())], vm.held? as f64)));
        gauges(&mut to, "vm_held_bytes_per_second", "What it is held to at its tap", held)?;
        let caps = vms.iter().filter_map(|(vm, _)| {
            Some(([("vm", vm.name.clone())], bytes_of_mbit(vm.settings.cap_mbit?) as f64))
        });
        gauges(&mut to, "vm_cap_bytes_per_second", "It has no more of its group", caps)?;
        for CountOfVm(name, help, value) in COUNTS_OF_VM {
            let of = |(vm, _): &(VmView, _)| ([("vm", vm.name.clone())], value(&vm.counters));
            counters(&mut to, name, help, vms.iter().map(of))?;
        }
        let refused = vms.iter().flat_map(|(vm, refused)| {
            let of = |(kind, count): &(&str, u64)| {
                ([("vm", vm.name.clone()), ("kind", (*kind).to_owned())], *count)
            };
            refused.iter().map(of).collect::<Vec<_>>()
        });
        counters(&mut to, "vm_refused", "Times something of it was refused", refused)?;
        let longest = status.polling.map(|polling| polling.max_us as f64 / 1e6);
        let help = "For how long a VM's next message is looked for, at most; 0: not at all";
        gauge(&mut to, "poll_max_seconds", help, longest.unwrap_or(0.0))?;
        encode_updates(&mut to, latency, *polls)?;
        encode_groups(&mut to, groups)
    }
}

fn encode_updates(
    to: &mut DescriptorEncoder<'_>,
    latency: &Histogram,
    polls: Counts,
) -> fmt::Result {
    let help = "From an update to its grants where guests see them, several at once at times";
    latency.encode(to.encode_descriptor("update_seconds", help, None, MetricType::Histogram)?)?;
    let help = "Time spent looking for messages instead of sleeping";
    total(to, "poll_seconds", help, polls.spent_us as f64 / 1e6)?;
    total(to, "poll_found", "Times that looking for messages has found some", polls.found)
}

/// What is told is how it is now, whatever is set.
fn is_coupled(group: &GroupView) -> bool {
    group.settings.coupled && group.trial.as_ref().is_none_or(|trial| trial.coupled)
}

fn encode_groups(to: &mut DescriptorEncoder<'_>, groups: &[GroupView]) -> fmt::Result {
    for OfGroup(name, help, value) in OF_GROUP {
        let of = |group: &GroupView| Some(([("group", group.name.clone())], value(group)?));
        gauges(to, name, help, groups.iter().filter_map(of))?;
    }
    let reductions = groups.iter().map(|group| ([("group", group.name.clone())], group.reductions));
    counters(to, "group_reductions", "Reductions of the aggregate window", reductions)?;
    for OfMember(name, help, value) in OF_MEMBER {
        let members = groups.iter().flat_map(|group| {
            let of = |vm: &MemberView| {
                ([("group", group.name.clone()), ("vm", vm.name.clone())], value(vm))
            };
            group.vms.iter().map(of).collect::<Vec<_>>()
        });
        gauges(to, name, help, members)?;
    }
    for OfSome(name, help, value) in OF_SOME {
        let members = groups.iter().flat_map(|group| {
            let of = |vm: &MemberView| {
                let labels = [("group", group.name.clone()), ("vm", vm.name.clone())];
                Some((labels, value(vm)?))
            };
            group.vms.iter().filter_map(of).collect::<Vec<_>>()
        });
        gauges(to, name, help, members)?;
    }
    Ok(())
}

fn gauges<L: EncodeLabelSet>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (L, f64)>,
) -> fmt::Result {
    let values = values.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value)));
    family(to, name, help, MetricType::Gauge, values)
}

fn gauge(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    ConstGauge::new(value).encode(to.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn counters<L: EncodeLabelSet>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let counts = counts.into_iter().map(|(labels, count)| (labels, ConstCounter::new(count)));
    family(to, name, help, MetricType::Counter, counts)
}

fn total<C: Debug>(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: C) -> fmt::Result
where
    ConstCounter<C>: EncodeMetric,
{
    ConstCounter::new(count).encode(to.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn family<L: EncodeLabelSet, M: EncodeMetric>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    metrics: impl Iterator<Item = (L, M)>,
) -> fmt::Result {
    let mut metrics = metrics.peekable();
    if metrics.peek().is_none() {
        return Ok(());
    }
    let mut family = to.encode_descriptor(name, help, None, kind)?;
    metrics.try_for_each(|(labels, metric)| metric.encode(family.encode_family(&labels)?))
}
