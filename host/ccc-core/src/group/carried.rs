// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How much of the sum of rates who comes may believe.
//!
//! While only near flows count, the aggregate is a small window.  Some growth makes it a large
//! rate, which nobody has sent, or which only a liar says it has.  Times the round-trip time of
//! a far flow that is a window which no path holds.  So who comes finds no more than twice what
//! has been delivered of late (RFC 7661, section 4.3), or what there was when it left lately, and
//! slow start tells the rest.
use crate::{
    fixed::{Fraction, Micros, Share, Window, mul_div},
    mean::MeanUnits,
};

/// A mean that changes at once by so many times.
const MUCH: u64 = 2;

/// So long who has left is remembered (as an empty group's window is).
const REMEMBER_US: Micros = 10_000_000;

/// A rate is over this time, and the largest of so long ago counts.
const OVER_US: Micros = 250_000;
/// Until one is known, it is over no less than so many round trips of those who are there: nothing
/// much grows before, and who comes and goes again and again keeps nobody from growing.
const LEAST_ROUNDS: Micros = 2;
const LATELY_US: Micros = 5_000_000;

/// What flows count in the mean, without and with what `waits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mean {
    empty: MeanUnits,
    present: MeanUnits,
}

impl Mean {
    pub(super) fn new(empty: MeanUnits, waits: u64) -> Mean {
        Mean { empty, present: empty.plus(waits) }
    }

    pub(super) fn us(self) -> Micros {
        self.present.us()
    }

    /// This one as a multiple of `other`.
    pub(super) fn over(self, other: Mean) -> Fraction {
        self.present.over(other.present)
    }

    pub(super) fn is_much_more_than(self, other: Mean) -> bool {
        self.empty.us() >= other.empty.us().saturating_mul(MUCH)
    }
}

/// Twice so many bytes a second, on their way at such a round-trip time.
fn twice(rate: u64, mean: Mean) -> Window {
    let rate = Window::from_bytes(rate);
    rate.plus(rate).times(Fraction::new(mean.us().into(), 1_000_000))
}

/// What has been delivered, in the host's clock.
#[derive(Debug, Default)]
struct Delivered {
    /// By those whose round trip took so long, from then on.
    round_us: Micros,
    began: Micros,
    since: Micros,
    bytes: u64,
    /// The largest rates, bytes a second: of the last `LATELY_US`, and of those before.
    most: u64,
    before: u64,
    most_since: Micros,
}

impl Delivered {
    fn add(&mut self, now: Micros, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let elapsed_us = now.saturating_sub(self.since);
        if elapsed_us >= OVER_US {
            self.end(now, elapsed_us);
        }
    }

    fn end(&mut self, now: Micros, elapsed_us: Micros) {
        let lasted_us = now.saturating_sub(self.most_since);
        if lasted_us >= LATELY_US {
            self.before = if lasted_us < 2 * LATELY_US { self.most } else { 0 };
            (self.most, self.most_since) = (0, now);
        }
        self.most = self.most.max(self.bytes.saturating_mul(1_000_000) / elapsed_us);
        (self.since, self.bytes) = (now, 0);
    }

    fn of(round_us: Micros, now: Micros) -> Delivered {
        let (began, since, most_since) = (now, now, now);
        Delivered { round_us, began, since, most_since, ..Delivered::default() }
    }

    fn is_known(&self, now: Micros) -> bool {
        now.saturating_sub(self.began) >= LEAST_ROUNDS * self.round_us
    }

    /// The rate, and before there was a whole one that up to now.
    fn rate(&self, now: Micros) -> u64 {
        match self.most.max(self.before) {
            0 => self.rate_up_to(now),
            most => most,
        }
    }

    fn rate_up_to(&self, now: Micros) -> u64 {
        let elapsed_us = now.saturating_sub(self.since).max(LEAST_ROUNDS * self.round_us);
        self.bytes.saturating_mul(1_000_000) / elapsed_us.max(1)
    }

    /// The rate of slow start, which has grown since the last whole one.
    fn cold_rate(&self, now: Micros) -> u64 {
        self.rate(now).max(self.rate_up_to(now))
    }
}

