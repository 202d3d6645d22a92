// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A flow's part of the guest module: `guest/linux-ccc`'s cwnd.c, grant.c and shadow.c,
//! rule by rule and under the same names; what it reports is in [`crate::report`].
use crate::{
    ack_clock::{AckClock, Release},
    env::Env,
    inner::{UNSET, Window},
    path::MSS_BYTES,
    report::{Recovery, Reporter},
    rules,
    tcp::{INITIAL_SEGMENTS, State, Tcp},
};

/// What the flows of a VM share.
#[derive(Debug, Default)]
pub struct Tenant {
    /// Their ACK clock.
    pub clock: AckClock,
    epoch: Option<Epoch>,
    slots: Vec<bool>,
}

/// The epoch of the VM's grant line, and when it was first seen.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    number: u32,
    since_us: u64,
}

impl Tenant {
    fn watch_epoch(&mut self, now_us: u64, number: u32) {
        match &mut self.epoch {
            None => self.epoch = Some(Epoch { number, since_us: 0 }),
            Some(seen) if seen.number != number => *seen = Epoch { number, since_us: now_us },
            Some(_) => {}
        }
    }

    /// The epoch under which a segment was sent.
    pub fn epoch_at(&self, sent_us: u64) -> u32 {
        let Some(seen) = self.epoch else { return 0 };
        rules::epoch_of_segment(seen.number, seen.since_us, sent_us)
    }

    fn take_slot(&mut self) -> u32 {
        let free = self.slots.iter().position(|used| !used).unwrap_or(self.slots.len());
        if free == self.slots.len() {
            self.slots.push(true);
        }
        self.slots[free] = true;
        free as u32
    }
}

/// What is granted to the flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Granted {
    /// It is in force.
    pub coupled: bool,
    /// The aggregate's epoch.
    pub epoch: u32,
    slow_start: bool,
    level: u64,
    ssthresh_level: Option<u64>,
    units: u64,
    /// The window, not rounded.
    pub cwnd_bytes: u64,
    /// The window, in segments.
    pub cwnd: u32,
    ssthresh: u32,
    redivided: bool,
    /// That of one flow in the place of all, in segments.
    aggregate_cwnd: u32,
}

/// The shadow window and what belongs to it.
#[derive(Clone, Copy, Debug)]
pub struct Shadow {
    window: Option<Window>,
    rest: u32,
    epoch: u32,
    /// The inner algorithm's latest factor.
    pub beta: u16,
    reducing: bool,
    charged_us: u64,
    charged: bool,
}

/// A coupled flow.
#[derive(Debug)]
pub struct Guest {
    /// What it is granted.
    pub granted: Granted,
    /// What it reports.
    pub reporter: Reporter,
    /// Its congestion events.
    pub recovery: Recovery,
    /// Its inner algorithm's own window.
    pub shadow: Shadow,
    release: Release,
    slot: u32,
    rounding_offset: u32,
    ramp: u16,
    shed: u8,
    rest: u8,
    joining: bool,
    /// Until then at the latest its window is spread over a round trip.
    paced_until_us: Option<u64>,
    /// Less than two segments are spread over more than a round trip.
    pub spread: bool,
    /// What an application writes at a time is paced.
    smooth: bool,
    /// Something else than the window keeps it from sending what it has.
    hindered: bool,
    /// Recovery is over with this ACK.
    recovers: bool,
}

fn shadow_of(cwnd: u32) -> Window {
    let cwnd = cwnd.clamp(1, rules::CWND_MAX);
    Window { cwnd, count: 0, ssthresh: cwnd }
}

impl Guest {
    /// A flow that has data to send takes a slot.
    pub fn attach(env: &mut Env, tcp: &Tcp) -> Guest {
        let slot = env.tenant.take_slot();
        let beta = rules::beta(1, 2, 1 << 15);
        let shadow = Shadow {
            window: None,
            rest: 0,
            epoch: 0,
            beta,
            reducing: false,
            charged_us: 0,
            charged: false,
        };
        let mut guest = Guest {
            granted: Granted::default(),
            reporter: Reporter::new(tcp),
            recovery: Recovery::default(),
            shadow,
            release: Release::default(),
            slot,
            rounding_offset: rules::rounding_offset(slot),
            ramp: 0,
            shed: 0,
            rest: 0,
            joining: false,
            paced_until_us: None,
            spread: false,
            smooth: false,
            recovers: false,
            hindered: false,
        };
        guest.reporter.open(tcp, rules::OPENING_MAX);
        guest.report_first(env, tcp);
        guest
    }

