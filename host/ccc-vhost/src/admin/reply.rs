// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What operators are told.
use ccc_core::{Conduct, Evidence, Micros, PathState, QueueMode};
use ccc_settings::{GroupSettings, LogSettings, RuleSettings, VmSettings};
use prometheus_client::metrics::histogram::Histogram;
use serde::Serialize;

use crate::{
    coupling::{Shortfall, Trial},
    device::{
        counters::KINDS,
        inspect::{FlowPage, FlowView},
    },
    event_loop::busy_poll::Counts,
    tap::watch::{Verdict, Watched},
};

/// What operators are told.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// The daemon as a whole.
    Status(StatusView),
    /// All VMs.
    Vms(VmsView),
    /// One VM.
    Vm(Box<VmView>),
    /// Flows of a VM.
    Flows(FlowPage),
    /// Flows of the host.
    Largest(LargestView),
    /// All groups.
    Groups(GroupsView),
    /// One group.
    Group(GroupView),
    /// All rules.
    Rules(RulesView),
    /// A VM or group that is not there, of which nothing is kept any more.
    Forgotten {
        /// Its name.
        name: String,
    },
    /// What is logged.
    Log(LogSettings),
    /// What a monitoring system is told, in its own format.
    #[serde(skip)]
    Metrics(MetricsView),
}

/// The daemon as a whole.
#[derive(Clone, Debug, Serialize)]
pub struct StatusView {
    /// Version of the program.
    pub version: &'static str,
    /// Groups there are.
    pub groups: usize,
    /// VMs there are.
    pub vms: usize,
    /// Flows in the slots of all VMs.
    pub flows: usize,
    /// Why changes are not kept for the next start, or earlier ones not in force; null if all
    /// is well.
    pub not_kept: Option<String>,
    /// It may hold VMs at their taps.
    pub may_hold: bool,
    /// Messages are looked for instead of waited for; null where they are not.
    pub polling: Option<PollingView>,
    /// Why nobody listens at the address of metrics; null if all is well, or none is to.  The
    /// control socket's thread knows.
    pub no_metrics: Option<String>,
}

/// That messages are looked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PollingView {
    /// For how long after a VM's last one, at most.
    pub max_us: Micros,
    /// What part of a processor that takes now.
    pub load: f64,
}

/// All VMs.
#[derive(Clone, Debug, Serialize)]
pub struct VmsView {
    /// In the order of their names.
    pub vms: Vec<VmView>,
}

/// The flows that are granted most.
#[derive(Clone, Debug, Serialize)]
pub struct LargestView {
    /// The largest first.
    pub flows: Vec<HostFlowView>,
    /// All flows that are coupled and have something to send.
    pub active_flows: usize,
}

/// A flow, and whose it is.
#[derive(Clone, Debug, Serialize)]
pub struct HostFlowView {
    /// The VM.
    pub vm: String,
    /// Its flow.
    pub flow: FlowView,
}

/// A VM.
#[derive(Clone, Debug, Serialize)]
pub struct VmView {
    /// Its name.
    pub name: String,
    /// Where its front end connects.
    pub socket: String,
    /// Its settings in force.
    #[serde(flatten)]
    pub settings: VmSettings,
    /// What the configuration says, where an earlier change goes over it.
    pub configured: Option<VmSettings>,
    /// It was added while a daemon ran, so it can be removed; else it is of the configuration.
    pub added: bool,
    /// A front end is connected.
    pub connected: bool,
    /// Why none can connect to its socket; null if one can.
    pub unserved: Option<String>,
    /// What its guest is doing, as far as that can be seen from here.
    pub state: &'static str,
    /// Milliseconds since its driver last used a queue, if it has.
    pub heard_ms: Option<u64>,
    /// It is being migrated away: changes made here do not go with it.
    pub migrating: bool,
    /// Flows in its slots.
    pub flows: usize,
    /// Those of them that are coupled: none while nobody speaks for it, for then they go on alone
    /// or stand still with their guest.
    pub coupled_flows: usize,
    /// Groups whose bottleneck it does not seem to be behind.
    pub apart: Vec<String>,
    /// Groups in which it loses where no other VM does.
    pub alone: Vec<String>,
    /// What it is judged for by its tap, if it is.
    pub judged: Option<&'static str>,
    /// What it is held to at its tap, bytes a second, if it is.
    pub held: Option<u64>,
    /// It is held at its tap as an earlier daemon has left it.
    pub left_held: bool,
    /// Why its tap cannot be looked at, if it is to be.
    pub unseen: Option<String>,
    /// Who comes to speak for it and cannot.
    pub stranger: Option<StrangerView>,
    /// What its device did and refused since the daemon's start.
    pub counters: CountersView,
}

