// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A sender, as Linux is one: SACK, loss detection by what was sent later (RACK), tail
//! loss probes, proportional rate reduction, and a retransmission timer.
//!
//! What it makes of its window is for [`Env`] to say, as for a congestion control
//! module in the kernel.
use std::collections::VecDeque;

use crate::{
    env::Env,
    hystart::Sample,
    inner::Window,
    path::{MSS_BYTES, Nanos, Packet},
    receiver::Ack,
};

/// Initial window (RFC 6928).
pub const INITIAL_SEGMENTS: u32 = 10;
/// So many segments beyond a missing one say that it is lost.
const DUPLICATES: u32 = 3;
/// `net.ipv4.tcp_pacing_ca_ratio`.
const PACING_CA_PERCENT: u64 = 120;
/// Linux' TCP_RTO_MIN, and how often the timer is doubled at the most.
const RTO_MIN_US: u64 = 200_000;
const BACKOFF_MAX: u32 = 9;
/// What a tail loss probe waits beyond two round trips (TCP_TIMEOUT_MIN_US).
const PROBE_MIN_US: u64 = 2_000;

/// Congestion state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is known to be lost.
    Open,
    /// Reduces without recovery: a probe has repaired a loss.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Flying,
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Transmission {
    sent_ns: Nanos,
    burst: u64,
    segments: u32,
    again: bool,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Reorder,
    Probe,
    Retransmit,
}

#[derive(Clone, Copy, Debug, Default)]
struct Acked {
    segments: u32,
    rtt_us: Option<u32>,
    probe: bool,
}

/// State of a sender.
#[derive(Debug)]
pub struct Tcp {
    /// Its window.
    pub window: Window,
    /// The window before a reduction.
    pub prior_cwnd: u32,
    /// Its state.
    pub state: State,
    /// Segments sent and neither acknowledged nor known to be lost.
    pub in_flight: u32,
    /// Segments acknowledged so far.
    pub delivered_segments: u64,
    /// Smoothed round-trip time; 0 before the first sample.
    pub srtt_us: u32,
    /// Smallest round-trip time; 0 before the first sample.
    pub min_rtt_us: u32,
    /// Segments the application has written and TCP has not sent.
    pub available_segments: u64,
    /// When it sent last.
    pub last_send_ns: Nanos,
    /// Timeouts so far.
    pub timeouts: u64,
    /// Segments sent again so far.
    pub retransmitted_segments: u64,
    rttvar_us: u32,
    flow: usize,
    burst_segments: u32,
    sent: VecDeque<Transmission>,
    first: u64,
    lost: VecDeque<Transmission>,
    next_burst: u64,
    outstanding_bursts: u64,
    outstanding_segments: u32,
    high_burst: u64,
    below_high: u64,
    prr_delivered: u32,
    prr_out: u32,
    limited: bool,
    most_outstanding: u32,
    usage_burst: u64,
    beyond_hole: u32,
    /// A tail loss probe that is out, and whether it was sent before.
    probe: Option<(u64, bool)>,
    timer: Option<(Nanos, Timer)>,
    backoff: u32,
    /// Its latest round-trip time.
    pub rtt_us: u32,
    /// Nanoseconds for a segment, while it is paced.
    pub paced_ns: Option<Nanos>,
    /// Then it sends on, if it is.
    pub paced_until_ns: Nanos,
}

impl Tcp {
    /// One that has just connected, which took `rtt_us`.
    pub fn new(flow: usize, burst_segments: u32, rtt_us: u32) -> Tcp {
        Tcp {
            window: Window::new(INITIAL_SEGMENTS.max(burst_segments)),
            prior_cwnd: 0,
            state: State::Open,
            in_flight: 0,
            delivered_segments: 0,
            srtt_us: rtt_us,
            min_rtt_us: rtt_us,
            available_segments: 0,
            last_send_ns: 0,
            timeouts: 0,
            retransmitted_segments: 0,
            rttvar_us: rtt_us / 2,
            flow,
            burst_segments,
            sent: VecDeque::new(),
            first: 0,
            lost: VecDeque::new(),
            next_burst: 0,
            outstanding_bursts: 0,
            outstanding_segments: 0,
            high_burst: 0,
            below_high: 0,
            prr_delivered: 0,
            prr_out: 0,
            limited: false,
            most_outstanding: 0,
            usage_burst: 0,
            beyond_hole: 0,
            probe: None,
            timer: None,
            backoff: 0,
            rtt_us,
            paced_ns: None,
            paced_until_ns: 0,
        }
    }

