// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Means of few runs, and how far they may be off.

/// Student's t for a two-sided interval of 95 %, by degrees of freedom.
const STUDENT: [f64; 10] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// A mean and half of its interval's width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// It is within so much of it; 0 of a single number, of which nothing is known.
    pub half: f64,
}

impl Mean {
    /// Of at least one number.
    pub fn of(values: &[f64]) -> Mean {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let Some(freedom) = values.len().checked_sub(2) else { return Mean { mean, half: 0.0 } };
        let square = |value: &f64| (value - mean).powi(2);
        let variance = values.iter().map(square).sum::<f64>() / (count - 1.0);
        let half = STUDENT[freedom.min(STUDENT.len() - 1)] * (variance / count).sqrt();
        Mean { mean, half }
    }

    /// The least it may be.
    pub fn low(&self) -> f64 {
        self.mean - self.half
    }

    /// The most.
    pub fn high(&self) -> f64 {
        self.mean + self.half
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_students() {
        let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(mean.mean, 3.0);
        assert!((mean.half - 1.963).abs() < 0.001, "{mean:?}");
    }

    #[test]
    fn nothing_is_known_of_a_single_number() {
        assert_eq!(Mean::of(&[7.0]), Mean { mean: 7.0, half: 0.0 });
    }
}
