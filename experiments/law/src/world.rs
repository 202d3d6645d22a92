// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One run: senders, receivers and the daemon around the bottleneck, in the order of
//! their events.
use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    env::Env,
    guest::{Guest, Tenant},
    host::{Doorbell, Host},
    inner::Inner,
    lies::EmptySlots,
    measure::{Recorder, Run},
    path::{Departure, MSS_BYTES, Nanos, Packet, Path},
    receiver::{Ack, DELAYED_ACK_NS, Receiver},
    setup::{FlowSetup, Setup},
    steady::{self, Steady},
    taps::{self, Judged, Taps},
    tcp::Tcp,
};

/// An application with a rate writes as often (as the laboratory's).
const WRITE_NS: Nanos = 10_000_000;
/// And leaves at most so much unsent.
const UNSENT_BYTES: u64 = 128 << 10;
/// Nothing is measured of runs that are watched.
const WATCHED_INTERVAL_NS: Nanos = 1_000_000_000;
/// A connection that gets no answer tries again after that.
const CONNECT_AGAIN_NS: Nanos = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Connect(usize),
    Connected(usize, Nanos),
    Acknowledge { flow: usize, transmission: u64, before: Option<u64> },
    DelayedAck { flow: usize, transmission: u64 },
    Timer(usize),
    Write(usize),
    Stop(usize),
    Look,
    Rate(u64),
    Delay { vm: usize, delay_ns: Nanos },
    Weight { vm: usize, change: usize },
    Lie(usize),
    Kill,
    Start,
    Taps,
    Steady,
    Sample,
}

struct Flow {
    setup: FlowSetup,
    inner: Inner,
    tcp: Option<Tcp>,
    guest: Option<Guest>,
    receiver: Receiver,
    /// Segments that the application has not written yet; none: no end.
    left_segments: Option<u64>,
    unwritten_bits: u64,
    timer_at: Option<Nanos>,
    connecting_ns: Nanos,
    ended: bool,
}

/// The state of a run.
pub struct World<'a> {
    setup: &'a Setup,
    coupled: bool,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    number: u64,
    flows: Vec<Flow>,
    tenants: Vec<Tenant>,
    empty_slots: Vec<EmptySlots>,
    delays_ns: Vec<Nanos>,
    host: Host,
    path: Path,
    recorder: Recorder,
    taps: Option<Taps>,
    steady: Option<Steady>,
}

/// Runs a setup to its end.
pub fn run(setup: &Setup, coupled: bool, interval_ns: Nanos) -> Run {
    let mut world = World::new(setup, coupled, interval_ns);
    world.begin();
    world.go_on();
    world.end()
}

/// The same, coupled, with taps that judge; what they have seen.
pub fn watch(setup: &Setup) -> Taps {
    let mut world = World::new(setup, true, WATCHED_INTERVAL_NS);
    world.put_taps();
    world.begin();
    world.go_on();
    world.taps.unwrap_or_default()
}