    /// Between two segments at the rate of `tcp_update_pacing_rate()`, past slow start.
    pub fn own_pace_ns(&self) -> Nanos {
        let window = u64::from(self.window.cwnd.max(self.outstanding_segments));
        u64::from(self.srtt_us) * 1000 * 100 / (PACING_CA_PERCENT * window.max(1))
    }

    /// When it wants to be called, if nothing happens before.
    pub fn timer_at(&self) -> Option<Nanos> {
        let paced = self.paced_ns.map(|_| self.paced_until_ns);
        let sends = paced.filter(|at| *at > self.last_send_ns && self.has_room());
        self.timer.map(|(at, _)| at).into_iter().chain(sends).min()
    }

    fn has_room(&self) -> bool {
        let new = u64::from(self.burst_segments).min(self.available_segments) as u32;
        let next = self.lost.front().map_or(new, |lost| lost.segments);
        next > 0 && self.fits(next)
    }

    /// A burst goes as a whole, or, if nothing is in flight, as much of it as may.
    fn fits(&self, segments: u32) -> bool {
        let room = self.window.cwnd.saturating_sub(self.in_flight);
        room >= segments || self.in_flight == 0 && room > 0
    }

    /// Data is outstanding or waits to be sent.
    pub fn has_data(&self) -> bool {
        self.outstanding_segments > 0 || self.available_segments > 0
    }

    /// Written and not acknowledged, as far as that matters.
    pub fn written_bytes(&self) -> u32 {
        let segments = u64::from(self.outstanding_segments).saturating_add(self.available_segments);
        u32::try_from(segments).unwrap_or(u32::MAX).saturating_mul(MSS_BYTES)
    }

    /// Written and not sent, as far as that matters.
    pub fn unsent_bytes(&self) -> u32 {
        u32::try_from(self.available_segments).unwrap_or(u32::MAX).saturating_mul(MSS_BYTES)
    }

    /// `tcp_is_cwnd_limited()`.
    pub fn is_cwnd_limited(&self) -> bool {
        self.limited || self.window.in_slow_start() && self.window.cwnd < 2 * self.most_outstanding
    }

    /// Retransmission timeout without backoff.
    pub fn rto_us(&self) -> u64 {
        u64::from(self.srtt_us) + (4 * u64::from(self.rttvar_us)).max(RTO_MIN_US)
    }

    /// When the first segment that is not acknowledged was sent last.
    pub fn head_sent_ns(&self) -> Option<Nanos> {
        let flying = self.sent.iter().find(|one| one.fate == Fate::Flying);
        let head = self.lost.front().into_iter().chain(flying).min_by_key(|one| one.burst);
        head.map(|one| one.sent_ns)
    }

    /// The application writes; after a long silence the window begins anew.
    pub fn write(&mut self, now: Nanos, segments: u64) {
        let idle_us = (now - self.last_send_ns) / 1000;
        if !self.has_data() && self.delivered_segments > 0 && idle_us > self.rto_us() {
            let halvings = (idle_us / self.rto_us()).min(31) as u32;
            let window = &mut self.window;
            window.ssthresh = window.ssthresh.max(window.cwnd / 4 * 3);
            let least = INITIAL_SEGMENTS.max(self.burst_segments).min(window.cwnd);
            window.cwnd = (window.cwnd >> halvings).max(least);
        }
        self.available_segments = self.available_segments.saturating_add(segments);
    }

