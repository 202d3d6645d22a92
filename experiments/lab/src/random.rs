// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Random numbers that the seed alone decides, in every version of everything.

/// splitmix64: jitter and cross traffic need no more.
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    pub fn uniform(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Uniform between two bounds.
    pub fn between(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Exponential.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    /// Normal, after Box and Muller.
    pub fn normal(&mut self, [mean, deviation]: [f64; 2]) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        mean + deviation * radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