/// A long life: its numbers by seconds, whether it went on, and whom taps have judged.
pub fn live(setup: &Setup, coupled: bool) -> (Run, Steady, Vec<Judged>) {
    let mut world = World::new(setup, coupled, steady::SECOND_NS);
    world.recorder.skip_windows();
    if coupled {
        world.put_taps();
    }
    world.steady = Some(Steady::default());
    world.at(steady::PERIOD_NS, Event::Steady);
    world.begin();
    world.go_on();
    let steady = world.steady.take().unwrap_or_default();
    let taps = world.taps.take().unwrap_or_default();
    (world.end(), steady, taps.judged)
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup, coupled: bool, interval_ns: Nanos) -> World<'a> {
        let weights = setup.vms.iter().map(|vm| vm.weight).collect();
        let flow = |flow: &FlowSetup| Flow {
            setup: flow.clone(),
            inner: flow.inner,
            tcp: None,
            guest: None,
            receiver: Receiver::default(),
            left_segments: flow.segments,
            unwritten_bits: 0,
            timer_at: None,
            connecting_ns: 0,
            ended: false,
        };
        World {
            setup,
            coupled,
            now: 0,
            events: BinaryHeap::new(),
            number: 0,
            flows: setup.flows.iter().map(flow).collect(),
            tenants: setup.vms.iter().map(|_| Tenant::default()).collect(),
            empty_slots: vec![EmptySlots::default(); setup.vms.len()],
            delays_ns: setup.vms.iter().map(|vm| vm.delay_ns).collect(),
            host: Host::new(setup.group, weights, setup.slots(), setup.doorbell_ns),
            path: Path::new(
                setup.rate_bit,
                setup.limit_segments,
                setup.vms.iter().map(|vm| vm.link),
            ),
            recorder: Recorder::new(setup, interval_ns),
            taps: None,
            steady: None,
        }
    }

    fn put_taps(&mut self) {
        self.taps = Some(Taps::default());
        self.at(taps::PERIOD_NS, Event::Taps);
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn begin(&mut self) {
        let setup = self.setup;
        for (number, flow) in setup.flows.iter().enumerate() {
            self.at(flow.start_ns, Event::Connect(number));
            if let Some(stop_ns) = flow.stop_ns {
                self.at(stop_ns, Event::Stop(number));
            }
        }
        for (at, rate_bit) in &setup.rate_changes {
            self.at(*at, Event::Rate(*rate_bit));
        }
        for (vm, delays) in setup.vms.iter().enumerate() {
            for (at, delay_ns) in &delays.delay_changes {
                self.at(*at, Event::Delay { vm, delay_ns: *delay_ns });
            }
        }
        for (change, (at, vm, _)) in setup.weight_changes.iter().enumerate() {
            self.at(*at, Event::Weight { vm: *vm, change });
        }
        for restart in &setup.restarts {
            self.at(restart.killed_ns, Event::Kill);
            self.at(restart.started_ns, Event::Start);
        }
        for (vm, liar) in setup.vms.iter().enumerate() {
            if let Some(lies) = liar.lies.as_ref().filter(|_| self.coupled) {
                self.at(lies.period_ns(), Event::Lie(vm));
            }
        }
        self.at(self.recorder.sample_ns(), Event::Sample);
    }

    fn go_on(&mut self) {
        loop {
            let next = self.events.peek().map(|Reverse((at, ..))| *at);
            let departs_at = self.path.departs_at();
            let Some(at) = next.into_iter().chain(departs_at).min() else { return };
            if at >= self.setup.duration_ns {
                return;
            }
            self.now = at;
            if departs_at == Some(at) {
                self.depart();
            } else if let Some(Reverse((.., event))) = self.events.pop() {
                self.handle(event);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connect(flow) => self.connect(flow),
            Event::Connected(flow, since) => self.connected(flow, since),
            Event::Acknowledge { flow, transmission, before } => {
                let ack = Ack { transmission, before };
                self.with(flow, |tcp, env| tcp.acknowledge(env, ack));
                self.close_if_done(flow);
            }
            Event::DelayedAck { flow, transmission } => {
                if let Some(ack) = self.flows[flow].receiver.delayed(transmission) {
                    self.send_back(flow, ack);
                }
            }
            Event::Timer(flow) => self.tick(flow),
            Event::Write(flow) => self.write(flow),
            Event::Stop(flow) => self.close(flow),
            Event::Look => self.host.look(self.now),
            Event::Rate(rate_bit) => self.path.set_rate(rate_bit),
            Event::Delay { vm, delay_ns } => self.delays_ns[vm] = delay_ns,
            Event::Weight { vm, change } => {
                self.host.set_weight(vm, self.setup.weight_changes[change].2);
            }
            Event::Lie(vm) => self.lie(vm),
            Event::Kill => self.host.kill(self.now),
            Event::Start => self.start_daemon(),
            Event::Taps => self.look_at_taps(),
            Event::Steady => self.look_at_flows(),
            Event::Sample => self.sample(),
        }
    }

    /// Calls a sender, and then all whom that has released.
    fn with(&mut self, flow: usize, call: impl FnOnce(&mut Tcp, &mut Env)) {
        self.call(flow, call);
        let vm = self.flows[flow].setup.vm;
        while !self.tenants[vm].clock.released.is_empty() {
            let released = self.tenants[vm].clock.released.remove(0);
            self.call(released, |tcp, env| tcp.transmit(env));
        }
        self.look_in_time();
    }

    fn look_in_time(&mut self) {
        if let Some(at) = self.host.looks_at.filter(|at| *at > self.now) {
            // Asked for once: the next doorbell finds the time set.
            if self.recorder.asked_look != Some(at) {
                self.recorder.asked_look = Some(at);
                self.at(at, Event::Look);
            }
        }
    }

    fn call(&mut self, number: usize, call: impl FnOnce(&mut Tcp, &mut Env)) {
        let flow = &mut self.flows[number];
        let Some(tcp) = flow.tcp.as_mut().filter(|_| !flow.ended) else { return };
        let vm = flow.setup.vm;
        let mut env = Env {
            now: self.now,
            flow: number,
            vm,
            has_device: self.coupled && self.setup.vms[vm].has_device,
            lies: self.setup.vms[vm].lies.as_ref(),
            priority: flow.setup.priority,
            burst_segments: self.setup.burst_segments,
            inner: &mut flow.inner,
            guest: &mut flow.guest,
            tenant: &mut self.tenants[vm],
            host: &mut self.host,
            path: &mut self.path,
        };
        call(tcp, &mut env);
        if let Some(at) = tcp.timer_at() {
            if flow.timer_at.is_none_or(|pending| at < pending) {
                flow.timer_at = Some(at);
                self.at(at, Event::Timer(number));
            }
        }
    }

    fn tick(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        if flow.timer_at.is_some_and(|pending| pending <= self.now) {
            flow.timer_at = None;
        }
        self.with(number, |tcp, env| tcp.tick(env));
    }

    fn connect(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        if flow.tcp.is_some() || flow.ended {
            return;
        }
        flow.connecting_ns = self.now;
        let vm = flow.setup.vm;
        if let Some(steady) = &mut self.steady {
            steady.opened(self.now, number);
        }
        let packet = Packet { flow: number, transmission: 0, burst: 0, segments: 0 };
        if !self.path.offer(self.now, vm, packet) {
            self.connect_again(number);
        }
    }

    fn connect_again(&mut self, number: usize) {
        self.at(self.now + CONNECT_AGAIN_NS, Event::Connect(number));
    }

    fn connected(&mut self, number: usize, since: Nanos) {
        let flow = &mut self.flows[number];
        if flow.tcp.is_some() || flow.ended {
            return;
        }
        let rtt_us = ((self.now - since) / 1000).max(1) as u32;
        flow.tcp = Some(Tcp::new(number, self.setup.burst_segments, rtt_us));
        self.write(number);
    }

    /// What the application writes now, and when again.
    fn write(&mut self, number: usize) {
        let now = self.now;
        let flow = &mut self.flows[number];
        let rates = &flow.setup.rates_bit;
        let rate = rates.iter().rfind(|(at, _)| *at <= now).and_then(|(_, rate)| *rate);
        let next_phase = rates.iter().map(|(at, _)| *at).find(|at| *at > now);
        let Some(tcp) = &mut flow.tcp else { return };
        let most = flow.left_segments.unwrap_or(u64::MAX / 2);
        let segments = match rate {
            None => most,
            Some(rate_bit) => {
                flow.unwritten_bits += rate_bit / (1_000_000_000 / WRITE_NS);
                let room = UNSENT_BYTES
                    .saturating_sub(tcp.available_segments.min(1 << 30) * u64::from(MSS_BYTES));
                let whole = flow.unwritten_bits / (8 * u64::from(MSS_BYTES));
                flow.unwritten_bits -= whole * 8 * u64::from(MSS_BYTES);
                whole.min(room / u64::from(MSS_BYTES)).min(most)
            }
        };
        if rate.is_some() && tcp.available_segments > u64::MAX / 4 {
            // It had no limit until now.
            tcp.available_segments = 0;
        }
        flow.left_segments = flow.left_segments.map(|left| left - segments.min(left));
        if tcp.available_segments < u64::MAX / 4 {
            tcp.write(now, segments);
        }
        match rate {
            Some(_) => self.at(now + WRITE_NS, Event::Write(number)),
            None => {
                if let Some(at) = next_phase {
                    self.at(at, Event::Write(number));
                }
            }
        }
        self.with(number, |tcp, env| tcp.transmit(env));
    }

    fn close_if_done(&mut self, number: usize) {
        let flow = &self.flows[number];
        let sent_all = flow.tcp.as_ref().is_some_and(|tcp| !tcp.has_data());
        if sent_all && flow.left_segments == Some(0) && !flow.ended {
            self.recorder.completed(number, self.now - flow.setup.start_ns);
            self.close(number);
        }
    }

    fn close(&mut self, number: usize) {
        self.with(number, |tcp, env| {
            if let Some(mut guest) = env.guest.take() {
                guest.detach(env, tcp);
            }
        });
        let flow = &mut self.flows[number];
        if let Some(tcp) = &flow.tcp {
            self.recorder.closed(number, tcp);
        }
        flow.ended = true;
        flow.tcp = None;
        if let Some(steady) = &mut self.steady {
            steady.closed(number);
        }
    }

    /// A packet has crossed a link.
    fn depart(&mut self) {
        match self.path.depart(self.now) {
            Some(Departure::Arrived(packet)) => self.arrive(packet),
            Some(Departure::Lost(packet)) if packet.segments == 0 => {
                self.connect_again(packet.flow)
            }
            Some(Departure::Lost(_) | Departure::WentOn) | None => {}
        }
    }

    /// It is at the receiver.
    fn arrive(&mut self, packet: Packet) {
        let number = packet.flow;
        let flow = &mut self.flows[number];
        if packet.segments == 0 {
            let at = self.now + self.delays_ns[flow.setup.vm];
            let since = flow.connecting_ns;
            self.at(at, Event::Connected(number, since));
            return;
        }
        let arrival = flow.receiver.arrive(&packet);
        self.recorder.readable(self.now, number, arrival.readable_segments);
        match arrival.ack {
            Some(ack) => self.send_back(number, ack),
            None => {
                let transmission = packet.transmission;
                let event = Event::DelayedAck { flow: number, transmission };
                self.at(self.now + DELAYED_ACK_NS, event);
            }
        }
    }

    fn send_back(&mut self, flow: usize, ack: Ack) {
        let at = self.now + self.delays_ns[self.flows[flow].setup.vm];
        let Ack { transmission, before } = ack;
        self.at(at, Event::Acknowledge { flow, transmission, before });
    }

    /// A hostile VM's slots without a flow say something.
    fn lie(&mut self, vm: usize) {
        let setup = self.setup;
        let Some(lies) = &setup.vms[vm].lies else { return };
        let empty = &mut self.empty_slots[vm];
        empty.next_period(lies);
        let doorbell = if empty.is_first() { Doorbell::Register } else { Doorbell::Update };
        let epoch = self.host.grant(vm).epoch;
        for (number, slot) in setup.empty_slots(vm).enumerate() {
            self.host.write(slot, self.empty_slots[vm].report(lies, number, epoch));
            self.host.ring(self.now, vm, slot, doorbell);
        }
        self.look_in_time();
        self.at(self.now + lies.period_ns(), Event::Lie(vm));
    }

    fn look_at_taps(&mut self) {
        let Some(taps) = &mut self.taps else { return };
        if self.host.is_alive() {
            taps.look(self.now, self.setup, &self.host, &self.path);
        }
        self.at(self.now + taps::PERIOD_NS, Event::Taps);
    }

    fn start_daemon(&mut self) {
        self.host.start(self.now);
        if let Some(taps) = &mut self.taps {
            taps.restart();
        }
    }

    fn look_at_flows(&mut self) {
        let Some(steady) = &mut self.steady else { return };
        let flows = &self.flows;
        steady.look(self.now, |flow| flows[flow].tcp.as_ref(), self.host.flows());
        self.at(self.now + steady::PERIOD_NS, Event::Steady);
    }

    fn sample(&mut self) {
        self.host.tick(self.now);
        let windows = self.flows.iter().map(|flow| flow.tcp.as_ref().map_or(0, |t| t.window.cwnd));
        self.recorder.sample(&self.path, windows, self.host.status().cwnd_bytes);
        self.at(self.now + self.recorder.sample_ns(), Event::Sample);
    }

    fn end(mut self) -> Run {
        for (number, flow) in self.flows.iter().enumerate() {
            if let Some(tcp) = &flow.tcp {
                self.recorder.closed(number, tcp);
            }
        }
        self.recorder.finish(&self.path, &self.host)
    }
}