    /// An acknowledgement has come.
    pub fn acknowledge(&mut self, env: &mut Env, ack: Ack) {
        env.begin_ack(self);
        let acked = self.take(env.now, ack);
        if let Some(rtt_us) = acked.rtt_us {
            self.sample_rtt(rtt_us);
        }
        env.packets_acked(self, acked.segments, acked.rtt_us);
        let lost = self.find_lost(ack.transmission, acked);
        self.settle_probe(env, acked);
        self.change_state(env, lost);
        match self.state {
            State::Recovery => self.reduce_proportionally(acked.segments, lost),
            // In disorder the window stays.
            _ if self.beyond_hole > 0 || acked.segments == 0 => {}
            _ => env.congestion_avoidance(self, acked.segments),
        }
        if acked.segments > 0 {
            self.backoff = 0;
        }
        self.rearm(env.now);
        self.transmit(env);
    }

    /// Its timer may be due.
    pub fn tick(&mut self, env: &mut Env) {
        let Some((_, timer)) = self.timer.take_if(|(at, _)| *at <= env.now) else {
            self.transmit(env);
            return;
        };
        match timer {
            Timer::Reorder => {
                let lost = self.declare_lost(u64::MAX);
                self.change_state(env, lost);
                if self.state == State::Recovery {
                    self.reduce_proportionally(self.beyond_hole.max(1), lost);
                }
            }
            Timer::Probe => self.send_probe(env),
            Timer::Retransmit => self.enter_loss(env),
        }
        self.rearm(env.now);
        self.transmit(env);
    }

    /// Sends what the window allows.
    pub fn transmit(&mut self, env: &mut Env) {
        if self.outstanding_segments == 0 {
            if self.available_segments == 0 {
                return;
            }
            env.tx_start(self);
        }
        env.before_send(self);
        let mut any = false;
        while self.transmit_one(env) {
            any = true;
        }
        let waits = self.available_segments > 0 || !self.lost.is_empty();
        let full = self.in_flight + self.burst_segments > self.window.cwnd;
        let limited = self.in_flight >= self.window.cwnd || waits && full;
        if any || limited {
            self.validate(limited);
        }
        if self.timer.is_none() {
            self.rearm(env.now);
        }
    }

    fn transmit_one(&mut self, env: &mut Env) -> bool {
        if self.paced_ns.is_some() && env.now < self.paced_until_ns {
            return false;
        }
        if !self.has_room() {
            return false;
        }
        if let Some(lost) = self.lost.pop_front() {
            self.retransmitted_segments += u64::from(lost.segments);
            self.send(env, Transmission { again: true, ..lost });
        } else {
            let room = self.window.cwnd - self.in_flight;
            let burst = u64::from(self.burst_segments.min(room)).min(self.available_segments);
            self.send_new(env, burst as u32);
        }
        true
    }

    fn send_new(&mut self, env: &mut Env, segments: u32) {
        self.available_segments -= u64::from(segments);
        let burst = self.next_burst;
        self.next_burst += 1;
        self.outstanding_bursts += 1;
        self.outstanding_segments += segments;
        let fate = Fate::Flying;
        self.send(env, Transmission { sent_ns: env.now, burst, segments, again: false, fate });
    }

    fn send(&mut self, env: &mut Env, one: Transmission) {
        let transmission = self.first + self.sent.len() as u64;
        self.sent.push_back(Transmission { sent_ns: env.now, fate: Fate::Flying, ..one });
        self.in_flight += one.segments;
        self.prr_out += one.segments;
        self.last_send_ns = env.now;
        if let Some(paced_ns) = self.paced_ns {
            let from = self.paced_until_ns.max(env.now);
            self.paced_until_ns = from + paced_ns * u64::from(one.segments);
        }
        let Transmission { burst, segments, .. } = one;
        env.path.offer(env.now, env.vm, Packet { flow: self.flow, transmission, burst, segments });
    }

