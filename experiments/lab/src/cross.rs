// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Cross traffic that does not respond: streams that are on for heavy-tailed
//! times, so that together they are self-similar.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};
use crate::plan::Rng;

/// Ethernet, IPv4 and UDP before the payload of a packet.
const HEADERS: f64 = 42.0;
/// Payload of a packet.
const SIZES: std::ops::RangeInclusive<f64> = 64.0..=1472.0;
/// More would leave no time to be off.
const MOST_ON: f64 = 0.95;

/// On-off streams of UDP packets; the defaults are those of the papers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    /// What they offer in the mean, of the bottleneck's rate.
    pub load: f64,
    /// How many.
    #[serde(default = "default_streams")]
    pub streams: u32,
    /// Hurst parameter: on-times are Pareto with shape 3 - 2H.
    #[serde(default = "default_hurst")]
    pub hurst: f64,
    /// Bounds of the streams' mean packet rates while on, each second; the
    /// times between packets are exponential.
    #[serde(default = "default_packets_s")]
    pub packets_s: [f64; 2],
    /// Mean and standard deviation of the payload.
    #[serde(default = "default_bytes")]
    pub bytes: [f64; 2],
    /// Bounds of the streams' mean off-times, which are exponential.
    #[serde(default = "default_off_s")]
    pub off_s: [f64; 2],
}

fn default_streams() -> u32 {
    11
}

fn default_hurst() -> f64 {
    0.8
}

fn default_packets_s() -> [f64; 2] {
    [50.0, 150.0]
}

fn default_bytes() -> [f64; 2] {
    [1000.0, 200.0]
}

fn default_off_s() -> [f64; 2] {
    [1.0, 2.0]
}

/// A packet of the cross traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// When it is sent.
    pub at_ns: u64,
    /// Its payload.
    pub bytes: usize,
}

impl Cross {
    /// An error if the streams cannot be, or cannot offer so much.
    pub fn check(&self, rate_mbit: f64) -> Result<()> {
        let bad = |field: &str, reason: String| {
            Err(LabError::Scenario { field: format!("cross.{field}"), reason })
        };
        if self.streams == 0 || self.streams > 1000 {
            return bad("streams", "needs 1 to 1000".into());
        }
        if !(self.hurst > 0.5 && self.hurst < 1.0) {
            return bad("hurst", format!("{} is not between 0.5 and 1", self.hurst));
        }
        let ranges = [("packets_s", self.packets_s, 1e6), ("off_s", self.off_s, 1e4)];
        for (field, [low, high], most) in ranges {
            if !(low > 0.0 && low <= high && high <= most) {
                return bad(field, format!("[{low}, {high}] is not a range above 0"));
            }
        }
        let [mean, deviation] = self.bytes;
        if !(SIZES.contains(&mean) && (0.0..=mean).contains(&deviation)) {
            return bad("bytes", format!("[{mean}, {deviation}] is no mean and deviation"));
        }
        let most = self.most_bit_s() * MOST_ON / (rate_mbit * 1e6);
        if !(self.load > 0.0 && self.load <= most) {
            return bad("load", format!("{} is not above 0 and at most {most:.2}", self.load));
        }
        Ok(())
    }

    /// What the streams would offer in the mean if they were always on.
    fn most_bit_s(&self) -> f64 {
        let rate = (self.packets_s[0] + self.packets_s[1]) / 2.0;
        f64::from(self.streams) * rate * (self.bytes[0] + HEADERS) * 8.0
    }

    /// All packets of a run in the order of their times, without end.
    pub fn packets(&self, seed: u64, rate_bit: u64) -> impl Iterator<Item = Packet> + use<> {
        let mut rng = Rng(seed);
        let on = (self.load * rate_bit as f64 / self.most_bit_s()).min(MOST_ON);
        let bytes = self.bytes;
        let mut streams: Vec<_> =
            (0..self.streams).map(|_| Stream::new(self, on, Rng(rng.next()))).collect();
        let mut next: BinaryHeap<_> =
            (0..streams.len()).map(|i| Reverse((streams[i].next_ns(), i))).collect();
        std::iter::from_fn(move || {
            let Reverse((at_ns, index)) = next.pop()?;
            let stream = &mut streams[index];
            let size = normal(&mut stream.rng, bytes).clamp(*SIZES.start(), *SIZES.end());
            next.push(Reverse((stream.next_ns(), index)));
            Some(Packet { at_ns, bytes: size as usize })
        })
    }
}