    /// It gives its slot back.
    pub fn detach(&mut self, env: &mut Env, tcp: &Tcp) {
        env.tenant.clock.count(env.flow, &mut self.release, 0, false);
        self.report_last(env, tcp);
        env.tenant.slots[self.slot as usize] = false;
    }

    /// It has data to send, by its last report.
    pub fn is_active(&self) -> bool {
        self.reporter.active
    }

    /// `in_ack_event()`.
    pub fn begin_ack(&mut self, env: &mut Env, tcp: &mut Tcp) {
        self.follow_answer(env, tcp);
        if self.reporter.is_recovering() {
            self.reporter.end_of_data(tcp);
            self.report_update(env, tcp, tcp.state);
        }
    }

    /// `pkts_acked()`.
    pub fn packets_acked(&mut self, env: &mut Env, segments: u32, rtt_us: Option<u32>) {
        let bytes = u64::from(segments) * u64::from(MSS_BYTES);
        env.tenant.clock.tick(&self.release, bytes);
        if let Some(rtt_us) = rtt_us {
            self.reporter.sample_rtt(rtt_us);
        }
    }

    /// `ccc_cwnd_read_grant()`.
    pub fn read_grant(&mut self, env: &mut Env, tcp: &Tcp) -> bool {
        let Granted { coupled: was_coupled, epoch, .. } = self.granted;
        self.refresh(env);
        if !self.granted.coupled {
            self.stop_shadow(env);
            env.tenant.clock.count(env.flow, &mut self.release, 0, false);
            return false;
        }
        if self.awaits_answer(env, tcp) {
            self.granted.cwnd = rules::apply_beta(self.granted.cwnd, self.shadow.beta);
        }
        let units = if self.reporter.active { self.granted.units } else { 0 };
        let paced = self.paced_until_us.is_some();
        let drives = self.reporter.cwnd_limited && !self.joining && !paced;
        env.tenant.clock.count(env.flow, &mut self.release, units, drives);
        if self.granted.redivided {
            self.reporter.restart_rtt();
            self.shed = rules::shed(tcp.window.cwnd, self.granted.cwnd);
            self.ramp = rules::ramp(tcp.window.cwnd, self.granted.cwnd);
            if self.granted.cwnd > tcp.window.cwnd && tcp.state == State::Open {
                self.start_pacing(env, tcp);
            }
        } else if self.granted.epoch != epoch {
            self.shed = 0;
        }
        self.follow_epoch(env, was_coupled);
        true
    }

    fn refresh(&mut self, env: &mut Env) {
        let before = self.granted;
        let grant = env.host.grant(env.vm);
        let deaf = env.lies.is_some_and(|lies| lies.deaf != 0);
        if !env.host.is_accepted(env.now, env.flow) || deaf {
            self.granted.coupled = false;
            return;
        }
        env.tenant.watch_epoch(env.now_us(), grant.epoch);
        let lie_us = env.lies.map(|lies| lies.rtt_us).filter(|rtt_us| *rtt_us != 0);
        let srtt_us = lie_us.unwrap_or(self.reporter.srtt_us);
        let units = rules::grant_units(env.priority, srtt_us, grant.rate_shares);
        let offset = self.rounding_offset.wrapping_add(grant.rounding_offset);
        let part = |level| rules::grant_packets(level, units, MSS_BYTES, offset);
        let now = Granted {
            coupled: grant.coupled,
            epoch: grant.epoch,
            slow_start: grant.slow_start,
            level: grant.level,
            ssthresh_level: grant.ssthresh_level,
            redivided: grant.epoch == before.epoch
                && !grant.slow_start
                && rules::level_jumps(before.level, grant.level),
            ..before
        };
        self.granted = now;
        if grant.coupled {
            self.granted.units = units;
            self.granted.cwnd_bytes = rules::grant_bytes(grant.level, units);
            self.granted.cwnd = part(grant.level);
            let of_one = rules::grant_units(rules::PRIORITY_ONE, srtt_us, grant.rate_shares);
            self.granted.aggregate_cwnd =
                rules::grant_packets(grant.aggregate_level, of_one, MSS_BYTES, 0);
            self.granted.ssthresh = grant.ssthresh_level.map_or(UNSET, |level| part(level).max(2));
        }
    }