    /// `tcp_cwnd_validate()`.
    fn validate(&mut self, limited: bool) {
        let acked_up_to = self.next_burst - self.outstanding_bursts;
        let more = !self.limited && self.outstanding_segments > self.most_outstanding;
        if acked_up_to >= self.usage_burst || limited || more {
            self.limited = limited;
            self.most_outstanding = self.outstanding_segments;
            self.usage_burst = self.next_burst;
        }
    }

    fn take(&mut self, now: Nanos, ack: Ack) -> Acked {
        let mut acked = Acked::default();
        for number in ack.before.into_iter().chain([ack.transmission]) {
            let Some(at) = number.checked_sub(self.first) else { continue };
            let Some(one) = self.sent.get_mut(at as usize) else { continue };
            if one.fate == Fate::Done {
                continue;
            }
            one.fate = Fate::Done;
            let one = *one;
            self.in_flight -= one.segments;
            self.outstanding_bursts -= 1;
            self.outstanding_segments -= one.segments;
            self.below_high -= u64::from(one.burst < self.high_burst && self.below_high > 0);
            self.delivered_segments += u64::from(one.segments);
            acked.segments += one.segments;
            acked.probe |= self.probe.is_some_and(|(probe, _)| probe == number);
            if !one.again {
                acked.rtt_us = Some(((now - one.sent_ns) / 1000).max(1) as u32);
            }
        }
        self.forget_done();
        acked
    }

    fn forget_done(&mut self) {
        while self.sent.front().is_some_and(|one| one.fate == Fate::Done) {
            self.sent.pop_front();
            self.first += 1;
        }
    }

    /// What HyStart sees of an ACK.
    pub fn hystart_sample(&self, now: Nanos, rtt_us: u32) -> Sample {
        Sample {
            now,
            rtt_us,
            min_rtt_us: self.min_rtt_us,
            acked_burst: self.next_burst - self.outstanding_bursts,
            next_burst: self.next_burst,
        }
    }

    fn sample_rtt(&mut self, rtt_us: u32) {
        self.rtt_us = rtt_us;
        self.min_rtt_us = self.min_rtt_us.min(rtt_us);
        let difference = i64::from(rtt_us) - i64::from(self.srtt_us);
        self.srtt_us = (i64::from(self.srtt_us) + difference / 8).max(1) as u32;
        let deviation = difference.unsigned_abs() as i64 - i64::from(self.rttvar_us);
        self.rttvar_us = (i64::from(self.rttvar_us) + deviation / 4).max(0) as u32;
    }

    /// Nothing overtakes on this path: what was sent before an acknowledged
    /// transmission and is not acknowledged is missing.
    fn find_lost(&mut self, highest: u64, acked: Acked) -> u32 {
        if self.first >= highest || self.sent.is_empty() {
            self.beyond_hole = 0;
            return 0;
        }
        self.beyond_hole += acked.segments;
        let sure = self.state != State::Open || acked.probe || self.beyond_hole >= DUPLICATES;
        if sure { self.declare_lost(highest) } else { 0 }
    }

    /// Those sent before `highest`, or before whatever was acknowledged last.
    fn declare_lost(&mut self, highest: u64) -> u32 {
        let done = self.sent.iter().rposition(|one| one.fate == Fate::Done).unwrap_or(0) as u64;
        let end = highest.saturating_sub(self.first).min(done) as usize;
        let mut segments = 0;
        for one in self.sent.iter_mut().take(end).filter(|one| one.fate == Fate::Flying) {
            one.fate = Fate::Done;
            segments += one.segments;
            self.lost.push_back(*one);
        }
        self.in_flight -= segments;
        self.beyond_hole = 0;
        self.forget_done();
        segments
    }

    fn change_state(&mut self, env: &mut Env, lost: u32) {
        if matches!(self.state, State::Recovery | State::Loss) && self.below_high == 0 {
            if self.state == State::Recovery {
                self.window.cwnd = self.window.ssthresh;
            }
            env.set_state(self, State::Open);
        }
        if self.state == State::Open && lost > 0 {
            self.begin_reduction(env);
            env.set_state(self, State::Recovery);
        }
    }