/// The sum of rates when somebody had left, and when that was.
#[derive(Clone, Copy, Debug)]
struct Left {
    at: Micros,
    window: Window,
    mean: Mean,
    /// Somebody has come back since.
    is_back: bool,
}

/// So many times what flows brought and had acknowledged is the window, of others' distances.
#[derive(Debug)]
struct Stretch(u64);

impl Stretch {
    const ONE: u64 = 1 << 32;

    fn follow(&mut self, before: Window, after: Window) {
        self.0 = mul_div(self.0, after.raw(), before.raw()).max(Stretch::ONE);
    }

    /// What who comes and goes has not changed.
    fn out_of(&self, window: Window) -> Window {
        window.times(Share { part: Stretch::ONE, whole: self.0 })
    }
}

impl Default for Stretch {
    fn default() -> Stretch {
        Stretch(Stretch::ONE)
    }
}

/// What is known of the sum of rates.
#[derive(Debug, Default)]
pub(super) struct Carried {
    now: Micros,
    delivered: Delivered,
    left: Option<Left>,
    stretch: Stretch,
}

impl Carried {
    /// Flows that count so in the mean begin where nothing is known.
    pub(super) fn begin(&mut self, now: Micros, mean: Micros) {
        self.now = now;
        self.delivered = Delivered::of(mean, now);
        self.stretch = Stretch::default();
    }

    /// The window has followed who counts.
    pub(super) fn follow(&mut self, before: Window, after: Window) {
        self.stretch.follow(before, after);
    }

    /// What the window becomes in a cold start.  Who comes from afar finds the sum of rates, as far
    /// as twice what has been delivered; who goes takes what others than it were given for it.  So who
    /// does both leaves the window as it was.
    pub(super) fn cold(&mut self, window: Window, before: Mean, after: Mean) -> Window {
        let all = window.times(after.over(before));
        if all <= window {
            return all.max(self.stretch.out_of(window)).min(window);
        }
        let is_known = self.come(before, after).is_some();
        let most = twice(self.delivered.cold_rate(self.now), after);
        if is_known { all.min(most).max(window) } else { window }
    }

    /// So much has been delivered.
    pub(super) fn count_delivered(&mut self, now: Micros, bytes: u64) {
        self.now = now;
        self.delivered.add(now, bytes);
    }

    /// Somebody has left others, where the window was so large.
    pub(super) fn leave(&mut self, window: Window, before: Mean, after: Mean) {
        if !before.is_much_more_than(after) {
            return;
        }
        // Of several who leave one after the other, the first one left all there was.
        if self.lately_left().is_none_or(|left| left.is_back) {
            self.left = Some(Left { at: self.now, window, mean: before, is_back: false });
        }
        // By those who are left alone.
        self.delivered = Delivered::of(after.us(), self.now);
    }

    fn lately_left(&self) -> Option<Left> {
        self.left.filter(|left| self.now.saturating_sub(left.at) < REMEMBER_US)
    }

    /// The most that who comes finds; none, if it comes from no farther than the others, or
    /// these have not been alone for long.
    pub(super) fn come(&mut self, before: Mean, after: Mean) -> Option<Most> {
        if !after.is_much_more_than(before) || !self.delivered.is_known(self.now) {
            return None;
        }
        self.left.iter_mut().for_each(|left| left.is_back = true);
        let known = self.lately_left().map(|left| left.window.times(after.over(left.mean)));
        Some(Most {
            known: known.unwrap_or_default(),
            used: twice(self.delivered.rate(self.now), after),
        })
    }
}