    fn set_cwnd(&self, tcp: &mut Tcp, cwnd: u32) {
        let cwnd = cwnd.clamp(1, rules::CWND_MAX);
        let window = &mut tcp.window;
        window.cwnd = cwnd;
        window.count = window.count.min(cwnd - 1);
        let ssthresh = self.granted.ssthresh;
        window.ssthresh = if self.granted.slow_start { ssthresh } else { ssthresh.min(cwnd) };
    }

    fn follow_ack_clock(&mut self, env: &mut Env, tcp: &Tcp) {
        if self.granted.cwnd <= tcp.window.cwnd {
            self.joining = false;
        }
        let waits = self.reporter.cwnd_limited || self.reporter.opening > 0;
        if waits && (self.joining || self.granted.slow_start) {
            env.tenant.clock.wait(env.flow, &mut self.release, 0);
        } else {
            env.tenant.clock.stop(env.flow, &mut self.release);
        }
    }

    fn leaps(&self, tcp: &Tcp, acked: u32) -> bool {
        let used = tcp.window.cwnd.min(tcp.in_flight + acked);
        acked > 0
            && self.reporter.cwnd_limited
            && tcp.state == State::Open
            && rules::leaps(used, self.granted.cwnd)
    }

    /// `ccc_cwnd_update()`.
    fn update_cwnd(&mut self, env: &mut Env, tcp: &mut Tcp, acked: u32) {
        if !self.read_grant(env, tcp) {
            return;
        }
        self.follow_phase(env);
        if self.leaps(tcp, acked) {
            self.start_pacing(env, tcp);
        }
        if self.is_paced(env, tcp, acked) {
            self.follow_pace(tcp);
        } else {
            let cwnd = self.next_cwnd(tcp, acked);
            self.set_cwnd(tcp, cwnd);
            if acked > 0 {
                self.follow_timing(env, tcp);
            }
        }
        self.follow_ack_clock(env, tcp);
    }

    fn follow_timing(&mut self, env: &Env, tcp: &mut Tcp) {
        let slow_start = self.granted.slow_start;
        let limited = self.reporter.cwnd_limited;
        let rtt_us = if limited && !slow_start { tcp.rtt_us } else { 0 };
        let gap_us = rules::spread_us(self.granted.cwnd_bytes, MSS_BYTES, rtt_us);
        self.spread = gap_us > 0;
        self.smooth = rules::is_smooth(tcp.window.cwnd, limited, slow_start);
        if self.spread {
            let delivered = tcp.delivered_segments as u32;
            let gap_us = rules::spread_apart_us(gap_us, rtt_us, self.rounding_offset, delivered);
            tcp.paced_ns = Some(0);
            tcp.paced_until_ns = env.now + u64::from(gap_us) * 1000;
        } else if self.smooth {
            tcp.paced_ns = Some(tcp.own_pace_ns());
        } else {
            tcp.paced_ns = None;
        }
    }

    fn start_pacing(&mut self, env: &Env, tcp: &Tcp) {
        let until_us = env.now_us() + rules::PACED_RTTS * u64::from(tcp.srtt_us);
        self.paced_until_us.get_or_insert(until_us);
    }

    fn follow_pace(&self, tcp: &mut Tcp) {
        let most = rules::JOIN_MAX.max(tcp.window.cwnd);
        // Its ACKs give up the rest.
        let granted = self.granted.cwnd.max(tcp.in_flight).clamp(rules::JOIN_PACKETS, most);
        let paced = rules::opening_pace(self.reporter.opening, granted);
        let rate = rules::pacing_rate(paced, MSS_BYTES, tcp.srtt_us).max(1);
        tcp.paced_ns = Some(u64::from(MSS_BYTES) * 1_000_000_000 / rate);
        self.set_cwnd(tcp, granted);
    }

    fn is_paced(&mut self, env: &Env, tcp: &mut Tcp, acked: u32) -> bool {
        let Some(until_us) = self.paced_until_us else { return false };
        let used = tcp.in_flight + acked;
        if used < self.granted.cwnd && env.now_us() < until_us {
            return true;
        }
        self.paced_until_us = None;
        self.hindered = acked > 0 && used < self.granted.cwnd && tcp.unsent_bytes() > 0;
        tcp.paced_ns = None;
        if acked == 0 || Guest::fills(tcp) {
            tcp.window.cwnd = tcp.window.cwnd.min(used.max(INITIAL_SEGMENTS));
        }
        false
    }

