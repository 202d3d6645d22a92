// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! HyStart, as Linux' CUBIC has it: slow start ends when the queue is seen to grow.
//! Ha, Rhee: "Taming the Elephants: New TCP Slow Start", 2011.
use crate::{
    inner::Window,
    path::{MSS_BYTES, Nanos},
};

/// Smaller windows go on (`hystart_low_window`).
const LEAST_SEGMENTS: u32 = 16;
/// Samples whose least is a round's delay (`HYSTART_MIN_SAMPLES`).
const SAMPLES: u32 = 8;
/// ACKs of one train are not further apart (`hystart_ack_delta_us`).
const TRAIN_US: u64 = 2000;
/// What segmentation offload may hold back, and for how long (`hystart_ack_delay()`).
const OFFLOAD_BYTES: u64 = 4 * 65_536;
const OFFLOAD_MOST_US: u64 = 1000;
/// By so much a round's delay is above the smallest: an eighth, within these.
const DELAY_US: [u32; 2] = [4000, 16_000];

/// What it remembers of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hystart {
    ends_burst: u64,
    began_us: u64,
    last_us: u64,
    samples: u32,
    least_us: u32,
}

/// An ACK, for this.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When it came.
    pub now: Nanos,
    /// Its round-trip time.
    pub rtt_us: u32,
    /// The smallest of the connection.
    pub min_rtt_us: u32,
    /// All bursts before this one are acknowledged.
    pub acked_burst: u64,
    /// The next to be sent.
    pub next_burst: u64,
}

impl Hystart {
    /// Ends slow start if it is time (`hystart_update()`).
    pub fn sample(&mut self, window: &mut Window, sample: Sample) {
        if !window.in_slow_start() {
            return;
        }
        if sample.acked_burst > self.ends_burst {
            self.begin_round(sample);
        }
        if window.cwnd < LEAST_SEGMENTS {
            return;
        }
        let train = self.is_train(window.cwnd, sample);
        if self.is_delayed(sample) || train {
            window.ssthresh = window.cwnd;
        }
    }

    fn begin_round(&mut self, sample: Sample) {
        *self = Hystart {
            ends_burst: sample.next_burst,
            began_us: sample.now / 1000,
            last_us: sample.now / 1000,
            samples: 0,
            least_us: u32::MAX,
        };
    }

    /// The ACKs of a round take as long as half a round trip.
    fn is_train(&mut self, cwnd: u32, sample: Sample) -> bool {
        let now_us = sample.now / 1000;
        if now_us.saturating_sub(self.last_us) > TRAIN_US {
            return false;
        }
        self.last_us = now_us;
        let round_us = u64::from(sample.min_rtt_us);
        let sent_bytes = 2 * u64::from(cwnd) * u64::from(MSS_BYTES);
        let offload_us = (OFFLOAD_BYTES * round_us / sent_bytes).min(OFFLOAD_MOST_US);
        now_us - self.began_us > (round_us + offload_us) / 2
    }

    fn is_delayed(&mut self, sample: Sample) -> bool {
        self.least_us = self.least_us.min(sample.rtt_us);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        let [low, high] = DELAY_US;
        let more_us = (sample.min_rtt_us / 8).clamp(low, high);
        self.least_us > sample.min_rtt_us.saturating_add(more_us)
    }
}