    fn begin_reduction(&mut self, env: &mut Env) {
        self.high_burst = self.next_burst;
        self.below_high = self.outstanding_bursts;
        self.prior_cwnd = self.window.cwnd;
        self.prr_delivered = 0;
        self.prr_out = 0;
        self.window.ssthresh = env.ssthresh(self);
    }

    /// RFC 6937, as `tcp_cwnd_reduction()` has it.
    fn reduce_proportionally(&mut self, acked: u32, lost: u32) {
        if acked == 0 {
            return;
        }
        self.prr_delivered += acked;
        let (ssthresh, prior) = (u64::from(self.window.ssthresh), u64::from(self.prior_cwnd));
        let delivered = u64::from(self.prr_delivered);
        let mut send = if self.window.ssthresh < self.in_flight {
            let due = (ssthresh * delivered + prior - 1) / prior.max(1);
            due.saturating_sub(u64::from(self.prr_out)) as u32
        } else {
            let more = u32::from(lost == 0);
            let send = self.prr_delivered.saturating_sub(self.prr_out).max(acked) + more;
            send.min(self.window.ssthresh - self.in_flight)
        };
        if self.prr_out == 0 {
            send = send.max(self.burst_segments);
        }
        self.window.cwnd = self.in_flight + send;
    }

    /// A probe was sent twice round the path ago, and its acknowledgement is here.
    fn settle_probe(&mut self, env: &mut Env, acked: Acked) {
        let Some((_, again)) = self.probe.take_if(|_| acked.probe) else { return };
        if again && self.state == State::Open && self.outstanding_segments == 0 {
            // It repaired the loss of the last segment: one reduction, no recovery.
            self.begin_reduction(env);
            env.set_state(self, State::Cwr);
            self.window.cwnd = self.window.ssthresh;
            env.set_state(self, State::Open);
        }
    }

    fn send_probe(&mut self, env: &mut Env) {
        if self.available_segments > 0 {
            let burst = u64::from(self.burst_segments).min(self.available_segments) as u32;
            self.send_new(env, burst);
            self.probe = Some((self.first + self.sent.len() as u64 - 1, false));
            return;
        }
        let Some(last) = self.sent.back_mut().filter(|one| one.fate == Fate::Flying) else {
            return;
        };
        last.fate = Fate::Done;
        let last = *last;
        self.in_flight -= last.segments;
        self.send(env, Transmission { again: true, ..last });
        self.probe = Some((self.first + self.sent.len() as u64 - 1, true));
        self.forget_done();
    }

    fn enter_loss(&mut self, env: &mut Env) {
        self.timeouts += 1;
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
        for one in self.sent.drain(..) {
            self.first += 1;
            if one.fate == Fate::Flying {
                self.lost.push_back(one);
            }
        }
        self.lost.make_contiguous().sort_by_key(|one| one.burst);
        self.in_flight = 0;
        self.beyond_hole = 0;
        self.probe = None;
        if self.state == State::Open {
            self.prior_cwnd = self.window.cwnd;
            self.window.ssthresh = env.ssthresh(self);
        }
        self.high_burst = self.next_burst;
        self.below_high = self.outstanding_bursts;
        self.window.cwnd = self.burst_segments;
        self.window.count = 0;
        env.set_state(self, State::Loss);
    }

    fn rearm(&mut self, now: Nanos) {
        if self.outstanding_segments == 0 {
            self.timer = None;
            return;
        }
        let srtt_us = u64::from(self.srtt_us);
        let (after_us, timer) = if self.beyond_hole > 0 {
            (u64::from(self.min_rtt_us / 4), Timer::Reorder)
        } else if self.state == State::Open && self.probe.is_none() {
            let alone = if self.outstanding_bursts == 1 { RTO_MIN_US } else { PROBE_MIN_US };
            ((2 * srtt_us + alone).min(self.rto_us()), Timer::Probe)
        } else {
            (self.rto_us() << self.backoff, Timer::Retransmit)
        };
        self.timer = Some((now + after_us.max(1) * 1000, timer));
    }
}
