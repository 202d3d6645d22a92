// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A FIFO that drops at its tail, in steps of a packet's time, and Reno senders around
//! the engine: enough of a network to see what a lie does to others.
#![allow(dead_code, reason = "each test file uses a part")]
use std::collections::VecDeque;

use ccc_core::{CongestionState, FlowId, Grant, GroupConfig, Report, VmId};

use crate::common::{self, Host};

pub const MSS: u32 = 1448;
/// 10 Mbit/s: a packet with its headers takes so long.
pub const PACKET_US: u64 = 1_212;
pub const DELAY_US: u64 = 100_000;
pub const QUEUE: usize = 83;
/// A round trip from which on senders may have less than two segments on their way.
const PAUSES_FROM_US: u64 = 10_000;
/// Reports in a window.
const REPORTS: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct Packet {
    sender: usize,
    sent: u64,
    epoch: u32,
}

/// What happens at a sender.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    Ack(Packet),
    Loss(Packet),
}

/// A flow that always has something to send.
#[derive(Clone, Debug)]
pub struct Sender {
    pub vm: VmId,
    pub id: FlowId,
    pub report: Report,
    /// It sends as much, whatever it is granted.
    pub ignores: Option<u32>,
    /// It says of itself what it likes.
    pub lies: fn(&mut Report),
    /// It tells of losses.
    pub tells_losses: bool,
    pub delivered: u64,
    pub dropped: u64,
    slot: u32,
    inflight: u32,
    grown: u64,
    unreported: u32,
    recovers_until: u64,
}

/// What is between senders and receivers.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub packet_us: u64,
    pub delay_us: u64,
}

impl Path {
    pub const FAR: Path = Path { packet_us: PACKET_US, delay_us: DELAY_US };
    /// 1 Gbit/s in a data centre.
    pub const NEAR: Path = Path { packet_us: 12, delay_us: 2_000 };
}

/// Senders, the host and the path between.
pub struct Net {
    path: Path,
    pub host: Host,
    pub senders: Vec<Sender>,
    pub sent: u64,
    pub dropped: u64,
    queue: VecDeque<Packet>,
    way: VecDeque<(u64, Arrival)>,
    turn: usize,
}

impl Net {
    pub fn new(config: GroupConfig) -> Net {
        Net::on(Path::FAR, config)
    }

    pub fn on(path: Path, config: GroupConfig) -> Net {
        Net {
            path,
            host: Host::with(config),
            senders: Vec::new(),
            sent: 0,
            dropped: 0,
            queue: VecDeque::new(),
            way: VecDeque::new(),
            turn: 0,
        }
    }

    /// A VM with so many flows; the number of the first.
    pub fn vm(&mut self, weight: f64, flows: usize) -> VmId {
        let vm = self.host.vm(weight);
        for slot in 0..flows {
            self.sender(vm, slot as u32);
        }
        vm
    }

    fn sender(&mut self, vm: VmId, slot: u32) {
        let srtt_us = self.path.delay_us as u32;
        let report = Report {
            srtt_us,
            min_rtt_us: srtt_us,
            mss_bytes: MSS as u16,
            cwnd_bytes: 10 * MSS,
            ..common::report(10)
        };
        let id = self.host.flow_of(vm, &report).id;
        self.senders.push(Sender {
            vm,
            id,
            report,
            ignores: None,
            lies: |_| {},
            tells_losses: true,
            delivered: 0,
            dropped: 0,
            slot,
            inflight: 0,
            grown: 0,
            unreported: 0,
            recovers_until: 0,
        });
    }

    pub fn flows_of(&mut self, vm: VmId) -> impl Iterator<Item = &mut Sender> {
        self.senders.iter_mut().filter(move |sender| sender.vm == vm)
    }

    pub fn delivered(&self, vm: VmId) -> u64 {
        self.senders.iter().filter(|sender| sender.vm == vm).map(|sender| sender.delivered).sum()
    }

    /// How long a packet that comes now waits.
    pub fn waits_us(&self) -> u64 {
        self.queue.len() as u64 * self.path.packet_us
    }

