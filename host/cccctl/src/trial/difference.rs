// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Means of pairs, and how sure their difference is.
use serde::Serialize;

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The normal distribution's, for more.
const MANY: f64 = 1.960;

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
        let freedom = pairs.len().checked_sub(2)?;
        let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count(pairs);
        let difference = mean(|(on, off)| on - off);
        let squares: f64 = pairs.iter().map(|(on, off)| (on - off - difference).powi(2)).sum();
        let deviation = (squares / (count(pairs) - 1.0)).sqrt();
        let quantile = T.get(freedom).copied().unwrap_or(MANY);
        let interval = quantile * deviation / count(pairs).sqrt();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_say_how_sure_their_difference_is() {
        let told = Difference::of(&[(9.0, 10.0), (10.0, 12.0), (11.0, 14.0)]).expect("enough");
        assert_eq!((told.coupled, told.uncoupled, told.difference), (10.0, 12.0, -2.0));
        // s = 1, n = 3, t = 4.303.
        assert!((told.interval - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{told:?}");
        assert!(!told.is_sure());
        let same = Difference::of(&[(1.0, 2.0), (2.0, 3.0)]).expect("enough");
        assert!(same.is_sure() && same.interval == 0.0);
    }

    #[test]
    fn one_pair_says_nothing() {
        assert_eq!(Difference::of(&[(1.0, 2.0)]), None);
        assert_eq!(Difference::of(&[]), None);
    }
}