/// Who knows tables of another revision only.
#[derive(Clone, Debug, Serialize)]
pub struct StrangerView {
    /// The front end, or an agent behind it.
    pub who: &'static str,
    /// The revision that it knows.
    pub revision: u32,
    /// That of the daemon.
    pub expected: u32,
}

/// What a device did and refused.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CountersView {
    /// Messages taken.
    pub messages: u64,
    /// Flows found in slots.
    pub registered: u64,
    /// Reports taken of coupled flows.
    pub updated: u64,
    /// Congestion events that its coupled flows told of.
    pub events: u64,
    /// Bytes that all its flows say were delivered, coupled or not.
    pub delivered_bytes: u64,
    /// Congestion events that all of them told of.
    pub congestion_events: u64,
    /// Those of the bytes whose flow knew its round-trip time.
    pub rtt_bytes: u64,
    /// Smoothed round-trip times, one for each of those, milliseconds.
    pub rtt_byte_ms: u64,
    /// Flows gone.
    pub left: u64,
    /// Times all slots were looked at.
    pub rescans: u64,
    /// Lines written.
    pub published: u64,
    /// Times something was refused, whatever it was.
    pub refused: u64,
    /// Milliseconds since the last of them that was somebody's fault, if one was.
    pub refused_ms: Option<u64>,
    /// Messages that came while their slot was being written: it is told of again.
    pub torn: u64,
    /// Messages that came when their slot was another flow's, or nobody's.
    pub stale: u64,
    /// Flows for whose group there was no line left.
    pub no_line: u64,
    /// Times a flow was over one of the operator's limits.
    pub over_limit: u64,
    /// The limit that one was over last, if one was.
    pub limit: Option<&'static str>,
    /// Milliseconds since one was over it, told again or not.
    pub limit_ms: Option<u64>,
}

/// All groups.
#[derive(Clone, Debug, Serialize)]
pub struct GroupsView {
    /// In the order of their names.
    pub groups: Vec<GroupView>,
}

/// A group.
#[derive(Clone, Debug, Serialize)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Its settings in force.
    #[serde(flatten)]
    pub settings: GroupSettings,
    /// What the configuration says, where an earlier change goes over it.
    pub configured: Option<GroupSettings>,
    /// Aggregate window, bytes.
    pub window: u64,
    /// Aggregate slow start threshold, bytes, after the first event.
    pub ssthresh: Option<u64>,
    /// Changes with every reduction, and where other rules begin.
    pub epoch: u32,
    /// Reductions there were.
    pub reductions: u64,
    /// Flows that count.
    pub active_flows: u64,
    /// What they see of their path.
    pub path: PathView,
    /// What the policy does about others on it, of `delay`.
    pub mode: Option<&'static str>,
    /// VMs with flows in it, or whose group it is.
    pub vms: Vec<MemberView>,
    /// What a client tries with it.
    pub trial: Option<TrialView>,
    /// By how much its floors are more than it can give, if they are.
    pub shortfall: Option<ShortfallView>,
    /// Of the queues that its VMs are to have at its uplink, if they are to.
    pub queues: Option<QueuesView>,
}

