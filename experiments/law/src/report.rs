// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a flow reports, and its congestion events: report.c and recovery.c of
//! `guest/linux-ccc`.
use ccc_core::{CongestionState, Report};

use crate::{
    env::Env,
    guest::Guest,
    host::Doorbell,
    inner::UNSET,
    path::MSS_BYTES,
    rules,
    tcp::{State, Tcp},
};

/// What the device is told of at every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signals {
    events: u16,
    timeouts: u16,
    priority: u16,
    state: CongestionState,
    active: bool,
}

/// The flow's own numbers.
#[derive(Debug)]
pub struct Reporter {
    /// It has data to send.
    pub active: bool,
    /// Its window was the limit at the last ACK.
    pub cwnd_limited: bool,
    /// Packets that it had to send when it began, or came back; 0 once its ACKs tell.
    pub opening: u32,
    /// The device is to be told, whatever is due.
    at_once: bool,
    /// The round-trip time that shares count.
    pub srtt_us: u32,
    state: CongestionState,
    acked_limited_bytes: u64,
    delivered_bytes: u64,
    growth_bytes: u32,
    averaged_us: u64,
    srtt_rest: u8,
    rtt_rounds: u32,
    rtt_sample: u16,
    notified_delivered: u64,
    notified_growth: u32,
    notified: Signals,
}

/// Congestion events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    reduced_epoch: u32,
    congestion_epoch: u32,
    events: u16,
    timeouts: u16,
    reduced: bool,
}

impl Recovery {
    /// Counts a change of state; whether it is an event.
    pub fn count(&mut self, old: State, new: State) -> bool {
        let event = std::mem::take(&mut self.reduced);
        if event {
            self.events = self.events.wrapping_add(1);
            self.congestion_epoch = self.reduced_epoch;
        }
        if new == State::Loss && (event || matches!(old, State::Cwr | State::Recovery)) {
            self.timeouts = self.timeouts.wrapping_add(1);
        }
        event
    }
}

fn wire_state(tcp: &Tcp, state: State) -> CongestionState {
    match state {
        State::Cwr | State::Recovery => CongestionState::Recovery,
        State::Loss => CongestionState::Loss,
        State::Open if tcp.window.in_slow_start() => CongestionState::SlowStart,
        State::Open => CongestionState::Avoidance,
    }
}

impl Reporter {
    /// A new flow's.
    pub fn new(tcp: &Tcp) -> Reporter {
        Reporter {
            active: true,
            cwnd_limited: true,
            opening: 0,
            at_once: false,
            srtt_us: tcp.srtt_us,
            state: CongestionState::SlowStart,
            acked_limited_bytes: 0,
            delivered_bytes: 0,
            growth_bytes: 0,
            averaged_us: 0,
            srtt_rest: 0,
            rtt_rounds: 0,
            rtt_sample: 0,
            notified_delivered: 0,
            notified_growth: 0,
            notified: Signals::default(),
        }
    }

    /// It reduces, by its last report.
    pub fn is_recovering(&self) -> bool {
        self.state == CongestionState::Recovery
    }

    /// `ccc_report_rtt()`.
    pub fn sample_rtt(&mut self, rtt_us: u32) {
        let sample = rules::rtt_sample(rtt_us.max(1));
        let least = if self.rtt_sample == 0 { sample } else { self.rtt_sample.min(sample) };
        self.rtt_sample = least;
    }

    /// With another window the flow has another RTT.
    pub fn restart_rtt(&mut self) {
        self.rtt_rounds = 0;
    }

    /// `ccc_report_end_of_data()`.
    pub fn end_of_data(&mut self, tcp: &Tcp) {
        self.cwnd_limited &= tcp.available_segments > 0;
    }

    /// `note()` of opening.c, of a flow whose window will be at most so many packets.
    pub fn open(&mut self, tcp: &Tcp, most: u32) {
        self.opening = rules::opening(tcp.written_bytes(), MSS_BYTES, most);
        self.cwnd_limited = self.opening == 0;
    }

