// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The packets of cross traffic: streams that are on for heavy-tailed times, so
//! that together they are self-similar.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::random::Rng;
use crate::scenario::path::{CROSS_BYTES, Cross};

/// A packet of the cross traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// When it is sent.
    pub at_ns: u64,
    /// Its payload.
    pub bytes: usize,
}

/// All packets of a run in the order of their times, without end.
pub fn packets(cross: &Cross, seed: u64, rate_bit: u64) -> impl Iterator<Item = Packet> + use<> {
    let mut rng = Rng(seed);
    let on = cross.on(rate_bit);
    let bytes = cross.bytes;
    let mut streams: Vec<_> =
        (0..cross.streams).map(|_| Stream::new(cross, on, Rng(rng.next_u64()))).collect();
    let mut next: BinaryHeap<_> =
        (0..streams.len()).map(|i| Reverse((streams[i].next_ns(), i))).collect();
    std::iter::from_fn(move || {
        let Reverse((at_ns, index)) = next.pop()?;
        let stream = &mut streams[index];
        let size = stream.rng.normal(bytes).clamp(*CROSS_BYTES.start(), *CROSS_BYTES.end());
        next.push(Reverse((stream.next_ns(), index)));
        Some(Packet { at_ns, bytes: size as usize })
    })
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
        let packet_s = 1.0 / rng.between(cross.packets_s);
        let off_s = rng.between(cross.off_s);
        let shape = 3.0 - 2.0 * cross.hurst;
        let mean_on_s = off_s * on / (1.0 - on);
        let least_on_s = mean_on_s * (shape - 1.0) / shape;
        let mut stream =
            Self { rng, packet_s, off_s, least_on_s, shape, now_s: 0.0, off_at_s: 0.0 };
        if stream.rng.uniform() < on {
            stream.off_at_s = stream.on_s();
        }
        stream
    }

    fn on_s(&mut self) -> f64 {
        self.least_on_s * self.rng.uniform().powf(-1.0 / self.shape)
    }

    /// The time of its next packet.
    fn next_ns(&mut self) -> u64 {
        self.now_s += self.rng.exponential(self.packet_s);
        while self.now_s > self.off_at_s {
            let on_at_s = self.off_at_s + self.rng.exponential(self.off_s);
            self.off_at_s = on_at_s + self.on_s();
            self.now_s = on_at_s + self.rng.exponential(self.packet_s);
        }
        (self.now_s * 1e9) as u64
    }
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
        for packet in packets(&cross(), seed, 10_000_000) {
            let Some(second) = each.get_mut((packet.at_ns / 1_000_000_000) as usize) else {
                break;
            };
            *second += (packet.bytes as f64 + 42.0) * 8.0 / 1e6;
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
        let some = |seed| packets(&cross(), seed, 10_000_000).take(5000).collect::<Vec<_>>();
        assert!(some(1).windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
        assert!(some(1).iter().all(|packet| CROSS_BYTES.contains(&(packet.bytes as f64))));
    }
}