/// Queues of VMs at an uplink.
#[derive(Clone, Debug, Serialize)]
pub struct QueuesView {
    /// They are there.
    pub there: bool,
    /// Why they are not, or one of them is not.
    pub trouble: Option<String>,
    /// VMs that have one.
    pub vms: usize,
    /// VMs that are to have one: all of the group that can have a tap, so no cgroup.
    pub wanted: usize,
    /// Floors of those that name a tap, together, bytes a second.
    pub floors: u64,
    /// What those can be there: the rest is of all that is no VM's.
    pub floors_at_most: u64,
}

/// Floors that are more than there is, in bytes a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ShortfallView {
    /// Those of all VMs that want them.
    pub floors: u64,
    /// What all VMs have together.
    pub delivered: u64,
}

impl From<Shortfall> for ShortfallView {
    fn from(Shortfall { floors, delivered }: Shortfall) -> ShortfallView {
        ShortfallView { floors, delivered }
    }
}

/// A trial of a group.
#[derive(Clone, Debug, Serialize)]
pub struct TrialView {
    /// Which it is: who says so goes on with it, or ends it.
    pub id: u64,
    /// Whether the group is coupled now.
    pub coupled: bool,
    /// When it ends unless its client asks again, milliseconds from now.
    pub ends_ms: u64,
    /// Whose it is.
    pub by: String,
}

impl TrialView {
    /// A trial at a time.
    pub fn new(trial: &Trial, now: Micros) -> TrialView {
        let Trial { id, coupled, until, by } = trial;
        let ends_ms = until.saturating_sub(now) / 1000;
        TrialView { id: *id, coupled: *coupled, ends_ms, by: by.to_string() }
    }
}

/// What the flows of a group see of their path.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PathView {
    /// What they delivered in the latest round trip, bytes a second.
    pub rate: u64,
    /// What packets waited in it, microseconds.
    pub queue_us: u64,
    /// Others seem to use it.
    pub shared: bool,
}

impl From<PathState> for PathView {
    fn from(path: PathState) -> PathView {
        let PathState { rate_bytes, queue_us, shared, .. } = path;
        PathView { rate: rate_bytes, queue_us, shared }
    }
}

/// How a mode is called.
pub fn mode_name(mode: QueueMode) -> &'static str {
    match mode {
        QueueMode::Target => "target",
        QueueMode::Competing => "competing",
        QueueMode::Trial => "trial",
    }
}

/// The part of a VM in a group.
#[derive(Clone, Debug, Serialize)]
pub struct MemberView {
    /// The VM.
    pub name: String,
    /// Its weight.
    pub weight: f64,
    /// Its flows are coupled, by its own settings.
    pub coupled: bool,
    /// It has no less while it wants that, Mbit/s.
    pub floor_mbit: f64,
    /// It has no more, Mbit/s.
    pub cap_mbit: Option<f64>,
    /// Its flows coupled here.
    pub flows: usize,
    /// What they are granted together, bytes.
    pub part: u64,
    /// Its due of what is delivered there, by floor, cap and weight, of 1000; of one that is
    /// granted something.
    pub due_permille: Option<u32>,
    /// Mean round-trip time of those that have something to send, microseconds.
    pub srtt_us: Option<u64>,
    /// What speaks for and against its being behind the group's bottleneck.
    pub evidence: EvidenceView,
    /// What it was found to do there.
    pub conduct: ConductView,
    /// What its tap shows, if it is looked at.
    pub tap: Option<TapView>,
}

/// What a VM's tap shows, in bytes a second.
#[derive(Clone, Debug, Serialize)]
pub struct TapView {
    /// The interface.
    pub interface: String,
    /// What came from it in the latest second.
    pub sent: u64,
    /// What its reports say of that.
    pub claimed: u64,
    /// What it may have.
    pub share: u64,
    /// How often it was judged.
    pub verdicts: u64,
    /// What it is judged for, if it is.
    pub verdict: Option<VerdictView>,
}

