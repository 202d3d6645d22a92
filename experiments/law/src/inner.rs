// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Inner algorithms, on a window of their own or on the flow's.
use crate::hystart::{Hystart, Sample};

/// A threshold that was never set (`TCP_INFINITE_SSTHRESH`).
pub const UNSET: u32 = 0x7fff_ffff;
/// RFC 9438: growth of the cubic, and its factor of a reduction.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 717.0 / 1024.0;

/// A congestion window, as TCP keeps it, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// `snd_cwnd`.
    pub cwnd: u32,
    /// Acknowledged segments that have not opened it yet.
    pub count: u32,
    /// `snd_ssthresh`.
    pub ssthresh: u32,
}

impl Window {
    /// One of this size, below no threshold.
    pub fn new(cwnd: u32) -> Window {
        Window { cwnd, count: 0, ssthresh: UNSET }
    }

    /// Slow start goes on.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// What is left of the acknowledged segments above the threshold.
    fn slow_start(&mut self, acked: u32) -> u32 {
        let cwnd = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let used = cwnd - self.cwnd;
        self.cwnd = cwnd;
        acked - used
    }

    /// One segment more for each `per` acknowledged (`tcp_cong_avoid_ai`).
    fn avoid(&mut self, per: u32, acked: u32) {
        let per = per.max(1);
        if self.count >= per {
            self.count = 0;
            self.cwnd += 1;
        }
        self.count += acked;
        if self.count >= per {
            let grown = self.count / per;
            self.count -= grown * per;
            self.cwnd += grown;
        }
    }
}

/// What CUBIC remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cubic {
    epoch_s: Option<f64>,
    most: f64,
    origin: f64,
    k_s: f64,
    friendly: f64,
    hystart: Hystart,
}

/// The algorithm of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inner {
    /// Reno.
    Reno,
    /// CUBIC, with HyStart.
    Cubic(Cubic),
}

/// Why a scenario's algorithm is none that the model has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid congestion control: expected reno or cubic, got '{0}'")]
pub struct UnknownInner(String);

impl std::str::FromStr for Inner {
    type Err = UnknownInner;

    fn from_str(name: &str) -> Result<Inner, UnknownInner> {
        match name {
            "reno" => Ok(Inner::Reno),
            "cubic" => Ok(Inner::Cubic(Cubic::default())),
            other => Err(UnknownInner(other.into())),
        }
    }
}

impl Inner {
    /// Acknowledged segments of a flow that its window limits.
    pub fn grow(&mut self, window: &mut Window, acked: u32, now_s: f64, min_rtt_s: f64) {
        let rest = if window.in_slow_start() { window.slow_start(acked) } else { acked };
        if rest == 0 {
            return;
        }
        let per = match self {
            Inner::Reno => window.cwnd,
            Inner::Cubic(cubic) => cubic.segments_per_one(window.cwnd, rest, now_s, min_rtt_s),
        };
        window.avoid(per, rest);
    }

    /// It grows by the size of its window (`ccc_inner_by_size`).
    pub fn is_by_size(&self) -> bool {
        matches!(self, Inner::Cubic(_))
    }

    /// An ACK has come (`pkts_acked()`).
    pub fn acked(&mut self, window: &mut Window, sample: Sample) {
        let Inner::Cubic(cubic) = self else { return };
        let recovered = cubic.epoch_s.is_some_and(|since| sample.now as f64 / 1e9 - since < 1.0);
        if !recovered {
            cubic.hystart.sample(window, sample);
        }
    }

    /// What the window is reduced to.
    pub fn ssthresh(&mut self, cwnd: u32) -> u32 {
        match self {
            Inner::Reno => (cwnd / 2).max(2),
            Inner::Cubic(cubic) => cubic.reduce(cwnd),
        }
    }

    /// All that is remembered is of another path (a timeout).
    pub fn reset(&mut self) {
        if let Inner::Cubic(cubic) = self {
            *cubic = Cubic::default();
        }
    }
}

impl Cubic {
    fn reduce(&mut self, cwnd: u32) -> u32 {
        let window = f64::from(cwnd);
        self.epoch_s = None;
        // Fast convergence: who is below what it had leaves room.
        self.most = if window < self.most { window * (1.0 + CUBIC_BETA) / 2.0 } else { window };
        ((window * CUBIC_BETA) as u32).max(2)
    }

    fn segments_per_one(&mut self, cwnd: u32, acked: u32, now_s: f64, min_rtt_s: f64) -> u32 {
        let window = f64::from(cwnd);
        let since = *self.epoch_s.get_or_insert_with(|| {
            self.friendly = window;
            self.origin = window.max(self.most);
            self.k_s = ((self.origin - window) / CUBIC_C).cbrt();
            now_s
        });
        let at = now_s - since + min_rtt_s - self.k_s;
        let target = self.origin + CUBIC_C * at * at * at;
        let mut per = if target > window { window / (target - window) } else { 100.0 * window };
        if self.most == 0.0 {
            per = per.min(20.0);
        }
        // As fast as a TCP of the same factor, at the least.
        let alpha = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
        self.friendly += alpha * f64::from(acked) / window;
        if self.friendly > window {
            per = per.min(window / (self.friendly - window));
        }
        per.max(2.0) as u32
    }
}
