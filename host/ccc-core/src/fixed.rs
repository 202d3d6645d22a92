// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Fixed-point quantities.  Nothing in the engine is floating point: the same
//! reports give the same grants on every machine.

use std::ops::RangeInclusive;

/// Time in microseconds, from any fixed origin, never going backwards.
pub type Micros = u64;

/// A factor that an operator sets, with 8 fraction bits: the nearest one to
/// `value`, or `None` outside `range` or if not a number.
fn factor(value: f64, range: RangeInclusive<f64>) -> Option<u32> {
    range.contains(&value).then(|| (value * 256.0).round() as u32)
}

/// The operator's share of a VM in a group, with 8 fraction bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    /// Weight 1.
    pub const ONE: Weight = Weight(256);
    /// Smallest weight.
    pub const MIN: f64 = 0.01;
    /// Largest weight.
    pub const MAX: f64 = 1000.0;

    /// Rounds to the nearest 1/256; `None` outside [`Weight::MIN`] to
    /// [`Weight::MAX`] or if not a number.
    pub fn from_f64(value: f64) -> Option<Weight> {
        factor(value, Weight::MIN..=Weight::MAX).map(Weight)
    }

    /// The weight in units of 1/256.
    pub(crate) fn raw(self) -> u64 {
        u64::from(self.0)
    }
}

/// How many TCPs an aggregate is worth in congestion avoidance, with 8
/// fraction bits (MulTCP's N, dissertation section 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EquivalentTcps(u32);

impl Default for EquivalentTcps {
    fn default() -> EquivalentTcps {
        EquivalentTcps::ONE
    }
}

impl EquivalentTcps {
    /// One TCP.
    pub const ONE: EquivalentTcps = EquivalentTcps(256);
    /// Fewest.
    pub const MIN: f64 = 0.1;
    /// Most.
    pub const MAX: f64 = 64.0;

    /// Rounds to the nearest 1/256; `None` outside [`EquivalentTcps::MIN`] to
    /// [`EquivalentTcps::MAX`] or if not a number.
    pub fn from_f64(value: f64) -> Option<EquivalentTcps> {
        factor(value, EquivalentTcps::MIN..=EquivalentTcps::MAX).map(EquivalentTcps)
    }

    /// `amount` times the number of TCPs.
    pub(crate) fn scale(self, amount: u64) -> u64 {
        if amount == 0 { 0 } else { mul_div(amount, u64::from(self.0), 256) }
    }

    /// How many of so many TCPs can lose in one round trip.
    pub(crate) fn reductions(self) -> u32 {
        ((self.0 + 128) / 256).max(1)
    }

    /// Of so many TCPs, what `count` of those that can lose are worth.
    pub(crate) fn of(self, count: u32) -> EquivalentTcps {
        EquivalentTcps(self.0 / self.reductions() * count)
    }

    /// The window factor of one reduction: n TCPs of which one reduces lose
    /// (1 - beta) / n of their sum.  Below one TCP the factor stays beta.
    pub(crate) fn soften(self, beta: Beta) -> Beta {
        let loss = (Beta::ONE - u64::from(beta.0)) * 256 / u64::from(self.0.max(256));
        Beta((Beta::ONE - loss) as u32)
    }
}

/// A queueing delay to keep, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetDelay(u32);

impl Default for TargetDelay {
    fn default() -> TargetDelay {
        TargetDelay::DEFAULT
    }
}

impl TargetDelay {
    /// What is kept if nothing is said: as CoDel's and DualPI2's targets, some packets
    /// at any rate above 10 Mbit/s.
    pub const DEFAULT: TargetDelay = TargetDelay(5_000);
    /// Shortest, milliseconds: as fine as guests report round-trip times.
    pub const MIN_MS: f64 = 0.1;
    /// Longest, milliseconds.
    pub const MAX_MS: f64 = 1000.0;

    /// Rounds to the nearest microsecond; `None` outside [`TargetDelay::MIN_MS`] to
    /// [`TargetDelay::MAX_MS`] or if not a number.
    pub fn from_ms(value: f64) -> Option<TargetDelay> {
        let range = TargetDelay::MIN_MS..=TargetDelay::MAX_MS;
        range.contains(&value).then(|| TargetDelay((value * 1000.0).round() as u32))
    }