    /// `ccc_cwnd_is_held()`.
    fn is_held(&mut self, tcp: &Tcp) -> bool {
        self.hindered &= tcp.unsent_bytes() > 0;
        self.paced_until_us.is_some() || self.smooth && !self.hindered && Guest::fills(tcp)
    }

    fn fills(tcp: &Tcp) -> bool {
        rules::fills(tcp.window.cwnd, tcp.in_flight, tcp.unsent_bytes(), MSS_BYTES)
    }

    /// `ccc_cwnd_wake()`, and what the report is told of it.
    fn wake(&mut self, env: &Env, tcp: &Tcp) -> bool {
        let Granted { coupled, slow_start, cwnd, .. } = self.granted;
        let wakes = coupled
            && !slow_start
            && tcp.state == State::Open
            && rules::wakes(tcp.in_flight, cwnd, tcp.unsent_bytes(), MSS_BYTES);
        if wakes {
            self.paced_until_us = None;
            self.start_pacing(env, tcp);
            self.reporter.wake();
        }
        wakes
    }

    fn next_cwnd(&mut self, tcp: &Tcp, acked: u32) -> u32 {
        let (before, granted) = (tcp.window.cwnd, self.granted.cwnd);
        if granted >= before {
            self.shed = 0;
        }
        self.ramp = rules::ramp_on(before, granted, self.ramp);
        let limited = self.reporter.cwnd_limited;
        let rest = &mut self.rest;
        match self.shed {
            0 => {
                let in_flight = rules::ramp_in_flight(before, tcp.in_flight, acked, limited);
                rules::ramp_cwnd(before, granted, in_flight, acked, self.ramp, rest)
            }
            shed => {
                let before = before.min(tcp.in_flight + acked);
                rules::shed_cwnd(before, granted, acked, shed, rest)
            }
        }
    }

    /// `ccc_report_resume()`, and what goes before it.
    pub fn resume(&mut self, env: &mut Env, tcp: &Tcp) {
        if env.now.saturating_sub(tcp.last_send_ns) / 1000 > tcp.rto_us() {
            self.stop_shadow(env);
        }
        if !self.reporter.active {
            self.reporter.open(tcp, self.most_at_once());
        }
        self.report_resume(env, tcp);
    }

    /// `most()` of opening.c.
    fn most_at_once(&self) -> u32 {
        if self.granted.coupled { self.granted.cwnd } else { rules::OPENING_MAX }
    }

    /// `take_window()` of tcp.c.
    pub fn take_window(&mut self, env: &mut Env, tcp: &mut Tcp, joins: bool) {
        if tcp.state != State::Open {
            return;
        }
        self.update_cwnd(env, tcp, 0);
        if !joins {
            return;
        }
        self.reporter.open_again(tcp, self.most_at_once());
        self.report_update(env, tcp, tcp.state);
        if self.reporter.opening != 1 {
            self.join(env, tcp);
        }
    }

    /// `ccc_cwnd_join()`.
    fn join(&mut self, env: &mut Env, tcp: &mut Tcp) {
        if !self.granted.coupled || self.granted.slow_start {
            return;
        }
        if !env.tenant.clock.runs(&self.release) {
            self.start_pacing(env, tcp);
            self.follow_pace(tcp);
            return;
        }
        let first = rules::JOIN_PACKETS.max(env.burst_segments.min(self.granted.cwnd));
        let cwnd = tcp.window.cwnd.min(first);
        self.set_cwnd(tcp, cwnd);
        self.joining = cwnd < self.granted.cwnd;
        if self.joining {
            env.tenant.clock.wait(env.flow, &mut self.release, cwnd);
        }
    }

    /// `open_sender()` of tcp.c.
    fn write_more(&mut self, env: &mut Env, tcp: &mut Tcp) {
        if self.reporter.opening == 1 {
            self.take_window(env, tcp, true);
            return;
        }
        self.reporter.open_again(tcp, self.most_at_once());
        self.report_update(env, tcp, tcp.state);
    }