    /// The same again; others are told at once if something has changed.
    pub fn open_again(&mut self, tcp: &Tcp, most: u32) {
        let before = self.opening;
        self.open(tcp, most);
        self.at_once |= self.opening != before;
    }

    /// `ccc_opening_end()`.
    pub fn end_opening(&mut self) {
        self.cwnd_limited |= self.opening > 0;
        self.opening = 0;
    }

    /// `ccc_report_wake()`.
    pub fn wake(&mut self) {
        self.cwnd_limited = true;
        self.opening = 0;
        self.at_once = true;
    }

    /// `ccc_report_acked()`.
    pub fn acked(&mut self, tcp: &Tcp, acked: u32, growth: u32, limited: bool) {
        self.cwnd_limited = limited;
        self.end_of_data(tcp);
        self.growth_bytes = self.growth_bytes.wrapping_add(growth.wrapping_mul(MSS_BYTES));
        if limited {
            self.acked_limited_bytes += u64::from(acked) * u64::from(MSS_BYTES);
        }
    }

    fn average_rtt(&mut self, tcp: &Tcp, now_us: u64, most_bytes: u64, spread: bool) {
        let cwnd = u64::from(rules::bytes(tcp.window.cwnd, MSS_BYTES)).min(most_bytes) as u32;
        let delivered = self.delivered_bytes - self.notified_delivered;
        let fills = self.cwnd_limited && !spread;
        let rtt_us = self.rtt_now(tcp, now_us, fills, delivered, cwnd);
        self.rtt_rounds = rules::rtt_rounds(self.rtt_rounds, delivered, cwnd);
        let (before_us, rounds) = (self.srtt_us, self.rtt_rounds);
        let rest = &mut self.srtt_rest;
        self.srtt_us = rules::rtt_average(before_us, rtt_us, delivered, cwnd, rounds, rest);
    }

    /// What the average is of.
    fn rtt_now(&mut self, tcp: &Tcp, now_us: u64, fills: bool, delivered: u64, cwnd: u32) -> u32 {
        if !fills {
            self.averaged_us = 0;
            return tcp.srtt_us;
        }
        let elapsed_us = now_us - self.averaged_us;
        if delivered > 0 {
            self.averaged_us = now_us;
        }
        rules::rtt_held(tcp.srtt_us, elapsed_us, delivered, cwnd, self.rtt_rounds)
    }
}

impl Guest {
    fn signals(&self, env: &Env) -> Signals {
        Signals {
            events: self.recovery.events,
            timeouts: self.recovery.timeouts,
            priority: env.priority,
            state: self.reporter.state,
            active: self.reporter.active,
        }
    }

    fn is_due(&self, env: &Env, tcp: &Tcp) -> bool {
        let own = &self.reporter;
        own.at_once
            || self.signals(env) != own.notified
            || rules::report_due(
                own.delivered_bytes - own.notified_delivered,
                own.growth_bytes.wrapping_sub(own.notified_growth),
                tcp.window.cwnd,
                MSS_BYTES,
                rules::REPORT_SHIFT,
            )
    }

    fn wire(&self, env: &Env, tcp: &Tcp) -> Report {
        let own = &self.reporter;
        let ssthresh = tcp.window.ssthresh;
        Report {
            state: own.state,
            active: own.active,
            cwnd_limited: own.cwnd_limited,
            opening: own.opening > 0,
            priority: env.priority,
            acked_limited_bytes: own.acked_limited_bytes,
            delivered_bytes: own.delivered_bytes,
            cwnd_growth_bytes: own.growth_bytes,
            congestion_events: self.recovery.events,
            timeouts: self.recovery.timeouts,
            spurious_events: 0,
            beta: self.shadow.beta,
            congestion_epoch: self.recovery.congestion_epoch,
            cwnd_bytes: rules::bytes(tcp.window.cwnd, MSS_BYTES),
            ssthresh_bytes: (ssthresh < UNSET).then(|| rules::bytes(ssthresh, MSS_BYTES)),
            srtt_us: own.srtt_us,
            min_rtt_us: tcp.min_rtt_us,
            rtt_us: u32::from(own.rtt_sample) * rules::RTT_UNIT_US,
            inflight_bytes: rules::bytes(tcp.in_flight.max(own.opening), MSS_BYTES),
            mss_bytes: MSS_BYTES as u16,
        }
    }