    /// The delay in milliseconds.
    pub fn ms(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    pub(crate) fn us(self) -> u64 {
        self.0.into()
    }
}

/// Window factor of a reduction, of 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beta(u32);

impl Beta {
    /// Reno's.
    pub(crate) const HALF: Beta = Beta(1 << 15);
    const ONE: u64 = 1 << 16;
    /// No window-based controller for paths shared with others reduces below 0.3
    /// (Reno has 0.5, CUBIC 0.7).  Most reduce by an eighth or more: 0.85 is the most
    /// of RFC 8511 for ECN, 7/8 Scalable TCP's and the most of Illinois and YeAH.
    /// Smaller reductions are raised to an eighth: those of HighSpeed TCP at large
    /// windows (RFC 3649: 0.1), of Westwood on a path with little queue, of DCTCP for
    /// few marks (RFC 8257).  The first event of an epoch is the only one that
    /// reduces, so it has to count for the others.
    const LOWEST: u32 = 19_661;
    const HIGHEST: u32 = 57_344;

    pub(crate) fn clamped(raw: u16) -> Beta {
        Beta(u32::from(raw).clamp(Beta::LOWEST, Beta::HIGHEST))
    }

    /// That of a reduction to this part of a whole, within the same bounds.
    pub(crate) fn of(part: u128, whole: u128) -> Beta {
        let raw = part.saturating_mul(Beta::ONE.into()) / whole.max(1);
        let raw = u32::try_from(raw).unwrap_or(u32::MAX);
        Beta(raw.clamp(Beta::LOWEST, Beta::HIGHEST))
    }

    pub(crate) fn max(self, other: Beta) -> Beta {
        Beta(self.0.max(other.0))
    }

    /// The part of its growth with which a controller that reduces by `self`
    /// takes no more than one that reduces by `other`: who gives up less, grows
    /// less (Yang and Lam, "General AIMD Congestion Control").
    pub(crate) fn growth_of(self, other: Beta) -> Fraction {
        let (own, others) = (u128::from(self.0), u128::from(other.0));
        let one = u128::from(Beta::ONE);
        Fraction::new((one - own) * (one + others), (one + own) * (one - others))
    }
}

/// A part of a whole, both in the same unit.  They are sums over any number of
/// VMs, so wider than what is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fraction {
    part: u128,
    whole: u128,
}

impl Fraction {
    pub(crate) const ALL: Fraction = Fraction { part: 1, whole: 1 };
    pub(crate) const NONE: Fraction = Fraction { part: 0, whole: 1 };

    pub(crate) fn new(part: u128, whole: u128) -> Fraction {
        Fraction { part, whole }
    }

    /// Whether it is twice all, or more.
    pub(crate) fn is_twice(self) -> bool {
        self.part / 2 >= self.whole
    }

    /// That part of an amount of less than 2^40, at most all of it.
    pub(crate) fn of(self, amount: u64) -> u64 {
        Window::from_bytes(amount).times(self).bytes().min(amount)
    }
}

impl Default for Fraction {
    fn default() -> Fraction {
        Fraction::ALL
    }
}

/// A part of a whole that 64 bits hold, as that of one VM or flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) part: u64,
    pub(crate) whole: u64,
}

/// What a window can be multiplied by.
pub(crate) trait Part {
    /// That part of a window, rounded down; all of it if there is no whole.
    fn of_window(self, window: Window) -> Window;
}

impl Part for Share {
    #[inline]
    fn of_window(self, window: Window) -> Window {
        Window(mul_div(window.0, self.part, self.whole)).min(Window::MAX)
    }
}

impl Part for Fraction {
    #[inline]
    fn of_window(self, window: Window) -> Window {
        // As of most, which is less to compare than to multiply.
        if self.part == self.whole {
            return window;
        }
        match (u64::try_from(self.part), u64::try_from(self.whole)) {
            (Ok(part), Ok(whole)) => window.times(Share { part, whole }),
            _ => window.times_wide(self.part, self.whole),
        }
    }
}

impl Part for Beta {
    fn of_window(self, window: Window) -> Window {
        window.times(Share { part: self.0.into(), whole: Beta::ONE })
    }
}

/// Bytes of window with 16 fraction bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Window(u64);

impl Window {
    /// 2^40 bytes: above any path's bandwidth-delay product, and low enough
    /// that no product below overflows 128 bits.
    pub(crate) const MAX: Window = Window(1 << 56);

    pub(crate) fn from_bytes(bytes: u64) -> Window {
        Window(bytes.min(Window::MAX.bytes()) << 16)
    }

    pub(crate) const fn bytes(self) -> u64 {
        self.0 >> 16
    }

    /// The value with its 16 fraction bits.
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    /// Whether the other is this one, but for an eighth, of which a report tells at a time.
    pub(crate) fn is_about(self, other: Window) -> bool {
        self.0.abs_diff(other.0) <= self.0 / 8
    }