    /// `ccc_cwnd_release()`.
    pub fn release(&mut self, env: &mut Env, tcp: &mut Tcp) {
        let paced = self.paced_until_us.is_some();
        let may_wake = self.smooth
            && !paced
            && self.reporter.active
            && !self.reporter.cwnd_limited
            && self.reporter.opening == 0;
        if may_wake && self.is_held(tcp) && self.wake(env, tcp) {
            self.report_update(env, tcp, tcp.state);
        }
        if rules::opening_grows(self.reporter.opening, tcp.written_bytes(), MSS_BYTES) {
            self.write_more(env, tcp);
        }
        if self.paced_until_us.is_some() && tcp.state == State::Open && self.read_grant(env, tcp) {
            self.follow_pace(tcp);
            return;
        }
        if !self.release.waits {
            return;
        }
        // A burst stands for as many calls as it has segments.
        let most = rules::RAMP_MAX * env.burst_segments;
        let packets = env.tenant.clock.take(env.flow, &mut self.release, most);
        let cwnd = tcp.window.cwnd;
        let has_room = tcp.in_flight + env.burst_segments <= cwnd;
        if packets == 0 || has_room || tcp.state != State::Open || !self.read_grant(env, tcp) {
            return;
        }
        self.set_cwnd(tcp, cwnd.max(self.granted.cwnd.min(cwnd + packets)));
        self.follow_ack_clock(env, tcp);
    }

    /// `ccc_tcp_cong_avoid()`.
    pub fn congestion_avoidance(&mut self, env: &mut Env, tcp: &mut Tcp, acked: u32) {
        // What was held back in recovery would leave as one burst, too.
        let is_paced = self.paced_until_us.is_some();
        let wakes = self.recovers || !self.reporter.cwnd_limited && !is_paced;
        self.recovers = false;
        let limited = tcp.is_cwnd_limited() || self.is_held(tcp);
        let before = tcp.window.cwnd;
        let growth = if limited { self.grow(env, tcp, acked) } else { 0 };
        self.reporter.acked(tcp, acked, growth, limited);
        self.go_on_opening(tcp);
        if self.granted.coupled && tcp.state != State::Loss {
            tcp.window.cwnd = before;
        }
        if wakes && self.reporter.cwnd_limited {
            self.wake(env, tcp);
        }
        self.report_update(env, tcp, tcp.state);
        if tcp.state != State::Loss {
            self.update_cwnd(env, tcp, acked);
        }
    }

    /// `ccc_opening_acked()`.
    fn go_on_opening(&mut self, tcp: &Tcp) {
        if self.reporter.opening == 0 {
            return;
        }
        self.reporter.opening = match tcp.unsent_bytes() {
            0 => 0,
            _ => rules::opening(tcp.written_bytes(), MSS_BYTES, self.most_at_once()),
        };
        self.reporter.cwnd_limited &= self.reporter.opening == 0;
    }

    /// `ccc_cwnd_after_event()`.
    pub fn cwnd_after_event(&self, tcp: &Tcp, state: State) -> u32 {
        let granted = &self.granted;
        let has_threshold = granted.ssthresh_level.is_some();
        let mut target = granted.cwnd;
        if state == State::Loss && granted.slow_start && has_threshold {
            target = target.max(granted.ssthresh);
        }
        target.clamp(2, tcp.prior_cwnd.max(2))
    }

    /// `ccc_shadow_grow()`: the packets by which the inner algorithm grew, modulo 2^32.
    fn grow(&mut self, env: &mut Env, tcp: &mut Tcp, acked: u32) -> u32 {
        let before = tcp.window.cwnd;
        let Some(mut window) = self.shadow.window else {
            let slow_start = tcp.window.in_slow_start();
            env.grow_alone(tcp, acked);
            let grown = tcp.window.cwnd.saturating_sub(before);
            return if slow_start { 0 } else { grown };
        };
        let scaled = rules::scale_acked(acked, window.cwnd, before, &mut self.shadow.rest);
        let was = window.cwnd;
        let (now_s, min_rtt_s) = (env.now as f64 / 1e9, f64::from(tcp.min_rtt_us) / 1e6);
        env.inner.grow(&mut window, scaled, now_s, min_rtt_s);
        window.cwnd = window.cwnd.clamp(1, rules::CWND_MAX);
        window.ssthresh = window.ssthresh.min(window.cwnd);
        self.shadow.window = Some(window);
        window.cwnd.wrapping_sub(was)
    }