/// One stream: where it is in its on-time.
struct Stream {
    rng: Rng,
    packet_s: f64,
    off_s: f64,
    /// Least on-time: the scale of their distribution.
    least_on_s: f64,
    shape: f64,
    now_s: f64,
    off_at_s: f64,
}

impl Stream {
    /// A stream that is on for the part `on` of the time.
    fn new(cross: &Cross, on: f64, mut rng: Rng) -> Self {
        let packet_s = 1.0 / between(&mut rng, cross.packets_s);
        let off_s = between(&mut rng, cross.off_s);
        let shape = 3.0 - 2.0 * cross.hurst;
        let mean_on_s = off_s * on / (1.0 - on);
        let least_on_s = mean_on_s * (shape - 1.0) / shape;
        let mut stream =
            Self { rng, packet_s, off_s, least_on_s, shape, now_s: 0.0, off_at_s: 0.0 };
        if uniform(&mut stream.rng) < on {
            stream.off_at_s = stream.on_s();
        }
        stream
    }

    fn on_s(&mut self) -> f64 {
        self.least_on_s * uniform(&mut self.rng).powf(-1.0 / self.shape)
    }

    /// The time of its next packet.
    fn next_ns(&mut self) -> u64 {
        self.now_s += exponential(&mut self.rng, self.packet_s);
        while self.now_s > self.off_at_s {
            let on_at_s = self.off_at_s + exponential(&mut self.rng, self.off_s);
            self.off_at_s = on_at_s + self.on_s();
            self.now_s = on_at_s + exponential(&mut self.rng, self.packet_s);
        }
        (self.now_s * 1e9) as u64
    }
}

/// In (0, 1].
fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

fn between(rng: &mut Rng, [low, high]: [f64; 2]) -> f64 {
    low + (high - low) * uniform(rng)
}

fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * uniform(rng).ln()
}

/// After Box and Muller.
fn normal(rng: &mut Rng, [mean, deviation]: [f64; 2]) -> f64 {
    let radius = (-2.0 * uniform(rng).ln()).sqrt();
    mean + deviation * radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cross() -> Cross {
        serde_json::from_str(r#"{"load": 0.5}"#).expect("valid")
    }

    /// Mbit/s offered in each of so many seconds.
    fn offered(seed: u64, seconds: usize) -> Vec<f64> {
        let mut each = vec![0.0; seconds];
        for packet in cross().packets(seed, 10_000_000) {
            let Some(second) = each.get_mut((packet.at_ns / 1_000_000_000) as usize) else {
                break;
            };
            *second += (packet.bytes as f64 + HEADERS) * 8.0 / 1e6;
        }
        each
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn the_load_is_the_one_asked_for_in_the_long_run() {
        let loads: Vec<_> = (1..=10).map(|seed| mean(&offered(seed, 1000))).collect();
        let load = mean(&loads);
        assert!((4.5..5.5).contains(&load), "{load} Mbit/s of {loads:?}");
    }

    #[test]
    fn load_varies_on_long_times_too() {
        // Independent seconds would have a tenth of the variance in tens.
        let seconds = offered(3, 4000);
        let tens: Vec<_> = seconds.chunks(10).map(mean).collect();
        let variance =
            |v: &[f64]| v.iter().map(|x| (x - mean(v)).powi(2)).sum::<f64>() / v.len() as f64;
        assert!(variance(&tens) > 0.25 * variance(&seconds));
    }

    #[test]
    fn packets_are_in_order_and_the_seeds() {
        let some = |seed| cross().packets(seed, 10_000_000).take(5000).collect::<Vec<_>>();
        assert!(some(1).windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
        assert!(some(1).iter().all(|packet| SIZES.contains(&(packet.bytes as f64))));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let told = |cross: Cross| cross.check(10.0).expect_err("refused").to_string();
        assert!(cross().check(10.0).is_ok());
        assert!(told(Cross { load: 1.5, ..cross() }).contains("cross.load: 1.5 is not"));
        assert!(told(Cross { hurst: 1.0, ..cross() }).contains("cross.hurst"));
        assert!(told(Cross { off_s: [2.0, 1.0], ..cross() }).contains("cross.off_s"));
        assert!(told(Cross { bytes: [9000.0, 1.0], ..cross() }).contains("cross.bytes"));
        assert!(told(Cross { streams: 0, ..cross() }).contains("cross.streams"));
    }
}