    pub(crate) fn plus(self, other: Window) -> Window {
        Window(self.0.saturating_add(other.0)).min(Window::MAX)
    }

    /// A fraction of `self`, rounded down; all of it if there is no whole.
    pub(crate) fn times(self, part: impl Part) -> Window {
        part.of_window(self)
    }

    /// The same of sums over so many that 64 bits do not hold them.
    #[cold]
    fn times_wide(self, part: u128, whole: u128) -> Window {
        if whole == 0 {
            return self;
        }
        // A window has 57 bits, which leaves 71 for the part.
        let shift = (u128::BITS - part.max(whole).leading_zeros()).saturating_sub(71);
        let (part, whole) = (part >> shift, (whole >> shift).max(1));
        let wide = u128::from(self.0) * part / whole;
        Window(u64::try_from(wide).unwrap_or(u64::MAX)).min(Window::MAX)
    }

    /// What is left of `self` without that fraction.
    pub(crate) fn without(self, part: impl Part) -> Window {
        self.minus(self.times(part))
    }

    /// What makes `other` of it.
    pub(crate) fn to(self, other: Window) -> Fraction {
        Fraction::new(other.0.into(), self.0.max(1).into())
    }

    pub(crate) fn minus(self, other: Window) -> Window {
        Window(self.0.saturating_sub(other.0))
    }

    /// `self` halved `times` times.
    pub(crate) fn halved(self, times: u32) -> Window {
        Window(self.0.checked_shr(times).unwrap_or(0))
    }
}

/// `a * b / c` without overflow in between, saturating; `c` = 0 gives `a`.
#[inline]
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    // Where all is there, as in most reports, nothing is to be divided.
    if b == c || c == 0 {
        return a;
    }
    let wide = div_wide(u128::from(a) * u128::from(b), c);
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// `a / b`, of which most fit into 64 bits: to divide those is many times as fast.
#[inline]
pub(crate) fn div_wide(a: u128, b: u64) -> u128 {
    match u64::try_from(a) {
        Ok(a) => (a / b).into(),
        Err(_) => a / u128::from(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_outside_the_range_are_refused() {
        assert_eq!(Weight::from_f64(1.0), Some(Weight::ONE));
        for bad in [0.0, -1.0, 1000.1, 1e9, f64::NAN, f64::INFINITY] {
            assert_eq!(Weight::from_f64(bad), None, "weight {bad}");
        }
    }

    #[test]
    fn n_tcps_lose_an_nth_of_what_one_loses() {
        let half = Beta::clamped(32768);
        let two = EquivalentTcps::from_f64(2.0).expect("in range");
        assert_eq!(two.soften(half), Beta(49152));
        assert_eq!(EquivalentTcps::ONE.soften(half), half);
    }

    #[test]
    fn beta_outside_what_controllers_use_is_clamped() {
        assert_eq!(Beta::clamped(0), Beta(19_661), "0.3");
        assert_eq!(Beta::clamped(u16::MAX), Beta(Beta::HIGHEST));
    }

    #[test]
    fn windows_saturate() {
        let most = Window::from_bytes(u64::MAX);
        assert_eq!(most.plus(most), Window::MAX);
        assert_eq!(most.times(Fraction::new(u128::MAX, 1)), Window::MAX);
        assert_eq!(mul_div(7, 9, 0), 7);
    }

    #[test]
    fn e7_parts_of_any_sum_are_exact_enough() {
        let most = Window::from_bytes(u64::MAX);
        assert_eq!(Window(9).times(Fraction::new(7, 0)), Window(9), "of nothing");
        assert_eq!(most.times(Fraction::new(u128::MAX, u128::MAX)), most);
        assert_eq!(most.times(Fraction::new(1, u128::MAX)), Window::default());
        let half = most.times(Fraction::new(u128::MAX / 2, u128::MAX));
        assert!(most.raw() / 2 - half.raw() <= 1, "{half:?}");
        assert_eq!(Window(9).times(Fraction::new(2, 3)), Window(6));
    }

    #[test]
    fn e2_no_reduction_is_by_less_than_an_eighth() {
        let reduced = Window(1 << 20).times(Beta::clamped(u16::MAX));
        assert_eq!(reduced, Window((1 << 20) / 8 * 7));
        // What is legitimate stays as it is: Reno, CUBIC, ABE.
        for beta in [32_768, 45_875, 55_705] {
            assert_eq!(Beta::clamped(beta), Beta(u32::from(beta)));
        }
    }
}