    fn publish(&mut self, env: &mut Env, tcp: &Tcp, doorbell: Option<Doorbell>) {
        let mut report = self.wire(env, tcp);
        if let Some(lies) = env.lies {
            lies.falsify(&mut report);
        }
        env.host.write(env.flow, report);
        let Some(doorbell) = doorbell else { return };
        let signals = self.signals(env);
        let own = &mut self.reporter;
        own.notified_delivered = own.delivered_bytes;
        own.notified_growth = own.growth_bytes;
        own.notified = signals;
        own.at_once = false;
        own.rtt_sample = 0;
        env.host.ring(env.now, env.vm, env.flow, doorbell);
    }

    fn report_as(&mut self, env: &mut Env, tcp: &Tcp, state: State, active: bool) {
        self.bring_up_to_date(tcp, state, active);
        let due = self.is_due(env, tcp);
        if due {
            let most_bytes = if self.spread { self.granted.cwnd_bytes } else { u64::MAX };
            self.reporter.average_rtt(tcp, env.now_us(), most_bytes, self.spread);
        }
        self.publish(env, tcp, due.then_some(Doorbell::Update));
    }

    fn bring_up_to_date(&mut self, tcp: &Tcp, state: State, active: bool) {
        let own = &mut self.reporter;
        own.delivered_bytes = tcp.delivered_segments * u64::from(MSS_BYTES);
        own.active = active;
        own.state = wire_state(tcp, state);
    }

    /// The flow is, or will be, in `state`.
    pub fn report_update(&mut self, env: &mut Env, tcp: &Tcp, state: State) {
        self.report_as(env, tcp, state, tcp.has_data());
    }

    /// It sends again.
    pub fn report_resume(&mut self, env: &mut Env, tcp: &Tcp) {
        self.report_as(env, tcp, tcp.state, true);
    }

    /// It begins.
    pub fn report_first(&mut self, env: &mut Env, tcp: &Tcp) {
        self.bring_up_to_date(tcp, tcp.state, true);
        self.publish(env, tcp, Some(Doorbell::Register));
    }

    /// It ends.
    pub fn report_last(&mut self, env: &mut Env, tcp: &Tcp) {
        self.bring_up_to_date(tcp, tcp.state, false);
        self.publish(env, tcp, Some(Doorbell::Leave));
    }

    /// `ssthresh()` of recovery.c.
    pub fn ssthresh(&mut self, env: &mut Env, tcp: &mut Tcp) -> u32 {
        self.recovery.reduced = true;
        self.read_grant(env, tcp);
        let lost_sent_us = tcp.head_sent_ns().map(|sent| sent / 1000);
        // Of a tail that a probe has repaired only the probe is known.
        let sent_us =
            lost_sent_us.unwrap_or_else(|| env.now_us().saturating_sub(3 * u64::from(tcp.srtt_us)));
        self.recovery.reduced_epoch = env.tenant.epoch_at(sent_us);
        if !self.granted.coupled {
            return self.shadow_ssthresh(env, tcp);
        }
        let mut granted = self.granted.cwnd;
        if self.recovery.reduced_epoch == self.granted.epoch && !self.awaits_answer(env, tcp) {
            self.charge_shadow(env, tcp);
            granted = rules::apply_beta(granted, self.shadow.beta);
        }
        granted.clamp(2, tcp.window.cwnd.max(2))
    }
}