/// What a VM is judged for, with what was seen in the second before.
#[derive(Clone, Debug, Serialize)]
pub struct VerdictView {
    /// What for.
    pub reason: &'static str,
    /// How long ago, milliseconds.
    pub for_ms: u64,
    /// What came from it, bytes a second.
    pub sent: u64,
    /// What its reports said of that.
    pub claimed: u64,
    /// What it might have had.
    pub share: u64,
}

impl TapView {
    /// What is known of a VM by its tap at a time.
    pub fn new(interface: &str, watched: &Watched, now: Micros) -> TapView {
        let recent = watched.recent();
        TapView {
            interface: interface.to_owned(),
            sent: recent.rate(recent.sent_bytes),
            claimed: recent.rate(recent.claimed_bytes),
            share: watched.share(),
            verdicts: watched.verdicts(),
            verdict: watched.verdict().map(|verdict| VerdictView::new(verdict, now)),
        }
    }
}

impl VerdictView {
    fn new(verdict: &Verdict, now: Micros) -> VerdictView {
        let Verdict { reason, since, sent, claimed, share } = *verdict;
        let for_ms = now.saturating_sub(since) / 1000;
        VerdictView { reason: reason.word(), for_ms, sent, claimed, share }
    }
}

/// What a VM was found to do in a group, and what its reports were kept from doing.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ConductView {
    /// It loses where nobody else does, or says so: its events reduce only its own part.
    pub alone: bool,
    /// Its window, bytes, while that is less than its part.
    pub own_window: Option<u64>,
    /// Its events that reduced what all have.
    pub shared_events: u64,
    /// Its events that reduced only what it has.
    pub lone_events: u64,
    /// Its part of what was delivered of late, of 1000.
    pub delivered_permille: u32,
    /// Bytes it said were acknowledged, brought, or a floor beyond what it was granted.
    pub beyond_bytes: u64,
    /// Reductions of others that it wanted undone.
    pub refused_undos: u64,
    /// Times it wanted to take its part out of the aggregate again.
    pub refused_exits: u64,
    /// Reports of a round-trip time beyond what is believed.
    pub far_reports: u64,
}

impl From<Conduct> for ConductView {
    fn from(conduct: Conduct) -> ConductView {
        ConductView {
            alone: conduct.alone,
            own_window: conduct.own_cwnd_bytes,
            shared_events: conduct.shared_events,
            lone_events: conduct.lone_events,
            delivered_permille: conduct.delivered_permille,
            beyond_bytes: conduct.beyond_bytes,
            refused_undos: conduct.refused_undos,
            refused_exits: conduct.refused_exits,
            far_reports: conduct.far_reports,
        }
    }
}

/// What speaks for and against a VM's being behind a group's bottleneck.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EvidenceView {
    /// It does not seem to be.
    pub apart: bool,
    /// Comparisons with others that said something, of the last 32.
    pub compared: u32,
    /// Those at which others saw a queue and it did not.
    pub unseen: u32,
    /// Those at which it lost at a queue that none of the others saw.
    pub alone: u32,
    /// By how much its round-trip time moved in 8 s, microseconds.
    pub swing_us: u32,
    /// The same of the others.
    pub others_swing_us: u32,
}

impl From<Evidence> for EvidenceView {
    fn from(evidence: Evidence) -> EvidenceView {
        let Evidence { apart, compared, unseen, alone, swing_us, others_swing_us } = evidence;
        EvidenceView { apart, compared, unseen, alone, swing_us, others_swing_us }
    }
}

/// What a monitoring system is told: all there is but flows.
#[derive(Clone, Debug)]
pub struct MetricsView {
    /// The daemon as a whole.
    pub status: StatusView,
    /// Each VM, and how often what of it was refused.
    pub vms: Vec<(VmView, [(&'static str, u64); KINDS.len()])>,
    /// Each group.
    pub groups: Vec<GroupView>,
    /// How long updates have taken, seconds.
    pub latency: Histogram,
    /// What came of looking for messages.
    pub polls: Counts,
}

/// All rules.
#[derive(Clone, Debug, Serialize)]
pub struct RulesView {
    /// The first that matches a flow decides.
    pub rules: Vec<RuleSettings>,
}