    fn stop_shadow(&mut self, env: &mut Env) {
        if let Some(window) = self.shadow.window.take() {
            env.inner.ssthresh(window.cwnd);
        }
    }

    fn follow_phase(&mut self, env: &Env) {
        if self.granted.slow_start {
            self.shadow.window = None;
        } else if self.shadow.window.is_none() {
            let whole = if env.inner.is_by_size() { self.granted.aggregate_cwnd } else { 0 };
            self.shadow.window = Some(shadow_of(self.granted.cwnd.max(whole)));
            self.shadow.rest = 0;
            self.shadow.reducing = false;
        }
    }

    fn follow_epoch(&mut self, env: &mut Env, was_coupled: bool) {
        let shadow = &mut self.shadow;
        let same = shadow.epoch == self.granted.epoch;
        let follow = was_coupled && !shadow.charged && !same;
        if !was_coupled || !same {
            shadow.charged = false;
        }
        shadow.epoch = self.granted.epoch;
        if !follow {
            return;
        }
        let cwnd = shadow.window.map_or(self.granted.cwnd, |window| window.cwnd);
        let ssthresh = env.inner.ssthresh(cwnd);
        if shadow.window.is_some() {
            shadow.window = Some(shadow_of(ssthresh.min(cwnd)));
        }
    }

    /// `ccc_shadow_ssthresh()`.
    pub fn shadow_ssthresh(&mut self, env: &mut Env, tcp: &Tcp) -> u32 {
        let cwnd = tcp.window.cwnd;
        let Some(window) = &mut self.shadow.window else {
            let ssthresh = env.inner.ssthresh(cwnd);
            self.shadow.beta = rules::beta(ssthresh, cwnd, self.shadow.beta);
            return ssthresh;
        };
        window.ssthresh = env.inner.ssthresh(window.cwnd);
        self.shadow.reducing = true;
        self.shadow.beta = rules::beta(window.ssthresh, window.cwnd, self.shadow.beta);
        rules::apply_beta(cwnd, self.shadow.beta).max(2)
    }

    /// `ccc_shadow_charge()`.
    pub fn charge_shadow(&mut self, env: &mut Env, tcp: &Tcp) {
        if !self.shadow.charged {
            self.shadow_ssthresh(env, tcp);
        }
        self.shadow.charged = true;
        self.shadow.charged_us = env.now_us();
    }

    /// `ccc_shadow_awaits()`.
    pub fn awaits_answer(&self, env: &Env, tcp: &Tcp) -> bool {
        let Shadow { charged, charged_us, epoch, .. } = self.shadow;
        let patience_us = (rules::ANSWER_RTTS * u64::from(tcp.srtt_us)).max(rules::ANSWER_MIN_US);
        charged && epoch == self.granted.epoch && env.now_us() - charged_us < patience_us
    }

    /// `follow_answer()` of recovery.c.
    fn follow_answer(&mut self, env: &mut Env, tcp: &mut Tcp) {
        if tcp.state == State::Open || !self.shadow.charged {
            return;
        }
        if self.read_grant(env, tcp) && !self.shadow.charged {
            tcp.window.ssthresh = self.cwnd_after_event(tcp, tcp.state);
        }
    }

    /// `ccc_shadow_set_state()`.
    pub fn shadow_set_state(&mut self, state: State) {
        let shadow = &mut self.shadow;
        let Some(window) = shadow.window else { return };
        if shadow.reducing {
            shadow.beta = rules::beta(window.ssthresh, window.cwnd, shadow.beta);
            shadow.window = Some(shadow_of(window.ssthresh.min(window.cwnd)));
            shadow.rest = 0;
            shadow.reducing = false;
        }
        if state == State::Loss {
            shadow.window = None;
        }
    }

    /// `set_state()` of recovery.c.
    pub fn set_state(&mut self, env: &mut Env, tcp: &mut Tcp, state: State) {
        self.shadow_set_state(state);
        if state != State::Open {
            env.tenant.clock.stop(env.flow, &mut self.release);
            self.reporter.end_opening();
        }
        self.recovers = state == State::Open && matches!(tcp.state, State::Recovery | State::Cwr);
        let event = self.recovery.count(tcp.state, state);
        self.report_update(env, tcp, state);
        if event && self.read_grant(env, tcp) {
            tcp.window.ssthresh = self.cwnd_after_event(tcp, state);
        }
    }
}
