// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a sender is in: its guest's module, the other flows of its VM, the path, and
//! the engine.  Its methods are what TCP calls in `guest/linux-ccc/tcp.c`.
use crate::{
    guest::{Guest, Tenant},
    host::Host,
    inner::Inner,
    lies::Lies,
    path::{Nanos, Path},
    tcp::{State, Tcp},
};

/// Everything beside the sender itself.
pub struct Env<'a> {
    /// The present time.
    pub now: Nanos,
    /// Number of the flow.
    pub flow: usize,
    /// Number of its VM.
    pub vm: usize,
    /// Whether its VM has a device.
    pub has_device: bool,
    /// What its VM lies.
    pub lies: Option<&'a Lies>,
    /// Its priority, of 256.
    pub priority: u16,
    /// Segments sent at a time.
    pub burst_segments: u32,
    /// Its inner algorithm.
    pub inner: &'a mut Inner,
    /// Its part of the module, once it has sent.
    pub guest: &'a mut Option<Guest>,
    /// Its VM's part of the module.
    pub tenant: &'a mut Tenant,
    /// The daemon.
    pub host: &'a mut Host,
    /// Where packets go.
    pub path: &'a mut Path,
}

impl Env<'_> {
    /// The module's clock.
    pub fn now_us(&self) -> u64 {
        self.now / 1000
    }

    /// Runs a rule of the module, if the flow has a part in it.
    fn guest<T>(&mut self, rule: impl FnOnce(&mut Guest, &mut Self) -> T) -> Option<T> {
        let mut guest = self.guest.take()?;
        let result = rule(&mut guest, self);
        *self.guest = Some(guest);
        Some(result)
    }

    /// `in_ack_event()`.
    pub fn begin_ack(&mut self, tcp: &mut Tcp) {
        self.guest(|guest, env| guest.begin_ack(env, tcp));
    }

    /// `pkts_acked()`.
    pub fn packets_acked(&mut self, tcp: &mut Tcp, segments: u32, rtt_us: Option<u32>) {
        if let Some(sample) = rtt_us.map(|rtt_us| tcp.hystart_sample(self.now, rtt_us)) {
            self.inner.acked(&mut tcp.window, sample);
        }
        self.guest(|guest, env| guest.packets_acked(env, segments, rtt_us));
    }

    /// `ssthresh()`.
    pub fn ssthresh(&mut self, tcp: &mut Tcp) -> u32 {
        let coupled = self.guest(|guest, env| guest.ssthresh(env, tcp));
        coupled.unwrap_or_else(|| self.inner.ssthresh(tcp.window.cwnd))
    }

    /// `set_state()`, and the change itself.
    pub fn set_state(&mut self, tcp: &mut Tcp, state: State) {
        if state == State::Loss {
            self.inner.reset();
        }
        self.guest(|guest, env| guest.set_state(env, tcp, state));
        tcp.state = state;
    }

    /// `cong_avoid()`.
    pub fn congestion_avoidance(&mut self, tcp: &mut Tcp, acked: u32) {
        if self.guest(|guest, env| guest.congestion_avoidance(env, tcp, acked)).is_none()
            && tcp.is_cwnd_limited()
        {
            self.grow_alone(tcp, acked);
        }
    }

    /// The inner algorithm on the flow's own window.
    pub fn grow_alone(&mut self, tcp: &mut Tcp, acked: u32) {
        let min_rtt_s = f64::from(tcp.min_rtt_us) / 1e6;
        self.inner.grow(&mut tcp.window, acked, self.now as f64 / 1e9, min_rtt_s);
    }

    /// `cwnd_event_tx_start()`: data leaves, and nothing was in flight.
    pub fn tx_start(&mut self, tcp: &mut Tcp) {
        if !self.has_device {
            return;
        }
        let joins = self.guest.as_ref().is_none_or(|guest| !guest.is_active());
        if self.guest.is_none() {
            *self.guest = Some(Guest::attach(self, tcp));
        } else {
            self.guest(|guest, env| guest.resume(env, tcp));
        }
        self.guest(|guest, env| guest.take_window(env, tcp, joins));
    }

    /// `min_tso_segs()`, which TCP asks before it sends.
    pub fn before_send(&mut self, tcp: &mut Tcp) {
        self.guest(|guest, env| guest.release(env, tcp));
    }
}
