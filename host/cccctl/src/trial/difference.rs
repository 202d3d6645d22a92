// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Means of pairs, and how sure their difference is.
use serde::Serialize;

/// How sure an interval is to hold what is.
const SURE: f64 = 0.95;

/// A measure with and without coupling, of phases in pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Mean of the coupled phases.
    pub coupled: f64,
    /// Mean of the others.
    pub uncoupled: f64,
    /// The first less the second.
    pub difference: f64,
    /// Half the 95 % confidence interval of the difference.
    pub interval: f64,
}

impl Difference {
    /// Of pairs (coupled, not coupled); at least two are needed.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Difference> {
        if pairs.len() < 2 {
            return None;
        }
        let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count(pairs);
        let difference = mean(|(on, off)| on - off);
        let squares: f64 = pairs.iter().map(|(on, off)| (on - off - difference).powi(2)).sum();
        let deviation = (squares / (count(pairs) - 1.0)).sqrt();
        let interval = quantile(pairs.len() - 1) * deviation / count(pairs).sqrt();
        Some(Difference {
            coupled: mean(|pair| pair.0),
            uncoupled: mean(|pair| pair.1),
            difference,
            interval,
        })
    }

    /// Whether it is likely no accident.
    pub fn is_sure(&self) -> bool {
        self.difference.abs() > self.interval
    }
}

fn count(pairs: &[(f64, f64)]) -> f64 {
    pairs.len() as f64
}

/// What Student's t of so many degrees of freedom is [`SURE`] not to be beyond, on either
/// side.
fn quantile(freedom: usize) -> f64 {
    // The tangent of an angle, times the root of the freedom.
    let (mut within, mut beyond) = (0.0, std::f64::consts::FRAC_PI_2);
    for _ in 0..f64::MANTISSA_DIGITS {
        let angle = (within + beyond) / 2.0;
        if probability(freedom, angle) < SURE { within = angle } else { beyond = angle }
    }
    within.tan() * (freedom as f64).sqrt()
}

/// How likely it is within such an angle (Abramowitz and Stegun, 26.7.3 and 26.7.4).
fn probability(freedom: usize, angle: f64) -> f64 {
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2;
    // The sum of sin, or sin cos, and each further term by two more cosines.
    let (mut term, mut sum) = (if odd == 1 { sin * cos } else { sin }, 0.0);
    for n in (2..=freedom - odd).step_by(2) {
        sum += term;
        let n = (n - 1 + odd) as f64;
        term *= cos * cos * n / (n + 1.0);
    }
    if odd == 1 { (angle + sum) * std::f64::consts::FRAC_2_PI } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_say_how_sure_their_difference_is() {
        let told = Difference::of(&[(9.0, 10.0), (10.0, 12.0), (11.0, 14.0)]).expect("enough");
        assert_eq!((told.coupled, told.uncoupled, told.difference), (10.0, 12.0, -2.0));
        // s = 1, n = 3, t = 4.303.
        assert!((told.interval - 4.303 / 3f64.sqrt()).abs() < 1e-3, "{told:?}");
        assert!(!told.is_sure());
        let same = Difference::of(&[(1.0, 2.0), (2.0, 3.0)]).expect("enough");
        assert!(same.is_sure() && same.interval == 0.0);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let table = [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (29, 2.045),
            (30, 2.042),
            (31, 2.040),
            (120, 1.980),
            (999, 1.962),
        ];
        for (freedom, expected) in table {
            let is = quantile(freedom);
            assert!((is - expected).abs() < 6e-4, "{freedom}: {is}, expected {expected}");
        }
    }

    #[test]
    fn one_pair_says_nothing() {
        assert_eq!(Difference::of(&[(1.0, 2.0)]), None);
        assert_eq!(Difference::of(&[]), None);
    }
}