    /// Goes on for so many milliseconds.
    pub fn run_ms(&mut self, ms: u64) {
        let end = self.host.now + ms * 1_000;
        while self.host.now < end {
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.host.now;
        if let Some(packet) = self.queue.pop_front() {
            self.way.push_back((now + self.path.delay_us, Arrival::Ack(packet)));
        }
        while self.way.front().is_some_and(|(at, _)| *at <= now) {
            match self.way.pop_front() {
                Some((_, Arrival::Ack(packet))) => self.acknowledge(packet),
                Some((_, Arrival::Loss(packet))) => self.lose(packet),
                None => {}
            }
        }
        // Whoever has room sends, each in turn.
        self.turn = (self.turn + 1) % self.senders.len();
        for i in 0..self.senders.len() {
            self.send((self.turn + i) % self.senders.len());
        }
        self.host.now += self.path.packet_us;
        self.host.engine.tick(self.host.now);
    }

    fn window(&self, i: usize) -> u32 {
        let sender = &self.senders[i];
        let grant = self.host.grant(sender.vm);
        let least = if self.path.delay_us < PAUSES_FROM_US { 2 } else { 1 };
        sender.ignores.unwrap_or_else(|| segments(sender, &grant)).max(least)
    }

    fn send(&mut self, i: usize) {
        let window = self.window(i);
        let packet = Packet { sender: i, sent: self.host.now, epoch: self.host.epoch() };
        // At most a burst of two for each packet that leaves, as an ACK clock does.
        for _ in 0..2 {
            if self.senders[i].inflight >= window {
                return;
            }
            self.senders[i].inflight += 1;
            self.sent += 1;
            if self.queue.len() < QUEUE {
                self.queue.push_back(packet);
            } else {
                self.dropped += 1;
                self.senders[i].dropped += 1;
                let waits = QUEUE as u64 * self.path.packet_us;
                let at = self.host.now + waits + self.path.delay_us;
                let place = self.way.partition_point(|(other, _)| *other <= at);
                self.way.insert(place, (at, Arrival::Loss(packet)));
            }
        }
    }

    fn acknowledge(&mut self, packet: Packet) {
        let window = self.window(packet.sender);
        let grant = self.host.grant(self.senders[packet.sender].vm);
        let now = self.host.now;
        let sender = &mut self.senders[packet.sender];
        sender.inflight -= 1;
        sender.delivered += u64::from(MSS);
        let rtt_us = (now - packet.sent) as u32;
        let report = &mut sender.report;
        report.srtt_us = report.srtt_us - report.srtt_us / 8 + rtt_us / 8;
        report.rtt_us = rtt_us;
        report.cwnd_bytes = window * MSS;
        report.inflight_bytes = sender.inflight * MSS;
        report.delivered_bytes += u64::from(MSS);
        if now >= sender.recovers_until {
            report.state = match grant.slow_start {
                true => CongestionState::SlowStart,
                false => CongestionState::Avoidance,
            };
            report.acked_limited_bytes += u64::from(MSS);
            let needed = if grant.slow_start { 1 } else { u64::from(window) };
            sender.grown += 1;
            if sender.grown >= needed {
                sender.grown = 0;
                report.cwnd_growth_bytes = report.cwnd_growth_bytes.wrapping_add(MSS);
            }
        }
        sender.unreported += 1;
        if sender.unreported * REPORTS >= window {
            self.tell(packet.sender);
        }
    }

    fn lose(&mut self, packet: Packet) {
        let now = self.host.now;
        let sender = &mut self.senders[packet.sender];
        sender.inflight -= 1;
        if now < sender.recovers_until || !sender.tells_losses {
            return;
        }
        sender.recovers_until = now + u64::from(sender.report.srtt_us);
        sender.report.state = CongestionState::Recovery;
        sender.report.congestion_events = sender.report.congestion_events.wrapping_add(1);
        sender.report.congestion_epoch = packet.epoch;
        self.tell(packet.sender);
    }

    /// Reports how a sender stands.
    pub fn tell(&mut self, i: usize) {
        let sender = &mut self.senders[i];
        sender.unreported = 0;
        let mut report = sender.report;
        (sender.lies)(&mut report);
        self.host.engine.update(self.host.now, sender.id, &report).expect("a known flow");
    }
}

fn segments(sender: &Sender, grant: &Grant) -> u32 {
    let mut told = sender.report;
    (sender.lies)(&mut told);
    let bytes = grant.cwnd_bytes(common::units(&told, grant.rate_shares));
    let wide = bytes * 65_536 / u64::from(MSS);
    let offset = sender.slot.reverse_bits().wrapping_add(grant.rounding_offset) >> 16;
    ((wide + u64::from(offset)) >> 16).min(1 << 20) as u32
}