/// The most that there is for who comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// There was so much when it left.
    pub(super) known: Window,
    /// Twice what has been delivered is so much.
    pub(super) used: Window,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn mean(us: u64, waits: u64) -> Mean {
        Mean::new(MeanUnits { effective: 2 * us, weight: 2 }, waits)
    }

    /// What twice so much delivered is at a round trip of 50 ms, at that time.
    fn found(carried: &mut Carried) -> [u64; 2] {
        let most = carried.come(mean(1_000, 0), mean(50_000, 0)).expect("much farther");
        [most.known, most.used].map(Window::bytes)
    }

    fn goes_on(carried: &mut Carried, seconds: std::ops::Range<u64>, rate: u64) {
        let reports = 100 * seconds.start..100 * seconds.end;
        reports.for_each(|i| carried.count_delivered(i * SECOND / 100, rate / 100));
    }

    #[test]
    fn the_largest_rate_of_late_is_what_is_used() {
        let mut carried = Carried::default();
        goes_on(&mut carried, 1..3, 1_000_000);
        goes_on(&mut carried, 3..6, 200_000);
        assert_eq!(found(&mut carried), [0, 100_000], "a megabyte a second, twice, in 50 ms");
        goes_on(&mut carried, 6..20, 200_000);
        assert_eq!(found(&mut carried), [0, 20_000]);
        goes_on(&mut carried, 600..601, 0);
        assert!(found(&mut carried)[1] < 100, "after a pause");
    }

    #[test]
    fn who_has_left_is_remembered_for_ten_seconds() {
        let mut carried = Carried::default();
        goes_on(&mut carried, 1..5, 1_000_000);
        carried.leave(Window::from_bytes(99_000), mean(50_000, 49_000), mean(1_000, 49_000));
        goes_on(&mut carried, 5..6, 0);
        let most = found(&mut carried);
        assert_eq!(most, [50_000, 0], "99,000 in 99 ms; what others use begins anew");
        goes_on(&mut carried, 6..14, 100_000);
        assert_eq!(found(&mut carried), [50_000, 10_000]);
        goes_on(&mut carried, 14..15, 100_000);
        assert_eq!(found(&mut carried), [0, 10_000]);
    }

    #[test]
    fn who_leaves_again_leaves_what_there_is_then() {
        let mut carried = Carried::default();
        let leaves = |carried: &mut Carried, bytes: u64| {
            carried.leave(Window::from_bytes(bytes), mean(50_000, 0), mean(1_000, 0));
        };
        goes_on(&mut carried, 1..2, 0);
        leaves(&mut carried, 50_000);
        goes_on(&mut carried, 2..5, 0);
        leaves(&mut carried, 90_000);
        goes_on(&mut carried, 5..6, 0);
        assert_eq!(found(&mut carried), [50_000, 0], "nobody has come back between");
        leaves(&mut carried, 40_000);
        goes_on(&mut carried, 6..15, 0);
        assert_eq!(found(&mut carried), [40_000, 0], "for ten seconds more");
    }

    #[test]
    fn who_comes_again_at_once_finds_all_or_what_was_used_up_to_then() {
        let mut carried = Carried::default();
        goes_on(&mut carried, 1..2, 1_000_000);
        carried.leave(Window::from_bytes(50_000), mean(50_000, 0), mean(1_000, 0));
        let left = carried.now;
        carried.count_delivered(left + 1_999, 2_000);
        assert!(carried.come(mean(1_000, 0), mean(50_000, 0)).is_none(), "within two round trips");
        carried.count_delivered(left + 2_000, 2_000);
        assert_eq!(found(&mut carried), [50_000, 200_000], "4,000 in 2 ms, twice, in 50 ms");
    }

    #[test]
    fn what_a_cold_start_is_given_for_who_comes_goes_with_it() {
        let mut carried = Carried::default();
        let (near, far) = (mean(1_000, 0), mean(50_000, 0));
        carried.begin(SECOND, near.us());
        carried.count_delivered(SECOND + 10_000, 10_000);
        let scale = |carried: &mut Carried, window: u64, before, after| {
            let window = Window::from_bytes(window);
            let found = carried.cold(window, before, after);
            carried.follow(window, found);
            found.bytes()
        };
        let bytes = scale(&mut carried, 10_000, near, far);
        assert_eq!(bytes, 100_000, "10,000 in 10 ms, twice, in 50 ms, and not 500,000");
        assert_eq!(scale(&mut carried, 2 * bytes, far, near), 20_000, "a fiftieth would be less");
        assert_eq!(scale(&mut carried, 20_000, far, near), 20_000, "nothing more was given");
    }

    #[test]
    fn who_comes_from_no_farther_finds_all() {
        let mut carried = Carried::default();
        carried.leave(Window::from_bytes(99_000), mean(50_000, 0), mean(30_000, 0));
        assert!(carried.come(mean(30_000, 0), mean(50_000, 0)).is_none());
        assert_eq!(found(&mut carried), [0, 0], "and nothing is remembered of it");
    }
}
